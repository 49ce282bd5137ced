package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/afero"
)

// maxSize is the size beyond which writes fail with EFBIG: a test that needs more has a
// bug, and this disk is in memory.
const maxSize = 1 << 28

// file is one open file or folder. It keeps its node when the name changes. Its fields
// are guarded by the disk's lock.
type file struct {
	proc   *Proc
	name   string // as it was opened
	base   string
	ino    ino
	flag   int
	offset int64
	list   []entry // entries that Readdir has not returned yet
	listed bool
	closed bool
}

var _ afero.File = (*file)(nil)

func (f *file) Name() string { return f.name }

func (f *file) Close() error {
	err := f.proc.locked(func(*Disk) error {
		if f.closed {
			return fs.ErrClosed
		}
		f.closed = true
		return nil
	})
	return pathError("close", f.name, err)
}

// do is Proc.do for an open file: the effect gets the file's node.
func (f *file) do(kind Kind, effect func(d *Disk, n *node) error) error {
	return f.proc.do(Op{Kind: kind, Path: f.name}, func(d *Disk) error {
		return f.use(d, effect)
	})
}

func (f *file) use(d *Disk, effect func(d *Disk, n *node) error) error {
	if f.closed {
		return fs.ErrClosed
	}
	return effect(d, d.nodes[f.ino])
}

func (f *file) writable() bool { return f.flag&(os.O_WRONLY|os.O_RDWR) != 0 }

func (f *file) Read(b []byte) (int, error) {
	read := 0
	err := f.do(OpRead, func(_ *Disk, n *node) (err error) {
		read, err = f.readAt(n, b, f.offset)
		f.offset += int64(read)
		return err
	})
	return read, f.readError("read", err)
}

// ReadAt returns io.EOF with a short read, as io.ReaderAt demands.
func (f *file) ReadAt(b []byte, offset int64) (int, error) {
	// As in os, these two cases do not access the file.
	switch {
	case offset < 0:
		return 0, pathError("readat", f.name, errNegativeOffset)
	case len(b) == 0:
		return 0, nil
	}
	read := 0
	err := f.do(OpRead, func(_ *Disk, n *node) (err error) {
		read, err = f.readAt(n, b, offset)
		if err == nil && read < len(b) {
			err = io.EOF
		}
		return err
	})
	return read, f.readError("read", err)
}

var errNegativeOffset = errors.New("negative offset")

func (f *file) readAt(n *node, b []byte, offset int64) (int, error) {
	switch {
	case len(b) == 0:
		return 0, nil // os does not call the kernel then
	case f.flag&os.O_WRONLY != 0:
		return 0, syscall.EBADF
	case n.dir:
		return 0, syscall.EISDIR
	case offset >= int64(n.data.len()):
		return 0, io.EOF
	}
	return n.data.readAt(b, int(offset)), nil
}

// readError does not wrap io.EOF, as in os.
func (f *file) readError(verb string, err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return pathError(verb, f.name, err)
}

func (f *file) Write(b []byte) (int, error) {
	return f.doWrite(OpWrite, b, func(d *Disk, n *node, b []byte) error {
		offset := f.offset
		if f.flag&os.O_APPEND != 0 {
			offset = int64(n.data.len())
		}
		if err := f.writeAt(d, b, offset); err != nil {
			return err
		}
		f.offset = offset + int64(len(b))
		return nil
	})
}

// Short is what [Disk.Fail] returns for a write that writes only the first half before it
// fails. For any other operation only Err counts.
type Short struct{ Err error }

func (s Short) Error() string { return "short write: " + s.Err.Error() }

// Unwrap returns the error that the kernel gave.
func (s Short) Unwrap() error { return s.Err }

// doWrite writes all of b, or its first half if a Short was injected.
func (f *file) doWrite(kind Kind, b []byte, write func(d *Disk, n *node, b []byte) error) (int, error) {
	injected := f.proc.announce(Op{Kind: kind, Path: f.name})
	var short Short
	if injected != nil && !errors.As(injected, &short) {
		return 0, pathError("write", f.name, injected)
	}
	if injected != nil {
		b = b[:len(b)/2]
	}
	err := f.proc.locked(func(d *Disk) error {
		return f.use(d, func(d *Disk, n *node) error { return write(d, n, b) })
	})
	if err != nil {
		return 0, pathError("write", f.name, err)
	}
	return len(b), pathError("write", f.name, short.Err)
}

func (f *file) WriteString(s string) (int, error) { return f.Write([]byte(s)) }

func (f *file) WriteAt(b []byte, offset int64) (int, error) {
	switch {
	case f.flag&os.O_APPEND != 0:
		return 0, errWriteAtAppend
	case offset < 0:
		return 0, pathError("writeat", f.name, errNegativeOffset)
	case len(b) == 0:
		return 0, nil
	}
	kind := OpWrite
	_ = f.proc.locked(func(d *Disk) error { // the write reports what is wrong
		if d.nodes[f.ino].data.overwritten(len(b), int(offset)) {
			kind = OpOverwrite
		}
		return nil
	})
	return f.doWrite(kind, b, func(d *Disk, _ *node, b []byte) error {
		return f.writeAt(d, b, offset)
	})
}

var errWriteAtAppend = errors.New("WriteAt on a file opened with O_APPEND")

func (f *file) writeAt(d *Disk, b []byte, offset int64) error {
	switch {
	case !f.writable():
		return syscall.EBADF
	case len(b) == 0:
		return nil
	case offset > maxSize-int64(len(b)):
		return syscall.EFBIG
	}
	n := d.own(f.ino)
	first, last := int(offset)/blockSize, (int(offset)+len(b)-1)/blockSize
	n.lost = slices.DeleteFunc(slices.Clone(n.lost), func(i int) bool { return first <= i && i <= last })
	n.data, n.mtime = n.data.write(b, int(offset)), d.now()
	return nil
}

func (f *file) Truncate(size int64) error {
	err := f.do(OpTruncate, func(d *Disk, n *node) error {
		switch {
		case size < 0 || !f.writable():
			return syscall.EINVAL
		case size > maxSize:
			return syscall.EFBIG
		}
		d.write(f.ino, resized(n.data.bytes(), int(size)))
		return nil
	})
	return pathError("truncate", f.name, err)
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	at := int64(0)
	err := f.proc.locked(func(d *Disk) error {
		return f.use(d, func(_ *Disk, n *node) error {
			switch whence {
			case io.SeekStart:
			case io.SeekCurrent:
				offset += f.offset
			case io.SeekEnd:
				offset += int64(n.data.len())
			default:
				return syscall.EINVAL
			}
			if offset < 0 {
				return syscall.EINVAL
			}
			// A folder that is read from the start again is listed anew.
			f.listed = f.listed && offset != 0
			f.offset, at = offset, offset
			return nil
		})
	})
	return at, pathError("seek", f.name, err)
}

// Sync makes the data durable, or the names of an open folder. If it fails, the file is
// never durable again: see the package comment.
func (f *file) Sync() error {
	injected := f.proc.announce(Op{Kind: f.syncKind(), Path: f.name})
	err := f.proc.locked(func(d *Disk) error {
		return f.use(d, func(d *Disk, n *node) error {
			switch {
			case injected != nil:
				d.markSyncFailed(f.ino)
			case d.ignores(Op{Proc: f.proc.name, Kind: f.kindOf(n), Path: f.name}):
			case n.dir:
				d.syncDir(f.ino)
			case n.unsynced():
				d.own(f.ino).sync()
			}
			return injected
		})
	})
	return pathError("sync", f.name, err)
}

func (f *file) syncKind() Kind {
	f.proc.disk.mu.Lock()
	defer f.proc.disk.mu.Unlock()
	return f.kindOf(f.proc.disk.nodes[f.ino])
}

func (f *file) kindOf(n *node) Kind {
	if n.dir {
		return OpSyncDir
	}
	return OpSync
}

// markSyncFailed is the effect of a failed fsync. The caller holds the lock.
func (d *Disk) markSyncFailed(i ino) {
	if d.nodes[i].unsynced() {
		d.own(i).markSyncFailed()
	}
}

func (f *file) Stat() (os.FileInfo, error) {
	var described info
	err := f.do(OpStat, func(_ *Disk, n *node) error {
		described = n.info(f.base)
		return nil
	})
	if err != nil {
		return nil, pathError("stat", f.name, err)
	}
	return described, nil
}

// Readdir lists a folder by name, as it is at the first call.
func (f *file) Readdir(count int) ([]os.FileInfo, error) {
	var infos []os.FileInfo
	err := f.do(OpReadDir, func(d *Disk, n *node) error {
		if !n.dir {
			return syscall.ENOTDIR
		}
		if !f.listed {
			f.list, f.listed = n.entries, true
		}
		next := f.list
		if count > 0 {
			next = next[:min(count, len(next))]
			if len(next) == 0 {
				return io.EOF
			}
		}
		for _, e := range next {
			infos = append(infos, d.nodes[e.ino].info(e.name))
		}
		f.list = f.list[len(next):]
		return nil
	})
	return infos, f.readError("readdirent", err)
}

func (f *file) Readdirnames(count int) (names []string, err error) {
	infos, err := f.Readdir(count)
	for _, i := range infos {
		names = append(names, i.Name())
	}
	return names, err
}

// info describes a node at the time of the call.
type info struct {
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
}

func (n *node) info(name string) info {
	return info{name: name, size: int64(n.data.len()), mode: n.mode, mtime: n.mtime}
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.mtime }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

// Datasync is f.Sync.
func (p *Proc) Datasync(f afero.File) error { return f.Sync() }
