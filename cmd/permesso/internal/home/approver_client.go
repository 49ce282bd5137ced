package home

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/local"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
)

// View is read access to pending requests and documents.
type View interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
	Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error)
	local.Documents
}

// ApproverClient reads requests and decides: on the files of a home, or over
// the daemon's socket if this user cannot read the files.
type ApproverClient struct {
	*Home // over the socket: only what a style needs
	View
	chat.Decider
	Remote *local.Client // nil: on the files
}

// OpenApprover uses the files if it can read them. Otherwise it uses a socket:
// PERMESSO_SOCKET, the configured one, or the default of the system's daemon.
func OpenApprover(ctx context.Context, a *console.Console) (*ApproverClient, error) {
	h, k, err := Open(a)
	if err == nil {
		return &ApproverClient{Home: h, View: h.Viewer(k), Decider: h.Decider(k)}, nil
	}
	if !IsForeignHome(a, err) {
		return nil, err
	}
	path := SocketPath(a)
	if info, statErr := os.Stat(path); statErr != nil || info.Mode()&fs.ModeSocket == 0 {
		return nil, err
	}
	c := &local.Client{Path: path}
	if _, err := c.Status(ctx); err != nil {
		return nil, NoAnswer(path, err)
	}
	cfg := config.Default()
	cfg.Language = c.Language()
	return &ApproverClient{Home: &Home{Config: cfg}, View: c, Decider: c, Remote: c}, nil
}

// IsForeignHome reports whether err means that the home belongs to another user:
// it is unreadable, or it does not exist and was not named explicitly.
func IsForeignHome(a *console.Console, err error) bool {
	if errors.Is(err, fs.ErrPermission) {
		return true
	}
	var bad *config.Error
	named := a.HomeFlag != "" || a.Env("PERMESSO_HOME") != ""
	home, homeErr := config.LocateHome(a.HomeFlag, a.Env)
	if homeErr != nil {
		return !named
	}
	if errors.As(err, &bad) {
		return false // the configuration is readable but invalid
	}
	_, err = os.Stat(ipc.Layout{Home: home}.Keys())
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) && !named
}

// SocketPath is the socket of the daemon by environment, configuration or default.
func SocketPath(a *console.Console) string {
	if path := a.Env("PERMESSO_SOCKET"); path != "" {
		return path
	}
	if file, err := config.Locate(a.ConfigFlag, a.Env); err == nil {
		if cfg, err := Reader(a).Load(file); err == nil && cfg.Socket != "" {
			return cfg.Socket
		}
	}
	return config.DefaultSocket
}

// NoAnswer explains an error of the socket.
func NoAnswer(path string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return console.Fail(console.ExitError, "start the daemon: permesso serve, or systemctl start permesso", "no daemon listens on %s", path)
	}
	return err
}

// Served reports whether a daemon runs.
func (d *ApproverClient) Served() (bool, error) {
	if d.Remote != nil {
		return true, nil // it has just answered
	}
	return d.Home.Served()
}

// State is the state of the home as this user may see it.
func (d *ApproverClient) State(ctx context.Context) (*State, error) {
	if d.Remote == nil {
		return d.Home.State()
	}
	b, err := d.Remote.Status(ctx)
	if err != nil {
		return nil, err
	}
	st := &State{}
	if err := json.Unmarshal(b, st); err != nil {
		return nil, fmt.Errorf("parse the daemon's status: %w", err)
	}
	return st, nil
}

// Only is the state as an approver of these workspaces may see it.
func (s *State) Only(workspaces []string) *State {
	st := *s
	st.Workspaces = slices.DeleteFunc(slices.Clone(s.Workspaces), func(ws string) bool { return !slices.Contains(workspaces, ws) })
	st.Paused = slices.DeleteFunc(slices.Clone(s.Paused), func(p ipc.Pause) bool { return p.Workspace != "" && !slices.Contains(workspaces, p.Workspace) })
	if s.Health != nil {
		st.Health = &HealthReport{Status: s.Health.Status, UI: s.Health.UI} // issues are shown to the operator only
	}
	st.Pending, st.Claims = map[string]int{}, map[string]int{}
	for _, ws := range st.Workspaces {
		st.Pending[ws], st.Claims[ws] = s.Pending[ws], s.Claims[ws]
	}
	return &st
}

var _ View = (*local.Client)(nil)
