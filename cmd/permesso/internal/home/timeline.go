package home

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/security/audit"
)

// RequestAndRuling rebuilds the request of a pending or ended request and its original
// ruling; nil if no request is stored.
func (h *Home) RequestAndRuling(ctx context.Context, v *read.Viewer, k approval.Key) (*approval.Request, *approval.Ruling, error) {
	rec, err := v.Record(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	var p *approval.Pending
	var then *approval.Ruling
	if rec != nil {
		then = rec.Ruling
		if len(rec.Request) > 0 && rec.Request.Kind() == '{' {
			r, err := approval.ParseRequest(rec.Request, k.ID)
			return r, then, err
		}
		p = v.OpenPending(k, rec.Pending) // a malformed request is not stored
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
		Proof: p.Proof, Resubmits: p.Resubmits,
	}, then, nil
}

// LastRecords returns the keys of the n newest records, newest first.
func (h *Home) LastRecords(n int) ([]approval.Key, error) {
	type aged struct {
		key approval.Key
		at  time.Time
	}
	var all []aged
	names, err := h.Store.Workspaces(context.Background())
	if err != nil {
		return nil, err
	}
	for _, ws := range names {
		ids, _, err := h.Store.List(context.Background(), approval.DocRecord, ws)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if info, err := h.FS.Stat(filepath.Join(h.Layout.Records(ws), id+".json")); err == nil {
				all = append(all, aged{approval.Key{Workspace: ws, ID: id}, info.ModTime()})
			}
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return b.at.Compare(a.at) })
	var keys []approval.Key
	for _, r := range all[:min(n, len(all))] {
		keys = append(keys, r.key)
	}
	return keys, nil
}

// Timeline returns the audit entries of a request that was made at the time asked
// (zero: any time), oldest first.
func (h *Home) Timeline(k approval.Key, asked time.Time) (log []approval.Entry, err error) {
	if h.Layout.Home == "" {
		return nil, nil // the log belongs to another user
	}
	mark := fmt.Appendf(nil, `"request_id":%q`, k.ID)
	var from, stop time.Time
	if !asked.IsZero() {
		from = asked.Add(-time.Minute) // the log's time may differ slightly
		stop = from.Add(-24 * time.Hour)
	}
	old := errors.New("older")
	about := func(line []byte) bool { return bytes.Contains(line, mark) || writtenBefore(line, stop) }
	err = audit.Backwards(h.FS, h.Layout.Audit(), about, func(e approval.Entry) error {
		switch {
		case e.Time.Before(stop):
			return old
		case e.RequestID == k.ID && e.Workspace == k.Workspace && !e.Time.Before(from):
			log = append(log, e)
		}
		return nil
	})
	if errors.Is(err, old) {
		err = nil
	}
	slices.Reverse(log)
	return log, err
}

// writtenBefore compares the undecoded time of a line.
func writtenBefore(line []byte, t time.Time) bool {
	_, rest, ok := bytes.Cut(line[:min(len(line), 80)], []byte(`"time":"`))
	day := t.UTC().Format(time.DateOnly)
	return ok && len(rest) >= len(day) && string(rest[:len(day)]) < day
}
