package home

import (
	"cmp"
	"context"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// Earlier finds the request that another one resubmits: first in its own
// workspace, then in all others, because the card marks one of another workspace.
func Earlier(v *read.Viewer) func(p *approval.Pending) *chat.EarlierRequest {
	return func(p *approval.Pending) *chat.EarlierRequest {
		if !approval.ValidID(p.Resubmits) {
			return nil
		}
		if f := findEarlier(v, approval.Key{Workspace: p.SourceGroup, ID: p.Resubmits}); f != nil {
			return f
		}
		all, err := v.Store.Workspaces(context.Background())
		if err != nil {
			return nil
		}
		for _, ws := range all {
			if f := findEarlier(v, approval.Key{Workspace: ws, ID: p.Resubmits}); f != nil && ws != p.SourceGroup {
				return f
			}
		}
		return nil
	}
}

// findEarlier reads a request from its record or pending document, nil if there is none.
func findEarlier(v *read.Viewer, k approval.Key) *chat.EarlierRequest {
	rec, err := v.Record(context.Background(), k)
	if err != nil {
		return nil
	}
	if rec == nil {
		w, err := v.Pending(k)
		if err != nil || w == nil {
			return nil
		}
		return &chat.EarlierRequest{Request: w.Pending}
	}
	if p := v.OpenPending(k, rec.Pending); p != nil {
		return &chat.EarlierRequest{Request: p, Decision: v.OpenDecision(k, rec.Decision)}
	}
	r, err := approval.ParseRequest(rec.Request, k.ID)
	if err != nil {
		return nil // malformed
	}
	return &chat.EarlierRequest{Request: &approval.Pending{
		RequestID: k.ID, SourceGroup: k.Workspace, ClientID: cmp.Or(rec.ClientID, approval.FolderClient(k.Workspace)),
		ToolName: r.ToolName, ActionType: r.ActionType, RequestData: r.RequestData,
		Agent: approval.Prose{Title: r.Title, Preview: r.Preview, Rationale: r.Rationale}, Options: r.Options,
	}}
}
