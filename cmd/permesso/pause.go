package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

func (a *app) pauseCmd() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "pause [WORKSPACE]", Short: "Pause all executions until resume", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error { return a.pause(cmd.Context(), pos, reason) },
	}
	c.Flags().StringVar(&reason, "reason", "", "reason `text`, shown to approvers and in status")
	return c
}

func (a *app) resumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume [WORKSPACE]", Short: "Resume paused executions", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error { return a.resume(cmd.Context(), pos) },
	}
}

// askBare is ask without the configuration and the keys of a home without a daemon: a
// pause must work when they are broken.
func (a *app) askBare(ctx context.Context, do func(*control.Client) error) error {
	d, err := control.OpenBare(ctx, a.Console)
	if err != nil {
		return err
	}
	return errors.Join(do(d), d.Close())
}

func (a *app) pause(ctx context.Context, pos []string, reason string) error {
	return a.askBare(ctx, func(d *control.Client) error {
		p, err := d.Pause(ctx, strings.Join(pos, ""), reason)
		if err != nil {
			return err
		}
		text := "paused: nothing runs until permesso " + strings.TrimSpace("resume "+strings.Join(pos, " "))
		if p.Already {
			text = "already " + home.PauseLine(p.Pause)
		}
		for _, other := range p.Others {
			text += "\nalso " + home.PauseLine(other) + ": permesso resume"
			if other.Workspace != ipc.AllWorkspaces {
				text += " " + other.Workspace
			}
		}
		if p.Claims > 0 {
			text += fmt.Sprintf("\n%d already running or interrupted: see permesso status", p.Claims)
		}
		return a.Print(p.Pause, text)
	})
}

// resumedItem is what resume --json prints: the pause that has ended, and those that stay.
type resumedItem struct {
	Ended  *ipc.Pause  `json:"ended"`
	Paused []ipc.Pause `json:"paused"`
}

func (a *app) resume(ctx context.Context, pos []string) error {
	return a.askBare(ctx, func(d *control.Client) error {
		name := strings.Join(pos, "")
		r, err := d.Resume(ctx, name)
		switch {
		case err != nil:
			return err
		case !r.Paused && r.Still != nil:
			return console.Fail(console.ExitError, "permesso resume without a workspace ends the pause of everything", "%s is not paused by name: %s", name, home.PauseLine(*r.Still))
		case !r.Paused:
			return a.Print(resumedItem{Paused: r.Left}, "not paused")
		case r.Still != nil:
			return a.Print(resumedItem{&r.Pause, r.Left}, "resumed, but still "+home.PauseLine(*r.Still))
		}
		text := "resumed: paused requests run"
		if name == "" && len(r.Left) > 0 {
			text = "resumed, except workspaces paused by name:"
			for _, p := range r.Left {
				text += " " + p.Workspace
			}
		}
		return a.Print(resumedItem{&r.Pause, r.Left}, text)
	})
}
