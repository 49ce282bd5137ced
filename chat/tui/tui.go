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
	Next   bool         // ends after the first request that was decided
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

// Run shows the UI until the person leaves it or ctx ends. It returns the request that was decided, with Only or Next.
func (u *UI) Run(ctx context.Context) (decided approval.Key, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithInput(u.In), tea.WithOutput(u.Out), tea.WithEnvironment(u.Env), tea.WithFPS(frames)}
	if !u.Color {
		options = append(options, tea.WithColorProfile(colorprofile.ASCII))
	}
	m := newModel(ctx, u)
	p := tea.NewProgram(m, options...)
	go u.follow(ctx, p)
	_, err = p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		err = nil
	}
	return m.ended, err
}

// follow sends what waits to the program, after each change.
func (u *UI) follow(ctx context.Context, p *tea.Program) {
	for at := int64(0); ctx.Err() == nil; {
		s, err := u.Requests.Follow(ctx, at)
		if ctx.Err() != nil {
			return
		}
		p.Send(stateMsg{s, err})
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
