package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/local"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
)

// view is read access to pending requests and documents.
type view interface {
	chat.Viewer
	chat.Finder
	local.Documents
}

// approverClient reads requests and decides: on the files of a home, or over
// the daemon's socket if this user cannot read the files.
type approverClient struct {
	*instance // over the socket: only what a style needs
	view
	chat.Decider
	remote *local.Client // nil: on the files
}

// openApprover uses the files if it can read them. Otherwise it uses a socket:
// PERMESSO_SOCKET, the configured one, or the default of the system's daemon.
func openApprover(ctx context.Context, a *console) (*approverClient, error) {
	h, k, err := openHome(a)
	if err == nil {
		return &approverClient{instance: h, view: h.viewer(k), Decider: h.decider(k)}, nil
	}
	if !isForeignHome(a, err) {
		return nil, err
	}
	path := socketPath(a)
	if info, statErr := os.Stat(path); statErr != nil || info.Mode()&fs.ModeSocket == 0 {
		return nil, err
	}
	c := &local.Client{Path: path}
	if _, err := c.Status(ctx); err != nil {
		return nil, noAnswer(path, err)
	}
	cfg := config.Default()
	cfg.Language = c.Language()
	return &approverClient{instance: &instance{cfg: cfg}, view: c, Decider: c, remote: c}, nil
}

// isForeignHome reports whether err means that the home belongs to another user:
// it is unreadable, or it does not exist and was not named explicitly.
func isForeignHome(a *console, err error) bool {
	if errors.Is(err, fs.ErrPermission) {
		return true
	}
	var bad *config.Error
	named := a.homeFlag != "" || a.Env("PERMESSO_HOME") != ""
	home, homeErr := config.LocateHome(a.homeFlag, a.Env)
	if homeErr != nil {
		return !named
	}
	if errors.As(err, &bad) {
		return false // the configuration is readable but invalid
	}
	_, err = os.Stat(ipc.Layout{Home: home}.Keys())
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) && !named
}

func socketPath(a *console) string {
	if path := a.Env("PERMESSO_SOCKET"); path != "" {
		return path
	}
	if file, err := config.Locate(a.configFlag, a.Env); err == nil {
		if cfg, err := configReader(a).Load(file, a.Env); err == nil && cfg.Socket != "" {
			return cfg.Socket
		}
	}
	return config.DefaultSocket
}

func noAnswer(path string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fail(exitError, "start the daemon: permesso serve, or systemctl start permesso", "no daemon listens on %s", path)
	}
	return err
}

func (d *approverClient) served() (bool, error) {
	if d.remote != nil {
		return true, nil // it has just answered
	}
	return d.instance.served()
}

func (d *approverClient) state(ctx context.Context) (*state, error) {
	if d.remote == nil {
		return d.instance.state()
	}
	b, err := d.remote.Status(ctx)
	if err != nil {
		return nil, err
	}
	st := &state{}
	if err := json.Unmarshal(b, st); err != nil {
		return nil, fmt.Errorf("parse the daemon's status: %w", err)
	}
	return st, nil
}

// only is the state as an approver of these workspaces may see it.
func (s *state) only(workspaces []string) *state {
	st := *s
	st.Workspaces = slices.DeleteFunc(slices.Clone(s.Workspaces), func(ws string) bool { return !slices.Contains(workspaces, ws) })
	st.Paused = slices.DeleteFunc(slices.Clone(s.Paused), func(p ipc.Pause) bool { return p.Workspace != "" && !slices.Contains(workspaces, p.Workspace) })
	if s.Health != nil {
		st.Health = &healthReport{Status: s.Health.Status, UI: s.Health.UI} // issues are shown to the operator only
	}
	st.Pending, st.Claims = map[string]int{}, map[string]int{}
	for _, ws := range st.Workspaces {
		st.Pending[ws], st.Claims[ws] = s.Pending[ws], s.Claims[ws]
	}
	return &st
}

var _ view = (*local.Client)(nil)
