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
)

func TestWake(t *testing.T) {
	e, dir := newEar(), t.TempDir()
	write(t, dir, "old.json")
	w := quiet(e)
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
		{"vanished", "old.json", func(p string) { require.NoError(t, os.Remove(p)) }},
		{"a folder with such a name is for the caller to refuse", "d.json", func(p string) { mkdir(t, p) }},
		{"a link too: we only know the name", "e.json", func(p string) { require.NoError(t, os.Symlink("/etc/passwd", p)) }},
	}
	for _, tt := range tests {
		require.Zero(t, e.woken("personal/requests/"+tt.name), tt.why)
		tt.do(filepath.Join(dir, tt.name))
		e.untilWoken(t, "personal/requests/"+tt.name)
	}
	was := e.woken("personal/requests/a.json")
	write(t, dir, "a.json")
	e.until(t, "Wake of a changed file", func() bool { return e.woken("personal/requests/a.json") > was })

	// These come before z.json in the queue, so that z.json proves them ignored.
	write(t, dir, ".hidden.json")
	write(t, dir, "notes.txt")
	write(t, dir, "z.json")
	e.untilWoken(t, "personal/requests/z.json")
	for _, key := range e.heardOf("") {
		require.NotContains(t, key, "/.", "dot-names are somebody's unfinished work")
		require.NotContains(t, key, ".txt")
	}
	require.Empty(t, w.Notes())
}

func TestNoSuffixesMeansEveryName(t *testing.T) {
	e, dir := newEar(), t.TempDir()
	w := quiet(e)
	require.NoError(t, w.Add(Folder{Path: dir, Kind: "workspaces"}))
	run(t, w)
	e.untilRescanned(t, "", 1)
	mkdir(t, dir, "fresh")
	e.untilWoken(t, "/workspaces/fresh")
}

func TestAddRefuses(t *testing.T) {
	dir := t.TempDir()
	real := mkdir(t, dir, "real")
	write(t, dir, "file")
	require.NoError(t, os.Symlink(real, filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "dangling")))
	w := quiet(newEar())
	for name, why := range map[string]string{
		"link":     "fsnotify would follow it to a folder of somebody's choice",
		"dangling": "it may point somewhere tomorrow",
		"file":     "fsnotify would watch it, and tell us nothing",
	} {
		require.ErrorIs(t, w.Add(Folder{Path: filepath.Join(dir, name)}), ErrNotFolder, why)
	}
	require.ErrorIs(t, w.Add(Folder{Path: filepath.Join(dir, "file", "below")}), syscall.ENOTDIR)
	require.Empty(t, w.changes(), "a refused folder must not reach the loop")
	require.Empty(t, w.Notes())
}

func TestRunRefusesWithoutEars(t *testing.T) {
	e := newEar()
	require.Error(t, (&Watcher{Wake: e.wake}).Run(t.Context()))
	require.Error(t, (&Watcher{Rescan: e.rescan}).Run(t.Context()))
}

func TestFolderSwappedForLink(t *testing.T) {
	e, f, top, secret := newEar(), newFake(), t.TempDir(), t.TempDir()
	dir := mkdir(t, top, "requests")
	w := quiet(e)
	w.open = f.open
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	run(t, w)
	e.untilRescanned(t, "a", 1)
	require.True(t, f.watches(dir))

	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Symlink(secret, dir))
	f.events <- fsnotify.Event{Name: dir, Op: fsnotify.Remove}
	e.until(t, "a note about the link", func() bool { return len(w.Notes()) > 0 })
	require.Equal(t, []string{"ignoring " + dir + ": not a folder (symbolic links are refused)"}, w.Notes())
	write(t, secret, "private")
	require.Empty(t, list(&Folder{Path: dir}).names, "nothing may be listed through a link")

	require.NoError(t, os.Remove(dir))
	mkdir(t, dir)
	e.until(t, "the real folder watched again", func() bool { return f.watches(dir) && len(w.Notes()) == 0 })
	require.Zero(t, e.woken("a/k/private"))
}

// Each way a watch can vanish without a sound, with the real inotify.
func TestFolderMadeAgain(t *testing.T) {
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
			e, top := newEar(), t.TempDir()
			dir := mkdir(t, top, "requests")
			w := quiet(e)
			require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
			run(t, w)
			e.untilRescanned(t, "a", 1)
			tt.lose(top, dir)
			e.until(t, "a note that it is missing", func() bool { return len(w.Notes()) > 0 })
			require.Equal(t, []string{"polling " + dir + ": it is missing"}, w.Notes())

			before := e.rescanned("a")
			mkdir(t, dir)
			e.until(t, "a new watch", func() bool { return len(w.Notes()) == 0 })
			e.untilRescanned(t, "a", before+1) // for what came before the new watch
			write(t, dir, "new.json")
			e.untilWoken(t, "a/k/new.json")
		})
	}
}

// No event tells that a parent was exchanged: the watch stays, on a folder that
// is not at the path any more. Only the timer can find out.
func TestParentExchanged(t *testing.T) {
	e, top := newEar(), t.TempDir()
	dir := mkdir(t, top, "ws", "requests")
	w := quiet(e)
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

// A watch that is lost while the folder looks the same (deleted and made again
// with the same inode number, the event lost in an overflow) is renewed.
func TestLostWatchIsRenewed(t *testing.T) {
	e, f, dir := newEar(), newFake(), t.TempDir()
	w := quiet(e)
	w.open = f.open
	w.Interval = 50 * time.Millisecond
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	run(t, w)
	e.until(t, "the watch", func() bool { return f.watches(dir) })
	require.NoError(t, f.Remove(dir))
	e.until(t, "the watch renewed", func() bool { return f.watches(dir) })
}

// The watch of a folder that was moved away with its parent is given back: there
// are not many.
func TestExchangedFolderGivesItsWatchBack(t *testing.T) {
	e, f, top := newEar(), newFake(), t.TempDir()
	dir := mkdir(t, top, "ws", "requests")
	w := quiet(e)
	w.open = f.open
	w.Interval = 50 * time.Millisecond
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	run(t, w)
	e.untilRescanned(t, "a", 3)
	require.Zero(t, f.removed(), "renewing is not removing")
	require.NoError(t, os.Rename(filepath.Join(top, "ws"), filepath.Join(top, "old")))
	mkdir(t, dir)
	e.until(t, "the old watch removed", func() bool { return f.removed() == 1 && f.watches(dir) })
}

func TestMissingFolderIsAwaited(t *testing.T) {
	e, dir := newEar(), filepath.Join(t.TempDir(), "later")
	w := quiet(e)
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	require.Equal(t, []string{"polling " + dir + ": it is missing"}, w.Notes(), "said before Run too")
	run(t, w)
	e.untilRescanned(t, "a", 1)
	mkdir(t, dir)
	e.until(t, "a watch", func() bool { return len(w.Notes()) == 0 })
	write(t, dir, "x")
	e.untilWoken(t, "a/k/x")
}

// The kernel's own overflow: the reader is held in Wake while more is written
// than the queue holds.
func TestRealOverflow(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	require.NoError(t, err)
	queue, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)

	e, dir, log := newEar(), memoryDir(t), new(syncBuffer)
	held, release := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(held); <-release })
	w := quiet(e)
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
	require.Equal(t, a, e.rescanned("a"), "it is held, nothing may have been said")
	close(release)
	e.untilRescanned(t, "a", a+1)
	e.untilRescanned(t, "b", b+1) // its events were lost as well
	require.Contains(t, log.String(), "events were lost")
}

// After any error all groups are looked at, but not more than once a poll period.
func TestErrorsMeanRescan(t *testing.T) {
	e, f := newEar(), newFake()
	w := quiet(e)
	w.open = f.open
	w.pollEvery = 5 * time.Second // the second round comes after the test
	require.NoError(t, w.Add(Folder{Path: t.TempDir(), Group: "a"}))
	require.NoError(t, w.Add(Folder{Path: t.TempDir(), Group: ""}))
	stop := run(t, w)
	e.untilRescanned(t, "a", 1)
	e.untilRescanned(t, "", 1)
	e.until(t, "rest", func() bool { return e.rescanned("a") == e.rescanned("") })
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

func TestSourceThatEndsIsPolled(t *testing.T) {
	e, f, dir := newEar(), newFake(), t.TempDir()
	w := quiet(e)
	w.open = f.open
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
	run(t, w)
	e.untilRescanned(t, "a", 1)
	close(f.events)
	e.until(t, "a note", func() bool { return len(w.Notes()) > 0 })
	require.Equal(t, []string{"polling " + dir + ": inotify was closed"}, w.Notes())
	untilPolled(t, e, dir, "a/k/")
}

// untilPolled makes files until one of them is heard of by its name.
func untilPolled(t *testing.T, e *ear, dir, prefix string) {
	t.Helper()
	i := 0
	e.until(t, "Wake of a polled file", func() bool {
		i++
		write(t, dir, fmt.Sprintf("p%d", i))
		return len(e.heardOf(prefix+"p")) > 0
	})
}

func TestPolledFileSystem(t *testing.T) {
	e, f, dir, local := newEar(), newFake(), t.TempDir(), t.TempDir()
	w := quiet(e)
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
	require.Equal(t, []string{"polling " + dir + ": inotify does not reach NFS"}, w.Notes())
	run(t, w)
	e.untilRescanned(t, "far", 1)
	require.False(t, f.watches(dir), "a watch there would promise what it cannot keep")
	require.True(t, f.watches(local))

	write(t, dir, "new.json")
	e.untilWoken(t, "far/k/new.json")
	was := e.woken("far/k/new.json")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new.json"), []byte("longer"), 0o600))
	e.until(t, "Wake of a changed file", func() bool { return e.woken("far/k/new.json") > was })
	require.NoError(t, os.Remove(filepath.Join(dir, "old.json")))
	e.untilWoken(t, "far/k/old.json")
	require.Len(t, e.heardOf(""), 2, "only what changed is woken")

	second := t.TempDir()
	add.Path = second
	require.NoError(t, w.Add(add))
	require.Len(t, w.Notes(), 1, "one line for one reason")
	require.Contains(t, w.Notes()[0], " and 1 more: inotify does not reach NFS")
}

func TestInotifyLimits(t *testing.T) {
	t.Run("no watches left", func(t *testing.T) {
		e, f, dir := newEar(), newFake(), t.TempDir()
		f.refuses(syscall.ENOSPC)
		w := quiet(e)
		w.open = f.open
		require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
		run(t, w)
		e.untilRescanned(t, "a", 1)
		require.Equal(t, []string{"polling " + dir + ": no inotify watches left (hint: raise sysctl fs.inotify.max_user_watches)"}, w.Notes())
		untilPolled(t, e, dir, "a/k/")

		f.refuses(nil)
		e.until(t, "a watch, now that there is one", func() bool { return f.watches(dir) && len(w.Notes()) == 0 })
	})
	t.Run("no instance left", func(t *testing.T) {
		e, dir, log := newEar(), t.TempDir(), new(syncBuffer)
		w := quiet(e)
		w.Log = zerolog.New(log)
		w.open = func() (*source, error) { return nil, os.NewSyscallError("inotify_init1", syscall.EMFILE) }
		require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "k"}))
		run(t, w)
		e.untilRescanned(t, "a", 1)
		require.Len(t, w.Notes(), 1)
		require.Contains(t, w.Notes()[0], "max_user_instances")
		require.Contains(t, log.String(), "max_user_instances")
		untilPolled(t, e, dir, "a/k/")
	})
}

func TestRemove(t *testing.T) {
	e, f, a, b := newEar(), newFake(), t.TempDir(), t.TempDir()
	w := quiet(e)
	w.open = f.open
	w.Interval = 20 * time.Millisecond
	require.NoError(t, w.Add(Folder{Path: a, Group: "a", Kind: "k"}))
	require.NoError(t, w.Add(Folder{Path: b, Group: "b", Kind: "k"}))
	run(t, w)
	e.untilRescanned(t, "a", 1)
	w.Remove("a")
	w.Remove("never there")
	e.until(t, "the watch taken away", func() bool { return !f.watches(a) })
	f.events <- fsnotify.Event{Name: filepath.Join(a, "late"), Op: fsnotify.Create}
	e.untilRescanned(t, "b", e.rescanned("b")+2)
	was := e.rescanned("a")
	e.untilRescanned(t, "b", e.rescanned("b")+5)
	require.Equal(t, was, e.rescanned("a"), "a removed group is left alone")
	require.Zero(t, e.woken("a/k/late"))

	require.NoError(t, w.Add(Folder{Path: a, Group: "b", Kind: "other"}))
	e.until(t, "watched for another group", func() bool { return f.watches(a) })
	f.events <- fsnotify.Event{Name: filepath.Join(a, "new"), Op: fsnotify.Create}
	e.untilWoken(t, "b/other/new")

	require.NoError(t, w.Add(Folder{Path: a, Group: "b", Kind: "third"}), "the same path again replaces")
	e.until(t, "the new kind", func() bool { // the first event may overtake the Add
		f.events <- fsnotify.Event{Name: filepath.Join(a, "new"), Op: fsnotify.Create}
		return e.woken("b/third/new") > 0
	})
}

// One goroutine owns the watches, so the callbacks may call Add without meeting
// themselves.
func TestAddFromCallbacks(t *testing.T) {
	e, top := newEar(), t.TempDir()
	w := quiet(e)
	w.Wake = func(group, kind, name string) {
		if kind == "workspaces" && name != "made-by-rescan" {
			require.NoError(t, w.Add(Folder{Path: filepath.Join(top, name), Group: name, Kind: "k"}))
		}
		e.wake(group, kind, name)
	}
	w.Rescan = func(group string) {
		if group == "" {
			require.NoError(t, w.Add(Folder{Path: mkdir(t, top, "made-by-rescan"), Group: "r", Kind: "k"}))
		}
		e.rescan(group)
	}
	require.NoError(t, w.Add(Folder{Path: top, Kind: "workspaces"}))
	run(t, w)
	e.untilRescanned(t, "r", 1)
	mkdir(t, top, "made-by-agent")
	e.untilRescanned(t, "made-by-agent", 1)
	write(t, top, "made-by-agent", "x")
	e.untilWoken(t, "made-by-agent/k/x")
}

// A Rescan that takes long: no second one of its group, no end of events, and at
// most mostLooks at once.
func TestRescansAreBounded(t *testing.T) {
	e, f, top := newEar(), newFake(), t.TempDir()
	var mu sync.Mutex
	under, most, twice := map[string]int{}, 0, false
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	w := quiet(e)
	w.open = f.open
	w.Rescan = func(group string) {
		mu.Lock()
		under[group]++
		twice = twice || under[group] > 1
		n := 0
		for _, u := range under {
			n += u
		}
		most = max(most, n)
		mu.Unlock()
		e.rescan(group)
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
	e.until(t, "looks at work", func() bool { mu.Lock(); defer mu.Unlock(); return most == mostLooks })
	for i := range 50 {
		f.events <- fsnotify.Event{Name: filepath.Join(top, "7", strconv.Itoa(i)), Op: fsnotify.Create}
		f.errors <- fsnotify.ErrEventOverflow
	}
	e.untilWoken(t, "7/k/49") // the loop goes on
	release()
	for i := range groups {
		e.untilRescanned(t, strconv.Itoa(i), 1)
	}
	mu.Lock()
	defer mu.Unlock()
	require.False(t, twice, "two Rescans of one group at once")
	require.Equal(t, mostLooks, most)
}

// A dead server makes a look hang for ever: it costs the others nothing, nor the
// end of Run.
func TestHangingRemoteFolders(t *testing.T) {
	e, f, top := newEar(), newFake(), t.TempDir()
	release := make(chan struct{})
	defer close(release)
	w := quiet(e)
	w.open = f.open
	w.fileSystem = func(path string) string {
		if strings.Contains(path, "remote") {
			return "NFS"
		}
		return ""
	}
	w.Rescan = func(group string) {
		e.rescan(group)
		if strings.HasPrefix(group, "remote") {
			<-release
		}
	}
	for i := range 2 * mostLooks {
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
	e, s, top, log := newEar(), spy{newFake()}, memoryDir(t), new(syncBuffer)
	bad := filepath.Join(top, "bad", "requests")
	w := quiet(e)
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
	early := false
	s.mu.Lock()
	s.adds = func(path string) {
		if said := log.String(); path == bad {
			early = early || strings.Count(said, "too many events") > strings.Count(said, "flood is over")
		}
	}
	s.mu.Unlock()
	rescans := e.rescanned("bad")

	flooded := 0
	e.until(t, "the watch taken away", func() bool {
		for ; s.watches(bad) && flooded < 10_000; flooded++ {
			write(t, bad, strconv.Itoa(flooded))
		}
		return !s.watches(bad)
	})
	e.untilRescanned(t, "bad", rescans+1) // what was not heard is looked for
	write(t, top, "bad", "decisions", "d")
	e.untilWoken(t, "bad/decisions/d") // a person's decision is still heard at once
	write(t, top, "good", "requests", "r")
	e.untilWoken(t, "good/requests/r")

	e.until(t, "the watch back", func() bool { return s.watches(bad) })
	e.untilRescanned(t, "bad", rescans+2) // for what came before the new watch
	write(t, bad, "calm")
	e.untilWoken(t, "bad/requests/calm")
	require.Equal(t, 1, strings.Count(log.String(), "too many events"))
	require.Equal(t, 1, strings.Count(log.String(), "flood is over"))
	s.mu.Lock()
	defer s.mu.Unlock()
	require.False(t, early, "watched again while the flood was on")
}

func TestTrustedFoldersDoNotFlood(t *testing.T) {
	e, dir, log := newEar(), memoryDir(t), new(syncBuffer)
	w := quiet(e)
	w.Log = zerolog.New(log)
	w.FloodPerSecond = 10
	require.NoError(t, w.Add(Folder{Path: dir, Group: "a", Kind: "responses", Trusted: true}))
	run(t, w)
	e.untilRescanned(t, "a", 1)
	for i := range 1000 {
		write(t, dir, strconv.Itoa(i))
	}
	e.untilWoken(t, "a/responses/999")
	require.NotContains(t, log.String(), "too many events", "the gate's own burst of answers is no flood")
}

// A flood goes on while files come faster than half the limit, and a group that
// relapses stays polled longer.
func TestFloodHysteresis(t *testing.T) {
	const limit = 100
	now := time.Unix(1000, 0)
	pour := func(f *flood) (rose bool) {
		for range limit + 1 {
			rose = f.rises(now, limit) || rose
		}
		return rose
	}
	f := new(flood)
	for range 10 { // ten seconds just below the limit
		for range limit {
			require.False(t, f.rises(now, limit))
		}
		now = now.Add(floodWindow)
	}
	require.True(t, pour(f))
	require.False(t, pour(f), "it is said once")
	require.False(t, f.ebbs(now, -1, limit), "the first poll has nothing to compare with")
	require.False(t, f.ebbs(now, limit, limit), "still too much")
	require.True(t, f.ebbs(now, limit/2, limit))
	require.False(t, f.ebbs(now, 0, limit), "what is over does not end again")
	for _, need := range []int{2, 4, 8, 16, 32, 32} {
		now = now.Add(time.Second)
		require.True(t, pour(f))
		for i := range need - 1 {
			require.False(t, f.ebbs(now, 0, limit), "relapse wants %d calm polls, had %d", need, i+1)
		}
		require.True(t, f.ebbs(now, 0, limit))
	}
	now = now.Add(2 * relapseWithin)
	require.True(t, pour(f))
	require.True(t, f.ebbs(now, 0, limit), "long ago is forgiven")
}

// A folder with more names than a poll reads: what the list cannot say, a Rescan
// must find, but only when the folder changed.
func TestCrowdedFolder(t *testing.T) {
	dir, e := memoryDir(t), newEar()
	for i := range mostNames + 1 {
		require.NoError(t, os.Symlink("x", filepath.Join(dir, strconv.Itoa(i))))
	}
	w := quiet(e)
	f := &folder{Folder: Folder{Path: dir, Group: "a"}}
	glance := func() *look {
		k := &look{group: &group{name: "a"}, polls: []*poll{{folder: f, compare: true, counts: true}}}
		w.do(k, func() bool { return false })
		return k
	}
	require.True(t, glance().full, "the first list has nothing to compare with")
	require.Len(t, f.seen.names, mostNames)
	require.False(t, glance().full)
	require.Equal(t, 1, e.rescanned("a"))
	write(t, dir, "new")
	k := glance()
	require.True(t, k.full)
	require.Equal(t, -1, k.change, "how much changed is unknown")
	require.Equal(t, 2, e.rescanned("a"))
}

func TestStopEndsAtOnce(t *testing.T) {
	e := newEar()
	w := quiet(e)
	require.NoError(t, w.Add(Folder{Path: t.TempDir(), Group: "a"}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Run(ctx))
}

func (e *ear) heardOf(prefix string) (keys []string) {
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
