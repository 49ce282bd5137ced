package home

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/ipc"
)

// State is what status prints.
type State struct {
	Home       string         `json:"home"`
	Config     string         `json:"config"`
	Running    bool           `json:"running"`
	Script     string         `json:"script,omitempty"` // the approval script that decides instead of people
	Pending    map[string]int `json:"pending"`
	Claims     map[string]int `json:"unfinished"`
	Workspaces []string       `json:"workspaces"`
	Paused     []ipc.Pause    `json:"paused"`
	Health     *HealthReport  `json:"health"` // null if no daemon runs
}

// State reads the state from the files; running is in the daemon.
func (h *Home) State(running bool) (st *State, err error) {
	st = &State{Home: h.Layout.Home, Config: h.Current().File, Running: running, Pending: map[string]int{}, Claims: map[string]int{}}
	if st.Script, err = h.Scripted(); err != nil {
		return nil, err
	}
	if running {
		health := h.HealthAt(time.Now())
		st.Health = &health
	}
	if st.Workspaces, err = h.Store.Workspaces(context.Background()); err != nil {
		return nil, err
	}
	if st.Paused, err = h.Store.Pauses(); err != nil {
		return nil, err
	}
	for _, ws := range st.Workspaces {
		for d, count := range map[approval.Doc]map[string]int{approval.DocPending: st.Pending, approval.DocClaim: st.Claims} {
			ids, _, err := h.Store.List(context.Background(), d, ws)
			if err != nil {
				return nil, err
			}
			count[ws] = len(ids)
		}
	}
	return st, nil
}

// String is the state as status prints it.
func (s *State) String() string {
	var b strings.Builder
	up := "not running: decisions take effect when it starts (permesso serve)"
	if s.Running {
		up = "running"
		if s.Health != nil && s.Health.Status == HealthDegraded {
			up = "running, degraded"
		}
	}
	fmt.Fprintf(&b, "daemon  %s\nhome    %s\nconfig  %s", up, s.Home, cmp.Or(s.Config, "defaults"))
	if s.Script != "" {
		fmt.Fprintf(&b, "\nscript  %s decides instead of people: for tests only", chat.Escape(s.Script))
	}
	if s.Health != nil && s.Health.UI != "" {
		fmt.Fprintf(&b, "\nweb UI  %s (permesso ui opens it)", chat.Escape(s.Health.UI))
	}
	if s.Health != nil {
		b.WriteString(s.Health.lines())
	}
	for _, p := range s.Paused {
		fmt.Fprintf(&b, "\n⏸ %s", PauseLine(p))
	}
	for _, ws := range s.Workspaces {
		fmt.Fprintf(&b, "\n%-7s %d pending, %d running or interrupted", ws, s.Pending[ws], s.Claims[ws])
	}
	return b.String()
}

// Scripted returns the script that decides in this home, "" if people do.
func (h *Home) Scripted() (string, error) {
	b, err := os.ReadFile(h.Layout.Scripted())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return cmp.Or(line, "a script"), err
}

// Only is the state as an approver of these workspaces may see it.
func (s *State) Only(workspaces []string) *State {
	st := *s
	st.Workspaces = slices.DeleteFunc(slices.Clone(s.Workspaces), func(ws string) bool { return !slices.Contains(workspaces, ws) })
	st.Paused = slices.DeleteFunc(slices.Clone(s.Paused), func(p ipc.Pause) bool {
		return p.Workspace != ipc.AllWorkspaces && !slices.Contains(workspaces, p.Workspace)
	})
	if s.Health != nil {
		health := *s.Health
		health.Issues, health.ConfigSHA256 = []healthIssue{}, "" // shown to the operator only
		st.Health = &health
		if st.Health.Status == HealthPaused && len(st.Paused) == 0 {
			st.Health.Status = HealthOK // a workspace that the approver does not see is paused
		}
	}
	st.Pending, st.Claims = map[string]int{}, map[string]int{}
	for _, ws := range st.Workspaces {
		st.Pending[ws], st.Claims[ws] = s.Pending[ws], s.Claims[ws]
	}
	return &st
}
