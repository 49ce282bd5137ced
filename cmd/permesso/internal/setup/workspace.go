package setup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc"
)

// AddWorkspace adds a workspace to the configuration and creates its folders.
func AddWorkspace(a *console.Console, w config.NewWorkspace) error {
	h, err := editable(a)
	if err != nil {
		return err
	}
	if !ipc.ValidWorkspace(w.Name) {
		return console.Fail(console.ExitUsage, "use a to z, 0 to 9, _ and -, at most 63 characters, starting with a letter or digit", "%.80q is not a valid workspace name", w.Name)
	}
	if _, ok := h.Config.Workspaces[w.Name]; ok {
		return console.Fail(console.ExitError, "permesso workspace list shows the workspaces", "workspace '%s' already exists", w.Name)
	}
	daemon, err := EditConfig(a, h, func(data []byte) ([]byte, error) { return home.Reader(a).AddWorkspace(h.Config.File, data, w) })
	if err != nil {
		return err
	}
	if err := createFolders(a, w.Name); err != nil {
		return err
	}
	list := sandbox.Mounts(h.Layout, w.Name)
	text, err := list.Form("", h.Layout)
	if err != nil {
		return err
	}
	text = fmt.Sprintf("added   workspace %s to %s\n%s\n%s\n%s", w.Name, h.Config.File, text, "permesso mounts "+w.Name+" --help explains how to use them", daemon)
	return a.Print(map[string]any{"workspace": w.Name, "config": h.Config.File, "mounts": list, "daemon": daemon}, text)
}

// withoutPosition drops the error's position in the file: the value came from the
// command line, and the file is unchanged.
func withoutPosition(err error) error {
	bad, ok := errors.AsType[*config.Error](err)
	if !ok || len(bad.Errors) == 0 {
		return err
	}
	p := bad.Errors[0]
	return console.Fail(console.ExitError, p.Hint, "%s (nothing was changed)", p.Message)
}

// createFolders creates the folders as serve would, as the home's owner.
func createFolders(a *console.Console, ws string) error {
	h, err := home.Load(a) // reloaded, with the new workspace
	if err != nil {
		return err
	}
	if _, err := os.Stat(h.Layout.Home); err == nil {
		if err := h.ActAsOwner(); err != nil {
			return err
		}
	}
	return errors.Join(h.Layout.PrepareHome(h.FS), h.Layout.Prepare(h.FS, ws))
}

// editable is a home whose configuration is a file.
func editable(a *console.Console) (*home.Home, error) {
	h, err := home.Load(a)
	if err != nil {
		return nil, err
	}
	if h.Config.File == "" {
		return nil, console.Fail(console.ExitError, "run permesso init", "no configuration file")
	}
	return h, nil
}

// editFile replaces a file by an edited version, atomically, with its owner and
// permissions. It refuses if another process changed the file.
func editFile(name string, edit func([]byte) ([]byte, error)) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	edited, err := edit(old)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	owner, ok := ownerOf(info)
	if !ok || os.Geteuid() != 0 {
		owner = ourselves()
	}
	return replaceFile(name, string(edited), info.Mode().Perm(), owner, func() error {
		if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, old) {
			return errors.Join(console.Fail(console.ExitError, "try again", "%s was changed by another process", name), err)
		}
		return nil
	})
}

// Workspace is an item of workspace list --json.
type Workspace struct {
	Name      string   `json:"name"`
	Autonomy  string   `json:"autonomy"`
	Approvers []string `json:"approvers"`
	Principal string   `json:"principal"`
	Timeout   int      `json:"timeout_sec"`
	AgentUIDs []string `json:"agent_uids"`
	Waiting   int      `json:"waiting"`
	Requests  string   `json:"requests"`
	Responses string   `json:"responses"`
}

// DescribeWorkspace describes a configured workspace.
func DescribeWorkspace(h *home.Home, name string) (Workspace, error) {
	w := h.Config.Workspaces[name]
	ids, _, err := h.Store.List(context.Background(), approval.DocPending, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // no daemon has run here yet
	}
	return Workspace{
		Name: name, Autonomy: w.Autonomy, Approvers: w.Approvers, Principal: w.Principal, Timeout: int(w.Timeout / time.Second),
		AgentUIDs: h.Config.AgentUIDs[name], Waiting: len(ids),
		Requests: h.Layout.Requests(name), Responses: h.Layout.Responses(name),
	}, err
}

// String describes the workspace in three lines.
func (l Workspace) String() string {
	who := cmp.Or(strings.Join(l.Approvers, ", "), "the local operator")
	return fmt.Sprintf("%s · %s · approvers: %s · %d pending\n  %s\n  %s", l.Name, l.Autonomy, who, l.Waiting, l.Requests, l.Responses)
}

// RemoveWorkspace removes an idle workspace from the configuration; purge also removes
// its folders.
func RemoveWorkspace(a *console.Console, ws string, purge bool) error {
	h, err := editable(a)
	if err != nil {
		return err
	}
	if err := console.CheckWorkspace(ws, home.WorkspaceNames(h.Config)); err != nil {
		return err
	}
	if len(h.Config.Workspaces) == 1 {
		return console.Fail(console.ExitError, "add another one first: permesso workspace add NAME", "'%s' is the only workspace", ws)
	}
	if err := checkIdle(h, ws); err != nil {
		return err
	}
	served, err := h.Served()
	if err != nil {
		return err
	}
	if purge && served {
		return console.Fail(console.ExitError, "stop permesso serve first, or omit --purge", "the folders are in use by the daemon")
	}
	err = editFile(h.Config.File, func(data []byte) ([]byte, error) { return home.Reader(a).RemoveWorkspace(h.Config.File, data, ws) })
	if err != nil {
		return err
	}
	if after, err := home.Load(a); err == nil {
		for _, w := range after.Config.Warnings { // a rule may still name the workspace
			a.PrintIssue("permesso: ", w.Format(h.Config.File))
		}
	}
	text := fmt.Sprintf("removed workspace %s from %s", ws, h.Config.File)
	if purge {
		if err := os.RemoveAll(h.Layout.Workspace(ws)); err != nil {
			return err
		}
		text += "\nremoved " + h.Layout.Workspace(ws)
	}
	return a.Print(map[string]any{"workspace": ws, "config": h.Config.File, "purged": purge}, text)
}

// checkIdle returns an error if a request of the workspace is not settled.
func checkIdle(h *home.Home, ws string) error {
	for _, what := range []struct {
		doc  approval.Doc
		says string
	}{
		{approval.DocPending, "are pending"},
		{approval.DocClaim, "are running or interrupted"},
		{approval.DocRequest, "are not read yet"},
		{approval.DocDecision, "are decided and not settled"},
	} {
		ids, _, err := h.Store.List(context.Background(), what.doc, ws)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			return console.Fail(console.ExitError, "permesso pending --workspace "+ws+" lists pending requests; decide them, or let them expire", "%d requests of '%s' %s", len(ids), ws, what.says)
		}
	}
	return nil
}

// createFile creates a file that only its owner can read, durably. If it exists, the
// error wraps fs.ErrExist.
func createFile(name, text string, owner account) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := fill(f, text, 0o600, owner); err != nil {
		return err
	}
	if err := ipc.OS().SyncDir(filepath.Dir(name)); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// replaceFile replaces a file durably by a rename, if allowed returns no error: no process
// reads half of it, and a symbolic link is not followed.
func replaceFile(name, text string, mode fs.FileMode, owner account, allowed func() error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".permesso-*")
	if err == nil {
		err = fill(f, text, mode, owner)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err = allowed(); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return ipc.OS().SyncDir(filepath.Dir(name))
}

// fill writes a new file durably. If that fails, it removes the file.
func fill(f *os.File, text string, mode fs.FileMode, owner account) (err error) {
	if owner != ourselves() {
		err = f.Chown(owner.uid, owner.gid)
	}
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
