package crashtest

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
)

// gateStore records what the gate accepts, and implements some mutants.
type gateStore struct {
	*ipc.Store
	w       *sim
	slots   map[approval.Key][]byte // for noExpirySlot
	late    []store.Op              // for lateClaim
	removed bool                    // for the mutants of prune: since the last checkpoint
}

func (s *gateStore) Commit(ctx context.Context, ops ...store.Op) error {
	claims := slices.ContainsFunc(ops, isClaim)
	switch {
	case s.w.config.Mutant == noClaim && claims:
		return nil
	case s.w.config.Mutant == noTask && ops[0].Doc == approval.DocTask:
		s.w.keep(ops[0].Key.ID)
		return nil
	case s.w.config.Mutant == lateClaim && claims:
		s.late = ops
		return nil
	case s.w.config.Mutant == noExpirySlot && ops[0].Doc == approval.DocDecision:
		if s.slots == nil {
			s.slots = map[approval.Key][]byte{}
		}
		s.slots[ops[0].Key] = ops[0].Bytes
		return nil
	}
	if late := s.late; late != nil {
		s.late = nil
		if err := s.Store.Commit(ctx, late...); err != nil {
			return err
		}
	}
	if err := s.Store.Commit(ctx, ops...); err != nil {
		return err
	}
	if s.w.paused && claims {
		s.w.brokenPromises = append(s.w.brokenPromises, "P a claim was made after pause had returned")
	}
	for _, op := range ops {
		if op.Doc == approval.DocPending || isClaim(op) {
			s.w.accepted[op.Key.ID] = true
		}
		if op.Doc == approval.DocTask {
			s.w.keep(op.Key.ID)
		}
	}
	return nil
}

func isClaim(op store.Op) bool { return op.Doc == approval.DocClaim || op.Doc == approval.DocAgain }

func (s *gateStore) Read(ctx context.Context, doc approval.Doc, k approval.Key) ([]byte, error) {
	if b, ok := s.slots[k]; ok && doc == approval.DocDecision {
		return b, nil
	}
	if s.w.config.Mutant == noDuplicate && doc == approval.DocRecord && !s.settlesOwn(k) {
		return nil, fs.ErrNotExist
	}
	return s.Store.Read(ctx, doc, k)
}

func (s *gateStore) Remove(ctx context.Context, doc approval.Doc, k approval.Key) error {
	if doc == approval.DocDecision {
		delete(s.slots, k)
	}
	if doc == approval.DocRecord {
		s.w.pruned[k.ID] = true
	}
	s.removed = s.removed || doc == approval.DocRecord
	return s.Store.Remove(ctx, doc, k)
}

// Checkpoint implements store.Store. Only a prune asks for one here.
func (s *gateStore) Checkpoint(ctx context.Context) error {
	after := s.removed
	s.removed = false
	if s.w.config.Mutant == noPruneCheckpoint && !after || s.w.config.Mutant == noPruneSync && after {
		return nil
	}
	return s.Store.Checkpoint(ctx)
}

// List implements store.Store.
func (s *gateStore) List(ctx context.Context, doc approval.Doc, ws string) (ids, strays []string, err error) {
	if s.w.config.Mutant == leftoversOnly && doc == approval.DocRecord {
		return nil, nil, nil
	}
	return s.Store.List(ctx, doc, ws)
}

// settlesOwn limits noDuplicate: it hides a record only if the request came again.
// Otherwise that mutant could not end a request at all.
func (s *gateStore) settlesOwn(k approval.Key) bool {
	_, err := s.Store.Read(context.Background(), approval.DocRequest, k)
	return err != nil
}

// trustedRequests reads a folder of requests through an FS and trusts it: a simulated
// file system has no openat2 and no untrusted agent.
type trustedRequests struct {
	fsys ipc.FS
	dir  string
}

func (p trustedRequests) Read(name string, limit int64) ([]byte, error) {
	return p.fsys.ReadFile(filepath.Join(p.dir, name), limit)
}

func (p trustedRequests) Stat(name string) (exists bool, err error) {
	_, err = p.fsys.Stat(filepath.Join(p.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (p trustedRequests) Names(limit int) (names []string, more bool, err error) {
	f, err := p.fsys.Open(p.dir)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	names, err = f.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") })
	return names[:min(limit, len(names))], len(names) > limit, err
}

func (p trustedRequests) Remove(name string) error { return p.fsys.Remove(filepath.Join(p.dir, name)) }

func (p trustedRequests) SetAside(name string) error { return p.Remove(name) }
func (p trustedRequests) Stale() bool                { return false }
func (p trustedRequests) Warning() string            { return "" }
func (p trustedRequests) Close() error               { return nil }
