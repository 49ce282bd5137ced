package crashfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// realFS is the operating system's file system with the one extension whose results can
// be compared.
type realFS struct{ afero.OsFs }

func (realFS) RenameNoReplace(oldname, newname string) error {
	err := unix.Renameat2(unix.AT_FDCWD, oldname, unix.AT_FDCWD, newname, unix.RENAME_NOREPLACE)
	if err != nil {
		return &os.LinkError{Op: "renameat2", Old: oldname, New: newname, Err: err}
	}
	return nil
}

type comparedFS interface {
	afero.Fs
	RenameNoReplace(oldname, newname string) error
}

// runner runs a script line by line and returns the result of each line.
type runner struct {
	fs    comparedFS
	root  string
	files map[string]afero.File
}

func newRunner(fsys comparedFS, root string) *runner {
	return &runner{fs: fsys, root: root, files: map[string]afero.File{}}
}

func (p *runner) path(name string) string { return p.root + "/" + name }

var openFlags = map[string]int{
	"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "c": os.O_CREATE, "x": os.O_EXCL, "a": os.O_APPEND, "t": os.O_TRUNC,
}

func flags(s string) int {
	flag := 0
	for f := range strings.SplitSeq(s, "+") {
		flag |= openFlags[f]
	}
	return flag
}

// run runs one line: a verb, then paths or, for f.verbs, a handle.
func (p *runner) run(line string) string {
	args := append(strings.Fields(line), "", "", "")
	if strings.HasPrefix(args[0], "f.") {
		return p.runFile(args)
	}
	a, b := p.path(args[1]), p.path(args[2])
	switch args[0] {
	case "mkdir":
		return result("", p.fs.Mkdir(a, 0o700))
	case "mkdirall":
		return result("", p.fs.MkdirAll(a, 0o711))
	case "remove":
		return result("", p.fs.Remove(a))
	case "removeall":
		return result("", p.fs.RemoveAll(a))
	case "rename":
		return result("", p.fs.Rename(a, b))
	case "noreplace":
		return result("", p.fs.RenameNoReplace(a, b))
	case "chmod":
		mode, _ := strconv.ParseUint(args[2], 8, 32)
		return result("", p.fs.Chmod(a, os.FileMode(mode)))
	case "stat":
		return formatStat(p.fs.Stat(a))
	case "put":
		return result("", afero.WriteFile(p.fs, a, []byte(args[2]), 0o640))
	case "get":
		data, err := afero.ReadFile(p.fs, a)
		return result(string(data), err)
	case "open": // open PATH FLAGS HANDLE
		f, err := p.fs.OpenFile(a, flags(args[2]), 0o604)
		if err == nil {
			p.close(args[3])
			p.files[args[3]] = f
		}
		return result("", err)
	}
	return "unknown verb " + args[0]
}

func (p *runner) close(handles ...string) {
	for _, h := range handles {
		if f := p.files[h]; f != nil {
			_ = f.Close() // the script may have closed it already
		}
	}
}

// unspecified is the result of reading bytes of a folder and of offsets in one: it
// differs between file systems.
const unspecified = "unspecified"

func (p *runner) runFile(args []string) string {
	f := p.files[args[1]]
	if f == nil {
		return "no such handle"
	}
	n, _ := strconv.Atoi(args[2])
	i, err := f.Stat()
	isDir := err == nil && i.IsDir()
	buffer := make([]byte, max(0, min(n, 100)))
	switch args[0] {
	case "f.read":
		if isDir && n > 0 {
			return unspecified
		}
		read, err := f.Read(buffer)
		return result(string(buffer[:read]), err)
	case "f.readat": // f.readat HANDLE SIZE OFFSET
		if isDir && n > 0 {
			return unspecified
		}
		offset, _ := strconv.ParseInt(args[3], 10, 64)
		read, err := f.ReadAt(buffer, offset)
		return result(string(buffer[:read]), err)
	case "f.write":
		written, err := f.WriteString(args[2])
		return result(strconv.Itoa(written), err)
	case "f.writeat": // f.writeat HANDLE OFFSET DATA
		written, err := f.WriteAt([]byte(args[3]), int64(n))
		return result(strconv.Itoa(written), err)
	case "f.seek":
		whence, _ := strconv.Atoi(args[3])
		if isDir && (n != 0 || whence != 0) {
			return unspecified
		}
		at, err := f.Seek(int64(n), whence)
		return result(strconv.FormatInt(at, 10), err)
	case "f.truncate":
		return result("", f.Truncate(int64(n)))
	case "f.sync":
		return result("", f.Sync())
	case "f.stat":
		return formatStat(f.Stat())
	case "f.close":
		return result("", f.Close())
	case "f.names":
		names, err := f.Readdirnames(n)
		return result(formatNames(names, n), err)
	case "f.list":
		infos, err := f.Readdir(n)
		var names []string
		for _, i := range infos {
			names = append(names, fmt.Sprintf("%s:%s", i.Name(), i.Mode()))
		}
		return result(formatNames(names, n), err)
	}
	return "unknown verb " + args[0]
}

// formatNames sorts a complete list. Of a partial one only the length is the same
// everywhere.
func formatNames(names []string, n int) string {
	if n > 0 {
		return strconv.Itoa(len(names))
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func formatStat(i os.FileInfo, err error) string {
	if err != nil {
		return result("", err)
	}
	if i.IsDir() {
		return fmt.Sprintf("%s %s", i.Name(), i.Mode()) // sizes of folders differ between file systems
	}
	return fmt.Sprintf("%s %s %d", i.Name(), i.Mode(), i.Size())
}

// result formats an error by its type and kind; texts may differ.
func result(value string, err error) string {
	if err == nil {
		return value + " ok"
	}
	var number syscall.Errno
	kind := "other"
	switch {
	case errors.As(err, &number):
		kind = unix.ErrnoName(number)
	case errors.Is(err, io.EOF):
		kind = "EOF"
	case errors.Is(err, fs.ErrClosed):
		kind = "closed"
	}
	is := fmt.Sprintf("exist=%t notexist=%t", errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist))
	return fmt.Sprintf("%s %T %s %s", value, err, kind, is)
}

// newRunners returns the two runners whose results must be equal.
func newRunners(dir string) (simulated, actual *runner, err error) {
	if err := os.Mkdir(filepath.Join(dir, "probe"), 0o777); err != nil {
		return nil, nil, err
	}
	probe, err := os.Stat(filepath.Join(dir, "probe"))
	if err != nil {
		return nil, nil, err
	}
	d := crashfs.New()
	d.Umask = 0o777 &^ probe.Mode().Perm()
	p := d.Process("p")
	for _, fsys := range []afero.Fs{p, afero.NewOsFs()} {
		if err := fsys.MkdirAll(filepath.Join(dir, "work"), 0o755); err != nil {
			return nil, nil, err
		}
	}
	root := filepath.Join(dir, "work")
	return newRunner(p, root), newRunner(realFS{}, root), nil
}

// Every line of the script must have the same result.
const conformScript = `
mkdir d
mkdir d
mkdir none/d
mkdirall d/e/f
mkdirall d/e/f
put a hello
mkdir a
mkdir a/b
mkdirall a
mkdirall a/b/c
stat a
stat d
stat none
stat a/b
stat none/none
get a
get none
get d
chmod a 600
stat a
chmod d 750
stat d
chmod none 600
open a r h
f.read h 0
f.read h 2
f.read h 100
f.read h 1
f.readat h 3 1
f.readat h 9 1
f.readat h 1 99
f.readat h 1 -1
f.write h x
f.writeat h 0 x
f.truncate h 0
f.sync h
f.seek h 1 0
f.read h 2
f.seek h -1 1
f.seek h -2 2
f.read h 9
f.seek h -9 1
f.seek h 0 9
f.stat h
f.names h -1
f.close h
f.close h
f.read h 1
f.write h 1
f.sync h
f.seek h 0 0
f.stat h
f.truncate h 0
open a w h
f.read h 1
f.readat h 1 0
f.write h HE
f.writeat h 0
f.seek h 8 0
f.write h end
get a
f.truncate h -1
f.truncate h 4
f.write h x
get a
f.truncate h 20
f.stat h
f.writeat h -1 x
f.writeat h 22 zz
f.seek h 0 1
get a
f.close h
open a rw+a h
f.write h 1
f.seek h 0 0
f.write h 2
f.seek h 0 1
f.writeat h 0 x
get a
f.close h
open a w+t h
get a
f.close h
open a r+t h
open a rw+c h
open a rw+c+x h
open d rw+c+x h
open d rw h
open d w h
open d r+c h
open d r+t h
open new rw+c+x n
f.stat n
open new2 r+c m
f.stat m
open none/x rw+c h
open a/x rw+c h
open a/x r h
open none r h
open none rw+t h
put a content
open a rw+t h
f.write h short
rename a b
get b
f.write h +more
get b
f.stat h
put c other
rename c b
get b
f.seek h 0 0
f.read h 99
remove b
get b
rename none x
rename none d
rename b x
put b B
put c C
noreplace b c
noreplace none c
noreplace none none2
noreplace b x
noreplace x d
noreplace x none/x
noreplace x c/x
noreplace x x
get x
rename x none/x
rename x c/x
rename x x
rename x d
rename d c
rename d d
rename d d/e/x
noreplace d d/e/x
rename d/e d/g
stat d/e
stat d/g/f
rename x d/g/x
get d/g/x
open d r l
f.names l 1
f.names l 5
f.names l 1
f.names l 0
f.seek l 0 0
f.names l -1
f.list l -1
f.seek l 0 0
f.list l -1
f.list l 1
f.read l 0
f.write l x
f.truncate l 0
f.sync l
f.stat l
f.close l
remove d
remove d/g/f
remove d/g/f
remove none/f
remove c/x
removeall c/x
removeall none
removeall none/none
removeall d
stat d
mkdir d
put d/1 1
rename d z
get z/1
removeall z/1
removeall z
put ../work/./p P
get ./p
get p
`

func TestConformsToRealFileSystem(t *testing.T) {
	simulated, actual, err := newRunners(t.TempDir())
	require.NoError(t, err)
	for i, line := range strings.Split(strings.TrimSpace(conformScript), "\n") {
		want := actual.run(line)
		require.NotContains(t, want, "unknown verb")
		require.NotContains(t, want, "no such handle")
		require.Equal(t, want, simulated.run(line), "line %d: %s", i+1, line)
	}
	require.Equal(t, tree(t, actual), tree(t, simulated))
}

// Random scripts also compare what the fixed script does not cover.
func TestConformsToRealFileSystemAtRandom(t *testing.T) {
	parent, n := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(parent, strconv.Itoa(n))
		require.NoError(t, os.Mkdir(dir, 0o755))
		simulated, actual, err := newRunners(dir)
		require.NoError(t, err)
		defer simulated.close("h", "i")
		defer actual.close("h", "i")
		for _, line := range rapid.SliceOfN(randomLine(), 1, 60).Draw(t, "script") {
			want, got := actual.run(line), simulated.run(line)
			if strings.Contains(got, "EXDEV") {
				return // folders do not move to other folders here
			}
			require.Equal(t, want, got, line)
		}
		require.Equal(t, tree(t, actual), tree(t, simulated))
	})
}

func randomLine() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		name := rapid.SampledFrom([]string{"a", "b", "d", "d/a", "d/b", "d/d", "d/d/a", "a/a"})
		number := rapid.IntRange(-1, 12)
		verb := rapid.SampledFrom([]string{
			"mkdir", "mkdirall", "remove", "removeall", "rename", "noreplace", "put", "put", "open", "open", "stat", "get",
			"f.read", "f.readat", "f.write", "f.writeat", "f.seek", "f.truncate", "f.stat", "f.close",
		}).Draw(t, "verb")
		handle := rapid.SampledFrom([]string{"h", "i"}).Draw(t, "handle")
		switch verb {
		case "rename", "noreplace":
			return fmt.Sprintf("%s %s %s", verb, name.Draw(t, "from"), name.Draw(t, "to"))
		case "put":
			return fmt.Sprintf("put %s %s", name.Draw(t, "name"), rapid.StringMatching("[xyz]{1,9}").Draw(t, "data"))
		case "open":
			access := rapid.SampledFrom([]string{"r", "w", "rw"}).Draw(t, "access")
			how := rapid.SampledFrom([]string{"", "+c", "+c+x", "+t", "+a", "+c+t", "+c+a"}).Draw(t, "how")
			return fmt.Sprintf("open %s %s%s %s", name.Draw(t, "name"), access, how, handle)
		case "f.readat", "f.seek":
			return fmt.Sprintf("%s %s %d %d", verb, handle, number.Draw(t, "n"), rapid.IntRange(0, 2).Draw(t, "m"))
		case "f.writeat":
			return fmt.Sprintf("%s %s %d %s", verb, handle, number.Draw(t, "n"), "data")
		}
		if strings.HasPrefix(verb, "f.") {
			return fmt.Sprintf("%s %s %d", verb, handle, number.Draw(t, "n"))
		}
		return fmt.Sprintf("%s %s", verb, name.Draw(t, "name"))
	})
}

// tree lists all visible files and folders with mode and data.
func tree(t require.TestingT, p *runner) []string {
	var out []string
	err := afero.Walk(p.fs, p.root, func(name string, i fs.FileInfo, err error) error {
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %s", name, i.Mode())
		if !i.IsDir() {
			data, err := afero.ReadFile(p.fs, name)
			if err != nil {
				return err
			}
			line += " " + string(data)
		}
		out = append(out, line)
		return nil
	})
	require.NoError(t, err)
	return out
}
