package home

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/ipc"
)

// Decider returns a decider for this home outside of the daemon.
func (h *Home) Decider(k *Keys) *gate.Decider {
	d := &gate.Decider{
		Store: h.Store, Seal: k.Seal, RunBefore: h.Current().RunBefore, Words: chat.Words{},
		May: func(ws string, p *approval.Pending, by approval.Person) (string, bool) {
			name, ok := h.Current().MayDecide(ws, by)
			if ok && p != nil && p.Principal != "" && name != p.Principal && !strings.HasPrefix(name, "operator:") {
				return "", false
			}
			return name, ok
		},
	}
	d.ClearSlot = func(ctx context.Context, k approval.Key) error { return h.freeSlot(ctx, d, k) }
	return d
}

// Sleep waits, or returns the error of an ended context.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// freeSlot removes an invalid decision from the slot while no daemon runs. Only the
// holder of the lock may do it.
func (h *Home) freeSlot(ctx context.Context, d *gate.Decider, k approval.Key) error {
	release, err := h.Store.Lease(ctx)
	if errors.Is(err, ipc.ErrLocked) {
		return Sleep(ctx, 20*time.Millisecond) // the daemon removes it
	}
	if err != nil {
		return err
	}
	err = d.ClearInvalid(ctx, k, func() error {
		return h.Store.Refuse(ctx, k.Workspace, k.ID+".decision", "decision does not match the pending request")
	})
	return errors.Join(err, release())
}

// FreshDecider creates a decider for each decision, with the current configuration.
type FreshDecider func() *gate.Decider

// Decide implements chat.Decider.
func (f FreshDecider) Decide(ctx context.Context, a approval.DecisionInput) (*approval.Decision, error) {
	return f().Decide(ctx, a)
}

// CanDecide returns the error with which Decide would refuse.
func (f FreshDecider) CanDecide(ctx context.Context, a approval.DecisionInput) error {
	return f().CanDecide(ctx, a)
}
