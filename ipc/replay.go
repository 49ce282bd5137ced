package ipc

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc/journal"
)

// fold is what a journal says, from its mark on.
type fold struct {
	documents map[docKey]part // the last of each
	order     []docKey        // as they were first committed
	lines     [][]byte
	head      []byte // of the audit log, at the last mark
}

// replay brings the files to the state of the journal. Every file that it has is written
// again: after a failed write the kernel may hold bytes that the disk does not. The caller
// makes everything durable.
func (s *Store) replay(j *journal.Journal) error {
	f := &fold{documents: map[docKey]part{}}
	err := j.Records(func(_ uint64, body []byte) error { return eachPart(body, f.add) })
	if err != nil {
		return err
	}
	for _, d := range f.order {
		settled, err := s.settled(f, d.key)
		if err != nil {
			return err
		}
		if settled && d.doc != approval.DocRecord && d.doc != approval.DocGrant {
			continue // its record is the outcome
		}
		if err := s.restoreAnew(f.documents[d]); err != nil {
			return fmt.Errorf("restore %s of %s: %w", d.doc, d.key, err)
		}
	}
	return errors.Join(s.replayLog(f), s.removeTorn())
}

func (f *fold) add(p part) error {
	switch p.kind {
	case partEntry:
		f.lines = append(f.lines, p.content)
	case partHead:
		f.head = p.content
	default:
		if _, ok := f.documents[p.key]; !ok {
			f.order = append(f.order, p.key)
		}
		f.documents[p.key] = p
	}
	return nil
}

// settled reports whether a request has a record: in the journal, or as a valid file.
func (s *Store) settled(f *fold, k approval.Key) (bool, error) {
	d := docKey{approval.DocRecord, k}
	if _, ok := f.documents[d]; ok {
		return true, nil
	}
	_, ok, err := s.readValid(d)
	return ok, err
}

// readValid reads a document's file, if there is one and it is valid.
func (s *Store) readValid(d docKey) (b []byte, ok bool, err error) {
	b, err = s.FS.ReadFile(s.path(d.doc, d.key), maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return b, s.verify(d, b) == nil, nil
}

func (s *Store) verify(d docKey, b []byte) error {
	if v := jsontext.Value(b); !v.IsValid() || v.Kind() != '{' {
		return errors.New("not a JSON object")
	}
	if s.Verify == nil {
		return nil
	}
	return s.Verify(d.doc, d.key, b)
}

// restoreAnew is restore, also if the folder was removed while no daemon ran: what was
// committed comes back.
func (s *Store) restoreAnew(p part) error {
	err := s.restore(p)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.Layout.PrepareHome(s.FS); err != nil {
		return err
	}
	if ws := p.key.key.Workspace; p.key.doc != approval.DocGrant {
		if err := s.Layout.Prepare(s.FS, ws); err != nil {
			return err
		}
	}
	return s.restore(p)
}

// restore writes a document: with the bytes of its file if they are valid, because another
// process may have replaced it since, such as a grant that was revoked. The data of a large
// one is durable, in the only file that has it: it is never written again.
func (s *Store) restore(p part) error {
	name := s.path(p.key.doc, p.key.key)
	b, valid, err := s.readValid(p.key)
	switch {
	case err != nil:
		return err
	case p.kind == partLarge && valid:
		return nil
	case p.kind == partLarge:
		return s.restoreLarge(p)
	case valid:
		return s.replace(name, b, 0o600)
	}
	return s.replace(name, p.content, 0o600)
}

// restoreLarge gives a large document its name: its own file is durable.
func (s *Store) restoreLarge(p part) error {
	large := filepath.Join(s.dir(p.key.doc, p.key.key.Workspace), largePrefix+hex.EncodeToString(p.content))
	b, err := s.FS.ReadFile(large, maxDocument)
	sum := sha256.Sum256(b)
	if errors.Is(err, fs.ErrNotExist) || err == nil && string(sum[:]) != string(p.content) {
		return hints.Add(fmt.Errorf("%w: %s, which it refers to, is missing or has other bytes", journal.ErrDamaged, filepath.Base(large)),
			"put its folder back if it was removed; otherwise restore HOME from a backup that was taken at one moment, not file by file")
	}
	if err != nil {
		return err
	}
	return s.FS.Rename(large, s.path(p.key.doc, p.key.key))
}

func (s *Store) replayLog(f *fold) (err error) {
	s.logHead = f.head
	if s.RecoverLog != nil {
		s.logHead, err = s.RecoverLog(f.head, f.lines)
	}
	return err
}

// removeTorn removes decisions that a power cut tore. They were never acknowledged: the
// journal does not have them.
func (s *Store) removeTorn() error {
	names, err := s.Layout.Workspaces(s.FS)
	if err != nil {
		return err
	}
	for _, ws := range names {
		files, err := s.names(s.Layout.Decisions(ws))
		if err != nil {
			return err
		}
		for _, name := range files {
			if err := s.removeTornFile(filepath.Join(s.Layout.Decisions(ws), name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) removeTornFile(name string) error {
	b, err := s.FS.ReadFile(name, maxDocument)
	if v := jsontext.Value(b); err != nil || filepath.Ext(name) != docSuffix || v.IsValid() {
		return nil //nolint:nilerr // the gate reports what it cannot read
	}
	if err := s.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
