package mcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/ipc/client"
)

// What a client does with a request that it has made before.

// errUnknown says that the client has made no such request.
var errUnknown error = unknownRequest{}

type unknownRequest struct{}

func (unknownRequest) Error() string {
	return "you have made no such request, or its end was received more than a day ago"
}

func (unknownRequest) Unwrap() error { return fs.ErrNotExist }

// Submit asks about a call, and waits only as long as policy takes.
func (w *Waiter) Submit(ctx context.Context, c Call) (*Answer, error) {
	call, err := digest(c.Action)
	if err != nil {
		return nil, err
	}
	a, _, err := w.ask(ctx, c, call)
	if err != nil {
		return nil, err
	}
	defer a.close()
	answer := a.answer()
	answer.Ended, err = w.soon(ctx, a)
	if errors.Is(err, errHeld) {
		answer.Text, err = w.status(ctx, a), nil
	}
	return answer, err
}

// Follow waits for a request as Do does.
func (w *Waiter) Follow(ctx context.Context, c Call, id string) (*Answer, error) {
	call, rounds, err := w.begin(c)
	if err != nil {
		return nil, err
	}
	a, err := w.find(id)
	if err != nil {
		return nil, err
	}
	defer a.close()
	answer, err := w.wait(ctx, c, a, call, rounds)
	if errors.Is(err, errGone) {
		return nil, errUnknown
	}
	return answer, err
}

func (w *Waiter) find(id string) (*asked, error) {
	a, err := w.Book.find(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errUnknown
	}
	return a, err
}

// Cancel cancels a request, with a reason or "", and returns how it stands then.
func (w *Waiter) Cancel(ctx context.Context, id, reason string) (*Answer, error) {
	a, err := w.find(id)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if _, err := w.Gate.CancelBecause(ctx, a.sent, reason); err != nil && !errors.Is(err, client.ErrNotPending) && !errors.Is(err, decide.ErrDecided) {
		return nil, err
	}
	answer := a.answer()
	answer.Ended, err = w.await(ctx, Call{}, a, prompt)
	if errors.Is(err, errHeld) {
		answer.Text, err = "request "+approval.ShortID(id)+" is decided, and has not ended", nil
	}
	return answer, err
}

// Pending lists the requests whose ends no caller has received.
func (w *Waiter) Pending(ctx context.Context) (list []*Answer, err error) {
	ids, err := w.Book.waiting()
	if err != nil {
		return nil, fmt.Errorf("the folder for what is asked: %w", err)
	}
	for _, id := range ids {
		answer, err := w.Look(ctx, Task{ID: id})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			list = append(list, answer)
		}
	}
	return list, nil
}

// Task is a request as the client that holds its handle may see it.
type Task struct {
	ID      string
	AskedAt time.Time
}

// Task is the request of a handle. The error wraps fs.ErrNotExist if it is not this client's.
func (w *Waiter) Task(handle string) (Task, error) {
	id := w.Book.request(handle)
	if id == "" {
		return Task{}, errUnknown
	}
	a, err := w.find(id)
	if err != nil {
		return Task{}, err
	}
	defer a.close()
	return Task{id, a.AskedAt}, nil
}

// Look says how a request stands, without waiting.
func (w *Waiter) Look(ctx context.Context, t Task) (*Answer, error) {
	a, err := w.find(t.ID)
	if err != nil {
		return nil, err
	}
	defer a.close()
	answer := a.answer()
	answer.Task = w.Book.handle(t.ID)
	v, err := w.Gate.Look(ctx, a.sent)
	switch {
	case errors.Is(err, client.ErrNotFound):
		return nil, errUnknown
	case err != nil:
		return nil, err
	}
	if answer.Ended = v.Response; answer.Ended == nil {
		answer.Text = statusText(t.ID, v, w.now())
	}
	return answer, nil
}

// statusText says whom a request waits for.
func statusText(id string, v client.View, now time.Time) string {
	text := "waiting for a person, request " + approval.ShortID(id)
	var more []string
	if v.Untaken {
		more = append(more, "no daemon has taken it yet: is permesso serve running on the host?")
	}
	if len(v.Approvers) > 0 {
		more = append(more, "asked: "+strings.Join(v.Approvers, ", "))
	}
	if left := v.Until.Sub(now); !v.Until.IsZero() && left > 0 {
		more = append(more, left.Round(time.Second).String()+" left")
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, "; ") + ")"
	}
	return text
}
