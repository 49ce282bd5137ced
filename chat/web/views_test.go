package web_test

import (
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/web"
)

// A page shows every line of what would run, whatever a value looks like: nothing of it is lost,
// and none of its lines becomes a line of the gate.
func TestBlocksKeepEveryLine(t *testing.T) {
	for _, text := range append(hostile(t), "│ a\n- │ b\n┆ c\n+ x\n", "a: b\nc:\n", "1. x\n\n\n", "\n", "⚠ text\n· text") {
		for _, kind := range []string{facts.TypeText, facts.TypeDiff, facts.TypeJSON, facts.TypeCommand, facts.TypeRecipients} {
			p := &approval.Pending{
				ToolName: "x", ToolSHA256: "t", RequestData: approval.Raw(`{"v":` + quoted(t, text) + `}`),
				Runs: approval.Runs{Args: map[string]approval.Argument{"v": {Type: kind}}},
			}
			runs := chat.Style{}.Card(p).Runs
			want := make([]string, len(runs))
			values := 0
			for i, l := range runs {
				want[i] = l.Text
				if strings.HasPrefix(strings.TrimLeft(l.Text, "+- "), "│") {
					values++
				}
			}
			texts, numbers := web.BlockTexts(runs)
			require.Equal(t, want, texts, "%s: %.100q", kind, text)
			require.Len(t, numbers, values, "%s: %.100q", kind, text)
		}
	}
}

func quoted(t *testing.T, text string) string {
	b, err := json.Marshal(strings.ToValidUTF8(text, "\uFFFD"))
	require.NoError(t, err)
	return string(b)
}

// After a decision the next request opens that the user may decide, with a note about the
// decision; after the last one, the list. A refused decision stays on its request.
func TestNextAfterADecision(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	one, two, three := w.addRequest(1, nil), w.addRequest(2, nil), w.addRequest(4, nil)
	w.addRequest(3, func(p *approval.Pending) { p.Principal = "bob" })
	goesTo := func(want string, p *page) {
		t.Helper()
		to, _, _ := strings.Cut(p.Header.Get("Location"), "?said=")
		require.Equal(t, want, to)
	}
	sha := w.sha(two)
	goesTo(b.pathOf(three), b.decide(two, url.Values{"code": {"3"}}))
	goesTo(b.pathOf(two), b.decide(two, url.Values{"code": {"1"}, "sha": {sha}}))
	goesTo(b.pathOf(one), b.decide(three, url.Values{"code": {"1"}}))
	goesTo(b.sessionPath, b.decide(one, url.Values{"code": {"6"}}))
	require.Equal(t, 3, w.decisionCount())

	list := b.page("?said=4")
	require.Contains(t, innerText(list.find("note")), "Approved: run x_post Meeting at 5")
	require.Equal(t, b.pathOf(one)+"/undo", attr(list.find("undo"), "action"))
	require.Nil(t, b.page("?said=3").find("undo"), "this decision gave no grant")
	require.Nil(t, b.page("?said=2").find("decided"), "nothing was decided")
	w.allow(func(r *web.Rights) { r.Decide = nil })
	require.Nil(t, b.page("?said=4").find("undo"), "the right was lost")
	w.allow(func(r *web.Rights) { r.Operator, r.See = false, []string{"other"} })
	require.Nil(t, b.page("?said=4").find("decided"))
}

func TestListView(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	one := w.addRequest(1, nil)
	two := w.addRequest(2, func(p *approval.Pending) {
		p.Reversibility, p.Summary, p.ExpiresAt = approval.Irreversible, "<Lunch>", p.ExpiresAt.Add(-time.Minute)
	})
	three := w.addRequest(3, func(p *approval.Pending) { p.Type = approval.TypeQuestion; p.Agent.Title = "Which?" })
	names := map[string]string{rowOf(one): "1", rowOf(two): "2", rowOf(three): "3"}
	rows := func(n *html.Node) (shown string) {
		for c := range n.Descendants() {
			shown += names[attr(c, "id")]
		}
		return shown
	}
	for query, want := range map[string]string{
		"": "123", "sort=new": "321", "sort=due": "213", "show=irreversible": "2", "show=question": "3", "q=<lUNCH": "2", "q=which": "3",
		"q=span": "", "in=personal": "123", "in=other": "123", "show=all&sort=worst": "123", "sort=new&show=question&q=zz": "",
	} {
		require.Equal(t, want, rows(b.page("?"+strings.ReplaceAll(query, "<", "%3C")).find("waiting")), query)
	}
	require.Equal(t, "1 of 3 pending requests.", textOf(b.page("?show=question"), "count"))
	require.Contains(t, b.page("?show=question").text, "<title>(3) ")

	s := b.listen("rev=0&sort=due&show=irreversible")
	require.Equal(t, "2", rows(parseFragment(t, s.next().HTML)))
	four := w.addRequest(4, func(p *approval.Pending) {
		p.Reversibility, p.ExpiresAt = approval.Irreversible, p.ExpiresAt.Add(-time.Hour/2)
	})
	names[rowOf(four)] = "4"
	require.Equal(t, "42", rows(parseFragment(t, s.until(func(e streamEvent) bool { return e.Waiting == 4 }).HTML)))
}

func rowOf(k approval.Key) string { return "q-" + k.Workspace + "-" + k.ID }

// The history says verb, object and outcome, but of a request that only another person may
// decide no more than the log does.
func TestHistoryOfOthers(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, func(p *approval.Pending) { p.Principal = "bob" })
	w.history = []*read.Request{{Key: k, Tool: "x_post", Target: "x.com", Status: approval.StatusApproved}}
	w.settle(k, approval.StatusApproved)
	mine := textOf(b.page("history"), "history")
	require.Contains(t, mine, "Run x_post Meeting at 5")
	require.Contains(t, mine, "done")
	w.allow(func(r *web.Rights) { r.Operator = false })
	theirs := textOf(b.page("history"), "history")
	require.Contains(t, theirs, "x_post → x.com")
	require.NotContains(t, theirs, "Meeting")
	require.NotContains(t, theirs, "done")
}

// One banner tells of all pauses, and each pause is told once.
func TestPausesAreToldOnce(t *testing.T) {
	all := []string{"a", "b", workspace}
	w := newFixture(t, func(w *fixture) {
		w.rights.See = all
		w.server.Style = func(language string) chat.Style {
			return chat.Style{Language: language, Paused: func(ws string) *chat.Pause {
				if ws == "b" {
					return &chat.Pause{By: "bob", Reason: "own"}
				}
				return &chat.Pause{By: "ann", Reason: "lunch"}
			}}
		}
	})
	b := w.login()
	k := w.addRequest(1, nil)
	for _, path := range []string{"", "r/personal/" + k.ID, "workspaces", "history"} {
		p := b.page(path)
		require.Equal(t, 1, strings.Count(p.text, "lunch"), path)
		require.Equal(t, 1, strings.Count(p.text, "(own)"), path)
		require.Contains(t, textOf(p, "pauses"), "a, personal paused since")
	}
}

// A pause of everything is told once, as that. What is paused can be resumed, and not paused again.
func TestPauseOfEverything(t *testing.T) {
	w := newFixture(t, func(w *fixture) {
		w.rights.See = []string{"a", "b", workspace}
		w.server.Style = func(language string) chat.Style {
			return chat.Style{Language: language, Paused: func(ws string) *chat.Pause {
				own, all := w.Paused(ws)
				switch {
				case own:
					return &chat.Pause{By: "bob", Since: w.clock(), Reason: "own"}
				case all:
					return &chat.Pause{By: "ann", Since: w.clock(), Reason: "lunch"}
				}
				return nil
			}}
		}
	})
	b := w.login()
	offers := func() string {
		return strings.Join(slices.Collect(buttonsOf(b.page("workspaces").find("main"))), ", ")
	}
	require.Equal(t, "Pause everything, Pause a, Pause b, Pause personal", offers())
	w.pausedWorkspaces = []string{"b"}
	require.Equal(t, "Pause everything, Pause a, Resume b, Pause personal", offers())
	w.pausedWorkspaces = []string{""}
	require.Equal(t, "Resume everything", offers())
	p := b.page("")
	require.Regexp(t, `^Everything paused since .* by ann: .*\(lunch\)Pause and resume$`, textOf(p, "pauses"))
	s := b.listen("rev=0")
	require.Contains(t, s.next().HTML, "<strong>Everything</strong>")
	w.pausedWorkspaces = []string{"", "b"}
	require.Equal(t, "Resume everything, Resume b", offers())
	require.Regexp(t, `^Everything paused since .*\(lunch\)b paused since .*\(own\)Pause and resume$`, textOf(b.page(""), "pauses"))
}

// buttonsOf lists the texts of the buttons that pause or resume.
func buttonsOf(n *html.Node) iter.Seq[string] {
	return func(yield func(string) bool) {
		for d := range n.Descendants() {
			if d.Data == "button" && attr(d, "name") == "ws" && !strings.Contains(attr(d, "aria-label"), "taints") && !yield(innerText(d)) {
				return
			}
		}
	}
}

// The history says a result in words, and the page of the request too, with the complete result beside it.
func TestResultInWords(t *testing.T) {
	w := newFixture(t, maskWord)
	b := w.login()
	for result, want := range map[string]struct{ history, page, complete string }{
		`{"output":"done\n"}`:                   {"done", "done", `{"output":"done\n"}`},
		`{"output":"one\n\ttwo\n"}`:             {`one\n\ttwo`, "one\n\ttwo", `{"output":"one\n\ttwo\n"}`},
		`{"output":""}`:                         {"no output", "no output", `{"output":""}`},
		`{"output":"<b>\u202ex"}`:               {`<b>\u{202E}x`, `<b>\u{202E}x`, `{"output":"<b>\u202ex"}`},
		`{"output":"key=sesame"}`:               {"key=‹password, 6 characters›", "key=‹password, 6 characters›", `{"output":"key=‹password, 6 characters›"}`},
		`{"status":201,"body":"made\n"}`:        {"status 201 · made", "status 201\nmade", `{"status":201,"body":"made\n"}`},
		`{"status":204,"body":"","note":"cut"}`: {"status 204 · cut", "status 204\ncut", `{"status":204,"body":"","note":"cut"}`},
		`{"status":200,"body":{"id":7}}`:        {`{"status":200,"body":{"id":7}}`, `{"status":200,"body":{"id":7}}`, ""},
		`{"status":"200","body":"x"}`:           {`{"status":"200","body":"x"}`, `{"status":"200","body":"x"}`, ""},
		`{"output":"x","OUTPUT":"y"}`:           {`{"output":"x","OUTPUT":"y"}`, `{"output":"x","OUTPUT":"y"}`, ""},
		`{"output":"x","rows":3}`:               {`{"output":"x","rows":3}`, `{"output":"x","rows":3}`, ""},
		`{"output":["x"]}`:                      {`{"output":["x"]}`, `{"output":["x"]}`, ""},
		`"done\n"`:                              {`"done\n"`, `"done\n"`, ""},
		`{}`:                                    {"", "", ""},
	} {
		k := w.addRequest(1, nil)
		w.history = []*read.Request{{Key: k, Tool: "x_post", Status: approval.StatusApproved}}
		w.settle(k, approval.StatusApproved)
		r, err := approval.ParseResponse(w.records[k].Response)
		require.NoError(t, err)
		r.Result = approval.Raw(result)
		w.records[k].Response, err = r.Encode()
		require.NoError(t, err)
		require.Equal(t, want.history, strings.Join(withClass(b.page("history").find("history"), "detail"), "|"), result)
		p := b.get(b.pathOf(k))
		require.Equal(t, want.page, textOf(p, "output"), result)
		require.Equal(t, want.complete, textOf(p, "complete"), result)
		require.NotContains(t, p.text, secretWord)
	}
}

// withClass lists the texts of the elements with a class.
func withClass(n *html.Node, class string) (texts []string) {
	for d := range n.Descendants() {
		if attr(d, "class") == class {
			texts = append(texts, innerText(d))
		}
	}
	return texts
}

// An address without a page has one that says so, in the session or without; a method that
// the address does not take is refused as before.
func TestNotFound(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	for _, path := range []string{"nothing", "r/personal", "r/personal/" + strings.Repeat("0", 16)} {
		p := b.page(path)
		require.Equal(t, http.StatusNotFound, p.StatusCode, path)
		require.Contains(t, p.text, "<h1>Not found</h1>", path)
		require.NotNil(t, p.find("leave"), path)
	}
	require.Equal(t, http.StatusNotFound, b.post(b.sessionPath+"nothing", nil).StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, b.page("settings").StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, b.post(b.sessionPath+"history", nil).StatusCode)
	for path, code := range map[string]int{"/nothing": http.StatusNotFound, "/s/": http.StatusNotFound, "/s/x/nothing": http.StatusForbidden} {
		p := w.newBrowser().get(path)
		require.Equal(t, code, p.StatusCode, path)
		require.NotNil(t, p.find("main"), path)
		require.Nil(t, p.find("leave"), path)
		if code == http.StatusNotFound {
			require.Contains(t, p.text, `<a class="button" href="/open">Open the list</a>`, path)
		}
	}
}

// Only the operator who may decide in a workspace clears its taints, and only from our pages.
func TestClearWorkspaceTaints(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	at := b.sessionPath + "workspaces/clear-taints"
	form := url.Values{"ws": {workspace}, "session": {""}}
	require.Contains(t, b.page("workspaces").text, at)
	done := b.post(at, form)
	require.Contains(t, innerText(b.follow(done).find("note")), "Taints cleared.")
	require.Equal(t, []string{workspace + " "}, w.cleared)
	b.post(at, url.Values{"ws": {workspace}, "session": {"s1"}})
	require.Equal(t, []string{workspace + " ", workspace + " s1"}, w.cleared)

	require.Equal(t, http.StatusBadRequest, b.post(at, url.Values{"ws": {workspace}}).StatusCode)
	require.Equal(t, http.StatusForbidden, b.post(at, url.Values{"ws": {"other"}, "session": {""}}).StatusCode)
	foreign := set("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusForbidden, b.do(http.MethodPost, at, form.Encode(), foreign).StatusCode)
	require.Equal(t, http.StatusForbidden, w.newBrowser().post(at, form).StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, b.get(at).StatusCode)
	w.allow(func(r *web.Rights) { r.Operator = false })
	require.Equal(t, http.StatusForbidden, b.post(at, form).StatusCode)
	require.NotContains(t, b.page("workspaces").text, at)
	w.allow(func(r *web.Rights) { r.Operator, r.Decide = true, nil })
	require.Equal(t, http.StatusForbidden, b.post(at, form).StatusCode)
	require.Len(t, w.cleared, 2)
}
