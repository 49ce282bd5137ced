package tui

import (
	"context"
	"encoding/base64"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	uv "github.com/charmbracelet/ultraviolet"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

const (
	enter  = "\r"
	escape = "\x1b"
	tab    = "\t"
	endKey = "\x1b[F"
	down   = "\x1b[B"
)

// keyPath is what a person does with one request, and what follows.
type keyPath struct {
	key     string // as the help names it
	name    string
	kind    string   // of the request; "": reversible, of the tool say
	presses []string // after each the screen comes to rest; longer texts are typed
	verdict approval.Verdict
	check   func(t *testing.T, d asked)
	shows   string // is on the screen at the end
}

func scope(s approval.Scope) func(*testing.T, asked) {
	return func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, s, d.Scope)
	}
}

var keyPaths = []keyPath{
	{key: "a", name: "reversible", presses: []string{"a"}, verdict: approval.Approved, check: scope(approval.Once), shows: "approved by ann"},
	{key: "a", name: "irreversible, the word", kind: "post", presses: []string{"a", "approve", enter}, verdict: approval.Approved, check: scope(approval.Once)},
	{key: "a", name: "irreversible, the short id", kind: "post", presses: []string{"a", "57f3b2c1", enter}, verdict: approval.Approved},
	{key: "a", name: "irreversible, Enter alone", kind: "post", presses: []string{"a", enter, enter}, shows: "This cannot be undone"},
	{key: "a", name: "irreversible, another word", kind: "post", presses: []string{"a", "yes", enter}, shows: "That is neither approve nor 57f3b2c1"},
	{key: "a", name: "irreversible, given up", kind: "post", presses: []string{"a", "approve", escape, enter}, shows: "a approve"},
	{key: "d", name: "deny", presses: []string{"d"}, verdict: approval.Denied, shows: "denied by ann"},
	{key: "D", name: "with a reason", presses: []string{"D", "not today", enter}, verdict: approval.Denied, check: func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, "not today", d.Feedback)
	}},
	{key: "s", name: "session", kind: "edit", presses: []string{"s", enter}, verdict: approval.Approved, check: scope(approval.Session)},
	{key: "s", name: "its sentence", kind: "edit", presses: []string{"s"}, shows: "For this session: write_file on /srv/site/access.conf"},
	{key: "s", name: "not offered", kind: "shell", presses: []string{"s"}, shows: "Not possible: "},
	{key: "w", name: "always", kind: "edit", presses: []string{"w", enter}, verdict: approval.Approved, check: scope(approval.Always)},
	{key: "w", name: "irreversible", kind: "post", presses: []string{"w", enter, "approve", enter}, verdict: approval.Approved, check: scope(approval.Always)},
	{key: "w", name: "irreversible, Enter alone", kind: "post", presses: []string{"w", enter, enter}, shows: "This cannot be undone"},
	{key: "e", name: "note", presses: []string{"e", "be brief", enter}, verdict: approval.Approved, check: func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, "be brief", d.Note)
	}},
	{key: "e", name: "empty note", presses: []string{"e", enter}, shows: "it runs unchanged"},
	{key: "Tab", name: "change", presses: []string{"e", tab, "say bye", enter}, verdict: approval.Overridden, check: func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, "say bye", d.Override)
	}},
	{key: "Tab", name: "and back", presses: []string{"e", tab, "bye", tab, enter}, verdict: approval.Approved, check: func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, "bye", d.Note)
	}},
	{key: "?", name: "the facts answer", presses: []string{"?", "why?", enter}, shows: "needs your decision because"},
	{key: "?", name: "the agent is asked", presses: []string{"?", "which color?", enter, enter}, verdict: approval.RequestMore, check: func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, "which color?", d.Feedback)
	}},
	{key: "?", name: "the agent is not asked", presses: []string{"?", "which color?", enter, escape}, shows: "a approve"},
	{key: "1-9", name: "option", kind: "question", presses: []string{"2"}, verdict: approval.Answered, check: func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, "dev", d.Text)
	}},
	{key: "1-9", name: "no such option", kind: "question", presses: []string{"4", "9", "0"}, shows: "1-9 option"},
	{key: "1-9", name: "no question", presses: []string{"1", "3"}, shows: "a approve"},
	{key: "e", name: "answer", kind: "question", presses: []string{"e", "both of them", enter}, verdict: approval.Answered, check: func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, "both of them", d.Text)
	}},
	{key: "e", name: "answer with a number", kind: "question", presses: []string{"e", "2", enter}, verdict: approval.Answered, check: func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, "dev", d.Text)
	}},
	{key: "e", name: "answer with a number of no option", kind: "question", presses: []string{"e", "7", enter}, shows: "Text: 7"},
	{key: "d", name: "a question", kind: "question", presses: []string{"d"}, verdict: approval.Denied},
	{key: "D", name: "a question, with a reason", kind: "question", presses: []string{"D", "not now", enter}, verdict: approval.Denied, check: func(t *testing.T, d asked) {
		t.Helper()
		require.Equal(t, "not now", d.Feedback)
	}},
	{key: "a", name: "a question", kind: "question", presses: []string{"a", "s", "w", enter}, shows: "e answer"},
	{key: "Enter", name: "on a card", presses: []string{enter, enter}, shows: "a approve"},
	{key: "q", name: "back", presses: []string{"q"}, shows: "Enter open"},
	{key: "q", name: "Esc", presses: []string{escape}, shows: "Enter open"},
	{key: "h", name: "help", presses: []string{"h"}, shows: "a: approve · d: deny"},
	{key: "h", name: "a key closes the help, and does nothing else", presses: []string{"h", down}, shows: "a approve"},
}

// TestKeyPaths: every key does what the help says, at both sizes.
func TestKeyPaths(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 20}} {
		for _, p := range keyPaths {
			t.Run(p.key+"/"+p.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) { p.run(t, size) })
			})
		}
	}
}

func (p keyPath) run(t *testing.T, size [2]int) {
	t.Helper()
	w := say("1111111111111111", "hello", approval.Reversible)
	if p.kind != "" {
		w = stored(kindOf(p.kind))
	}
	r := startRig(t, size[0], size[1], newGate(w), nil)
	r.awaitText("1 pending request")
	r.press(enter)
	r.rest()
	r.press(endKey)
	r.rest()
	for _, keys := range p.presses {
		if len(keys) == 1 || strings.HasPrefix(keys, escape) {
			r.press(keys)
		} else {
			r.write(keys)
		}
		r.rest()
	}
	unwrapped := regexp.MustCompile(`\s*\n(↪|) *`).ReplaceAllString(r.now().String(), " ")
	require.Contains(t, unwrapped, p.shows)
	if p.verdict == "" {
		require.Empty(t, r.decisions())
		return
	}
	require.Len(t, r.decisions(), 1)
	d := r.decisions()[0]
	require.Equal(t, p.verdict, d.Verdict)
	require.Equal(t, w.Key(), d.Key)
	require.Equal(t, w.SHA256, d.PendingSHA256)
	require.Equal(t, "tui", d.Via)
	if p.check != nil {
		p.check(t, d)
	}
}

// Every key of the help has a test here. Those of the list, of pages, and Ctrl-Z, have their own, and so have r and u.
func TestHelpHasNoOtherKeys(t *testing.T) {
	tested := []string{"Up", "Down", "PgUp", "PgDn", "Home", "End", "/", "Ctrl-L", "Ctrl-Z", "n", "y", "r", "u", "H", "g", "t", "p", "! marks what cannot be undone."}
	for _, p := range keyPaths {
		tested = append(tested, p.key)
	}
	var named []string
	for _, m := range regexp.MustCompile(`(?m)(?:^|· |; )([^:.\n]{1,40}): `).FindAllStringSubmatch(catalog("en").Help, -1) {
		named = append(named, strings.Split(m[1], ", ")...)
	}
	require.Greater(t, len(named), 15)
	require.Subset(t, tested, named)
}

// many are requests, the first of them the oldest.
func many(n int) (all []approval.StoredPending) {
	for i := range n {
		all = append(all, say(strings.Repeat(string(rune('0'+i/16%16)), 8)+strings.Repeat("abcdef0123456789"[i%16:i%16+1], 8), "text "+string(rune('A'+i)), approval.Reversible))
	}
	return all
}

// cursor is the row under the cursor.
func cursor(s screen) string {
	i := slices.IndexFunc(s.rows, func(row string) bool { return strings.HasPrefix(row, "› ") })
	if i < 0 {
		return ""
	}
	return s.rows[i]
}

func TestListKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := startRig(t, 80, 24, newGate(many(50)...), nil)
		r.awaitText("50 pending requests")
		at := func(text string, keys ...string) {
			t.Helper()
			r.press(keys...)
			require.Contains(t, cursor(r.rest()), `"text `+text+`"`, keys)
			r.checkFrame(text)
		}
		at("B", down)
		at("A", "\x1b[A")
		at("C", "j", "j")
		at("B", "k")
		at("W", "\x1b[6~", down, "\x1b[A", "\x1b[A")
		at("A", "\x1b[5~")
		at(string(rune('A'+49)), endKey)
		at("A", "\x1b[H")
		r.press("/")
		r.rest()
		r.write("TEXT C")
		r.press(enter)
		require.Contains(t, cursor(r.rest()), `"text C"`)
		require.NotContains(t, r.now().String(), `"text A"`)
		r.press(escape)
		require.Contains(t, r.rest().String(), `"text A"`)
		for _, key := range []string{enter, "l", "\x1b[C"} {
			r.press("\x1b[H", down, key)
			require.Contains(t, r.rest().String(), `what: text B`)
			r.press("\x1b[D")
			require.Contains(t, cursor(r.rest()), `"text B"`)
		}
		for _, key := range []string{"a", "d", "s", "w", "1", "y", "D", "e"} { // decide nothing in the list
			r.press(key)
		}
		r.rest()
		require.Empty(t, r.decisions())
		r.press(enter)
		r.rest()
		r.press("n")
		require.Contains(t, r.rest().String(), `what: text C`)
		r.press("q")
		r.rest()
		r.press("q")
		require.True(t, r.hasEnded())
	})
}

// What comes moves nothing, and what is settled stays, with by whom, until the person leaves the list.
func TestNothingMoves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		all := many(6)
		r := startRig(t, 80, 24, newGate(all[:4]...), nil)
		r.awaitText("4 pending requests")
		r.press(down, down)
		before := r.rest()
		r.put(all[4])
		r.gate.end(all[0].Key(), approval.Denied, "bob")
		r.gate.end(all[2].Key(), approval.Approved, "bob")
		r.put(all[5])
		after := r.rest()
		require.Equal(t, before.rows[2], after.rows[2])
		require.Equal(t, before.rows[4], after.rows[4])
		require.Contains(t, after.rows[1], "denied by bob")
		require.Contains(t, cursor(after), "approved by bob")
		require.Equal(t, after.rows[3], cursor(after))
		require.Contains(t, after.rows[5], `"text E"`)
		r.press("\x1b[H", down, enter)
		r.rest()
		r.put(say("eeeeeeeeeeeeeeee", "new", approval.Reversible))
		require.Contains(t, r.rest().String(), "what: text B", "a new request takes no focus")
		r.press("q")
		require.NotContains(t, r.rest().String(), "by bob")
		require.Contains(t, cursor(r.now()), `"text B"`)
	})
}

// With a filter, too: what no longer has its text leaves the list, and the cursor stays on its request.
func TestNothingMovesUnderTheCursorWithAFilter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		all := many(4)
		r := startRig(t, 80, 24, newGate(all...), nil)
		r.awaitText("4 pending requests")
		r.press("/")
		r.rest()
		r.write("text")
		r.press(enter, down, down)
		require.Contains(t, cursor(r.rest()), `"text C"`)
		r.put(say(all[0].Pending.RequestID, "other", approval.Reversible))
		require.Contains(t, cursor(r.rest()), `"text C"`)
		require.NotContains(t, r.now().String(), "other")
	})
}

// y copies what is shown, and only when asked.
func TestCopy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := say("1111111111111111", "one\n\ttwo "+strings.Repeat("long ", 40)+"\x1b[31m\u202e", approval.Reversible)
		r := startRig(t, 80, 24, newGate(w), nil)
		r.awaitText("1 pending request")
		r.press(enter)
		r.rest()
		require.NotContains(t, r.output(), "\x1b]52;")
		rows := r.readCard(func(string) {})
		r.press("y")
		r.awaitText("Copied")
		m := regexp.MustCompile("\x1b\\]52;c;([^\x07]*)\x07").FindStringSubmatch(r.output())
		require.NotNil(t, m)
		b, err := base64.StdEncoding.DecodeString(m[1])
		require.NoError(t, err)
		blank := strings.NewReplacer(" ", "", "\n", "", "↪", "")
		require.Equal(t, blank.Replace(strings.Join(rows, "\n")), blank.Replace(string(b)))
		require.NotContains(t, string(b), "\x1b")
	})
}

// A paste is text: it decides nothing, and does not send a dialog.
func TestPaste(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := startRig(t, 80, 24, newGate(say("1111111111111111", "hello", approval.Reversible)), nil)
		r.awaitText("1 pending request")
		r.paste("\r")
		r.rest()
		r.awaitText("Enter open")
		r.press(enter)
		r.rest()
		r.paste("a\rd\r1")
		r.rest()
		require.Empty(t, r.decisions())
		r.press("D")
		r.rest()
		r.paste("one\ntwo\r\n\x1b[A")
		r.rest()
		require.Empty(t, r.decisions())
		r.awaitText("Text: one two")
		r.press(enter)
		r.rest()
		require.Equal(t, "one two [A", r.decisions()[0].Feedback)
	})
}

// A terminal may not mark a paste.
func TestPasteWithoutMarks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := startRig(t, 80, 24, newGate(stored(kindOf("post"))), nil)
		r.awaitText("1 pending request")
		r.press(enter)
		r.rest()
		for _, text := range []string{"a\r", "d\r", "d\n", "approve\r", "dd", "\x1b[200~x\x1b[201~d", "\x1b[200~x\x1b[20"} {
			r.press(text)
			r.rest()
			r.awaitText("a approve")
			require.Empty(t, r.decisions(), "%q", text)
		}
		r.press("1~d\r") // the rest of the last one
		r.rest()
		require.Empty(t, r.decisions())
		r.press("a")
		r.rest()
		r.press("approve\r")
		r.rest()
		require.Empty(t, r.decisions())
		r.awaitText("Text: approve")
		r.press(enter)
		r.rest()
		require.Len(t, r.decisions(), 1)
	})
}

// The size changes while a dialog is open: its text stays, and Enter counts once it has been on the screen.
func TestResizeWithDialog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := startRig(t, 80, 24, newGate(stored(kindOf("post"))), nil)
		r.awaitText("1 pending request")
		r.press(enter)
		r.rest()
		r.press("a")
		r.rest()
		r.write("approve")
		r.rest()
		for _, size := range [][2]int{{40, 20}, {120, 50}, {33, 9}, {10, 3}, {80, 24}, {40, 20}} {
			r.resize(size[0], size[1])
			r.press(enter)
			time.Sleep(200 * time.Millisecond)
			require.Empty(t, r.decisions(), "not on the screen for 400 ms")
		}
		r.awaitText("Text: approve")
		r.checkFrame("dialog")
		r.rest()
		r.press(enter)
		r.rest()
		require.Len(t, r.decisions(), 1)
	})
}

// The size changes while a frame for the old size is on its way: that frame sets the terminal's margins for the old size.
func TestResizeDuringAScroll(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := say("1111111111111111", strings.Repeat("one line\n", 40), approval.Reversible)
		r := startRig(t, 80, 12, newGate(w), nil)
		r.awaitText("1 pending request")
		r.press(enter)
		r.rest()
		r.terminal.mu.Lock()
		r.delay = func() time.Duration { return 100 * time.Millisecond }
		r.terminal.mu.Unlock()
		before := len(r.output())
		r.press(down)
		time.Sleep(150 * time.Millisecond)
		r.resize(80, 24)
		r.rest()
		require.Contains(t, r.output()[before:], "r\x1b[", "the frame has margins")
		r.checkFrame("after the resize")
		require.Contains(t, r.now().rows[1], `"one line`)
	})
}

// On a screen that is too small for the card's keys and a row of the card nothing is decided.
func TestTooSmall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := startRig(t, 20, 4, newGate(say("1111111111111111", "hello", approval.Reversible)), nil)
		r.awaitText("The window is too")
		r.press(enter)
		r.rest()
		for range 40 {
			r.press(down, "a", "d")
			r.rest()
		}
		require.Empty(t, r.decisions())
		r.resize(40, 20)
		r.rest()
		require.NotContains(t, r.now().String(), "The window")
		r.press(endKey)
		r.rest()
		r.press("a")
		r.rest()
		require.Len(t, r.decisions(), 1)
	})
}

var colorPattern = regexp.MustCompile(`\x1b\[[0-9;:]*m`)

// Ctrl-L draws the screen again; without color there is none; words say what colors say.
func TestDrawAgainAndColors(t *testing.T) {
	for _, color := range []bool{true, false} {
		inBubble(t, func(t *testing.T) {
			r := startRig(t, 80, 24, newGate(stored(kindOf("edit"))), func(u *UI, _ *terminal) { u.Color = color })
			r.awaitText("1 pending request")
			r.press(enter)
			before := r.rest()
			r.draw("another program", func() { _, _ = r.emulator.Write([]byte("\x1b[5;5Hgarbage\x1b[H\x1b[2K")) })
			r.awaitText("garbage")
			r.press("\x0c")
			require.Equal(t, before.rows, r.rest().rows)
			colored := slices.ContainsFunc(colorPattern.FindAllString(r.output(), -1), func(s string) bool {
				return regexp.MustCompile(`[\[;](3|4|9|10)[0-9][;m:]`).MatchString(s)
			})
			require.Equal(t, color, colored)
			cells := r.cells()
			for y, row := range before.rows { // added and removed lines have their sign
				for x := range cells[y] {
					if c := cells[y][x]; color && c != nil && c.Style.Fg != nil && strings.HasPrefix(row, "  │") {
						require.Regexp(t, `[+-]`, row)
					}
				}
			}
		})
	}
}

// The screen was another program's: the card has to be shown again.
func TestSuspend(t *testing.T) {
	m := newModel(t.Context(), &UI{Style: func() chat.Style { return chat.Style{} }, Workspaces: func() []string { return nil }})
	cmd := m.key(tea.KeyPressMsg{Code: 'z', Mod: tea.ModCtrl})
	require.IsType(t, tea.SuspendMsg{}, cmd())
	m.barrier.step = stepSettled
	require.True(t, m.barrier.counts(time.Now()))
	m.Update(tea.ResumeMsg{})
	require.False(t, m.barrier.counts(time.Now()))

	m.barrier.step, m.barrier.began, m.barrier.answers = stepSettled, time.Time{}, m.barrier.asked
	require.True(t, m.barrier.counts(time.Now()))
	cmd = m.key(tea.KeyPressMsg{Code: 'z', Mod: tea.ModCtrl})
	require.IsType(t, tea.SuspendMsg{}, cmd())
	require.False(t, m.barrier.counts(time.Now()), "a key may come before the program knows that it goes on")
	m.Update(uv.PrimaryDeviceAttributesEvent{})
	require.False(t, m.barrier.counts(time.Now()))
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	m.Update(tea.WindowSizeMsg{Width: 60, Height: 24})
	require.True(t, m.barrier.closed, "another size is not the end of it")
	m.Update(tea.ResumeMsg{})
	require.False(t, m.barrier.closed)
}

// The terminal's answers are the UI's: whatever ends it, none is left for the shell.
func TestLeavesNoAnswerBehind(t *testing.T) {
	for name, keys := range map[string][]string{"list": {"q"}, "at once": {enter, "q", "q"}, "decided": {enter, "", "a", "q", "q"}, "interrupted": {enter, "\x03"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := startRig(t, 80, 24, newGate(say("1111111111111111", "hello", approval.Reversible)), func(_ *UI, x *terminal) {
					x.delay = func() time.Duration { return 60 * time.Millisecond }
				})
				r.awaitText("1 pending request")
				for _, k := range keys {
					if k == "" {
						r.rest()
						continue
					}
					r.press(k)
					time.Sleep(300 * time.Millisecond)
				}
				require.True(t, r.hasEnded())
				require.Equal(t, strings.Count(r.output(), queryTerminal), r.answersRead())
			})
		})
	}
}

// The one request was ended by another person.
func TestOnlyOneEndedElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := say("1111111111111111", "hello", approval.Reversible)
		r := startRig(t, 80, 24, newGate(w), func(u *UI, _ *terminal) { u.Only = w.Key() })
		r.awaitText("May I say?")
		r.gate.end(w.Key(), approval.Denied, "bob")
		r.awaitText("denied by bob")
		r.change(func() {
			st := r.stories[w.Key()]
			st.Record = &approval.Record{Status: approval.StatusDenied}
			r.stories[w.Key()] = st
		})
		require.True(t, r.hasEnded())
	})
}

// A page's item is changed after its question, which has to be on the screen.
func TestPageKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var acted []string
		w := say("1111111111111111", "hello", approval.Reversible)
		page := Page{Key: "G", Name: "grants", Load: loadItems(w), Act: func(_ context.Context, i Item) (string, error) {
			acted = append(acted, i.ID)
			if len(acted) > 1 {
				return "", errors.New("disk full")
			}
			return "Revoked.", nil
		}}
		r := startRig(t, 80, 24, newGate(w), func(u *UI, _ *terminal) { u.Pages = []Page{page} })
		r.awaitText("G grants")
		r.press("G")
		r.rest()
		require.Contains(t, cursor(r.now()), "hello")
		r.press(enter, enter) // the second one is typed ahead
		r.awaitText("Revoke ")
		r.rest()
		require.Empty(t, acted)
		r.press(enter)
		r.awaitText("Revoked.")
		r.press(enter)
		r.rest()
		r.press(escape)
		r.rest()
		require.Equal(t, []string{"1"}, acted)
		r.press(enter)
		r.rest()
		r.press(enter)
		r.awaitText("disk full")
		r.press(down, enter) // has nothing to change
		r.rest()
		require.Len(t, acted, 2)
		r.press("q")
		r.rest()
		r.awaitText("Enter open")
	})
}

// The gate goes away and comes back; without a daemon the header says that nothing will run.
func TestGateDown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := startRig(t, 80, 24, newGate(say("1111111111111111", "hello", approval.Reversible)), nil)
		r.awaitText("1 pending request")
		r.change(func() { r.broken = errors.New("no space left on device") })
		r.awaitText("The gate cannot be read: no space left on device")
		r.change(func() { r.broken, r.stopped = nil, true })
		r.awaitText("nothing runs until permesso serve is started")
		r.change(func() { r.stopped = false })
		r.awaitGone("nothing runs")
		r.press(enter)
		r.rest()
		r.press("a")
		r.rest()
		require.Len(t, r.decisions(), 1)
	})
}
