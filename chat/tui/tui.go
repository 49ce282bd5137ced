package tui

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// State is what waits at a moment.
type State struct {
	Waiting []approval.StoredPending // oldest first
	At      int64                    // the position of the log, for the next call
	Served  bool                     // a daemon runs: what is approved is run
}

// requests reads what waits, and what became of it.
type requests interface {
	// Follow returns what waits once the log is no longer at a position, or after a while. 0: at once.
	Follow(ctx context.Context, after int64) (State, error)
	// Story returns what is kept of one request, and the last line of its card.
	Story(ctx context.Context, k approval.Key) (read.Story, string, error)
}

// UI is the terminal UI. Set its fields, then call Run.
type UI struct {
	In          io.Reader // the terminal
	Out         io.Writer
	Env         []string // the terminal's variables, as NAME=value
	Color       bool
	Requests    requests
	Interceptor *chat.Interceptor
	Person      approval.Person
	// Workspaces are those in which the person may decide.
	Workspaces func() []string
	Style      func() chat.Style
	Pages      []Page
	// Reveal returns a request to show what its card masks. The audit log has it before. nil: nothing is revealed.
	Reveal func(ctx context.Context, k approval.Key) (*approval.StoredPending, error)
	Only   approval.Key // shows only this request, and ends after it. The zero Key: all
	Quiet  bool         // no bell, no title, no notifications
	Log    func(error)  // errors that the person cannot fix; may be nil

	Now func() time.Time // nil: time.Now
}

// Via names this channel in decisions.
const Via = "tui"

// frames is how often a second the screen may change. The renderer looks at it that often even if nothing happens, so
// more of them cost processor time: at 60 a second, 0.9 % of one core.
const frames = 16

// retryDelay is the time between two tries to reach the gate.
const retryDelay = time.Second

// ErrInterrupted is the error of Run after Ctrl-C.
var ErrInterrupted = tea.ErrInterrupted

// Run shows the UI until the person leaves it or ctx ends. Ctrl-C is ErrInterrupted.
func (u *UI) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	in := &input{from: u.In}
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithInput(in.reader()), tea.WithOutput(u.Out), tea.WithEnvironment(u.Env), tea.WithFPS(frames)}
	if !u.Color {
		options = append(options, tea.WithColorProfile(colorprofile.ASCII))
	}
	m := newModel(ctx, u)
	m.closed = &in.closed
	p := tea.NewProgram(m, options...)
	in.resumed = func() { p.Send(tea.ResumeMsg{}) }
	go in.run(ctx.Done())
	go Follow(ctx, u.Requests, func(s State, err error) { p.Send(stateMsg{s, err}) })
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// Follow sends what waits, after each change, until ctx ends.
func Follow(ctx context.Context, from requests, send func(State, error)) {
	for at := int64(0); ctx.Err() == nil; {
		s, err := from.Follow(ctx, at)
		if ctx.Err() != nil {
			return
		}
		send(s, err)
		if at = s.At; err == nil && s.Served {
			continue
		}
		at = 0
		select {
		case <-ctx.Done():
		case <-time.After(retryDelay):
		}
	}
}

func (u *UI) now() time.Time {
	if u.Now != nil {
		return u.Now()
	}
	return time.Now()
}

func (u *UI) log(err error) {
	if err != nil && u.Log != nil {
		u.Log(err)
	}
}
