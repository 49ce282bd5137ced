package ipc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const limit = 1 << 10

// outside is content that must never be read.
const outsideContent = "the host's secret"

// fixture is a hostile folder beside a folder with a secret.
type fixture struct {
	*hostile
	dir    string
	secret string // a file outside, and secretDir the folder it is in
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	top := t.TempDir()
	g := fixture{dir: filepath.Join(top, "requests"), secret: filepath.Join(top, "private", "secret")}
	require.NoError(t, os.Mkdir(g.dir, 0o777))
	require.NoError(t, os.Mkdir(filepath.Dir(g.secret), 0o700))
	write(t, g.secret, outsideContent)
	h, err := openHostile(g.dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	g.hostile = h
	return g
}

func (g fixture) path(name string) string { return filepath.Join(g.dir, name) }

// withinASecond fails the test when f takes a second: no file in the folder may block a
// read.
func withinASecond(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Second):
		require.FailNow(t, "blocked for a second")
	}
}

func (g fixture) read(t *testing.T, name string) (data []byte, err error) {
	t.Helper()
	withinASecond(t, func() { data, err = g.Read(name, limit) })
	require.NotContains(t, string(data), outsideContent)
	return data, err
}

// forEachMethod runs a test with each way to open a file. Each must be safe on its own.
func forEachMethod(t *testing.T, test func(t *testing.T, g fixture)) {
	t.Helper()
	for name, force := range map[string]func(g fixture){
		"openat2":          func(fixture) {},
		"openat":           func(g fixture) { g.noOpenat2 = true },
		"openat2, no proc": func(g fixture) { g.proc = "/none/" },
		"openat, no proc":  func(g fixture) { g.noOpenat2, g.proc = true, "/none/" },
	} {
		t.Run(name, func(t *testing.T) {
			g := newFixture(t)
			force(g)
			test(t, g)
		})
	}
}

func TestReadRefuses(t *testing.T) {
	cases := map[string]struct {
		create func(t *testing.T, g fixture, name string)
		want   error
	}{
		"absolute link": {
			func(t *testing.T, g fixture, name string) { require.NoError(t, os.Symlink(g.secret, name)) }, errSymlink,
		},
		"relative link": {
			func(t *testing.T, _ fixture, name string) {
				require.NoError(t, os.Symlink("../private/secret", name))
			}, errSymlink,
		},
		"link inside the folder: refused too": {
			func(t *testing.T, g fixture, name string) {
				write(t, g.path("other.json"), "{}")
				require.NoError(t, os.Symlink("other.json", name))
			}, errSymlink,
		},
		"link to a folder": {
			func(t *testing.T, g fixture, name string) {
				require.NoError(t, os.Symlink(filepath.Dir(g.secret), name))
			}, errSymlink,
		},
		"link to nothing": {
			func(t *testing.T, _ fixture, name string) { require.NoError(t, os.Symlink("none", name)) }, errSymlink,
		},
		"link to itself": {
			func(t *testing.T, _ fixture, name string) { require.NoError(t, os.Symlink("x.json", name)) }, errSymlink,
		},
		"magic link to an open file": {
			func(t *testing.T, _ fixture, name string) { require.NoError(t, os.Symlink("/proc/self/fd/0", name)) }, errSymlink,
		},
		"hard link to a file outside": {
			func(t *testing.T, g fixture, name string) { require.NoError(t, os.Link(g.secret, name)) }, errLinked,
		},
		"FIFO: a plain open waits for a writer": {
			func(t *testing.T, _ fixture, name string) { require.NoError(t, unix.Mkfifo(name, 0o666)) }, errNotRegular,
		},
		"socket": {
			func(t *testing.T, _ fixture, name string) {
				require.NoError(t, unix.Mknod(name, unix.S_IFSOCK|0o666, 0))
			}, errNotRegular,
		},
		"folder": {
			func(t *testing.T, _ fixture, name string) { require.NoError(t, os.Mkdir(name, 0o777)) }, errNotRegular,
		},
		"sparse terabyte": {
			func(t *testing.T, _ fixture, name string) {
				write(t, name, "{")
				require.NoError(t, os.Truncate(name, 1<<40))
			}, errTooLarge,
		},
		"a byte too much": {
			func(t *testing.T, _ fixture, name string) { write(t, name, strings.Repeat("x", limit+1)) }, errTooLarge,
		},
		"nothing": {func(*testing.T, fixture, string) {}, errGone},
	}
	forEachMethod(t, func(t *testing.T, g fixture) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				defer os.RemoveAll(g.path("x.json"))
				c.create(t, g, g.path("x.json"))
				data, err := g.read(t, "x.json")
				require.ErrorIs(t, err, c.want)
				require.Empty(t, data)
			})
		}
	})
}

func TestReadRefusesDevices(t *testing.T) {
	forEachMethod(t, func(t *testing.T, g fixture) {
		for name, dev := range map[string]uint64{
			"zero never ends":          unix.Mkdev(1, 5),
			"tty becomes our terminal": unix.Mkdev(5, 0),
			"no driver":                unix.Mkdev(241, 255),
			"mem contains secrets":     unix.Mkdev(1, 1),
		} {
			err := unix.Mknod(g.path("x.json"), unix.S_IFCHR|0o666, int(dev))
			if os.Geteuid() != 0 {
				require.ErrorIs(t, err, unix.EPERM, "only root can create devices")
				continue
			}
			require.NoError(t, err, name)
			_, err = g.read(t, "x.json")
			require.ErrorIs(t, err, errNotRegular, name)
			require.NoError(t, g.Remove("x.json"))
		}
	})
}

func TestReadAcceptsPlainFiles(t *testing.T) {
	forEachMethod(t, func(t *testing.T, g fixture) {
		for name, want := range map[string]string{
			"empty.json":             "", // a writer that has just begun: the caller waits
			"a.json":                 `{"request_id":"a"}`,
			"full.json":              strings.Repeat("x", limit),
			".dot":                   "a name with a dot",
			"\xff\n ü":               "names are bytes",
			"-rf":                    "not an option",
			strings.Repeat("n", 255): "longest name",
		} {
			write(t, g.path(name), want)
			data, err := g.read(t, name)
			require.NoError(t, err, name)
			require.Equal(t, want, string(data))
		}
	})
}

func TestReadLimits(t *testing.T) {
	g := newFixture(t)
	write(t, g.path("a"), "a")
	write(t, g.path("empty"), "")
	_, err := g.Read("a", 0)
	require.ErrorIs(t, err, errTooLarge)
	_, err = g.Read("empty", -1)
	require.ErrorIs(t, err, errTooLarge, "an invalid limit allows nothing")
	data, err := g.Read("a", math.MaxInt64)
	require.NoError(t, err, "limit+1 must not overflow")
	require.Equal(t, "a", string(data))
}

func TestNamesStayInside(t *testing.T) {
	forEachMethod(t, func(t *testing.T, g fixture) {
		write(t, g.path("a"), "a")
		require.NoError(t, os.Mkdir(g.path("sub"), 0o777))
		for _, name := range []string{
			"", ".", "..", "/", "../private/secret", "./a", "sub/../a", "sub/", "a/", g.secret,
			"a\x00", "a\x00/../../private/secret", strings.Repeat("n", 256), strings.Repeat("../", 2000),
		} {
			_, err := g.read(t, name)
			require.ErrorIs(t, err, errName, "%.20q", name)
			require.Less(t, len(err.Error()), 2000, "a name must not fill the log")
			_, err = g.Stat(name)
			require.ErrorIs(t, err, errName, "%.20q", name)
			require.ErrorIs(t, g.Remove(name), errName, "%.20q", name)
		}
		require.FileExists(t, g.secret)
		require.FileExists(t, g.path("a"))
	})
}

// endless counts the bytes that are read from it.
type endless int64

func (e *endless) Read(p []byte) (int, error) {
	*e += endless(len(p))
	return len(p), nil
}

func TestReadLimitedIsBounded(t *testing.T) {
	var e endless
	_, err := readLimited(&e, limit)
	require.ErrorIs(t, err, errTooLarge)
	require.EqualValues(t, limit+1, e, "reading stops at the limit, however fast the file grows")
}

func TestReadOfChangingFile(t *testing.T) {
	const name = "x.json"
	cases := map[string]struct {
		change func(t *testing.T, g fixture)
		want   []error
	}{
		"grows past the limit": {
			func(t *testing.T, g fixture) { require.NoError(t, os.Truncate(g.path(name), 1<<40)) },
			[]error{errTooLarge},
		},
		"grows a little": {
			func(t *testing.T, g fixture) { write(t, g.path(name), `{"a": "longer"}`) }, []error{nil, errBusy},
		},
		"gets a second link": {
			func(t *testing.T, g fixture) { require.NoError(t, os.Link(g.path(name), g.path("y"))) }, []error{errLinked},
		},
		"is deleted": {
			func(t *testing.T, g fixture) { require.NoError(t, os.Remove(g.path(name))) }, []error{errGone},
		},
		"is replaced by a link to a folder": {
			swap(func(t *testing.T, g fixture) {
				require.NoError(t, os.Symlink(filepath.Dir(g.secret), g.path("new")))
			}), []error{errGone, errSymlink},
		},
		"is replaced by a link to a file": {
			swap(func(t *testing.T, g fixture) { require.NoError(t, os.Symlink(g.secret, g.path("new"))) }),
			[]error{errGone, errSymlink},
		},
		"is replaced by a hard link to a file outside": {
			swap(func(t *testing.T, g fixture) { require.NoError(t, os.Link(g.secret, g.path("new"))) }),
			[]error{errGone, errLinked},
		},
		"is replaced by another file": {
			swap(func(t *testing.T, g fixture) { write(t, g.path("new"), "{}") }), []error{errGone, errBusy},
		},
		"is replaced by a FIFO": {
			swap(func(t *testing.T, g fixture) { require.NoError(t, unix.Mkfifo(g.path("new"), 0o666)) }),
			[]error{errGone, errNotRegular},
		},
		"is replaced by a socket": {
			swap(func(t *testing.T, g fixture) {
				require.NoError(t, unix.Mknod(g.path("new"), unix.S_IFSOCK|0o666, 0))
			}), []error{errGone, errNotRegular},
		},
		"is replaced by a folder": {
			func(t *testing.T, g fixture) {
				require.NoError(t, os.Remove(g.path(name)))
				require.NoError(t, os.Mkdir(g.path(name), 0o777))
			}, []error{errGone, errNotRegular},
		},
	}
	forEachMethod(t, func(t *testing.T, g fixture) {
		for what, c := range cases {
			t.Run(what, func(t *testing.T) {
				defer func() { _ = os.RemoveAll(g.path(name)); _ = os.RemoveAll(g.path("y")) }()
				write(t, g.path(name), `{"a": 1}`)
				g.onStep = func(step string) {
					if step == "checked" {
						c.change(t, g)
					}
				}
				_, err := g.read(t, name)
				for _, want := range c.want {
					if errors.Is(err, want) {
						return
					}
				}
				require.Fail(t, "unexpected error", "%v", err)
			})
		}
	})
}

// swap creates "new" and renames it over the file.
func swap(create func(t *testing.T, g fixture)) func(t *testing.T, g fixture) {
	return func(t *testing.T, g fixture) {
		create(t, g)
		require.NoError(t, os.Rename(g.path("new"), g.path("x.json")))
	}
}

// A link to the secret is under the name while we open it, and is removed before we count
// the links: the counted link is not in this folder.
func TestReadDetectsRemovedLink(t *testing.T) {
	forEachMethod(t, func(t *testing.T, g fixture) {
		for what, change := range map[string]func(name string) error{
			"gone": os.Remove,
			"replaced": func(name string) error {
				return errors.Join(os.WriteFile(g.path("new"), []byte("{}"), 0o644), os.Rename(g.path("new"), name))
			},
			"moved out": func(name string) error {
				return errors.Join(os.Rename(name, g.secret+".moved"), os.Remove(g.secret+".moved"))
			},
		} {
			require.NoError(t, os.Link(g.secret, g.path("x.json")), what)
			g.onStep = func(step string) {
				if step == "opened" {
					require.NoError(t, change(g.path("x.json")), what)
				}
			}
			_, err := g.read(t, "x.json")
			require.Error(t, err, what)
			require.True(t, errors.Is(err, errGone) || errors.Is(err, errBusy), "%s: %v", what, err)
			_ = os.Remove(g.path("x.json"))
		}
	})
}

// The same, but the link is back when we check whether the name exists.
func TestReadDetectsRestoredLink(t *testing.T) {
	for _, plain := range []bool{false, true} {
		g := newFixture(t)
		g.noOpenat2 = plain
		require.NoError(t, os.Link(g.secret, g.path("x.json")))
		g.onStep = func(step string) {
			switch step {
			case "opened", "checked":
				_ = os.Remove(g.path("x.json"))
			case "counted":
				require.NoError(t, os.Link(g.secret, g.path("x.json")))
			}
		}
		_, err := g.read(t, "x.json")
		require.ErrorIs(t, err, errGone)
	}
}

// The same without test hooks: the kernel lowers the count before it removes the name,
// and only a race can read in between.
func TestReadRacesLink(t *testing.T) {
	for _, plain := range []bool{false, true} {
		g := newFixture(t)
		g.noOpenat2 = plain
		stop := make(chan struct{})
		var agent sync.WaitGroup
		agent.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = os.Link(g.secret, g.path("x.json"))
					_ = os.Remove(g.path("x.json"))
				}
			}
		})
		linked, leaked := 0, 0
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
			switch _, err := g.Read("x.json", limit); {
			case err == nil:
				leaked++
			case errors.Is(err, errLinked):
				linked++
			}
		}
		close(stop)
		agent.Wait()
		require.Zero(t, leaked)
		require.NotZero(t, linked, "no read met the link: not a race")
	}
}

func TestCheckUnchanged(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	write(t, name, "abc")
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	before, err := fstat(int(f.Fd()))
	require.NoError(t, err)

	require.NoError(t, checkUnchanged(int(f.Fd()), &before, 3, limit))
	require.ErrorIs(t, checkUnchanged(int(f.Fd()), &before, 2, limit), errBusy, "fewer bytes read than the file has")
	require.ErrorIs(t, checkUnchanged(int(f.Fd()), &before, 3, 2), errTooLarge)
	require.NoError(t, os.Chtimes(name, time.Time{}, time.Unix(1, 0)))
	require.ErrorIs(t, checkUnchanged(int(f.Fd()), &before, 3, limit), errBusy, "same size, other content")
	require.NoError(t, os.Remove(name))
	require.ErrorIs(t, checkUnchanged(int(f.Fd()), &before, 3, limit), errGone)
}

// An agent replaces one file as fast as it can while we read it.
func TestReadRacesAgent(t *testing.T) {
	forEachMethod(t, func(t *testing.T, g fixture) {
		link := os.Link
		if g.proc == "/none/" {
			link = os.Symlink // without /proc a hard link is not detected
		}
		create := []func(name string) error{
			func(name string) error { return os.WriteFile(name, []byte("{}"), 0o644) },
			func(name string) error { return os.Symlink(g.secret, name) },
			func(name string) error { return os.WriteFile(name, []byte("{}"), 0o644) },
			func(name string) error { return link(g.secret, name) },
			func(name string) error { return os.WriteFile(name, []byte("{}"), 0o644) },
			func(name string) error { return unix.Mkfifo(name, 0o666) },
			func(name string) error { return os.Symlink(filepath.Dir(g.secret), name) },
		}
		stop := make(chan struct{})
		var agent sync.WaitGroup
		agent.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if create[i%len(create)](g.path("new")) == nil {
					_ = os.Rename(g.path("new"), g.path("x.json"))
					// Renaming one link of a file over another does nothing and leaves both.
					_ = os.Remove(g.path("new"))
				}
			}
		})
		read := 0
		began := time.Now()
		for time.Since(began) < 400*time.Millisecond || read == 0 && time.Since(began) < time.Minute { // longer on a busy machine
			data, err := g.read(t, "x.json")
			if err == nil {
				read++
				require.Equal(t, "{}", string(data))
			}
		}
		close(stop)
		agent.Wait()
		require.NotZero(t, read, "no read succeeded: not a race")
	})
}

func TestStat(t *testing.T) {
	forEachMethod(t, func(t *testing.T, g fixture) {
		write(t, g.path("file"), "")
		require.NoError(t, os.Symlink("missing", g.path("dangling")))
		require.NoError(t, unix.Mkfifo(g.path("fifo"), 0o666))
		for name, want := range map[string]bool{
			"file": true, "fifo": true, "none": false,
			"dangling": true, // the link exists; its target does not matter
		} {
			withinASecond(t, func() {
				exists, err := g.Stat(name)
				require.NoError(t, err)
				require.Equal(t, want, exists, name)
			})
		}
	})
}

func TestRemove(t *testing.T) {
	forEachMethod(t, func(t *testing.T, g fixture) {
		target := filepath.Dir(g.secret)
		write(t, g.path("file"), "")
		require.NoError(t, os.Symlink(g.secret, g.path("link")))
		require.NoError(t, os.Symlink(target, g.path("folder link")))
		require.NoError(t, os.Link(g.secret, g.path("hard link")))
		require.NoError(t, unix.Mkfifo(g.path("fifo"), 0o666))
		require.NoError(t, os.Mkdir(g.path("empty folder"), 0))
		for _, name := range []string{"file", "link", "folder link", "hard link", "fifo", "empty folder"} {
			withinASecond(t, func() { require.NoError(t, g.Remove(name), name) })
			require.ErrorIs(t, g.Remove(name), errGone, name)
		}
		require.Equal(t, outsideContent, content(t, g.secret), "only the names are removed, not their targets")

		require.NoError(t, os.MkdirAll(g.path("full/sub"), 0o777))
		require.ErrorIs(t, g.Remove("full"), errNotRegular)
		require.DirExists(t, g.path("full/sub"))
	})
}

func TestNames(t *testing.T) {
	g := newFixture(t)
	names, more, err := g.Names(10)
	require.NoError(t, err)
	require.False(t, more)
	require.Empty(t, names)

	for i := range 500 { // more than one read of the folder
		write(t, g.path(fmt.Sprint(i)), "")
	}
	require.NoError(t, os.Symlink(filepath.Dir(g.secret), g.path("link")))
	for _, g.noOpenat2 = range []bool{false, true} {
		for most, want := range map[int]struct {
			names int
			more  bool
		}{
			-1: {0, true}, 0: {0, true}, 1: {1, true}, 500: {500, true}, 501: {501, false},
			1000: {501, false}, math.MaxInt: {501, false},
		} {
			names, more, err := g.Names(most)
			require.NoError(t, err)
			require.Len(t, names, want.names, most)
			require.Equal(t, want.more, more, most)
		}
		names, _, err = g.Names(501)
		require.NoError(t, err)
		require.Contains(t, names, "link")
		require.NotContains(t, names, "secret", "links are listed, not followed")
		again, _, err := g.Names(501)
		require.NoError(t, err)
		require.ElementsMatch(t, names, again, "each listing starts from the beginning")
	}
}

func TestNamesReadsNoMoreThanLimit(t *testing.T) {
	g := newFixture(t)
	for i := range 300 {
		write(t, g.path(fmt.Sprint(i)), "")
	}
	allocated := testing.AllocsPerRun(10, func() { _, _, _ = g.Names(3) })
	require.Less(t, allocated, 50.0, "each name read is one allocation")
}

func TestOpenHostileRefuses(t *testing.T) {
	g := newFixture(t)
	link := filepath.Join(filepath.Dir(g.dir), "link")
	require.NoError(t, os.Symlink(filepath.Dir(g.secret), link))
	_, err := openHostile(link)
	require.Error(t, err, "a link instead of the folder could lead anywhere")
	_, err = openHostile(g.secret)
	require.ErrorIs(t, err, unix.ENOTDIR)
	_, err = openHostile(filepath.Join(g.dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, unix.Mkfifo(g.path("fifo"), 0o666))
	withinASecond(t, func() {
		_, err := openHostile(g.path("fifo"))
		require.Error(t, err)
	})
}

func TestStale(t *testing.T) {
	g := newFixture(t)
	write(t, g.path("a"), "a")
	require.False(t, g.Stale())

	moved := g.dir + ".moved"
	require.NoError(t, os.Rename(g.dir, moved))
	require.True(t, g.Stale(), "its name does not exist")
	require.NoError(t, os.Symlink(moved, g.dir))
	require.True(t, g.Stale(), "a link to the folder is not the folder")
	data, err := g.read(t, "a")
	require.NoError(t, err, "the folder is open, independent of its name")
	require.Equal(t, "a", string(data))

	require.NoError(t, os.Remove(g.dir))
	require.NoError(t, os.Mkdir(g.dir, 0o777))
	require.True(t, g.Stale(), "the name is another folder's")

	require.NoError(t, os.RemoveAll(moved))
	_, err = g.read(t, "a")
	require.ErrorIs(t, err, errGone)
	_, _, err = g.Names(10)
	require.ErrorIs(t, err, errGone, "an empty list would hide the error")
	exists, err := g.Stat("a")
	require.NoError(t, err)
	require.False(t, exists)
}

func TestClosed(t *testing.T) {
	g := newFixture(t)
	write(t, g.path("a"), "a")
	require.NoError(t, g.Close())
	for name, h := range map[string]*hostile{"closed": g.hostile, "zero": {}} {
		_, err := h.Read("a", limit)
		require.Error(t, err, name)
		_, _, err = h.Names(1)
		require.Error(t, err, name)
		_, err = h.Stat("a")
		require.Error(t, err, name)
		require.Error(t, h.Remove("a"), name)
	}
	require.FileExists(t, g.path("a"))
}

func TestConcurrentUse(t *testing.T) {
	g := newFixture(t)
	want := bytes.Repeat([]byte("x"), limit)
	write(t, g.path("a"), string(want))
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 200 {
				data, err := g.Read("a", limit)
				if err != nil || !bytes.Equal(data, want) {
					t.Errorf("read %d bytes: %v", len(data), err)
				}
				if names, _, err := g.Names(9); err != nil || len(names) != 1 {
					t.Errorf("list %v: %v", names, err)
				}
			}
		})
	}
	readers.Wait()
}
