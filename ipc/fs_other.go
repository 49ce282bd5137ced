//go:build !linux

package ipc

import "golang.org/x/sys/unix"

// renameNoReplace links and unlinks: as atomic for the new name as renameat2,
// but a crash in between leaves the old name beside it.
func renameNoReplace(oldname, newname string) error { return linkRename(oldname, newname) }

// syncFS syncs every file system: there is no syncfs here.
func syncFS(int) error { return unix.Sync() }
