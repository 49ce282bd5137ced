package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// completeSlack is how much older than the newest entry a record may be and
// still have lost its entries in a crash. It allows for clocks that jump.
const completeSlack = 24 * time.Hour

// completeAudit adds the entries that a crash removed from the log, from the
// records and receipts. After a clean stop there are none.
func (s *server) completeAudit() error {
	last := s.audit.FoundAtOpen()
	if last.Event == event.Stopped {
		return nil
	}
	var since time.Time
	if last.Seq > 0 {
		since = last.Time.Add(-completeSlack)
	}
	want, err := s.auditable(since)
	if err != nil {
		return err
	}
	added, err := s.audit.Complete(want)
	if added > 0 {
		s.log.Warn().Msgf("audit log: restored %d entries missing after a crash from the records", added)
	}
	return err
}

// auditable returns the entries that the log must hold for all claims and for
// the records changed since then.
func (s *server) auditable(since time.Time) ([]event.Entry, error) {
	names, err := s.Store.Workspaces(context.Background())
	if err != nil {
		return nil, err
	}
	h := &gate.History{Store: s.Store, Seal: s.keys.Seal, Words: chat.Words{}, Tool: home.SettingsOf(s.Config).Tool}
	var want []event.Entry
	for _, ws := range names {
		recs, err := s.recordEntries(h, ws, since)
		if err != nil {
			return nil, err
		}
		claims, err := s.claimEntries(h, ws)
		if err != nil {
			return nil, err
		}
		want = append(append(want, recs...), claims...)
	}
	return want, nil
}

func (s *server) recordEntries(h *gate.History, ws string, since time.Time) ([]event.Entry, error) {
	var want []event.Entry
	err := s.EachRecord(s.Viewer(s.keys), ws, since, func(rec *approval.Record) {
		want = append(want, h.RecordEntries(rec)...)
	}, func(k approval.Key, err error) {
		s.log.Warn().Str("ws", ws).Str("id", k.ID).Err(err).Msg("read record for the audit log failed")
	})
	return want, err
}

func (s *server) claimEntries(h *gate.History, ws string) ([]event.Entry, error) {
	ids, _, err := s.Store.List(context.Background(), approval.DocClaim, ws)
	if err != nil {
		return nil, fmt.Errorf("list claims of %s: %w", ws, err)
	}
	var want []event.Entry
	for _, id := range ids {
		entries, err := h.ClaimEntries(approval.Key{Workspace: ws, ID: id})
		if err != nil { // recovery will fail on it too, and log it
			s.log.Warn().Str("ws", ws).Str("id", id).Err(err).Msg("read claim for the audit log failed")
			continue
		}
		want = append(want, entries...)
	}
	return want, nil
}
