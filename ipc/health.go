package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/permesso-dev/permesso/approval/store"
)

// health holds the write failures of a Store.
type health struct {
	mu           sync.Mutex
	restartErr   error           // a sync failed: until the restart
	unsyncedDirs map[string]bool // folders that could not be opened for their sync
	leftovers    map[string]bool // files that could not be removed
}

// syncDir makes the names in a folder durable, or returns store.ErrUnsynced. A sync
// that failed in the kernel is never retried: the next one would succeed without writing
// anything.
func (s *Store) syncDir(dir string) error {
	if err := s.restartErr(); err != nil {
		return err
	}
	err := s.syncs.dir(dir, func() error { return s.noteSyncError(s.FS.SyncDir(dir)) }, s.syncAll)
	if err == nil || errors.Is(err, store.ErrUnsynced) {
		return err
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.health.unsyncedDirs == nil {
		s.health.unsyncedDirs = map[string]bool{}
	}
	s.health.unsyncedDirs[dir] = true
	return fmt.Errorf("%w: %w", store.ErrUnsynced, err)
}

// syncAll is one sync for all waiting writes.
func (s *Store) syncAll() error {
	if err := s.restartErr(); err != nil {
		return err
	}
	return s.noteSyncError(s.FS.SyncFS(s.Layout.Home))
}

// noteSyncError records a sync that failed in the kernel.
func (s *Store) noteSyncError(err error) error {
	if err == nil || notOpened(err) {
		return err
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.restartErr = fmt.Errorf("%w: %w: %w", store.ErrUnsynced, store.ErrRestart, err)
	return s.health.restartErr
}

func (s *Store) restartErr() error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.restartErr
}

// notOpened reports whether an error came from opening the file or folder to be synced.
func notOpened(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, fs.ErrPermission, fs.ErrNotExist} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// discard removes a file. If that fails, Probe tries again.
func (s *Store) discard(name string) {
	err := s.FS.Remove(name)
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		delete(s.health.leftovers, name)
	case s.health.leftovers == nil:
		s.health.leftovers = map[string]bool{name: true}
	default:
		s.health.leftovers[name] = true
	}
}

// Probe writes, renames and syncs a test file, and repeats removals and syncs that could
// not be done before. After nil, every visible document is durable. The error is
// store.ErrRestart if a retry is useless.
func (s *Store) Probe(ctx context.Context) (err error) {
	defer func() { err = classify(err) }()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, name := range s.sorted(&s.health.leftovers) {
		s.discard(name)
	}
	if err := s.restartErr(); err != nil {
		return err
	}
	if err := s.probeDisk(); err != nil {
		return fmt.Errorf("probe disk: %w", err)
	}
	for _, dir := range s.sorted(&s.health.unsyncedDirs) {
		if err := s.noteSyncError(s.FS.SyncDir(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
		s.health.mu.Lock()
		delete(s.health.unsyncedDirs, dir)
		s.health.mu.Unlock()
	}
	return nil
}

func (s *Store) sorted(set *map[string]bool) []string {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return slices.Sorted(maps.Keys(*set))
}

// probeDisk writes and removes one file in run/.
func (s *Store) probeDisk() error {
	dir := s.Layout.Run()
	f, temp, err := s.writeTemp(dir, make([]byte, 4096), 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(f.Sync(), f.Close())
	if err == nil {
		name := filepath.Join(dir, "probe")
		if err = s.FS.Rename(temp, name); err == nil {
			temp = name
			err = s.FS.SyncDir(dir)
		}
	}
	s.discard(temp)
	return err
}

// inodesPerRun is how many files one run may create: claims, record, response, temporary
// files, and a segment of the log.
const inodesPerRun = 8

// reservation is the space that is reserved for running actions.
type reservation struct {
	mu    sync.Mutex
	bytes uint64
	runs  uint64
}

// Reserve reserves disk space. Other programs can still use it up. The error is
// store.ErrNoSpace when free space minus reserved space is less than bytes.
func (s *Store) Reserve(ctx context.Context, bytes int64) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	want := uint64(max(bytes, 0))
	r := &s.reserved
	r.mu.Lock()
	defer r.mu.Unlock()
	free, inodes, err := s.FS.Free(s.Layout.Home)
	switch {
	case err != nil:
		return nil, fmt.Errorf("check free space: %w", classify(err))
	case free < r.bytes+want:
		return nil, fmt.Errorf("%w: %d KiB free, %d needed", store.ErrNoSpace, free>>10, (r.bytes+want)>>10)
	case inodes < (r.runs+1)*inodesPerRun:
		return nil, fmt.Errorf("%w: %d inodes free, %d needed", store.ErrNoSpace, inodes, (r.runs+1)*inodesPerRun)
	}
	r.bytes += want
	r.runs++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bytes -= want
		r.runs--
	}), nil
}
