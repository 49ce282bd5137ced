package ipc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/store"
)

func write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
}

func content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

func TestOSDoesNotFollowLinks(t *testing.T) {
	dir := t.TempDir()
	secret, link := filepath.Join(dir, "secret"), filepath.Join(dir, "link")
	write(t, secret, "secret")
	require.NoError(t, os.Symlink(secret, link))

	opens := map[string]func() (afero.File, error){
		"open":               func() (afero.File, error) { return OS().Open(link) },
		"create (truncates)": func() (afero.File, error) { return OS().Create(link) },
		"open for writing":   func() (afero.File, error) { return OS().OpenFile(link, os.O_WRONLY, 0) },
	}
	for name, open := range opens {
		t.Run(name, func(t *testing.T) {
			f, err := open()
			require.ErrorIs(t, err, syscall.ELOOP)
			require.True(t, f == nil, "a nil *os.File in the interface is not nil") //nolint:testifylint // Nil would follow the pointer inside
		})
	}
	require.Equal(t, "secret", content(t, secret))

	f, err := OS().Open(secret)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	info, err := lstat(OS(), link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink, "Lstat does not follow the link")
}

func TestSync(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "x")
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))

	require.NoError(t, OS().SyncDir(dir))
	for _, name := range []string{dir, file} {
		disk, err := OS().OpenFS(name)
		require.NoError(t, err)
		require.NoError(t, disk.Sync())
		require.NoError(t, disk.Sync())
		require.NoError(t, disk.Close())
		require.Error(t, disk.Sync(), "closed")
	}

	require.Error(t, OS().SyncDir(file), "not a folder")
	require.Error(t, OS().SyncDir(filepath.Join(dir, "link")), "its target may change")
	require.ErrorIs(t, OS().SyncDir(filepath.Join(dir, "none")), fs.ErrNotExist)
	_, err := OS().OpenFS(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// renames are both implementations: the fallback must give the same guarantee.
var renames = map[string]func(oldname, newname string) error{
	"rename":     OS().RenameNoReplace,
	"link first": linkRename,
}

func TestRenameNoReplace(t *testing.T) {
	for name, rename := range renames {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
			write(t, a, "a")
			write(t, b, "b")

			require.ErrorIs(t, rename(a, b), fs.ErrExist)
			require.Equal(t, "a", content(t, a), "the loser's file stays")
			require.Equal(t, "b", content(t, b), "the winner's file stays in the slot")

			require.NoError(t, rename(a, c))
			require.Equal(t, "a", content(t, c))
			require.NoFileExists(t, a)
			require.ErrorIs(t, rename(a, filepath.Join(dir, "d")), fs.ErrNotExist)

			// A dangling link occupies the name too.
			dangling := filepath.Join(dir, "dangling")
			require.NoError(t, os.Symlink("missing", dangling))
			require.ErrorIs(t, rename(c, dangling), fs.ErrExist)
		})
	}
}

func TestRenameNoReplaceHasOneWinner(t *testing.T) {
	const races, runners = 2000, 3
	for name, rename := range renames {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			slot := filepath.Join(dir, "slot")
			own := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
			for i := range runners {
				write(t, own(i), fmt.Sprint(i))
			}
			for race := range races {
				winner := -1
				for i, err := range raceFor(slot, runners, own, rename) {
					if err == nil {
						require.Equal(t, -1, winner, "race %d has two winners", race)
						winner = i
						continue
					}
					require.ErrorIs(t, err, fs.ErrExist)
				}
				require.Equal(t, fmt.Sprint(winner), content(t, slot), "race %d", race)
				require.NoError(t, os.Rename(slot, own(winner)))
			}
		})
	}
}

// raceFor renames one file of each runner to the same slot, concurrently.
func raceFor(slot string, runners int, own func(int) string, rename func(a, b string) error) []error {
	errs := make([]error, runners)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range runners {
		done.Go(func() {
			<-start
			errs[i] = rename(own(i), slot)
		})
	}
	close(start)
	done.Wait()
	return errs
}

func TestTryLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	lock, err := OS().TryLock(name)
	require.NoError(t, err)
	info, err := os.Lstat(name)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())

	_, err = OS().TryLock(name)
	require.ErrorIs(t, err, store.ErrLocked, "exclusive within a process too")

	require.NoError(t, lock.Close())
	require.ErrorIs(t, lock.Close(), os.ErrClosed)
	again, err := OS().TryLock(name)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// Those who look do not see one another, and create nothing.
func TestLocked(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	held, err := OS().Locked(name)
	require.NoError(t, err)
	require.False(t, held)
	require.NoFileExists(t, name)

	lock, err := OS().TryLock(name)
	require.NoError(t, err)
	held, err = OS().Locked(name)
	require.NoError(t, err)
	require.True(t, held)
	require.NoError(t, lock.Close())

	looking, err := flock(name, os.O_RDONLY, syscall.LOCK_SH)
	require.NoError(t, err)
	held, err = OS().Locked(name)
	require.NoError(t, err)
	require.False(t, held, "another process only looks")
	require.NoError(t, looking.Close())
}

func TestTryLockRefuses(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(filepath.Join(dir, "target"), link))

	_, err := OS().TryLock(link)
	require.ErrorIs(t, err, syscall.ELOOP)
	require.NoFileExists(t, filepath.Join(dir, "target"))
	_, err = OS().TryLock(filepath.Join(dir, "none", "lock"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = OS().TryLock(dir)
	require.Error(t, err, "a folder cannot be the lock file")
}

func TestLockOfRemovedFileIsInvalid(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	held, err := flock(name, os.O_RDWR|os.O_CREATE, syscall.LOCK_EX)
	require.NoError(t, err)
	defer held.Close()
	require.True(t, sameFile(held, name))
	require.NoError(t, os.Remove(name))
	require.False(t, sameFile(held, name), "other processes cannot open this file")
	write(t, name, "")
	require.False(t, sameFile(held, name), "other processes will lock the new file")
}

const lockVariable = "IPC_TEST_LOCK"

// TestLockHolder is the other process of the tests below: it takes the lock that the
// environment names, prints the result, and keeps the lock until its stdin ends.
func TestLockHolder(*testing.T) {
	name := os.Getenv(lockVariable)
	if name == "" {
		return
	}
	lock, err := OS().TryLock(name)
	switch {
	case errors.Is(err, store.ErrLocked):
		fmt.Println("locked out")
		return
	case err != nil:
		fmt.Println(err)
		return
	}
	fmt.Println("holding")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = lock.Close()
}

// startHolder starts a process that tries to take the lock, and returns its output.
func startHolder(t *testing.T, name string) (output string, process *exec.Cmd, stdin io.Closer) {
	t.Helper()
	process = exec.Command(os.Args[0], "-test.run=^TestLockHolder$")
	process.Env = append(os.Environ(), lockVariable+"="+name)
	stdin, err := process.StdinPipe()
	require.NoError(t, err)
	stdout, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	output, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return output, process, stdin
}

func TestTryLockAcrossProcesses(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	output, holder, stdin := startHolder(t, name)
	require.Equal(t, "holding\n", output)
	_, err := OS().TryLock(name)
	require.ErrorIs(t, err, store.ErrLocked)
	output, _, _ = startHolder(t, name)
	require.Equal(t, "locked out\n", output)

	require.NoError(t, stdin.Close())
	require.NoError(t, holder.Wait())
	lock, err := OS().TryLock(name)
	require.NoError(t, err, "released by Close")
	output, _, _ = startHolder(t, name)
	require.Equal(t, "locked out\n", output)
	require.NoError(t, lock.Close())
}

func TestKillReleasesLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	output, holder, _ := startHolder(t, name)
	require.Equal(t, "holding\n", output)
	require.NoError(t, holder.Process.Kill())
	require.Error(t, holder.Wait())
	lock, err := OS().TryLock(name)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
}

// A child must not inherit the lock: a handler may outlive its daemon.
func TestTryLockIsNotInherited(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	lock, err := OS().TryLock(name)
	require.NoError(t, err)
	child := exec.Command("cat")
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	require.NoError(t, lock.(fileLock).f.Close(), "close only: an unlock would also release an inherited copy")
	again, err := OS().TryLock(name)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.NoError(t, stdin.Close())
	require.NoError(t, child.Wait())
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	name, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	write(t, name, "content")
	write(t, filepath.Join(dir, "empty"), "")
	require.NoError(t, os.Symlink(name, link))
	fsys := OS()
	for _, tt := range []struct {
		name, want string
		limit      int64
		err        error
	}{
		{name: name, want: "content", limit: 7},
		{name: filepath.Join(dir, "empty"), limit: 7},
		{name: name, limit: 6, err: errTooLarge},
		{name: filepath.Join(dir, "missing"), limit: 7, err: fs.ErrNotExist},
		{name: filepath.Join(name, "below"), limit: 7, err: syscall.ENOTDIR},
		{name: link, limit: 7, err: syscall.ELOOP},
		{name: dir, limit: 7, err: errNotRegular},
	} {
		b, err := fsys.ReadFile(tt.name, tt.limit)
		require.ErrorIs(t, err, tt.err, tt.name)
		require.Equal(t, tt.want, string(b), tt.name)
		if tt.err != nil {
			require.ErrorContains(t, err, tt.name)
		}
	}
}
