package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/tui"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

// terminalUI are the flags of permesso tui.
type terminalUI struct {
	once        string
	next, quiet bool
}

func (a *app) tuiCmd() *cobra.Command {
	var t terminalUI
	c := &cobra.Command{
		Use: "tui", Short: "Decide requests in a terminal UI", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.tui(cmd.Context(), t) },
	}
	c.Flags().StringVar(&t.once, "once", "", "show only the request with this `ID`, and exit as wait does once it has ended")
	c.Flags().BoolVar(&t.next, "next", false, "show the oldest pending request, and exit as wait does once it has ended")
	c.Flags().BoolVar(&t.quiet, "quiet", false, "no bell, no title, no notifications")
	c.MarkFlagsMutuallyExclusive("once", "next")
	_ = c.RegisterFlagCompletionFunc("once", a.completeIDs(waitingIDs))
	c.AddCommand(a.tuiTmuxCmd())
	return c
}

func (a *app) tui(ctx context.Context, t terminalUI) error {
	in, out, ok := a.Terminal()
	if !ok || a.JSON || a.Dumb() {
		return console.Fail(console.ExitUsage, "permesso tui --linear, or permesso pending and permesso approve", "tui needs a terminal that can place the cursor")
	}
	g := newTUIGate(a)
	ui := &tui.UI{
		In: in, Out: out, Env: a.terminalEnv(), Color: a.Colors(), Requests: g, Person: home.Operator(), Workspaces: g.workspaces, Style: g.Style,
		Next: t.next, Quiet: t.quiet, Pages: g.pages(), Reveal: g.Reveal,
		Interceptor: &chat.Interceptor{Decider: g, Viewer: g, Revoker: tuiRevoker{g}, Zone: time.Local, Redact: home.NewRedaction(), Paused: g.paused, Local: true},
	}
	if err := g.do(ctx, func(c *control.Client) (err error) { // before the screen is taken: its errors are seen
		if c.Served {
			g.served = c // for the first screen
		}
		if t.once != "" {
			ui.Only, err = find(ctx, c.Find, t.once)
		}
		return err
	}); err != nil {
		return err
	}
	decided, err := ui.Run(ctx)
	switch {
	case err != nil:
		return err
	case t.once == "" && !t.next:
		return nil
	case decided.ID == "":
		return console.Fail(console.ExitRefused, "", "nothing was decided")
	}
	return a.ask(ctx, func(c *control.Client) error { return a.awaitRun(ctx, c, decided, untilEnd) })
}

// terminalEnv are the variables that describe the terminal.
func (a *app) terminalEnv() (env []string) {
	for _, name := range []string{
		"TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "STY", "SSH_TTY", "SSH_CONNECTION", "WT_SESSION", "KITTY_WINDOW_ID", "NO_COLOR",
	} {
		if value := a.Env(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// tuiGate is the gate of the terminal UI: the daemon, or without one the files, which are locked only while they are
// read.
type tuiGate struct {
	*app
	mu     sync.Mutex
	served *control.Client // nil: none is connected
	hello  control.Hello
	pauses []ipc.Pause
}

func newTUIGate(a *app) *tuiGate {
	quiet := *a.Console // what it would print would be written over the screen
	quiet.Err = nopWriter{}
	return &tuiGate{app: &app{&quiet}}
}

type nopWriter struct{}

func (nopWriter) Write(b []byte) (int, error) { return len(b), nil }

// open connects to the daemon; without one it opens the files.
func (g *tuiGate) open(ctx context.Context) (*control.Client, error) {
	c, err := control.OpenServed(ctx, g.Console)
	if err != nil && ctx.Err() == nil {
		c, err = control.Open(ctx, g.Console)
	}
	return c, err
}

// do runs f with a client of its own.
func (g *tuiGate) do(ctx context.Context, f func(*control.Client) error) error {
	c, err := g.open(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.hello, g.pauses = c.Hello, c.Paused
	g.mu.Unlock()
	return errors.Join(f(c), c.Close())
}

// Follow implements tui's requests.
func (g *tuiGate) Follow(ctx context.Context, after int64) (s tui.State, err error) {
	if g.served == nil {
		if err := g.do(ctx, func(c *control.Client) (err error) {
			s, err = g.state(ctx, c, 0)
			if c.Served {
				g.served = c
			}
			return err
		}); err != nil || g.served == nil {
			return s, err
		}
		return s, nil
	}
	if s, err = g.state(ctx, g.served, after); err != nil {
		g.served = nil
	}
	return s, err
}

func (g *tuiGate) state(ctx context.Context, c *control.Client, after int64) (tui.State, error) {
	m, err := c.NextMoment(ctx, after)
	if err != nil {
		return tui.State{}, err
	}
	g.mu.Lock()
	g.pauses = m.Paused
	g.mu.Unlock()
	return tui.State{Waiting: m.Undecided(), At: m.At, Served: c.Served}, nil
}

// Story implements tui's requests.
func (g *tuiGate) Story(ctx context.Context, k approval.Key) (st read.Story, foot string, err error) {
	err = g.do(ctx, func(c *control.Client) error {
		s, err := c.Story(ctx, k, false)
		st = read.Story{Pending: s.Shown(), Decision: s.Decision, Record: s.Record}
		switch {
		case s.Waiting != nil:
			st.SHA256 = s.Waiting.SHA256
		case st.Pending == nil && st.Record != nil: // policy decided
			st.Pending = read.Requested(k, st.Record)
		}
		foot = s.Foot
		return err
	})
	return st, foot, err
}

// Decide implements chat.Decider.
func (g *tuiGate) Decide(ctx context.Context, in decide.Input) (d *approval.Decision, err error) {
	err = g.do(ctx, func(c *control.Client) (err error) {
		d, err = c.Decide(ctx, in)
		return err
	})
	return d, err
}

// Waiting is for the interceptor.
func (g *tuiGate) Waiting(ctx context.Context, workspaces []string) (list []approval.StoredPending, err error) {
	err = g.do(ctx, func(c *control.Client) error {
		s, err := g.state(ctx, c, 0)
		list = slices.DeleteFunc(s.Waiting, func(w approval.StoredPending) bool { return !slices.Contains(workspaces, w.Pending.SourceGroup) })
		return err
	})
	return list, err
}

// Find is for the interceptor.
func (g *tuiGate) Find(ctx context.Context, _ []string, prefix string) (list []approval.Key, err error) {
	err = g.do(ctx, func(c *control.Client) (err error) {
		list, err = c.Find(ctx, "", prefix)
		return err
	})
	return list, err
}

func (g *tuiGate) workspaces() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.hello.Workspaces)
}

func (g *tuiGate) paused(ws string) *chat.Pause {
	g.mu.Lock()
	c := control.Client{Hello: control.Hello{Paused: g.pauses}}
	g.mu.Unlock()
	return home.CardPause(c.PauseOf(ws))
}

// Style is how cards look here.
func (g *tuiGate) Style() chat.Style {
	g.mu.Lock()
	language := g.hello.Language
	g.mu.Unlock()
	return chat.Style{Language: language, Zone: time.Local, Redact: home.NewRedaction(), Local: true, Paused: g.paused, Earlier: g.earlier}
}

func (g *tuiGate) earlier(p *approval.Pending) (e *chat.EarlierRequest) {
	_ = g.do(context.Background(), func(c *control.Client) error { // without it the card shows no changes
		e = c.Style().Earlier(p)
		return nil
	})
	return e
}
