package crashfs_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// step is one operation of a program. The functions below make steps.
type step func(t testing.TB, p *crashfs.Proc)

func put(name, data string) step {
	return func(t testing.TB, p *crashfs.Proc) {
		require.NoError(t, afero.WriteFile(p, name, []byte(data), 0o600))
	}
}

func appendTo(name, data string) step {
	return func(t testing.TB, p *crashfs.Proc) {
		f, err := p.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
		_, err = f.WriteString(data)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

func fsync(name string) step {
	return func(t testing.TB, p *crashfs.Proc) {
		f, err := p.Open(name)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, f.Close())
	}
}

func syncDir(name string) step {
	return func(t testing.TB, p *crashfs.Proc) { require.NoError(t, p.SyncDir(name)) }
}

func syncFS() step {
	return func(t testing.TB, p *crashfs.Proc) { require.NoError(t, p.SyncFS("/")) }
}

func rename(from, to string) step {
	return func(t testing.TB, p *crashfs.Proc) { require.NoError(t, p.RenameNoReplace(from, to)) }
}

func replace(from, to string) step {
	return func(t testing.TB, p *crashfs.Proc) { require.NoError(t, p.Rename(from, to)) }
}

func remove(name string) step {
	return func(t testing.TB, p *crashfs.Proc) { require.NoError(t, p.Remove(name)) }
}

func mkdir(name string) step {
	return func(t testing.TB, p *crashfs.Proc) { require.NoError(t, p.Mkdir(name, 0o700)) }
}

func diskAfter(t testing.TB, steps ...step) *crashfs.Disk {
	t.Helper()
	d := crashfs.New()
	d.Now = func() time.Time { return time.Unix(1_000_000_000, 0) }
	p := d.Process("p")
	for _, s := range steps {
		s(t, p)
	}
	return d
}

// seen formats the visible files: "/a=1 /b=2".
func seen(d *crashfs.Disk) string {
	var out []string
	for name, data := range d.Files() {
		out = append(out, fmt.Sprintf("%s=%s", name, strings.ReplaceAll(string(data), "\x00", "0")))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestCut(t *testing.T) {
	script := func(s ...step) []step { return s }
	tests := []struct {
		name  string
		steps []step
		want  map[crashfs.Survive]string
	}{
		{
			"nothing synced: the name may go, and the data even if the name stays",
			script(put("/a", "12345678")),
			map[crashfs.Survive]string{
				crashfs.OnlySynced: "", crashfs.Everything: "/a=12345678", crashfs.NamesNotData: "/a=",
				crashfs.DataNotNames: "", crashfs.Torn: "/a=1234", crashfs.Zeroed: "/a=00000000",
			},
		},
		{
			"fsync keeps the data but not the name",
			script(put("/a", "12345678"), fsync("/a")),
			map[crashfs.Survive]string{
				crashfs.OnlySynced: "", crashfs.NamesNotData: "/a=12345678", crashfs.DataNotNames: "", crashfs.Torn: "/a=12345678",
			},
		},
		{
			"folder fsync keeps the name but not the data",
			script(put("/a", "12345678"), syncDir("/")),
			map[crashfs.Survive]string{
				crashfs.OnlySynced: "/a=", crashfs.NamesNotData: "/a=", crashfs.DataNotNames: "/a=12345678", crashfs.Torn: "/a=1234",
			},
		},
		{
			"syncfs keeps both, in folders too",
			script(mkdir("/d"), put("/d/a", "1"), syncFS()),
			map[crashfs.Survive]string{crashfs.OnlySynced: "/d/a=1", crashfs.Torn: "/d/a=1", crashfs.Zeroed: "/d/a=1"},
		},
		{
			"a rename is not durable by the file's fsync",
			script(put("/t", "1"), fsync("/t"), syncDir("/"), rename("/t", "/a")),
			map[crashfs.Survive]string{crashfs.OnlySynced: "/t=1", crashfs.NamesNotData: "/a=1", crashfs.DataNotNames: "/t=1"},
		},
		{
			"what a rename replaced comes back",
			script(put("/a", "old"), syncFS(), put("/t", "new"), fsync("/t"), replace("/t", "/a")),
			map[crashfs.Survive]string{crashfs.OnlySynced: "/a=old", crashfs.NamesNotData: "/a=new", crashfs.Everything: "/a=new"},
		},
		{
			"an unsynced removal comes back",
			script(put("/a", "1"), syncFS(), remove("/a")),
			map[crashfs.Survive]string{crashfs.OnlySynced: "/a=1", crashfs.NamesNotData: "", crashfs.DataNotNames: "/a=1"},
		},
		{
			"a synced removal stays",
			script(put("/a", "1"), syncFS(), remove("/a"), syncDir("/")),
			map[crashfs.Survive]string{crashfs.OnlySynced: "", crashfs.DataNotNames: ""},
		},
		{
			"a folder needs its parent synced",
			script(mkdir("/d"), put("/d/a", "1"), fsync("/d/a"), syncDir("/d")),
			map[crashfs.Survive]string{crashfs.OnlySynced: "", crashfs.NamesNotData: "/d/a=1"},
		},
		{
			"and a parent's sync does not keep what is in it",
			script(mkdir("/d"), put("/d/a", "1"), fsync("/d/a"), syncDir("/")),
			map[crashfs.Survive]string{crashfs.OnlySynced: "", crashfs.Everything: "/d/a=1"},
		},
		{
			"appended data tears, synced data before it does not",
			script(put("/log", "synced"), syncFS(), appendTo("/log", "abcd")),
			map[crashfs.Survive]string{
				crashfs.OnlySynced: "/log=synced", crashfs.DataNotNames: "/log=syncedabcd",
				crashfs.Torn: "/log=syncedab", crashfs.Zeroed: "/log=synced0000",
			},
		},
		{
			"an overwritten file tears into new and old",
			script(put("/a", "old-old-"), syncFS(), put("/a", "NEWN")),
			map[crashfs.Survive]string{crashfs.OnlySynced: "/a=old-old-", crashfs.Torn: "/a=NEd-old-", crashfs.Zeroed: "/a=old-"},
		},
		{
			"a move between folders is two changes",
			script(mkdir("/d"), mkdir("/e"), put("/d/a", "1"), syncFS(), rename("/d/a", "/e/a"), syncDir("/e")),
			map[crashfs.Survive]string{crashfs.OnlySynced: "/d/a=1 /e/a=1", crashfs.Everything: "/e/a=1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := diskAfter(t, tt.steps...)
			before := seen(d)
			for way, want := range tt.want {
				require.Equal(t, want, seen(d.Cut(way)), way)
				require.Equal(t, want, seen(d.Kill().Cut(way)), "unsynced changes stay unsynced after a kill: %s", way)
			}
			require.Equal(t, before, seen(d), "a cut does not change the disk itself")
			require.Equal(t, before, seen(d.Kill()))
		})
	}
}

func TestCutLeavesOnlyDurableState(t *testing.T) {
	d := randomDisk(t, 7, 60)
	for n := range uint64(50) {
		once := d.Cut(crashfs.Seeded(n))
		for _, way := range crashfs.Ways() {
			require.Equal(t, once.Hash(), once.Cut(way).Hash(), "%d, then %s", n, way)
		}
	}
}

func TestSeededReachesEveryCombination(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  []string
	}{
		{
			"a rename is atomic: never both names, never none",
			[]step{put("/t", "1"), syncFS(), rename("/t", "/a")},
			[]string{"/a=1", "/t=1"},
		},
		{
			"changes survive out of order: b without a",
			[]step{put("/a", "1"), fsync("/a"), put("/b", "2"), fsync("/b")},
			[]string{"", "/a=1", "/a=1 /b=2", "/b=2"},
		},
		{
			"data is complete, empty, torn anywhere, or zeros",
			[]step{put("/a", "123"), syncDir("/")},
			[]string{"/a=", "/a=000", "/a=1", "/a=12", "/a=123"},
		},
		{
			"the rename may survive without the create, and the create without the rename",
			[]step{put("/t", "1"), fsync("/t"), rename("/t", "/a")},
			[]string{"", "/a=1", "/t=1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := diskAfter(t, tt.steps...)
			got := map[string]bool{}
			for n := range uint64(200) {
				left := seen(d.Cut(crashfs.Seeded(n)))
				require.Equal(t, left, seen(d.Cut(crashfs.Seeded(n))), "same seed, same disk")
				got[left] = true
			}
			for _, want := range tt.want {
				require.True(t, got[want], "never saw %q in %v", want, got)
			}
			require.Len(t, got, len(tt.want), "%v", got)
		})
	}
}

// Completely synced data survives every cut.
func TestSyncedSurvivesEverything(t *testing.T) {
	for seed := range uint64(30) {
		d := randomDisk(t, seed, 40)
		p := d.Process("writer")
		put("/tmp", "synced")(t, p)
		fsync("/tmp")(t, p)
		rename("/tmp", "/kept")(t, p)
		syncDir("/")(t, p)
		scramble(t, p, rand.New(rand.NewPCG(seed, 2)), 20)
		for n := range uint64(20) {
			require.Equal(t, "synced", string(d.Cut(crashfs.Seeded(n)).Files()["/kept"]), "seed %d, cut %d", seed, n)
		}
		for _, way := range crashfs.Ways() {
			require.Equal(t, "synced", string(d.Cut(way).Files()["/kept"]), way)
		}
	}
}

// A disk can be used after a cut: numbers of vanished files are used again.
func TestDiskWorksAfterCut(t *testing.T) {
	d := diskAfter(t, put("/gone1", "1"), put("/gone2", "2"))
	for range 3 {
		d = d.Cut(crashfs.OnlySynced)
		require.Empty(t, d.Files())
		p := d.Process("next")
		put("/a", "A")(t, p)
		put("/b", "B")(t, p)
		put("/c", "C")(t, p)
		require.Equal(t, "/a=A /b=B /c=C", seen(d))
	}
}

func TestOmissions(t *testing.T) {
	durable := []step{put("/t", "1"), fsync("/t"), rename("/t", "/a"), syncDir("/")}
	tests := []struct {
		name string
		set  func(d *crashfs.Disk)
		end  step
		want string
	}{
		{"none", func(*crashfs.Disk) {}, nil, "/a=1"},
		{"file fsync", func(d *crashfs.Disk) { d.Ignore = ignore(crashfs.OpSync) }, nil, "/a="},
		{"folder fsync", func(d *crashfs.Disk) { d.Ignore = ignore(crashfs.OpSyncDir) }, nil, ""},
		{"syncfs replaces both", func(d *crashfs.Disk) { d.Ignore = ignore(crashfs.OpSync, crashfs.OpSyncDir) }, syncFS(), "/a=1"},
		{"syncfs ignored too", func(d *crashfs.Disk) {
			d.Ignore = ignore(crashfs.OpSync, crashfs.OpSyncDir, crashfs.OpSyncFS)
		}, syncFS(), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := crashfs.New()
			tt.set(d)
			d = d.Snapshot() // a snapshot keeps the omissions
			p := d.Process("p")
			for _, s := range durable {
				s(t, p)
			}
			if tt.end != nil {
				tt.end(t, p)
			}
			require.Equal(t, tt.want, seen(d.Cut(crashfs.OnlySynced)))
		})
	}
}

func TestSurviveString(t *testing.T) {
	require.Len(t, crashfs.Ways(), 6)
	require.Equal(t, "names, not data", crashfs.NamesNotData.String())
	require.Equal(t, "seeded 17", crashfs.Seeded(17).String())
	require.Equal(t, "survive(99)", crashfs.Survive(99).String())
}

// randomDisk is a disk after random operations; the same for the same seed.
func randomDisk(t testing.TB, seed uint64, ops int) *crashfs.Disk {
	d := diskAfter(t, mkdir("/d"), mkdir("/e"))
	scramble(t, d.Process("p"), rand.New(rand.NewPCG(seed, 1)), ops)
	return d
}

// scramble runs random operations on a few names other than /kept.
func scramble(t testing.TB, p *crashfs.Proc, r *rand.Rand, ops int) {
	name := func() string {
		return path.Join([]string{"/", "/d", "/e"}[r.IntN(3)], []string{"x", "y", "z"}[r.IntN(3)])
	}
	for range ops {
		switch r.IntN(6) {
		case 0:
			_ = p.Remove(name())
		case 1:
			_ = p.Rename(name(), name())
		case 2:
			require.NoError(t, p.SyncDir([]string{"/", "/d", "/e"}[r.IntN(3)]))
		case 3:
			if f, err := p.Open(name()); err == nil {
				require.NoError(t, f.Sync())
			}
		default:
			put(name(), strings.Repeat("ab", r.IntN(9)))(t, p)
		}
	}
}

func ignore(kinds ...crashfs.Kind) func(crashfs.Op) bool {
	return func(op crashfs.Op) bool { return slices.Contains(kinds, op.Kind) }
}
