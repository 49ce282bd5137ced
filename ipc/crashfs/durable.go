package crashfs

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Rename moves a file over whatever file has the new name. Like os.Rename it
// refuses to replace a folder.
func (p *Proc) Rename(oldname, newname string) error {
	return p.rename("rename", oldname, newname, true)
}

// RenameNoReplace moves a file; its error is fs.ErrExist when the new name is
// taken.
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
		if err := d.mayMove(from, to, replace); err != nil {
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

// mayMove makes the checks of a rename in the kernel's order.
func (d *Disk) mayMove(from, to place, replace bool) error {
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

// within reports whether folder is top or lies below it.
func (d *Disk) within(folder, top ino) bool {
	if folder == top {
		return true
	}
	for _, e := range d.nodes[top].entries {
		if d.nodes[e.ino].dir && d.within(folder, e.ino) {
			return true
		}
	}
	return false
}

func (d *Disk) move(from, to place) {
	gone, there := entry{name: from.name}, entry{name: to.name, ino: from.ino}
	switch {
	case from.ino == to.ino:
		// POSIX: renaming a file to itself does nothing.
	case from.folder == to.folder:
		d.edit(from.folder, gone, there)
	default:
		d.edit(to.folder, there)
		d.edit(from.folder, gone)
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
			d.poison(at.ino)
		case injected == nil:
			d.syncDir(at.ino)
		}
		return injected
	})
	return pathError("syncdir", name, err)
}

// notOpened says that the kernel gives an error already to whoever opens what is
// to be synced.
func notOpened(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EACCES, syscall.EPERM, syscall.ENOENT, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func (d *Disk) syncDir(i ino) {
	if !d.IgnoreSyncDir && d.nodes[i].unsynced() {
		d.own(i).sync()
	}
}

// SyncFS makes the whole disk durable; the name must exist on it.
func (p *Proc) SyncFS(name string) error {
	injected := p.announce(Op{Kind: OpSyncFS, Path: name})
	err := p.locked(func(d *Disk) error {
		if injected != nil {
			if !notOpened(injected) {
				d.poisonAll()
			}
			return injected
		}
		_, err := d.existing(name)
		if err == nil && !d.IgnoreSyncFS {
			d.syncAll()
		}
		return err
	})
	return pathError("syncfs", name, err)
}

// lock is one holder's hold on a file; closing it lets go.
type lock struct {
	proc *Proc
	ino  ino
}

// TryLock takes the exclusive lock on a file, which it creates if need be, as
// open and flock do. Its error is [ErrLocked] while anybody, the same process
// too, holds it.
func (p *Proc) TryLock(name string) (io.Closer, error) {
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

// Close lets go of the lock; a second Close does nothing.
func (l *lock) Close() error {
	return l.proc.locked(func(d *Disk) error {
		if d.locks[l.ino] == l {
			delete(d.locks, l.ino)
		}
		return nil
	})
}
