package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"
)

type osFS struct{ afero.Fs }

// Commit adds a body and returns when it is durable.
func (j *Journal) Commit(body []byte) error { return j.Add(body)() }

func (osFS) SyncDir(string) error { return nil }

func (osFS) Datasync(f afero.File) error { return f.Sync() }

func open(t *testing.T, dir string) (*Journal, []string) {
	t.Helper()
	j, err := Open(osFS{afero.NewOsFs()}, dir, Options{Size: minSize})
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j, records(t, j)
}

func records(t *testing.T, j *Journal) (all []string) {
	t.Helper()
	require.NoError(t, j.Records(func(_ uint64, b []byte) error { all = append(all, string(b)); return nil }))
	return all
}

func TestCommits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, found := open(t, dir)
	require.Empty(t, found)
	require.Error(t, j.Commit([]byte("x")), "before Begin")
	j, _ = open(t, dir)
	require.NoError(t, j.Begin())
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { require.NoError(t, j.Commit(fmt.Append(nil, i))) })
	}
	wg.Wait()
	j.Add([]byte("noted"))
	require.NoError(t, j.Flush())
	j, found = open(t, dir)
	require.Len(t, found, 21)
	require.Equal(t, "noted", found[20])
	_, again := open(t, dir)
	require.Equal(t, found, again)
	require.NoError(t, j.Begin())
	_, found = open(t, dir)
	require.Empty(t, found)
}

func TestCheckpoints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, _ := open(t, dir)
	require.NoError(t, j.Begin())
	for i := range 200 {
		if j.NeedsCheckpoint() {
			require.NoError(t, j.Checkpoint(func() error { return nil }, func() uint64 { return j.Last() }))
		}
		require.NoError(t, j.Commit(fmt.Append(make([]byte, 1000), i)))
	}
	require.ErrorContains(t, j.Checkpoint(func() error { return errors.New("boom") }, func() uint64 { return 0 }), "boom")
	j, found := open(t, dir)
	require.NotEmpty(t, found)
	require.Less(t, len(found), 40)
	require.Equal(t, "199", found[len(found)-1][1000:])
	require.NoError(t, j.Begin())
}

func TestFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, _ := open(t, dir)
	require.NoError(t, j.Begin())
	release, err := j.Reserve(10_000)
	require.NoError(t, err)
	n := 0
	for ; j.Room(1000, true) == nil; n++ {
		require.NoError(t, j.Commit(make([]byte, 1000)))
	}
	require.ErrorIs(t, j.Room(1000, true), ErrNoRoom)
	require.NoError(t, j.Room(10_000, false))
	release()
	for ; j.Room(1000, false) == nil; n++ {
		require.NoError(t, j.Commit(make([]byte, 1000)))
	}
	_, err = j.Reserve(10_000)
	require.ErrorIs(t, err, ErrNoRoom)
	j, found := open(t, dir)
	require.Len(t, found, n)
	require.NoError(t, j.Begin(), "one segment stayed free")
}
