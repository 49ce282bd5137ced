package main

import (
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/demo"
)

func (a *app) demoCmd() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Run a demo with a sandboxed agent", Args: cobra.NoArgs,
		Long: "Start a daemon in a temporary folder and a demo agent in bubblewrap that submits three requests: a rule allows one,\n" +
			"one asks you, a rule denies one. Everything is removed at the end. Without a terminal the demo answers itself.",
		RunE: func(cmd *cobra.Command, _ []string) error { return demo.Run(cmd.Context(), a.Console) },
	}
}
