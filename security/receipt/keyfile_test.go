package receipt_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/receipt"
)

var (
	_ receipt.FS = ipc.FS(nil)
	_ receipt.FS = (*crashfs.Proc)(nil)
)

func TestLoadOrCreate(t *testing.T) {
	dir := t.TempDir()
	_, err := receipt.Load(ipc.OS(), dir)
	require.ErrorIs(t, err, fs.ErrNotExist, "Load creates nothing")
	require.ErrorIs(t, err, receipt.ErrNoKey)
	_, err = receipt.LoadVerifier(ipc.OS(), dir)
	require.ErrorIs(t, err, fs.ErrNotExist)

	s, err := receipt.LoadOrCreate(ipc.OS(), dir, "first")
	require.NoError(t, err)
	f := testFacts()
	f.Gate = ""
	r, err := s.Issue(f)
	require.NoError(t, err)

	v, err := receipt.LoadVerifier(ipc.OS(), dir)
	require.NoError(t, err)
	got, err := v.Parse(r)
	require.NoError(t, err)
	require.Equal(t, "first", got.Gate)

	again, err := receipt.LoadOrCreate(ipc.OS(), dir, "second")
	require.NoError(t, err)
	require.Equal(t, s.Public(), again.Public(), "a key keeps its name, so old receipts stay valid")
	for name, mode := range map[string]fs.FileMode{"signing.key": 0o600, "signing.pub": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode()|mode&0o044, "%s, with any umask", name)
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 2, "no temporary file is left")
}

func TestInvalidKeyNames(t *testing.T) {
	for _, name := range []string{"", "a b", "a+b", "a\nb", "zoë", "\"x"} {
		_, err := receipt.LoadOrCreate(ipc.OS(), t.TempDir(), name)
		require.Error(t, err, "%q", name)
	}
}

func TestLoadRefuses(t *testing.T) {
	other := t.TempDir()
	_, err := receipt.LoadOrCreate(ipc.OS(), other, "stranger")
	require.NoError(t, err)
	chmod := func(mode fs.FileMode) func(string) error {
		return func(p string) error { return os.Chmod(p, mode) }
	}
	write := func(s string) func(string) error {
		return func(p string) error { return os.WriteFile(p, []byte(s), 0o600) }
	}
	for _, c := range []struct {
		why, name string
		damage    func(path string) error
	}{
		{"private key readable by the group", "signing.key", chmod(0o640)},
		{"private key writable by others", "signing.key", chmod(0o602)},
		{"empty private key", "signing.key", write("")},
		{"a malformed private key", "signing.key", write("hello\n")},
		{"huge private key", "signing.key", write(strings.Repeat("x", 2000))},
		{"a link as private key", "signing.key", func(p string) error {
			return os.Rename(filepath.Join(other, "signing.key"), p+".real")
		}},
		{"public key writable by the group", "signing.pub", chmod(0o664)},
		{"empty public key", "signing.pub", write("")},
		{"a malformed public key", "signing.pub", write("hello\n")},
		{"another key's public key", "signing.pub", func(p string) error {
			return os.Rename(filepath.Join(other, "signing.pub"), p)
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			dir := t.TempDir()
			_, err := receipt.LoadOrCreate(ipc.OS(), dir, "home")
			require.NoError(t, err)
			path := filepath.Join(dir, c.name)
			require.NoError(t, c.damage(path))
			if strings.HasPrefix(c.why, "a link") {
				require.NoError(t, os.Remove(path))
				require.NoError(t, os.Symlink(path+".real", path))
			}
			s, err := receipt.LoadOrCreate(ipc.OS(), dir, "home")
			require.NotEmpty(t, hints.Of(err))
			require.Nil(t, s)
		})
	}
}

func TestPublicKeyIsRecreated(t *testing.T) {
	dir := t.TempDir()
	s, err := receipt.LoadOrCreate(ipc.OS(), dir, "home")
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "signing.pub")))
	_, err = receipt.LoadOrCreate(ipc.OS(), dir, "home")
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(dir, "signing.pub"))
	require.NoError(t, err)
	require.Equal(t, s.Public()+"\n", string(b))
}

func TestConcurrentCreatorsGetOneKey(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		keys := make([]string, 8)
		var wg sync.WaitGroup
		for i := range keys {
			wg.Go(func() {
				s, err := receipt.LoadOrCreate(ipc.OS(), dir, "home")
				if err != nil {
					t.Error(err)
					return
				}
				keys[i] = s.Public()
			})
		}
		wg.Wait()
		for _, k := range keys {
			require.Equal(t, keys[0], k)
		}
	}
}

// A power cut at any moment leaves no key or a complete one. A returned key is
// never lost: its receipts could not be verified.
func TestCreateSurvivesPowerCuts(t *testing.T) {
	cuts := 0
	try := func(disk *crashfs.Disk, public, after string) {
		for _, way := range append(crashfs.Ways(), crashfs.Seeded(1), crashfs.Seeded(2), crashfs.Seeded(3)) {
			cuts++
			p := disk.Cut(way).Process("again")
			s, err := receipt.LoadOrCreate(p, "/keys", "home")
			require.NoError(t, err, "%s, %s", after, way)
			_, err = receipt.LoadVerifier(p, "/keys")
			require.NoError(t, err, "%s, %s", after, way)
			if public != "" {
				require.Equal(t, public, s.Public(), "%s, %s", after, way)
			}
		}
	}
	disk := crashfs.New()
	p := disk.Process("first")
	require.NoError(t, p.Mkdir("/keys", 0o700))
	require.NoError(t, p.SyncFS("/"))
	disk.Before = func(op crashfs.Op) { try(disk, "", "before "+op.String()) }
	s, err := receipt.LoadOrCreate(p, "/keys", "home")
	require.NoError(t, err)
	disk.Before = nil
	try(disk, s.Public(), "after")
	require.Greater(t, cuts, 60)
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
		s, err := receipt.LoadOrCreate(p, "/keys", "home")
		if !failed {
			require.NoError(t, err)
			require.Greater(t, n, 12, "failed operations")
			return
		}
		require.ErrorIs(t, err, fs.ErrPermission, "operation %d", n)
		require.Nil(t, s)
	}
}

func TestWithoutLstat(t *testing.T) {
	_, err := receipt.LoadOrCreate(struct{ receipt.FS }{crashfs.New().Process("p")}, "/", "home")
	require.NoError(t, err)
}
