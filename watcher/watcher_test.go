package watcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/hints"
)

func TestWake(t *testing.T) {
	e, dir := newRecorder(), t.TempDir()
	write(t, dir, "old.json")
	w := quietWatcher(e)
	require.NoError(t, w.Add(Folder{Path: dir, Group: "personal", Kind: "requests", Suffixes: []string{".json", ".cancel"}}))
	run(t, w)
	e.untilRescanned(t, "personal", 1)

	outside := filepath.Join(t.TempDir(), "outside")
	tests := []struct {
		why, name string
		do        func(path string)
	}{
		{"created", "a.json", func(p string) { write(t, p) }},
		{"created with the other suffix", "a.cancel", func(p string) { write(t, p) }},
		{"renamed in from elsewhere, as clients do", "b.json", func(p string) {
			write(t, outside)
			require.NoError(t, os.Rename(outside, p))
		}},
		{"renamed in from a dot-name beside it", "c.json", func(p string) {
			write(t, dir, ".tmp1")
			require.NoError(t, os.Rename(filepath.Join(dir, ".tmp1"), p))
		}},
		{"removed", "old.json", func(p string) { require.NoError(t, os.Remove(p)) }},
		{"a folder with such a name, which the caller must refuse", "d.json", func(p string) { mkdir(t, p) }},
		{"a link, which the caller must refuse", "e.json", func(p string) { require.NoError(t, os.Symlink("/etc/passwd", p)) }},
	}
	for _, tt := range tests {
		require.Zero(t, e.woken("personal/requests/"+tt.name), tt.why)
		tt.do(filepath.Join(dir, tt.name))
		e.untilWoken(t, "personal/requests/"+tt.name)
	}
	was := e.woken("personal/requests/a.json")
	write(t, dir, "a.json")
	e.until(t, "Wake of a changed file", func() bool { return e.woken("personal/requests/a.json") > was })

	// These come before z.json in the queue, so z.json shows that they were ignored.
	write(t, dir, ".hidden.json")
	write(t, dir, "notes.txt")
	write(t, dir, "z.json")
	e.untilWoken(t, "personal/requests/z.json")
	for _, key := range e.wakeKeys("") {
		require.NotContains(t, key, "/.", "names with a dot are unfinished files")
		require.NotContains(t, key, ".txt")
	}
	require.Empty(t, notes(w))
}

func TestNoSuffixesMeansEveryName(t *testing.T) {
	e, dir := newRecorder(), t.TempDir()
	w := quietWatcher(e)
	require.NoError(t, w.Add(Folder{Path: dir, Kind: "workspaces"}))
	run(t, w)
	e.untilRescanned(t, "", 1)
	mkdir(t, dir, "fresh")
	e.untilWoken(t, "/workspaces/fresh")
}

// TestIgnoreRemovals: a file that is gone is not reported, by an event or by polling.
func TestIgnoreRemovals(t *testing.T) {
	for _, polled := range []bool{false, true} {
		e, dir := newRecorder(), t.TempDir()
		write(t, dir, "old.json")
		w := quietWatcher(e)
		if polled {
			w.fileSystem = func(string) string { return "NFS" }
		}
		require.NoError(t, w.Add(Folder{Path: dir, Group: "g", Kind: "k", IgnoreRemovals: true}))
		run(t, w)
		e.untilRescanned(t, "g", 1)
		require.NoError(t, os.Remove(filepath.Join(dir, "old.json")))
		write(t, dir, "z.json") // its event comes after the removal's
		e.untilWoken(t, "g/k/z.json")
		require.Zero(t, e.woken("g/k/old.json"), "polled: %v", polled)
		require.NoError(t, os.Rename(filepath.Join(dir, "z.json"), filepath.Join(dir, "new.json")))
		e.untilWoken(t, "g/k/new.json")
	}
}

func TestAddRefuses(t *testing.T) {
	dir := t.TempDir()
	real := mkdir(t, dir, "real")
	write(t, dir, "file")
	require.NoError(t, os.Symlink(real, filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "dangling")))
	w := quietWatcher(newRecorder())
	for name, why := range map[string]string{
		"link":     "fsnotify would follow it to any folder",
		"dangling": "its target may be created later",
		"file":     "fsnotify would watch it, without useful events",
	} {
		require.ErrorIs(t, w.Add(Folder{Path: filepath.Join(dir, name)}), errNotFolder, why)
	}
	require.ErrorIs(t, w.Add(Folder{Path: filepath.Join(dir, "file", "below")}), syscall.ENOTDIR)
	require.Empty(t, w.changes(), "a refused folder must not reach the loop")
	require.Empty(t, notes(w))
}

func TestRunRequiresCallbacks(t *testing.T) {
	e := newRecorder()
	require.Error(t, (&Watcher{Wake: e.wake}).Run(t.Context()))
	require.Error(t, (&Watcher{Rescan: e.rescan}).Run(t.Context()))
}

func TestFolderReplacedByLink(t *testing.T) {
	e, f, top, secret := newRecorder(), newFake(), t.TempDir(), t.TempDir()
	dir := mkdir(t, top, "requests")
	w := quietWatcher(e)
	w.open = f.open
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	run(t, w)
	e.untilRescanned(t, "a", 1)
	require.True(t, f.watches(dir))

	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Symlink(secret, dir))
	f.events <- fsnotify.Event{Name: dir, Op: fsnotify.Remove}
	e.until(t, "a note about the link", func() bool { return len(notes(w)) > 0 })
	require.Equal(t, []string{"ignoring " + dir + ": not a folder (symbolic links are refused)"}, notes(w))
	write(t, secret, "private")
	require.Empty(t, list(&Folder{Path: dir}).names, "list must not follow a link")

	require.NoError(t, os.Remove(dir))
	mkdir(t, dir)
	e.until(t, "the real folder watched again", func() bool { return f.watches(dir) && len(notes(w)) == 0 })
	require.Zero(t, e.woken("a/k/private"))
}

// Each way to lose a watch without an event, with the real inotify.
func TestFolderRecreated(t *testing.T) {
	tests := []struct {
		why  string
		lose func(top, dir string)
	}{
		{"deleted", func(_, dir string) { require.NoError(t, os.RemoveAll(dir)) }},
		{"renamed away", func(top, dir string) { require.NoError(t, os.Rename(dir, filepath.Join(top, "elsewhere"))) }},
		{"renamed away and deleted, where fsnotify reports an error", func(top, dir string) {
			require.NoError(t, os.Rename(dir, filepath.Join(top, "gone")))
			require.NoError(t, os.Remove(filepath.Join(top, "gone")))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			e, top := newRecorder(), t.TempDir()
			dir := mkdir(t, top, "requests")
			w := quietWatcher(e)
			require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
			run(t, w)
			e.untilRescanned(t, "a", 1)
			tt.lose(top, dir)
			e.until(t, "a note that it is missing", func() bool { return len(notes(w)) > 0 })
			require.Equal(t, []string{"polling " + dir + ": it is missing"}, notes(w))

			before := e.rescanned("a")
			mkdir(t, dir)
			e.until(t, "a new watch", func() bool { return len(notes(w)) == 0 })
			e.untilRescanned(t, "a", before+1) // for changes before the new watch
			write(t, dir, "new.json")
			e.untilWoken(t, "a/k/new.json")
		})
	}
}

// Replacing a parent causes no event: the watch stays on a folder that is no longer
// at the path. Only the timer detects that.
func TestParentReplaced(t *testing.T) {
	e, top := newRecorder(), t.TempDir()
	dir := mkdir(t, top, "ws", "requests")
	w := quietWatcher(e)
	w.Interval = 100 * time.Millisecond
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	run(t, w)
	e.untilRescanned(t, "a", 1)
	require.NoError(t, os.Rename(filepath.Join(top, "ws"), filepath.Join(top, "old")))
	mkdir(t, dir)
	for i := 0; e.woken("a/k/"+strconv.Itoa(i-1)) == 0; i++ {
		require.Less(t, i, 200, "the new folder was never watched")
		write(t, dir, strconv.Itoa(i))
		e.untilRescanned(t, "a", e.rescanned("a")+1)
	}
}

// A lost watch of a folder that appears unchanged (deleted and created again with
// the same inode number, the event lost in an overflow) is renewed.
func TestLostWatchIsRenewed(t *testing.T) {
	e, f, dir := newRecorder(), newFake(), t.TempDir()
	w := quietWatcher(e)
	w.open = f.open
	w.Interval = 50 * time.Millisecond
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	run(t, w)
	e.until(t, "the watch", func() bool { return f.watches(dir) })
	require.NoError(t, f.Remove(dir))
	e.until(t, "the watch renewed", func() bool { return f.watches(dir) })
}

// The watch of a folder that was moved away with its parent is removed, because
// watches are limited.
func TestReplacedFolderReleasesItsWatch(t *testing.T) {
	e, f, top := newRecorder(), newFake(), t.TempDir()
	dir := mkdir(t, top, "ws", "requests")
	w := quietWatcher(e)
	w.open = f.open
	w.Interval = 50 * time.Millisecond
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	run(t, w)
	e.untilRescanned(t, "a", 3)
	require.Zero(t, f.removed(), "renewing removes no watch")
	require.NoError(t, os.Rename(filepath.Join(top, "ws"), filepath.Join(top, "old")))
	mkdir(t, dir)
	e.until(t, "the old watch removed", func() bool { return f.removed() == 1 && f.watches(dir) })
}

func TestMissingFolderIsPolled(t *testing.T) {
	e, dir := newRecorder(), filepath.Join(t.TempDir(), "later")
	w := quietWatcher(e)
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	require.Equal(t, []string{"polling " + dir + ": it is missing"}, notes(w), "noted before Run")
	run(t, w)
	e.untilRescanned(t, "a", 1)
	mkdir(t, dir)
	e.until(t, "a watch", func() bool { return len(notes(w)) == 0 })
	write(t, dir, "x")
	e.untilWoken(t, "a/k/x")
}

// A real overflow: Wake blocks the reader while more files are created than the
// queue holds.
func TestRealOverflow(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	require.NoError(t, err)
	queue, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)

	e, dir, log := newRecorder(), memoryDir(t), new(syncBuffer)
	held, release := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(held); <-release })
	w := quietWatcher(e)
	w.Log = zerolog.New(log)
	w.FloodPerSecond = 1 << 30
	w.Wake = func(group, kind, name string) { hold(); e.wake(group, kind, name) }
	for _, group := range []string{"a", "b"} {
		require.NoError(t, w.Add(Folder{Path: mkdir(t, dir, group), Group: group, Kind: "k"}))
	}
	run(t, w)
	e.untilRescanned(t, "a", 1)
	e.untilRescanned(t, "b", 1)
	a, b := e.rescanned("a"), e.rescanned("b")

	write(t, dir, "a", "first")
	<-held
	for i := range queue + 6000 { // fsnotify reads up to 4,096 ahead
		f, err := os.Create(filepath.Join(dir, "a", strconv.Itoa(i)))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	require.Equal(t, a, e.rescanned("a"), "no Rescan while Wake blocks")
	close(release)
	e.untilRescanned(t, "a", a+1)
	e.untilRescanned(t, "b", b+1) // its events were lost, too
	require.Contains(t, log.String(), "inotify events lost")
}

// After any error all groups are rescanned, but at most once in a poll period.
func TestErrorsCauseRescan(t *testing.T) {
	e, f := newRecorder(), newFake()
	w := quietWatcher(e)
	w.open = f.open
	w.pollEvery = 5 * time.Second // the second round comes after the test
	require.NoError(t, w.Add(Folder{Path: t.TempDir(), Group: "a"}))
	require.NoError(t, w.Add(Folder{Path: t.TempDir(), Group: ""}))
	stop := run(t, w)
	e.untilRescanned(t, "a", 1)
	e.untilRescanned(t, "", 1)
	e.until(t, "the initial rescans", func() bool { return e.rescanned("a") == e.rescanned("") })
	n := e.rescanned("a")
	f.errors <- errors.New("short read")
	e.untilRescanned(t, "a", n+1)
	e.untilRescanned(t, "", n+1)
	for range 100 {
		f.errors <- fsnotify.ErrEventOverflow
	}
	stop()
	require.LessOrEqual(t, e.rescanned("a"), n+2)
}

func TestPollingAfterSourceEnds(t *testing.T) {
	e, f, dir := newRecorder(), newFake(), t.TempDir()
	w := quietWatcher(e)
	w.open = f.open
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	run(t, w)
	e.untilRescanned(t, "a", 1)
	close(f.events)
	e.until(t, "a note", func() bool { return len(notes(w)) > 0 })
	require.Equal(t, []string{"polling " + dir + ": inotify was closed"}, notes(w))
	untilPolled(t, e, dir, "a/k/")
}

// untilPolled creates files until Wake reports one.
func untilPolled(t *testing.T, e *recorder, dir, prefix string) {
	t.Helper()
	i := 0
	e.until(t, "Wake of a polled file", func() bool {
		i++
		write(t, dir, fmt.Sprintf("p%d", i))
		return len(e.wakeKeys(prefix+"p")) > 0
	})
}

func TestPolledFileSystem(t *testing.T) {
	e, f, dir, local := newRecorder(), newFake(), t.TempDir(), t.TempDir()
	w := quietWatcher(e)
	w.open = f.open
	w.fileSystem = func(path string) string {
		if path == local {
			return ""
		}
		return "NFS"
	}
	write(t, dir, "old.json")
	add := Folder{Path: dir, Group: "far", Kind: "k", Suffixes: []string{".json"}}
	require.NoError(t, w.Add(add))
	require.NoError(t, w.Add(Folder{Path: local, Group: "near"}))
	require.Equal(t, []string{"polling " + dir + ": inotify does not reach NFS"}, notes(w))
	run(t, w)
	e.untilRescanned(t, "far", 1)
	require.False(t, f.watches(dir), "no watch on a remote file system")
	require.True(t, f.watches(local))

	write(t, dir, "new.json")
	e.untilWoken(t, "far/k/new.json")
	was := e.woken("far/k/new.json")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new.json"), []byte("longer"), 0o600))
	e.until(t, "Wake of a changed file", func() bool { return e.woken("far/k/new.json") > was })
	require.NoError(t, os.Remove(filepath.Join(dir, "old.json")))
	e.untilWoken(t, "far/k/old.json")
	require.Len(t, e.wakeKeys(""), 2, "only changed names")

	second := t.TempDir()
	add.Path = second
	require.NoError(t, w.Add(add))
	require.Len(t, notes(w), 1, "one line for one reason")
	require.Contains(t, notes(w)[0], " and 1 more: inotify does not reach NFS")
}

// notes is what w.Notes says, without the hints.
func notes(w *Watcher) (texts []string) {
	for _, n := range w.Notes() {
		texts = append(texts, n.Error())
	}
	return texts
}

func TestInotifyLimits(t *testing.T) {
	t.Run("no watches left", func(t *testing.T) {
		e, f, dir := newRecorder(), newFake(), t.TempDir()
		f.refuses(syscall.ENOSPC)
		w := quietWatcher(e)
		w.open = f.open
		require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
		run(t, w)
		e.untilRescanned(t, "a", 1)
		require.Equal(t, []string{"polling " + dir + ": no inotify watches left"}, notes(w))
		require.Equal(t, "raise sysctl fs.inotify.max_user_watches", hints.Of(w.Notes()[0]))
		untilPolled(t, e, dir, "a/k/")

		f.refuses(nil)
		e.until(t, "a watch, as soon as one is free", func() bool { return f.watches(dir) && len(notes(w)) == 0 })
	})
	t.Run("no instance left", func(t *testing.T) {
		e, dir, log := newRecorder(), t.TempDir(), new(syncBuffer)
		w := quietWatcher(e)
		w.Log = zerolog.New(log)
		w.open = func() (*source, error) { return nil, os.NewSyscallError("inotify_init1", syscall.EMFILE) }
		require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
		run(t, w)
		e.untilRescanned(t, "a", 1)
		require.Len(t, notes(w), 1)
		require.Contains(t, hints.Of(w.Notes()[0]), "max_user_instances")
		require.Contains(t, log.String(), "max_user_instances")
		untilPolled(t, e, dir, "a/k/")
	})
}

func TestRemove(t *testing.T) {
	e, f, a, b := newRecorder(), newFake(), t.TempDir(), t.TempDir()
	w := quietWatcher(e)
	w.open = f.open
	w.Interval = 20 * time.Millisecond
	require.NoError(t, w.Add(Folder{Path: a, Group: "a", Kind: "k"}))
	require.NoError(t, w.Add(Folder{Path: b, Group: "b", Kind: "k"}))
	run(t, w)
	e.untilRescanned(t, "a", 1)
	w.Remove("a")
	w.Remove("never there")
	e.until(t, "the watch removed", func() bool { return !f.watches(a) })
	f.events <- fsnotify.Event{Name: filepath.Join(a, "late"), Op: fsnotify.Create}
	e.untilRescanned(t, "b", e.rescanned("b")+2)
	was := e.rescanned("a")
	e.untilRescanned(t, "b", e.rescanned("b")+5)
	require.Equal(t, was, e.rescanned("a"), "no Rescan of a removed group")
	require.Zero(t, e.woken("a/k/late"))

	require.NoError(t, w.Add(Folder{Path: a, Group: "b", Kind: "other"}))
	e.until(t, "watched for another group", func() bool { return f.watches(a) })
	f.events <- fsnotify.Event{Name: filepath.Join(a, "new"), Op: fsnotify.Create}
	e.untilWoken(t, "b/other/new")

	require.NoError(t, w.Add(Folder{Path: a, Group: "b", Kind: "third"}), "adding a path again replaces its Folder")
	e.until(t, "the new kind", func() bool { // the first event may overtake the Add
		f.events <- fsnotify.Event{Name: filepath.Join(a, "new"), Op: fsnotify.Create}
		return e.woken("b/third/new") > 0
	})
}

// The callbacks may call Add without a deadlock, because one goroutine owns the
// watches.
func TestAddFromCallbacks(t *testing.T) {
	e, top := newRecorder(), t.TempDir()
	w := quietWatcher(e)
	w.Wake = func(group, kind, name string) {
		if kind == "workspaces" && name != "made-by-rescan" {
			require.NoError(t, w.Add(Folder{Path: filepath.Join(top, name), Group: name, Kind: "k"}))
		}
		e.wake(group, kind, name)
	}
	w.Rescan = func(group string, changed bool) {
		if group == "" {
			require.NoError(t, w.Add(Folder{Path: mkdir(t, top, "made-by-rescan"), Group: "r", Kind: "k"}))
		}
		e.rescan(group, changed)
	}
	require.NoError(t, w.Add(Folder{Path: top, Kind: "workspaces"}))
	run(t, w)
	e.untilRescanned(t, "r", 1)
	mkdir(t, top, "made-by-agent")
	e.untilRescanned(t, "made-by-agent", 1)
	write(t, top, "made-by-agent", "x")
	e.untilWoken(t, "made-by-agent/k/x")
}

// Slow Rescans: never two of the same group, events continue, and at most maxScans
// at once.
func TestConcurrentRescansAreLimited(t *testing.T) {
	e, f, top := newRecorder(), newFake(), t.TempDir()
	var mu sync.Mutex
	under, most, twice := map[string]int{}, 0, false
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	w := quietWatcher(e)
	w.open = f.open
	w.Rescan = func(group string, changed bool) {
		mu.Lock()
		under[group]++
		twice = twice || under[group] > 1
		n := 0
		for _, u := range under {
			n += u
		}
		most = max(most, n)
		mu.Unlock()
		e.rescan(group, changed)
		<-held
		mu.Lock()
		under[group]--
		mu.Unlock()
	}
	const groups = 20
	for i := range groups {
		name := strconv.Itoa(i)
		require.NoError(t, w.Add(Folder{Path: mkdir(t, top, name), Group: name, Kind: "k"}))
	}
	run(t, w)
	e.until(t, "the maximum of scans", func() bool { mu.Lock(); defer mu.Unlock(); return most == maxScans })
	for i := range 50 {
		f.events <- fsnotify.Event{Name: filepath.Join(top, "7", strconv.Itoa(i)), Op: fsnotify.Create}
		f.errors <- fsnotify.ErrEventOverflow
	}
	e.untilWoken(t, "7/k/49") // the loop continues
	release()
	for i := range groups {
		e.untilRescanned(t, strconv.Itoa(i), 1)
	}
	mu.Lock()
	defer mu.Unlock()
	require.False(t, twice, "two concurrent Rescans of one group")
	require.Equal(t, maxScans, most)
}

// An unreachable server makes a scan hang. It must not delay other groups or the
// end of Run.
func TestHangingRemoteFolders(t *testing.T) {
	e, f, top := newRecorder(), newFake(), t.TempDir()
	release := make(chan struct{})
	defer close(release)
	w := quietWatcher(e)
	w.open = f.open
	w.fileSystem = func(path string) string {
		if strings.Contains(path, "remote") {
			return "NFS"
		}
		return ""
	}
	w.Rescan = func(group string, changed bool) {
		e.rescan(group, changed)
		if strings.HasPrefix(group, "remote") {
			<-release
		}
	}
	for i := range 2 * maxScans {
		name := "remote" + strconv.Itoa(i)
		require.NoError(t, w.Add(Folder{Path: mkdir(t, top, name), Group: name}))
	}
	require.NoError(t, w.Add(Folder{Path: mkdir(t, top, "local"), Group: "local"}))
	stop := run(t, w)
	e.untilRescanned(t, "remote7", 1)
	e.untilRescanned(t, "local", 1)
	stop()
}

func TestFlood(t *testing.T) {
	e, s, top, log := newRecorder(), spy{newFake()}, memoryDir(t), new(syncBuffer)
	bad := filepath.Join(top, "bad", "requests")
	w := quietWatcher(e)
	w.open = s.open
	w.Log = zerolog.New(log)
	w.FloodPerSecond = 200
	for _, f := range []Folder{
		{Group: "bad", Kind: "requests"},
		{Group: "bad", Kind: "decisions", Trusted: true},
		{Group: "good", Kind: "requests"},
	} {
		f.Path = mkdir(t, top, f.Group, f.Kind)
		require.NoError(t, w.Add(f))
	}
	run(t, w)
	e.untilRescanned(t, "bad", 1)
	e.untilRescanned(t, "good", 1)
	tooEarly := false
	s.mu.Lock()
	s.adds = func(path string) {
		if logged := log.String(); path == bad {
			tooEarly = tooEarly || strings.Count(logged, "too many events") > strings.Count(logged, "flood is over")
		}
	}
	s.mu.Unlock()
	rescans := e.rescanned("bad")

	flooded := 0
	e.until(t, "the watch removed", func() bool {
		for ; s.watches(bad) && flooded < 10_000; flooded++ {
			write(t, bad, strconv.Itoa(flooded))
		}
		return !s.watches(bad)
	})
	e.untilRescanned(t, "bad", rescans+1) // a Rescan finds the missed files
	write(t, top, "bad", "decisions", "d")
	e.untilWoken(t, "bad/decisions/d") // a decision is still reported at once
	write(t, top, "good", "requests", "r")
	e.untilWoken(t, "good/requests/r")

	e.until(t, "the watch back", func() bool { return s.watches(bad) })
	e.untilRescanned(t, "bad", rescans+2) // for changes before the new watch
	write(t, bad, "calm")
	e.untilWoken(t, "bad/requests/calm")
	require.Equal(t, 1, strings.Count(log.String(), "too many events"))
	require.Equal(t, 1, strings.Count(log.String(), "flood is over"))
	s.mu.Lock()
	defer s.mu.Unlock()
	require.False(t, tooEarly, "watched again during the flood")
}

func TestTrustedFoldersDoNotFlood(t *testing.T) {
	e, dir, log := newRecorder(), memoryDir(t), new(syncBuffer)
	w := quietWatcher(e)
	w.Log = zerolog.New(log)
	w.FloodPerSecond = 10
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "responses", Trusted: true}))
	run(t, w)
	e.untilRescanned(t, "a", 1)
	for i := range 1000 {
		write(t, dir, strconv.Itoa(i))
	}
	e.untilWoken(t, "a/responses/999")
	require.NotContains(t, log.String(), "too many events", "a burst of the daemon's responses is not a flood")
}

// A flood continues while the rate is above half the limit. After a repeated flood
// the group is polled longer.
func TestFloodHysteresis(t *testing.T) {
	const limit = 100
	now := time.Unix(1000, 0)
	pour := func(f *flood) (rose bool) {
		for range limit + 1 {
			rose = f.exceeds(now, limit) || rose
		}
		return rose
	}
	f := new(flood)
	for range 10 { // ten seconds just below the limit
		for range limit {
			require.False(t, f.exceeds(now, limit))
		}
		now = now.Add(floodWindow)
	}
	require.True(t, pour(f))
	require.False(t, pour(f), "reported once")
	require.False(t, f.ends(now, -1, limit), "no comparison at the first poll")
	require.False(t, f.ends(now, limit, limit), "still too many changes")
	require.True(t, f.ends(now, limit/2, limit))
	require.False(t, f.ends(now, 0, limit), "a flood ends once")
	for _, need := range []int{2, 4, 8, 16, 32, 32} {
		now = now.Add(time.Second)
		require.True(t, pour(f))
		for i := range need - 1 {
			require.False(t, f.ends(now, 0, limit), "a repeated flood needs %d quiet polls, had %d", need, i+1)
		}
		require.True(t, f.ends(now, 0, limit))
	}
	now = now.Add(2 * repeatWindow)
	require.True(t, pour(f))
	require.True(t, f.ends(now, 0, limit), "an old flood does not count")
}

// A folder with more names than a poll reads: if it changed, a Rescan is called.
func TestCrowdedFolder(t *testing.T) {
	dir, e := memoryDir(t), newRecorder()
	for i := range maxNames + 1 {
		require.NoError(t, os.Symlink("x", filepath.Join(dir, strconv.Itoa(i))))
	}
	w := quietWatcher(e)
	f := &folder{Folder: Folder{Path: dir, Group: "a"}}
	runScan := func() *scan {
		k := &scan{group: &group{name: "a"}, polls: []*poll{{folder: f, compare: true, counts: true}}}
		w.runScan(k, func() bool { return false })
		return k
	}
	require.True(t, runScan().rescan, "no comparison at the first listing")
	require.Len(t, f.seen.names, maxNames)
	require.False(t, runScan().rescan)
	require.Equal(t, 1, e.rescanned("a"))
	write(t, dir, "new")
	k := runScan()
	require.True(t, k.rescan)
	require.Equal(t, -1, k.changes, "the number of changes is unknown")
	require.Equal(t, 2, e.rescanned("a"))
}

func TestStopEndsAtOnce(t *testing.T) {
	e := newRecorder()
	w := quietWatcher(e)
	require.NoError(t, w.Add(Folder{Path: t.TempDir(), Group: "a"}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Run(ctx))
}

func (e *recorder) wakeKeys(prefix string) (keys []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key := range e.wakes {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// A syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
