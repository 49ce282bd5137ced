package ipc

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
)

// changedFiles are what a checkpoint syncs one by one, where a sync of the whole file system
// reports no errors.
type changedFiles struct {
	mu    sync.Mutex
	names map[string]bool  // of files; false: it was removed
	sizes map[string]int64 // of the log's files, when they were synced
}

// changed notes a file that was written or removed.
func (s *Store) changed(name string, written bool) {
	if !s.SyncEach {
		return
	}
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	if s.files.names == nil {
		s.files.names = map[string]bool{}
	}
	s.files.names[name] = written
}

// syncChanged makes the changed files durable, the log's files, and all their folders. After
// an error they count as changed still: it may have been too early to open them.
func (s *Store) syncChanged() error {
	s.files.mu.Lock()
	names := s.files.names
	s.files.names = map[string]bool{}
	s.files.mu.Unlock()
	err := s.syncFiles(names)
	if err != nil && names != nil {
		s.files.mu.Lock()
		defer s.files.mu.Unlock()
		maps.Copy(names, s.files.names) // what has changed meanwhile
		s.files.names = names
	}
	return err
}

func (s *Store) syncFiles(names map[string]bool) error {
	folders := map[string]bool{}
	for name, written := range names {
		folders[filepath.Dir(name)] = true
		if written {
			if err := s.syncFile(name); err != nil {
				return err
			}
		}
	}
	if err := s.syncLog(); err != nil {
		return err
	}
	folders[s.Layout.Audit()] = true
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if err := s.FS.SyncDir(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// syncLog syncs the files of the log whose size has changed.
func (s *Store) syncLog() error {
	names, err := s.names(s.Layout.Audit())
	if err != nil {
		return err
	}
	sizes := map[string]int64{}
	for _, name := range names {
		info, err := lstat(s.FS, filepath.Join(s.Layout.Audit(), name))
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		sizes[name] = info.Size()
		if before, ok := s.files.sizes[name]; ok && before == info.Size() {
			continue
		}
		if err := s.syncFile(filepath.Join(s.Layout.Audit(), name)); err != nil {
			return err
		}
	}
	s.files.sizes = sizes
	return nil
}

// syncFile makes a file durable; one that is gone need not be.
func (s *Store) syncFile(name string) error {
	f, err := s.FS.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
