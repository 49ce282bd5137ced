package web_test

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/web"
)

func TestListShowsWhatWaits(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *web.Rights) { r.Operator = false })
	b := w.login()
	require.Contains(t, inner(b.in("").find("count")), "Nothing waits.")
	k := w.asks(1, nil)
	w.asks(2, func(p *approval.Pending) { p.Reversibility = approval.Irreversible })
	w.asks(3, func(p *approval.Pending) { p.Principal = "bob" })
	p := b.in("")
	require.Equal(t, "2 requests wait.", inner(p.find("count")), "what waits for bob alone is no business of an approver's")
	row := p.find("q-personal-" + k.ID)
	require.Contains(t, inner(row), "Meeting at 5")
	require.Contains(t, p.text, "<title>(2) Waiting · permesso</title>")
	require.Contains(t, p.text, "irreversible")
}

func TestTheOperatorSeesWhatWaitsForOthers(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, func(p *approval.Pending) { p.Principal = "bob" })
	p := b.in("r/personal/" + k.ID)
	require.Equal(t, http.StatusOK, p.StatusCode)
	require.Contains(t, p.text, "not decide it here")
	require.Nil(t, p.find("choose"))
}

// Every way of answering arrives as exactly what was meant, and once.
func TestAnswers(t *testing.T) {
	question := func(p *approval.Pending) {
		p.Type, p.Options, p.RequestData = approval.TypeQuestion, []string{"main", "next"}, approval.Raw(`{}`)
		p.Agent.Title = "Which branch?"
	}
	for _, c := range []struct {
		why    string
		change func(p *approval.Pending)
		form   url.Values
		want   approval.DecisionInput
		said   string
	}{
		{"allow once", nil, url.Values{"code": {"1"}}, approval.DecisionInput{Verdict: approval.Approved, Scope: approval.Once, Code: "1"}, "Approved"},
		{"for the session", nil, url.Values{"code": {"2"}}, approval.DecisionInput{Verdict: approval.Approved, Scope: approval.Session, Code: "2"}, "Approved"},
		{"deny", nil, url.Values{"code": {"3"}, "text": {""}}, approval.DecisionInput{Verdict: approval.Denied, Code: "3"}, "Denied"},
		{"deny with a reason of two lines", nil, url.Values{"code": {"3"}, "text": {"not now\r\nlater"}}, approval.DecisionInput{Verdict: approval.Denied, Code: "3", Feedback: "not now\nlater"}, "Denied"},
		{"with a note", nil, url.Values{"code": {"4"}, "text": {"be quick"}}, approval.DecisionInput{Verdict: approval.Approved, Scope: approval.Once, Code: "4", Note: "be quick"}, "Approved"},
		{"another way", nil, url.Values{"code": {"5"}, "text": {"say less"}}, approval.DecisionInput{Verdict: approval.Overridden, Code: "5", Override: "say less"}, "say less"},
		{"always", nil, url.Values{"code": {"6"}}, approval.DecisionInput{Verdict: approval.Approved, Scope: approval.Always, Code: "6"}, "Approved"},
		{"ask back", nil, url.Values{"code": {"?"}, "text": {"which colour has it?"}}, approval.DecisionInput{Verdict: approval.RequestMore, Feedback: "which colour has it?"}, "which colour"},
		{"an option", question, url.Values{"code": {"option2"}}, approval.DecisionInput{Verdict: approval.Answered, Text: "next"}, "next"},
		{"a free answer", question, url.Values{"code": {"answer"}, "text": {"neither"}}, approval.DecisionInput{Verdict: approval.Answered, Text: "neither"}, "neither"},
		{
			"irreversible, and confirmed", func(p *approval.Pending) { p.Reversibility = "" },
			url.Values{"code": {"1"}, "sure": {"yes"}},
			approval.DecisionInput{Verdict: approval.Approved, Scope: approval.Once, Code: "1"},
			"Approved",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			w := newWorld(t)
			b := w.login()
			k := w.asks(1, c.change)
			c.want.Key, c.want.PendingSHA256, c.want.By, c.want.Via = k, w.sha(k), ann.Person, "web"
			p := b.follow(b.answer(k, c.form))
			require.Equal(t, []approval.DecisionInput{c.want}, w.answers)
			require.Contains(t, inner(p.find("note")), c.said)
			require.True(t, strings.HasPrefix(attr(p.find("state"), "data-state"), "decided:"))
		})
	}
}

// What is not exactly one of the forms decides nothing.
func TestFormsThatDecideNothing(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, nil)
	q := w.asks(2, func(p *approval.Pending) { p.Type, p.Options = approval.TypeQuestion, []string{"a", "b"} })
	sha := w.sha(k)
	for _, c := range []struct {
		why  string
		key  approval.Key
		form url.Values
		code int
	}{
		{"no digest: what is on the disk may be another", k, url.Values{"code": {"1"}, "sha": {""}}, http.StatusBadRequest},
		{"two codes", k, url.Values{"code": {"3", "1"}}, http.StatusBadRequest},
		{"two digests", k, url.Values{"code": {"1"}, "sha": {sha, sha}}, http.StatusBadRequest},
		{"no code", k, url.Values{"text": {"1"}}, http.StatusBadRequest},
		{"a field that there is none of", k, url.Values{"code": {"1"}, "approved": {"true"}}, http.StatusBadRequest},
		{"banana", k, url.Values{"code": {"banana"}}, http.StatusUnprocessableEntity},
		{"a code of the grammar's, but no button's", k, url.Values{"code": {"approve " + k.ID}}, http.StatusUnprocessableEntity},
		{"a note without a note", k, url.Values{"code": {"4"}, "text": {" "}}, http.StatusUnprocessableEntity},
		{"full-width one", k, url.Values{"code": {"１"}}, http.StatusUnprocessableEntity},
		{"an option of an action", k, url.Values{"code": {"option1"}}, http.StatusUnprocessableEntity},
		{"a menu's code for a question", q, url.Values{"code": {"1"}}, http.StatusUnprocessableEntity},
		{"an option beyond the last", q, url.Values{"code": {"option3"}}, http.StatusUnprocessableEntity},
		{"an answer that is a command", q, url.Values{"code": {"answer"}, "text": {"deny " + q.ID}}, http.StatusUnprocessableEntity},
		{"an empty answer", q, url.Values{"code": {"answer"}, "text": {""}}, http.StatusUnprocessableEntity},
		{"an unknown request", approval.Key{Workspace: workspace, ID: "0123456789abcdef"}, url.Values{"code": {"1"}, "sha": {sha}}, http.StatusNotFound},
		{"another workspace", approval.Key{Workspace: "other", ID: k.ID}, url.Values{"code": {"1"}, "sha": {sha}}, http.StatusBadRequest},
		{"an id that is none", approval.Key{Workspace: workspace, ID: "..%2f..%2fkeys"}, url.Values{"code": {"1"}, "sha": {sha}}, http.StatusBadRequest},
	} {
		p := b.answer(c.key, c.form)
		require.Equal(t, c.code, p.StatusCode, c.why)
	}
	other := strings.Repeat("0", 64)
	p := b.follow(b.answer(k, url.Values{"code": {"1"}, "sha": {other}}))
	require.Contains(t, inner(p.find("note")), "no longer the one that was shown")
	require.Zero(t, w.count())
}

func TestIrreversibleIsConfirmed(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, func(p *approval.Pending) { p.Reversibility = approval.Irreversible })
	for _, form := range []url.Values{
		{"code": {"1"}}, {"code": {"6"}}, {"code": {"4"}, "text": {"a \"note\""}}, {"code": {"1"}, "sure": {"no"}},
	} {
		p := b.answer(k, form)
		require.Equal(t, http.StatusOK, p.StatusCode)
		require.Contains(t, inner(p.find("careful")), "cannot be taken back")
		require.Equal(t, form.Get("code"), attr(p.find("sure"), "value"))
		require.Zero(t, w.count())
	}
	require.Equal(t, http.StatusSeeOther, b.answer(k, url.Values{"code": {"3"}}).StatusCode, "a denial needs no second look")
	require.Equal(t, 1, w.count())
}

// The first answer wins, and whoever comes late hears it.
func TestTwoTabs(t *testing.T) {
	w := newWorld(t)
	one, two := w.login(), w.login()
	k := w.asks(1, nil)
	sha := w.sha(k)
	s := two.listen("ws=personal&id=" + k.ID + "&state=waiting")
	s.next()
	one.follow(one.answer(k, url.Values{"code": {"3"}}))
	e := s.until(func(e event) bool { return e.HTML != "" })
	require.Contains(t, e.HTML, `data-state="decided:denied"`)
	require.Contains(t, e.HTML, "Denied by ann via web")
	require.NotContains(t, e.HTML, `id="code-1"`)
	p := two.follow(two.answer(k, url.Values{"code": {"1"}, "sha": {sha}}))
	require.Contains(t, inner(p.find("note")), "Already denied by ann")
	require.Equal(t, 1, w.count())
	w.settle(k, approval.StatusDenied)
	e = s.until(func(e event) bool { return strings.Contains(e.HTML, "settled:denied") })
	require.Contains(t, e.HTML, `id="result"`)
	p = two.follow(two.answer(k, url.Values{"code": {"1"}, "sha": {sha}}))
	require.Contains(t, inner(p.find("note")), "denied by ann", "also when it has ended")
	require.Equal(t, 1, w.count())
}

func TestUndo(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, nil)
	p := b.follow(b.answer(k, url.Values{"code": {"6"}}))
	require.NotNil(t, p.find("undo"))
	w.grants = []web.GrantUse{{Grant: approval.Grant{ID: k.ID, Kind: approval.GrantRule, Workspace: workspace, ActionType: "send_message"}}}
	p = b.follow(b.post(b.at+"r/personal/"+k.ID+"/undo", url.Values{"undo": {"yes"}}))
	require.Contains(t, inner(p.find("note")), "send_message")
	require.False(t, w.grants[0].RevokedAt.IsZero())
}

func TestReadOnly(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *web.Rights) { r.Decide = nil })
	b := w.login()
	k := w.asks(1, nil)
	require.Equal(t, "One request waits.", inner(b.in("").find("count")))
	p := b.in("r/personal/" + k.ID)
	require.Contains(t, p.text, "Meeting at 5")
	for _, id := range []string{"choose", "deny", "ask", "more"} {
		require.Nil(t, p.find(id), id)
	}
	for _, code := range []string{"1", "2", "3", "6", "?"} {
		p := b.follow(b.answer(k, url.Values{"code": {code}, "text": {"x"}, "sure": {"yes"}}))
		require.Contains(t, inner(p.find("note")), "not an approver here", code)
	}
	require.Zero(t, w.count())
}

func TestExpiryWhileOpen(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, func(p *approval.Pending) { p.ExpiresAt = w.clock().Add(time.Minute) })
	s := b.listen("ws=personal&id=" + k.ID + "&state=waiting")
	s.next()
	w.later(2 * time.Minute)
	w.server.Changed(k)
	e := s.until(func(e event) bool { return e.HTML != "" })
	require.Contains(t, e.HTML, "Its time is over")
	w.settle(k, approval.StatusExpired)
	s.until(func(e event) bool { return strings.Contains(e.HTML, "settled:expired") })
}

// A list that was loaded before something happened is brought up to date.
func TestListUpdates(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	first := w.asks(1, nil)
	rev := attr(b.in("").find("waiting"), "data-rev")
	second := w.asks(2, nil)
	s := b.listen("rev=" + rev)
	e := s.until(func(e event) bool { return e.Waiting == 2 })
	require.Contains(t, e.HTML, `id="q-personal-`+second.ID+`"`)
	require.NotContains(t, e.HTML, first.ID, "what the page has already is not sent again")
	require.Equal(t, 1, e.New)
	require.Equal(t, "r/personal/"+first.ID, e.First)
	b.answer(first, url.Values{"code": {"3"}})
	e = s.until(func(e event) bool { return e.Waiting == 1 })
	require.Contains(t, e.HTML, `<li id="q-personal-`+first.ID+`" hx-swap-oob="delete">`)
	require.Contains(t, e.HTML, `data-n="1"`)
	s = b.listen("rev=99999")
	require.True(t, s.next().Stale, "a page of another time loads again")
}

// A pause is said on a list that is open.
func TestPauseOnTheList(t *testing.T) {
	held := atomic.Bool{}
	w := newWorld(t, func(w *world) {
		w.server.Style = func(lang string) chat.Style {
			return chat.Style{Language: lang, Paused: func(string) *chat.Pause {
				if held.Load() {
					return &chat.Pause{By: "<b>ann", Since: w.clock(), Reason: "lunch"}
				}
				return nil
			}}
		}
	})
	b := w.login()
	s := b.listen("rev=0")
	s.next()
	for _, now := range []bool{true, false} {
		held.Store(now)
		w.server.Changed(approval.Key{})
		e := s.until(func(e event) bool { return strings.Contains(e.HTML, `id="pauses"`) })
		require.Equal(t, now, strings.Contains(e.HTML, "lunch"))
		require.NotContains(t, e.HTML, "<b>")
		require.Equal(t, now, strings.Contains(b.in("").text, "lunch"))
		e = b.listen("rev=0").next() // a page that was deaf for a while
		require.Contains(t, e.HTML, `id="pauses"`)
		require.Equal(t, now, strings.Contains(e.HTML, "lunch"))
	}
}

// A page with all there is: what is known, what changed, and a program's text.
func TestEverythingKnown(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.server.Style = func(lang string) chat.Style {
			return chat.Style{Language: lang, Earlier: func(p *approval.Pending) *chat.EarlierRequest {
				former := *p
				former.RequestData = approval.Raw(`{"text":"Meeting at 4"}`)
				return &chat.EarlierRequest{Request: &former}
			}}
		}
	})
	b := w.login()
	k := w.asks(1, func(p *approval.Pending) {
		p.Resubmits = "00000000000000aa"
		p.Facts.Host = []approval.HostFact{{Domain: "mail", Name: "recipient", Values: []string{"bob@example.org"}, From: "template"}}
		p.Facts.Proof = &approval.Proof{Verified: true, Prover: "ci", Program: "send(x)\n\u202eend", Effects: []approval.ProvenEffect{
			{Domain: "mail", Op: "send", Args: approval.Raw(`{}`), Status: approval.EffectProven},
		}}
	})
	p := b.in("r/personal/" + k.ID)
	require.Equal(t, http.StatusOK, p.StatusCode, p.text)
	require.Contains(t, inner(p.find("evidence")), "bob@example.org")
	require.Contains(t, p.text, `class="prover"`)
	require.Contains(t, inner(p.find("changes")), "Meeting at 4")
	require.Contains(t, inner(p.find("changes")), "Meeting at 5")
	require.Contains(t, inner(p.find("source")), `\u{202E}end`)
	require.Contains(t, inner(p.find("source")), "as it was verified")
}

// "Something changed" has the folders read anew, and not again and again; what
// nobody told of is found by whoever looks a minute later.
func TestFoldersAreReadSeldom(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, nil)
	b.in("")
	w.mu.Lock()
	before := w.reads
	w.mu.Unlock()
	for range 100 {
		w.server.Changed(approval.Key{})
		b.in("")
	}
	silently := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		require.LessOrEqual(t, w.reads, before+1)
		delete(w.waiting, k)
	}
	silently()
	require.Equal(t, "One request waits.", inner(b.in("").find("count")))
	w.later(5 * time.Second)
	require.Equal(t, "Nothing waits.", inner(b.in("").find("count")), "what changed is looked for a moment later")
	w.put(k, w.asked[k])
	b.in("")
	w.mu.Lock()
	delete(w.waiting, k)
	w.mu.Unlock()
	w.later(time.Minute)
	require.Equal(t, "Nothing waits.", inner(b.in("").find("count")))
}

func TestNext(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	require.Equal(t, b.at, b.in("next").Header.Get("Location"))
	one, two := w.asks(1, nil), w.asks(2, nil)
	to := func(k approval.Key) string { return b.at + "r/personal/" + k.ID }
	require.Equal(t, to(one), b.in("next").Header.Get("Location"))
	require.Equal(t, to(two), b.in("next?ws=personal&id="+one.ID).Header.Get("Location"))
	require.Equal(t, to(one), b.in("next?ws=personal&id="+two.ID).Header.Get("Location"), "round and round")
	b.answer(one, url.Values{"code": {"3"}})
	require.Equal(t, b.at, b.in("next?ws=personal&id="+two.ID).Header.Get("Location"), "nothing else waits")
}

func TestHouse(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, nil)
	now := w.clock()
	w.grants = []web.GrantUse{
		{Grant: approval.Grant{ID: "00000000000000aa", Kind: approval.GrantRule, Workspace: workspace, ActionType: "send_message", By: "ann", CreatedAt: now, ExpiresAt: now.Add(time.Hour)}, Uses: 3},
		{Grant: approval.Grant{ID: "00000000000000bb", Kind: approval.GrantTarget, Workspace: workspace, Capability: "mail:send", Target: "bob@example.org", By: "ann", CreatedAt: now, ExpiresAt: now.Add(-time.Hour)}},
	}
	for range 60 {
		w.past = append(w.past, web.HistoryItem{Key: k, Kind: "x_post", Target: "x.com", Status: approval.StatusApproved, By: "ann", Via: "web", Asked: now, EndedAt: now.Add(3 * time.Second)})
	}
	w.entries = []approval.Entry{{Seq: 7, Time: now, Event: approval.EventApproved, Workspace: workspace, RequestID: k.ID, Tool: "x_post", By: "ann", Via: "web"}}

	p := b.in("grants")
	require.Contains(t, inner(p.find("g-00000000000000aa")), "used 3×")
	require.Contains(t, inner(p.find("g-00000000000000bb")), "expired")
	p = b.follow(b.post(b.at+"grants/revoke", url.Values{"ws": {workspace}, "id": {"00000000000000aa"}}))
	require.Contains(t, inner(p.find("note")), "Revoked")
	require.Contains(t, inner(p.find("g-00000000000000aa")), "revoked")
	require.Equal(t, http.StatusNotFound, b.post(b.at+"grants/revoke", url.Values{"ws": {workspace}, "id": {"none"}}).StatusCode)

	require.Contains(t, inner(b.in("rules").find("rules")), "see it once")

	p = b.in("history?q=x&status=approved")
	require.Contains(t, p.text, "x_post → x.com")
	require.Contains(t, attr(p.find("older"), "href"), "before=")
	require.Contains(t, b.in("like?ws=personal&kind=x_post").text, "x_post → x.com")

	p = b.in("audit?q=x")
	require.Contains(t, p.text, "<td>7</td>")
	require.Contains(t, inner(b.follow(b.post(b.at+"audit/verify", url.Values{"verify": {"yes"}})).find("note")), "12 entries")

	p = b.in("workspaces")
	require.Contains(t, inner(p.find("ws-personal")), "faster than anybody reads", "ann's figures are those of a stamp")
	require.Contains(t, inner(p.find("ws-personal")), "ws:personal: secret")
	b.follow(b.post(b.at+"workspaces/pause", url.Values{"ws": {workspace}, "reason": {"lunch"}}))
	require.Equal(t, []string{workspace}, w.braked)
	b.follow(b.post(b.at+"workspaces/resume", url.Values{"ws": {workspace}}))
	require.Empty(t, w.braked)

	w.allow(func(r *web.Rights) { r.Operator = false })
	for path, form := range map[string]url.Values{
		"audit/verify": {"verify": {"yes"}}, "workspaces/pause": {"ws": {""}},
	} {
		require.Equal(t, http.StatusForbidden, b.post(b.at+path, form).StatusCode, path+" is the operator's")
	}
	require.Equal(t, 1, w.verified)
	require.Empty(t, w.braked)
}

func TestLanguageAndKeys(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	require.Contains(t, b.in("").text, `<html lang="en">`)
	b.follow(b.post(b.at+"settings", url.Values{"lang": {"it"}, "keys": {"off"}}))
	p := b.in("")
	require.Contains(t, p.text, `<html lang="it">`)
	require.Contains(t, p.text, "Niente è in attesa.")
	require.Contains(t, p.text, `data-keys="off"`)
	require.Equal(t, http.StatusBadRequest, b.post(b.at+"settings", url.Values{"lang": {"xx"}, "keys": {"off"}}).StatusCode)
	w.allow(func(r *web.Rights) { r.Language = "it" })
	require.Contains(t, w.login().in("help").text, "Aiuto", "the approver's own, where the browser has none")
}

// Both catalogues have every sentence, and the same holes in it.
func TestCatalogues(t *testing.T) {
	all := web.Catalogues()
	en, it := reflect.ValueOf(all["en"]).Elem(), reflect.ValueOf(all["it"]).Elem()
	holes := func(s string) map[string]int {
		found := map[string]int{}
		for part := range strings.SplitSeq(s, "{") {
			if name, _, ok := strings.Cut(part, "}"); ok {
				found[name]++
			}
		}
		return found
	}
	for i := range en.NumField() {
		name := en.Type().Field(i).Name
		if en.Field(i).Kind() == reflect.Map {
			require.Equal(t, en.Field(i).Len(), it.Field(i).Len(), name)
			for _, k := range en.Field(i).MapKeys() {
				require.True(t, it.Field(i).MapIndex(k).IsValid(), "%s %v", name, k)
				a, b := en.Field(i).MapIndex(k).String(), it.Field(i).MapIndex(k).String()
				require.NotEmpty(t, a, name)
				require.NotEmpty(t, b, name)
				require.Equal(t, holes(a), holes(b), "%s %v", name, k)
			}
			continue
		}
		require.NotEmpty(t, en.Field(i).String(), name)
		require.NotEmpty(t, it.Field(i).String(), name)
		require.Equal(t, holes(en.Field(i).String()), holes(it.Field(i).String()), name)
	}
}

// Nobody hears of the end of what they could not see, nor of what was over before they came.
func TestDeparturesAreOnesOwn(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *web.Rights) { r.Operator = false })
	mine := w.asks(1, nil)
	theirs := w.asks(2, func(p *approval.Pending) { p.Principal = "bob" })
	s := w.login().listen("rev=0")
	require.Contains(t, s.until(func(e event) bool { return e.Waiting == 1 }).HTML, mine.ID)
	w.settle(theirs, approval.StatusDenied)
	w.settle(mine, approval.StatusDenied)
	all := ""
	s.until(func(e event) bool {
		all += e.HTML
		return e.Waiting == 0
	})
	require.Contains(t, all, mine.ID)
	require.NotContains(t, all, theirs.ID)
}
