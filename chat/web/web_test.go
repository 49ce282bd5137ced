package web_test

import (
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/messagestest"
	"github.com/permesso-dev/permesso/chat/web"
)

func TestListShowsPendingRequests(t *testing.T) {
	w := newFixture(t)
	w.allow(func(r *web.Rights) { r.Operator = false })
	b := w.login()
	require.Contains(t, innerText(b.page("").find("count")), "No pending requests.")
	k := w.addRequest(1, nil)
	w.addRequest(2, func(p *approval.Pending) { p.Reversibility = approval.Irreversible })
	w.addRequest(3, func(p *approval.Pending) { p.Principal = "bob" })
	p := b.page("")
	require.Equal(t, "2 pending requests.", innerText(p.find("count")), "without the request that only bob may decide")
	row := p.find("q-personal-" + k.ID)
	require.Contains(t, innerText(row), "Meeting at 5")
	require.Contains(t, p.text, "<title>(2) Pending · permesso</title>")
	require.Contains(t, p.text, "irreversible")
}

func TestOperatorSeesRequestsOfOtherPrincipals(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, func(p *approval.Pending) { p.Principal = "bob" })
	p := b.page("r/personal/" + k.ID)
	require.Equal(t, http.StatusOK, p.StatusCode)
	require.Contains(t, p.text, "not decide it here")
	require.Nil(t, p.find("choose"))
}

// Every form results in exactly one decision with the right fields.
func TestDecisions(t *testing.T) {
	question := func(p *approval.Pending) {
		p.Type, p.Options, p.RequestData = approval.TypeQuestion, []string{"main", "next"}, approval.Raw(`{}`)
		p.Agent.Title = "Which branch?"
	}
	editable := func(p *approval.Pending) { p.Editable = "text" }
	for _, c := range []struct {
		why    string
		change func(p *approval.Pending)
		form   url.Values
		want   decide.Input
		note   string
	}{
		{"allow once", nil, url.Values{"code": {"1"}}, decide.Input{Verdict: approval.Approved, Scope: approval.Once, Code: "1"}, "Approved"},
		{"for the session", nil, url.Values{"code": {"2"}}, decide.Input{Verdict: approval.Approved, Scope: approval.Session, Code: "2"}, "Approved"},
		{"deny", nil, url.Values{"code": {"3"}, "text": {""}}, decide.Input{Verdict: approval.Denied, Code: "3"}, "Denied"},
		{"deny with a reason of two lines", nil, url.Values{"code": {"3"}, "text": {"not now\r\nlater"}}, decide.Input{Verdict: approval.Denied, Code: "3", Feedback: "not now\nlater"}, "Denied"},
		{"with a note", nil, url.Values{"code": {"4"}, "text": {"be quick"}}, decide.Input{Verdict: approval.Approved, Scope: approval.Once, Code: "4", Note: "be quick"}, "Approved"},
		{"a change", nil, url.Values{"code": {"5"}, "text": {"say less"}}, decide.Input{Verdict: approval.Overridden, Code: "5", Override: "say less"}, "say less"},
		{"a text to run instead", editable, url.Values{"code": {"7"}, "text": {"npm test\r\n"}}, decide.Input{Verdict: approval.Overridden, Code: "7", Override: "npm test"}, "npm test"},
		{"always", nil, url.Values{"code": {"6"}}, decide.Input{Verdict: approval.Approved, Scope: approval.Always, Code: "6"}, "Approved"},
		{"a question to the agent, confirmed", nil, url.Values{"code": {"?"}, "text": {"which color has it?"}, "sure": {"yes"}}, decide.Input{Verdict: approval.RequestMore, Feedback: "which color has it?"}, "which color"},
		{"an option", question, url.Values{"code": {"option2"}}, decide.Input{Verdict: approval.Answered, Text: "next"}, "next"},
		{"a free answer", question, url.Values{"code": {"answer"}, "text": {"neither"}}, decide.Input{Verdict: approval.Answered, Text: "neither"}, "neither"},
		{
			"irreversible, and confirmed", func(p *approval.Pending) { p.Reversibility = "" },
			url.Values{"code": {"1"}, "sure": {"yes"}},
			decide.Input{Verdict: approval.Approved, Scope: approval.Once, Code: "1"},
			"Approved",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			w := newFixture(t)
			b := w.login()
			k := w.addRequest(1, c.change)
			c.want.Key, c.want.PendingSHA256, c.want.By, c.want.Via = k, w.sha(k), ann.Person, "web"
			p := b.follow(b.decide(k, c.form))
			require.Equal(t, []decide.Input{c.want}, w.decisions)
			require.Contains(t, innerText(p.find("note")), c.note)
			require.Equal(t, b.pathOf(k), attr(p.find("decided"), "href"))
			require.True(t, strings.HasPrefix(attr(b.get(b.pathOf(k)).find("state"), "data-state"), "decided:"))
		})
	}
}

// The page of an agent's call names its subagent, as the agent's word, and has a form for another text where the agent takes
// one.
func TestPageOfACall(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	call := func(p *approval.Pending) { p.Editable, p.Subagent = "text", "code-reviewer" }
	p := b.get(b.pathOf(w.addRequest(1, call)))
	require.Contains(t, innerText(p.find("agent")), `Subagent: "code-reviewer"`)
	require.Equal(t, "7", attr(p.find("code-7"), "value"))
	require.NotEmpty(t, innerText(p.find("code-7")))
	require.NotNil(t, p.find("edit-text"))
	p = b.get(b.pathOf(w.addRequest(2, nil)))
	require.NotContains(t, p.text, "Subagent")
	require.Nil(t, p.find("edit-form"))
}

// A question that facts do not answer would end the request: a page asks first. One that they
// answer is answered at once.
func TestQuestionThatEndsTheRequestIsConfirmed(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	p := b.decide(k, url.Values{"code": {"?"}, "text": {"which color has it?"}})
	require.Equal(t, http.StatusOK, p.StatusCode)
	require.Contains(t, innerText(p.find("careful")), "Sending it to the agent ends the request")
	require.Equal(t, "?", attr(p.find("sure"), "value"))
	require.Equal(t, "Yes, send the question to the agent", innerText(p.find("sure")))
	p = b.follow(b.decide(k, url.Values{"code": {"?"}, "text": {"can it be undone?"}}))
	require.Contains(t, innerText(p.find("note")), "is still pending")
	require.Empty(t, w.decisions)
}

// A form that differs from those of the pages decides nothing.
func TestInvalidFormsDecideNothing(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	q := w.addRequest(2, func(p *approval.Pending) { p.Type, p.Options = approval.TypeQuestion, []string{"a", "b"} })
	sha := w.sha(k)
	for _, c := range []struct {
		why  string
		key  approval.Key
		form url.Values
		code int
	}{
		{"no digest: the pending on disk may differ from the shown one", k, url.Values{"code": {"1"}, "sha": {""}}, http.StatusBadRequest},
		{"two codes", k, url.Values{"code": {"3", "1"}}, http.StatusBadRequest},
		{"two digests", k, url.Values{"code": {"1"}, "sha": {sha, sha}}, http.StatusBadRequest},
		{"no code", k, url.Values{"text": {"1"}}, http.StatusBadRequest},
		{"an unknown field", k, url.Values{"code": {"1"}, "approved": {"true"}}, http.StatusBadRequest},
		{"an unknown code", k, url.Values{"code": {"banana"}}, http.StatusUnprocessableEntity},
		{"a text of the grammar that is no code of a button", k, url.Values{"code": {"approve " + k.ID}}, http.StatusUnprocessableEntity},
		{"an empty note", k, url.Values{"code": {"4"}, "text": {" "}}, http.StatusUnprocessableEntity},
		{"another text, but the agent takes none", k, url.Values{"code": {"7"}, "text": {"npm test"}}, http.StatusUnprocessableEntity},
		{"an empty text to run", w.addRequest(3, func(p *approval.Pending) { p.Editable = "text" }), url.Values{"code": {"7"}, "text": {" "}}, http.StatusUnprocessableEntity},
		{"a full-width digit 1", k, url.Values{"code": {"１"}}, http.StatusUnprocessableEntity},
		{"an option, but the request is an action", k, url.Values{"code": {"option1"}}, http.StatusUnprocessableEntity},
		{"a menu code, but the request is a question", q, url.Values{"code": {"1"}}, http.StatusUnprocessableEntity},
		{"an option beyond the last", q, url.Values{"code": {"option3"}}, http.StatusUnprocessableEntity},
		{"an answer that is a command", q, url.Values{"code": {"answer"}, "text": {"deny " + q.ID}}, http.StatusUnprocessableEntity},
		{"an empty answer", q, url.Values{"code": {"answer"}, "text": {""}}, http.StatusUnprocessableEntity},
		{"an unknown request", approval.Key{Workspace: workspace, ID: "0123456789abcdef"}, url.Values{"code": {"1"}, "sha": {sha}}, http.StatusNotFound},
		{"another workspace", approval.Key{Workspace: "other", ID: k.ID}, url.Values{"code": {"1"}, "sha": {sha}}, http.StatusBadRequest},
		{"an invalid id", approval.Key{Workspace: workspace, ID: "..%2f..%2fkeys"}, url.Values{"code": {"1"}, "sha": {sha}}, http.StatusBadRequest},
	} {
		p := b.decide(c.key, c.form)
		require.Equal(t, c.code, p.StatusCode, c.why)
	}
	other := strings.Repeat("0", 64)
	p := b.follow(b.decide(k, url.Values{"code": {"1"}, "sha": {other}}))
	require.Contains(t, innerText(p.find("note")), "The request changed since it was shown")
	require.Zero(t, w.decisionCount())
}

func TestIrreversibleNeedsConfirmation(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, func(p *approval.Pending) { p.Reversibility = approval.Irreversible })
	says := map[string]string{
		"1": "Yes, allow it once", "4": "Yes, allow it with this note", "6": "Yes, allow this now, and for 90 days allow x_post with any arguments in personal",
	}
	for _, form := range []url.Values{
		{"code": {"1"}}, {"code": {"6"}}, {"code": {"4"}, "text": {"a \"note\""}}, {"code": {"1"}, "sure": {"no"}},
	} {
		p := b.decide(k, form)
		require.Equal(t, http.StatusOK, p.StatusCode)
		require.Contains(t, innerText(p.find("careful")), "cannot be undone")
		require.Equal(t, form.Get("code"), attr(p.find("sure"), "value"))
		require.Equal(t, says[form.Get("code")], innerText(p.find("sure")))
		require.Zero(t, w.decisionCount())
	}
	require.Equal(t, http.StatusSeeOther, b.decide(k, url.Values{"code": {"3"}}).StatusCode, "a denial needs no confirmation")
	require.Equal(t, 1, w.decisionCount())
}

// The first decision wins. A later one gets its result.
func TestTwoTabs(t *testing.T) {
	w := newFixture(t)
	one, two := w.login(), w.login()
	k := w.addRequest(1, nil)
	sha := w.sha(k)
	s := two.listen("ws=personal&id=" + k.ID + "&state=waiting")
	s.next()
	one.follow(one.decide(k, url.Values{"code": {"3"}}))
	e := s.until(func(e streamEvent) bool { return e.HTML != "" })
	require.Contains(t, e.HTML, `data-state="decided:denied"`)
	require.Contains(t, e.HTML, "Denied by ann via web")
	require.NotContains(t, e.HTML, `id="code-1"`)
	p := two.follow(two.decide(k, url.Values{"code": {"1"}, "sha": {sha}}))
	require.Contains(t, innerText(p.find("note")), "Already denied by ann")
	require.Equal(t, 1, w.decisionCount())
	w.settle(k, approval.StatusDenied)
	e = s.until(func(e streamEvent) bool { return strings.Contains(e.HTML, "settled:denied") })
	require.Contains(t, e.HTML, `id="result"`)
	p = two.follow(two.decide(k, url.Values{"code": {"1"}, "sha": {sha}}))
	require.Contains(t, innerText(p.find("note")), "denied by ann", "also after it has ended")
	require.Equal(t, 1, w.decisionCount())
}

func TestReadOnly(t *testing.T) {
	w := newFixture(t)
	w.allow(func(r *web.Rights) { r.Decide = nil })
	b := w.login()
	k := w.addRequest(1, nil)
	require.Equal(t, "1 pending request.", innerText(b.page("").find("count")))
	p := b.page("r/personal/" + k.ID)
	require.Contains(t, p.text, "Meeting at 5")
	for _, id := range []string{"choose", "deny", "ask", "more"} {
		require.Nil(t, p.find(id), id)
	}
	for _, code := range []string{"1", "2", "3", "6", "?"} {
		p := b.follow(b.decide(k, url.Values{"code": {code}, "text": {"x"}, "sure": {"yes"}}))
		require.Contains(t, innerText(p.find("note")), "not an approver here", code)
	}
	require.Zero(t, w.decisionCount())
}

func TestExpiryWhileOpen(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, func(p *approval.Pending) { p.ExpiresAt = w.clock().Add(time.Minute) })
	s := b.listen("ws=personal&id=" + k.ID + "&state=waiting")
	s.next()
	w.advance(2 * time.Minute)
	w.server.Changed(k)
	e := s.until(func(e streamEvent) bool { return e.HTML != "" })
	require.Contains(t, e.HTML, "has expired")
	w.settle(k, approval.StatusExpired)
	s.until(func(e streamEvent) bool { return strings.Contains(e.HTML, "settled:expired") })
}

// The stream updates a list that was loaded before a change.
func TestListUpdates(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	first := w.addRequest(1, nil)
	rev := attr(b.page("").find("waiting"), "data-rev")
	second := w.addRequest(2, nil)
	s := b.listen("rev=" + rev)
	e := s.until(func(e streamEvent) bool { return e.Waiting == 2 })
	require.Contains(t, e.HTML, `id="q-personal-`+second.ID+`"`)
	require.NotContains(t, e.HTML, first.ID, "rows that the page has are not sent again")
	require.Equal(t, 1, e.New)
	require.Equal(t, "r/personal/"+first.ID, e.First)
	b.decide(first, url.Values{"code": {"3"}})
	e = s.until(func(e streamEvent) bool { return e.Waiting == 1 })
	require.Contains(t, e.HTML, `<li id="q-personal-`+first.ID+`" hx-swap-oob="delete">`)
	require.Contains(t, e.HTML, `data-n="1"`)
	s = b.listen("rev=99999")
	require.True(t, s.next().Stale, "a page with an unknown revision reloads")
}

// An open list shows a pause.
func TestPauseOnTheList(t *testing.T) {
	held := atomic.Bool{}
	w := newFixture(t, func(w *fixture) {
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
		e := s.until(func(e streamEvent) bool { return strings.Contains(e.HTML, `id="pauses"`) })
		require.Equal(t, now, strings.Contains(e.HTML, "lunch"))
		require.NotContains(t, e.HTML, "<b>")
		require.Equal(t, now, strings.Contains(b.page("").text, "lunch"))
		e = b.listen("rev=0").next() // a page that was disconnected
		require.Contains(t, e.HTML, `id="pauses"`)
		require.Equal(t, now, strings.Contains(e.HTML, "lunch"))
	}
}

// The page shows evidence, changes and the text of the program.
func TestRequestPageShowsAllDetails(t *testing.T) {
	w := newFixture(t, func(w *fixture) {
		w.server.Style = func(lang string) chat.Style {
			return chat.Style{Language: lang, Earlier: func(p *approval.Pending) *chat.EarlierRequest {
				former := *p
				former.RequestData = approval.Raw(`{"text":"Meeting at 4"}`)
				return &chat.EarlierRequest{Request: &former}
			}}
		}
	})
	b := w.login()
	k := w.addRequest(1, func(p *approval.Pending) {
		p.Resubmits = "00000000000000aa"
		p.Facts.Proof = &approval.Proof{Verified: true, Prover: "ci", Program: "send(x)\n\u202eend", Effects: []approval.ProvenEffect{
			{Domain: "mail", Op: "send", Args: approval.Raw(`{}`), Status: facts.Proven},
		}}
	})
	p := b.page("r/personal/" + k.ID)
	require.Equal(t, http.StatusOK, p.StatusCode, p.text)
	require.Contains(t, innerText(p.find("evidence")), "Verified by ci: mail send")
	require.Contains(t, p.text, `class="prover"`)
	require.Contains(t, innerText(p.find("changes")), "Meeting at 4")
	require.Contains(t, innerText(p.find("changes")), "Meeting at 5")
	require.Contains(t, innerText(p.find("source")), `\u{202E}end`)
	require.Contains(t, innerText(p.find("source")), "as verified")
}

// An event without a key makes the folders be read again, but at most once per
// reloadDelay. A change without an event is found after reloadInterval.
func TestFolderReadsAreRateLimited(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	b.page("")
	w.mu.Lock()
	before := w.reads
	w.mu.Unlock()
	for range 100 {
		w.server.Changed(approval.Key{})
		b.page("")
	}
	silently := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		require.LessOrEqual(t, w.reads, before+1)
		delete(w.waiting, k)
	}
	silently()
	require.Equal(t, "1 pending request.", innerText(b.page("").find("count")))
	w.advance(5 * time.Second)
	require.Equal(t, "No pending requests.", innerText(b.page("").find("count")), "read again after reloadDelay")
	w.put(k, w.asked[k])
	b.page("")
	w.mu.Lock()
	delete(w.waiting, k)
	w.mu.Unlock()
	w.advance(time.Minute)
	require.Equal(t, "No pending requests.", innerText(b.page("").find("count")))
}

func TestNext(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	require.Equal(t, b.sessionPath, b.page("next").Header.Get("Location"))
	one, two := w.addRequest(1, nil), w.addRequest(2, nil)
	to := func(k approval.Key) string { return b.sessionPath + "r/personal/" + k.ID }
	require.Equal(t, to(one), b.page("next").Header.Get("Location"))
	require.Equal(t, to(two), b.page("next?ws=personal&id="+one.ID).Header.Get("Location"))
	require.Equal(t, to(one), b.page("next?ws=personal&id="+two.ID).Header.Get("Location"), "after the last comes the first")
	b.decide(one, url.Values{"code": {"3"}})
	require.Equal(t, b.sessionPath, b.page("next?ws=personal&id="+two.ID).Header.Get("Location"), "no other pending request")
}

func TestBackendPages(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	removed := approval.Key{Workspace: workspace, ID: "00000000000000ff"} // its documents, so the log has to do
	now := w.clock()
	w.grants = []grant.Use{
		{Grant: grant.Grant{ID: "00000000000000aa", Terms: approval.Terms{Form: grant.Action, Workspace: workspace, ActionType: "send_message"}, By: "ann", CreatedAt: now, ExpiresAt: now.Add(time.Hour)}, Uses: 3},
		{Grant: grant.Grant{ID: "00000000000000bb", Terms: approval.Terms{Form: grant.Target, Workspace: workspace, Tool: "send", Target: "bob@example.org"}, By: "ann", CreatedAt: now, ExpiresAt: now.Add(-time.Hour)}},
	}
	for range 60 {
		w.history = append(w.history, &read.Request{Key: removed, Tool: "x_post", Target: "x.com", Status: approval.StatusApproved, By: "ann", Via: "web", AskedAt: now, EndedAt: now.Add(3 * time.Second)})
	}
	w.entries = []event.Entry{{Seq: 7, Time: now, Event: event.Approved, Workspace: workspace, RequestID: k.ID, Tool: "x_post", By: "ann", Via: "web"}}

	p := b.page("grants")
	require.Contains(t, textOf(p, "main"), "limits, the trifecta and always_ask rules apply all the same")
	require.Contains(t, innerText(p.find("g-00000000000000aa")), "used 3×")
	require.Contains(t, innerText(p.find("g-00000000000000bb")), "expired")
	p = b.follow(b.post(b.sessionPath+"grants/revoke", url.Values{"ws": {workspace}, "id": {"00000000000000aa"}}))
	require.Contains(t, innerText(p.find("note")), "Revoked.")
	require.Contains(t, innerText(p.find("g-00000000000000aa")), "revoked")
	require.Equal(t, http.StatusNotFound, b.post(b.sessionPath+"grants/revoke", url.Values{"ws": {workspace}, "id": {"none"}}).StatusCode)

	require.Contains(t, innerText(b.page("rules").find("rules")), "see it once")

	p = b.page("history?q=x&status=approved")
	require.Contains(t, p.text, "x_post → x.com")
	require.Contains(t, attr(p.find("older"), "href"), "before=")
	require.Contains(t, b.page("like?ws=personal&kind=x_post").text, "x_post → x.com")

	p = b.page("audit?q=x")
	require.Contains(t, p.text, "<td>7</td>")
	require.Contains(t, innerText(b.follow(b.post(b.sessionPath+"audit/verify", url.Values{"verify": {"yes"}})).find("note")), "12 entries")

	p = b.page("workspaces")
	require.Contains(t, innerText(p.find("ws-personal")), "faster than a person can read", "ann is rubber-stamping")
	require.Contains(t, innerText(p.find("ws-personal")), "Session ws:personal: read secret data")
	b.follow(b.post(b.sessionPath+"workspaces/pause", url.Values{"ws": {workspace}, "reason": {"lunch"}}))
	require.Equal(t, []string{workspace}, w.pausedWorkspaces)
	b.follow(b.post(b.sessionPath+"workspaces/resume", url.Values{"ws": {workspace}}))
	require.Empty(t, w.pausedWorkspaces)

	w.allow(func(r *web.Rights) { r.Operator = false })
	for path, form := range map[string]url.Values{
		"audit/verify": {"verify": {"yes"}}, "workspaces/pause": {"ws": {""}},
	} {
		require.Equal(t, http.StatusForbidden, b.post(b.sessionPath+path, form).StatusCode, path+" is only for the operator")
	}
	require.Equal(t, 1, w.verified)
	require.Empty(t, w.pausedWorkspaces)
}

func TestLanguageAndKeys(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	require.Contains(t, b.page("").text, `<html lang="en">`)
	b.follow(b.post(b.sessionPath+"settings", url.Values{"lang": {"it"}, "keys": {"off"}}))
	p := b.page("")
	require.Contains(t, p.text, `<html lang="it">`)
	require.Contains(t, p.text, "Nessuna richiesta in attesa.")
	require.Contains(t, p.text, `data-keys="off"`)
	require.Equal(t, http.StatusBadRequest, b.post(b.sessionPath+"settings", url.Values{"lang": {"xx"}, "keys": {"off"}}).StatusCode)
	w.allow(func(r *web.Rights) { r.Language = "it" })
	require.Contains(t, w.login().page("help").text, "Aiuto", "the approver's language, if the browser has no setting")
}

func TestEveryMessageIsReadAndWritten(t *testing.T) {
	var inTemplates []string
	names, err := fs.Glob(web.Files, "templates/*.html")
	require.NoError(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(web.Files, name)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`\bW\.(\w+)`).FindAllSubmatch(text, -1) {
			inTemplates = append(inTemplates, string(found[1]))
		}
	}
	require.NotEmpty(t, inTemplates)
	messagestest.RequireKeys[web.Words](t, "../messages", "web", inTemplates...)
}

// The stream sends no removal of a request that the user may not see.
func TestHiddenRequestsStayHiddenWhenRemoved(t *testing.T) {
	w := newFixture(t)
	w.allow(func(r *web.Rights) { r.Operator = false })
	mine := w.addRequest(1, nil)
	theirs := w.addRequest(2, func(p *approval.Pending) { p.Principal = "bob" })
	s := w.login().listen("rev=0")
	require.Contains(t, s.until(func(e streamEvent) bool { return e.Waiting == 1 }).HTML, mine.ID)
	w.settle(theirs, approval.StatusDenied)
	w.settle(mine, approval.StatusDenied)
	all := ""
	s.until(func(e streamEvent) bool {
		all += e.HTML
		return e.Waiting == 0
	})
	require.Contains(t, all, mine.ID)
	require.NotContains(t, all, theirs.ID)
}

// A browser keeps a static file and asks whether it changed.
func TestStaticFiles(t *testing.T) {
	w := newFixture(t)
	get := func(name, tag string) (status int, header http.Header) {
		r, err := http.NewRequest(http.MethodGet, w.base+"/static/"+name, nil)
		require.NoError(t, err)
		r.Header.Set("If-None-Match", tag)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode, resp.Header
	}
	is := func(want int, name, tag string) {
		t.Helper()
		got, _ := get(name, tag)
		require.Equal(t, want, got)
	}
	for name, kind := range map[string]string{"app.js": "text/javascript; charset=utf-8", "style.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"} {
		status, header := get(name, "")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, kind, header.Get("Content-Type"))
		require.Equal(t, "private, no-cache", header.Get("Cache-Control"))
		is(http.StatusNotModified, name, header.Get("ETag"))
		is(http.StatusOK, name, `"another"`)
	}
	is(http.StatusNotFound, "htmx.LICENSE", "")
	is(http.StatusNotFound, "none.js", "")
}
