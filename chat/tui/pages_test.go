package tui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Enter on a page asks before it changes something, and decides nothing before the question was on the screen.
func TestAPageAsksBeforeItChangesAnItem(t *testing.T) {
	items := []Item{{Text: "one", ID: "1", Question: "Revoke one?"}, {Text: "two", ID: "2", Question: "Revoke two?"}, {Text: "three", ID: "3"}}
	var acted []string
	d := newDriver(t, "en", 80, 24, Page{
		Key: "g", Name: "grants", Load: func(context.Context) ([]Item, error) { return items, nil },
		Act: func(_ context.Context, i Item) (string, error) { acted = append(acted, i.ID); return "Revoked.", nil },
	})
	d.refresh()
	d.press("g", "down", "enter")
	require.Contains(t, d.screen(), "grants · 0 pending requests")
	require.Contains(t, d.screen(), "2 of 3")
	require.Contains(t, d.screen(), "Revoke two?")
	d.send(key("enter"))
	require.Empty(t, acted, "the question was not on the screen for long enough")
	d.press("esc", "enter", "enter")
	require.Equal(t, []string{"2"}, acted)
	require.Contains(t, d.screen(), "Revoked.")

	items = append([]Item{{Text: "new", ID: "0"}}, items...)
	d.refresh()
	require.Contains(t, d.screen(), "› two", "the cursor stays on its item")
	d.press("down", "enter")
	require.Contains(t, d.screen(), "There is nothing to change")
	require.NotContains(t, d.screen(), "Enter change")
	d.press("enter")
	require.Len(t, acted, 1)
}

func TestAnEmptyPageSaysSo(t *testing.T) {
	err := error(nil)
	none := func(context.Context) ([]Item, error) { return nil, err }
	d := newDriver(t, "it", 40, 20, Page{Key: "g", Name: "grants", Load: none}, Page{Key: "H", Name: "history", Load: none})
	d.refresh()
	d.press("g")
	require.Contains(t, d.screen(), "Nessun consenso.")
	d.press("H")
	require.Contains(t, d.screen(), "Nessuna richiesta.\n", "a key goes from one page to another")
	err = errors.New("no \x1b[2J daemon")
	d.refresh()
	require.Contains(t, d.screen(), `no \u{001B}[2J daemon`)
	d.press("q")
	require.Contains(t, d.screen(), "Nessuna richiesta in attesa")
}

// On a small screen the help has several pages.
func TestTheHelpIsShownInFull(t *testing.T) {
	for _, language := range chat.Languages() {
		d := newDriver(t, language, 40, 20)
		d.refresh()
		d.press("h")
		seen, pages := "", 0
		for ; d.help; pages++ {
			seen += d.screen()
			d.press(" ")
		}
		require.Greater(t, pages, 1)
		for _, r := range d.helpRows() {
			require.Contains(t, seen, strings.TrimRight(r.text, " ")+"\n")
		}
	}
}

func TestHistoryShowsTheRequest(t *testing.T) {
	var k approval.Key
	d := newDriver(t, "en", 80, 24, Page{Key: "H", Name: "history", Load: func(context.Context) ([]Item, error) {
		return []Item{{Text: "old", ID: "0"}, {Text: "edit", ID: "1", Open: k}}, nil
	}})
	k = d.gate.add(kindNamed("edit"))
	d.gate.decided[k] = &approval.Decision{RequestID: k.ID, Verdict: approval.Denied, DecidedBy: "ann"}
	d.refresh()
	d.press("H", "down", "enter")
	require.Contains(t, d.screen(), "denied by ann")
	require.Contains(t, d.screen(), "access.conf")
	d.press("q")
	require.Contains(t, d.screen(), "› edit")
}

// A card names the keys that work here, and no code of other channels.
func TestACardNamesItsKeys(t *testing.T) {
	for language, always := range map[string]string{"en": "w Always: x_post", "it": "w Sempre: x_post"} {
		d := newDriver(t, language, 120, 40)
		d.gate.add(kindNamed("post"))
		d.refresh()
		d.press("enter")
		require.Contains(t, d.screen(), "\n  "+always)
		require.Contains(t, d.screen(), "\n  s ")
		for line := range strings.SplitSeq(d.screen(), "\n") {
			require.NotRegexp(t, `^  [1-6] `, line)
		}
	}
	d := newDriver(t, "en", 80, 24)
	d.gate.add(kindNamed("shell"))
	d.refresh()
	d.press("enter", "end", "s")
	require.Contains(t, d.screen(), "Not possible: a grant would not help")
	d.press("w")
	require.Contains(t, d.screen(), "Not possible: a grant would not help")
	d = newDriver(t, "en", 80, 24)
	d.gate.add(kindNamed("question"))
	d.refresh()
	d.press("enter")
	require.Contains(t, d.screen(), "  2 \"dev\"\n")
	require.NotContains(t, strings.ToLower(d.screen()), "reply")
}

// w remembers exactly the request; Tab shows the command pattern that may be remembered instead.
func TestACommandPatternCanBeRemembered(t *testing.T) {
	for tabs, want := range []string{"", "git push ..."} {
		d := newDriver(t, "en", 80, 30)
		p := kindNamed("release")
		exact := approval.Offer{Scope: approval.Always, Hours: 2160, Terms: approval.Terms{Form: "again", Workspace: "personal", ClientID: "ws:personal", ActionType: "exec_cmd", Digest: "1"}}
		pattern := exact
		pattern.Scope, pattern.Would, pattern.Of = approval.Commands, 3, 5
		pattern.Terms.Form, pattern.Terms.Digest, pattern.Terms.Words = "command", "", []string{"git", "push", "..."}
		p.Offers = []approval.Offer{exact, pattern}
		d.gate.add(p)
		d.refresh()
		d.press("enter", "w")
		require.Contains(t, d.screen(), "Tab a command pattern")
		for range tabs {
			d.press("tab")
			require.Contains(t, d.screen(), `like "git push ..."`)
			require.Contains(t, d.screen(), "allowed 3 of the last 5")
		}
		d.press("enter")
		d.write("approve")
		d.press("enter")
		require.Len(t, d.gate.inputs, 1)
		require.Equal(t, approval.Always, d.gate.inputs[0].Scope)
		require.Equal(t, want, d.gate.inputs[0].Commands)
	}
}

// r shows what a card masks, until the person leaves it. The decision is about the same request.
func TestSecretsAreShownUntilTheCardIsLeft(t *testing.T) {
	const secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	p := kindNamed("edit")
	p.Agent.Rationale = "It is " + secret
	d := newDriver(t, "en", 80, 40)
	k := d.gate.add(p)
	d.gate.add(kindNamed("post"))
	d.refresh()
	d.press("enter")
	require.NotContains(t, d.screen(), secret)
	require.Contains(t, d.screen(), "r reveal")
	sha := d.card.stored.SHA256
	d.send(tea.WindowSizeMsg{Width: 80, Height: 39})
	d.send(key("r"))
	require.Zero(t, d.gate.audited, "a key that was typed ahead")
	d.press("r")
	require.Equal(t, 1, d.gate.audited)
	require.Contains(t, d.screen(), secret)
	require.Contains(t, d.screen(), "until you leave this request")
	require.NotContains(t, d.screen(), "r reveal")
	require.Equal(t, sha, d.card.stored.SHA256)
	require.False(t, d.barrier.counts(d.now()), "the card has changed")
	d.refresh()
	require.Contains(t, d.screen(), secret)

	d.press("q", "enter")
	require.NotContains(t, d.screen(), secret)
	d.updateRevealed(revealedMsg{key: k, sha256: "another"})
	require.NotContains(t, d.screen(), "until you leave this request", "it was replaced while it was revealed")
	d.press("r")
	d.gate.find(k).SHA256 = strings.Repeat("f", 64)
	d.refresh()
	require.NotContains(t, d.screen(), secret, "another request has that id now")
	d.press("r", "d")
	require.Equal(t, strings.Repeat("f", 64), d.gate.inputs[0].PendingSHA256)
	require.NotContains(t, d.screen(), secret, "decided")
}

func TestUndoRevokesTheGrantOfTheCard(t *testing.T) {
	d := newDriver(t, "en", 80, 40)
	k := d.gate.add(kindNamed("edit"))
	d.refresh()
	d.press("enter", "u")
	require.Empty(t, d.gate.revoked)
	d.press("w", "enter")
	require.Contains(t, d.screen(), "u revoke")
	d.press("u")
	require.Equal(t, []string{k.ID}, d.gate.revoked)
	require.NotContains(t, d.screen(), "u revoke")
	require.Contains(t, d.screen(), "Revoked: "+approval.ShortID(k.ID))
}

// The list says what is paused, what cannot be undone, and where the cursor is, at each size.
func TestTheListFitsTheScreen(t *testing.T) {
	for _, size := range [][2]int{{40, 20}, {80, 24}, {120, 40}} {
		for _, language := range chat.Languages() {
			d := newDriver(t, language, size[0], size[1])
			d.addMany(kindNamed("mail"))
			d.gate.paused = &chat.Pause{By: "ann", Since: d.now()}
			d.refresh()
			d.press("down", "down", "down")
			lines := strings.Split(d.screen(), "\n")
			require.Contains(t, lines[0], map[string]string{"en": "4 of 500", "it": "4 di 500"}[language])
			require.Contains(t, lines[1], "⏸")
			row := lines[4+len(wrap([]line{{text: d.paused, sentence: true}}, size[0]))]
			require.Regexp(t, `^› ! 00000003 `, row)
			require.Equal(t, size[0] > 60, strings.HasSuffix(row, " 12:05 UTC"))
			require.Equal(t, size[0] > 60, strings.Contains(row, " · personal · send_mail · "))
			require.Regexp(t, "h (help|aiuto) · q (quit|esci)$", strings.TrimSpace(d.screen()))
			d.press("end")
			require.Contains(t, d.screen(), "00000499")
			d.press("/")
			d.write("0000049")
			d.press("enter")
			require.Regexp(t, `^ (Show only|Mostra solo): 0000049 .*11 (of|di) 11\n`, d.screen())
		}
	}
}

// addMany adds 500 requests.
func (d *driver) addMany(p *approval.Pending) (keys []approval.Key) {
	for i := range 500 {
		one := *p
		one.RequestID = fmt.Sprintf("%08d7f3b2c1d4e5f6a7", i)
		one.ShortID = approval.ShortID(one.RequestID)
		keys = append(keys, d.gate.add(&one))
	}
	return keys
}

// A row stays where it is when its request is decided elsewhere, and says by whom.
func TestASettledRowSaysByWhom(t *testing.T) {
	d := newDriver(t, "it", 80, 24)
	keys := d.addMany(kindNamed("mail"))
	d.refresh()
	d.press("down")
	d.gate.decided[keys[0]] = &approval.Decision{RequestID: keys[0].ID, Verdict: approval.Denied, DecidedBy: "ben"}
	d.refresh()
	lines := strings.Split(d.screen(), "\n")
	require.Contains(t, lines[1], "    00000000 · negato da ben · \"Board meeting")
	require.Contains(t, lines[2], "› ! 00000001 ")
	require.Contains(t, lines[0], "499 richieste in attesa")
}

// terminalOutput keeps what is written to a terminal.
type terminalOutput struct {
	sync.Mutex
	bytes.Buffer
}

func (o *terminalOutput) Write(b []byte) (int, error) {
	o.Lock()
	defer o.Unlock()
	return o.Buffer.Write(b)
}

// await returns what was written from a position on, once it matches.
func (o *terminalOutput) await(t *testing.T, from int, pattern string) (written string) {
	t.Helper()
	require.Eventually(t, func() bool {
		o.Lock()
		defer o.Unlock()
		written = o.String()[from:]
		return regexp.MustCompile(pattern).MatchString(written)
	}, time.Minute, time.Millisecond, pattern)
	return written
}

// One changed row costs a slow line no more than 2 KiB.
func TestOneChangedRowIsShort(t *testing.T) { inBubble(t, oneChangedRow) }

func oneChangedRow(t *testing.T) {
	t.Helper()
	d := newDriver(t, "en", 120, 40)
	keys := d.addMany(kindNamed("mail"))
	var out terminalOutput
	p := tea.NewProgram(d.model, tea.WithContext(t.Context()), tea.WithInput(nil), tea.WithOutput(&out), tea.WithWindowSize(120, 40),
		tea.WithEnvironment([]string{"TERM=xterm-256color"}), tea.WithoutSignals())
	ended := make(chan error)
	go func() { _, err := p.Run(); ended <- err }()
	p.Send(stateMsg{State: d.gate.state()})
	at := len(out.await(t, 0, `(?s)00000037.*12:05 UTC`)) // the last row
	d.gate.decided[keys[20]] = &approval.Decision{RequestID: keys[20].ID, Verdict: approval.Denied, DecidedBy: "ben"}
	p.Send(stateMsg{State: d.gate.state()})
	written := out.await(t, at, `by ben`)
	require.Less(t, len(written), 2048)
	t.Logf("%d bytes", len(written))
	p.Quit()
	require.NoError(t, <-ended)
	time.Sleep(silence) // of the bubble: its timers end
}

// A request is replaced between the key and its decision: the decision is about the one that was shown.
func TestADecisionIsAboutTheCardOfItsKey(t *testing.T) {
	d := newDriver(t, "en", 80, 40)
	d.gate.add(kindNamed("edit"))
	d.refresh()
	d.press("enter")
	shown := d.card.stored.SHA256
	d.settle()
	decide := d.key(key("d"))
	d.card.stored.SHA256 = "another"
	decide()
	require.Equal(t, shown, d.gate.inputs[0].PendingSHA256)
}
