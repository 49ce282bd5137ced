package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/permesso-dev/permesso/approval/hints"
)

// Layout names the folders and files of one HOME. Workspace names given to its methods
// must be valid (ValidWorkspace): methods that return only a path do not check them.
type Layout struct {
	Home string // absolute
}

// Lock is the file whose lock makes a process the one daemon of this HOME.
func (l Layout) Lock() string { return l.path("lock") }

// Journal is the folder of the journal's segments.
func (l Layout) Journal() string { return l.path("journal") }

// Version is the file that says that the journal was created, with all its segments. A HOME of
// the first version has neither.
func (l Layout) Version() string { return l.path("version") }

// Ready is the file whose lock says that the daemon has recovered from a crash.
func (l Layout) Ready() string { return l.path("journal", "ready") }

// Scripted exists in a HOME in which a script answered instead of people. No other daemon
// serves such a HOME.
func (l Layout) Scripted() string { return l.path("scripted") }

// Served is a file with the path of the configuration that the last daemon served.
func (l Layout) Served() string { return l.path("served") }

// Seccomp is a file with the seccomp filter of the agents' sandboxes, which every user who
// may pass through HOME may read.
func (l Layout) Seccomp() string { return l.path("seccomp.bpf") }

// Keys is the folder of the MAC key and the signing key.
func (l Layout) Keys() string { return l.path("keys") }

// APIKeys is the folder of the hashes and scopes of HTTP API keys.
func (l Layout) APIKeys() string { return l.path("keys", "api") }

// MCP is the folder in which a client of MCP by HTTP finds what it has asked. The id of its key has no dots.
func (l Layout) MCP(key string) string { return l.path("mcp", key) }

// Grants is the folder of grants.
func (l Layout) Grants() string { return l.path("grants") }

// Audit is the folder of the append-only log.
func (l Layout) Audit() string { return l.path("audit") }

// Run holds the working folders of commands; it is emptied at every start.
func (l Layout) Run() string { return l.path("run") }

// Health is the daemon's health report while it runs.
func (l Layout) Health() string { return l.path("run", "health.json") }

// Socket is the socket on which the daemon answers its own user and root.
func (l Layout) Socket() string { return l.path("run", "permesso.sock") }

// IPC is the folder that holds the workspaces.
func (l Layout) IPC() string { return l.path("ipc") }

// Sent is the sent store of one channel for one workspace.
func (l Layout) Sent(channel, ws string) string { return l.path("sent", channel, ws) }

// ChannelState is a folder for state of a channel that belongs to no request. No
// workspace can have such a name.
func (l Layout) ChannelState(channel, name string) string { return l.path("sent", channel, "."+name) }

// Receipts is the folder of a workspace's claims: what is running.
func (l Layout) Receipts(ws string) string { return l.path("receipts", ws) }

// Records is the folder of a workspace's finished requests.
func (l Layout) Records(ws string) string { return l.path("records", ws) }

// Errors is the folder of descriptions of what was refused in a workspace.
func (l Layout) Errors(ws string) string { return l.path("errors", ws) }

// Workspace is the folder of a workspace that holds the four below.
func (l Layout) Workspace(ws string) string { return l.path("ipc", ws) }

// Requests is the one folder that the agent writes to: read it with hostile.
func (l Layout) Requests(ws string) string { return l.path("ipc", ws, "requests") }

// Responses is the folder that the agent reads.
func (l Layout) Responses(ws string) string { return l.path("ipc", ws, "responses") }

// Pendings is the folder of requests that wait for a decision.
func (l Layout) Pendings(ws string) string { return l.path("ipc", ws, "pending_approvals") }

// Decisions is the folder of the slots: one file decides a pending request.
func (l Layout) Decisions(ws string) string { return l.path("ipc", ws, "approval_decisions") }

func (l Layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.Home}, elem...)...)
}

// folder is one folder of the layout: its mode, and the permission bits with which it is
// refused.
type folder struct {
	path   string
	mode   fs.FileMode
	refuse fs.FileMode
}

const (
	othersWrite  = 0o022
	othersAccess = 0o077 // keys/: a user who can read them can act as the operator
)

func (l Layout) homeFolders() []folder {
	folders := []folder{
		{l.Home, 0o700, othersWrite},
		{l.Keys(), 0o700, othersAccess},
	}
	for _, name := range []string{"grants", "audit", "sent", "receipts", "records", "errors", "run", "ipc", "journal", "pause", "pause/ended"} {
		folders = append(folders, folder{l.path(name), 0o700, othersWrite})
	}
	return folders
}

func (l Layout) workspaceFolders(ws string) []folder {
	return []folder{
		{l.Workspace(ws), 0o700, othersWrite},
		{l.Requests(ws), 0o777, 0},
		{l.Responses(ws), 0o755, othersWrite}, // not secret, but the agent would trust a forged response
		{l.Pendings(ws), 0o700, othersWrite},
		{l.Decisions(ws), 0o700, othersWrite},
		{l.Receipts(ws), 0o700, othersWrite},
		{l.Records(ws), 0o700, othersWrite},
		{l.Errors(ws), 0o700, othersWrite},
	}
}

// PrepareHome creates HOME and its folders, durably. An existing folder gets the
// permissions that it lacks and keeps the others.
func (l Layout) PrepareHome(fsys FS) error {
	if !filepath.IsAbs(l.Home) {
		return fmt.Errorf("prepare home %q: not an absolute path", l.Home)
	}
	// Folders above HOME become durable with the SyncFS at start.
	if err := fsys.MkdirAll(filepath.Dir(l.Home), 0o700); err != nil {
		return fmt.Errorf("prepare home: %w", err)
	}
	return prepareFolders(fsys, "home", l.homeFolders()...)
}

// Prepare creates the folders of one workspace, durably, in a HOME that
// PrepareHome has prepared.
func (l Layout) Prepare(fsys FS, ws string) error {
	if err := checkWorkspace(ws); err != nil {
		return err
	}
	return prepareFolders(fsys, "workspace "+ws, l.workspaceFolders(ws)...)
}

// PrepareAPIKeys creates the folder of HTTP API keys, durably, before the first key is
// written.
func (l Layout) PrepareAPIKeys(fsys FS) error {
	return prepareFolders(fsys, "keys", folder{l.APIKeys(), 0o700, othersAccess})
}

// PrepareSent creates a channel's sent store for one workspace, durably. The channel's
// name follows the rules for workspaces.
func (l Layout) PrepareSent(fsys FS, channel, ws string) error {
	if !ValidWorkspace(channel) {
		return fmt.Errorf("channel %q: not a valid name", channel)
	}
	if err := checkWorkspace(ws); err != nil {
		return err
	}
	dir := l.Sent(channel, ws)
	return prepareFolders(fsys, "sent store of "+channel,
		folder{filepath.Dir(dir), 0o700, othersWrite}, folder{dir, 0o700, othersWrite})
}

func prepareFolders(fsys FS, what string, folders ...folder) error {
	if err := makeFolders(fsys, folders); err != nil {
		return fmt.Errorf("prepare %s: %w", what, err)
	}
	return nil
}

// makeFolders syncs the parents of the folders that it made: if a power cut removes a
// folder, its documents are lost too.
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
	info, err := f.info(fsys)
	if err != nil || info.Mode().Perm()&f.mode == f.mode {
		return false, err
	}
	special := info.Mode() & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	return false, fsys.Chmod(f.path, info.Mode().Perm()|f.mode|special)
}

// Workspaces lists the folders in ipc/ that have a valid name, sorted; links
// are not followed. Without an ipc/ there are none.
func (l Layout) Workspaces(fsys FS) ([]string, error) {
	names, err := namesIn(fsys, l.IPC())
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

// ValidWorkspace reports whether name may name a workspace: [a-z0-9][a-z0-9_-]{0,62}. No
// such name leads out of a folder.
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
		return hints.Add(fmt.Errorf("workspace %.80q: not a valid name", ws),
			"use a to z, 0 to 9, _ and -, at most 63, beginning with a letter or digit")
	}
	return nil
}
