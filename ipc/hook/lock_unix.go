//go:build unix

package hook

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock reports whether this process has the file alone. The end of the process ends that.
func lock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
