package main

import (
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/doctor"
)

func (a *app) doctorCmd() *cobra.Command {
	var workspace string
	var quick bool
	c := &cobra.Command{
		Use: "doctor", Short: "Check the installation and suggest fixes", Args: cobra.NoArgs,
		Long: "Check the installation: folders and keys, seals, what a sandbox isolates (it starts one and tries what an agent\n" +
			"must not do), agents that run as the daemon's user, limits, clock, disk, stuck requests, and the Telegram bot.\n" +
			"The daemon may be running or stopped. doctor changes nothing.\n\n" +
			"Each line begins with ✓ for ok, · for info, ! for a warning, ✗ for an error.\n" +
			"A hint below it suggests a fix. --json prints one object with the same findings:\n\n" +
			`  {"home":"…","config":"…","version":"…","running":true,"worst":"warning","findings":[` + "\n" +
			`    {"check":"disk","severity":"warning","workspace":"","what":"…","cure":"…"}]}` + "\n\n" +
			"where severity and worst are ok, info, warning or error. workspace and cure may be empty.\n\n" +
			"Exit codes: 0 nothing worse than info; 8 warnings; 9 errors: fix them before you start an agent.",
		Example: "  permesso doctor\n  permesso doctor --quick --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := doctor.New(a.Console, workspace)
			if err != nil {
				return err
			}
			d.Quick = quick
			return d.Report(d.Run(cmd.Context()))
		},
	}
	c.Flags().StringVar(&workspace, "workspace", "", "check only this `workspace` and what is not specific to a workspace")
	c.Flags().BoolVar(&quick, "quick", false, "skip the sandbox, measurements and old records")
	c.AddCommand(a.probeCmd())
	return c
}

func (a *app) probeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "probe", Short: "Probe the isolation of a sandbox from inside (Linux only)", Args: cobra.NoArgs, Hidden: true,
		Long: "Probe the isolation of a sandbox from inside. permesso doctor starts this itself, with input on standard input.",
		RunE: func(*cobra.Command, []string) error { return doctor.Probe(a.Console) },
	}
}
