package crashfs

import (
	"errors"
	"io"
	"io/fs"
)

// OpenedFS is ipc.OpenedFS.
type OpenedFS = interface {
	io.Closer
	Sync() error
}

// OpenFS returns the disk, for SyncFS with this name.
func (p *Proc) OpenFS(name string) (OpenedFS, error) {
	err := p.locked(func(d *Disk) error {
		_, err := d.existing(name)
		return err
	})
	return openedFS{p, name}, pathError("open", name, err)
}

type openedFS struct {
	proc *Proc
	name string
}

// Sync is SyncFS.
func (o openedFS) Sync() error { return o.proc.SyncFS(o.name) }

// Close does nothing.
func (o openedFS) Close() error { return nil }

// Locked reports whether a process holds the lock of TryLock.
func (p *Proc) Locked(name string) (held bool, err error) {
	err = p.locked(func(d *Disk) error {
		at, err := d.existing(name)
		held = err == nil && d.locks[at.ino] != nil
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return held, pathError("look", name, err)
}
