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
)

// Create implements gate.Store. The functions in alongside run as soon as the file's data is
// durable: files that they write share the sync of the folder.
func (s *Store) Create(ctx context.Context, d approval.Doc, k approval.Key, b []byte, mode approval.WriteMode, alongside ...func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !ValidWorkspace(k.Workspace) || !approval.ValidID(k.ID) {
		return fmt.Errorf("create %s of %s: invalid key", d, k)
	}
	for attempt := 1; ; attempt++ {
		wait := func() error { return nil }
		err := s.create(d, k, b, mode, func() { wait = inParallel(alongside) })
		// A starting daemon sweeps temporary names, and may remove that of another
		// process: then write it again.
		if !errors.Is(err, fs.ErrNotExist) || attempt == createAttempts || len(alongside) > 0 {
			return errors.Join(classify(err), wait())
		}
	}
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
func (s *Store) create(d approval.Doc, k approval.Key, b []byte, mode approval.WriteMode, written func()) error {
	dir, name := s.dir(d, k.Workspace), s.path(d, k)
	if d == approval.DocPending {
		defer s.trackUnsynced(k)()
	}
	// After a failed sync nothing new begins. A record is written all the same: the
	// restart that must follow may find it.
	if mode == approval.Durable && d != approval.DocRecord && s.restartErr() != nil {
		return fmt.Errorf("create %s: %w", d, approval.ErrRestart)
	}
	f, temp, err := s.writeTemp(dir, b, 0o600)
	if err != nil {
		return fmt.Errorf("create %s: %w", d, err)
	}
	if mode != approval.Volatile {
		err = s.syncs.file(f, s.syncAll)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		written()
	}
	if err == nil && mode == approval.Replace {
		err = s.FS.Rename(temp, name)
	} else if err == nil {
		err = s.FS.RenameNoReplace(temp, name)
	}
	if err != nil {
		s.discard(temp)
		return fmt.Errorf("create %s: %w", d, err)
	}
	if mode == approval.Volatile {
		return nil
	}
	err = s.syncDir(dir)
	if err != nil && d == approval.DocPending && mode == approval.Durable {
		// A power cut could remove this pending, so it must not be decided. Its request
		// still exists.
		s.discard(name)
	}
	return err
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
