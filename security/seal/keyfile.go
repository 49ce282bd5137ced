package seal

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

	"github.com/permesso-dev/permesso/approval"
)

// FS is the file system of the key.
type FS interface {
	afero.Fs
	afero.Lstater
	// RenameNoReplace fails with fs.ErrExist if the new name exists.
	RenameNoReplace(oldname, newname string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
}

// keyFile is the key's file name in the keys folder: 32 random bytes, mode 0600.
const keyFile = "mac.key"

// ErrNoKey says that a folder has no key yet. It comes with fs.ErrNotExist.
var ErrNoKey = errors.New("there is no key")

// Load reads the key from dir, the keys folder. If there is none the error is
// [ErrNoKey]. A key that other users can read, or that is malformed, is
// refused. Errors have a hint, but for [ErrNoKey].
func Load(fsys FS, dir string) (*Key, error) {
	key, err := load(fsys, filepath.Join(dir, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("load MAC key: %w: %w", ErrNoKey, err)
	}
	if err != nil {
		return nil, fmt.Errorf("load MAC key: %w", err)
	}
	return key, nil
}

// LoadOrCreate is Load, and creates a key if there is none. The returned key is
// durable. Concurrent processes get the same key.
func LoadOrCreate(fsys FS, dir string) (*Key, error) {
	path := filepath.Join(dir, keyFile)
	_, err := lstat(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		secret := make([]byte, KeySize)
		rand.Read(secret) // never fails: crypto/rand
		err = create(fsys, path, secret)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // another process was faster: use its key
		return nil, fmt.Errorf("create MAC key: %w", err)
	}
	// The process that created the key may have died before this sync. A sealed
	// document must not survive a power cut that its key does not survive.
	if err := fsys.SyncDir(dir); err != nil {
		return nil, fmt.Errorf("load MAC key: %w", err)
	}
	return Load(fsys, dir)
}

func load(fsys FS, path string) (*Key, error) {
	info, err := lstat(fsys, path)
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, approval.WithHint(fmt.Errorf("%s is not a regular file", path), "replace it by the key itself, not a link")
	case info.Mode().Perm()&0o077 != 0:
		return nil, approval.WithHint(fmt.Errorf("other users can read %s (mode %04o)", path, info.Mode().Perm()),
			"chmod 600 it; if another user may have read it, move it away: documents sealed with it are then refused")
	case info.Size() != KeySize:
		return nil, approval.WithHint(fmt.Errorf("%s has %d bytes instead of %d", path, info.Size(), KeySize),
			"restore it from a backup, or move it away: documents sealed with it are then refused")
	}
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	secret := make([]byte, KeySize)
	if _, err := io.ReadFull(f, secret); err != nil {
		return nil, err
	}
	return NewKey(secret)
}

// create writes a file atomically: its content is durable before its name exists.
// The name is not yet durable.
func create(fsys FS, path string, content []byte) error {
	dir, name := filepath.Split(path)
	temp := filepath.Join(dir, "."+name+"-"+randomHex())
	f, err := fsys.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = fsys.RenameNoReplace(temp, path)
	}
	if err != nil {
		fsys.Remove(temp)
	}
	return err
}

func randomHex() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
}

// lstat does not follow links.
func lstat(fsys FS, name string) (fs.FileInfo, error) {
	info, _, err := fsys.LstatIfPossible(name)
	return info, err
}
