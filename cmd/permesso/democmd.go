package main

import (
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/demo"
)

func (a *app) demoCmd() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Run a demo with a sandboxed agent", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo.Run(cmd.Context(), a.Console) },
	}
}
