package ipc

import (
	"errors"
	"syscall"

	"github.com/permesso-dev/permesso/approval/store"
)

// explain says plainly that a write failed because the disk is full or read-only. outcome is
// what did not happen, such as "nothing was decided". Other errors stay as they are, and so
// does one after which the write may count: ErrRestart.
func explain(outcome string, err error) error {
	if err == nil || errors.Is(err, store.ErrRestart) {
		return err
	}
	for _, x := range []struct {
		is   error
		what string
	}{
		{syscall.ENOSPC, "no space left on the disk of HOME"},
		{syscall.EDQUOT, "the disk quota of the daemon's user is used up"},
		{syscall.EROFS, "HOME is on a read-only file system"},
	} {
		if errors.Is(err, x.is) {
			return &store.Unwritten{Text: outcome + ": " + x.what, Err: err}
		}
	}
	return err
}
