package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/client"
)

// tuiRealConfig is for one user who is asked for everything.
const tuiRealConfig = `
listen = ""
ui = false
[workspaces.home]
autonomy = "supervised"
approval_timeout = "1h"
limits = { pending = 1000, ask_per_minute = 10000, per_minute = 10000, request_size = "4MiB" }
[workspaces.other]
[tools.say]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
reversibility = "reversible"
verb = "say"
summary = "{what}"
args = { what = "text" }
handler = { kind = "command", argv = ["/bin/true"] }
[tools.post]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
reversibility = "irreversible"
verb = "post"
summary = "{what}"
args = { what = "text" }
handler = { kind = "command", argv = ["/bin/true"] }
[tools.change]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
reversibility = "reversible"
verb = "change"
summary = "{what}"
args = { what = "text", diff = "diff" }
handler = { kind = "command", argv = ["/bin/true"] }
[tools.inbox]
capability = "mail:read"
handler = { kind = "command", argv = ["/bin/true"] }
[[rules]]
match = { tool = "inbox" }
outcome = "allow"
[[rules]]
match = { tool = ["say", "post", "change"] }
outcome = "ask"
`

// paneSizes are those of a desktop's terminal, and of a phone's.
var paneSizes = [][2]int{{80, 24}, {40, 20}}

// tuiPane is the terminal UI in a window of tmux.
type tuiPane struct {
	*tmuxServer
	width, height int
}

// tuiLine is the command line of the terminal UI, for a shell.
func (h *rig) tuiLine() string {
	return "permesso tui --home " + h.layout.Home + " --config " + h.config
}

// inTmux starts a server of tmux, each command line in a window.
func (h *rig) inTmux(t *testing.T, size [2]int, lines ...string) (all []*tuiPane) {
	t.Helper()
	dir, err := os.MkdirTemp("", "permesso-tmux-") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	s := newTmuxServer(t, dir, "s", "PATH="+scriptBin(t)+":"+os.Getenv("PATH"), "TZ=UTC", raceExitsFast)
	s.run("new-session", "-d", "-x", strconv.Itoa(size[0]), "-y", strconv.Itoa(size[1]), lines[0])
	for i, line := range lines {
		if i > 0 {
			s.run("new-window", "-d", line)
		}
		window := *s
		window.window = ":" + strconv.Itoa(i)
		all = append(all, &tuiPane{&window, size[0], size[1]})
	}
	return all
}

// rows are the cells of the screen, row by row.
func (p *tuiPane) rows() []string {
	p.t.Helper()
	return strings.Split(strings.TrimSuffix(p.run("capture-pane", "-p", "-t", p.window), "\n"), "\n")
}

// unwrapped is the text of a screen, without the breaks of its lines.
func unwrapped(rows []string) string {
	return regexp.MustCompile(`\s*\n↪ ?`).ReplaceAllString(strings.Join(rows, "\n"), " ")
}

var (
	tuiHeader = regexp.MustCompile(`^ (\S.*)?(pending requests?|…)( +\d+ of \d+)?$`)
	tuiHint   = regexp.MustCompile(`^(\S{1,5} [a-z0-9 ]+)( · \S{1,5} [a-z0-9 ]+)*$`)
	tuiBody   = regexp.MustCompile(`^(  |↪|› )`)
	tuiState  = regexp.MustCompile(`^(…$|loading…$|read to the end|lines \d+-\d+ of \d+( · .+)?$|⏸|The daemon is not running|The gate cannot be read)`)
)

// frame is what a screen shows within its frame. A frame that is being drawn is looked at again.
func (p *tuiPane) frame(rows []string) (body []string) {
	p.t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(5 * time.Millisecond) {
		body, wrong := p.within(rows)
		if wrong == "" {
			return body
		}
		require.True(p.t, time.Now().Before(end), "%s:\n%s", wrong, strings.Join(rows, "\n"))
		rows = p.rows()
	}
}

// within is what rows have within their frame. wrong says what is not as a frame has it.
func (p *tuiPane) within(rows []string) (body []string, wrong string) {
	last := len(rows)
	if last != p.height || !tuiHeader.MatchString(rows[0]) {
		return nil, fmt.Sprintf("%d rows, or no header", last)
	}
	for strings.Contains(strings.Join(rows, "\n"), "Esc cancel") && tuiBody.MatchString(rows[last-1]) { // a reply stands below a dialog
		last--
	}
	if !tuiHint.MatchString(rows[last-1]) {
		return nil, "no keys below"
	}
	for last > 1 && tuiHint.MatchString(rows[last-1]) {
		last--
	}
	for y, row := range rows {
		own := y == 0 || y >= last || row == "" || row == strings.Repeat("─", p.width) || tuiBody.MatchString(row) || tuiState.MatchString(row)
		if !own || ansi.StringWidthWc(row) > p.width {
			return nil, fmt.Sprintf("row %d", y)
		}
	}
	return rows[1:last], ""
}

// tuiReady reports whether a card is shown to its end, and keys count.
func tuiReady(rows []string) bool {
	text := strings.Join(rows, "\n")
	waits := regexp.MustCompile(`(?m)^(…|lines .*(…|approve|read on)|loading…)$`)
	return strings.Contains(text, "q back") && !strings.Contains(text, "↑↓ move") && !waits.MatchString(text)
}

// keyStep presses keys, once, and waits for what they give. A key does not count if the screen changes as it is pressed: a
// person presses it again, and so does a step after lostTime, a few times in a series.
type keyStep struct {
	keys  string        // names of keys, with blanks between them; or a text, after a quote
	on    string        // what is shown before; "card": a card on which keys count
	gives string        // what is shown after, or not shown, after a "!"
	again time.Duration // the time after which it presses again: in a dialog nothing shows that keys count
}

// card presses keys on a card, once they count.
func onCard(keys, gives string) keyStep { return keyStep{keys: keys, on: "card", gives: gives} }

// typed types a text.
func typed(text string) keyStep { return keyStep{keys: "'" + text, gives: "Text: " + text} }

// entered presses Enter in a dialog.
func entered(gives string) keyStep {
	return keyStep{keys: "Enter", on: "Esc cancel", gives: gives, again: 300 * time.Millisecond}
}

// acted is entered in a dialog of a page, where Enter opens the next one.
func acted(gives string) keyStep {
	return keyStep{keys: "Enter", on: "Esc cancel", gives: gives, again: time.Second}
}

// keyRun is a series of steps in a window.
type keyRun struct {
	*tuiPane
	steps   []keyStep
	pressed time.Time // the time of the last keys of the first step; zero: none
	lost    int       // keys that were pressed again, though their step says nothing of that
}

const (
	lostTime = 5 * time.Second
	maxLost  = 3
)

func (s keyStep) ready(rows []string) bool {
	if s.on == "card" {
		return tuiReady(rows)
	}
	return shows(rows, s.on)
}

// shows reports whether a text is shown, or not, after a "!".
func shows(rows []string, text string) bool {
	without, gone := strings.CutPrefix(text, "!")
	return strings.Contains(unwrapped(rows), without) != gone
}

// advance goes on with the steps, as far as it can without waiting.
func (r *keyRun) advance() (done bool) {
	r.t.Helper()
	if len(r.steps) == 0 {
		return true
	}
	s, rows := r.steps[0], r.rows()
	switch {
	case !r.pressed.IsZero() && shows(rows, s.gives):
		r.frame(rows)
		r.steps, r.pressed = r.steps[1:], time.Time{}
		return len(r.steps) == 0
	case r.pressed.IsZero() && s.keys == "" && s.ready(rows):
		r.pressed = time.Now()
	case r.pressed.IsZero() && s.ready(rows) || !r.pressed.IsZero() && s.keys != "" && time.Since(r.pressed) > cmp.Or(s.again, lostTime):
		text, literal := strings.CutPrefix(s.keys, "'")
		if !r.pressed.IsZero() && s.again == 0 {
			r.lost++
			require.LessOrEqual(r.t, r.lost, maxLost, "%+v in\n%s", s, strings.Join(rows, "\n"))
			if literal {
				r.press("C-u")
			}
		}
		if literal {
			r.press("-l", text)
		} else {
			r.press(strings.Fields(s.keys)...)
		}
		r.pressed = time.Now()
	}
	return false
}

// runKeys runs series of steps, each in its window, at the same time.
func runKeys(t *testing.T, runs ...*keyRun) {
	t.Helper()
	for end := time.Now().Add(testTimeout); len(runs) > 0; time.Sleep(5 * time.Millisecond) {
		var left []*keyRun
		for _, r := range runs {
			before := len(r.steps)
			if !r.advance() {
				left = append(left, r)
			}
			if len(r.steps) < before { // each step has its time, however slow the machine is
				end = time.Now().Add(testTimeout)
			}
		}
		if runs = left; len(runs) > 0 {
			require.True(t, time.Now().Before(end), "%+v in\n%s", runs[0].steps[0], strings.Join(runs[0].rows(), "\n"))
		}
	}
}

// do runs steps in one window.
func (p *tuiPane) do(steps ...keyStep) {
	p.t.Helper()
	runKeys(p.t, &keyRun{tuiPane: p, steps: steps})
}

// toEnd scrolls to the end of a card.
var toEnd = keyStep{keys: "End", on: "!loading…", gives: "q back"}

// opening opens the one request that has a text.
func opening(text string) []keyStep {
	return []keyStep{
		{keys: "/", on: "Enter open", gives: "Show only:"},
		{keys: "C-u", gives: "Show only:\n"},
		{keys: "'" + text, gives: "Show only: " + text},
		{keys: "Enter", gives: "!Esc cancel"},
		{keys: "Enter", on: "1 of 1", gives: "q back"},
		toEnd,
	}
}

// keyPath is what a person does with one request, and what follows.
type keyPath struct {
	name, body string
	steps      []keyStep
	verdict    approval.Verdict // "": none
	has        string           // what the decision has
}

const askSay = `{"tool_name":"say","request_data":{"what":"WHAT"}}`

var askPost = strings.ReplaceAll(askSay, "say", "post")

// tuiKeyPaths are the keys on a request.
var tuiKeyPaths = []keyPath{
	{"approve", askSay, []keyStep{onCard("Enter", "a approve"), onCard("a", "approved")}, approval.Approved, `"scope":"once"`},
	{"irreversible", askPost, []keyStep{
		onCard("a", "This cannot be undone"), typed("appr"), {keys: "Enter", gives: "Text: appr"}, {keys: "'ove", gives: "Text: approve"}, entered("Approved: post"),
	}, approval.Approved, `"scope":"once"`},
	{"deny", askSay, []keyStep{onCard("d", "denied")}, approval.Denied, ""},
	{"reason", askSay, []keyStep{onCard("D", "with a reason"), typed("not today"), entered("denied")}, approval.Denied, `"feedback":"not today"`},
	{"session", strings.Replace(askSay, "{", `{"session_id":"s1",`, 1), []keyStep{
		onCard("s", "For this session: say with any arguments in home."), entered("approved"),
	}, approval.Approved, `"scope":"session"`},
	{"always", askSay, []keyStep{onCard("w", "Always: say with any arguments in home, 90 days."), entered("approved")}, approval.Approved, `"scope":"always"`},
	{"pattern", `{"action_type":"exec_cmd","request_data":{"command":"go test ./WHAT"}}`, []keyStep{
		onCard("w", "Tab a command pattern"),
		{keys: "Tab", gives: "Tab only exactly this"},
		entered("This cannot be undone"),
		typed("approve"), entered("approved"),
		{keys: "u", gives: "Revoked", again: time.Second},
	}, approval.Approved, `"commands":["go","test","..."]`},
	{"note", askSay, []keyStep{onCard("e", "it runs unchanged"), typed("be brief"), entered("approved")}, approval.Approved, `"note":"be brief"`},
	{"change", askSay, []keyStep{
		onCard("e", "Tab a change"), {keys: "Tab", gives: "Run nothing"}, typed("say bye"), entered("overridden"),
	}, approval.Overridden, `"override":"say bye"`},
	{"facts", askSay, []keyStep{onCard("?", "Ask about"), typed("why?"), entered("needs your decision because")}, "", ""},
	{"question", askSay, []keyStep{
		onCard("?", "Ask about"), typed("which color?"), entered("Ask the agent"), entered("!Esc cancel"), onCard("", "which color?"),
	}, approval.RequestMore, `"feedback":"which color?"`},
	{"option", `{"type":"question","title":"WHAT","options":["main","next"]}`, []keyStep{onCard("2", "answered")}, approval.Answered, `"answer":"next"`},
	{"answer", `{"type":"question","title":"WHAT"}`, []keyStep{onCard("e", "Answer the question"), typed("both"), entered("answered")}, approval.Answered, `"answer":"both"`},
	{"help", askSay, []keyStep{onCard("h", "!a approve"), {keys: "x", gives: "a approve"}, onCard("Escape", "Enter open"), {keys: "Enter", gives: "a approve"}}, "", ""},
	{"next", askSay, []keyStep{onCard("n", "!next-1"), {keys: "q", gives: "Enter open"}, {keys: "Enter", gives: "q back"}}, "", ""},
	{"reveal", strings.Replace(askSay, "WHAT", "WHAT "+revealedToken, 1), []keyStep{
		onCard("r", "Secrets are shown"), {keys: "End", on: "what: reveal-1 ghp_012345", gives: "q back"}, onCard("d", "denied"),
	}, approval.Denied, ""},
	{"copy", askSay, []keyStep{onCard("y", "Copied")}, "", ""},
}

const revealedToken = "ghp_0123456789abcdefghijABCDEFGHIJ012345"

// Every key of a request does what the help says, at both sizes: through tmux and the daemon.
func TestTUIKeysInTmux(t *testing.T) {
	t.Parallel()
	for _, size := range paneSizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			h := newRig(t, "home", tuiRealConfig)
			h.serve()
			ids := make([]string, len(tuiKeyPaths))
			for i, k := range tuiKeyPaths {
				ids[i] = h.ask(strings.ReplaceAll(k.body, "WHAT", k.name+"-1"))
			}
			for _, id := range ids {
				h.awaitPending("home", id)
			}
			panes := h.inTmux(t, size, slices.Repeat([]string{h.tuiLine()}, 9)...)
			runs := make([]*keyRun, len(panes))
			for i, p := range panes {
				runs[i] = &keyRun{tuiPane: p}
			}
			for i, k := range tuiKeyPaths {
				r := runs[i%len(runs)]
				r.steps = append(append(r.steps, opening(k.name+"-1")...), k.steps...)
				r.steps = append(r.steps, keyStep{keys: "Escape", gives: "/ filter"})
			}
			runKeys(t, runs...)
			for i, k := range tuiKeyPaths {
				k.check(h, ids[i])
			}
		})
	}
}

// decisionOf is the decision that the gate keeps of a request, "" if there is none.
func (h *rig) decisionOf(id string) string {
	h.t.Helper()
	var doc struct {
		Decision json.RawMessage `json:"decision"`
	}
	require.NoError(h.t, json.Unmarshal([]byte(h.must("show", id, "--json")), &doc))
	return string(doc.Decision)
}

func (k keyPath) check(h *rig, id string) {
	h.t.Helper()
	if k.verdict == "" {
		require.Empty(h.t, h.decisionOf(id), k.name)
		return
	}
	h.response(id)
	d := h.decisionOf(id)
	require.Contains(h.t, d, fmt.Sprintf(`"verdict":%q`, k.verdict), k.name)
	require.Contains(h.t, d, k.has, k.name)
}

// The pages show, and change after a question: through tmux and the daemon.
func TestTUIPagesInTmux(t *testing.T) {
	t.Parallel()
	for _, size := range paneSizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			h := newRig(t, "home", tuiRealConfig)
			h.serve()
			id := h.ask(askSay)
			h.awaitPending("home", id)
			h.must("approve", id, "--always")
			require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"inbox"}`)).Status)
			p := h.inTmux(t, size, h.tuiLine())[0]
			p.do(
				keyStep{keys: "H", on: "Enter open", gives: "history · "}, keyStep{keys: "Down", on: "· inbox ·", gives: "› 20"},
				keyStep{keys: "Enter", gives: "approved · by operator"}, keyStep{keys: "q", gives: "history · "}, keyStep{keys: "q", gives: "/ filter"},
				keyStep{keys: "g", gives: "grants · "}, keyStep{keys: "Enter", on: "Enter change", gives: "Revoke this grant?"},
				keyStep{keys: "Escape", gives: "!Esc cancel"},
			)
			require.Contains(t, h.must("grants", "--json"), `"state":"active"`)
			p.do(
				keyStep{keys: "Enter", gives: "Revoke this grant?"}, acted("Revoked."), keyStep{keys: "q", gives: "/ filter"},
				keyStep{keys: "t", gives: "taints · "}, keyStep{keys: "Enter", on: "Enter change", gives: "Forget what was read in home?"}, acted("Cleared: home had "),
				keyStep{keys: "q", gives: "/ filter"},
				keyStep{keys: "p", gives: "pause · "}, keyStep{keys: "Enter", on: "Enter change", gives: "Pause everything?"}, acted("everything: ⏸"),
			)
			require.Equal(t, "[]\n", h.must("grants", "--json"))
			require.NotContains(t, h.must("session", "list"), "mail")
			later := h.ask(askSay)
			h.awaitPending("home", later)
			p.do(
				keyStep{keys: "q", gives: "/ filter"}, keyStep{keys: "Enter", gives: "q back"}, toEnd, onCard("a", "Approved: say"),
				keyStep{keys: "q", gives: "/ filter"}, keyStep{keys: "p", gives: "pause · "},
			)
			require.NoFileExists(t, filepath.Join(h.agent.Responses, later+".json"))
			p.do(keyStep{keys: "Enter", on: "Enter change", gives: "Resume everything?"}, acted("everything: not paused"), keyStep{keys: "q", gives: "/ filter"})
			require.Equal(t, approval.StatusApproved, h.response(later).Status)
			p.press("q")
			p.awaitEnd()
		})
	}
}

// awaitEnd waits until the program of the pane has ended: with it the server of tmux ends.
func (p *tuiPane) awaitEnd() {
	p.t.Helper()
	for end := time.Now().Add(testTimeout); p.command("has-session").Run() == nil; time.Sleep(20 * time.Millisecond) {
		require.True(p.t, time.Now().Before(end), "the program runs")
	}
}

// awaitThat waits until the screen fulfills a condition.
func (p *tuiPane) awaitThat(what string, ready func(rows []string) bool) {
	p.t.Helper()
	rows := p.rows()
	for end := time.Now().Add(testTimeout); !ready(rows); rows = p.rows() {
		require.True(p.t, time.Now().Before(end), "%s:\n%s", what, strings.Join(rows, "\n"))
		time.Sleep(10 * time.Millisecond)
	}
}

// resize changes the size, and waits until a dialog has been drawn for it.
func (p *tuiPane) resize(size [2]int) {
	p.t.Helper()
	p.width, p.height = size[0], size[1]
	p.run("resize-window", "-t", p.window, "-x", strconv.Itoa(size[0]), "-y", strconv.Itoa(size[1]))
	p.awaitThat("the new size", func(rows []string) bool {
		return tuiHeader.MatchString(rows[0]) && slices.Contains(rows, strings.Repeat("─", p.width)) && strings.Contains(strings.Join(rows, "\n"), "Esc cancel")
	})
}

// The size changes while a dialog is open: its text stays, and Enter does nothing until it was on the screen for a while.
func TestTUIResizeInTmux(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiRealConfig)
	h.serve()
	id := h.ask(askPost)
	h.awaitPending("home", id)
	next := h.ask(askSay)
	h.awaitPending("home", next)
	p := h.inTmux(t, paneSizes[0], h.tuiLine())[0]
	p.do(keyStep{keys: "Enter", on: "1 of 2", gives: "q back"}, onCard("a", "This cannot be undone"), typed("approve"))
	decision := filepath.Join(h.layout.Decisions("home"), id+".json")
	for _, size := range [][2]int{{40, 20}, {120, 50}, {33, 16}, {80, 24}, {40, 20}} {
		began := time.Now()
		p.resize(size)
		p.frame(p.rows())
		if time.Since(began) < 200*time.Millisecond {
			p.press("Enter")
		}
		if time.Since(began) >= 400*time.Millisecond {
			continue // the machine is slow: Enter may count
		}
		p.press("-l", "d")
		p.awaitThat("d, behind approve, or behind the blank that Enter is if it was read with it", func(rows []string) bool {
			return shows(rows, "Text: approved") || shows(rows, "Text: approve d")
		})
		require.NoFileExists(t, decision) // Enter was read before
		p.do(keyStep{keys: "C-u", gives: "!Text: approve"}, typed("approve"))
	}
	p.do(entered("approved"))
	require.Equal(t, approval.StatusApproved, h.response(id).Status)

	p.do(keyStep{keys: "n", gives: "a approve"}, toEnd, onCard("w", "Always: say with any arguments"))
	p.resize(paneSizes[0])
	p.awaitThat("the sentence", func(rows []string) bool {
		return strings.Contains(unwrapped(rows), "Always: say with any arguments in home, 90 days.")
	})
	p.do(entered("approved"))
	h.response(next)
	require.Contains(t, h.decisionOf(next), `"scope":"always"`)
}

// colorsOf are the parameters of colors in a screen with its attributes.
func colorsOf(screen string) (colors []string) {
	for _, m := range regexp.MustCompile("\x1b\\[([0-9;:]*)m").FindAllStringSubmatch(screen, -1) {
		for _, n := range strings.Split(m[1], ";") {
			if len(n) > 1 && n != "39" && n != "49" {
				colors = append(colors, n)
			}
		}
	}
	slices.Sort(colors)
	return slices.Compact(colors)
}

// Without color there is none; with 16 colors there are no others; and everything that colors say is said by the text.
func TestTUIColorsInTmux(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiRealConfig)
	h.serve()
	id := h.ask(`{"tool_name":"change","request_data":{"what":"x","diff":"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"},"rationale":"I need it."}`)
	h.awaitPending("home", id)
	panes := h.inTmux(t, paneSizes[0], "env NO_COLOR=1 "+h.tuiLine(), h.tuiLine(), "env TERM=xterm "+h.tuiLine(), "env TERM=xterm-16color "+h.tuiLine(), "env TERM=xterm-256color COLORTERM=truecolor "+h.tuiLine())
	same := func(signs string, steps ...keyStep) {
		t.Helper()
		var runs []*keyRun
		for _, p := range panes {
			runs = append(runs, &keyRun{tuiPane: p, steps: steps})
		}
		runKeys(t, runs...)
		text := func(rows []string) string { // without the position of the log
			return regexp.MustCompile(`log \d+ \w+`).ReplaceAllString(strings.Join(rows, "\n"), "log")
		}
		for i, p := range panes {
			p.awaitThat("the text of the first window", func(rows []string) bool { return text(rows) == text(panes[0].rows()) })
			screen := p.run("capture-pane", "-e", "-p", "-t", p.window)
			if i == 0 {
				require.Empty(t, colorsOf(screen))
				continue
			}
			require.Subset(t, []string{"31", "32", "35"}, colorsOf(screen), "%q", screen)
			for _, row := range strings.Split(screen, "\n") {
				if len(colorsOf(row)) > 0 {
					require.Regexp(t, signs, row)
				}
			}
		}
	}
	same("^$", keyStep{keys: "Home", on: "1 pending request", gives: "1 of 1"})
	same(`│ [+-]`, keyStep{keys: "Enter", gives: "q back"}, onCard("", "diff: +1 -1"))
	require.Contains(t, panes[1].run("capture-pane", "-e", "-p", "-t", panes[1].window), "\x1b[32m", "there are colors")
	h.must("deny", id, "no")
	same("denied|│ [+-]|no", keyStep{gives: "denied · by operator"})
	h.must("pause")
	same("⏸", keyStep{keys: "Escape", gives: "⏸"}, keyStep{gives: "No pending requests"})
	require.Contains(t, panes[1].run("capture-pane", "-e", "-p", "-t", panes[1].window), "\x1b[35m", "a warning")
}

// With 500 requests the list has its first and its last one, finds one, and decides it.
func TestTUI500InTmux(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiRealConfig)
	h.plain = true
	h.serve()
	ids := make([]string, 500)
	awaitFile(t, h.agent.Requests)
	for i := range ids { // many at once, as an agent in a loop
		ids[i] = client.NewID()
		body := strings.ReplaceAll(strings.Replace(askSay, "{", `{"request_id":"`+ids[i]+`",`, 1), "WHAT", fmt.Sprintf("number-%d-", i))
		file := h.file("request", body)
		require.NoError(t, os.Rename(file, filepath.Join(h.agent.Requests, ids[i]+".json")))
	}
	for _, id := range ids {
		h.awaitPending("home", id)
	}
	p := h.inTmux(t, paneSizes[0], h.tuiLine())[0]
	p.do(keyStep{on: "1 of 500", gives: "500 pending requests"}, keyStep{keys: "End", gives: "500 of 500"}, keyStep{keys: "Home", gives: "1 of 500"})
	p.do(opening("number-321-")...)
	p.do(onCard("a", "approved"), keyStep{keys: "q", gives: "499 pending requests"})
	require.Equal(t, approval.StatusApproved, h.response(ids[321]).Status)
	later := h.ask(strings.ReplaceAll(askSay, "WHAT", "later"))
	h.awaitPending("home", later)
	p.do(keyStep{keys: "Escape", gives: "!Show only"}, keyStep{gives: "500 pending requests"}, keyStep{keys: "End", gives: `"later"`})
}

// The daemon is killed and starts again: the terminal UI says so, and goes on.
func TestTUIKilledDaemonInTmux(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiRealConfig)
	d := h.serve()
	id := h.ask(askSay)
	h.awaitPending("home", id)
	p := h.inTmux(t, paneSizes[1], h.tuiLine())[0]
	p.do(keyStep{keys: "Enter", on: "Enter open", gives: "q back"}, toEnd, onCard("", "a approve"))
	d.kill()
	p.do(keyStep{gives: "The daemon is not running"})
	h.serve()
	p.do(keyStep{gives: "!The daemon is not running"}, toEnd, onCard("a", "approved · by operator"))
	require.Equal(t, approval.StatusApproved, h.response(id).Status)
}

// Two terminal UIs and a command decide the same requests at the same time: each has one decision, and both screens say
// which.
func TestTUIRaceInTmux(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiRealConfig)
	d := h.serve()
	d.awaitLog(`"serving"`)
	panes := h.inTmux(t, paneSizes[0], h.tuiLine(), h.tuiLine())
	statuses := map[string]approval.Status{}
	for i := range 6 {
		what := fmt.Sprintf("race-%d-", i)
		id := h.ask(strings.ReplaceAll(askSay, "WHAT", what))
		h.awaitPending("home", id)
		runs := make([]*keyRun, len(panes))
		for n, p := range panes {
			runs[n] = &keyRun{tuiPane: p, steps: append(opening(what), onCard("", "a approve"))}
		}
		runKeys(t, runs...)
		command, keys := []string{"deny", id}, []string{"a", "d"}
		if i%2 == 1 {
			command, keys = withSeen(h.layout, []string{"approve", id}), []string{"d", "a"}
		}
		coded := make(chan int, 1)
		run := func() {
			code, _, _ := h.inProcess("", command...)
			coded <- code
		}
		switch {
		case i < 2: // the command comes first
			run()
		default:
			go run()
		}
		panes[0].run("send-keys", "-t", panes[0].window, keys[0], ";", "send-keys", "-t", panes[1].window, keys[1])
		r := h.response(id)
		winners := 0
		if code := <-coded; code == 0 {
			winners++
			require.Equal(t, command[0] == "approve", r.Status == approval.StatusApproved)
		}
		for n, p := range panes {
			p.do(keyStep{gives: " · " + string(r.Status) + " · by " + *r.Decision.By}, keyStep{gives: "!Deciding…"})
			if strings.Contains(unwrapped(p.rows()), map[string]string{"a": "Approved: say", "d": "Denied: say"}[keys[n]]) {
				winners++
				require.Equal(t, keys[n] == "a", r.Status == approval.StatusApproved)
			}
			p.do(keyStep{keys: "Escape", gives: "/ filter"})
		}
		require.Equal(t, 1, winners)
		require.Contains(t, h.decisionOf(id), fmt.Sprintf(`"verdict":%q`, r.Status))
		statuses[id] = r.Status
	}
	d.stop()
	for id, status := range statuses {
		decided := regexp.MustCompile(`"event":"(approved|denied)(?:_by_user)?"[^\n]*"request_id":"`+id).FindAllStringSubmatch(h.readAudit("log.jsonl"), -1)
		require.Len(t, decided, 1)
		require.Equal(t, string(status), decided[0][1])
	}
}

// agentText has what a terminal must not get from an agent.
const agentText = "\x1b]0;agent\x07\x1b]2;agent\x1b\\\x1bk" + "agent\x1b\\\x1b]52;c;YWdlbnQ=\x07\u009d0;agent\u009c\x1bPtmux;\x1b\x1b]52;c;YWdlbnQ=\x07\x1b\\" + // title, clipboard
	"\x1b[2J\x1b[H\x1b[?1049l\x1b[31m\x1b[5;5Hagent\x1b[6n\x1b[c\x1b[3J\x1bc\x1b(0\u009b2J\x00\b\r\x0b\x0c\x7f\u0085" + // cursor, screen
	"\u202eevil\u202c\u2066x\u2069\u200f\u061c שלום مرحبا a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg\u3164h\ufe0f\U000e0041" + // bidi, invisible
	"e\u0301Z\u0335\u0321\u0327\u0300\u0301\u0302\u0303 \u20dda\u20e3 漢字かな한글Ａ　全角 👨‍👩‍👧‍👦👩🏽‍🚀🏳️‍🌈❤️1️⃣🇮🇹👍🏿\u2028\u2029\t|" // combining, wide

// What an agent writes does not reach the terminal, whatever it is, and moves nothing on the screen.
func TestTUIHostileInTmux(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]string{
		"text":  "first " + strings.Repeat(agentText, 8) + "\n 1 pending request\na approve · d deny\n↪ more\n" + agentText + "\n last",
		"line":  "first " + strings.Repeat(agentText, 20) + strings.Repeat("0123456789abcde漢", 1<<16) + " last",
		"lines": "first\n" + strings.Repeat("x\n", 100_000) + agentText + "\n last",
	} {
		for i, size := range paneSizes {
			if name == "line" && i == 0 || name == "lines" && i == 1 {
				continue
			}
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				t.Parallel()
				hostileInTmux(t, what, size)
			})
		}
	}
}

// scroll shows another part of a card.
func (p *tuiPane) scroll(key string) {
	p.t.Helper()
	before := p.rows()
	p.frame(before)
	p.press(key)
	p.awaitThat("another part", func(rows []string) bool { return !slices.Equal(rows, before) })
}

func hostileInTmux(t *testing.T, what string, size [2]int) {
	t.Helper()
	h := newRig(t, "home", tuiRealConfig)
	h.plain = true
	h.serve()
	body, err := json.Marshal(map[string]any{
		"tool_name": "say", "request_data": map[string]any{"what": what}, "title": agentText[:200], "preview": agentText, "rationale": agentText,
	})
	require.NoError(t, err)
	id := h.ask(string(body))
	h.awaitPending("home", id)
	p := h.inTmux(t, size, "read _; exec "+h.tuiLine())[0]
	written := filepath.Join(h.dir, "written")
	p.run("set-option", "-s", "set-clipboard", "on", ";", "set-option", "-g", "allow-passthrough", "on", ";", "set-option", "-g", "allow-rename", "on")
	p.run("pipe-pane", "-o", "-t", p.window, "cat >"+written)
	p.do(keyStep{keys: "Enter", gives: "1 pending request"}, keyStep{keys: "Enter", on: "Enter open", gives: "a approve"}, keyStep{on: "", gives: "May I say?"})
	for range 5 {
		p.scroll("PgDn")
	}
	p.do(keyStep{keys: "End", gives: "until "})
	for !strings.Contains(strings.Join(p.rows(), "\n"), " last") { // of the payload
		p.scroll("PgUp")
	}
	p.do(keyStep{keys: "End", gives: "until "}, onCard("e", "it runs unchanged"), keyStep{keys: "'note", gives: "Text: note"})
	require.NoFileExists(t, filepath.Join(h.layout.Decisions("home"), id+".json"))
	p.do(keyStep{keys: "Escape", gives: "a approve"}, onCard("a", "approved · by operator"))
	p.frame(p.rows())
	require.Equal(t, approval.StatusApproved, h.response(id).Status)
	p.do(keyStep{keys: "Escape", gives: "/ filter"})

	p.awaitValue("#{pane_title} #{window_name}", "permesso permesso")
	require.Empty(t, p.run("list-buffers"))
	b, err := os.ReadFile(written)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?s)\x1b[]P_^Xk].{0,40}").FindAllString(string(b), -1) {
		require.Regexp(t, `^\x1b\]2;(\(1\) )?permesso\x07`, m)
	}
	require.NotRegexp(t, "[\u0080-\u009f\u202e\u2066\u200b]", string(b))
}

// y copies what is shown to tmux, if tmux is set to take it.
func TestTUICopyInTmux(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiRealConfig)
	h.serve()
	h.awaitPending("home", h.ask(strings.ReplaceAll(askSay, "WHAT", "copied text")))
	p := h.inTmux(t, paneSizes[0], h.tuiLine())[0]
	p.run("set-option", "-s", "set-clipboard", "on")
	p.do(keyStep{keys: "Enter", on: "Enter open", gives: "q back"}, onCard("", "a approve"))
	require.Empty(t, p.run("list-buffers"))
	rows := p.frame(p.rows())
	p.do(keyStep{keys: "y", gives: "Copied"})
	var shown []string
	for _, row := range rows {
		shown = append(shown, strings.Fields(strings.TrimPrefix(row, "↪"))...)
	}
	require.Eventually(t, func() bool { return p.run("list-buffers") != "" }, testTimeout, 10*time.Millisecond)
	require.Equal(t, shown, strings.Fields(p.run("show-buffer")))
	require.Contains(t, shown, "text")
}
