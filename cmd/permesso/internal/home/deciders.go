package home

import (
	"context"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
)

// Authorizer says who may decide by the current configuration.
func (h *Home) Authorizer() *gate.Authorizer {
	return &gate.Authorizer{People: func() gate.People {
		if cfg := h.Current(); cfg != nil {
			return SettingsOf(cfg)
		}
		return nil
	}}
}

// Decider returns a decider for this home. It does not clear slots.
func (h *Home) Decider(k *Keys) *gate.Decider {
	return &gate.Decider{
		Store: h.Store, Seal: k.Seal, Words: chat.Words{}, May: h.Authorizer().May,
		RunBefore: func() time.Duration { return h.Current().RunBefore },
	}
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

// ClearSlot removes an invalid decision from the slot. The caller holds the lock.
func (h *Home) ClearSlot(ctx context.Context, d *gate.Decider, k approval.Key) error {
	return d.ClearInvalid(ctx, k, func() error {
		return h.Store.Refuse(ctx, k.Workspace, k.ID+".decision", "decision does not match the pending request")
	})
}
