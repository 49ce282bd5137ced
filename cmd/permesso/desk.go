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

// sight is what a person sees of a gate.
type sight interface {
	chat.Viewer
	chat.Finder
	local.Documents
}

// desk is where a person looks and decides: the files of a home, or the socket
// of a gate whose files are not theirs to read.
type desk struct {
	*house // of a remote one, only what a style needs
	sight
	chat.Decider
	remote *local.Client // nil: the files
}

// desk takes the files where it can. Otherwise it takes a socket, if there is
// one: that of PERMESSO_SOCKET, of the configuration, or of a system's gate.
func (a *app) desk(ctx context.Context) (*desk, error) {
	h, k, err := a.existing()
	if err == nil {
		return &desk{house: h, sight: h.viewer(k), Decider: h.decider(k, nil)}, nil
	}
	if !a.elsewhere(err) {
		return nil, err
	}
	path := a.socketPath()
	if info, statErr := os.Stat(path); statErr != nil || info.Mode()&fs.ModeSocket == 0 {
		return nil, err
	}
	c := &local.Client{Path: path}
	if _, err := c.Status(ctx); err != nil {
		return nil, unanswered(path, err)
	}
	cfg := config.Default()
	cfg.Language = c.Language()
	return &desk{house: &house{cfg: cfg}, sight: c, Decider: c, remote: c}, nil
}

// elsewhere says whether err means that the home is somebody else's: it may not
// be read, or there is none where nobody said that there is one.
func (a *app) elsewhere(err error) bool {
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
		return false // of a configuration that can be read, but not understood
	}
	_, err = os.Stat(ipc.Layout{Home: home}.Keys())
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) && !named
}

func (a *app) socketPath() string {
	if path := a.Env("PERMESSO_SOCKET"); path != "" {
		return path
	}
	if file, err := config.Locate(a.configFlag, a.Env); err == nil {
		if cfg, err := a.reader().Load(file); err == nil && cfg.Socket != "" {
			return cfg.Socket
		}
	}
	return config.DefaultSocket
}

func unanswered(path string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fail(codeError, "start it: permesso serve, or systemctl start permesso", "no gate answers on %s", path)
	}
	return err
}

func (d *desk) served() (bool, error) {
	if d.remote != nil {
		return true, nil // it has just answered
	}
	return d.house.served()
}

func (d *desk) state(ctx context.Context) (*state, error) {
	if d.remote == nil {
		return d.house.state()
	}
	b, err := d.remote.Status(ctx)
	if err != nil {
		return nil, err
	}
	st := &state{}
	if err := json.Unmarshal(b, st); err != nil {
		return nil, fmt.Errorf("read the gate's status: %w", err)
	}
	return st, nil
}

// only is the state as somebody sees it who decides in these workspaces.
func (s *state) only(workspaces []string) *state {
	st := *s
	st.Workspaces = slices.DeleteFunc(slices.Clone(s.Workspaces), func(ws string) bool { return !slices.Contains(workspaces, ws) })
	st.Paused = slices.DeleteFunc(slices.Clone(s.Paused), func(p ipc.Pause) bool { return p.Workspace != "" && !slices.Contains(workspaces, p.Workspace) })
	if s.Health != nil {
		st.Health = &healthReport{Status: s.Health.Status, UI: s.Health.UI} // its problems are the operator's
	}
	st.Pending, st.Claims = map[string]int{}, map[string]int{}
	for _, ws := range st.Workspaces {
		st.Pending[ws], st.Claims[ws] = s.Pending[ws], s.Claims[ws]
	}
	return &st
}

var _ sight = (*local.Client)(nil)
