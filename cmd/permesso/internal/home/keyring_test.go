package home

import (
	"bytes"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/seal"
)

// countingFS counts the reads of files.
type countingFS struct {
	ipc.FS
	n int
}

func (r *countingFS) ReadFile(name string, limit int64) ([]byte, error) {
	r.n++
	return r.FS.(interface {
		ReadFile(name string, limit int64) ([]byte, error)
	}).ReadFile(name, limit)
}

// TestKeyring: a key's file is read once; later calls only stat it.
func TestKeyring(t *testing.T) {
	layout := ipc.Layout{Home: t.TempDir()}
	require.NoError(t, layout.PrepareHome(ipc.OS()))
	require.NoError(t, layout.PrepareAPIKeys(ipc.OS()))
	disk := &countingFS{FS: ipc.OS()}
	sealer, err := seal.LoadOrCreate(ipc.OS(), layout.Keys())
	require.NoError(t, err)
	ring := Keyring{&ipc.Store{FS: disk, Layout: layout}, sealer, &knownKeys{}}
	k := apikey.New("secret")
	k.Workspace, k.Scopes, k.CreatedAt, k.CreatedBy = "default", []string{apikey.MayRequest, apikey.MayRead}, time.Now().UTC(), "test"
	_, err = ring.Key(k.Hash)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, ring.Save(k, store.Durable))

	get := func() *apikey.Key {
		got, err := ring.Key(k.Hash)
		require.NoError(t, err)
		return got
	}
	disk.n = 0
	first := get()
	require.Equal(t, k.Scopes, first.Scopes)
	first.Scopes[0], first.Workspace = apikey.MayDecide, "other"
	second := get()
	require.Equal(t, []string{apikey.MayRequest, apikey.MayRead}, second.Scopes, "a caller cannot change the cached key")
	require.Equal(t, "default", second.Workspace)
	second.Scopes[0] = apikey.MayDecide
	require.True(t, get().Can(apikey.MayRequest))
	require.Equal(t, 1, disk.n)

	_, err = ring.Key(k.Hash[:60] + "0000")
	require.ErrorIs(t, err, fs.ErrNotExist, "another key with the same id")
	revoked := *k
	revoked.RevokedAt, revoked.RevokedBy = time.Now().UTC(), "test"
	require.NoError(t, ring.Save(&revoked, store.Replace))
	require.False(t, get().RevokedAt.IsZero(), "at once")

	// A file that differs in inode, size or time is read again.
	name := layout.APIKeys() + "/" + k.ID + ".json"
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	at := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(name, at, at))
	get()
	other := bytes.Clone(b)
	other[len(b)/2] ^= 1
	for why, change := range map[string]func(){
		"another file of the same size and time":             func() { writeAt(t, name+".new", other, at); require.NoError(t, os.Rename(name+".new", name)) },
		"the same file, of the same time, with another size": func() { writeAt(t, name, append(other, ' '), at) },
		"the same file, of the same size, at another time":   func() { writeAt(t, name, other, at.Add(time.Second)) },
	} {
		change()
		_, err = ring.Key(k.Hash)
		require.Error(t, err, why)
		require.NoError(t, os.Remove(name))
		writeAt(t, name, b, at)
		get()
	}
	require.NoError(t, os.Remove(name))
	_, err = ring.Key(k.Hash)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func writeAt(t *testing.T, name string, b []byte, at time.Time) {
	require.NoError(t, os.WriteFile(name, b, 0o600))
	require.NoError(t, os.Chtimes(name, at, at))
}

// The cache is bounded.
func TestKeyringIsBounded(t *testing.T) {
	c := &knownKeys{}
	for i := range 3 * maxKnown {
		c.keep(string(rune(i)), nil, &apikey.Key{})
		require.LessOrEqual(t, len(c.byID), maxKnown)
	}
}
