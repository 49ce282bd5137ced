package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	terminalchat "github.com/permesso-dev/permesso/chat/terminal"
	"github.com/permesso-dev/permesso/chat/tui"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// followed is what waits, as it was read last.
type followed struct {
	mu      sync.Mutex
	state   tui.State
	err     error
	first   sync.Once
	known   chan struct{} // closed once it was read
	changed chan approval.Key
}

func (f *followed) set(s tui.State, err error) {
	f.mu.Lock()
	if f.err = err; err == nil {
		f.state = s
	}
	f.mu.Unlock()
	f.first.Do(func() { close(f.known) })
	select {
	case f.changed <- approval.Key{}:
	default:
	}
}

// Waiting implements the channel's viewer.
func (f *followed) Waiting(_ context.Context, workspaces []string) ([]approval.StoredPending, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.state.Waiting), func(w approval.StoredPending) bool {
		return !slices.Contains(workspaces, w.Pending.SourceGroup)
	}), f.err
}

func (f *followed) served() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Served
}

// linear is the terminal UI in lines, until the person leaves it or only needs no decision.
func (g *tuiGate) linear(ctx context.Context, a *app, only approval.Key) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	in, out, _ := a.Terminal()
	f := &followed{known: make(chan struct{}), changed: make(chan approval.Key, 1)}
	go tui.Follow(ctx, g, f.set)
	select {
	case <-f.known:
	case <-ctx.Done():
		return nil
	}
	said := ""
	c := &terminalchat.Channel{
		In: in, Out: out, Linear: true, Only: only, Served: f.served, Viewer: f, Records: g, Interceptor: g.interceptor(),
		Foot:    func() string { return g.foot(ctx, f) },
		Changes: f.changed, Person: home.Operator(), Workspaces: g.workspaces(), Style: g.Style(), Interval: time.Hour,
		Refresh: func() ([]string, chat.Style) { return g.workspaces(), g.Style() },
		Wrap:    func(text string) string { return console.WrapText(text, console.Width(out)) },
		Ended:   leave,
		Log: func(err error) {
			if text := chat.Escape(err.Error()); text != said { // each change is one line
				said = text
				fmt.Fprintln(a.Err, "permesso: "+text)
			}
		},
	}
	return c.Run(ctx)
}

// foot is the end of a card. It is the same for all, and comes with any that waits.
func (g *tuiGate) foot(ctx context.Context, f *followed) string {
	waiting, err := f.Waiting(ctx, g.workspaces())
	if err != nil || len(waiting) == 0 {
		return ""
	}
	_, foot, _ := g.Story(ctx, waiting[0].Key())
	return foot
}

// Record is for the channel: nil if the request has not ended.
func (g *tuiGate) Record(ctx context.Context, k approval.Key) (*approval.Record, error) {
	st, _, err := g.Story(ctx, k)
	return st.Record, err
}
