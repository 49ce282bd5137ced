package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) initCmd() *cobra.Command {
	b := setup.Options{PresetText: func(b setup.Options) (string, error) {
		return a.preset(b.Preset, presetOptions{project: b.Project, person: b.Person})
	}}
	var yes bool
	c := &cobra.Command{
		Use: "init", Short: "Create a first configuration and the state folder", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := []string{"workspace", "approver", "autonomy", "sandbox", "preset", "yes"}
			cmd.Flags().Visit(func(f *pflag.Flag) { b.Given = append(b.Given, f.Name) })
			ask := console.IsTerminal(a.In) && !a.JSON && !slices.ContainsFunc(flags, cmd.Flags().Changed)
			return setup.Init(cmd.Context(), a.Console, b, ask)
		},
	}
	c.Flags().StringVar(&b.Workspace, "workspace", config.DefaultWorkspace, "`name` of the first workspace, for one agent")
	c.Flags().StringVar(&b.TypedApprover, "approver", "", "approver: a login `name`, or NAME:UID (default: you)")
	c.Flags().StringVar(&b.Autonomy, "autonomy", "supervised", "autonomy `level` of the agent: "+strings.Join(grant.Levels(), ", "))
	c.Flags().StringVar(&b.Sandbox, "sandbox", "bwrap", "`kind` of the agent's sandbox: "+strings.Join(setup.Sandboxes(), ", "))
	c.Flags().StringVar(&b.Preset, "preset", "", "also write the rules of a preset: `name`, "+strings.Join(setup.Presets(), ", "))
	addPresetFlags(c, &b.Project, &b.Person)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "ask no questions")
	completeFlags(c, map[string][]string{"workspace": nil, "approver": nil, "preset": setup.Presets()})
	return c
}
