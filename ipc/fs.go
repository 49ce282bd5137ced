package ipc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/spf13/afero"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval/store"
)

// FS is afero.Fs plus the operations for durable files. Names are paths, as for afero.Fs.
type FS interface {
	afero.Fs
	afero.Lstater

	// RenameNoReplace renames a file, atomically, to a name that does not exist. If it
	// exists, the error is fs.ErrExist and the old name stays.
	RenameNoReplace(oldname, newname string) error

	// SyncDir makes the entries of a folder durable: fsync of the folder.
	SyncDir(name string) error

	// Datasync makes the bytes of a file that it opened durable, and not its times.
	Datasync(f afero.File) error

	// OpenFS opens the file system that holds name, a file or folder. The kernel reports
	// a failed write to an OpenedFS that was open when it happened, and to no later one.
	OpenFS(name string) (OpenedFS, error)

	// TryLock takes the lock file name for this process, creating it with mode 0600. It
	// never waits: the error is store.ErrLocked when the lock is held. The lock lasts until
	// Close or the end of the process. The caller must keep the Closer for as long.
	TryLock(name string) (Lock, error)

	// Locked reports whether a process holds the lock of TryLock. It creates nothing, and
	// others who look meanwhile see the same.
	Locked(name string) (bool, error)

	// ReadFile does the same as Open, Stat, Read and Close, with fewer system calls. It
	// fails for more than limit bytes.
	ReadFile(name string, limit int64) ([]byte, error)

	// Free returns the free bytes and inodes of the file system that holds name. Without
	// a limit it is math.MaxUint64.
	Free(name string) (bytes, inodes uint64, err error)
}

// OpenedFS is one open file system.
type OpenedFS = interface {
	io.Closer
	// Sync makes everything durable that was written to the file system.
	Sync() error
}

// Lock is a lock that is held until Close.
type Lock = interface {
	io.Closer
	// Held reports whether the name still leads to the locked file. If the file, or a
	// folder above it, was removed or replaced, the lock excludes no other process.
	Held() bool
}

// OS returns the real file system. It does not follow symbolic links (ELOOP) in the last
// element of a name. Child processes do not inherit its open files.
func OS() FS { return osFS{} }

type osFS struct{ afero.OsFs }

func (osFS) Create(name string) (afero.File, error) {
	return openNoFollow(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

func (osFS) Open(name string) (afero.File, error) {
	return openNoFollow(name, os.O_RDONLY, 0)
}

func (osFS) OpenFile(name string, flag int, perm os.FileMode) (afero.File, error) {
	return openNoFollow(name, flag, perm)
}

// ReadFile implements FS. The error wraps errTooLarge for more than limit bytes.
func (osFS) ReadFile(name string, limit int64) (b []byte, err error) {
	failed := func(op string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }
	fd, err := openPath(name, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, failed("open", err)
	}
	defer unix.Close(fd)
	st, err := fstat(fd)
	if err != nil {
		return nil, failed("stat", err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, failed("read", errNotRegular)
	case st.Size > limit:
		return nil, failed("read", errTooLarge)
	}
	b = make([]byte, st.Size)
	n, err := io.ReadFull(descriptor(fd), b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) { // the file has shrunk
		return nil, failed("read", err)
	}
	return b[:n], nil
}

// openNoFollow opens without the runtime's poller, which costs five system calls a file and
// refuses files of a disk.
func openNoFollow(name string, flag int, perm os.FileMode) (afero.File, error) {
	fd, err := openPath(name, flag|unix.O_NOFOLLOW, perm)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Rename replaces newname. Package os looks first whether that is a folder; the kernel does, too.
func (osFS) Rename(oldname, newname string) error {
	if err := retryEINTR(func() error { return unix.Rename(oldname, newname) }); err != nil {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	return nil
}

func (osFS) RenameNoReplace(oldname, newname string) error {
	return renameNoReplace(oldname, newname)
}

func (osFS) SyncDir(name string) error {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// OpenFS implements FS.
func (osFS) OpenFS(name string) (OpenedFS, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open file system: %w", err)
	}
	return openedFS{f}, nil
}

type openedFS struct{ f *os.File }

// Sync implements OpenedFS.
func (o openedFS) Sync() error {
	if err := syncFS(int(o.f.Fd())); err != nil {
		return fmt.Errorf("sync file system of %s: %w", o.f.Name(), err)
	}
	return nil
}

// Close implements OpenedFS.
func (o openedFS) Close() error { return o.f.Close() }

// linkRename is renameNoReplace for systems and file systems without it. The new name
// appears atomically and only once, because link never replaces a file. After a crash in
// between, the old name is left for the sweep of temporary names.
func linkRename(oldname, newname string) error {
	if err := os.Link(oldname, newname); err != nil {
		return err
	}
	return os.Remove(oldname)
}

func (osFS) TryLock(name string) (Lock, error) {
	// A lock on a removed file excludes no other process, so check that the name still
	// leads to the locked file. permesso never removes lock files: a few attempts
	// suffice.
	for range 10 {
		f, err := flock(name, os.O_RDWR|os.O_CREATE, unix.LOCK_EX)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if sameFile(f, name) {
			return fileLock{f, name}, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("lock %s: %w: the lock file is replaced repeatedly", name, store.ErrLocked)
}

// Locked takes a shared lock for a moment: two processes that look do not take one another
// for the holder.
func (osFS) Locked(name string) (bool, error) {
	f, err := flock(name, os.O_RDONLY, unix.LOCK_SH)
	switch {
	case errors.Is(err, store.ErrLocked):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at lock %s: %w", name, err)
	}
	return false, fileLock{f, name}.Close()
}

func flock(name string, open, lock int) (*os.File, error) {
	f, err := os.OpenFile(name, open|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = retryEINTR(func() error { return unix.Flock(int(f.Fd()), lock|unix.LOCK_NB) })
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, store.ErrLocked
	}
	return nil, err
}

func sameFile(f *os.File, name string) bool {
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	theirs, err := os.Lstat(name)
	return err == nil && os.SameFile(ours, theirs)
}

type fileLock struct {
	f    *os.File
	name string
}

// Held implements Lock.
func (l fileLock) Held() bool { return sameFile(l.f, l.name) }

// Close unlocks before it closes: a child between fork and exec has a copy of the open
// file, and with it the lock, until its exec.
func (l fileLock) Close() error {
	err := retryEINTR(func() error { return unix.Flock(int(l.f.Fd()), unix.LOCK_UN) })
	if closed := l.f.Close(); closed != nil {
		return closed // a second Close returns os.ErrClosed, not EBADF
	}
	return err
}

// openPath opens a path without the runtime's poller.
func openPath(name string, flags int, perm os.FileMode) (fd int, err error) {
	err = retryEINTR(func() error {
		fd, err = unix.Open(name, flags|unix.O_CLOEXEC, uint32(perm.Perm()))
		return err
	})
	return fd, err
}

func retryEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// namesIn lists a folder; a missing one is empty.
func namesIn(fsys FS, dir string) ([]string, error) {
	f, err := fsys.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// lstat does not follow a link.
func lstat(fsys afero.Lstater, name string) (fs.FileInfo, error) {
	info, _, err := fsys.LstatIfPossible(name)
	return info, err
}
