package ipc

import (
	"errors"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/spf13/afero"
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

// changeTime is when a file's content or inode was last changed.
func changeTime(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctim.Unix()) }

// kernelRelease is the version of the kernel, such as 6.1.0.
func kernelRelease() (release string, ok bool) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "this kernel", false
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:]), true
}

func syncFS(fd int) error {
	return retryEINTR(func() error { return unix.Syncfs(fd) })
}

// Datasync implements FS.
func (osFS) Datasync(f afero.File) error {
	real, ok := f.(*os.File)
	if !ok {
		return f.Sync()
	}
	return retryEINTR(func() error { return unix.Fdatasync(int(real.Fd())) })
}
