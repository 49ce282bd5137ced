package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Layout names the folders and files of one HOME. Workspace names given to its
// methods must be valid (ValidWorkspace): the methods that return only a path
// join them unseen.
type Layout struct {
	Home string // absolute
}

// Lock is the file whose lock makes a process the one daemon of this HOME.
func (l Layout) Lock() string { return l.path("lock") }

// Scripted is there where a script answered and not people: no other gate serves
// such a home.
func (l Layout) Scripted() string { return l.path("scripted") }

// Keys is the folder of the MAC key and the signing key.
func (l Layout) Keys() string { return l.path("keys") }

// APIKeys is the folder of what is kept of the keys for the HTTP door.
func (l Layout) APIKeys() string { return l.path("keys", "api") }

// Grants is the folder of remembered consent.
func (l Layout) Grants() string { return l.path("grants") }

// Audit is the folder of the append-only log.
func (l Layout) Audit() string { return l.path("audit") }

// Run holds the working folders of commands; it is emptied at every start.
func (l Layout) Run() string { return l.path("run") }

// Health is what the daemon says of itself while it runs.
func (l Layout) Health() string { return l.path("run", "health.json") }

// UISocket is where whoever can enter this home asks for a link to the pages.
func (l Layout) UISocket() string { return l.path("run", "ui.sock") }

// IPC is the folder that holds the workspaces.
func (l Layout) IPC() string { return l.path("ipc") }

// Sent is the notebook of one channel: what it sent for one workspace.
func (l Layout) Sent(channel, ws string) string { return l.path("sent", channel, ws) }

// ChannelState is a channel's place for what belongs to no request; no workspace can be
// called so.
func (l Layout) ChannelState(channel, name string) string { return l.path("sent", channel, "."+name) }

// Receipts is the folder of a workspace's claims: what is running.
func (l Layout) Receipts(ws string) string { return l.path("receipts", ws) }

// Records is the folder of a workspace's finished requests.
func (l Layout) Records(ws string) string { return l.path("records", ws) }

// Errors is the folder of descriptions of what was refused in a workspace.
func (l Layout) Errors(ws string) string { return l.path("errors", ws) }

// Workspace is the folder of a workspace that holds the four below.
func (l Layout) Workspace(ws string) string { return l.path("ipc", ws) }

// Requests is the one folder that the agent writes to: read it with Hostile.
func (l Layout) Requests(ws string) string { return l.path("ipc", ws, "requests") }

// Responses is the folder that the agent reads.
func (l Layout) Responses(ws string) string { return l.path("ipc", ws, "responses") }

// Pendings is the folder of requests that wait for a person.
func (l Layout) Pendings(ws string) string { return l.path("ipc", ws, "pending_approvals") }

// Decisions is the folder of the slots: one file decides a pending request.
func (l Layout) Decisions(ws string) string { return l.path("ipc", ws, "approval_decisions") }

func (l Layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.Home}, elem...)...)
}

// folder is one line of the layout: what it is made with, and the permission
// bits that make us refuse it.
type folder struct {
	path   string
	mode   fs.FileMode
	refuse fs.FileMode
}

const (
	othersWrite  = 0o022
	othersAccess = 0o077 // keys/: whoever reads them is the operator
)

func (l Layout) homeFolders() []folder {
	folders := []folder{
		{l.Home, 0o700, othersWrite},
		{l.Keys(), 0o700, othersAccess},
	}
	for _, name := range []string{"grants", "audit", "sent", "receipts", "records", "errors", "run", "ipc", "pause", "pause/ended"} {
		folders = append(folders, folder{l.path(name), 0o700, othersWrite})
	}
	return folders
}

func (l Layout) workspaceFolders(ws string) []folder {
	return []folder{
		{l.Workspace(ws), 0o700, othersWrite},
		{l.Requests(ws), 0o777, 0},
		{l.Responses(ws), 0o755, othersWrite}, // not secret, but forged responses would be believed
		{l.Pendings(ws), 0o700, othersWrite},
		{l.Decisions(ws), 0o700, othersWrite},
		{l.Receipts(ws), 0o700, othersWrite},
		{l.Records(ws), 0o700, othersWrite},
		{l.Errors(ws), 0o700, othersWrite},
	}
}

// PrepareHome creates HOME and its folders, durably. What exists gets the
// permissions that it lacks and keeps those it has.
func (l Layout) PrepareHome(fsys FS) error {
	if !filepath.IsAbs(l.Home) {
		return fmt.Errorf("prepare home %q: not an absolute path", l.Home)
	}
	// Folders above HOME become durable with the SyncFS at start.
	if err := fsys.MkdirAll(filepath.Dir(l.Home), 0o700); err != nil {
		return fmt.Errorf("prepare home: %w", err)
	}
	if err := makeFolders(fsys, l.homeFolders()); err != nil {
		return fmt.Errorf("prepare home: %w", err)
	}
	return nil
}

// Prepare creates the folders of one workspace, durably, in a HOME that
// PrepareHome has prepared.
func (l Layout) Prepare(fsys FS, ws string) error {
	if err := checkWorkspace(ws); err != nil {
		return err
	}
	if err := makeFolders(fsys, l.workspaceFolders(ws)); err != nil {
		return fmt.Errorf("prepare workspace %s: %w", ws, err)
	}
	return nil
}

// PreparePauses creates the folder of pauses, which a HOME of an earlier
// version has not, durably.
func (l Layout) PreparePauses(fsys FS) error {
	folders := []folder{{l.Pauses(), 0o700, othersWrite}, {l.EndedPauses(), 0o700, othersWrite}}
	if err := makeFolders(fsys, folders); err != nil {
		return fmt.Errorf("prepare pauses: %w", err)
	}
	return nil
}

// PrepareAPIKeys creates the folder of keys for the HTTP door, durably, before the
// first key is written.
func (l Layout) PrepareAPIKeys(fsys FS) error {
	if err := makeFolders(fsys, []folder{{l.APIKeys(), 0o700, othersAccess}}); err != nil {
		return fmt.Errorf("prepare keys: %w", err)
	}
	return nil
}

// PrepareSent creates a channel's notebook for one workspace, durably. The
// channel's name follows the rules for workspaces.
func (l Layout) PrepareSent(fsys FS, channel, ws string) error {
	if !ValidWorkspace(channel) {
		return fmt.Errorf("channel %q: not a valid name", channel)
	}
	if err := checkWorkspace(ws); err != nil {
		return err
	}
	notebook := l.Sent(channel, ws)
	folders := []folder{
		{filepath.Dir(notebook), 0o700, othersWrite},
		{notebook, 0o700, othersWrite},
	}
	if err := makeFolders(fsys, folders); err != nil {
		return fmt.Errorf("prepare notebook of %s: %w", channel, err)
	}
	return nil
}

// makeFolders syncs the parents of what it made: a document whose folder is
// lost in a power cut is lost with it.
func makeFolders(fsys FS, folders []folder) error {
	var parents []string
	for _, f := range folders {
		made, err := f.make(fsys)
		if err != nil {
			return err
		}
		if parent := filepath.Dir(f.path); made && !slices.Contains(parents, parent) {
			parents = append(parents, parent)
		}
	}
	for _, parent := range parents {
		if err := fsys.SyncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

// make creates the folder, or adds the permissions that an existing one lacks:
// a crash between mkdir and chmod leaves what the umask left.
func (f folder) make(fsys FS) (made bool, err error) {
	err = fsys.Mkdir(f.path, f.mode)
	if err == nil {
		return true, fsys.Chmod(f.path, f.mode)
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	info, err := f.look(fsys)
	if err != nil || info.Mode().Perm()&f.mode == f.mode {
		return false, err
	}
	special := info.Mode() & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	return false, fsys.Chmod(f.path, info.Mode().Perm()|f.mode|special)
}

// CheckPrivate refuses a HOME or workspace in which somebody else could decide
// or answer: a folder that is missing, a link, no folder, or open to others.
// The error says what is wrong and, on a line of its own, how to mend it.
func (l Layout) CheckPrivate(fsys FS, ws string) error {
	if err := checkWorkspace(ws); err != nil {
		return err
	}
	for _, f := range slices.Concat(l.homeFolders(), l.workspaceFolders(ws)) {
		if err := f.check(fsys); err != nil {
			return err
		}
	}
	return nil
}

func (f folder) check(fsys FS) error {
	info, err := f.look(fsys)
	if err != nil {
		return err
	}
	open := info.Mode().Perm() & f.refuse
	if open == 0 {
		return nil
	}
	may := "read"
	if open&othersWrite != 0 {
		may = "write to"
	}
	return fmt.Errorf("check folder %s: others may %s it (mode %04o)\nhint: look through it, then: chmod %04o %s",
		f.path, may, info.Mode().Perm(), f.mode, shellQuote(f.path))
}

// look returns what is there if it is a real folder.
func (f folder) look(fsys FS) (fs.FileInfo, error) {
	info, err := lstat(fsys, f.path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("check folder: %w", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("check folder %s: is a symbolic link\nhint: remove the link and make a real folder: "+
			"rm %[2]s && mkdir -m %04[3]o %[2]s", f.path, shellQuote(f.path), f.mode)
	case !info.IsDir():
		return nil, fmt.Errorf("check folder %s: is no folder\nhint: move it away, then: mkdir -m %04o %s",
			f.path, f.mode, shellQuote(f.path))
	}
	return info, nil
}

// shellQuote quotes a path for the hints, which are there to be pasted.
func shellQuote(path string) string {
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// Workspaces lists the folders in ipc/ that have a valid name, sorted; links
// are not followed. Without an ipc/ there are none.
func (l Layout) Workspaces(fsys FS) ([]string, error) {
	dir, err := fsys.Open(l.IPC())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		if !ValidWorkspace(name) {
			return true
		}
		info, err := lstat(fsys, l.Workspace(name))
		return err != nil || !info.IsDir()
	})
	slices.Sort(names)
	return names, nil
}

// ValidWorkspace says whether name may name a workspace:
// [a-z0-9][a-z0-9_-]{0,62}. No such name leads out of a folder.
func ValidWorkspace(name string) bool {
	if name == "" || len(name) > 63 {
		return false
	}
	for i, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case i > 0 && (c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

func checkWorkspace(ws string) error {
	if !ValidWorkspace(ws) {
		return fmt.Errorf("workspace %.80q: not a valid name\nhint: use a to z, 0 to 9, _ and -, at most 63, "+
			"beginning with a letter or digit", ws)
	}
	return nil
}
