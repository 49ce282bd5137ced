package crashfs

import (
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
)

// Rename moves a file and replaces any file with the new name. Like os.Rename it does not
// replace a folder.
func (p *Proc) Rename(oldname, newname string) error {
	return p.rename("rename", oldname, newname, true)
}

// RenameNoReplace moves a file; its error is fs.ErrExist when the new name exists.
func (p *Proc) RenameNoReplace(oldname, newname string) error {
	return p.rename("renameat2", oldname, newname, p.disk.ReplaceOnNoReplace)
}

func (p *Proc) rename(verb, oldname, newname string, replace bool) error {
	err := p.do(Op{Kind: OpRename, Path: newname, From: oldname}, func(d *Disk) error {
		from, err := d.resolve(oldname)
		if err != nil {
			return err
		}
		to, err := d.resolve(newname)
		if err != nil {
			return err
		}
		if err := d.checkMove(from, to, replace); err != nil {
			return err
		}
		d.move(from, to)
		return nil
	})
	if err != nil {
		return &os.LinkError{Op: verb, Old: oldname, New: newname, Err: err}
	}
	return nil
}

// checkMove makes the checks of a rename in the kernel's order.
func (d *Disk) checkMove(from, to place, replace bool) error {
	isDir := from.ino != 0 && d.nodes[from.ino].dir
	switch {
	case from.ino == 0:
		return syscall.ENOENT
	case to.ino != 0 && (!replace || d.nodes[to.ino].dir):
		return syscall.EEXIST
	case from.ino == root:
		return syscall.EBUSY
	case isDir && d.within(to.folder, from.ino):
		return syscall.EINVAL
	case isDir && to.ino != 0:
		return syscall.ENOTDIR
	case isDir && to.folder != from.folder:
		// Half of such a move could survive a cut and leave a folder in itself.
		return syscall.EXDEV
	}
	return nil
}

// within reports whether folder is top or is below it.
func (d *Disk) within(folder, top ino) bool {
	below := func(e entry) bool { return d.within(folder, e.ino) }
	return folder == top || slices.ContainsFunc(d.nodes[top].entries, below)
}

func (d *Disk) move(from, to place) {
	removed, added := entry{name: from.name}, entry{name: to.name, ino: from.ino}
	switch {
	case from.ino == to.ino:
		// POSIX: renaming a file to itself does nothing.
	case from.folder == to.folder:
		d.edit(from.folder, removed, added)
	default:
		d.edit(to.folder, added)
		d.edit(from.folder, removed)
	}
}

// SyncDir makes the names in a folder durable.
func (p *Proc) SyncDir(name string) error {
	injected := p.announce(Op{Kind: OpSyncDir, Path: name})
	err := p.locked(func(d *Disk) error {
		at, err := d.existing(name)
		switch {
		case err != nil:
			return err
		case !d.nodes[at.ino].dir:
			return syscall.ENOTDIR
		case injected != nil && !notOpened(injected):
			d.markSyncFailed(at.ino)
		case injected == nil && !d.ignores(Op{Proc: p.name, Kind: OpSyncDir, Path: name}):
			d.syncDir(at.ino)
		}
		return injected
	})
	return pathError("syncdir", name, err)
}

// notOpened reports whether the kernel returns this error when the file or folder to be
// synced is opened.
func notOpened(err error) bool {
	var errno syscall.Errno
	known := []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EACCES, syscall.EPERM, syscall.ENOENT, syscall.ENOMEM}
	return errors.As(err, &errno) && slices.Contains(known, errno)
}

func (d *Disk) syncDir(i ino) {
	if d.nodes[i].unsynced() {
		d.own(i).sync()
	}
}

func (d *Disk) ignores(op Op) bool { return d.Ignore != nil && d.Ignore(op) }

// SyncFS makes the whole disk durable; the name must exist on it.
func (p *Proc) SyncFS(name string) error {
	injected := p.announce(Op{Kind: OpSyncFS, Path: name})
	err := p.locked(func(d *Disk) error {
		if injected != nil {
			if !notOpened(injected) {
				d.markAllSyncFailed()
			}
			return injected
		}
		_, err := d.existing(name)
		if err == nil && !d.ignores(Op{Proc: p.name, Kind: OpSyncFS, Path: name}) {
			d.syncAll()
		}
		return err
	})
	return pathError("syncfs", name, err)
}

// Lock is ipc.Lock.
type Lock = interface {
	io.Closer
	Held() bool
}

// lock is one held lock on a file.
type lock struct {
	proc *Proc
	ino  ino
}

// TryLock takes the exclusive lock on a file, which it creates if needed, as open and
// flock do. Its error is [ErrLocked] while it is held, by the same process too.
func (p *Proc) TryLock(name string) (Lock, error) {
	f, err := p.open(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	l := &lock{proc: p, ino: f.ino}
	err = p.do(Op{Kind: OpLock, Path: name}, func(d *Disk) error {
		if d.locks[l.ino] != nil {
			return ErrLocked
		}
		if d.locks == nil {
			d.locks = map[ino]*lock{}
		}
		d.locks[l.ino] = l
		return nil
	})
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	return l, nil
}

// Held is always true: nothing replaces a lock file here.
func (l *lock) Held() bool { return true }

// Close releases the lock; a second Close does nothing.
func (l *lock) Close() error {
	return l.proc.locked(func(d *Disk) error {
		if d.locks[l.ino] == l {
			delete(d.locks, l.ino)
		}
		return nil
	})
}
