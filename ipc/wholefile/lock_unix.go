//go:build unix

package wholefile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lock waits until this open file is the only one that has its file locked. The end of the process, and Close, unlock it.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// TryLock locks a file alone, or with others that do not want it alone, and does not wait: the error is ErrLocked if it
// cannot have it now.
func TryLock(f *os.File, alone bool) error {
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	err := flock(f, how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
