package crashfs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// File and Names return the same as Files, and call no hook.
func TestFileAndNames(t *testing.T) {
	d := crashfs.New()
	p := d.Process("p")
	for _, do := range []step{mkdir("/d"), put("/d/b", "2"), put("/d/a", "1"), put("/empty", "")} {
		do(t, p)
	}
	d.Before = func(op crashfs.Op) { require.Fail(t, "a hook is called", "%s", op) }
	d.BeforeRead = d.Before
	for name, want := range d.Files() {
		b, ok := d.File(name)
		require.True(t, ok, name)
		require.Equal(t, want, b, name)
	}
	for _, name := range []string{"/d", "/d/c", "/no/file", ""} {
		b, ok := d.File(name)
		require.False(t, ok, name)
		require.Nil(t, b, name)
	}
	require.Equal(t, []string{"a", "b"}, d.Names("/d"))
	require.Equal(t, []string{"d", "empty"}, d.Names("/"))
	require.Empty(t, d.Names("/empty"))
	require.Empty(t, d.Names("/no/file"))
}

// Times are not part of the state that a crash can leave, but a program can read them.
func TestTimedHash(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	made := func(steps ...step) *crashfs.Disk {
		d := crashfs.New()
		d.Now = func() time.Time { return at }
		for _, do := range append([]step{put("/a", "1"), mkdir("/d")}, steps...) {
			do(t, d.Process("p"))
		}
		return d
	}
	touch := func(name string) step {
		return func(t testing.TB, p *crashfs.Proc) {
			require.NoError(t, p.Chtimes(name, at, at.Add(time.Nanosecond)))
		}
	}
	base := made()
	require.Equal(t, base.TimedHash(), made().TimedHash())
	require.NotEqual(t, base.TimedHash(), made(put("/a", "2")).TimedHash())
	seen := map[[16]byte]string{base.TimedHash(): "nothing"}
	for _, name := range []string{"/", "/a", "/d"} {
		d := made(touch(name))
		require.Equal(t, base.Hash(), d.Hash(), name)
		require.Empty(t, seen[d.TimedHash()], name)
		seen[d.TimedHash()] = name
	}
}
