package home

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/secrets"
)

// Redaction finds the secrets of requests. Without a finder every text is one.
type Redaction struct{ finder *secrets.Redactor }

var scanner = sync.OnceValues(secrets.New)

// NewRedaction finds secrets independent of a request.
func NewRedaction() Redaction {
	if s, err := scanner(); err == nil {
		return Redaction{s.Independent()}
	}
	return Redaction{}
}

// For knows the values of p, and so the secrets that are split over them.
func (x Redaction) For(p *approval.Pending) chat.Redactor {
	if s, err := scanner(); err == nil {
		return Redaction{s.Redactor(p)}
	}
	return Redaction{}
}

// notSearched is the kind of every text without a working scanner.
const notSearched = "not searched"

// HoldsSecret reports whether a text may have a secret.
func HoldsSecret(text string) bool { return len(NewRedaction().Secrets(text)) > 0 }

// Secrets implements chat.Redactor.
func (x Redaction) Secrets(text string) []chat.Span {
	if x.finder == nil {
		return []chat.Span{{Start: 0, End: len(text), Kind: notSearched}}
	}
	return spansOf(x.finder.Spans(text))
}

// Tokens implements chat.Redactor.
func (x Redaction) Tokens(text string) []chat.Span {
	if x.finder == nil {
		return nil
	}
	return spansOf(x.finder.Tokens(text))
}

// Withheld implements chat.Redactor.
func (x Redaction) Withheld(value string) string {
	if x.finder == nil {
		return notSearched
	}
	return x.finder.Withheld(value)
}

// Unmaskable implements chat.Redactor.
func (x Redaction) Unmaskable() []string {
	if x.finder == nil {
		return []string{notSearched}
	}
	return x.finder.Unmaskable()
}

func spansOf(found []secrets.Span) (spans []chat.Span) {
	for _, s := range found {
		spans = append(spans, chat.Span(s))
	}
	return spans
}

// Style is the style of cards in this home.
func (h *Home) Style() chat.Style {
	return chat.Style{Language: h.Current().Language, Zone: time.Local, Redact: NewRedaction(), Paused: h.PausedIn}
}

// Revoker revokes grants for the channels.
type Revoker struct {
	*Memory
	authorizer *gate.Authorizer
}

// Revoker lets the channels revoke grants for the people who may decide.
func (m *Memory) Revoker() Revoker { return Revoker{m, m.home.Authorizer()} }

// Given implements the revoker of chat.Interceptor.
func (r Revoker) Given(p *approval.Pending, d *approval.Decision) *grant.Grant {
	return grant.From(p, d)
}

// Remembered implements the revoker of chat.Interceptor.
func (r Revoker) Remembered(_ context.Context, workspaces []string) ([]grant.Grant, error) {
	now := time.Now()
	var all []grant.Grant
	for _, g := range r.Grants() {
		if slices.Contains(workspaces, g.Workspace) && g.Live(now) {
			all = append(all, g.Grant)
		}
	}
	return all, nil
}

// Revoke implements the revoker of chat.Interceptor.
func (r Revoker) Revoke(_ context.Context, g grant.Grant, by approval.Person) (done bool, err error) {
	name, ok := r.authorizer.May(g.Workspace, nil, by)
	if !ok {
		return false, &decide.Refusal{Reason: decide.ErrNotAuthorized}
	}
	now, err := r.Grant(g.ID)
	if err != nil {
		return false, err
	}
	return r.revoke(now, name, time.Now())
}

// RevokeGrant revokes a grant, durably. done is false if there is none, or it was revoked
// before.
func (m *Memory) RevokeGrant(id, by string) (done bool, err error) {
	g, err := m.Grant(id)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return m.revoke(g, by, time.Now())
}

func (m *Memory) revoke(g *grant.Grant, by string, now time.Time) (done bool, err error) {
	if !g.RevokedAt.IsZero() {
		return false, nil
	}
	g.RevokedAt, g.RevokedBy = now.UTC(), by
	return true, m.SaveGrant(g, store.Replace)
}

// GrantsIn lists the grants of a workspace, the newest first.
func (m *Memory) GrantsIn(ws string) []grant.Use {
	return slices.DeleteFunc(m.Grants(), func(g grant.Use) bool { return g.Workspace != ws })
}

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
		Store: h.Store, Seal: k.Seal, Words: chat.Words{}, May: h.Authorizer().May, Grants: grantFiles{h, k},
		Pattern:   policy.Pattern,
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

// Earlier finds the request that another one resubmits.
func Earlier(v *read.Viewer) func(p *approval.Pending) *chat.EarlierRequest {
	return func(p *approval.Pending) *chat.EarlierRequest {
		st := v.Resubmitted(context.Background(), p)
		if st == nil {
			return nil
		}
		return &chat.EarlierRequest{Request: st.Pending, Decision: st.Decision}
	}
}
