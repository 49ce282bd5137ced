package home

import (
	"context"

	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/security/audit"
)

// Requests reads the matching requests from the log, and missing outcomes from the records.
func (h *Home) Requests(v *read.Viewer, w audit.Wanted) (found []*audit.Request, more bool, err error) {
	match := w.Match
	w.Match = func(r *audit.Request) bool {
		AddOutcome(v, r)
		return match(r)
	}
	return audit.Requests(h.FS, h.Layout.Audit(), w)
}

// AddOutcome reads the outcome of a request from its record if the log has none:
// the entry may not be written yet, or be lost in a power cut.
func AddOutcome(v *read.Viewer, r *audit.Request) {
	if r.Status != audit.StatusPending && r.Status != audit.StatusRunning {
		return
	}
	rec, err := v.Record(context.Background(), r.Key)
	if err != nil || rec == nil || rec.EndedAt.Before(r.Asked()) {
		return // no record, or that of an earlier request with this id
	}
	r.Status, r.EndedAt = rec.Status, rec.EndedAt
	if d := v.OpenDecision(r.Key, rec.Decision); d != nil {
		r.By, r.ByID, r.Via, r.DecidedAt = d.DecidedBy, d.DecidedByID, d.Via, d.DecidedAt
	}
}
