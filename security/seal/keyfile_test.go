package seal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/seal"
)

var (
	_ seal.FS = ipc.FS(nil)
	_ seal.FS = (*crashfs.Proc)(nil)
)

func TestLoadOrCreate(t *testing.T) {
	dir := t.TempDir()
	_, err := seal.Load(ipc.OS(), dir)
	require.ErrorIs(t, err, fs.ErrNotExist, "Load creates nothing")
	require.ErrorIs(t, err, seal.ErrNoKey)

	created, err := seal.LoadOrCreate(ipc.OS(), dir)
	require.NoError(t, err)
	file := created.Seal(approval.DocPending, id, []byte(`{"a":1}`))

	for _, load := range []func(seal.FS, string) (*seal.Key, error){seal.Load, seal.LoadOrCreate} {
		again, err := load(ipc.OS(), dir)
		require.NoError(t, err)
		_, err = again.Open(approval.DocPending, id, file)
		require.NoError(t, err, "the same key after a restart")
	}

	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1, "no temporary file is left")
	info, err := os.Stat(filepath.Join(dir, "mac.key"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	require.Equal(t, int64(seal.KeySize), info.Size())
}

func TestTwoHomesHaveTwoKeys(t *testing.T) {
	one, err := seal.LoadOrCreate(ipc.OS(), t.TempDir())
	require.NoError(t, err)
	two, err := seal.LoadOrCreate(ipc.OS(), t.TempDir())
	require.NoError(t, err)
	_, err = two.Open(approval.DocPending, id, one.Seal(approval.DocPending, id, []byte(`{"a":1}`)))
	require.ErrorIs(t, err, seal.ErrSeal)
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		why  string
		make func(path string) error
	}{
		{"readable by the group", func(p string) error { return writeMode(p, 32, 0o640) }},
		{"writable by others", func(p string) error { return writeMode(p, 32, 0o602) }},
		{"empty", func(p string) error { return writeMode(p, 0, 0o600) }},
		{"too short", func(p string) error { return writeMode(p, 31, 0o600) }},
		{"too long", func(p string) error { return writeMode(p, 33, 0o600) }},
		{"a folder", func(p string) error { return os.Mkdir(p, 0o700) }},
		{"a link, even to a key", func(p string) error {
			if err := writeMode(p+".real", 32, 0o600); err != nil {
				return err
			}
			return os.Symlink(p+".real", p)
		}},
		{"a dangling link", func(p string) error { return os.Symlink(p+".real", p) }},
	} {
		t.Run(c.why, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, c.make(filepath.Join(dir, "mac.key")))
			for _, load := range []func(seal.FS, string) (*seal.Key, error){seal.Load, seal.LoadOrCreate} {
				key, err := load(ipc.OS(), dir)
				require.NotEmpty(t, hints.Of(err))
				require.Nil(t, key)
			}
		})
	}
}

func writeMode(path string, size int, mode fs.FileMode) error {
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		return err
	}
	return os.Chmod(path, mode) // despite the umask
}

func TestConcurrentCreatorsGetOneKey(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		keys := make([]*seal.Key, 8)
		var wg sync.WaitGroup
		for i := range keys {
			wg.Go(func() {
				key, err := seal.LoadOrCreate(ipc.OS(), dir)
				if err != nil {
					t.Error(err)
				}
				keys[i] = key
			})
		}
		wg.Wait()
		for _, k := range keys {
			_, err := k.Open(approval.DocPending, id, keys[0].Seal(approval.DocPending, id, []byte(`{"a":1}`)))
			require.NoError(t, err)
		}
		names, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, names, 1, "no temporary files are left")
	}
}

// The second creator finds no key, but the first creates one before its rename.
func TestLostCreateRaceIsNotAnError(t *testing.T) {
	disk := crashfs.New()
	require.NoError(t, disk.Process("set-up").Mkdir("/keys", 0o700))
	var first *seal.Key
	disk.Before = func(op crashfs.Op) {
		if op.Proc == "second" && op.Kind == crashfs.OpRename {
			var err error
			first, err = seal.LoadOrCreate(disk.Process("first"), "/keys")
			require.NoError(t, err)
		}
	}
	second, err := seal.LoadOrCreate(disk.Process("second"), "/keys")
	require.NoError(t, err)
	require.NotNil(t, first, "the race took place")
	_, err = second.Open(approval.DocPending, id, first.Seal(approval.DocPending, id, []byte(`{"a":1}`)))
	require.NoError(t, err)
	require.Len(t, disk.Files(), 1)
}

// A power cut at any moment leaves no key or a complete one. A returned key is
// never lost: its documents could not be verified.
func TestCreateSurvivesPowerCuts(t *testing.T) {
	cuts := 0
	try := func(disk *crashfs.Disk, sealed []byte, after string) {
		for _, way := range append(crashfs.Ways(), crashfs.Seeded(1), crashfs.Seeded(2), crashfs.Seeded(3)) {
			cuts++
			left := disk.Cut(way)
			key, err := seal.LoadOrCreate(left.Process("again"), "/keys")
			require.NoError(t, err, "%s, %s", after, way)
			if sealed != nil {
				_, err := key.Open(approval.DocPending, id, sealed)
				require.NoError(t, err, "%s, %s", after, way)
			}
		}
	}
	disk := crashfs.New()
	p := disk.Process("first")
	require.NoError(t, p.Mkdir("/keys", 0o700))
	require.NoError(t, p.SyncFS("/"))
	disk.Before = func(op crashfs.Op) { try(disk, nil, "before "+op.String()) }
	key, err := seal.LoadOrCreate(p, "/keys")
	require.NoError(t, err)
	disk.Before = nil
	sealed := key.Seal(approval.DocPending, id, []byte(`{"a":1}`))
	try(disk, sealed, "after")
	require.Greater(t, cuts, 30)

	// Killed between rename and folder fsync: the next process must sync.
	disk = crashfs.New()
	p = disk.Process("killed")
	require.NoError(t, p.Mkdir("/keys", 0o700))
	require.NoError(t, p.SyncFS("/"))
	disk.Before = func(op crashfs.Op) {
		if op.Kind == crashfs.OpSyncDir {
			p.Kill()
		}
	}
	_, err = seal.LoadOrCreate(p, "/keys")
	require.Error(t, err)
	disk.Before = nil
	key, err = seal.LoadOrCreate(disk.Process("next"), "/keys")
	require.NoError(t, err)
	try(disk, key.Seal(approval.DocPending, id, []byte(`{"a":1}`)), "after a kill")
}

func TestEveryFailedOperationIsAnError(t *testing.T) {
	for n := 1; ; n++ {
		disk := crashfs.New()
		p := disk.Process("p")
		require.NoError(t, p.Mkdir("/keys", 0o700))
		done, failed := 0, false
		disk.Fail = func(op crashfs.Op) error {
			if op.Kind == crashfs.OpRemove {
				return nil // removal of the temporary file, whose error is ignored
			}
			if done++; done == n {
				failed = true
				return fs.ErrPermission
			}
			return nil
		}
		key, err := seal.LoadOrCreate(p, "/keys")
		if !failed {
			require.NoError(t, err)
			require.Greater(t, n, 6, "failed operations")
			return
		}
		require.ErrorIs(t, err, fs.ErrPermission, "operation %d", n)
		require.Nil(t, key)
	}
}

// Without Lstat, Stat is used.
func TestWithoutLstat(t *testing.T) {
	key, err := seal.LoadOrCreate(struct{ seal.FS }{crashfs.New().Process("p")}, "/")
	require.NoError(t, err)
	require.NotNil(t, key)
}
