package crashfs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/crashfs"
)

func TestHashEqual(t *testing.T) {
	base := []step{mkdir("/d"), put("/a", "1"), syncFS()}
	tests := []struct {
		name string
		a, b []step
	}{
		{"nothing done", nil, nil},
		{"other inode numbers", []step{put("/x", "1"), put("/y", "2"), syncFS()}, []step{put("/y", "2"), put("/x", "1"), syncFS()}},
		{"unrelated changes in another order", []step{put("/x", "1"), put("/d/y", "2"), remove("/a")}, []step{remove("/a"), put("/d/y", "2"), put("/x", "1")}},
		{"a temporary name", []step{put("/.tmp-1", "1")}, []step{put("/.tmp-2", "1")}},
		{"two temporary names", []step{put("/.tmp-1", "1"), put("/.tmp-2", "2")}, []step{put("/.tmp-2", "1"), put("/.tmp-1", "2")}},
		{"a temporary name renamed", []step{put("/.tmp-1", "1"), rename("/.tmp-1", "/b")}, []step{put("/.tmp-2", "1"), rename("/.tmp-2", "/b")}},
		{"one write or two", []step{put("/a", "12")}, []step{put("/a", "1"), appendTo("/a", "2")}},
		{"synced by file and folder or all at once", []step{put("/b", "2"), fsync("/b"), syncDir("/")}, []step{put("/b", "2"), syncFS()}},
		{"created, removed, and synced", []step{put("/b", "2"), remove("/b"), syncDir("/")}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, normal(t, base, tt.a).Hash(), normal(t, base, tt.b).Hash())
		})
	}
}

func TestHashDiffers(t *testing.T) {
	base := []step{mkdir("/d"), mkdir("/e"), put("/a", "1"), put("/d/same", "s"), put("/e/same", "s"), syncFS()}
	chmod := func(t testing.TB, p *crashfs.Proc) { require.NoError(t, p.Chmod("/a", 0o640)) }
	failSync := func(t testing.TB, p *crashfs.Proc) {
		f, err := p.Open(failingPath)
		require.NoError(t, err)
		require.Error(t, f.Sync())
	}
	states := map[string][]step{
		"base":                        nil,
		"other data":                  {put("/a", "2")},
		"other data, synced":          {put("/a", "2"), fsync("/a")},
		"failed fsync":                {put("/a", "2"), failSync},
		"no data":                     {put("/a", "")},
		"removed":                     {remove("/a")},
		"removed with other data":     {put("/a", "2"), syncFS(), remove("/a")},
		"removed, synced":             {remove("/a"), syncDir("/")},
		"new name":                    {put("/b", "1")},
		"new name, data synced":       {put("/b", "1"), fsync("/b")},
		"new name, name synced":       {put("/b", "1"), syncDir("/")},
		"another new name":            {put("/c", "1")},
		"renamed":                     {rename("/a", "/b")},
		"renamed and back":            {rename("/a", "/b"), rename("/b", "/a")},
		"renamed, synced":             {rename("/a", "/b"), syncDir("/")},
		"removed, new elsewhere":      {remove("/a"), put("/b", "1"), fsync("/b")},
		"removed and written again":   {remove("/a"), put("/a", "1"), fsync("/a")},
		"in a folder":                 {put("/d/b", "1")},
		"in the other folder":         {put("/e/b", "1")},
		"mkdir":                       {mkdir("/f")},
		"mkdir, synced":               {mkdir("/f"), syncDir("/")},
		"mode":                        {chmod},
		"one of two equal files gone": {remove("/d/same")},
		"the other one gone":          {remove("/e/same")},
		"moved":                       {rename("/a", "/d/a")},
		"moved, half synced":          {rename("/a", "/d/a"), syncDir("/d")},
		"moved, other half synced":    {rename("/a", "/d/a"), syncDir("/")},
		"folder renamed":              {rename("/d", "/g")},
	}
	seen := map[[16]byte]string{}
	for name, steps := range states {
		h := normal(t, base, steps).Hash()
		require.Empty(t, seen[h], "same as %s", name)
		seen[h] = name
	}
}

// Grouping matters: changes that survive together are another state than independent
// ones. After two renames of which the first is lost, one file has two names; from there
// the same edits are possible in two groupings.
func TestHashSeesGroups(t *testing.T) {
	d := diskAfter(t, put("/a", "1"), syncFS(), rename("/a", "/b"), rename("/b", "/c"))
	n := uint64(0)
	for seen(d.Cut(crashfs.Seeded(n))) != "/a=1 /c=1" {
		n++
		require.Less(t, n, uint64(1000))
	}
	one, other := d.Cut(crashfs.Seeded(n)), d.Cut(crashfs.Seeded(n))

	rename("/a", "/d")(t, one.Process("p"))
	remove("/c")(t, one.Process("p"))
	remove("/a")(t, other.Process("p"))
	rename("/c", "/d")(t, other.Process("p"))
	require.Equal(t, seen(one), seen(other))
	require.NotEqual(t, one.Hash(), other.Hash())
}

// Equal hashes must mean equal states.
func TestHashFollowsState(t *testing.T) {
	for seed := range uint64(20) {
		a, b := randomDisk(t, seed, 50), randomDisk(t, seed, 50)
		require.Equal(t, a.Hash(), b.Hash())
		require.Equal(t, a.Hash(), a.Kill().Hash())
		byHash := map[[16]byte]string{}
		for n := range uint64(100) {
			left := a.Cut(crashfs.Seeded(n))
			if previous, known := byHash[left.Hash()]; known {
				require.Equal(t, previous, seen(left))
			}
			byHash[left.Hash()] = seen(left)
		}
	}
}

// Equal states must have equal hashes, or a harness visits too many. (Renames are left
// out: they may leave one file under two names, which seen does not show.)
func TestHashMergesStates(t *testing.T) {
	d := diskAfter(t, mkdir("/d"), put("/a", "1"), syncFS(), put("/a", "22"), put("/d/b", "333"), remove("/a"), put("/c", "4"))
	hashes, states := map[[16]byte]bool{}, map[string]bool{}
	for n := range uint64(500) {
		left := d.Cut(crashfs.Seeded(n))
		hashes[left.Hash()], states[seen(left)] = true, true
	}
	require.Greater(t, len(states), 20)
	require.Len(t, hashes, len(states))
}

// failingPath leads to /a. An fsync of that path fails.
const failingPath = "/d/../a"

func normal(t testing.TB, scripts ...[]step) *crashfs.Disk {
	d := crashfs.New()
	d.Normal = func(name string) string {
		if strings.HasPrefix(name, ".tmp-") {
			return ".tmp-*"
		}
		return name
	}
	d.Fail = func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync && op.Path == failingPath {
			return errIO
		}
		return nil
	}
	p := d.Process("p")
	for _, script := range scripts {
		for _, s := range script {
			s(t, p)
		}
	}
	return d
}

// benchDisk has about 60 files and folders, some of them unsynced.
func benchDisk(b *testing.B) *crashfs.Disk {
	d := crashfs.New()
	p := d.Process("p")
	for f := range 10 {
		dir := fmt.Sprintf("/d%d", f)
		mkdir(dir)(b, p)
		for i := range 5 {
			put(fmt.Sprintf("%s/%016x.json", dir, i), strings.Repeat("x", 500+i))(b, p)
		}
	}
	syncFS()(b, p)
	for i := range 5 {
		put(fmt.Sprintf("/d1/.t%d", i), "y")(b, p)
		rename(fmt.Sprintf("/d1/.t%d", i), fmt.Sprintf("/d1/new%d", i))(b, p)
	}
	return d
}

func BenchmarkSnapshot(b *testing.B) {
	d := benchDisk(b)
	b.ReportAllocs()
	for b.Loop() {
		d.Snapshot()
	}
}

func BenchmarkCut(b *testing.B) {
	d := benchDisk(b)
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		n++
		d.Cut(crashfs.Seeded(n))
	}
}

func BenchmarkHash(b *testing.B) {
	d := benchDisk(b)
	b.ReportAllocs()
	for b.Loop() {
		d.Hash()
	}
}

// One durable write: create, write, fsync, rename, folder fsync, remove.
func BenchmarkDurableWrite(b *testing.B) {
	p := benchDisk(b).Process("q")
	b.ReportAllocs()
	for b.Loop() {
		f, _ := p.Create("/d2/.t")
		_, _ = f.WriteString("content")
		_ = f.Sync()
		_ = f.Close()
		_ = p.RenameNoReplace("/d2/.t", "/d2/b")
		_ = p.SyncDir("/d2")
		_ = p.Remove("/d2/b")
	}
}
