package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func check(t *testing.T, name, text string, mode fs.FileMode) {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, text, string(b))
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")
}

func TestFiles(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "a")
	require.NoError(t, Create(name, []byte("one")))
	require.ErrorIs(t, Create(name, []byte("two")), fs.ErrExist)
	check(t, name, "one", 0o600)
	require.NoError(t, Replace(name, []byte("two"), 0o644))
	check(t, name, "two", 0o644)
	require.NoError(t, Put(name, []byte("three")))
	check(t, name, "three", 0o600)

	gone := filepath.Join(filepath.Dir(name), "no", "a")
	require.ErrorIs(t, Create(gone, nil), fs.ErrNotExist)
	require.ErrorIs(t, Replace(gone, nil, 0o600), fs.ErrNotExist)
	folder := filepath.Join(t.TempDir(), "b")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "full"), 0o700))
	require.Error(t, Put(folder, nil))
	entries, err := os.ReadDir(filepath.Dir(folder))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// Of many that create a file, one does.
func TestCreateOnce(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "a")
	var made atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			switch err := Create(name, []byte("x")); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, int64(1), made.Load())
}

func TestLocks(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "a")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	a, b, c := open(), open(), open()
	require.NoError(t, TryLock(a, false))
	require.NoError(t, TryLock(b, false))
	require.ErrorIs(t, TryLock(a, true), ErrLocked)
	require.NoError(t, b.Close())
	require.NoError(t, TryLock(a, true))
	require.ErrorIs(t, TryLock(c, false), ErrLocked)
	locked := make(chan error)
	go func() { locked <- Lock(c) }()
	select {
	case err := <-locked:
		require.Fail(t, "it did not wait", err)
	default:
	}
	require.NoError(t, a.Close())
	require.NoError(t, <-locked)
}
