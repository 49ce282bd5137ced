package main

import (
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
)

func (a *app) pruneCmd() *cobra.Command {
	var dry, trust bool
	c := &cobra.Command{
		Use: "prune", Short: "Remove records and responses that are older than their retention", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dry {
				return daemon.PruneDry(cmd.Context(), a.Console)
			}
			return daemon.Prune(cmd.Context(), a.Console, trust)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "count what would be removed, remove nothing")
	c.Flags().BoolVar(&trust, "trust-clock", false, "remove also right after a long gap in the log")
	return c
}

func (a *app) serveCmd() *cobra.Command {
	var script string
	var tui bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the approval daemon",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			screen, err := a.screen(tui)
			if err != nil {
				return err
			}
			daemon.TuneRuntime(a.Console)
			return daemon.Serve(cmd.Context(), a.Console, script, a.Err, screen)
		},
	}
	c.Flags().StringVar(&script, "script", "", "TOML `file` that decides instead of approvers, to test agents")
	c.Flags().BoolVar(&tui, "tui", false, "show the terminal UI on this terminal, as permesso tui does")
	c.MarkFlagsMutuallyExclusive("script", "tui")
	c.Flags().BoolVar(&a.UnsafeHome, "unsafe-home", false, "accept a HOME on 9p, NFS, SMB or FUSE, where acknowledged decisions can be lost")
	_ = c.MarkFlagFilename("script", "toml") // fails only for unknown flags
	return c
}

func (a *app) sweepCmd() *cobra.Command {
	return &cobra.Command{
		Use: "sweep", Short: "Process due work once and exit", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return daemon.Sweep(a.Console) },
	}
}
