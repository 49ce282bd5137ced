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

// What is wrong with a name in a hostile folder. The texts are for the agent:
// they say what it is and what to do instead. Any other error is ours, or one
// of permission (fs.ErrPermission: the agent's file is not readable for us).
var (
	ErrNotRegular = errors.New("not a regular file: write a plain file")
	ErrLinked     = errors.New("the file has more than one hard link: write a new file instead")
	ErrTooLarge   = errors.New("the file is too large")
	ErrSymlink    = errors.New("a symbolic link: write the file itself")
	ErrName       = errors.New("not a plain file name of at most 255 bytes")
	// ErrBusy: the file changed while it was read, or is leased. Not yet a
	// document; another look may find one.
	ErrBusy = errors.New("the file is being changed: write it under another name, then rename it")
	// ErrGone is fs.ErrNotExist too.
	ErrGone = fmt.Errorf("the file is gone: %w", fs.ErrNotExist)
)

// Hostile holds a folder that somebody we do not trust writes to, and reads
// single files in it. It is safe for concurrent use.
type Hostile struct {
	dir    string
	folder *os.File // O_PATH where the system has it
	id     inode
	note   string
	plain  bool   // no openat2 here: openat
	proc   string // where open files are found by number

	pause func(step string) // tests exchange the file at these points
}

// inode is a file's identity, which can't pass to another file while one of
// them is held open.
type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode {
	return inode{uint64(st.Dev), st.Ino} // Dev is an int32 on some systems
}

// OpenHostile opens a folder, which may be a mount point but no link. The
// elements of dir above the last are trusted.
func OpenHostile(dir string) (*Hostile, error) {
	fd, err := openFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", dir, err)
	}
	h := &Hostile{dir: dir, folder: os.NewFile(uintptr(fd), dir)}
	err = h.use(func(dir int) error {
		st, err := look(dir)
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

// at gives tests a moment to be the agent in.
func (h *Hostile) at(step string) {
	if h.pause != nil {
		h.pause(step)
	}
}

// Note is empty, or says why this must not be used on folders of somebody we do
// not trust: "not for hostile folders: ...".
func (h *Hostile) Note() string { return h.note }

// Close gives the folder up. Calls under way finish; later ones fail.
func (h *Hostile) Close() error { return h.folder.Close() }

// Stale says that the folder's name no longer leads to this folder, because it
// was deleted, replaced or mounted over: open it again.
func (h *Hostile) Stale() bool {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Lstat(h.dir, &st) })
	return err != nil || inodeOf(&st) != h.id
}

// Read returns the content of a file of at most limit bytes. It returns at once
// whatever lies under the name. What is wrong with the file is one of the
// errors above, wrapped.
func (h *Hostile) Read(name string, limit int64) ([]byte, error) {
	limit = min(limit, math.MaxInt64-1)
	var data []byte
	err := h.named(name, func(dir int) error {
		fd, before, err := h.openFile(dir, name, limit)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if data, err = take(descriptor(fd), limit); err != nil {
			return err
		}
		return unchanged(fd, &before, int64(len(data)), limit)
	})
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", shorten(name), err)
	}
	return data, nil
}

// take reads at most limit+1 bytes.
func take(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = tooLarge(int64(len(data)), limit)
	}
	return data, err
}

// judge refuses everything but a small regular file that is nobody else's.
func judge(st *unix.Stat_t, limit int64) error {
	switch uint32(st.Mode) & unix.S_IFMT { // Mode is a uint16 on some systems
	case unix.S_IFREG:
	case unix.S_IFLNK:
		return ErrSymlink
	default:
		return ErrNotRegular
	}
	switch {
	case st.Nlink == 0:
		return ErrGone
	case st.Nlink > 1:
		return ErrLinked
	case st.Size > limit:
		return tooLarge(st.Size, limit)
	}
	return nil
}

func tooLarge(size, limit int64) error {
	return fmt.Errorf("%w: %d bytes or more, at most %d allowed", ErrTooLarge, size, limit)
}

// unchanged looks at a file again after n bytes were read of it: what was
// written to meanwhile may be half one document and half another.
func unchanged(fd int, before *unix.Stat_t, n, limit int64) error {
	after, err := look(fd)
	if err != nil {
		return err
	}
	if err := judge(&after, limit); err != nil {
		return err
	}
	if after.Size != n || after.Mtim != before.Mtim {
		return ErrBusy
	}
	return nil
}

// Names lists at most limit names, in no order, and says whether there are more.
// No more than that is loaded, however many there are. A name is any bytes but
// NUL and slash.
func (h *Hostile) Names(limit int) (names []string, more bool, err error) {
	limit = max(0, min(limit, math.MaxInt-1)) // Readdirnames(0) would load them all
	err = h.use(func(dir int) error {
		// A listing has a position, so each gets an open folder of its own.
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
		return nil, false, fmt.Errorf("list %s: %w", h.dir, explain(err))
	}
	if len(names) > limit {
		return names[:limit], true, nil
	}
	return names, false, nil
}

// Stat says whether the name exists, whatever it is.
func (h *Hostile) Stat(name string) (exists bool, err error) {
	err = h.named(name, func(dir int) error {
		return retryEINTR(func() error {
			var st unix.Stat_t
			return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		})
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrGone):
		return false, nil
	}
	return false, fmt.Errorf("stat %q: %w", shorten(name), err)
}

// Remove removes the name: a file, a link (not where it leads), an empty folder.
// A folder with something in it stays, with ErrNotRegular: an agent could make
// the way down it as long as it likes. The error is ErrGone when there is
// nothing.
func (h *Hostile) Remove(name string) error {
	err := h.named(name, func(dir int) error {
		err := unlinkat(dir, name, 0)
		// Linux says EISDIR of a folder, POSIX EPERM.
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

// SetAside gives what Remove could not remove a name that begins with a dot,
// under which nobody looks for a request.
func (h *Hostile) SetAside(name string) error {
	err := h.named(name, func(dir int) error {
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

// named calls f with the folder's descriptor if name is plain.
func (h *Hostile) named(name string, f func(dir int) error) error {
	if !plainName(name) {
		return ErrName
	}
	return explain(h.use(f))
}

// use keeps Close from giving the descriptor's number to somebody else while f
// works with it.
func (h *Hostile) use(f func(dir int) error) error {
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

// plainName says whether name can only be an entry of the folder itself.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
}

// shorten keeps an overlong name out of logs.
func shorten(name string) string {
	if len(name) > 255 {
		return name[:255] + "..."
	}
	return name
}

// explain turns what the kernel says about a name into what the agent may hear.
func explain(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.ENOENT:
		return ErrGone
	case unix.ELOOP:
		return ErrSymlink
	case unix.ENAMETOOLONG: // some file systems take fewer than 255 bytes
		return ErrName
	case unix.EAGAIN: // somebody holds a lease
		return ErrBusy
	case unix.EXDEV, unix.ENXIO, unix.ENOTEMPTY, unix.EEXIST: // mounted over; a socket; a full folder
		return ErrNotRegular
	}
	return err
}

func look(fd int) (unix.Stat_t, error) {
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
