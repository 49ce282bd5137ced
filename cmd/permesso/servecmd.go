package main

import (
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
)

func (a *app) pruneCmd() *cobra.Command {
	var dry, trust bool
	c := &cobra.Command{
		Use: "prune", Short: "Remove records and responses that are older than their retention", Args: cobra.NoArgs,
		Long: "Remove records and responses that are older than [retention]: by default responses after 7 days and records\n" +
			"after 90. The audit log keeps its entries, and permesso history shows them.\n\n" +
			"A running daemon prunes every hour; then this command does nothing. If the newest log entries are more than a week\n" +
			"apart, nothing is removed for a day, because the clock may be wrong.",
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
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the approval daemon",
		Long: "Run the approval daemon until SIGTERM or Ctrl-C. It reads requests, asks approvers and runs what was approved.\n\n" +
			"On a terminal it shows pending requests and reads decisions: approve ID, deny ID, pending, help, or a code for the\n" +
			"last request shown. Elsewhere use permesso approve and permesso deny. The log goes to standard error.\n\n" +
			daemon.ScriptHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon.TuneRuntime(a.Console)
			return daemon.Serve(cmd.Context(), a.Console, script, a.Err)
		},
	}
	c.Flags().StringVar(&script, "script", "", "TOML `file` that decides instead of approvers, to test agents")
	_ = c.MarkFlagFilename("script", "toml") // fails only for unknown flags
	return c
}

func (a *app) sweepCmd() *cobra.Command {
	return &cobra.Command{
		Use: "sweep", Short: "Process due work once and exit", Args: cobra.NoArgs,
		Long: "Process due work once and exit, as serve does continuously: read new requests, run what was approved, expire what\n" +
			"is overdue, and finish what a crash interrupted. The daemon must be stopped.",
		RunE: func(*cobra.Command, []string) error { return daemon.Sweep(a.Console) },
	}
}
