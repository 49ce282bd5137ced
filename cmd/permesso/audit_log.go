package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
)

// completeSlack is how much older than the newest entry a record may be and
// still have lost its entries in a crash. It allows for clocks that jump.
const completeSlack = 24 * time.Hour

// openAudit opens the log to write to it. The caller holds the lock.
func (h *instance) openAudit(k *keys) (*audit.Log, error) {
	known, err := h.auditKeys()
	if err != nil {
		return nil, err
	}
	log, err := audit.OpenSigned(h.fs, h.layout.Audit(), time.Now, audit.Keys{Signer: k.signer.NoteSigner(), Known: known})
	return log, verifyFirst(err)
}

// verifyFirst adds to an error of a changed log the command that shows where.
func verifyFirst(err error) error {
	for _, bad := range []error{audit.ErrDamaged, audit.ErrTampered, audit.ErrNotProven} {
		if errors.Is(err, bad) {
			return approval.WithHint(err, hints("run permesso audit verify for details", approval.Hint(err)))
		}
	}
	return err
}

// auditKeys returns the keys that may have signed the log.
func (h *instance) auditKeys() (note.Verifiers, error) {
	v, err := receipt.LoadVerifier(h.fs, h.layout.Keys())
	if err != nil {
		return nil, err
	}
	return v.Known(), nil
}

// auditFoot returns the last line of a message, "" without a checkpoint.
func auditFoot(c *audit.Checkpoint) string {
	if c == nil {
		return ""
	}
	return "log " + c.Foot()
}

// auditFoot returns the last line of a message for a command that only reads.
func (h *instance) auditFoot() string {
	known, err := h.auditKeys()
	if err != nil {
		return ""
	}
	c, err := audit.Newest(h.fs, h.layout.Audit(), known)
	if err != nil {
		return "" // audit verify reports it
	}
	return auditFoot(c)
}

// completeAudit adds the entries that a crash removed from the log, from the
// records and receipts. After a clean stop there are none.
func (s *server) completeAudit() error {
	last := s.audit.Found()
	if last.Event == approval.EventStopped {
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
func (s *server) auditable(since time.Time) ([]approval.Entry, error) {
	names, err := s.store.Workspaces()
	if err != nil {
		return nil, err
	}
	v := s.viewer(s.keys)
	var want []approval.Entry
	for _, ws := range names {
		recs, err := s.recordEntries(v, ws, since)
		if err != nil {
			return nil, err
		}
		claims, err := s.claimEntries(v, ws)
		if err != nil {
			return nil, err
		}
		want = append(append(want, recs...), claims...)
	}
	return want, nil
}

func (s *server) recordEntries(v *gate.Viewer, ws string, since time.Time) ([]approval.Entry, error) {
	var want []approval.Entry
	err := s.eachRecord(v, ws, since, func(rec *approval.Record) {
		want = append(want, v.RecordEntries(rec, settingsOf(s.cfg).Tool)...)
	}, func(k approval.Key, err error) {
		s.log.Warn().Str("ws", ws).Str("id", k.ID).Err(err).Msg("read record for the audit log failed")
	})
	return want, err
}

// eachRecord reads the records of a workspace that changed since then.
func (h *instance) eachRecord(v *gate.Viewer, ws string, since time.Time, each func(*approval.Record), bad func(approval.Key, error)) error {
	ids, _, err := h.store.List(approval.DocRecord, ws)
	if err != nil {
		return fmt.Errorf("list records of %s: %w", ws, err)
	}
	for _, id := range ids {
		if !since.IsZero() {
			info, err := h.fs.Stat(filepath.Join(h.layout.Records(ws), id+".json"))
			if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().Before(since) {
				continue
			}
		}
		k := approval.Key{Workspace: ws, ID: id}
		rec, err := v.Record(context.Background(), k)
		switch {
		case err != nil:
			bad(k, err)
		case rec != nil:
			each(rec)
		}
	}
	return nil
}

func (s *server) claimEntries(v *gate.Viewer, ws string) ([]approval.Entry, error) {
	ids, _, err := s.store.List(approval.DocClaim, ws)
	if err != nil {
		return nil, fmt.Errorf("list claims of %s: %w", ws, err)
	}
	var want []approval.Entry
	for _, id := range ids {
		entries, err := v.ClaimEntries(approval.Key{Workspace: ws, ID: id}, settingsOf(s.cfg).Tool)
		if err != nil { // recovery will fail on it too, and log it
			s.log.Warn().Str("ws", ws).Str("id", id).Err(err).Msg("read claim for the audit log failed")
			continue
		}
		want = append(want, entries...)
	}
	return want, nil
}
