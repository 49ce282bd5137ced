package ipc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

func homeToCopy(t *testing.T) (*Store, *Copy) {
	l := Layout{Home: filepath.Join(t.TempDir(), "home")}
	require.NoError(t, l.PrepareHome(OS()))
	require.NoError(t, l.Prepare(OS(), "w"))
	to := filepath.Join(t.TempDir(), "copy")
	c := &Copy{FS: OS(), From: l, To: to}
	require.NoError(t, c.Prepare())
	return &Store{FS: OS(), Layout: l, JournalSize: 1 << 20}, c
}

// complete makes the copy's last steps.
func complete(t *testing.T, s *Store, c *Copy) {
	t.Helper()
	require.NoError(t, s.Freeze(func() error { return c.Frozen(context.Background()) }))
	require.NoError(t, c.Complete())
}

// pendings commits pending requests, and settles every third of them.
type pendings struct {
	s    *Store
	mu   sync.Mutex
	acks map[string]string // what was committed and not settled, by id
}

func (p *pendings) acknowledged() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.acks)
}

func (p *pendings) write(writer int, stop <-chan struct{}) {
	ctx := context.Background()
	large := strings.Repeat(" ", maxInJournal+1)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		k, b := approval.Key{Workspace: "w", ID: fmt.Sprintf("%08x%08x", writer, i)}, fmt.Sprintf(`{"n":"%d-%d"}`, writer, i)
		if i%10 == 0 {
			b += large
		}
		if p.s.Commit(ctx, store.Put(approval.DocPending, k, []byte(b))) != nil {
			continue // the journal waits for a checkpoint
		}
		if i%3 == 0 && p.s.Commit(ctx, store.Put(approval.DocRecord, k, []byte("{}"))) == nil {
			_ = p.s.Remove(ctx, approval.DocPending, k)
			continue
		}
		p.mu.Lock()
		p.acks[k.ID] = b
		p.mu.Unlock()
	}
}

// The copy has every commit that was acknowledged before its last pass, whatever is
// committed, removed and checkpointed meanwhile.
func TestCopyWhileRunning(t *testing.T) {
	ctx := context.Background()
	s, c := homeToCopy(t)
	release := leased(t, s)
	p := &pendings{s: s, acks: map[string]string{}}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for n := range 3 {
		writers.Go(func() { p.write(n, stop) })
	}
	writers.Go(func() {
		for s.Checkpoint(ctx) == nil {
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for len(p.acknowledged()) < 50 {
		_, err := c.Pass(ctx)
		require.NoError(t, err)
	}
	var promised map[string]string
	require.NoError(t, s.Freeze(func() error {
		promised = p.acknowledged()
		return c.Frozen(ctx)
	}))
	close(stop)
	writers.Wait()
	require.NoError(t, release())
	require.NoError(t, c.Complete())

	restored := &Store{FS: OS(), Layout: Layout{Home: c.To}}
	release = leased(t, restored)
	require.NotEmpty(t, promised)
	for id, want := range promised {
		b, err := restored.Read(ctx, approval.DocPending, approval.Key{Workspace: "w", ID: id})
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	require.NoError(t, release())
}

func TestCopyFollows(t *testing.T) {
	ctx := context.Background()
	s, c := homeToCopy(t)
	release := leased(t, s)
	for _, k := range []approval.Key{testKey(1), testKey(2)} {
		require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, k, []byte("{}"))))
	}
	n, err := c.Pass(ctx)
	require.NoError(t, err)
	require.Positive(t, n)
	n, err = c.Pass(ctx)
	require.NoError(t, err)
	require.Zero(t, n, "nothing has changed")

	// An id that was pruned and is used again has its new document only.
	require.NoError(t, s.Remove(ctx, approval.DocRecord, testKey(1)))
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocPending, testKey(1), []byte("[]"))))
	write(t, filepath.Join(s.Layout.Audit(), "log-1.jsonl"), "a line\n")
	n, err = c.Pass(ctx)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	to := Layout{Home: c.To}
	require.NoFileExists(t, filepath.Join(to.Records("w"), testKey(1).ID+".json"))
	require.FileExists(t, filepath.Join(to.Records("w"), testKey(2).ID+".json"))
	require.FileExists(t, filepath.Join(to.Pendings("w"), testKey(1).ID+".json"))

	complete(t, s, c)
	require.NoError(t, release())
	require.DirExists(t, to.Journal())
	require.NoDirExists(t, filepath.Join(c.To, partialJournal))
}

func testKey(n int) approval.Key {
	return approval.Key{Workspace: "w", ID: fmt.Sprintf("aaaaaaaa%08d", n)}
}

// What was committed and has no file yet is in the copy's journal.
func TestCopyHasWhatOnlyTheJournalHas(t *testing.T) {
	ctx := context.Background()
	s, c := homeToCopy(t)
	release := leased(t, s)
	record := filepath.Join(s.Layout.Records("w"), testKey(1).ID+".json")
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, testKey(1), []byte("{}"))))
	require.NoError(t, os.Remove(record)) // as if it had come to the disk late
	complete(t, s, c)
	require.NoError(t, release())

	restored := &Store{FS: OS(), Layout: Layout{Home: c.To}}
	release = leased(t, restored)
	b, err := restored.Read(ctx, approval.DocRecord, testKey(1))
	require.NoError(t, err)
	require.Equal(t, "{}", string(b))
	require.NoError(t, release())
}

func TestCopyLeavesOut(t *testing.T) {
	s, c := homeToCopy(t)
	l, to := s.Layout, Layout{Home: c.To}
	release := leased(t, s)
	write(t, filepath.Join(l.Run(), "health.json"), "{}")
	write(t, filepath.Join(l.Requests("w"), testKey(1).ID+".json"), "{}")
	write(t, filepath.Join(l.Records("w"), tempPrefix+"1"), "{")
	write(t, filepath.Join(l.Records("w"), largePrefix+"1"), "{}")
	write(t, filepath.Join(l.Pauses(), "w.lock"), "")
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(l.Grants(), "link")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(l.Grants(), "fifo"), 0o600))
	old := time.Now().Add(-time.Hour)
	write(t, filepath.Join(l.Responses("w"), testKey(1).ID+".json"), "{}")
	require.NoError(t, os.Chmod(filepath.Join(l.Responses("w"), testKey(1).ID+".json"), 0o644))
	require.NoError(t, os.Chtimes(filepath.Join(l.Responses("w"), testKey(1).ID+".json"), old, old))
	complete(t, s, c)
	require.NoError(t, release())

	require.Equal(t, []string{"grants/fifo", "grants/link"}, c.Skipped)
	for _, gone := range []string{to.Lock(), to.Run(), to.Ready(), filepath.Join(to.Records("w"), tempPrefix+"1"), filepath.Join(to.Pauses(), "w.lock")} {
		require.NoFileExists(t, gone)
		require.NoDirExists(t, gone)
	}
	require.FileExists(t, filepath.Join(to.Records("w"), largePrefix+"1"), "the journal may refer to it")
	files, err := os.ReadDir(to.Requests("w"))
	require.NoError(t, err)
	require.Empty(t, files)
	for name, mode := range map[string]fs.FileMode{c.To: 0o700, to.Requests("w"): 0o777, to.Responses("w"): 0o755, to.Keys(): 0o700} {
		info, err := os.Lstat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), name)
	}
	info, err := os.Lstat(filepath.Join(to.Responses("w"), testKey(1).ID+".json"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o644), info.Mode())
	require.Less(t, info.ModTime().Sub(old).Abs(), time.Millisecond, "retention counts from it")
}

func TestPrepareCopyRefuses(t *testing.T) {
	l := Layout{Home: filepath.Join(t.TempDir(), "home")}
	require.NoError(t, l.PrepareHome(OS()))
	full := t.TempDir()
	write(t, filepath.Join(full, "file"), "")
	for _, dir := range []string{full, l.Home, filepath.Join(l.Home, "copy"), filepath.Dir(l.Home), filepath.Join(full, "file")} {
		require.Error(t, (&Copy{FS: OS(), From: l, To: dir}).Prepare(), dir)
	}
	nothing := filepath.Join(full, "link")
	require.NoError(t, os.Symlink("nothing", nothing))
	require.ErrorContains(t, (&Copy{FS: OS(), From: l, To: nothing}).Prepare(), "is not a folder")
	require.ErrorContains(t, (&Copy{FS: OS(), From: l, To: filepath.Join(full, "no", "copy")}).Prepare(), "there is no folder "+filepath.Join(full, "no"))
	names, err := os.ReadDir(full)
	require.NoError(t, err)
	require.Len(t, names, 2, "nothing is left in a folder that is refused")
	empty := t.TempDir()
	require.NoError(t, os.Chmod(empty, 0o755))
	require.NoError(t, (&Copy{FS: OS(), From: l, To: empty}).Prepare())
	info, err := os.Lstat(empty)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
}

// Of copies that are made into one folder at once, one is made.
func TestOneCopyForAFolder(t *testing.T) {
	for i := range 100 {
		l := Layout{Home: filepath.Join(t.TempDir(), "home")}
		require.NoError(t, l.PrepareHome(OS()))
		to := filepath.Join(t.TempDir(), "copy")
		if i%2 == 0 {
			require.NoError(t, os.Mkdir(to, 0o700))
		}
		var prepared atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				c := &Copy{FS: OS(), From: l, To: to}
				if c.Prepare() == nil {
					prepared.Add(1)
				} else if c.Discard() != nil {
					prepared.Add(100)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, prepared.Load())
		require.DirExists(t, filepath.Join(to, partialJournal))
	}
}

// A file can get its name while its folder is read: after its new name was passed over, and
// before the old one is looked at.
func TestCopyFindsAFileThatIsRenamed(t *testing.T) {
	s, c := homeToCopy(t)
	release := leased(t, s)
	large := filepath.Join(s.Layout.Records("w"), largePrefix+"1")
	record := filepath.Join(s.Layout.Records("w"), testKey(1).ID+".json")
	write(t, large, "{}")
	c.FS = renamingFS{OS(), large, record}
	complete(t, s, c)
	require.NoError(t, release())
	require.FileExists(t, filepath.Join(Layout{Home: c.To}.Records("w"), testKey(1).ID+".json"))
}

// renamingFS renames a file when it is looked at.
type renamingFS struct {
	FS
	from, to string
}

func (r renamingFS) LstatIfPossible(name string) (fs.FileInfo, bool, error) {
	if name == r.from {
		if err := os.Rename(r.from, r.to); err != nil {
			return nil, false, err
		}
	}
	return r.FS.LstatIfPossible(name)
}

func TestNothingIsCommittedWhileFrozen(t *testing.T) {
	ctx := context.Background()
	s, c := homeToCopy(t)
	release := leased(t, s)
	done := make(chan error, 1)
	require.NoError(t, s.Freeze(func() error {
		last := s.writer().Last()
		go func() { done <- s.Commit(ctx, store.Put(approval.DocPending, testKey(1), []byte("{}"))) }()
		require.Eventually(t, func() bool { return s.firstMissing() == last+1 }, 10*time.Second, time.Millisecond, "it waits for its turn")
		require.NoError(t, c.Frozen(ctx))
		require.Equal(t, last, s.writer().Last())
		return nil
	}))
	require.NoError(t, <-done)
	require.NoError(t, c.Complete())
	require.NoError(t, release())
	require.NoFileExists(t, filepath.Join(Layout{Home: c.To}.Pendings("w"), testKey(1).ID+".json"))
}

// A large folder that has not changed is not read again; one that has is.
func TestCopyReadsOnlyChangedFolders(t *testing.T) {
	ctx := context.Background()
	s, c := homeToCopy(t)
	fsys := &readingFS{FS: OS(), read: map[string]int{}}
	c.FS = fsys
	records, at := s.Layout.Records("w"), Layout{Home: c.To}.Records("w")
	pass := func() {
		_, err := c.Pass(ctx)
		require.NoError(t, err)
	}
	write(t, filepath.Join(records, testKey(1).ID+".json"), "{}")
	pass()
	pass()
	require.Equal(t, 2, fsys.read[records], "it has just changed: more may come at the same time")

	old := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(records, old, old))
	pass()
	pass()
	require.Equal(t, 3, fsys.read[records])
	require.FileExists(t, filepath.Join(at, testKey(1).ID+".json"))

	write(t, filepath.Join(records, testKey(2).ID+".json"), "{}")
	require.NoError(t, os.Remove(filepath.Join(records, testKey(1).ID+".json")))
	pass()
	require.FileExists(t, filepath.Join(at, testKey(2).ID+".json"))
	require.NoFileExists(t, filepath.Join(at, testKey(1).ID+".json"))
}

// readingFS counts how often a folder is opened.
type readingFS struct {
	FS
	read map[string]int
}

func (r *readingFS) Open(name string) (afero.File, error) {
	r.read[name]++
	return r.FS.Open(name)
}

// A copy that failed, at whichever operation, leaves nothing, or what is no HOME.
func TestFailedCopyIsRemoved(t *testing.T) {
	for n := 1; ; n++ {
		s, c := homeToCopy(t)
		release := leased(t, s)
		require.NoError(t, s.Commit(context.Background(), store.Put(approval.DocRecord, testKey(1), []byte("{}"))))
		require.NoError(t, os.RemoveAll(c.To))
		fsys := &limitedFS{FS: OS(), left: n}
		c.FS = fsys
		err := c.Prepare()
		if err == nil {
			err = s.Freeze(func() error { return c.Frozen(context.Background()) })
		}
		if err == nil {
			err = c.Complete()
		}
		require.NoError(t, release())
		if err == nil {
			require.Greater(t, n, 30)
			require.DirExists(t, Layout{Home: c.To}.Journal())
			return
		}
		require.ErrorIs(t, err, syscall.EIO)
		require.Error(t, errors.Join(c.Discard(), err))
		require.NoDirExists(t, Layout{Home: c.To}.Journal(), "without a journal it is no HOME")
		fsys.left = -1
		require.NoError(t, c.Discard())
		require.NoDirExists(t, c.To, "operation %d", n)
	}
}

// limitedFS fails each operation that changes something after some of them, but not removals.
type limitedFS struct {
	FS
	left int // operations that succeed; negative: all
}

func (l *limitedFS) next() error {
	if l.left == 0 {
		return &fs.PathError{Op: "write", Path: "copy", Err: syscall.EIO}
	}
	l.left--
	return nil
}

func (l *limitedFS) Mkdir(name string, mode fs.FileMode) error {
	return cmp.Or(l.next(), l.FS.Mkdir(name, mode))
}

func (l *limitedFS) Chmod(name string, mode fs.FileMode) error {
	return cmp.Or(l.next(), l.FS.Chmod(name, mode))
}

func (l *limitedFS) OpenFile(name string, flag int, mode fs.FileMode) (afero.File, error) {
	if err := l.next(); err != nil {
		return nil, err
	}
	return l.FS.OpenFile(name, flag, mode)
}

func (l *limitedFS) OpenFS(name string) (OpenedFS, error) {
	d, err := l.FS.OpenFS(name)
	return &limitedSync{d, l}, err
}

type limitedSync struct {
	OpenedFS
	fs *limitedFS
}

func (l *limitedSync) Sync() error { return cmp.Or(l.fs.next(), l.OpenedFS.Sync()) }

// What is not the copy's own is not removed, nor is an empty folder that was there before.
func TestDiscardKeepsWhatIsNotItsOwn(t *testing.T) {
	l := Layout{Home: filepath.Join(t.TempDir(), "home")}
	require.NoError(t, l.PrepareHome(OS()))
	full := t.TempDir()
	write(t, filepath.Join(full, "file"), "")
	c := &Copy{FS: OS(), From: l, To: full}
	require.Error(t, c.Prepare())
	require.NoError(t, c.Discard())
	require.FileExists(t, filepath.Join(full, "file"))

	c = &Copy{FS: OS(), From: l, To: t.TempDir()}
	require.NoError(t, c.Prepare())
	_, err := c.Pass(context.Background())
	require.NoError(t, err)
	require.NoError(t, c.Discard())
	names, err := os.ReadDir(c.To)
	require.NoError(t, err)
	require.Empty(t, names)
}
