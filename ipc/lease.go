package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Lease implements store.Store: it takes the lock of HOME, removes temporary files and syncs
// the file system. The error wraps ErrLocked while another process has the lock.
func (s *Store) Lease(ctx context.Context) (release func() error, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lock, err := s.FS.TryLock(s.Layout.Lock())
	if err != nil {
		return nil, classify(err)
	}
	if err := errors.Join(s.sweepTemps(), s.emptyRun(), s.FS.SyncFS(s.Layout.Home)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.mu.Lock()
	s.lock = lock
	s.mu.Unlock()
	return func() error {
		s.mu.Lock()
		s.lock = nil
		s.mu.Unlock()
		return lock.Close()
	}, nil
}

// Held reports whether this store has the lease, and HOME is still the folder that Lease
// locked. It is not, if HOME was removed or replaced since.
func (s *Store) Held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock != nil && s.lock.Held()
}

// Leased reports whether some process has the lease.
func (s *Store) Leased() (bool, error) {
	if _, err := lstat(s.FS, s.Layout.Lock()); errors.Is(err, fs.ErrNotExist) {
		return false, nil // TryLock would create it, owned by our user
	}
	lock, err := s.FS.TryLock(s.Layout.Lock())
	if errors.Is(err, ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, classify(err)
	}
	return false, lock.Close()
}

// emptyRun removes the working folders of commands that ran when a daemon was killed.
// Those commands died with it.
func (s *Store) emptyRun() error {
	names, err := s.names(s.Layout.Run())
	for _, name := range names {
		err = errors.Join(err, s.FS.RemoveAll(filepath.Join(s.Layout.Run(), name)))
	}
	return err
}

func (s *Store) sweepTemps() error {
	if err := errors.Join(s.sweep(s.Layout.Grants()), s.sweep(s.Layout.APIKeys()), s.sweepSent()); err != nil {
		return err
	}
	names, err := s.Layout.Workspaces(s.FS)
	if err != nil {
		return err
	}
	for _, ws := range names {
		dirs := []string{
			s.Layout.Pendings(ws), s.Layout.Decisions(ws), s.Layout.Receipts(ws),
			s.Layout.Records(ws), s.Layout.Responses(ws), s.Layout.Errors(ws),
		}
		for _, dir := range dirs {
			if err := s.sweep(dir); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.sweep(s.Layout.Pauses()), s.sweep(s.Layout.EndedPauses()))
}

func (s *Store) sweepSent() error {
	sent := s.Layout.path("sent")
	channels, err := s.names(sent)
	for _, channel := range channels {
		if !ValidWorkspace(channel) {
			continue
		}
		dirs, listErr := s.names(filepath.Join(sent, channel))
		err = errors.Join(err, listErr)
		for _, dir := range dirs {
			err = errors.Join(err, s.sweep(filepath.Join(sent, channel, dir)))
		}
	}
	return err
}

func (s *Store) sweep(dir string) error {
	names, err := s.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, tempPrefix) {
			continue
		}
		// Another process that decides may rename its own temporary file meanwhile.
		if err := s.FS.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep: %w", err)
		}
	}
	return nil
}
