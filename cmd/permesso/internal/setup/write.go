package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/permesso-dev/permesso/ipc"
)

// createFile creates a file that only its owner can read, durably. If it exists, the
// error wraps fs.ErrExist.
func createFile(name, text string, owner account) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := fill(f, text, 0o600, owner); err != nil {
		return err
	}
	if err := ipc.OS().SyncDir(filepath.Dir(name)); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// writeBeside writes a file beside name, which it may replace by a rename: no process
// reads half of it, and a symbolic link is not followed.
func writeBeside(name, text string, mode fs.FileMode, owner account) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".permesso-*")
	if err != nil {
		return "", err
	}
	return f.Name(), fill(f, text, mode, owner)
}

// fill writes a new file durably. If that fails, it removes the file.
func fill(f *os.File, text string, mode fs.FileMode, owner account) (err error) {
	if owner != ourselves() {
		err = f.Chown(owner.uid, owner.gid)
	}
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
