package ipc

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

// Create implements gate.Store.
func (s *Store) Create(d approval.Doc, k approval.Key, b []byte, mode approval.WriteMode) error {
	if !ValidWorkspace(k.Workspace) || !approval.ValidID(k.ID) {
		return fmt.Errorf("create %s of %s: invalid key", d, k)
	}
	for attempt := 1; ; attempt++ {
		err := s.create(d, k, b, mode, nil)
		// A starting daemon sweeps temporary names, and may remove that of another
		// process: then write it again.
		if !errors.Is(err, fs.ErrNotExist) || attempt == createAttempts {
			return err
		}
	}
}

// CreateParallel implements gate.parallelCreator: it is Create, durable, and runs beside
// as soon as the file's data is durable. Files that beside writes share the sync of the
// folder.
func (s *Store) CreateParallel(d approval.Doc, k approval.Key, b []byte, beside func() error) error {
	return s.create(d, k, b, approval.Durable, beside)
}

func (s *Store) create(d approval.Doc, k approval.Key, b []byte, mode approval.WriteMode, beside func() error) error {
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
	besideErr := make(chan error, 1)
	if err == nil && beside != nil {
		go func() { besideErr <- beside() }()
	} else {
		besideErr <- nil
	}
	if err == nil && mode == approval.Replace {
		err = s.FS.Rename(temp, name)
	} else if err == nil {
		err = s.FS.RenameNoReplace(temp, name)
	}
	if err != nil {
		s.discard(temp)
		return errors.Join(fmt.Errorf("create %s: %w", d, err), <-besideErr)
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
	return errors.Join(err, <-besideErr)
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

// Publish implements gate.Store.
func (s *Store) Publish(k approval.Key, b []byte) (sync func() error, err error) {
	f, temp, err := s.writeTemp(s.dir(approval.DocResponse, k.Workspace), b, 0o644)
	if err != nil {
		return nil, err
	}
	return s.publishTemp(k, f, temp)
}
