// Package watcher turns what happens in folders into wake-up calls. It knows
// paths, not what the files mean.
//
// # Hints
//
// An event is only a hint; the folder is the truth. Wake says "look at this
// name", Rescan says "look at this group", and nothing else is ever said. Events
// may be lost, doubled, late or out of order, and the caller must not mind: each
// group is looked at again within [Watcher.Interval] anyway, after a lost event
// (the kernel's queue overflowed, inotify reported an error) at once.
//
// # Folders that come and go
//
// A folder that is deleted and made again, or exchanged for another, loses its
// watch without a sound. Each look at a group therefore compares the folder with
// the one that was watched and renews the watch. A missing folder may be added:
// it is polled until it is there. A symbolic link is never followed.
//
// # Where inotify does not reach
//
// A network or user-space file system (NFS, 9p, FUSE, virtiofs, SMB …) says
// nothing about changes made elsewhere, and the kernel's limits on watches may be
// used up. Such folders are polled once a second, and [Watcher.Notes] says so.
//
// # Floods
//
// All folders share one event queue. A group whose untrusted folders produce more
// than [Watcher.FloodPerSecond] events in a second has their watches taken away
// and is polled once a second until it is calm, so that it cannot drown the
// others. A group that relapses stays polled longer each time.
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

// ErrNotFolder says that a path exists and is not a real folder: a file, or a
// symbolic link, which is refused whatever it points to.
var ErrNotFolder = errors.New("not a folder (symbolic links are refused)")

// A Folder is one watched folder.
type Folder struct {
	Path  string
	Group string // the workspace; "" for the folder that holds them all
	Kind  string // the caller's own word, handed back on Wake

	// Suffixes of the names that matter, such as ".json"; none means every name.
	// Names that begin with a dot never matter.
	Suffixes []string

	// Trusted says that only the host writes here: its events are never taken
	// for a flood.
	Trusted bool
}

// wants says whether a file of that name is worth a Wake.
func (f *Folder) wants(name string) bool {
	if name == "" || name[0] == '.' {
		return false
	}
	return len(f.Suffixes) == 0 || slices.ContainsFunc(f.Suffixes, func(suffix string) bool {
		return strings.HasSuffix(name, suffix)
	})
}

// A Watcher watches folders. Set its fields before Run and leave them alone
// afterwards; Add, Remove and Notes may be called at any time, from anywhere,
// also from within Wake and Rescan.
type Watcher struct {
	// Wake says that a file of that name appeared, changed or vanished. It is
	// called from several goroutines, one of them the event loop: it must only
	// take note.
	Wake func(group, kind, name string)

	// Rescan asks to look at everything in the folders of one group; for "" that
	// is the folder of groups itself, to find new ones and Add them. It may take
	// its time. It is never called twice at once for one group; calls that come
	// meanwhile become one. Every group is asked for after its folders are
	// watched, after lost events, and at least once every Interval.
	Rescan func(group string)

	Log zerolog.Logger

	// Interval is the longest time between two Rescans of a group, 0 meaning
	// 5 s. Beyond 100 groups it grows with their number, so that an idle
	// watcher costs the same however many they are.
	Interval time.Duration

	// FloodPerSecond is the number of events a second above which a group's
	// untrusted folders are polled instead, 0 meaning 2,000.
	FloodPerSecond int

	open       func() (*source, error)  // nil: inotify
	fileSystem func(path string) string // nil: statfs
	pollEvery  time.Duration            // 0: 1 s

	mu    sync.Mutex
	queue []change
	kick  chan struct{}
	notes map[string]string // path → why it is not watched
}

// A change is an Add or a Remove on its way to the loop, the only goroutine that
// touches the watches.
type change struct {
	folder  *folder       // nil: remove the group
	passed  chan struct{} // not nil: nothing but this is to be closed
	group   string
	current state
}

// Add has a folder watched from now on; adding a path again replaces its Folder.
// It fails with [ErrNotFolder] and with the error of looking at the path, but a
// folder that is merely missing is taken, and watched when it appears.
func (w *Watcher) Add(f Folder) error {
	path, err := filepath.Abs(f.Path)
	if err != nil {
		return fmt.Errorf("watch %s: %w", f.Path, err)
	}
	f.Path = path
	current := w.examine(path)
	if current.err != nil && !errors.Is(current.err, fs.ErrNotExist) {
		return fmt.Errorf("watch %s: %w", path, current.err)
	}
	w.note(path, current.why)
	w.push(change{folder: &folder{Folder: f}, group: f.Group, current: current})
	return nil
}

// Remove forgets all folders of a group. A Wake or Rescan that is under way may
// still arrive.
func (w *Watcher) Remove(group string) {
	w.push(change{group: group})
}

// Alive returns when the loop of Run has come by, or with ctx's error.
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

// Run watches until ctx is done, and then returns nil. Having no inotify is no
// error: everything is polled then.
func (w *Watcher) Run(ctx context.Context) error {
	if w.Wake == nil || w.Rescan == nil {
		return errors.New("run watcher: Wake and Rescan must be set")
	}
	l := newLoop(ctx, w)
	defer l.stop()
	l.run()
	return nil
}

// Notes says in whole lines which folders are polled, or not looked at, and why.
func (w *Watcher) Notes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	paths := make(map[string][]string)
	for path, why := range w.notes {
		paths[why] = append(paths[why], path)
	}
	var lines []string
	for why, p := range paths {
		slices.Sort(p)
		where := p[0]
		if len(p) > 1 {
			where = fmt.Sprintf("%s and %d more", where, len(p)-1)
		}
		lines = append(lines, notice(where, why))
	}
	slices.Sort(lines)
	return lines
}

func notice(where, why string) string {
	if why == ErrNotFolder.Error() {
		return fmt.Sprintf("ignoring %s: %s", where, why)
	}
	return fmt.Sprintf("polling %s: %s", where, why)
}

// note remembers why a path is not watched, or forgets it.
func (w *Watcher) note(path, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why == "" {
		delete(w.notes, path)
		return
	}
	if w.notes == nil {
		w.notes = make(map[string]string)
	}
	w.notes[path] = why
}

func (w *Watcher) push(c change) {
	w.mu.Lock()
	w.queue = append(w.queue, c)
	w.mu.Unlock()
	select {
	case w.kicked() <- struct{}{}:
	default: // the loop has been told already
	}
}

func (w *Watcher) kicked() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kick == nil {
		w.kick = make(chan struct{}, 1)
	}
	return w.kick
}

func (w *Watcher) changes() []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := w.queue
	w.queue = nil
	return queue
}

// cause is the error without the path, which the notes name anyway.
func cause(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

const whyMissing = "it is missing"

// state is what a look at a path found.
type state struct {
	info   fs.FileInfo
	err    error
	why    string // why it cannot be watched; "" if it can
	remote bool   // on a file system where looking may take for ever
}

// examine looks at the folder itself. Lstat comes first: fsnotify's Add and
// statfs both follow links.
func (w *Watcher) examine(path string) state {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state{err: err, why: whyMissing}
	case err != nil:
		return state{err: err, why: cause(err)}
	case !info.IsDir():
		return state{err: ErrNotFolder, why: ErrNotFolder.Error()}
	}
	fileSystem := w.fileSystem
	if fileSystem == nil {
		fileSystem = unreached
	}
	if name := fileSystem(path); name != "" {
		return state{info: info, remote: true, why: "inotify does not reach " + name}
	}
	return state{info: info}
}
