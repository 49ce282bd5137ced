//go:build !linux

package ipc

import "golang.org/x/sys/unix"

// renameNoReplace links and unlinks. The new name appears atomically, as with renameat2,
// but a crash in between leaves the old name too.
func renameNoReplace(oldname, newname string) error { return linkRename(oldname, newname) }

// syncFS syncs every file system, because syncfs does not exist here.
func syncFS(int) error { return unix.Sync() }
