package main

import (
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/doctor"
)

func (a *app) doctorCmd() *cobra.Command {
	var workspace string
	var quick, hooks bool
	c := &cobra.Command{
		Use: "doctor", Short: "Check the installation and suggest fixes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := doctor.New(a.Console, workspace)
			if err != nil {
				return err
			}
			d.Quick, d.Hooks, d.Greet = quick, hooks, control.Greet
			return d.Report(d.Run(cmd.Context()))
		},
	}
	c.Flags().StringVar(&workspace, "workspace", "", "check only this `workspace` and what is not specific to a workspace")
	c.Flags().BoolVar(&quick, "quick", false, "skip the sandbox, measurements and old records")
	c.Flags().BoolVar(&hooks, "hooks", false, "start each agent whose settings have the hook, in this folder, as hook check does")
	c.AddCommand(a.probeCmd())
	return c
}

func (a *app) probeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "probe", Short: "Probe the isolation of a sandbox from inside (Linux only)", Args: cobra.NoArgs, Hidden: true,
		RunE: func(*cobra.Command, []string) error { return doctor.Probe(a.Console) },
	}
}
