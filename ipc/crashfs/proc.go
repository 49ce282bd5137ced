package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/spf13/afero"
)

// Proc is the disk as one process sees it: an [afero.Fs] with the additional operations
// for durable storage. It is safe for concurrent use.
type Proc struct {
	disk   *Disk
	name   string
	killed bool // guarded by disk.mu
}

var (
	_ afero.Fs      = (*Proc)(nil)
	_ afero.Lstater = (*Proc)(nil)
)

// Kill ends the process: operations in progress take no effect, later ones return
// [ErrKilled], and its locks are released.
func (p *Proc) Kill() {
	d := p.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	p.killed = true
	for i, l := range d.locks {
		if l.proc == p {
			delete(d.locks, i)
		}
	}
}

// Name returns the name of the process.
func (p *Proc) Name() string { return p.name }

// announce counts an operation, calls the hook, and calls Fail.
func (p *Proc) announce(op Op) error {
	d := p.disk
	d.mu.Lock()
	if p.killed {
		d.mu.Unlock()
		return ErrKilled
	}
	hook := d.BeforeRead
	switch {
	case op.Kind.Mutates():
		hook = d.Before
		d.ops++
	case op.Kind == OpChmod:
		hook = nil
	}
	d.counts[op.Kind]++
	op.Proc, op.N = p.name, d.ops
	d.mu.Unlock()

	if hook != nil {
		hook(op)
	}
	if d.Fail != nil {
		return d.Fail(op)
	}
	return nil
}

// do announces an operation and runs its effect with the disk locked.
func (p *Proc) do(op Op, effect func(d *Disk) error) error {
	if err := p.announce(op); err != nil {
		return err
	}
	return p.locked(effect)
}

// locked runs f with the disk locked, unless the process was killed.
func (p *Proc) locked(f func(d *Disk) error) error {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if p.killed {
		return ErrKilled
	}
	return f(p.disk)
}

// Create opens a new or emptied file for reading and writing.
func (p *Proc) Create(name string) (afero.File, error) {
	return p.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// Open opens a file or folder for reading.
func (p *Proc) Open(name string) (afero.File, error) {
	return p.OpenFile(name, os.O_RDONLY, 0)
}

// OpenFile opens a file with os.O_ flags. It is announced as a create, a truncate, or an
// open.
func (p *Proc) OpenFile(name string, flag int, perm os.FileMode) (afero.File, error) {
	f, err := p.open(name, flag, perm)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f, nil
}

// errChanged means that another process changed the file after the announcement, so that
// the operation is now of another kind.
var errChanged = errors.New("changed meanwhile")

func (p *Proc) open(name string, flag int, perm fs.FileMode) (*file, error) {
	for {
		kind := OpOpen
		if flag&(os.O_CREATE|os.O_TRUNC) != 0 { // otherwise it can only be an open
			if err := p.locked(func(d *Disk) error { _, kind, _ = d.openKind(name, flag); return nil }); err != nil {
				return nil, err
			}
		}
		var f *file
		err := p.do(Op{Kind: kind, Path: name}, func(d *Disk) error {
			at, now, err := d.openKind(name, flag)
			if now != kind {
				return errChanged
			}
			if err == nil {
				f, err = p.opened(at, name, flag, perm)
			}
			return err
		})
		if !errors.Is(err, errChanged) {
			return f, err
		}
	}
}

// openKind resolves a name and returns what kind of operation an open would be. An
// exclusive create is a create even if it must fail: it competes for the name.
func (d *Disk) openKind(name string, flag int) (at place, kind Kind, err error) {
	at, err = d.resolve(name)
	create, exclusive := flag&os.O_CREATE != 0, flag&os.O_EXCL != 0
	switch {
	case err != nil:
	case create && (exclusive || at.ino == 0):
		return at, OpCreate, nil
	case at.ino != 0 && flag&os.O_TRUNC != 0 && !d.nodes[at.ino].dir:
		return at, OpTruncate, nil
	}
	return at, OpOpen, err
}

func (p *Proc) opened(at place, name string, flag int, perm fs.FileMode) (*file, error) {
	d := p.disk
	create, writes := flag&os.O_CREATE != 0, flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case at.ino == 0 && !create:
		return nil, syscall.ENOENT
	case at.ino == 0:
		at.ino = d.newNode(false, perm)
		d.edit(at.folder, entry{name: at.name, ino: at.ino})
	case create && flag&os.O_EXCL != 0:
		return nil, syscall.EEXIST
	case d.nodes[at.ino].dir && (create || writes || flag&os.O_TRUNC != 0):
		return nil, syscall.EISDIR
	case flag&os.O_TRUNC != 0:
		d.write(at.ino, nil)
	}
	return &file{proc: p, name: name, base: at.name, ino: at.ino, flag: flag}, nil
}

// write replaces a file's visible data. It owns b from then on.
func (d *Disk) write(i ino, b []byte) {
	n := d.own(i)
	n.data = newBlob(b)
	n.mtime = d.now()
}

// Mkdir makes a folder; its error is fs.ErrExist when the name exists.
func (p *Proc) Mkdir(name string, perm os.FileMode) error {
	err := p.do(Op{Kind: OpMkdir, Path: name}, func(d *Disk) error {
		at, err := d.resolve(name)
		switch {
		case err != nil:
			return err
		case at.ino != 0:
			return syscall.EEXIST
		}
		d.edit(at.folder, entry{name: at.name, ino: d.newNode(true, perm)})
		return nil
	})
	return pathError("mkdir", name, err)
}

// MkdirAll makes a folder and those above it, each as a Mkdir of its own.
func (p *Proc) MkdirAll(name string, perm os.FileMode) error {
	isDir, err := p.isDir(name)
	switch {
	case err == nil && isDir:
		return nil
	case err == nil:
		return pathError("mkdir", name, syscall.ENOTDIR)
	case !errors.Is(err, fs.ErrNotExist):
		return pathError("mkdir", name, err)
	}
	if parent := path.Dir(name); parent != name {
		if err := p.MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	err = p.Mkdir(name, perm)
	if errors.Is(err, fs.ErrExist) {
		// Another process created it first. That is fine if it is a folder.
		if isDir, _ := p.isDir(name); isDir {
			return nil
		}
	}
	return err
}

func (p *Proc) isDir(name string) (isDir bool, err error) {
	err = p.locked(func(d *Disk) error {
		at, err := d.existing(name)
		isDir = err == nil && d.nodes[at.ino].dir
		return err
	})
	return isDir, err
}

// Remove removes a file or an empty folder.
func (p *Proc) Remove(name string) error {
	err := p.do(Op{Kind: OpRemove, Path: name}, func(d *Disk) error {
		at, err := d.existing(name)
		switch {
		case err != nil:
			return err
		case at.ino == root:
			return syscall.EBUSY
		case len(d.nodes[at.ino].entries) > 0:
			return syscall.ENOTEMPTY
		}
		d.edit(at.folder, entry{name: at.name})
		return nil
	})
	return pathError("remove", name, err)
}

// RemoveAll removes a file, or a folder with its content one by one. A missing path is no
// error.
func (p *Proc) RemoveAll(name string) error {
	var children []entry
	err := p.locked(func(d *Disk) error {
		at, err := d.existing(name)
		if err == nil {
			children = d.nodes[at.ino].entries
		}
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return pathError("unlinkat", name, err)
	}
	for _, e := range children {
		if err := p.RemoveAll(path.Join(name, e.name)); err != nil {
			return err
		}
	}
	if err := p.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Stat describes a file or folder.
func (p *Proc) Stat(name string) (os.FileInfo, error) {
	var described info
	err := p.do(Op{Kind: OpStat, Path: name}, func(d *Disk) error {
		at, err := d.existing(name)
		if err == nil {
			described = d.nodes[at.ino].info(at.name)
		}
		return err
	})
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return described, nil
}

// LstatIfPossible is Stat: there are no links here.
func (p *Proc) LstatIfPossible(name string) (os.FileInfo, bool, error) {
	described, err := p.Stat(name)
	return described, true, err
}

// Chmod sets the permission bits. It is durable at once, so no hook is called.
func (p *Proc) Chmod(name string, mode os.FileMode) error {
	const bits = fs.ModePerm | fs.ModeSticky | fs.ModeSetuid | fs.ModeSetgid
	if err := p.announce(Op{Kind: OpChmod, Path: name}); err != nil {
		return pathError("chmod", name, err)
	}
	return p.touch("chmod", name, func(n *node) { n.mode = n.mode&^bits | mode&bits })
}

// Chown only checks that the file exists: there are no owners here.
func (p *Proc) Chown(name string, _, _ int) error {
	return p.touch("chown", name, func(*node) {})
}

// Chtimes sets the modification time. It is durable at once and not announced.
func (p *Proc) Chtimes(name string, _, mtime time.Time) error {
	return p.touch("chtimes", name, func(n *node) { n.mtime = mtime })
}

func (p *Proc) touch(verb, name string, f func(n *node)) error {
	err := p.locked(func(d *Disk) error {
		at, err := d.existing(name)
		if err == nil {
			f(d.own(at.ino))
		}
		return err
	})
	return pathError(verb, name, err)
}

func pathError(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: verb, Path: name, Err: err}
}

// ReadFile reads a whole file.
func (p *Proc) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := p.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, pathError("read", name, errors.New("the file is too large"))
	}
	b := make([]byte, info.Size())
	n, err := io.ReadFull(f, b)
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return b[:n], nil
	}
	return nil, err
}

// Free reports a disk without a limit.
func (p *Proc) Free(string) (bytes, inodes uint64, err error) {
	return math.MaxUint64, math.MaxUint64, nil
}
