package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

func (a *app) pauseCmd() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "pause [WORKSPACE]", Short: "Pause all executions until resume", Args: cobra.MaximumNArgs(1),
		Long: "Pause all executions in one workspace or in all, until permesso resume, whether a rule or a person approved them.\n\n" +
			"When the command returns, nothing more is started; what is running continues. Approvers still get requests and may\n" +
			"decide; an approved request that is not started in time expires. A pause survives a restart. The daemon may be\n" +
			"stopped.",
		ValidArgsFunction: a.completeWorkspaces,
		RunE: func(_ *cobra.Command, pos []string) error {
			if strings.ContainsFunc(reason, unicode.IsControl) || len(reason) > 300 {
				return console.Fail(console.ExitUsage, "use one line of at most 300 bytes", "--reason of %d bytes is too long or has control characters", len(reason))
			}
			return a.pause(pos, reason)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "reason `text`, shown to approvers and in status")
	return c
}

func (a *app) resumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume [WORKSPACE]", Short: "Resume paused executions", Args: cobra.MaximumNArgs(1),
		Long: "Resume paused executions. Paused requests run now unless they have expired.\n\n" +
			"Without WORKSPACE it ends the pause of everything; workspaces that were paused by name stay paused.",
		ValidArgsFunction: a.completeWorkspaces,
		RunE:              func(_ *cobra.Command, pos []string) error { return a.resume(pos) },
	}
}

// pauseTarget returns the home and the name to pause or resume. It reads neither
// the configuration nor the keys: a pause must work when they are broken.
func (a *app) pauseTarget(pos []string) (*home.Home, string, error) {
	dir, err := config.LocateHome(a.HomeFlag, a.Env)
	if err != nil {
		return nil, "", err
	}
	h := home.New(nil, dir)
	if _, err := h.FS.Stat(h.Layout.IPC()); err != nil {
		return nil, "", console.Fail(console.ExitError, "run permesso init, or name another --home", "no daemon for this user in %s", dir)
	}
	if err := h.Layout.PreparePauses(h.FS); err != nil || len(pos) == 0 {
		return h, ipc.AllWorkspaces, err
	}
	names, err := h.Store.Workspaces(context.Background())
	if err != nil {
		return nil, "", err
	}
	if !slices.Contains(names, pos[0]) {
		return nil, "", console.Fail(console.ExitError, "workspaces: "+strings.Join(names, ", "), "no workspace %q", pos[0])
	}
	return h, pos[0], nil
}

func (a *app) pause(pos []string, reason string) error {
	h, name, err := a.pauseTarget(pos)
	if err != nil {
		return err
	}
	p := ipc.Pause{Workspace: name, By: home.Operator().Name, At: time.Now().UTC(), Reason: reason}
	err = h.Store.Pause(p)
	already := errors.Is(err, fs.ErrExist)
	if err != nil && !already {
		return err
	}
	if err := h.AwaitClaims(name); err != nil {
		return err
	}
	running, err := countClaims(h, name)
	if err != nil {
		return err
	}
	if now, ok := h.Store.Paused(name); ok {
		p = now
	}
	text := "paused: nothing runs until permesso " + strings.TrimSpace("resume "+strings.Join(pos, " "))
	if already {
		text = "already " + home.PauseLine(p)
	}
	if running > 0 {
		text += fmt.Sprintf("\n%d already running or interrupted: see permesso status", running)
	}
	return a.Print(p, text)
}

// countClaims counts the claims of a workspace, or of all.
func countClaims(h *home.Home, name string) (n int, err error) {
	names := []string{name}
	if name == ipc.AllWorkspaces {
		if names, err = h.Store.Workspaces(context.Background()); err != nil {
			return 0, err
		}
	}
	for _, ws := range names {
		ids, _, err := h.Store.List(context.Background(), approval.DocClaim, ws)
		if err != nil {
			return 0, err
		}
		n += len(ids)
	}
	return n, nil
}

func (a *app) resume(pos []string) error {
	h, name, err := a.pauseTarget(pos)
	if err != nil {
		return err
	}
	p, err := h.Store.Resume(name, home.Operator().Name, time.Now().UTC())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	still, held := h.Store.Paused(name)
	switch {
	case err != nil && held:
		return console.Fail(console.ExitError, "permesso resume without a workspace ends the pause of everything", "%s is not paused by name: %s", name, home.PauseLine(still))
	case err != nil:
		return a.Print(struct{}{}, "not paused")
	case held:
		return a.Print(p, "resumed, but still "+home.PauseLine(still))
	}
	text := "resumed: paused requests run"
	if left, err := h.Store.Pauses(); err == nil && name == ipc.AllWorkspaces && len(left) > 0 {
		text = "resumed, except workspaces paused by name:"
		for _, p := range left {
			text += " " + p.Workspace
		}
	}
	return a.Print(p, text)
}
