// Package watcher calls back when files in folders change. It knows paths, not the
// meaning of the files.
//
// # Hints
//
// An event is only a hint; the folder is the truth. Wake means "check this name",
// Rescan means "check this group". Events may be lost, doubled, late or out of
// order, and callers must tolerate that: each group is rescanned within
// [Watcher.Interval], and at once after a lost event (the kernel's queue
// overflowed, inotify reported an error).
//
// # Replaced and missing folders
//
// A folder that is deleted and created again, or replaced, loses its watch without
// an event. Each scan of a group therefore compares the folder with the watched
// one and renews the watch. A missing folder may be added: it is polled until it
// exists. A symbolic link is never followed.
//
// # Folders without inotify
//
// A network or user-space file system (NFS, 9p, FUSE, virtiofs, SMB …) does not
// report changes by other hosts, and the kernel's limits on watches may be
// reached. Such folders are polled once a second, and [Watcher.Notes] lists them.
//
// # Unchanged folders
//
// The modification time of a folder changes when a name in it is created, renamed or
// removed. If no folder of a group has changed since the last Rescan, the next periodic
// Rescan says so, and the watches are not renewed. That is never said of a folder that is
// polled, or was replaced, or whose time was so recent at the last Rescan that a later
// change may have got the same time. The content of a file may have changed all the same.
//
// # Floods
//
// All folders share one event queue. If the untrusted folders of a group produce
// more than [Watcher.FloodPerSecond] events in a second, their watches are removed
// and the group is polled once a second until the flood is over. So it cannot
// delay the events of others. After each further flood within a minute the group
// is polled longer.
package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// errNotFolder says that a path exists and is not a real folder: a file, or any
// symbolic link.
var errNotFolder = errors.New("not a folder (symbolic links are refused)")

// A Folder is one watched folder.
type Folder struct {
	Path  string
	Group string // the workspace; "" for the folder of all workspaces
	Kind  string // a name chosen by the caller, passed to Wake

	// Suffixes of the names to report, such as ".json"; none means every name.
	// Names that begin with a dot are never reported.
	Suffixes []string

	// Trusted says that only the host writes here: its events never count as a
	// flood.
	Trusted bool

	// IgnoreRemovals says that a name that is gone is not reported.
	IgnoreRemovals bool
}

// wants says whether to call Wake for a file of that name.
func (f *Folder) wants(name string) bool {
	if name == "" || name[0] == '.' {
		return false
	}
	return len(f.Suffixes) == 0 || slices.ContainsFunc(f.Suffixes, func(suffix string) bool {
		return strings.HasSuffix(name, suffix)
	})
}

// A Watcher watches folders. Its fields must not change after Run was called. Add,
// Remove and Notes are safe for concurrent use, also within Wake and Rescan.
type Watcher struct {
	// Wake says that a file of that name appeared, changed or vanished. It is
	// called from several goroutines, one of them the event loop: it must not block.
	Wake func(group, kind, name string)

	// Rescan must check everything in the folders of one group; for "" that is the
	// folder of groups itself, to find and Add new ones. It may be slow. There is
	// never more than one call at once for a group; calls in the meantime are
	// combined. It is called after a group's folders are watched, after lost events,
	// and at least once every Interval. If changed is false, the folders have the same
	// names as at the last call with true.
	Rescan func(group string, changed bool)

	Log zerolog.Logger

	// Interval is the longest time between two Rescans of a group; 0 means 5 s.
	// Above 100 groups it grows with their number, so that the load of an idle
	// watcher stays constant.
	Interval time.Duration

	// FloodPerSecond is the number of events per second above which a group's
	// untrusted folders are polled; 0 means 2,000.
	FloodPerSecond int

	open       func() (*source, error)  // nil: inotify
	fileSystem func(path string) string // nil: statfs
	pollEvery  time.Duration            // 0: 1 s

	mu     sync.Mutex
	queue  []change
	wakeup chan struct{}
	notes  map[string]reason // path → why it is not watched
}

// A change is a queued Add or Remove. Only the loop's goroutine uses the watches.
type change struct {
	folder  *folder       // nil: remove the group
	passed  chan struct{} // not nil: only close this channel
	group   string
	current state
}

// Add starts watching a folder. Adding a path again replaces its Folder. It fails
// with [errNotFolder] or if the path cannot be examined. A missing folder is
// accepted, and watched when it appears.
func (w *Watcher) Add(f Folder) error {
	path, err := filepath.Abs(f.Path)
	if err != nil {
		return fmt.Errorf("watch %s: %w", f.Path, err)
	}
	f.Path = path
	current := w.examine(path, nil)
	if current.err != nil && !errors.Is(current.err, fs.ErrNotExist) {
		return fmt.Errorf("watch %s: %w", path, current.err)
	}
	w.note(path, current.why)
	w.push(change{folder: &folder{Folder: f}, group: f.Group, current: current})
	return nil
}

// Remove stops watching all folders of a group. A Wake or Rescan in progress may
// still arrive.
func (w *Watcher) Remove(group string) {
	w.push(change{group: group})
}

// Alive returns after the next iteration of Run's loop, or with ctx's error.
func (w *Watcher) Alive(ctx context.Context) error {
	passed := make(chan struct{})
	w.push(change{passed: passed})
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the watcher: %w", ctx.Err())
	}
}

// Run watches until ctx is done, and then returns nil. Without inotify all folders
// are polled.
func (w *Watcher) Run(ctx context.Context) error {
	if w.Wake == nil || w.Rescan == nil {
		return errors.New("run watcher: Wake and Rescan must be set")
	}
	l := newLoop(ctx, w)
	defer l.stop()
	l.run()
	return nil
}

// Notes lists the folders that are polled or ignored, and why, one line for each
// reason. They are errors, with a hint where one is known.
func (w *Watcher) Notes() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	paths := make(map[reason][]string)
	for path, why := range w.notes {
		paths[why] = append(paths[why], path)
	}
	notes := []error{}
	for why, p := range paths {
		slices.Sort(p)
		where := p[0]
		if len(p) > 1 {
			where = fmt.Sprintf("%s and %d more", where, len(p)-1)
		}
		notes = append(notes, notice(where, why))
	}
	slices.SortFunc(notes, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return notes
}

func notice(where string, why reason) reason {
	if why.what == errNotFolder.Error() {
		return reason{fmt.Sprintf("ignoring %s: %s", where, why.what), why.hint}
	}
	return reason{fmt.Sprintf("polling %s: %s", where, why.what), why.hint}
}

// note records why a path is not watched. An empty why clears that.
func (w *Watcher) note(path string, why reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why == (reason{}) {
		delete(w.notes, path)
		return
	}
	if w.notes == nil {
		w.notes = make(map[string]reason)
	}
	w.notes[path] = why
}

func (w *Watcher) push(c change) {
	w.mu.Lock()
	w.queue = append(w.queue, c)
	w.mu.Unlock()
	select {
	case w.wakeups() <- struct{}{}:
	default: // a wake-up is already pending
	}
}

func (w *Watcher) wakeups() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wakeup == nil {
		w.wakeup = make(chan struct{}, 1)
	}
	return w.wakeup
}

func (w *Watcher) changes() []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := w.queue
	w.queue = nil
	return queue
}

// cause is the error without the path, which the notes contain already.
func cause(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

const whyMissing = "it is missing"

// state is the result of examining a path.
type state struct {
	info   fs.FileInfo
	err    error
	why    reason // why it cannot be watched; empty if it can
	remote bool   // on a file system where access may hang
}

// examine checks the folder itself. Lstat comes first, because fsnotify's Add and
// statfs both follow links. A folder that is still the watched one needs no statfs.
func (w *Watcher) examine(path string, watched fs.FileInfo) state {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state{err: err, why: reason{what: whyMissing}}
	case err != nil:
		return state{err: err, why: reason{what: cause(err)}}
	case !info.IsDir():
		return state{err: errNotFolder, why: reason{what: errNotFolder.Error()}}
	case watched != nil && os.SameFile(watched, info):
		return state{info: info}
	}
	fileSystem := w.fileSystem
	if fileSystem == nil {
		fileSystem = remoteFileSystem
	}
	if name := fileSystem(path); name != "" {
		return state{info: info, remote: true, why: reason{what: "inotify does not reach " + name}}
	}
	return state{info: info}
}
