package ipc

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// renameNoReplace is renameat2(RENAME_NOREPLACE). NFS and 9p return EINVAL for the flag,
// old kernels ENOSYS: then link and unlink.
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

// Free implements FS. File systems without an inode table have no limit.
func (osFS) Free(name string) (bytes, inodes uint64, err error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(name, &st) }); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: name, Err: err}
	}
	bytes, inodes = math.MaxUint64, math.MaxUint64
	if st.Blocks > 0 {
		bytes = st.Bavail * uint64(st.Bsize)
	}
	if st.Files > 0 {
		inodes = st.Ffree
	}
	return bytes, inodes, nil
}

func syncFS(fd int) error {
	return retryEINTR(func() error { return unix.Syncfs(fd) })
}
