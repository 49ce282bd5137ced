package read

import (
	"cmp"
	"context"
	"slices"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/submit"
)

// Story is what the documents tell of one request. What is missing is nil.
type Story struct {
	Pending  *approval.Pending
	SHA256   string             // of the stored pending; "" once the request has ended
	Decision *approval.Decision // the valid one in the slot, or the one that counted
	Claim    *approval.Claim    // without a record: it runs, or was interrupted
	Record   *approval.Record
}

// Exists says that there is such a request.
func (st *Story) Exists() bool { return st.Pending != nil || st.Claim != nil || st.Record != nil }

// Aftermath is what approvers should hear of a request that they have approved: "paused" while it waits for the end of
// a pause, or the status of one that failed, was interrupted or expired. It is "" if there is nothing to tell.
func (st *Story) Aftermath(paused bool) string {
	d := st.Decision
	bad := []approval.Status{approval.StatusFailed, approval.StatusInterrupted, approval.StatusExpired}
	switch {
	case d == nil || d.Verdict != approval.Approved || st.Pending == nil:
	case st.Record != nil && slices.Contains(bad, st.Record.Status):
		return string(st.Record.Status)
	case st.Record == nil && st.Claim == nil && paused:
		return "paused"
	}
	return ""
}

// Client is the client of the request.
func (st *Story) Client(workspace string) (id string) {
	switch {
	case st.Pending != nil:
		id = st.Pending.ClientID
	case st.Record != nil:
		id = st.Record.ClientID
	case st.Claim != nil:
		id = st.Claim.ClientID
	}
	return cmp.Or(id, submit.FolderClient(workspace))
}

// Story reads the documents of a request, in the order in which they are written: each is
// written before those before it are removed, so no state is missed. With an error it
// returns what was read before.
func (v *Viewer) Story(ctx context.Context, k approval.Key) (st Story, err error) {
	w, err := v.Pending(k)
	if err != nil {
		return st, err
	}
	if w != nil {
		st.Pending, st.SHA256 = w.Pending, w.SHA256
		if st.Decision, err = v.Decided(ctx, *w); err != nil {
			return st, err
		}
	}
	if st.Claim, err = v.Claim(k); err != nil {
		return st, err
	}
	if c := st.Claim; c != nil {
		if st.Pending == nil {
			st.Pending = v.OpenPending(k, c.Pending)
		}
		st.Decision = v.OpenDecision(k, c.Decision)
	}
	rec, err := v.Record(ctx, k)
	if err != nil || rec == nil {
		return st, err
	}
	return Story{Pending: v.OpenPending(k, rec.Pending), Decision: v.OpenDecision(k, rec.Decision), Record: rec}, nil
}

// Decided returns the valid decision in the slot of a pending, or nil.
func (v *Viewer) Decided(ctx context.Context, w approval.StoredPending) (*approval.Decision, error) {
	b, found, err := v.read(ctx, approval.DocDecision, "decision", w.Key())
	if !found {
		return nil, err
	}
	if d := v.OpenDecision(w.Key(), b); d != nil && d.PendingSHA256 == w.SHA256 {
		return d, nil
	}
	return nil, nil
}

// Resubmitted returns the story of the request that another one resubmits, with a
// pending also if policy decided: first of its own workspace, then of all others, because
// a card marks one of another workspace. It is nil if there is none.
func (v *Viewer) Resubmitted(ctx context.Context, p *approval.Pending) *Story {
	if !approval.ValidID(p.Resubmits) {
		return nil
	}
	all, _ := v.Store.Workspaces(ctx)
	for _, ws := range append([]string{p.SourceGroup}, all...) {
		k := approval.Key{Workspace: ws, ID: p.Resubmits}
		st, err := v.Story(ctx, k)
		if err != nil {
			continue
		}
		if st.Pending == nil && st.Record != nil {
			if r, err := approval.ParseHostRequest(st.Record.Request, k.ID); err == nil { // not malformed
				st.Pending = Requested(k, st.Record)
				st.Pending.Options = r.Options
			}
		}
		if st.Pending != nil {
			return &st
		}
	}
	return nil
}

// Requested is the request of a record that policy decided, as far as it is readable, in
// the form of a pending.
func Requested(k approval.Key, rec *approval.Record) *approval.Pending {
	p := &approval.Pending{
		RequestID: k.ID, ShortID: approval.ShortID(k.ID), SourceGroup: k.Workspace, Timestamp: rec.RequestedAt,
		ClientID: cmp.Or(rec.ClientID, submit.FolderClient(k.Workspace)), Reversibility: approval.Reversible,
	}
	if rec.Ruling != nil {
		p.Ruling = *rec.Ruling
	}
	if r, err := approval.ParseHostRequest(rec.Request, k.ID); err == nil {
		p.ToolName, p.ActionType, p.RequestData, p.Metadata = r.ToolName, r.ActionType, r.RequestData, r.Metadata
		p.ArgsSubset, p.Plan = r.ArgsSubset, rec.Plan
		if r.Program != "" {
			p.ActionType = approval.ActionProgram
		}
		p.Agent = approval.Prose{Title: r.Title, Preview: r.Preview, Rationale: r.Rationale}
	}
	if o := rec.Outline; o != nil {
		p.ToolName, p.ActionType, p.SessionID = o.ToolName, o.ActionType, o.SessionID
		if resp, err := approval.ParseResponse(rec.Response); err == nil && resp.Metadata.Kind() != 'n' {
			p.Metadata = resp.Metadata
		}
	}
	return p
}

// RequestAndRuling rebuilds the request of a pending or ended request and its original
// ruling; nil if no request is stored.
func (v *Viewer) RequestAndRuling(ctx context.Context, k approval.Key) (*approval.Request, *approval.Ruling, error) {
	rec, err := v.Record(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	var p *approval.Pending
	var then *approval.Ruling
	if rec != nil {
		then = rec.Ruling
		if len(rec.Request) > 0 && rec.Request.Kind() == '{' {
			r, err := approval.ParseHostRequest(rec.Request, k.ID)
			return r, then, err
		}
		p = v.OpenPending(k, rec.Pending) // a refused request is not stored
	} else {
		w, err := v.Pending(k)
		if err != nil || w == nil {
			return nil, nil, err
		}
		p = w.Pending
		then = &p.Ruling
	}
	if p == nil {
		return nil, then, nil
	}
	return &approval.Request{
		RequestID: p.RequestID, Type: p.Type, ToolName: p.ToolName, ActionType: p.ActionType, RequestData: p.RequestData,
		SessionID: p.SessionID, Title: p.Agent.Title, Preview: p.Agent.Preview, Rationale: p.Agent.Rationale, Options: p.Options,
		ArgsSubset: p.ArgsSubset, Metadata: p.Metadata, Proof: p.Proof, Resubmits: p.Resubmits,
	}, then, nil
}
