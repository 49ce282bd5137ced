package ipc_test

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/storetest"
)

// memory is the smallest store: a map. A crash loses what is not durable.
type memory struct {
	mu     sync.Mutex
	files  map[string]file // by folder and name
	onDisk map[string]file
	leased *memoryStore
}

type file struct {
	bytes []byte
	at    time.Time
}

// memoryStore is one process that uses a memory.
type memoryStore struct{ *memory }

// newMemory returns a backend in memory.
func newMemory() *storetest.Backend {
	m := &memory{files: map[string]file{}, onDisk: map[string]file{}}
	return &storetest.Backend{
		Open: func() store.Store { return &memoryStore{m} },
		Agent: func(name string, b []byte) {
			m.put(path.Join(storetest.Workspace, string(approval.DocRequest), name), b, false)
		},
		Crash: func() { m.files, m.leased = maps.Clone(m.onDisk), nil },
	}
}

func (m *memory) put(name string, b []byte, durable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = file{slices.Clone(b), time.Now()}
	if durable {
		m.onDisk[name] = m.files[name]
	}
}

// folder is the requests folder for both documents of an agent.
func folder(ws string, d approval.Doc) string {
	if d == approval.DocCancel {
		d = approval.DocRequest
	}
	return path.Join(ws, string(d)) + "/"
}

func suffix(d approval.Doc) string {
	if d == approval.DocCancel {
		return ".cancel"
	}
	return ".json"
}

func name(d approval.Doc, k approval.Key) string { return folder(k.Workspace, d) + k.ID + suffix(d) }

func (s *memoryStore) Read(ctx context.Context, d approval.Doc, k approval.Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.files[name(d, k)]
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !ok:
		return nil, fmt.Errorf("read %s of %s: %w", d, k, store.ErrMissing)
	}
	return slices.Clone(f.bytes), nil
}

func (s *memoryStore) Commit(ctx context.Context, ops ...store.Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.leased != s && len(ops) > 1 {
		return store.ErrUnavailable
	}
	s.mu.Lock()
	for _, op := range ops {
		if _, ok := s.files[name(op.Doc, op.Key)]; ok && op.Mode != store.Replace && op.Doc != approval.DocResponse {
			s.mu.Unlock()
			return fmt.Errorf("commit %s of %s: %w", op.Doc, op.Key, store.ErrExists)
		}
	}
	for _, op := range ops {
		s.files[name(op.Doc, op.Key)] = file{slices.Clone(op.Bytes), time.Now()}
	}
	s.mu.Unlock()
	for _, op := range ops {
		if op.Check != nil {
			if err := op.Check(); err != nil {
				return err
			}
		}
		if op.Mode != store.Volatile {
			s.put(name(op.Doc, op.Key), op.Bytes, true)
		}
	}
	return nil
}

func (s *memoryStore) Remove(ctx context.Context, d approval.Doc, k approval.Key) error {
	return s.remove(ctx, name(d, k))
}

func (s *memoryStore) remove(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	delete(s.files, name)
	return nil
}

func (s *memoryStore) Workspaces(ctx context.Context) ([]string, error) {
	return []string{storetest.Workspace}, ctx.Err()
}

func (s *memoryStore) List(ctx context.Context, d approval.Doc, ws string) (ids, strays []string, err error) {
	err = s.visit(ctx, folder(ws, d), func(name string, _ file) {
		id, ok := strings.CutSuffix(name, suffix(d))
		switch {
		case ok && approval.ValidName(id):
			ids = append(ids, id)
		case ok && d == approval.DocRequest:
			strays = append(strays, name)
		}
	})
	return ids, strays, err
}

// visit calls f for each file in a folder, in the order of the names.
func (s *memoryStore) visit(ctx context.Context, folder string, f func(name string, f file)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		if base, ok := strings.CutPrefix(name, folder); ok {
			f(base, s.files[name])
		}
	}
	return ctx.Err()
}

const refusals approval.Doc = "refusals"

func (s *memoryStore) Refuse(ctx context.Context, ws, name, why string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.put(folder(ws, refusals)+name, []byte(why), false)
	return nil
}

func (s *memoryStore) RemoveStray(ctx context.Context, ws, name string) error {
	return s.remove(ctx, folder(ws, approval.DocRequest)+name)
}

func (s *memoryStore) OlderThan(ctx context.Context, d approval.Doc, ws string, before time.Time) (map[string]int64, error) {
	sizes := map[string]int64{}
	err := s.visit(ctx, folder(ws, d), func(name string, f file) {
		if f.at.Before(before) {
			sizes[strings.TrimSuffix(name, suffix(d))] = int64(len(f.bytes))
		}
	})
	return sizes, err
}

func (s *memoryStore) Stored(ctx context.Context, ws string) (bytes int64, err error) {
	for _, d := range []approval.Doc{approval.DocRecord, approval.DocRedeemed, approval.DocResponse, refusals} {
		err = s.visit(ctx, folder(ws, d), func(_ string, f file) { bytes += store.OnDisk(int64(len(f.bytes))) })
	}
	return bytes, err
}

func (s *memoryStore) RefusalsOlderThan(ctx context.Context, ws string, before time.Time, remove bool) (n int, size int64, err error) {
	err = s.visit(ctx, folder(ws, refusals), func(name string, f file) {
		if f.at.Before(before) {
			n, size = n+1, size+int64(len(f.bytes))
			if remove {
				delete(s.files, folder(ws, refusals)+name)
			}
		}
	})
	return n, size, err
}

func (s *memoryStore) Checkpoint(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	s.sync("")
	return nil
}

func (s *memoryStore) NeedsCheckpoint() bool { return false }

// sync makes the names below a folder durable.
func (m *memory) sync(folder string) {
	maps.DeleteFunc(m.onDisk, func(name string, _ file) bool { return strings.HasPrefix(name, folder) })
	for name, f := range m.files {
		if strings.HasPrefix(name, folder) {
			m.onDisk[name] = f
		}
	}
}

func (s *memoryStore) Probe(ctx context.Context) error { return ctx.Err() }

func (s *memoryStore) Reserve(ctx context.Context, _ int64) (func(), error) {
	return func() {}, ctx.Err()
}

func (s *memoryStore) Lease(ctx context.Context) (func() error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.leased != nil:
		return nil, fmt.Errorf("lease: %w", store.ErrUnavailable)
	}
	s.leased = s
	s.sync("")
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leased = nil
		return nil
	}, nil
}
