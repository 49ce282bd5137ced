package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
)

// CheckReadable says why this user cannot read a home, or a copy of one: it is not there
// (fs.ErrNotExist), is no folder (syscall.ENOTDIR), or belongs to another user
// (fs.ErrPermission).
func CheckReadable(dir string) error {
	for _, name := range []string{dir, ipc.Layout{Home: dir}.Keys()} {
		f, err := os.Open(name)
		if err == nil {
			err = f.Close()
		}
		if errors.Is(err, fs.ErrPermission) {
			return Unreadable(dir)
		}
	}
	switch info, err := os.Stat(dir); {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s: %w", dir, syscall.ENOTDIR)
	}
	return nil
}

// Unreadable is the error about a home, or a copy of one, that this user cannot read.
func Unreadable(dir string) error {
	owner := ""
	if info, err := os.Stat(dir); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			owner = " (UID " + strconv.Itoa(int(st.Uid)) + ")"
		}
	}
	return console.Wrap(console.ExitError, fmt.Errorf("this user cannot read %s: %w", dir, fs.ErrPermission),
		"run it as the daemon's user"+owner+", or as root")
}
