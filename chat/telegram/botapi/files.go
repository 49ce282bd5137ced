package botapi

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// ErrKilled is what every operation of a killed process returns.
var ErrKilled = errors.New("the process was killed")

// ErrDone returned by Files.Fail lets the operation take effect all the same: as an fsync that fails
// after the rename.
var ErrDone = errors.New("input/output error")

// Files keeps small files in memory for tests, as the store of the channel's journal: its process can be
// killed, its disk can fail, and its power can be cut.
type Files struct {
	// Fail is asked before every operation, "put", "get", "list" or "remove"; its error becomes the
	// operation's, and unless it is ErrDone the operation has no effect. nil: none fails.
	Fail func(op, name string) error

	mu      sync.Mutex
	files   map[string][]byte
	removed map[string][]byte
	killed  bool
}

// Put stores b under name.
func (f *Files) Put(name string, b []byte) error {
	return f.do("put", name, func() error {
		if f.files == nil {
			f.files = map[string][]byte{}
		}
		f.files[name] = slices.Clone(b)
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

// Remove takes a name away, if it is there.
func (f *Files) Remove(name string) error {
	return f.do("remove", name, func() error {
		if b, ok := f.files[name]; ok {
			if f.removed == nil {
				f.removed = map[string][]byte{}
			}
			f.removed[name] = b
		}
		delete(f.files, name)
		return nil
	})
}

// do runs one operation, unless the process is dead or the disk refuses.
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

// Kill ends the process that uses f, and returns what the next one finds.
func (f *Files) Kill() *Files {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed = true
	return &Files{files: maps.Clone(f.files), removed: maps.Clone(f.removed)}
}

// Cut is Kill by a power cut, at its worst: nothing that was put is lost, and all that was removed is back.
func (f *Files) CutPower() *Files {
	after := f.Kill()
	if after.files == nil {
		after.files = map[string][]byte{}
	}
	maps.Copy(after.files, after.removed)
	after.removed = nil
	return after
}
