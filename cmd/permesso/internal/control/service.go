// Package control is how commands and other programs of this machine's users ask the
// daemon: its operations, which the daemon serves on its Unix sockets, and their client.
// While no daemon runs, a client locks HOME and runs the same operations itself.
package control

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// Service runs the operations on a home: in the daemon, or in a command that has locked it.
type Service struct {
	Home    *home.Home
	Keys    *home.Keys
	Viewer  *read.Viewer
	Memory  func() (*home.Memory, error)
	Decider *gate.Decider
	Running bool // in the daemon
	// Link gives a link to the web UI, "" without one, and how long it is valid.
	Link func(c *httpapi.Caller) (address string, life time.Duration, err error)
	// PausesChanged and Redeemed report changes.
	PausesChanged func()
	Redeemed      func(k approval.Key, by, via string)
	Audit         func(event.Entry) error // returns when the entry is durable
	Log           func(error)             // errors that an approver may not see
	// Serves is the configuration that the daemon serves, and why a change of it was refused. nil: no daemon runs.
	Serves func() (file, issue, hint string)

	// Moved returns the newest position of the log, and a channel that is closed when there is a newer one. nil:
	// no daemon runs.
	Moved func() (newest int64, moved <-chan struct{})
	// Since calls each for the entries after a position, up to the newest, until it returns an error.
	Since func(seq int64, each func(event.Entry) error) error

	frozen frozen
}

// Operations are the operations as an API serves them.
func (s *Service) Operations() []httpapi.LocalOperation {
	return []httpapi.LocalOperation{
		opHello.serve(s), opStatus.serve(s), opGlance.serve(s), opWaiting.serve(s), opFollow.serve(s), opFind.serve(s), opStory.serve(s),
		opEarlier.serve(s), opReveal.serve(s), opRule.serve(s), opDecide.serve(s), opCancel.serve(s),
		s.serveHistory(), opStats.serve(s), opToday.serve(s), opTail.serve(s), opAcknowledge.serve(s),
		opGrants.serve(s), opGrantAdd.serve(s), opRevoke.serve(s), opTaints.serve(s), opClearTaints.serve(s),
		opPause.serve(s), opResume.serve(s), opLink.serve(s), opRedeem.serve(s),
		opKeys.serve(s), opKeyCreate.serve(s), opKeyRevoke.serve(s),
		opDisk.serve(s), opFreeze.serve(s), opThaw.serve(s),
	}
}

// operation is one operation: an entry of the API and a call of the client.
type operation[I, O any] struct {
	id, method, path, summary string
	operator                  bool // only for the operator
	do                        func(s *Service, ctx context.Context, c *httpapi.Caller, in *I) (O, error)
}

func get[I, O any](id, path, summary string, do func(*Service, context.Context, *httpapi.Caller, *I) (O, error)) operation[I, O] {
	return operation[I, O]{id, http.MethodGet, path, summary, false, do}
}

func post[I, O any](id, path, summary string, do func(*Service, context.Context, *httpapi.Caller, *I) (O, error)) operation[I, O] {
	return operation[I, O]{id, http.MethodPost, path, summary, false, do}
}

func del[I, O any](id, path, summary string, do func(*Service, context.Context, *httpapi.Caller, *I) (O, error)) operation[I, O] {
	return operation[I, O]{id, http.MethodDelete, path, summary, false, do}
}

func (o operation[I, O]) forOperator() operation[I, O] {
	o.operator = true
	return o
}

func (o operation[I, O]) serve(s *Service) httpapi.LocalOperation {
	return httpapi.Operation("local-"+o.id, o.method, o.path, o.summary, func(ctx context.Context, c *httpapi.Caller, in *I) (O, error) {
		out, err := o.run(ctx, s, c, in)
		if err != nil {
			return out, s.problem(c, err)
		}
		return out, nil
	})
}

func (o operation[I, O]) run(ctx context.Context, s *Service, c *httpapi.Caller, in *I) (out O, err error) {
	if o.operator && !c.Operator {
		return out, &decide.Refusal{Reason: decide.ErrNotAuthorized, Hint: "only the daemon's operator may do this: its user, or root with --home " + s.Home.Layout.Home}
	}
	return o.do(s, ctx, c, in)
}

// reasons are the refusals that both sides know, with their HTTP status.
func reasons() map[error]int {
	return map[error]int{
		decide.ErrNotAuthorized: http.StatusForbidden, decide.ErrUnknown: http.StatusNotFound, decide.ErrTooLate: http.StatusGone,
		decide.ErrDecided: http.StatusConflict, decide.ErrNotApplicable: http.StatusConflict, decide.ErrChanged: http.StatusConflict,
	}
}

// problem is an error as a client gets it. The details of a fault on the daemon's disk are
// for the operator.
func (s *Service) problem(c *httpapi.Caller, err error) *httpapi.Problem {
	var ref *decide.Refusal
	var e *console.Error
	switch {
	case errors.As(err, &ref):
		p := httpapi.NewProblem(http.StatusConflict, ref.Error())
		p.Refusal = &httpapi.Refusal{Reason: ref.Reason.Error(), By: ref.By, At: ref.At, Verdict: string(ref.Verdict), Hint: ref.Hint}
		for reason, status := range reasons() {
			if errors.Is(ref, reason) {
				p.Status, p.Title = status, http.StatusText(status)
			}
		}
		return p
	case errors.As(err, &e):
		status := http.StatusInternalServerError
		for at, code := range exitCodes() {
			if code == e.Code {
				status = at
			}
		}
		p := httpapi.NewProblem(status, err.Error())
		p.Hint = e.Hint()
		return p
	case c.Operator:
		p := httpapi.NewProblem(http.StatusInternalServerError, err.Error())
		p.Hint = console.HintFor(err)
		return p
	}
	s.Log(err)
	return httpapi.NewProblem(http.StatusInternalServerError, "the daemon failed to do that; its log says why")
}

// exitCodes are the exit codes of commands by the HTTP status of the problem. The others
// are console.ExitError.
func exitCodes() map[int]int {
	return map[int]int{http.StatusUnprocessableEntity: console.ExitUsage, http.StatusConflict: console.ExitRefused}
}

// refusalOf is the refusal in a problem as Decide returned it.
func refusalOf(w *httpapi.Refusal) *decide.Refusal {
	r := &decide.Refusal{Reason: errors.New(w.Reason), By: w.By, At: w.At, Verdict: approval.Verdict(w.Verdict), Hint: w.Hint}
	for reason := range reasons() {
		if w.Reason == reason.Error() {
			r.Reason = reason
		}
	}
	return r
}

// may reports whether the caller may see a request, and decide it. It hides requests for
// another person.
func (s *Service) may(c *httpapi.Caller, ws string, p *approval.Pending) bool {
	if c.Operator {
		return true
	}
	_, ok := s.Decider.May(ws, p, c.Person)
	return ok && c.Sees(ws)
}

// name is the caller's name in what they change.
func (s *Service) name(c *httpapi.Caller, ws string) string {
	if !c.Operator {
		if name, ok := s.Decider.May(ws, nil, c.Person); ok {
			return name
		}
	}
	return c.Person.Name
}

// workspaces are those of the caller, or the only one that is meant; nil is all. The operator may also name one that
// is no longer configured, as long as it has a folder.
func (s *Service) workspaces(c *httpapi.Caller, only string) ([]string, error) {
	names := c.Workspaces
	switch {
	case only == "" && c.Operator:
		return nil, nil
	case only == "":
		return names, nil
	case c.Operator:
		kept, err := s.Home.Store.Workspaces(context.Background())
		if err != nil {
			return nil, err
		}
		names = slices.Concat(kept, home.WorkspaceNames(s.Home.Current()))
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return []string{only}, console.CheckWorkspace(only, names)
}

// filesService is the service of a home that the command has locked. Without keys only
// pauses work.
func filesService(h *home.Home, k *home.Keys, memory func() (*home.Memory, error)) *Service {
	s := &Service{Home: h, Keys: k, Memory: memory, PausesChanged: func() {}, Redeemed: func(approval.Key, string, string) {}}
	if k == nil {
		return s
	}
	s.Viewer = h.Viewer(k)
	s.Decider = h.Decider(k)
	s.Audit = h.AppendAudit
	s.Decider.ClearSlot = func(ctx context.Context, key approval.Key) error { return h.ClearSlot(ctx, s.Decider, key) }
	return s
}

// ErrNoUI explains why there is no link to the web UI.
func ErrNoUI(running bool) error {
	if !running {
		return console.Fail(console.ExitError, "start the daemon: permesso serve", "the daemon is not running: no web UI")
	}
	return console.Fail(console.ExitError, "check ui in permesso.toml, and permesso status", "the daemon serves no web UI")
}
