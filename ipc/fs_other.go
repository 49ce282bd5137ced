//go:build !linux

package ipc

import (
	"math"

	"golang.org/x/sys/unix"
)

// renameNoReplace links and unlinks. The new name appears atomically, as with renameat2,
// but a crash in between leaves the old name too.
func renameNoReplace(oldname, newname string) error { return linkRename(oldname, newname) }

// syncFS syncs every file system, because syncfs does not exist here.
func syncFS(int) error { return unix.Sync() }

// Free reports no limit.
func (osFS) Free(string) (bytes, inodes uint64, err error) {
	return math.MaxUint64, math.MaxUint64, nil
}
