//go:build !linux

package ipc

import (
	"math"
	"syscall"
	"time"

	"github.com/spf13/afero"
	"golang.org/x/sys/unix"
)

// renameNoReplace links and unlinks. The new name appears atomically, as with renameat2,
// but a crash in between leaves the old name too.
func renameNoReplace(oldname, newname string) error { return linkRename(oldname, newname) }

// syncFS syncs every file system, because syncfs does not exist here.
func syncFS(int) error { return unix.Sync() }

// Datasync implements FS.
func (osFS) Datasync(f afero.File) error { return f.Sync() }

// changeTime is not known.
func changeTime(*syscall.Stat_t) time.Time { return time.Time{} }

func kernelRelease() (release string, ok bool) { return "this system", false }

// Free reports no limit.
func (osFS) Free(string) (bytes, inodes uint64, err error) {
	return math.MaxUint64, math.MaxUint64, nil
}
