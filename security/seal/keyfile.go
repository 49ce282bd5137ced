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

// FS is the file system that the key lies on.
type FS interface {
	afero.Fs
	// RenameNoReplace fails with fs.ErrExist where the new name exists.
	RenameNoReplace(oldname, newname string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
}

// keyFile is the key's name in the folder of keys: 32 random bytes, mode 0600.
const keyFile = "mac.key"

// Load reads the key from dir, the folder of keys. Where there is none the
// error is fs.ErrNotExist. A key that others can read, or that is no key, is
// refused: the error then holds a hint on a line of its own.
func Load(fsys FS, dir string) (*Key, error) {
	key, err := load(fsys, filepath.Join(dir, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("load MAC key: %w\nhint: permesso init makes one", err)
	}
	if err != nil {
		return nil, fmt.Errorf("load MAC key: %w", err)
	}
	return key, nil
}

// LoadOrCreate is Load, and makes a new key where there is none. When it
// returns the key is durable. Processes that create one at the same time get
// the same.
func LoadOrCreate(fsys FS, dir string) (*Key, error) {
	path := filepath.Join(dir, keyFile)
	_, err := lstat(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		secret := make([]byte, KeySize)
		rand.Read(secret) // never fails: crypto/rand
		err = create(fsys, path, secret)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // somebody was faster: his counts
		return nil, fmt.Errorf("create MAC key: %w", err)
	}
	// Whoever created it may have died before this: what we seal must not
	// outlive the key in a power cut.
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
		return nil, fmt.Errorf("%s is no regular file\nhint: put the key itself there, not a link", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others may read %s (mode %04o)\nhint: chmod 600 it; if somebody may have read it, "+
			"move it away: what it sealed is then no longer believed", path, info.Mode().Perm())
	case info.Size() != KeySize:
		return nil, fmt.Errorf("%s has %d bytes instead of %d\nhint: restore it from a backup, or move it away: "+
			"what it sealed is then no longer believed", path, info.Size(), KeySize)
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

// create writes a file that appears whole or not at all, and whose content is
// durable before its name is there. The name is not yet durable.
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

// lstat looks at a name without following a link, where the file system can.
func lstat(fsys FS, name string) (fs.FileInfo, error) {
	if l, ok := fsys.(afero.Lstater); ok {
		info, _, err := l.LstatIfPossible(name)
		return info, err
	}
	return fsys.Stat(name)
}
