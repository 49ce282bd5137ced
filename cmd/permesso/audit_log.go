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

// completeSlack is how much older than the newest entry a record may be whose
// entries a crash can have taken away: generous, for clocks that jump.
const completeSlack = 24 * time.Hour

// openAudit opens the log to write to it. The caller holds the lock.
func (h *house) openAudit(k *keys) (*audit.Log, error) {
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

// auditKeys are the keys that may have signed the log.
func (h *house) auditKeys() (note.Verifiers, error) {
	v, err := receipt.LoadVerifier(h.fs, h.layout.Keys())
	if err != nil {
		return nil, err
	}
	return v.Known(), nil
}

// auditFoot is what stands at the foot of a card, or nothing.
func auditFoot(c *audit.Checkpoint) string {
	if c == nil {
		return ""
	}
	return "log " + c.Foot()
}

// auditFoot is the foot for a command that only looks.
func (h *house) auditFoot() string {
	known, err := h.auditKeys()
	if err != nil {
		return ""
	}
	c, err := audit.Newest(h.fs, h.layout.Audit(), known)
	if err != nil {
		return "" // audit verify tells
	}
	return auditFoot(c)
}

// completeAudit adds what a crash took out of the log, from the records and
// receipts. After a clean stop there is nothing to do.
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
		s.log.Warn().Msgf("the audit log lacked %d entries after a crash: completed from the records", added)
	}
	return err
}

// auditable are the entries that the records changed since then, and all
// claims, stand for.
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
		s.log.Warn().Str("ws", ws).Str("id", k.ID).Err(err).Msg("read record for the audit log")
	})
	return want, err
}

// eachRecord opens the records of a workspace that were written since then.
func (h *house) eachRecord(v *gate.Viewer, ws string, since time.Time, each func(*approval.Record), bad func(approval.Key, error)) error {
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
		return nil, fmt.Errorf("list receipts of %s: %w", ws, err)
	}
	var want []approval.Entry
	for _, id := range ids {
		entries, err := v.ClaimEntries(approval.Key{Workspace: ws, ID: id}, settingsOf(s.cfg).Tool)
		if err != nil { // the gate will stop at it too, and say so
			s.log.Warn().Str("ws", ws).Str("id", id).Err(err).Msg("read receipt for the audit log")
			continue
		}
		want = append(want, entries...)
	}
	return want, nil
}
