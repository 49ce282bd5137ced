package ipc_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
)

func newSentStore(t *testing.T) (*ipc.SentStore, ipc.Layout) {
	t.Helper()
	layout := ipc.Layout{Home: filepath.Join(t.TempDir(), "home")}
	require.NoError(t, layout.PrepareHome(ipc.OS()))
	require.NoError(t, layout.Prepare(ipc.OS(), "personal"))
	return &ipc.SentStore{Store: &ipc.Store{FS: ipc.OS(), Layout: layout}, Channel: "telegram"}, layout
}

func TestSentRecords(t *testing.T) {
	n, layout := newSentStore(t)
	k := approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"}

	ids, err := n.List("personal")
	require.NoError(t, err)
	require.Empty(t, ids, "before anything was sent")
	_, err = n.Load(k)
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, n.Save(k, []byte("one")))
	require.NoError(t, n.Save(k, []byte("two")))
	b, err := n.Load(k)
	require.NoError(t, err)
	require.Equal(t, "two", string(b))
	ids, err = n.List("personal")
	require.NoError(t, err)
	require.Equal(t, []string{k.ID}, ids)

	info, err := os.Stat(layout.Sent("telegram", "personal"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), "other users must not read cards")

	require.NoError(t, n.Remove(k))
	require.NoError(t, n.Remove(k), "removing it twice is no error")
	_, err = n.Load(k)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestStateStore(t *testing.T) {
	n, layout := newSentStore(t)
	d, err := n.State("updates")
	require.NoError(t, err)
	require.NoError(t, d.Put("2", []byte("b")))
	require.NoError(t, d.Put("1", []byte("a")))
	names, err := d.List()
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, names)
	b, err := d.Get("2")
	require.NoError(t, err)
	require.Equal(t, "b", string(b))
	require.NoError(t, d.Remove("2"))
	require.NoError(t, d.Remove("2"))
	_, err = d.Get("2")
	require.ErrorIs(t, err, fs.ErrNotExist)

	// A killed writer leaves a temporary file; the next start removes it.
	temp := filepath.Join(layout.Sent("telegram", ".updates"), ".tmp-dead")
	require.NoError(t, os.WriteFile(temp, nil, 0o600))
	release, err := n.Store.Lease(context.Background())
	require.NoError(t, err)
	require.NoError(t, release())
	require.NoFileExists(t, temp)
	names, err = d.List()
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, names)
}

// Names come from the network: none may lead out of the folder.
func TestSentStoreRefusesNames(t *testing.T) {
	n, _ := newSentStore(t)
	d, err := n.State("updates")
	require.NoError(t, err)
	for _, name := range []string{"", ".", "..", "../x", "a/b", ".hidden", "a\x00b", "é", string(make([]byte, 101))} {
		require.Error(t, d.Put(name, nil), "%q", name)
		require.Error(t, d.Remove(name), "%q", name)
		_, err := d.Get(name)
		require.ErrorIs(t, err, fs.ErrNotExist, "%q", name)
	}
	for _, k := range []approval.Key{{}, {Workspace: "..", ID: "a7f3b2c1d4e5f6a7"}, {Workspace: "personal", ID: "../../keys/mac"}} {
		require.Error(t, n.Save(k, nil), "%s", k)
		require.Error(t, n.Remove(k), "%s", k)
		_, err := n.Load(k)
		require.Error(t, err, "%s", k)
	}
	_, err = n.State("../x")
	require.Error(t, err)
	_, err = (&ipc.SentStore{Store: n.Store, Channel: ".."}).State("x")
	require.Error(t, err)
}
