package crashfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// Proc has the methods of ipc.FS.
var _ interface {
	afero.Fs
	RenameNoReplace(oldname, newname string) error
	SyncDir(name string) error
	SyncFS(name string) error
	TryLock(name string) (crashfs.Lock, error)
	ReadFile(name string, limit int64) ([]byte, error)
	Free(name string) (bytes, inodes uint64, err error)
} = (*crashfs.Proc)(nil)

var errIO = errors.New("input/output error")

func failing(kind crashfs.Kind) func(crashfs.Op) error {
	return func(op crashfs.Op) error {
		if op.Kind == kind {
			return errIO
		}
		return nil
	}
}

func TestFailedFsyncIsPermanent(t *testing.T) {
	d := diskAfter(t, put("/a", "old"), syncFS(), put("/a", "new"))
	f, err := d.Process("p").OpenFile("/a", os.O_RDWR, 0)
	require.NoError(t, err)

	d.Fail = failing(crashfs.OpSync)
	err = f.Sync()
	require.ErrorIs(t, err, errIO)
	require.ErrorAs(t, err, new(*fs.PathError))

	d.Fail = nil
	require.NoError(t, f.Sync(), "the pages count as clean now")
	require.Equal(t, "/a=new", seen(d), "still visible")
	require.Equal(t, "/a=old", seen(d.Cut(crashfs.NamesNotData)), "and lost by a power cut")

	syncFS()(t, d.Process("p"))
	require.Equal(t, "/a=old", seen(d.Cut(crashfs.OnlySynced)), "syncfs does not write clean pages either")
	restarted := d.Kill()
	syncFS()(t, restarted.Process("q"))
	require.Equal(t, "/a=old", seen(restarted.Cut(crashfs.OnlySynced)), "nor does a new process: the kernel is the same")

	rebooted := d.Cut(crashfs.Everything)
	put("/a", "third")(t, rebooted.Process("p"))
	fsync("/a")(t, rebooted.Process("p"))
	require.Equal(t, "/a=third", seen(rebooted.Cut(crashfs.OnlySynced)), "a reboot clears the error")

	put("/b", "new")(t, d.Process("p"))
	fsync("/b")(t, d.Process("p"))
	replace("/b", "/a")(t, d.Process("p"))
	syncDir("/")(t, d.Process("p"))
	require.Equal(t, "/a=new", seen(d.Cut(crashfs.OnlySynced)), "a new file becomes durable")
}

func TestFailedFsyncOfCleanFileLosesNothing(t *testing.T) {
	d := diskAfter(t, put("/a", "1"), syncFS())
	f, err := d.Process("p").OpenFile("/a", os.O_RDWR, 0)
	require.NoError(t, err)
	d.Fail = failing(crashfs.OpSync)
	require.ErrorIs(t, f.Sync(), errIO)
	d.Fail = nil
	put("/a", "2")(t, d.Process("p"))
	require.NoError(t, f.Sync())
	require.Equal(t, "/a=2", seen(d.Cut(crashfs.OnlySynced)))
}

func TestFailedSyncFSLosesUnsyncedData(t *testing.T) {
	d := diskAfter(t, put("/a", "1"))
	d.Fail = failing(crashfs.OpSyncFS)
	require.ErrorIs(t, d.Process("p").SyncFS("/"), errIO)
	d.Fail = nil
	syncFS()(t, d.Process("p"))
	require.Equal(t, "/a=", seen(d.Cut(crashfs.OnlySynced)), "the second SyncFS makes only the name durable")
}

func TestFailedSyncDirIsPermanent(t *testing.T) {
	d := diskAfter(t, put("/a", "1"), fsync("/a"))
	d.Fail = failing(crashfs.OpSyncDir)
	require.ErrorIs(t, d.Process("p").SyncDir("/"), errIO)
	d.Fail = nil
	syncDir("/")(t, d.Process("p"))
	require.Empty(t, seen(d.Cut(crashfs.OnlySynced)), "the second SyncDir has no effect")
	syncFS()(t, d.Process("p"))
	require.Equal(t, "/a=1", seen(d.Cut(crashfs.OnlySynced)), "SyncFS makes the name durable")
}

func TestSyncDirThatCouldNotOpenLosesNothing(t *testing.T) {
	d := diskAfter(t, put("/a", "1"), fsync("/a"))
	d.Fail = func(crashfs.Op) error { return syscall.EMFILE }
	require.ErrorIs(t, d.Process("p").SyncDir("/"), syscall.EMFILE)
	d.Fail = nil
	syncDir("/")(t, d.Process("p"))
	require.Equal(t, "/a=1", seen(d.Cut(crashfs.OnlySynced)))
}

func TestShortWriteWritesHalf(t *testing.T) {
	d := diskAfter(t, put("/a", ""))
	f, err := d.Process("p").OpenFile("/a", os.O_WRONLY, 0)
	require.NoError(t, err)
	d.Fail = func(crashfs.Op) error { return crashfs.Short{Err: syscall.ENOSPC} }
	n, err := f.Write([]byte("1234"))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 2, n)
	require.Equal(t, "/a=12", seen(d.Kill()))
}

func TestInjectedFailureTakesNoEffect(t *testing.T) {
	tests := []struct {
		kind crashfs.Kind
		do   func(p *crashfs.Proc) error
	}{
		{crashfs.OpCreate, func(p *crashfs.Proc) error { _, err := p.Create("/new"); return err }},
		{crashfs.OpMkdir, func(p *crashfs.Proc) error { return p.MkdirAll("/new", 0o700) }},
		{crashfs.OpRemove, func(p *crashfs.Proc) error { return p.RemoveAll("/d") }},
		{crashfs.OpRename, func(p *crashfs.Proc) error { return p.Rename("/a", "/b") }},
		{crashfs.OpRename, func(p *crashfs.Proc) error { return p.RenameNoReplace("/a", "/b") }},
		{crashfs.OpTruncate, func(p *crashfs.Proc) error { _, err := p.Create("/a"); return err }},
		{crashfs.OpStat, func(p *crashfs.Proc) error { _, err := p.Stat("/a"); return err }},
		{crashfs.OpOpen, func(p *crashfs.Proc) error { _, err := p.Open("/a"); return err }},
		{crashfs.OpLock, func(p *crashfs.Proc) error { _, err := p.TryLock("/a"); return err }},
		{crashfs.OpWrite, func(p *crashfs.Proc) error {
			f, err := p.OpenFile("/a", os.O_WRONLY, 0)
			if err != nil {
				return fmt.Errorf("unexpected error before the write: %s", err.Error())
			}
			_, err = f.Write([]byte("2"))
			return err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.kind.String(), func(t *testing.T) {
			d := diskAfter(t, mkdir("/d"), put("/d/x", "x"), put("/a", "1"))
			before := d.Hash()
			d.Fail = failing(tt.kind)
			require.ErrorIs(t, tt.do(d.Process("p")), errIO)
			require.Equal(t, before, d.Hash())
			d.Fail = nil
			require.NoError(t, tt.do(d.Process("p")), "it succeeds without the injected error")
		})
	}
}

func TestHooksSeeEveryOperation(t *testing.T) {
	d := diskAfter(t, put("/old", "1"))
	var got []string
	start := d.Ops()
	note := func(op crashfs.Op) {
		op.N -= start
		got = append(got, op.String())
		d.Snapshot() // would deadlock if the disk were locked
	}
	d.Before, d.BeforeRead = note, note
	p := d.Process("gate")
	require.NoError(t, p.MkdirAll("/r/w", 0o700))
	require.NoError(t, p.MkdirAll("/r/w", 0o700))
	f, err := p.OpenFile("/r/w/.t", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString("x")
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Truncate(0))
	require.NoError(t, f.Close())
	require.NoError(t, p.RenameNoReplace("/r/w/.t", "/r/w/a"))
	require.NoError(t, p.SyncDir("/r/w"))
	require.NoError(t, p.RemoveAll("/r"))
	require.NoError(t, p.SyncFS("/"))
	_, err = p.Create("/old")
	require.NoError(t, err)
	_, err = p.OpenFile("/old", os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	_, err = p.Stat("/old")
	require.NoError(t, err)
	require.NoError(t, p.Chmod("/old", 0o644))
	require.Equal(t, []string{
		"#1 gate: mkdir /r", "#2 gate: mkdir /r/w", "#3 gate: create /r/w/.t", "#4 gate: write /r/w/.t",
		"#5 gate: sync /r/w/.t", "#6 gate: truncate /r/w/.t", "#7 gate: rename /r/w/.t -> /r/w/a",
		"#8 gate: syncdir /r/w", "#9 gate: remove /r/w/a", "#10 gate: remove /r/w", "#11 gate: remove /r",
		"#12 gate: syncfs /", "#13 gate: truncate /old", "#13 gate: open /old", "#13 gate: stat /old",
	}, got)
	require.Equal(t, 13, d.Ops()-start)
	require.Equal(t, 1, d.Count(crashfs.OpSync))
	require.Equal(t, 3, d.Count(crashfs.OpRemove))
	require.Zero(t, d.Snapshot().Ops())
	require.Zero(t, d.Count(200))
	require.Equal(t, "kind(200)", crashfs.Kind(200).String())
}

// Another process may create the file while the hook waits. Then the open is another kind
// of operation, and is announced again as that.
func TestOpenIsAnnouncedAsWhatItDoes(t *testing.T) {
	d := crashfs.New()
	var kinds []string
	note := func(op crashfs.Op) {
		if op.Proc != "slow" {
			return
		}
		kinds = append(kinds, op.Kind.String())
		if op.Kind == crashfs.OpCreate {
			put("/a", "fast")(t, d.Process("fast"))
		}
	}
	d.Before, d.BeforeRead = note, note
	_, err := d.Process("slow").Create("/a")
	require.NoError(t, err)
	require.Equal(t, []string{"create", "truncate"}, kinds)
	require.Equal(t, "/a=", seen(d))
}

func TestKill(t *testing.T) {
	d := diskAfter(t, put("/a", "1"))
	p, other := d.Process("p"), d.Process("other")
	f, err := p.OpenFile("/a", os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = p.TryLock("/lock")
	require.NoError(t, err)
	_, err = other.TryLock("/lock")
	require.ErrorIs(t, err, crashfs.ErrLocked)
	ops := d.Ops()

	p.Kill()
	held, err := other.TryLock("/lock")
	require.NoError(t, err, "its locks are released")
	b := make([]byte, 1)
	attempts := map[string]func() error{
		"create":    func() error { _, err := p.Create("/b"); return err },
		"open":      func() error { _, err := p.Open("/a"); return err },
		"mkdir":     func() error { return p.Mkdir("/d", 0o700) },
		"mkdirall":  func() error { return p.MkdirAll("/d", 0o700) },
		"remove":    func() error { return p.Remove("/a") },
		"removeall": func() error { return p.RemoveAll("/a") },
		"rename":    func() error { return p.Rename("/a", "/b") },
		"noreplace": func() error { return p.RenameNoReplace("/a", "/b") },
		"syncdir":   func() error { return p.SyncDir("/") },
		"syncfs":    func() error { return p.SyncFS("/") },
		"stat":      func() error { _, err := p.Stat("/a"); return err },
		"chmod":     func() error { return p.Chmod("/a", 0) },
		"lock":      func() error { _, err := p.TryLock("/lock2"); return err },
		"f.read":    func() error { _, err := f.Read(b); return err },
		"f.readat":  func() error { _, err := f.ReadAt(b, 0); return err },
		"f.write":   func() error { _, err := f.Write(b); return err },
		"f.seek":    func() error { _, err := f.Seek(0, 0); return err },
		"f.trunc":   func() error { return f.Truncate(0) },
		"f.sync":    func() error { return f.Sync() },
		"f.stat":    func() error { _, err := f.Stat(); return err },
		"f.close":   func() error { return f.Close() },
	}
	for name, attempt := range attempts {
		require.ErrorIs(t, attempt(), crashfs.ErrKilled, name)
	}
	require.Equal(t, ops, d.Ops(), "a killed process announces nothing")
	require.Equal(t, "/a=1 /lock=", seen(d))
	require.NoError(t, held.Close())
}

func TestKilledWhileWaitingTakesNoEffect(t *testing.T) {
	d := diskAfter(t, put("/a", "1"))
	p := d.Process("p")
	d.Before = func(crashfs.Op) { p.Kill() }
	require.ErrorIs(t, p.Remove("/a"), crashfs.ErrKilled)
	require.Equal(t, "/a=1", seen(d))
}

func TestLock(t *testing.T) {
	d := crashfs.New()
	p, q := d.Process("p"), d.Process("q")
	held, err := p.TryLock("/lock")
	require.NoError(t, err)
	require.Equal(t, "/lock=", seen(d), "it creates the file")
	_, err = p.TryLock("/lock")
	require.ErrorIs(t, err, crashfs.ErrLocked, "exclusive within a process too")
	require.ErrorAs(t, err, new(*fs.PathError))
	_, err = d.Snapshot().Process("q").TryLock("/lock")
	require.NoError(t, err, "a snapshot has no locks")
	require.NoError(t, held.Close())
	again, err := q.TryLock("/lock")
	require.NoError(t, err)
	require.NoError(t, held.Close(), "a second close")
	_, err = p.TryLock("/lock")
	require.ErrorIs(t, err, crashfs.ErrLocked, "it does not release another holder's lock")
	require.NoError(t, again.Close())
	_, err = p.TryLock("/none/lock")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestOneWinner(t *testing.T) {
	const contenders = 4
	races := map[string]func(p *crashfs.Proc, temp string) error{
		"rename":    func(p *crashfs.Proc, temp string) error { return p.RenameNoReplace(temp, "/slot") },
		"exclusive": func(p *crashfs.Proc, _ string) error { return exclusive(p, "/slot") },
		"mkdir":     func(p *crashfs.Proc, _ string) error { return p.Mkdir("/slot", 0o700) },
	}
	for name, race := range races {
		t.Run(name, func(t *testing.T) {
			for range 300 {
				errs := runRace(t, crashfs.New(), contenders, race)
				lost := 0
				for _, err := range errs {
					if err != nil {
						require.ErrorIs(t, err, fs.ErrExist)
						lost++
					}
				}
				require.Equal(t, contenders-1, lost)
			}
		})
	}
	t.Run("the mutant has several winners", func(t *testing.T) {
		d := crashfs.New()
		d.ReplaceOnNoReplace = true
		for _, err := range runRace(t, d, contenders, races["rename"]) {
			require.NoError(t, err)
		}
	})
}

func exclusive(p *crashfs.Proc, name string) error {
	_, err := p.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return err
}

func runRace(t *testing.T, d *crashfs.Disk, contenders int, race func(p *crashfs.Proc, temp string) error) []error {
	errs := make([]error, contenders)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range contenders {
		p, temp := d.Process(fmt.Sprint(i)), fmt.Sprintf("/t%d", i)
		put(temp, "x")(t, p)
		wg.Go(func() {
			<-start
			errs[i] = race(p, temp)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// Concurrent use, for the race detector.
func TestConcurrentUse(t *testing.T) {
	d := diskAfter(t, mkdir("/d"))
	shared := d.Process("shared")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := fmt.Sprintf("/d/%d", i)
			for range 50 {
				put(name, "12345")(t, shared)
				fsync(name)(t, shared)
				s := d.Snapshot()
				s.Hash()
				d.Hash()
				put(name, "6")(t, s.Process("other"))
				s.Cut(crashfs.Seeded(uint64(i))).Hash()
				remove(name)(t, shared)
			}
		})
	}
	wg.Wait()
	require.Empty(t, d.Files())
}

func TestSnapshotIsIndependent(t *testing.T) {
	d := diskAfter(t, mkdir("/d"), put("/d/a", "1"), put("/b", "2"), syncFS(), put("/c", "3"))
	before := d.Hash()
	s := d.Snapshot()
	require.Equal(t, before, s.Hash())

	p := s.Process("p")
	put("/d/a", "changed")(t, p)
	remove("/b")(t, p)
	fsync("/c")(t, p)
	syncDir("/")(t, p)
	require.NoError(t, p.Chmod("/c", 0o400))
	require.Equal(t, before, d.Hash(), "changes to the copy")
	require.Equal(t, "/b=2 /c=3 /d/a=1", seen(d))

	changed := s.Hash()
	put("/d/a", "4")(t, d.Process("p"))
	require.Equal(t, changed, s.Hash(), "changes to the original")
}

// Copies of one disk must not share their list of pending changes.
func TestSnapshotsAreIndependent(t *testing.T) {
	for changes := range 6 {
		d := crashfs.New()
		for i := range changes {
			put(fmt.Sprintf("/%d", i), "x")(t, d.Process("p"))
		}
		one, other := d.Snapshot(), d.Snapshot()
		put("/one", "1")(t, one.Process("p"))
		before := one.Hash()
		put("/other", "2")(t, other.Process("p"))
		put("/original", "3")(t, d.Process("p"))
		require.Equal(t, before, one.Hash())
	}
}

func TestOpenFileKeepsItsNode(t *testing.T) {
	d := diskAfter(t, put("/a", "one"))
	p := d.Process("p")
	f, err := p.OpenFile("/a", os.O_RDWR, 0)
	require.NoError(t, err)
	remove("/a")(t, p)
	put("/a", "two")(t, p)
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "one", string(data))
	_, err = f.WriteString("!")
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.Equal(t, "/a=two", seen(d))
}

func TestTimes(t *testing.T) {
	now := time.Unix(100, 0)
	d := crashfs.New()
	d.Now = func() time.Time { return now }
	p := d.Process("p")
	put("/a", "1")(t, p)
	modified := func() time.Time {
		i, err := p.Stat("/a")
		require.NoError(t, err)
		return i.ModTime()
	}
	require.Equal(t, now, modified())
	now = now.Add(time.Minute)
	appendTo("/a", "2")(t, p)
	require.Equal(t, now, modified())
	require.NoError(t, p.Chtimes("/a", now, time.Unix(5, 0)))
	require.Equal(t, time.Unix(5, 0), modified())
	require.NoError(t, p.Chown("/a", 1, 1))
	require.ErrorIs(t, p.Chown("/b", 1, 1), fs.ErrNotExist)
}

func TestFoldersCannotMoveToOtherFolders(t *testing.T) {
	d := diskAfter(t, mkdir("/d"), mkdir("/e"))
	require.ErrorIs(t, d.Process("p").Rename("/d", "/e/d"), syscall.EXDEV)
	rename("/d", "/f")(t, d.Process("p"))
}

func TestLimits(t *testing.T) {
	d := diskAfter(t, put("/a", "1"))
	f, err := d.Process("p").OpenFile("/a", os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("x"), 1<<40)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.ErrorIs(t, f.Truncate(1<<40), syscall.EFBIG)
	_, err = d.Process("p").Open("/" + strings.Repeat("x", 256))
	require.ErrorIs(t, err, syscall.ENAMETOOLONG)
}

func TestFoldersCannotBeReadAsFiles(t *testing.T) {
	f, err := diskAfter(t, mkdir("/d")).Process("p").Open("/d")
	require.NoError(t, err)
	_, err = f.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.EISDIR)
	_, err = f.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.EBADF)
}
