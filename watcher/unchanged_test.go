package watcher

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// A group is unchanged if every folder certainly has the same names as at the last Rescan
// with changed.
func TestUnchangedFolders(t *testing.T) {
	top := t.TempDir()
	a, b := mkdir(t, top, "a"), mkdir(t, top, "b")
	old := time.Now().Add(-time.Minute)
	age := func(dir string, at time.Time) { require.NoError(t, os.Chtimes(dir, at, at)) }
	age(a, old)
	age(b, old)
	folders := []*folder{{Folder: Folder{Path: a}}, {Folder: Folder{Path: b}}}
	for _, f := range folders {
		info, err := os.Lstat(f.Path)
		require.NoError(t, err)
		f.watched = info
	}
	for _, step := range []struct {
		why     string
		do      func(k *scan)
		changed bool
	}{
		{"the first Rescan", nil, true},
		{"nothing has changed", nil, false},
		{"a file is new, with a time that is too recent to be compared", func(*scan) { write(t, b, "new") }, true},
		{"a later file may have the same time", nil, true},
		{"the time is older now, but what it was at the last Rescan was not", func(*scan) { age(b, old) }, true},
		{"nothing since", nil, false},
		{"it was asked for, such as after lost events", func(k *scan) { k.asked = true }, true},
		{"nothing since", nil, false},
		{"another time, though an earlier one", func(*scan) { age(a, old.Add(-time.Hour)) }, true},
		{"a polled folder's time proves nothing", func(k *scan) { k.polls[0].compare = true }, true},
		{"nor what it was when it was polled", nil, true},
		{"nothing since", nil, false},
		{"it has no watch", func(k *scan) { k.polls[1].watched = nil }, true},
		{"nor had one at the last Rescan", nil, true},
		{"nothing since", nil, false},
		{"another folder with the same time", func(*scan) {
			info, err := os.Lstat(a)
			require.NoError(t, err)
			require.NoError(t, os.Rename(a, filepath.Join(top, "elsewhere")))
			mkdir(t, a)
			age(a, info.ModTime())
		}, true},
		{"nothing since", nil, false},
		{"the clock was set back: the time is in the future", func(*scan) { age(a, time.Now().Add(time.Hour)) }, true},
		{"and stays there", nil, true},
		{"a folder is gone", func(*scan) { age(a, old); require.NoError(t, os.RemoveAll(b)) }, true},
		{"and stays away", nil, true},
	} {
		k := &scan{group: &group{name: "g"}, rescan: true}
		for _, f := range folders {
			k.polls = append(k.polls, &poll{folder: f, watched: f.watched})
		}
		if step.do != nil {
			step.do(k)
		}
		calls := 0
		w := &Watcher{Rescan: func(group string, changed bool) {
			calls++
			require.Equal(t, "g", group)
			require.Equal(t, step.changed, changed, step.why)
		}, Wake: func(_, _, _ string) {}}
		w.runScan(k, func() bool { return false })
		require.Equal(t, 1, calls, step.why)
	}
}

// The periodic Rescans of an idle group say that it is unchanged, and leave its watch alone.
// The one after lost events does not.
func TestIdleGroupIsUnchanged(t *testing.T) {
	e, f, dir := newRecorder(), newFake(), t.TempDir()
	old := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(dir, old, old))
	w := quietWatcher(e)
	w.open = f.open
	w.Interval = 20 * time.Millisecond
	w.Rescan = func(group string, changed bool) { e.rescan(group+" "+strconv.FormatBool(changed), changed) }
	require.NoError(t, w.Add(Folder{Path: dir, Group: "g"}))
	run(t, w)
	e.untilRescanned(t, "g false", 3)
	require.True(t, f.watches(dir))
	f.mu.Lock()
	adds := 0
	f.adds = func(string) { adds++ }
	f.mu.Unlock()
	was, idle := e.rescanned("g true"), e.rescanned("g false")
	e.untilRescanned(t, "g false", idle+3)
	f.mu.Lock()
	require.Zero(t, adds, "renewing a watch costs a system call")
	f.mu.Unlock()
	require.Equal(t, was, e.rescanned("g true"))
	f.errors <- fsnotify.ErrEventOverflow
	e.untilRescanned(t, "g true", was+1)
	write(t, dir, "lost") // without an event
	e.untilRescanned(t, "g true", was+2)
}

// A group that is removed while it waits for a scan is not scanned.
func TestRemoveOfWaitingGroup(t *testing.T) {
	e, f, top := newRecorder(), newFake(), t.TempDir()
	held := make(chan struct{})
	w := quietWatcher(e)
	w.open = f.open
	w.Rescan = func(group string, changed bool) { e.rescan(group, changed); <-held }
	const groups = 3 * maxScans
	for i := range groups {
		name := strconv.Itoa(i)
		require.NoError(t, w.Add(Folder{Path: mkdir(t, top, name), Group: name}))
	}
	run(t, w)
	started := func() (names map[string]bool) {
		names = map[string]bool{}
		for i := range groups {
			if name := strconv.Itoa(i); e.rescanned(name) > 0 {
				names[name] = true
			}
		}
		return names
	}
	e.until(t, "the maximum of scans", func() bool { return len(started()) == maxScans })
	first := started()
	for i := range groups {
		if name := strconv.Itoa(i); !first[name] {
			w.Remove(name)
		}
	}
	require.NoError(t, w.Add(Folder{Path: mkdir(t, top, "last"), Group: "last"}))
	require.NoError(t, w.Alive(t.Context()))
	close(held)
	e.untilRescanned(t, "last", 1) // its turn comes after theirs
	require.Equal(t, first, started())
}
