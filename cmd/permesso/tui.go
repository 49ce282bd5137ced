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
	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

// terminalUI are the flags of permesso tui.
type terminalUI struct {
	once                string
	next, linear, quiet bool
}

func (a *app) tuiCmd() *cobra.Command {
	var t terminalUI
	c := &cobra.Command{
		Use: "tui", Short: "Decide requests in a terminal UI", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.tui(cmd.Context(), t) },
	}
	c.Flags().StringVar(&t.once, "once", "", "show only the request with this `ID`, and exit as wait does once it has ended")
	c.Flags().BoolVar(&t.next, "next", false, "show the oldest pending request, and exit as wait does once it has ended")
	c.Flags().BoolVar(&t.linear, "linear", false, "for screen readers: lines only, and decisions name their request")
	c.Flags().BoolVar(&t.quiet, "quiet", false, "no bell, no title, no notifications")
	c.MarkFlagsMutuallyExclusive("once", "next")
	_ = c.RegisterFlagCompletionFunc("once", a.completeIDs(waitingIDs))
	c.AddCommand(a.tuiTmuxCmd())
	return c
}

func (a *app) tui(ctx context.Context, t terminalUI) error {
	_, _, ok := a.Terminal()
	switch {
	case !ok || a.JSON:
		return console.Fail(console.ExitUsage, "permesso pending lists the requests, and permesso approve decides", "tui needs a terminal")
	case !t.linear && !a.placesCursor():
		return console.Fail(console.ExitUsage, "permesso tui --linear", "tui needs a terminal that can place the cursor")
	}
	g := newTUIGate(a)
	only, settled, err := g.one(ctx, t)
	switch {
	case err != nil:
		return err
	case settled:
	case t.linear:
		err = g.linear(ctx, a, only)
	default:
		err = g.ui(a, only, t.quiet).Run(ctx)
	}
	if errors.Is(err, tui.ErrInterrupted) {
		err = nil
	}
	if err != nil || only.ID == "" {
		return err
	}
	return a.endOfOne(ctx, only)
}

// placesCursor reports whether the terminal can place the cursor, as far as it says what it is.
func (a *app) placesCursor() bool { return !a.Dumb() && a.Env("TERM") != "" }

// one finds the one request that is to be shown, before the screen is taken: its errors are seen. The zero Key: all.
func (g *tuiGate) one(ctx context.Context, t terminalUI) (only approval.Key, settled bool, err error) {
	err = g.do(ctx, func(c *control.Client) (err error) {
		if c.Served {
			g.served = c // for the first screen
		}
		switch {
		case t.next:
			s, err := g.state(ctx, c, 0)
			if err == nil && len(s.Waiting) == 0 {
				err = console.Fail(console.ExitRefused, "permesso tui waits for requests", "no request is pending")
			}
			if err == nil {
				only = s.Waiting[0].Key()
			}
			return err
		case t.once == "":
			return nil
		}
		if only, err = find(ctx, c.Find, t.once); err != nil {
			return err
		}
		s, err := c.Story(ctx, only, false)
		settled = s.Decision != nil || s.Record != nil
		return err
	})
	return only, settled, err
}

// endOfOne prints how a request has ended, and exits as wait does.
func (a *app) endOfOne(ctx context.Context, k approval.Key) error {
	return a.ask(context.WithoutCancel(ctx), func(c *control.Client) error {
		s, err := c.Story(context.WithoutCancel(ctx), k, false)
		switch hint := "permesso show " + approval.ShortID(k.ID) + " shows how it ends"; {
		case err != nil:
			return err
		case s.Decision == nil && s.Record == nil:
			return console.Fail(console.ExitRefused, "permesso tui --once "+approval.ShortID(k.ID)+" shows it again", "nothing was decided")
		case s.Record == nil && !c.Served:
			return console.Fail(console.ExitError, hint, "the decision is recorded; it takes effect when permesso serve is started")
		}
		return a.awaitRun(ctx, c, k, untilEnd)
	})
}

// screen is what serve shows on its terminal: nil without --tui.
func (a *app) screen(on bool) (daemon.Screen, error) {
	if !on {
		return nil, nil
	}
	if _, _, ok := a.Terminal(); !ok || a.JSON || !a.placesCursor() {
		return nil, console.Fail(console.ExitUsage, "permesso serve", "serve --tui needs a terminal that can place the cursor")
	}
	return func(ctx context.Context) error {
		g := newTUIGate(a)
		if _, _, err := g.one(ctx, terminalUI{}); err != nil {
			return err
		}
		err := g.ui(a, approval.Key{}, false).Run(ctx)
		if errors.Is(err, tui.ErrInterrupted) {
			return daemon.ErrStop
		}
		return err
	}, nil
}

// ui is the terminal UI on this terminal.
func (g *tuiGate) ui(a *app, only approval.Key, quiet bool) *tui.UI {
	in, out, _ := a.Terminal()
	return &tui.UI{
		In: in, Out: out, Env: a.terminalEnv(), Color: a.Colors(), Requests: g, Person: home.Operator(), Workspaces: g.workspaces, Style: g.Style,
		Interceptor: g.interceptor(), Only: only, Quiet: quiet, Pages: g.pages(), Reveal: g.Reveal,
	}
}

func (g *tuiGate) interceptor() *chat.Interceptor {
	return &chat.Interceptor{Decider: g, Viewer: g, Revoker: tuiRevoker{g}, Zone: time.Local, Redact: home.NewRedaction(), Paused: g.paused, Local: true}
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
	// What was read from the files without a daemon, and when. The zero time: it is old.
	files    tui.State
	filesErr error
	readAt   time.Time
	decided  time.Time // the last decision here
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

// fileInterval is the time between two times that the files are read while no daemon runs: who reads them locks them.
const fileInterval = 10 * time.Second

// Follow implements tui's requests.
func (g *tuiGate) Follow(ctx context.Context, after int64) (s tui.State, err error) {
	if g.served == nil {
		c, err := control.OpenServed(ctx, g.Console)
		if err != nil {
			return g.read(ctx)
		}
		g.mu.Lock()
		g.hello, g.pauses, g.readAt = c.Hello, c.Paused, time.Time{}
		g.mu.Unlock()
		g.served, after = c, 0
	}
	if s, err = g.state(ctx, g.served, after); err != nil {
		g.served = nil
	}
	return s, err
}

// read reads the files, or returns what was read a short time ago.
func (g *tuiGate) read(ctx context.Context) (s tui.State, err error) {
	g.mu.Lock()
	recent := time.Since(g.readAt) < fileInterval
	s, err = g.files, g.filesErr
	g.mu.Unlock()
	if recent {
		return s, err
	}
	began := time.Now()
	err = g.do(ctx, func(c *control.Client) (err error) {
		s, err = g.state(ctx, c, 0)
		return err
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.files, g.filesErr = s, err; g.decided.Before(began) { // an own decision since then: read again
		g.readAt = time.Now()
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
	g.mu.Lock()
	g.readAt, g.decided = time.Time{}, time.Now()
	g.mu.Unlock()
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
