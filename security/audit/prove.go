package audit

import (
	"errors"
	"fmt"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/permesso-dev/permesso/approval/event"
)

// Proof proves to a verifier with the public key that an entry is in a log. It holds
// the entry's line, the audit path in the tree, and the signed root.
type Proof struct {
	Version    int         `json:"version"` // 1
	Index      int64       `json:"index"`   // from 0: seq - 1
	Entry      string      `json:"entry"`   // its line without the line feed
	Hashes     []tlog.Hash `json:"hashes"`  // RFC 6962's audit path, nearest the leaf first
	Checkpoint string      `json:"checkpoint"`
}

const proofVersion = 1

// ErrNotProven says that a proof is invalid.
var ErrNotProven = errors.New("invalid proof")

// Encode writes the proof as indented JSON, in ASCII.
func (p *Proof) Encode() ([]byte, error) {
	b, err := json.Marshal(p, jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("encode proof: %w", err)
	}
	return ascii(b), nil
}

// ParseProof reads a proof without verifying it.
func ParseProof(b []byte) (*Proof, error) {
	var p Proof
	if err := json.Unmarshal(b, &p, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	if p.Version != proofVersion {
		return nil, fmt.Errorf("%w: unknown version %d", ErrNotProven, p.Version)
	}
	return &p, nil
}

// Verify checks the signature and the path from the entry to the root.
func (p *Proof) Verify(known note.Verifiers) (event.Entry, *Checkpoint, error) {
	c, err := ParseCheckpoint(p.Checkpoint, known)
	if err != nil {
		return event.Entry{}, nil, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	if err := tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Index, leafHash([]byte(p.Entry))); err != nil {
		return event.Entry{}, nil, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	e, err := decode([]byte(p.Entry))
	if err != nil || e.Seq != p.Index+1 {
		return event.Entry{}, nil, fmt.Errorf("%w: its line is not entry %d", ErrNotProven, p.Index+1)
	}
	return e, c, nil
}

// Prove makes the proofs of the matching entries, oldest first, under the newest
// checkpoint. Entries that no checkpoint covers yet are left out.
func Prove(fsys afero.Fs, dir string, known note.Verifiers, match func(event.Entry) bool) ([]*Proof, error) {
	c, err := Newest(fsys, dir, known)
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	if c == nil {
		return nil, nil
	}
	var proofs []*Proof
	stored := make([]tlog.Hash, 0, tlog.StoredHashCount(c.Size))
	reader := tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(at))
		for i, n := range at {
			found[i] = stored[n]
		}
		return found, nil
	})
	all, err := segments(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	w := &walk{fs: fsys, dir: dir}
	err = w.lines(all, place{segment: 1, seq: 1}, min(c.Size, math.MaxInt64-1)+1, func(line []byte, e event.Entry, _ place) error {
		more, err := tlog.StoredHashesForRecordHash(e.Seq-1, leafHash(line), reader)
		stored = append(stored, more...)
		if err == nil && match(e) {
			proofs = append(proofs, &Proof{Version: proofVersion, Index: e.Seq - 1, Entry: string(line), Checkpoint: c.Note})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	if int64(len(stored)) != tlog.StoredHashCount(c.Size) {
		return nil, fmt.Errorf("prove: %w: log is shorter than its newest checkpoint", ErrTampered)
	}
	for _, p := range proofs {
		if p.Hashes, err = tlog.ProveRecord(c.Size, p.Index, reader); err == nil {
			_, _, err = p.Verify(known)
		}
		if err != nil {
			return nil, fmt.Errorf("prove: %w", err)
		}
	}
	return proofs, nil
}
