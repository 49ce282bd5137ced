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
)

// FS is the file system of the key.
type FS interface {
	afero.Fs
	// RenameNoReplace fails with fs.ErrExist if the new name exists.
	RenameNoReplace(oldname, newname string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
}

// keyFile is the key's file name in the keys folder: 32 random bytes, mode 0600.
const keyFile = "mac.key"

// Load reads the key from dir, the keys folder. If there is none the error is
// fs.ErrNotExist. A key that other users can read, or that is malformed, is
// refused. Errors have a hint on a second line.
func Load(fsys FS, dir string) (*Key, error) {
	key, err := load(fsys, filepath.Join(dir, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("load MAC key: %w\nhint: run permesso init to create one", err)
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
		return nil, fmt.Errorf("%s is not a regular file\nhint: replace it by the key itself, not a link", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("other users can read %s (mode %04o)\nhint: chmod 600 it; if another user may have read it, "+
			"move it away: documents sealed with it are then refused", path, info.Mode().Perm())
	case info.Size() != KeySize:
		return nil, fmt.Errorf("%s has %d bytes instead of %d\nhint: restore it from a backup, or move it away: "+
			"documents sealed with it are then refused", path, info.Size(), KeySize)
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

// lstat does not follow links, if the file system supports that.
func lstat(fsys FS, name string) (fs.FileInfo, error) {
	if l, ok := fsys.(afero.Lstater); ok {
		info, _, err := l.LstatIfPossible(name)
		return info, err
	}
	return fsys.Stat(name)
}
