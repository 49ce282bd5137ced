package home

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

const textLimit = 64 << 10

// hostFilesIn are those of a host with HOME and the files of secrets in dir.
func hostFilesIn(dir string, secrets ...string) *HostFiles {
	return &HostFiles{filepath.Join(dir, "home"), func() []string { return secrets }, make(chan struct{}, maxReads)}
}

// Agents choose the paths: only the text of an ordinary file is known, at once.
func TestTextOfHostileFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name string, text []byte) string {
		require.NoError(t, os.MkdirAll(filepath.Dir(at(name)), 0o700))
		require.NoError(t, os.WriteFile(at(name), text, 0o600))
		return at(name)
	}
	token := put("etc/token", []byte("hunter2hunter2"))
	put("home/keys/mac", []byte("0123456789"))
	put("homely/note", []byte("beside HOME"))
	put("plain", []byte("one\ntwo\n"))
	put("limit", bytes.Repeat([]byte("x"), textLimit))
	put("more", bytes.Repeat([]byte("x"), textLimit+1))
	put("latin1", []byte("caf\xe9"))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	sparse, err := os.Create(at("sparse"))
	require.NoError(t, err)
	require.NoError(t, sparse.Truncate(1<<30))
	require.NoError(t, sparse.Close())
	for name, to := range map[string]string{
		"link": "plain", "links/in": at("home/keys"), "link.zero": "/dev/zero", "dangling": "none", "loop": "loop", "links/dir": dir,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(at(name)), 0o700))
		require.NoError(t, os.Symlink(to, at(name)))
	}
	require.NoError(t, os.Link(token, at("hardlink")))

	f := hostFilesIn(dir, token, at("no such secret"))
	for name, want := range map[string]string{
		"plain": "one\ntwo\n", "limit": strings.Repeat("x", textLimit), "links/dir/plain": "one\ntwo\n", "homely/note": "beside HOME",
	} {
		text, err := f.Text(at(name), textLimit)
		require.NoError(t, err, name)
		require.Equal(t, want, text, name)
	}
	for name, path := range map[string]string{
		"one byte too many": at("more"), "a sparse file of 1 GiB": at("sparse"), "not UTF-8": at("latin1"),
		"a pipe": at("pipe"), "a device": "/dev/zero", "a terminal": "/dev/tty", "a folder": dir, "a link": at("link"),
		"a link to a device": at("link.zero"), "a dangling link": at("dangling"), "a loop": at("loop"),
		"a NUL": at("plain\x00"), "a NUL after a name": at("plain") + "\x00.txt", "below a file": at("plain/x"),
		"a folder's slash": at("plain") + "/", "a name that is too long": at(strings.Repeat("x", 300)), "": "",
		"HOME": at("home/keys/mac"), "HOME through a link": at("links/in/mac"), "HOME through dots": at("homely/../home/keys/mac"),
		"a secret of the configuration": token, "the same under another name": at("hardlink"),
		"the daemon's environment": "/proc/self/environ", "its memory": "/proc/self/mem", "sysfs": "/sys/kernel/mm/transparent_hugepage/enabled",
	} {
		began := time.Now()
		text, err := f.Text(path, textLimit)
		require.Error(t, err, name)
		require.Empty(t, text, name)
		if name != "" && !strings.HasPrefix(path, "/sys") && path != "/dev/tty" {
			require.NotErrorIs(t, err, fs.ErrNotExist, name)
		}
		require.Less(t, time.Since(began), readLimit/2, name)
	}
	_, err = f.Text(at("none"), textLimit)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Empty(t, f.reads, "all reads have ended")
}

func TestSizeOfHostileFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 1<<40))
	require.NoError(t, os.Symlink(file, filepath.Join(dir, "link")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	f := hostFilesIn(dir)
	for _, name := range []string{"file", "link"} {
		n, err := f.Size(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, int64(1<<40), n)
	}
	for _, path := range []string{dir, filepath.Join(dir, "pipe"), "/dev/zero", "/dev/null", filepath.Join(dir, "none"), file + "\x00", ""} {
		_, err := f.Size(path)
		require.Error(t, err, path)
	}
}

// A file that is replaced while it is read gives its text or nothing, never another file's.
func TestTextOfFilesThatAreReplaced(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "home")
	for _, sub := range []string{"home", "work"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, sub, "key"), []byte("text of "+sub), 0o600))
	}
	link, next := filepath.Join(dir, "link"), filepath.Join(dir, "next")
	require.NoError(t, os.Symlink("work", link))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Symlink([]string{inside, "work"}[i%2], next)
			_ = os.Rename(next, link)
		}
	}()
	f, read := hostFilesIn(dir), 0
	for range 3000 {
		text, err := f.Text(filepath.Join(link, "key"), textLimit)
		if err == nil {
			read++
			require.Equal(t, "text of work", text)
		}
	}
	close(stop)
	<-stopped
	require.Positive(t, read)
}

// A file system that does not answer stops no request for long, and holds few goroutines.
func TestFileSystemsThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := hostFilesIn("/none")
		answer := make(chan struct{})
		began := time.Now()
		for range maxReads + 2 {
			_, err := inTime(f, func() (int, error) { <-answer; return 1, nil })
			require.Error(t, err)
		}
		require.Equal(t, (maxReads+2)*readLimit, time.Since(began))
		require.Len(t, f.reads, maxReads)
		close(answer)
		synctest.Wait()
		require.Empty(t, f.reads)
		n, err := inTime(f, func() (int, error) { return 1, nil })
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

func TestHoldsSecret(t *testing.T) {
	require.True(t, HoldsSecret("token = ghp_"+strings.Repeat("aB3dE6gH9j", 4)[:36]+"\n"))
	require.False(t, HoldsSecret("hello\n"))
	require.NoError(t, (*HostFiles)(nil).Ready(approval.Handler{}))
}
