package ipc

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/store"
)

const writeNew = os.O_WRONLY | os.O_CREATE | os.O_EXCL

// save writes a file that no commit restores: unless it is volatile, it is durable by itself.
func (s *Store) save(name string, b []byte, mode store.Mode) error {
	if err := s.put(name, b, mode); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	if mode == store.Volatile {
		return nil
	}
	return s.syncDir(filepath.Dir(name))
}

// put writes a file under a temporary name, makes its data durable unless it is volatile or
// the journal has it, and renames it.
func (s *Store) put(name string, b []byte, mode store.Mode) error {
	return retrySwept(func() error {
		f, temp, err := s.openTemp(filepath.Dir(name), b, 0o600)
		if err != nil {
			return err
		}
		if mode != store.Volatile {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
		before := s.storedAt(name)
		if err == nil {
			rename := s.FS.RenameNoReplace
			if mode == store.Replace {
				rename = s.FS.Rename
			}
			err = rename(temp, name)
		}
		if err != nil {
			s.discard(temp)
			return err
		}
		s.written(name, before, b)
		return nil
	})
}

// replace writes a file whose bytes the journal, or a record, has.
func (s *Store) replace(name string, b []byte, mode fs.FileMode) error {
	temp, err := s.writeTemp(filepath.Dir(name), b, mode)
	if err != nil {
		return err
	}
	before := s.storedAt(name)
	if err := s.FS.Rename(temp, name); err != nil {
		s.discard(temp)
		return err
	}
	s.written(name, before, b)
	return nil
}

// written notes that a file has these bytes, in place of one that took before bytes on the disk.
func (s *Store) written(name string, before int64, b []byte) {
	s.resized(name, before, store.OnDisk(int64(len(b))))
	s.changed(name, true)
}

// retrySwept repeats a write whose temporary file was removed: a starting daemon sweeps
// temporary names, also those of other processes.
func retrySwept(write func() error) (err error) {
	for range createAttempts {
		if err = write(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// writeTemp writes a file under an unguessable name.
func (s *Store) writeTemp(dir string, b []byte, mode fs.FileMode) (string, error) {
	f, temp, err := s.openTemp(dir, b, mode)
	if err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		s.discard(temp)
		return "", err
	}
	return temp, nil
}

func (s *Store) openTemp(dir string, b []byte, mode fs.FileMode) (afero.File, string, error) {
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
