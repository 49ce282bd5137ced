// Package wholefile writes files that are there whole or not at all, and locks files between processes. It is for what is
// kept outside of a HOME, as by agents' programs: a HOME has its journal.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Create makes a file for this user alone. It is durable. If there is one, the error wraps fs.ErrExist.
func Create(name string, text []byte) error {
	temp, err := write(name, text, 0o600, (*os.File).Sync)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	if err := os.Link(temp, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// Replace makes a file, or puts it in the place of another one. It is durable.
func Replace(name string, text []byte, mode fs.FileMode) error {
	if err := put(name, text, mode, (*os.File).Sync); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// Put is Replace for a file for this user alone that a power cut may take away.
func Put(name string, text []byte) error {
	return put(name, text, 0o600, func(*os.File) error { return nil })
}

func put(name string, text []byte, mode fs.FileMode, sync func(*os.File) error) error {
	temp, err := write(name, text, mode, sync)
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}

// write writes a file under another name.
func write(name string, text []byte, mode fs.FileMode, sync func(*os.File) error) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // 0600
	if err != nil {
		return "", err
	}
	if mode != 0o600 {
		err = f.Chmod(mode)
	}
	if err == nil {
		_, err = f.Write(text)
	}
	if err = errors.Join(err, sync(f), f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// ErrLocked says that another one has locked a file.
var ErrLocked = errors.New("another program has locked the file")
