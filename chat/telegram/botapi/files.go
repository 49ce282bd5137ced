package botapi

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// ErrKilled is returned by every operation of a killed process.
var ErrKilled = errors.New("the process was killed")

// ErrDone is returned by Files.Fail for an operation that takes effect and fails, like an fsync after a rename.
var ErrDone = errors.New("input/output error")

// Files is a store of small files in memory for tests of the channel's journal. Its process can be killed, its
// disk can fail, and its power can be cut.
type Files struct {
	// Fail is called before every operation: "put", "get", "list" or "remove". Its error becomes the
	// operation's. Unless it is ErrDone, the operation has no effect. nil: no failures.
	Fail func(op, name string) error

	mu      sync.Mutex
	files   map[string][]byte
	removed map[string][]byte
	killed  bool
}

// Put stores b under name.
func (f *Files) Put(name string, b []byte) error {
	return f.do("put", name, func() error {
		setIn(&f.files, name, slices.Clone(b))
		delete(f.removed, name)
		return nil
	})
}

// Get returns what is stored under name, or fs.ErrNotExist.
func (f *Files) Get(name string) (b []byte, err error) {
	err = f.do("get", name, func() error {
		stored, ok := f.files[name]
		if !ok {
			return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		b = slices.Clone(stored)
		return nil
	})
	return b, err
}

// List returns all names, sorted.
func (f *Files) List() (names []string, err error) {
	err = f.do("list", "", func() error {
		names = slices.Sorted(maps.Keys(f.files))
		return nil
	})
	return names, err
}

// Remove removes a file, if it exists.
func (f *Files) Remove(name string) error {
	return f.do("remove", name, func() error {
		if b, ok := f.files[name]; ok {
			setIn(&f.removed, name, b)
		}
		delete(f.files, name)
		return nil
	})
}

// do runs one operation, unless the process is killed or the disk fails.
func (f *Files) do(op, name string, effect func() error) error {
	var failure error
	if f.Fail != nil {
		failure = f.Fail(op, name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.killed {
		return ErrKilled
	}
	if failure != nil && !errors.Is(failure, ErrDone) {
		return failure
	}
	if err := effect(); err != nil {
		return err
	}
	return failure
}

// Kill ends the process that uses f, and returns the files for the next one.
func (f *Files) Kill() *Files {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed = true
	return &Files{files: maps.Clone(f.files), removed: maps.Clone(f.removed)}
}

// CutPower is Kill by the worst power cut: all removed files are back.
func (f *Files) CutPower() *Files {
	after := f.Kill()
	for name, b := range after.removed {
		setIn(&after.files, name, b)
	}
	after.removed = nil
	return after
}
