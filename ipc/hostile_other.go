//go:build !linux

package ipc

import "golang.org/x/sys/unix"

const folderFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW

func (h *hostile) probe(int) error {
	h.noOpenat2 = true
	h.note = "not safe for untrusted folders: this system has no openat2, using openat"
	return nil
}

func (h *hostile) openat(dir int, name string, flags int) (fd int, err error) {
	err = retryEINTR(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// openFile opens the file before it checks it, because O_PATH does not exist here. It
// does not block, but opening a device may have an effect on the device.
func (h *hostile) openFile(dir int, name string, limit int64) (fd int, st unix.Stat_t, err error) {
	fd, err = h.openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return -1, st, err
	}
	if st, err = fstat(fd); err == nil {
		err = checkStat(&st, limit)
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}
