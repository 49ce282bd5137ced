package ipc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// resolveFlags keep a name inside the folder and its mount, and refuse every link.
const resolveFlags = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

const folderFlags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW

// probe detects a missing openat2, because the kernel is old (ENOSYS) or a container's
// seccomp profile strict (EPERM), and a missing /proc.
func (h *hostile) probe(dir int) error {
	h.proc = "/proc/self/fd/"
	if _, err := h.nameExists(dir); err != nil {
		h.warn("/proc is not available", err)
	}
	fd, err := h.openat(dir, ".", unix.O_PATH)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		h.noOpenat2 = true
		h.warn("openat2 is not available, using openat", err)
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func (h *hostile) warn(lack string, why error) {
	h.note = fmt.Sprintf("not safe for untrusted folders: %s (%v)", lack, why)
}

// openat opens an entry of the folder, never through a link.
func (h *hostile) openat(dir int, name string, flags int) (fd int, err error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	// The kernel returns EAGAIN if a concurrent rename elsewhere prevented the check.
	for range 8 {
		if h.noOpenat2 {
			fd, err = unix.Openat(dir, name, flags, 0)
		} else {
			fd, err = unix.Openat2(dir, name, &unix.OpenHow{Flags: uint64(flags), Resolve: resolveFlags})
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return fd, err
}

// openFile opens a file for reading once it is known to be harmless, and returns its
// stat.
func (h *hostile) openFile(dir int, name string, limit int64) (fd int, st unix.Stat_t, err error) {
	pathFD, err := h.openat(dir, name, unix.O_PATH)
	if err != nil {
		return -1, st, err
	}
	defer unix.Close(pathFD)
	h.step("opened")
	if st, err = fstat(pathFD); err != nil {
		return -1, st, err
	}
	if err = checkStat(&st, limit); err != nil {
		return -1, st, err
	}
	h.step("counted")
	if err = h.stillLinked(pathFD, dir); err != nil {
		return -1, st, err
	}
	h.step("checked")
	fd, err = h.reopen(pathFD, dir, name)
	if err != nil {
		return -1, st, err
	}
	if err = checkSameFile(fd, &st, limit); err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// stillLinked checks that the one link that was counted is the opened name. An agent may
// put a link to another user's file under the name and remove it between our open and our
// count: the counted link is then the file's own, elsewhere. But the opened name is dead
// from then on, even if the same link comes back. So if it exists after the count, it was
// the counted link.
//
// The kernel lowers the count a moment before it removes the name, and holds the folder's
// lock for both. Listing the folder takes that lock: after a listing, no removal is half
// done.
func (h *hostile) stillLinked(pathFD, dir int) error {
	if err := h.waitForLock(dir); err != nil {
		return err
	}
	alive, err := h.nameExists(pathFD)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil // no /proc: warning has said so
	case err != nil:
		return err
	case !alive:
		return errGone
	}
	return nil
}

func (h *hostile) waitForLock(dir int) error {
	fd, err := h.openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return retryEINTR(func() error {
		_, err := unix.ReadDirent(fd, make([]byte, 4096))
		return err
	})
}

// nameExists asks the kernel whether the name that fd was opened by still exists. A file
// whose name ends in " (deleted)" is refused without need.
func (h *hostile) nameExists(fd int) (bool, error) {
	path := make([]byte, unix.PathMax)
	var n int
	err := retryEINTR(func() (err error) {
		n, err = unix.Readlink(h.proc+strconv.Itoa(fd), path)
		return err
	})
	if err != nil {
		return false, err
	}
	// In a truncated path the suffix would be missing.
	return n < len(path) && !bytes.HasSuffix(path[:n], []byte(" (deleted)")), nil
}

// reopen opens the file of pathFD for reading; by its name only without /proc.
func (h *hostile) reopen(pathFD, dir int, name string) (fd int, err error) {
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err = openPath(h.proc+strconv.Itoa(pathFD), flags, 0)
	if errors.Is(err, unix.ENOENT) {
		return h.openat(dir, name, flags)
	}
	return fd, err
}

// checkSameFile checks that the opened file is the one that was checked by name. A
// changed ctime means that links were added or removed; without /proc there is no other
// check for that.
func checkSameFile(fd int, before *unix.Stat_t, limit int64) error {
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	if err := checkStat(&st, limit); err != nil {
		return err
	}
	if inodeOf(&st) != inodeOf(before) || st.Ctim != before.Ctim {
		return errBusy
	}
	return nil
}
