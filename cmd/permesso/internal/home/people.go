package home

import (
	"cmp"
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

// WouldAllow reports which of the earlier asked requests code 6 would have
// allowed.
func (m *Memory) WouldAllow(p *approval.Pending) (which []string, n, of int) {
	g := policy.GrantFrom(p, &approval.Decision{Verdict: approval.Approved, Code: "6", Scope: approval.Always, DecidedAt: time.Now()})
	if g == nil {
		return nil, 0, 0
	}
	facts, of := m.WouldHaveAllowed(*g)
	for _, f := range facts {
		if f.RequestID == p.RequestID {
			of-- // p itself is not history
			continue
		}
		what := cmp.Or(f.Tool, f.ActionType)
		if f.Target != "" {
			what += " -> " + f.Target
		}
		which = append(which, what)
	}
	return which, len(which), of
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
	return policy.GrantFrom(p, d)
}

// Remembered implements the revoker of chat.Interceptor.
func (r Revoker) Remembered(ctx context.Context, workspaces []string) ([]grant.Grant, error) {
	all, err := r.withUpcoming(ctx, workspaces)
	now := time.Now()
	return slices.DeleteFunc(all, func(g grant.Grant) bool {
		return !slices.Contains(workspaces, g.Workspace) || !g.Live(now)
	}), err
}

// Revoke implements the revoker of chat.Interceptor.
func (r Revoker) Revoke(_ context.Context, g grant.Grant, by approval.Person) (done bool, err error) {
	name, ok := r.authorizer.May(g.Workspace, nil, by)
	if !ok {
		return false, &decide.Refusal{Reason: decide.ErrNotAuthorized}
	}
	now, err := r.reread(&g)
	if err != nil {
		return false, err
	}
	return r.revoke(now, name)
}

// reread returns a grant as its file has it. An upcoming grant has no file yet: if it is
// revoked now, the daemon will find it revoked.
func (m *Memory) reread(g *grant.Grant) (*grant.Grant, error) {
	now, err := m.Grant(g.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return g, nil
	}
	return now, err
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
	return m.revoke(g, by)
}

func (m *Memory) revoke(g *grant.Grant, by string) (done bool, err error) {
	if !g.RevokedAt.IsZero() {
		return false, nil
	}
	g.RevokedAt, g.RevokedBy = time.Now().UTC(), by
	return true, m.SaveGrant(g, store.Replace)
}

// GrantsIn lists the grants of a workspace, the newest first.
func (m *Memory) GrantsIn(ws string) []grant.Use {
	return slices.DeleteFunc(m.Grants(), func(g grant.Use) bool { return g.Workspace != ws })
}

// withUpcoming returns all grants, and the upcoming ones of these workspaces, nil for
// every one. It reads the upcoming ones first: a request that ends between the two reads
// is then seen twice, not missed.
func (m *Memory) withUpcoming(ctx context.Context, workspaces []string) ([]grant.Grant, error) {
	soon, err := m.upcoming(ctx, workspaces)
	all := soon
	for _, stored := range m.Grants() {
		if !slices.ContainsFunc(soon, func(g grant.Grant) bool { return g.ID == stored.ID }) {
			all = append(all, stored.Grant)
		}
	}
	return all, err
}

// upcoming returns the grants of decided requests that still run. Their files are
// written with the outcome, but they can be revoked now.
func (m *Memory) upcoming(ctx context.Context, workspaces []string) ([]grant.Grant, error) {
	viewer := m.home.Viewer(m.Keys)
	waiting, err := viewer.Waiting(ctx, workspaces)
	if err != nil {
		return nil, err
	}
	var all []grant.Grant
	for _, w := range waiting {
		d, err := viewer.Decided(ctx, w)
		if d == nil || err != nil {
			continue
		}
		g := policy.GrantFrom(w.Pending, d)
		if g == nil {
			continue
		}
		if _, err := m.Grant(g.ID); errors.Is(err, fs.ErrNotExist) {
			all = append(all, *g)
		}
	}
	return all, nil
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
