package main

import (
	"bytes"
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
	"github.com/permesso-dev/permesso/ipc"
)

func addWorkspace(a *console, w config.NewWorkspace) error {
	h, err := editable(a)
	if err != nil {
		return err
	}
	if !ipc.ValidWorkspace(w.Name) {
		return fail(exitUsage, "use a to z, 0 to 9, _ and -, at most 63 characters, starting with a letter or digit", "%.80q is not a valid workspace name", w.Name)
	}
	if _, ok := h.cfg.Workspaces[w.Name]; ok {
		return fail(exitError, "permesso workspace list shows the workspaces", "workspace '%s' already exists", w.Name)
	}
	err = editFile(h.cfg.File, func(data []byte) ([]byte, error) { return configReader(a).AddWorkspace(h.cfg.File, data, w) })
	if err != nil {
		return withoutPosition(err)
	}
	if err := createFolders(a, w.Name); err != nil {
		return err
	}
	list := mounts(h.layout, w.Name)
	text, err := list.form("")
	if err != nil {
		return err
	}
	text = fmt.Sprintf("added   workspace %s to %s\n%s\n%s", w.Name, h.cfg.File, text, "permesso mounts "+w.Name+" --help explains how to use them")
	return a.print(map[string]any{"workspace": w.Name, "config": h.cfg.File, "mounts": list}, text)
}

// withoutPosition drops the error's position in the file: the value came from the
// command line, and the file is unchanged.
func withoutPosition(err error) error {
	var bad *config.Error
	if !errors.As(err, &bad) || len(bad.Errors) == 0 {
		return err
	}
	p := bad.Errors[0]
	return fail(exitError, p.Hint, "%s (nothing was changed)", p.Message)
}

// createFolders creates the folders as serve would, as the home's owner.
func createFolders(a *console, ws string) error {
	h, err := loadHome(a) // reloaded, with the new workspace
	if err != nil {
		return err
	}
	if _, err := os.Stat(h.layout.Home); err == nil {
		if err := h.actAsOwner(); err != nil {
			return err
		}
	}
	return errors.Join(h.layout.PrepareHome(h.fs), h.layout.Prepare(h.fs, ws))
}

// editable is an instance whose configuration is a file.
func editable(a *console) (*instance, error) {
	h, err := loadHome(a)
	if err != nil {
		return nil, err
	}
	if h.cfg.File == "" {
		return nil, fail(exitError, "run permesso init", "no configuration file")
	}
	return h, nil
}

// editFile replaces a file by an edited version, atomically. It refuses if
// another process changed the file.
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
	temp, err := writeLike(name, edited)
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, old) {
		return errors.Join(fail(exitError, "try again", "%s was changed by another process", name), err, os.Remove(temp))
	}
	if err := os.Rename(temp, name); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return ipc.OS().SyncDir(filepath.Dir(name))
}

// writeLike writes b durably beside name, with its owner and permissions.
func writeLike(name string, b []byte) (temp string, err error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".permesso-*.toml")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return "", err
		}
	}
	if err := f.Chmod(info.Mode().Perm()); err != nil {
		return "", err
	}
	if _, err := f.Write(b); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}

// workspaceItem is an item of workspace list --json.
type workspaceItem struct {
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

func newWorkspaceItem(h *instance, name string) (workspaceItem, error) {
	w := h.cfg.Workspaces[name]
	ids, _, err := h.store.List(approval.DocPending, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // no daemon has run here yet
	}
	return workspaceItem{
		Name: name, Autonomy: w.Autonomy, Approvers: w.Approvers, Principal: w.Principal, Timeout: int(w.Timeout / time.Second),
		AgentUIDs: h.cfg.AgentUIDs[name], Waiting: len(ids),
		Requests: h.layout.Requests(name), Responses: h.layout.Responses(name),
	}, err
}

func (l workspaceItem) String() string {
	who := strings.Join(l.Approvers, ", ")
	if who == "" {
		who = "the local operator"
	}
	return fmt.Sprintf("%s · %s · approved by %s · %d pending\n  %s\n  %s", l.Name, l.Autonomy, who, l.Waiting, l.Requests, l.Responses)
}

func removeWorkspace(a *console, ws string, purge bool) error {
	h, err := editable(a)
	if err != nil {
		return err
	}
	if _, ok := h.cfg.Workspaces[ws]; !ok {
		return fail(exitError, "workspaces: "+strings.Join(sortedNames(h.cfg), ", "), "no workspace '%s' in the configuration", ws)
	}
	if len(h.cfg.Workspaces) == 1 {
		return fail(exitError, "add another one first: permesso workspace add NAME", "'%s' is the only workspace", ws)
	}
	if err := checkIdle(h, ws); err != nil {
		return err
	}
	served, err := h.served()
	if err != nil {
		return err
	}
	if purge && served {
		return fail(exitError, "stop permesso serve first, or omit --purge", "the folders are in use by the daemon")
	}
	err = editFile(h.cfg.File, func(data []byte) ([]byte, error) { return configReader(a).RemoveWorkspace(h.cfg.File, data, ws) })
	if err != nil {
		return err
	}
	if after, err := loadHome(a); err == nil {
		for _, w := range after.cfg.Warnings { // a rule may still name the workspace
			fmt.Fprintf(a.Err, "permesso: %s\n", w.In(h.cfg.File))
		}
	}
	text := fmt.Sprintf("removed workspace %s from %s", ws, h.cfg.File)
	if purge {
		if err := os.RemoveAll(h.layout.Workspace(ws)); err != nil {
			return err
		}
		text += "\nremoved " + h.layout.Workspace(ws)
	}
	return a.print(map[string]any{"workspace": ws, "config": h.cfg.File, "purged": purge}, text)
}

// checkIdle returns an error if a request of the workspace is not settled.
func checkIdle(h *instance, ws string) error {
	for _, what := range []struct {
		doc  approval.Doc
		says string
	}{
		{approval.DocPending, "are pending"},
		{approval.DocClaim, "are running or interrupted"},
		{approval.DocRequest, "are not read yet"},
		{approval.DocDecision, "are decided and not settled"},
	} {
		ids, _, err := h.store.List(what.doc, ws)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			return fail(exitError, "permesso pending --workspace "+ws+" lists pending requests; decide them, or let them expire", "%d requests of '%s' %s", len(ids), ws, what.says)
		}
	}
	return nil
}
