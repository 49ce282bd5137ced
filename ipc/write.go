package ipc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// Create implements store.Store. The functions in alongside run as soon as the file's data is
// durable: files that they write share the sync of the folder.
func (s *Store) Create(ctx context.Context, d approval.Doc, k approval.Key, b []byte, mode store.Mode, alongside ...func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !ValidWorkspace(k.Workspace) || !approval.ValidName(k.ID) {
		return fmt.Errorf("create %s of %s: invalid key", d, k)
	}
	wait, attempts := inParallel(nil), createAttempts
	if len(alongside) > 0 {
		attempts = 1
	}
	err := retrySwept(attempts, func() error {
		return s.create(d, k, b, mode, func() { wait = inParallel(alongside) })
	})
	return errors.Join(classify(err), wait())
}

// retrySwept repeats a write whose temporary file was removed: a starting daemon sweeps
// temporary names, also those of other processes.
func retrySwept(attempts int, write func() error) (err error) {
	for range attempts {
		if err = write(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// inParallel starts functions. The returned function waits for all.
func inParallel(functions []func() error) (wait func() error) {
	errs := make([]error, len(functions))
	var wg sync.WaitGroup
	for i, f := range functions {
		wg.Go(func() { errs[i] = f() })
	}
	return func() error {
		wg.Wait()
		return errors.Join(errs...)
	}
}

// create calls written when the file's data is durable.
func (s *Store) create(d approval.Doc, k approval.Key, b []byte, mode store.Mode, written func()) error {
	dir, name := s.dir(d, k.Workspace), s.path(d, k)
	if d == approval.DocPending {
		s.unsyncedPendings.Store(k, true)
		defer s.unsyncedPendings.Delete(k)
	}
	// After a failed sync nothing new begins. A record is written all the same: the
	// restart that must follow may find it.
	if mode == store.Durable && d != approval.DocRecord && s.restartErr() != nil {
		return fmt.Errorf("create %s: %w", d, store.ErrRestart)
	}
	if err := s.put(name, b, mode, written); err != nil {
		return fmt.Errorf("create %s: %w", d, err)
	}
	if mode == store.Volatile {
		return nil
	}
	err := s.syncDir(dir)
	if err != nil && d == approval.DocPending && mode == store.Durable {
		// A power cut could remove this pending, so it must not be decided. Its request
		// still exists.
		s.discard(name)
	}
	return err
}

// put writes a file under a temporary name, and renames it when its data is durable; the
// data of a Volatile one need not be. It calls written before the rename.
func (s *Store) put(name string, b []byte, mode store.Mode, written func()) error {
	f, temp, err := s.writeTemp(filepath.Dir(name), b, 0o600)
	if err != nil {
		return err
	}
	if mode != store.Volatile {
		err = s.syncs.file(f, s.syncAll)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		written()
		rename := s.FS.RenameNoReplace
		if mode == store.Replace {
			rename = s.FS.Rename
		}
		err = rename(temp, name)
	}
	if err != nil {
		s.discard(temp)
	}
	return err
}

// save writes a file that is no document, durably.
func (s *Store) save(name string, b []byte, mode store.Mode) error {
	err := retrySwept(createAttempts, func() error { return s.put(name, b, mode, func() {}) })
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	return s.syncDir(filepath.Dir(name))
}

// writeTemp writes b under an unguessable name.
func (s *Store) writeTemp(dir string, b []byte, mode fs.FileMode) (afero.File, string, error) {
	temp := filepath.Join(dir, tempPrefix+randomHex())
	f, err := s.FS.OpenFile(temp, writeNew, mode)
	if err != nil {
		return nil, "", err
	}
	n, err := f.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err == nil && mode != 0o600 {
		err = s.FS.Chmod(temp, mode) // independent of the umask
	}
	if err != nil {
		_ = f.Close()
		s.discard(temp)
		return nil, "", err
	}
	return f, temp, nil
}

func randomHex() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails: see crypto/rand
	return hex.EncodeToString(random[:])
}
