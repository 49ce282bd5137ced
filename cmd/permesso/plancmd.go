package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
)

func (a *app) planCmd() *cobra.Command {
	var workspace string
	var teach bool
	c := &cobra.Command{
		Use: "plan FILE", Short: "Show what a program would do and the ruling on it, without asking", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			switch {
			case teach:
				fmt.Fprint(a.Out, ipc.ProgramsManual)
				return nil
			case len(pos) == 0:
				return console.Fail(console.ExitUsage, "permesso plan FILE, or permesso plan --teach for how to write one", "plan needs FILE, or - for standard input")
			}
			return a.plan(cmd.Context(), pos[0], workspace)
		},
	}
	c.Flags().StringVar(&workspace, "workspace", "", "plan it in this `workspace` (default: the only one)")
	c.Flags().BoolVar(&teach, "teach", false, "print how to write a program, on one page for an agent's prompt")
	return c
}

// planned is what plan --json prints.
type planned struct {
	Workspace string           `json:"workspace"`
	Ruling    *approval.Ruling `json:"ruling"`
	Plan      *approval.Plan   `json:"plan"` // null: there is none, the ruling says why
}

func (a *app) plan(ctx context.Context, file, workspace string) error {
	source, err := a.ReadFile(file)
	if err != nil {
		return err
	}
	h, m, err := home.ReadMemory(a.Console)
	if err != nil {
		return err
	}
	ws, err := control.ChooseWorkspace(h, workspace)
	if err != nil {
		return err
	}
	r := &approval.Request{RequestID: client.NewID(), Program: string(source)}
	b, err := r.Encode()
	if err != nil {
		return err
	}
	if r, err = approval.ParseRequest(b, r.RequestID); err != nil {
		return console.Fail(console.ExitError, "permesso plan --teach shows how to write a program", "%w", err)
	}
	settings, err := m.Settings(h.Config)
	if err != nil {
		return err
	}
	live := &home.Live{}
	live.Set(settings)
	now, policy := live.Config()
	planner := &exec.Planner{}
	p, ruling, err := gate.PreviewProgram(ctx, now, policy, planner, ws, r, time.Now(), home.NewHostFiles(h), chat.Words{})
	if err != nil {
		return err
	}
	out, text := planned{Workspace: ws, Ruling: &ruling}, rulingText(ruling)
	if p != nil {
		out.Plan = p.Plan
		style := chat.Style{Language: h.Config.Workspaces[ws].Language, Zone: time.Local, Redact: home.NewRedaction(), Local: true}
		card := style.Card(p)
		card.Menu, card.Typed, card.Foot = nil, "", "" // there is no request to decide
		text = strings.TrimRight(card.String(), "\n") + "\n\n" + text
	}
	if err := a.PrintToCopy(out, text); err != nil {
		return err
	}
	if ruling.Outcome == approval.Deny {
		return &console.Error{Code: console.ExitNotRun, Err: fmt.Errorf("")}
	}
	return nil
}
