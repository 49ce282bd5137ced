package ipc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/hints"
)

// modes is the contract: every folder below HOME and its mode.
var modes = map[string]fs.FileMode{
	"":                            0o700,
	"keys":                        0o700,
	"journal":                     0o700,
	"grants":                      0o700,
	"audit":                       0o700,
	"sent":                        0o700,
	"sent/telegram":               0o700,
	"sent/telegram/work":          0o700,
	"receipts":                    0o700,
	"receipts/work":               0o700,
	"records":                     0o700,
	"records/work":                0o700,
	"run":                         0o700,
	"pause":                       0o700,
	"pause/ended":                 0o700,
	"errors":                      0o700,
	"errors/work":                 0o700,
	"ipc":                         0o700,
	"ipc/work":                    0o700,
	"ipc/work/requests":           0o777, // the agent writes here, under any UID
	"ipc/work/responses":          0o755, // and reads here
	"ipc/work/pending_approvals":  0o700,
	"ipc/work/approval_decisions": 0o700,
}

func prepared(t *testing.T) Layout {
	t.Helper()
	l := Layout{Home: filepath.Join(t.TempDir(), "state", "permesso")}
	prepare(t, l)
	return l
}

func prepare(t *testing.T, l Layout) {
	t.Helper()
	require.NoError(t, l.PrepareHome(OS()))
	require.NoError(t, l.Prepare(OS(), "work"))
	require.NoError(t, l.PrepareSent(OS(), "telegram", "work"))
}

func modeOf(t *testing.T, name string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(name)
	require.NoError(t, err)
	return info.Mode()
}

func TestPaths(t *testing.T) {
	l := Layout{Home: "/h"}
	for want, got := range map[string]string{
		"/h/lock":                        l.Lock(),
		"/h/keys":                        l.Keys(),
		"/h/grants":                      l.Grants(),
		"/h/audit":                       l.Audit(),
		"/h/sent/email/work":             l.Sent("email", "work"),
		"/h/receipts/work":               l.Receipts("work"),
		"/h/records/work":                l.Records("work"),
		"/h/errors/work":                 l.Errors("work"),
		"/h/ipc":                         l.IPC(),
		"/h/ipc/work":                    l.Workspace("work"),
		"/h/ipc/work/requests":           l.Requests("work"),
		"/h/ipc/work/responses":          l.Responses("work"),
		"/h/ipc/work/pending_approvals":  l.Pendings("work"),
		"/h/ipc/work/approval_decisions": l.Decisions("work"),
	} {
		require.Equal(t, want, got)
	}
}

func TestPrepareSetsExactModes(t *testing.T) {
	for name, umask := range map[string]int{
		"a strict umask would exclude the agent":  0o077,
		"no umask would admit every user":         0,
		"a umask of 777 would exclude the daemon": 0o777,
	} {
		t.Run(name, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "permesso")
			old := syscall.Umask(umask)
			defer syscall.Umask(old)
			prepare(t, Layout{Home: home})
			found := map[string]fs.FileMode{}
			require.NoError(t, filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
				rel := strings.TrimPrefix(strings.TrimPrefix(path, home), "/")
				found[rel] = modeOf(t, path).Perm()
				return err
			}))
			require.Equal(t, modes, found)
			require.NoError(t, Layout{Home: home}.CheckPrivate(OS(), "work"))
		})
	}
}

func TestPrepareAgain(t *testing.T) {
	l := prepared(t)
	request := filepath.Join(l.Requests("work"), "a.json")
	write(t, request, "{}")
	// A crash between mkdir and chmod leaves too few permissions, ...
	require.NoError(t, os.Chmod(l.Requests("work"), 0o755))
	require.NoError(t, os.Chmod(l.Responses("work"), os.ModeSticky|0o700))
	// ... and another user may add permissions, which must not be hidden.
	require.NoError(t, os.Chmod(l.Decisions("work"), 0o777))

	prepare(t, l)
	require.Equal(t, "{}", content(t, request))
	require.Equal(t, fs.FileMode(0o777), modeOf(t, l.Requests("work")).Perm())
	require.Equal(t, fs.ModeDir|fs.ModeSticky|0o755, modeOf(t, l.Responses("work")), "the operator's bits stay")
	require.ErrorContains(t, l.CheckPrivate(OS(), "work"), "other users may write")
}

// journalFS records the durable operations, in order.
type journalFS struct {
	FS
	steps []string
	fail  string
}

func (j *journalFS) step(kind, name string) error {
	j.steps = append(j.steps, kind+" "+filepath.Base(name))
	if kind == j.fail {
		return errors.New("no " + kind)
	}
	return nil
}

func (j *journalFS) Mkdir(name string, perm os.FileMode) error {
	return errors.Join(j.step("mkdir", name), j.FS.Mkdir(name, perm))
}

func (j *journalFS) Chmod(name string, perm os.FileMode) error {
	return errors.Join(j.step("chmod", name), j.FS.Chmod(name, perm))
}

func (j *journalFS) SyncDir(name string) error {
	return errors.Join(j.step("sync", name), j.FS.SyncDir(name))
}

func (j *journalFS) LstatIfPossible(name string) (os.FileInfo, bool, error) {
	info, err := os.Lstat(name)
	return info, true, err
}

func TestPrepareIsDurable(t *testing.T) {
	l := Layout{Home: filepath.Join(t.TempDir(), "home")}
	require.NoError(t, l.PrepareHome(OS()))
	j := &journalFS{FS: OS()}
	require.NoError(t, l.Prepare(j, "work"))
	require.Equal(t, []string{"sync ipc", "sync work", "sync receipts", "sync records", "sync errors"},
		j.steps[len(j.steps)-5:], "every parent of a created folder, after the last was created")

	j.steps = nil
	require.NoError(t, l.Prepare(j, "work"))
	require.NotContains(t, strings.Join(j.steps, "\n"), "sync", "no folder created, nothing to sync")
}

func TestPrepareStopsAtAnError(t *testing.T) {
	for _, kind := range []string{"mkdir", "chmod", "sync"} {
		l := Layout{Home: filepath.Join(t.TempDir(), "home")}
		require.ErrorContains(t, l.PrepareHome(&journalFS{FS: OS(), fail: kind}), "no "+kind)
	}
	l := Layout{Home: filepath.Join(t.TempDir(), "home")}
	require.ErrorIs(t, l.Prepare(OS(), "work"), fs.ErrNotExist, "HOME must exist")
	require.Error(t, Layout{}.PrepareHome(OS()), "the zero value must not mean the current folder")
	require.Error(t, Layout{Home: "permesso"}.PrepareHome(OS()))
}

func TestNamesCannotLeaveHome(t *testing.T) {
	l := prepared(t)
	for _, name := range []string{"", ".", "..", "../ipc", "a/b", "/", "A", "work\n"} {
		require.Error(t, l.Prepare(OS(), name), name)
		require.Error(t, l.CheckPrivate(OS(), name), name)
		require.Error(t, l.PrepareSent(OS(), name, "work"), name)
		require.Error(t, l.PrepareSent(OS(), "telegram", name), name)
	}
}

func TestCheckPrivateRefuses(t *testing.T) {
	private := map[string]func(Layout) string{
		"HOME itself":       func(l Layout) string { return l.Home },
		"keys":              Layout.Keys,
		"grants":            Layout.Grants,
		"audit":             Layout.Audit,
		"sent":              func(l Layout) string { return l.path("sent") },
		"all receipts":      func(l Layout) string { return l.path("receipts") },
		"receipts":          func(l Layout) string { return l.Receipts("work") },
		"records":           func(l Layout) string { return l.Records("work") },
		"errors":            func(l Layout) string { return l.Errors("work") },
		"ipc":               Layout.IPC,
		"the workspace":     func(l Layout) string { return l.Workspace("work") },
		"pending approvals": func(l Layout) string { return l.Pendings("work") },
		"decisions":         func(l Layout) string { return l.Decisions("work") },
		"responses":         func(l Layout) string { return l.Responses("work") },
	}
	spoils := map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"group-writable": {
			func(t *testing.T, dir string) { require.NoError(t, os.Chmod(dir, 0o720)) },
			"other users may write to it (mode 0720); look through it, then: chmod 07",
		},
		"world-writable": {
			func(t *testing.T, dir string) { require.NoError(t, os.Chmod(dir, 0o702)) },
			"other users may write to it (mode 0702); look through it, then: chmod 07",
		},
		"link": {
			func(t *testing.T, dir string) { require.NoError(t, os.Symlink(dir+".real", dir)) },
			"is a symbolic link; remove",
		},
		"file": {
			func(t *testing.T, dir string) { write(t, dir, "") },
			"is not a folder; move",
		},
		"no": {func(*testing.T, string) {}, "no such file"},
	}
	for which, path := range private {
		l := prepared(t)
		dir := path(l)
		mode := modeOf(t, dir).Perm()
		for how, s := range spoils {
			t.Run(how+" "+which, func(t *testing.T) {
				require.NoError(t, l.CheckPrivate(OS(), "work"))
				if !strings.HasSuffix(how, "writable") {
					require.NoError(t, os.Rename(dir, dir+".real"))
					defer func() { _ = os.Remove(dir); _ = os.Rename(dir+".real", dir) }()
				}
				defer func() { _ = os.Chmod(dir, mode) }()
				s.spoil(t, dir)
				err := l.CheckPrivate(OS(), "work")
				require.Contains(t, err.Error()+"; "+hints.Of(err), s.want)
				require.ErrorContains(t, err, dir)
			})
		}
	}
}

func TestCheckPrivateOfReadersAndRequests(t *testing.T) {
	l := prepared(t)
	require.NoError(t, os.Chmod(l.Audit(), 0o750))
	require.NoError(t, os.Chmod(l.Requests("work"), 0o1777))
	require.NoError(t, l.CheckPrivate(OS(), "work"), "others may read the log")

	require.NoError(t, os.Chmod(l.Keys(), 0o750))
	require.ErrorContains(t, l.CheckPrivate(OS(), "work"), "other users may read it", "a user who can read the keys can act as the operator")
	require.NoError(t, os.Chmod(l.Keys(), 0o700))

	require.NoError(t, os.Remove(l.Requests("work")))
	require.ErrorIs(t, l.CheckPrivate(OS(), "work"), fs.ErrNotExist)
	require.NoError(t, os.Symlink(l.Keys(), l.Requests("work")))
	require.ErrorContains(t, l.CheckPrivate(OS(), "work"), "symbolic link", "the agent could write to its target")
	require.ErrorContains(t, l.Prepare(OS(), "work"), "symbolic link", "a chmod would make the keys readable for every user")
	require.Equal(t, fs.FileMode(0o700), modeOf(t, l.Keys()).Perm())
}

func TestShellQuote(t *testing.T) {
	require.Equal(t, `'/home/o'\''hara/a b'`, shellQuote("/home/o'hara/a b"))
}

func TestValidWorkspace(t *testing.T) {
	for name, valid := range map[string]bool{
		"personal":              true,
		"0":                     true,
		"a_b-c9":                true,
		strings.Repeat("a", 63): true,
		strings.Repeat("a", 64): false,
		"":                      false,
		"-a":                    false, // looks like an option on a command line
		"_a":                    false,
		"a.b":                   false,
		".":                     false,
		"..":                    false,
		"a/b":                   false,
		"A":                     false, // the same folder as a on file systems that ignore case
		"à":                     false,
		"a\n":                   false,
		"a\x00":                 false,
		"a b":                   false,
	} {
		require.Equal(t, valid, ValidWorkspace(name), "%q", name)
	}
}

func TestWorkspaces(t *testing.T) {
	l := Layout{Home: filepath.Join(t.TempDir(), "home")}
	names, err := l.Workspaces(OS())
	require.NoError(t, err)
	require.Empty(t, names)

	require.NoError(t, l.PrepareHome(OS()))
	for _, ws := range []string{"work", "alone", "personal"} {
		require.NoError(t, l.Prepare(OS(), ws))
	}
	write(t, filepath.Join(l.IPC(), "file"), "")
	require.NoError(t, os.Mkdir(filepath.Join(l.IPC(), "Not-Valid"), 0o700))
	require.NoError(t, os.Symlink(l.Workspace("work"), filepath.Join(l.IPC(), "link")))
	names, err = l.Workspaces(OS())
	require.NoError(t, err)
	require.Equal(t, []string{"alone", "personal", "work"}, names)

	require.NoError(t, os.Rename(l.IPC(), l.IPC()+".real"))
	require.NoError(t, os.Symlink(l.IPC()+".real", l.IPC()))
	_, err = l.Workspaces(OS())
	require.ErrorIs(t, err, syscall.ELOOP)
}
