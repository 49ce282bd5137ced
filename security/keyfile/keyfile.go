// Package keyfile reads and creates the files of keys. A key is durable before its
// name exists, and a key that other users could read or replace is refused.
package keyfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/hints"
)

// FS is the file system of the keys.
type FS interface {
	afero.Fs
	afero.Lstater
	// RenameNoReplace fails with fs.ErrExist if the new name exists.
	RenameNoReplace(oldname, newname string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
	// ReadFile fails for a file of more than limit bytes.
	ReadFile(name string, limit int64) ([]byte, error)
}

// ErrNoKey says that a folder has no key yet. It comes with fs.ErrNotExist.
var ErrNoKey = errors.New("there is no key")

// File is one file of keys.
type File struct {
	Path     string
	Mode     fs.FileMode // of a new file
	Refuse   fs.FileMode // permissions with which the file is not read
	Min, Max int64       // its size in bytes
	Protects string      // what is refused without the key: "its signatures"
}

// Read reads the file. If there is none the error is ErrNoKey. A file that is not
// regular, or has one of the permissions in Refuse or another size, is refused with a
// hint.
func (f File) Read(fsys FS) ([]byte, error) {
	info, _, err := fsys.LstatIfPossible(f.Path) // a link is not followed
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return nil, hints.Add(fmt.Errorf("%s is not a regular file", f.Path),
			"replace it by the key itself, not a link")
	case mode.Perm()&f.Refuse != 0:
		return nil, hints.Add(fmt.Errorf("%s is accessible to other users (mode %04o)", f.Path, mode.Perm()),
			fmt.Sprintf("chmod %o it; if another user may have read or changed it, move it away: %s are then refused",
				mode.Perm()&^f.Refuse, f.Protects))
	case info.Size() < f.Min || info.Size() > f.Max:
		return nil, f.Bad(fmt.Errorf("it has %d bytes and is not a key", info.Size()))
	}
	return fsys.ReadFile(f.Path, f.Max)
}

// Bad is the error of a file with a wrong content, with a hint.
func (f File) Bad(err error) error {
	return hints.Add(fmt.Errorf("%s: %w", f.Path, err),
		"restore it from a backup, or move it away: "+f.Protects+" are then refused")
}

// Ensure creates the file if there is none. A file that another process creates is
// accepted.
func (f File) Ensure(fsys FS, newKey func() ([]byte, error)) error {
	_, _, err := fsys.LstatIfPossible(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		var key []byte
		if key, err = newKey(); err == nil {
			err = f.Create(fsys, key)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Create writes a new file atomically: its content is durable before its name exists.
// The name is not yet durable.
func (f File) Create(fsys FS, content []byte) error {
	temp := f.Temp()
	file, err := fsys.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.Mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = fsys.RenameNoReplace(temp, f.Path)
	}
	if err != nil {
		fsys.Remove(temp)
	}
	return err
}

// Temp is a new name beside the file.
func (f File) Temp() string {
	dir, name := filepath.Split(f.Path)
	return filepath.Join(dir, "."+name+"-"+rand.Text())
}
