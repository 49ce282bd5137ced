package ipc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What is wrong with a name in a hostile folder. The agent sees these texts: they say
// what is wrong and what to do instead. Any other error is ours, or fs.ErrPermission: the
// agent's file is not readable for us.
var (
	errNotRegular = errors.New("not a regular file: write a plain file")
	errLinked     = errors.New("the file has more than one hard link: write a new file instead")
	errTooLarge   = errors.New("the file is too large")
	errSymlink    = errors.New("a symbolic link: write the file itself")
	errName       = errors.New("not a plain file name of at most 255 bytes")
	// errBusy: the file changed while it was read, or is leased. It is not a document
	// yet; another read may succeed.
	errBusy = errors.New("the file is being changed: write it under another name, then rename it")
	// errGone is fs.ErrNotExist too.
	errGone = fmt.Errorf("the file is gone: %w", fs.ErrNotExist)
)

// hostile is an open folder that an untrusted agent writes to. It reads single files of
// it. It is safe for concurrent use.
type hostile struct {
	dir       string
	folder    *os.File // O_PATH where the system has it
	id        inode
	note      string
	noOpenat2 bool   // without openat2: use openat
	proc      string // folder of links to open descriptors

	onStep func(step string) // tests replace the file at these steps
}

// inode identifies a file. Another file cannot get it while the file is held open.
type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode {
	return inode{uint64(st.Dev), st.Ino} // Dev is an int32 on some systems
}

// openHostile opens a folder, which may be a mount point but not a link. The elements of
// dir above the last are trusted.
func openHostile(dir string) (*hostile, error) {
	fd, err := openPath(dir, folderFlags, 0)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", dir, err)
	}
	h := &hostile{dir: dir, folder: os.NewFile(uintptr(fd), dir)}
	err = h.withFolder(func(dir int) error {
		st, err := fstat(dir)
		if err != nil {
			return err
		}
		h.id = inodeOf(&st)
		return h.probe(dir)
	})
	if err != nil {
		h.folder.Close()
		return nil, fmt.Errorf("open folder %s: %w", dir, err)
	}
	return h, nil
}

// step lets tests act as the agent at this point.
func (h *hostile) step(step string) {
	if h.onStep != nil {
		h.onStep(step)
	}
}

// Warning is empty, or says why this must not be used on untrusted folders.
func (h *hostile) Warning() string { return h.note }

// Close closes the folder. Calls in progress finish; later ones fail.
func (h *hostile) Close() error { return h.folder.Close() }

// Stale reports whether the folder's name no longer leads to this folder, because it was
// deleted, replaced or mounted over: open it again.
func (h *hostile) Stale() bool {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Lstat(h.dir, &st) })
	return err != nil || inodeOf(&st) != h.id
}

// Read returns the content of a file of at most limit bytes. It never blocks, whatever
// the file is. Its error wraps one of the errors above.
func (h *hostile) Read(name string, limit int64) ([]byte, error) {
	limit = min(limit, math.MaxInt64-1)
	var data []byte
	err := h.withName(name, func(dir int) error {
		fd, before, err := h.openFile(dir, name, limit)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if data, err = readLimited(descriptor(fd), limit); err != nil {
			return err
		}
		return checkUnchanged(fd, &before, int64(len(data)), limit)
	})
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", shorten(name), err)
	}
	return data, nil
}

// readLimited reads at most limit+1 bytes.
func readLimited(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = tooLarge(int64(len(data)), limit)
	}
	return data, err
}

// checkStat refuses everything but a small regular file with one link.
func checkStat(st *unix.Stat_t, limit int64) error {
	switch uint32(st.Mode) & unix.S_IFMT { // Mode is a uint16 on some systems
	case unix.S_IFREG:
	case unix.S_IFLNK:
		return errSymlink
	default:
		return errNotRegular
	}
	switch {
	case st.Nlink == 0:
		return errGone
	case st.Nlink > 1:
		return errLinked
	case st.Size > limit:
		return tooLarge(st.Size, limit)
	}
	return nil
}

func tooLarge(size, limit int64) error {
	return fmt.Errorf("%w: %d bytes or more, at most %d allowed", errTooLarge, size, limit)
}

// checkUnchanged checks a file after n bytes of it were read: if it was written to
// meanwhile, the bytes may mix two documents.
func checkUnchanged(fd int, before *unix.Stat_t, n, limit int64) error {
	after, err := fstat(fd)
	if err != nil {
		return err
	}
	if err := checkStat(&after, limit); err != nil {
		return err
	}
	if after.Size != n || after.Mtim != before.Mtim {
		return errBusy
	}
	return nil
}

// Names lists at most limit names, unordered, and reports whether there are more. It
// reads no more than that. A name can be any bytes but NUL and slash.
func (h *hostile) Names(limit int) (names []string, more bool, err error) {
	limit = max(0, min(limit, math.MaxInt-1)) // Readdirnames(0) would read them all
	err = h.withFolder(func(dir int) error {
		// A listing has a position, so each uses its own open folder.
		fd, err := h.openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), h.dir)
		defer f.Close()
		names, err = f.Readdirnames(limit + 1)
		return err
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("list %s: %w", h.dir, agentError(err))
	}
	if len(names) > limit {
		return names[:limit], true, nil
	}
	return names, false, nil
}

// Stat reports whether the name exists, as a file of any type.
func (h *hostile) Stat(name string) (exists bool, err error) {
	err = h.withName(name, func(dir int) error {
		return retryEINTR(func() error {
			var st unix.Stat_t
			return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		})
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, errGone):
		return false, nil
	}
	return false, fmt.Errorf("stat %q: %w", shorten(name), err)
}

// Remove removes a file, a link (not its target), or an empty folder. A folder that is
// not empty stays, with errNotRegular: an agent could make it arbitrarily deep. The error
// is errGone if there is no such name.
func (h *hostile) Remove(name string) error {
	err := h.withName(name, func(dir int) error {
		err := unlinkat(dir, name, 0)
		// For a folder Linux returns EISDIR, POSIX EPERM.
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
			if asFolder := unlinkat(dir, name, unix.AT_REMOVEDIR); !errors.Is(asFolder, unix.ENOTDIR) {
				return asFolder
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove %q: %w", shorten(name), err)
	}
	return nil
}

// SetAside renames what Remove could not remove, so that its name begins with a dot and
// is not read as a request.
func (h *hostile) SetAside(name string) error {
	err := h.withName(name, func(dir int) error {
		return retryEINTR(func() error { return unix.Renameat(dir, name, dir, asidePrefix+randomHex()) })
	})
	if err != nil {
		return fmt.Errorf("set %q aside: %w", shorten(name), err)
	}
	return nil
}

const asidePrefix = ".refused-"

func unlinkat(dir int, name string, flags int) error {
	return retryEINTR(func() error { return unix.Unlinkat(dir, name, flags) })
}

// withName calls f with the folder's descriptor if name is plain.
func (h *hostile) withName(name string, f func(dir int) error) error {
	if !plainName(name) {
		return errName
	}
	return agentError(h.withFolder(f))
}

// withFolder keeps the descriptor open while f uses it: after Close its number could
// become another file's.
func (h *hostile) withFolder(f func(dir int) error) error {
	conn, err := h.folder.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// plainName reports whether name can only be an entry of the folder itself.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
}

// shorten limits a name for logs.
func shorten(name string) string {
	if len(name) > 255 {
		return name[:255] + "..."
	}
	return name
}

// agentError turns an error of the kernel into one for the agent.
func agentError(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.ENOENT:
		return errGone
	case unix.ELOOP:
		return errSymlink
	case unix.ENAMETOOLONG: // some file systems take fewer than 255 bytes
		return errName
	case unix.EAGAIN: // another process holds a lease
		return errBusy
	case unix.EXDEV, unix.ENXIO, unix.ENOTEMPTY, unix.EEXIST: // mounted over; a socket; a folder that is not empty
		return errNotRegular
	}
	return err
}

func fstat(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstat(fd, &st) })
	return st, err
}

// descriptor reads an open file without the runtime's poller.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	var n int
	err := retryEINTR(func() (err error) {
		n, err = unix.Read(int(d), p)
		return err
	})
	if err != nil {
		return 0, err
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}
