package main

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// openPages logs the operator in.
func (h *rig) openPages(t *testing.T) *pageClient {
	t.Helper()
	code, link, errs := h.run("", "ui", "--print")
	require.Zero(t, code, errs)
	return openLink(t, link)
}

const clearConfig = `ui = "127.0.0.1:0"
[tools.inbox]
capability = "mail:read"
handler = { kind = "command", argv = ["/bin/echo", "mail"] }
[tools.post]
capability = "channel:out"
target = "x.com"
args = { text = "text" }
reversibility = "reversible"
handler = { kind = "command", argv = ["/bin/echo", "posted"] }
[[rules]]
match = { tool = "post" }
outcome = "allow"
[[rules]]
match = { tool = "inbox" }
outcome = "allow"
`

// What was read stands in the way of an allowed request; its page clears that with one
// button, and the same request asked again runs.
func TestUIClearTaints(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", clearConfig)
	d := h.serve()
	d.awaitLog("web UI listening")
	b := h.openPages(t)
	body := `{"tool_name":"post","request_data":{"text":"Hi"}}`
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(body)).Status)
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"inbox"}`)).Status)
	id := h.ask(body)
	h.awaitPending("default", id)
	_, text := b.get("r/default/" + id)
	require.Contains(t, text, `id="clear-taints"`)
	require.NotContains(t, text, `id="remember"`, "no grant would help")
	_, text, _ = b.post("r/default/"+id+"/clear-taints", url.Values{"clear": {"yes"}})
	require.Contains(t, text, "Taints cleared.")
	h.requireUndecided(id)
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(body)).Status)
	_, text = b.get("audit?q=taints_cleared")
	require.Contains(t, text, "operator:")
}

const uiExec = `ui = "127.0.0.1:0"
[workspaces.default]
`

// A command pattern is given on the page of a command, says what it covers and would have
// allowed, holds for the next request, and is taken back there.
func TestUIPattern(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", uiExec)
	d := h.serve()
	d.awaitLog("web UI listening")
	b := h.openPages(t)
	for _, line := range []string{"go test ./x", "go vet ./x"} {
		h.awaitPending("default", h.askExec(line))
	}
	id := h.askExec("go test ./a ./b")
	h.awaitPending("default", id)
	_, text := b.get("r/default/" + id)
	text = html.UnescapeString(text)
	require.Contains(t, text, `Always: exec_cmd like "go test ..." without other options in default, 90 days`)
	require.Contains(t, text, "It would have allowed 1 of the last 2 requests that were asked.")
	form := url.Values{"code": {"6"}, "commands": {"go ..."}, "sure": {"yes"}, "sha": {shownDigest.FindStringSubmatch(text)[1]}}
	code, _, _ := b.post("r/default/"+id+"/decide", form)
	require.Equal(t, http.StatusUnprocessableEntity, code, "only the pattern of the page")
	h.requireUndecided(id)
	form.Set("commands", "go test ...")
	_, text, _ = b.post("r/default/"+id+"/decide", form)
	require.Contains(t, html.UnescapeString(text), `Always: exec_cmd like "go test ..." without other options in default, 90 days`)
	require.NotContains(t, text, id+`/decide"`, "the next request is open")
	_, text = b.get("r/default/" + id)
	text = html.UnescapeString(text)
	require.Contains(t, text, `Always: exec_cmd like "go test ..." without other options in default, until `)
	require.Contains(t, text, `id="undo"`)
	require.Equal(t, approval.StatusApproved, h.response(id).Status)
	covered := h.askExec("go test ./c")
	require.Equal(t, approval.StatusAutoApproved, h.response(covered).Status)
	h.awaitPending("default", h.askExec("go test -exec sh ./c"))
	_, text = b.get("history?q=" + covered)
	require.Contains(t, html.UnescapeString(text), `Always: exec_cmd like "go test ..." without other options in default`)
	_, text, _ = b.post("r/default/"+id+"/undo", url.Values{"undo": {"yes"}})
	require.Contains(t, html.UnescapeString(text), `"go test ..."`)
	h.awaitPending("default", h.askExec("go test ./c"))
}

var ruleLines = regexp.MustCompile(`(?s)<code>(\[\[rules\]\].*?)</code>`)

// The page of a rule shows what permesso rule add prints, and changes nothing.
func TestUIProposeRule(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", `ui = "127.0.0.1:0"`+"\n"+ruleConfig)
	d := h.serve()
	d.awaitLog("web UI listening")
	b := h.openPages(t)
	body := `{"tool_name":"post","request_data":{"board":"</code><b>","text":"\\u202e \"\"\" *"}}`
	h.awaitPending("default", h.ask(body))
	id := h.ask(body)
	h.awaitPending("default", id)
	_, text := b.get("r/default/" + id)
	require.Contains(t, text, b.base+"r/default/"+id+"/rule")
	code, text := b.get("r/default/" + id + "/rule")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "It would have allowed 1 of the last 1 requests that were asked.")
	m := ruleLines.FindStringSubmatch(text)
	require.NotNil(t, m, text)
	_, out, _ := h.run("", "rule", "add", "--from", id)
	require.Contains(t, out, html.UnescapeString(m[1]))
	h.replaceConfig(`ui = "127.0.0.1:0"` + "\n" + ruleConfig + html.UnescapeString(m[1]))
	d.awaitTimes(logReloaded, 1)
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(body)).Status)
}

// approve --commands without a pattern suggests one on a terminal, with its sentence and
// figure, and asks.
func TestApproveSuggestedPattern(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "")
	h.serve()
	h.awaitPending("default", h.askExec("go test ./x"))
	for _, row := range []struct {
		key  string
		code int
	}{{"n\n", console.ExitRefused}, {"y\n", 0}} {
		id := h.askExec("go test ./a ./b")
		h.awaitPending("default", id)
		x := newTerminal(t)
		exit := x.run(t.Context(), h, "approve", id, "--commands")
		x.awaitText("requests that were asked.")
		x.awaitText(`Approve? Always: exec_cmd like "go test ..." without other options in default, 90 days [y/N] `)
		h.requireUndecided(id)
		x.press(row.key)
		code, errs := exit()
		require.Equal(t, row.code, code, errs)
		if row.code != 0 {
			h.requireUndecided(id)
			continue
		}
		x.awaitText(`Always: exec_cmd like "go test ..." without other options in default, until `)
		require.Equal(t, approval.StatusApproved, h.response(id).Status)
		require.Equal(t, approval.StatusAutoApproved, h.response(h.askExec("go test ./c")).Status)
	}
	id := h.askExec("sh -c id")
	h.awaitPending("default", id)
	x := newTerminal(t)
	code, errs := x.run(t.Context(), h, "approve", id, "--commands")()
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, errs, "sh runs what it is given")
	h.requireUndecided(id)
}

// The terminal of the daemon says what a rule for the request on the screen would do.
func TestTerminalRule(t *testing.T) {
	t.Parallel()
	w := newTerminalRig(t, 1)
	k := w.submit("home", "")
	w.awaitShown(k)
	w.recorder.await(t, approval.ShortID(k.ID)+"> ")
	w.press("rule\r")
	w.recorder.await(t, "No rule can allow this request:")
	w.recorder.await(t, `rule "rule 1" asks`)
	w.press("\x03")
	_ = w.wait()
}
