package ipc

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNoReplace is renameat2(RENAME_NOREPLACE). NFS and 9p say EINVAL to the
// flag, old kernels ENOSYS: there we link and unlink.
func renameNoReplace(oldname, newname string) error {
	err := retryEINTR(func() error {
		return unix.Renameat2(unix.AT_FDCWD, oldname, unix.AT_FDCWD, newname, unix.RENAME_NOREPLACE)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return linkRename(oldname, newname)
	}
	return &os.LinkError{Op: "renamenoreplace", Old: oldname, New: newname, Err: err}
}

func syncFS(fd int) error {
	return retryEINTR(func() error { return unix.Syncfs(fd) })
}
