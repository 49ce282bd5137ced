package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

// fakeGate keeps requests in memory, and decides.
type fakeGate struct {
	waiting []approval.StoredPending
	decided map[approval.Key]*approval.Decision
	inputs  []decide.Input
	revoked []string
	paused  *chat.Pause
	audited int // reveals
}

func (g *fakeGate) add(p *approval.Pending) approval.Key {
	w := approval.StoredPending{Pending: p, SHA256: fmt.Sprintf("%064x", len(g.waiting)+1)}
	g.waiting = append(g.waiting, w)
	return w.Key()
}

func (g *fakeGate) state() State {
	return State{Served: true, Waiting: slices.DeleteFunc(slices.Clone(g.waiting), func(w approval.StoredPending) bool { return g.decided[w.Key()] != nil })}
}

func (g *fakeGate) find(k approval.Key) *approval.StoredPending {
	i := slices.IndexFunc(g.waiting, func(w approval.StoredPending) bool { return w.Key() == k })
	return &g.waiting[i]
}

func (g *fakeGate) Follow(context.Context, int64) (State, error) { return g.state(), nil }

func (g *fakeGate) Story(_ context.Context, k approval.Key) (read.Story, string, error) {
	w := g.find(k)
	return read.Story{Pending: w.Pending, SHA256: w.SHA256, Decision: g.decided[k]}, "log 1042 9f3c", nil
}

func (g *fakeGate) Decide(_ context.Context, in decide.Input) (*approval.Decision, error) {
	p := g.find(in.Key).Pending
	d := &approval.Decision{
		RequestID: in.Key.ID, Verdict: in.Verdict, DecidedBy: in.By.Name, Via: in.Via, DecidedAt: p.Timestamp.Add(time.Minute), RunBefore: p.Timestamp.Add(6 * time.Minute),
	}
	g.inputs, g.decided[in.Key] = append(g.inputs, in), d
	return d, nil
}

func (g *fakeGate) Waiting(context.Context, []string) ([]approval.StoredPending, error) {
	return g.state().Waiting, nil
}

func (g *fakeGate) Find(context.Context, []string, string) ([]approval.Key, error) { return nil, nil }

func (g *fakeGate) Given(p *approval.Pending, d *approval.Decision) *grant.Grant {
	o, _ := p.Offer(approval.Always)
	return &grant.Grant{ID: p.RequestID, Terms: o.Terms, CreatedAt: d.DecidedAt, ExpiresAt: d.DecidedAt.Add(90 * 24 * time.Hour)}
}

func (g *fakeGate) Remembered(context.Context, []string) (all []grant.Grant, err error) {
	for k, d := range g.decided {
		all = append(all, *g.Given(g.find(k).Pending, d))
	}
	return all, nil
}

func (g *fakeGate) Revoke(_ context.Context, x grant.Grant, _ approval.Person) (bool, error) {
	g.revoked = append(g.revoked, x.ID)
	return true, nil
}

func (g *fakeGate) reveal(_ context.Context, k approval.Key) (*approval.StoredPending, error) {
	if g.audited++; g.find(k).Pending.ToolName == "payments" {
		return nil, errors.New("the log is full")
	}
	return g.find(k), nil
}

// driver runs a model without a terminal: its screen is the text of its view, its clock stands still.
type driver struct {
	*testing.T
	*model
	gate *fakeGate
}

func newDriver(t *testing.T, language string, width, height int, pages ...Page) *driver {
	g := &fakeGate{decided: map[approval.Key]*approval.Decision{}}
	style := cardtest.Style(t, true)
	style.Language, style.Local = language, true
	style.Paused = func(string) *chat.Pause { return g.paused }
	at := time.Date(2026, 11, 23, 12, 1, 0, 0, time.UTC)
	u := &UI{
		Requests: g, Person: approval.Person{Name: "ann", ID: "uid:1000"}, Workspaces: func() []string { return []string{"personal"} },
		Style: func() chat.Style { return style }, Pages: pages, Reveal: g.reveal, Now: func() time.Time { return at },
		Interceptor: &chat.Interceptor{Decider: g, Viewer: g, Revoker: g, Redact: style.Redact, Local: true},
	}
	d := &driver{t, newModel(t.Context(), u), g}
	d.send(tea.WindowSizeMsg{Width: width, Height: height})
	return d
}

// send lets the model handle a message, and all that follows from it but for the terminal's answers.
func (d *driver) send(msg tea.Msg) {
	d.run(d.handle(msg))
	_ = d.barrier.show(d.shown(), d.now()) // its queries go to no terminal
}

func (d *driver) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			d.run(c)
		}
	case tea.RawMsg, tea.QuitMsg, nil:
	default:
		d.send(msg)
	}
}

// refresh reads what waits, as after an event.
func (d *driver) refresh() { d.send(stateMsg{State: d.gate.state()}) }

// settle makes keys count: the terminal has shown the screen for long enough.
func (d *driver) settle() {
	d.barrier.step, d.barrier.began = stepSettled, d.now().Add(-settleTime)
	if d.card != nil {
		d.card.noteShown(d.bodyHeight())
	}
}

// press types keys, each when keys count.
func (d *driver) press(names ...string) {
	for _, name := range names {
		d.settle()
		d.send(key(name))
	}
}

func key(name string) tea.KeyPressMsg {
	if code, ok := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "down": tea.KeyDown, "up": tea.KeyUp, "end": tea.KeyEnd, " ": tea.KeySpace}[name]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

func (d *driver) write(text string) {
	for _, r := range text {
		d.press(string(r))
	}
}

// screen is what a person sees.
func (d *driver) screen() string {
	var b strings.Builder
	for text := range strings.SplitSeq(ansi.Strip(d.View().Content), "\n") {
		require.LessOrEqual(d, textWidth(text), d.width, text)
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	require.Equal(d, d.height, strings.Count(b.String(), "\n"), "the frame has all rows")
	return b.String()
}

func kindNamed(name string) *approval.Pending {
	all := cardtest.Kinds()
	return all[slices.IndexFunc(all, func(k cardtest.Kind) bool { return k.Name == name })].Pending
}
