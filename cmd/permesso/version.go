package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

// commit and date are set by the linker: the source of a released program.
var commit, date string

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the versions of this program and of the running daemon", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := console.NewVersion(version, commit, date)
			lines := v.Lines()
			if d := control.DaemonVersion(cmd.Context(), a.Console); d != "" {
				v.Daemon = &d
				lines = append(lines, "daemon   "+d)
			} else {
				lines = append(lines, "daemon   not running, or it does not answer")
			}
			if v.Daemon != nil && *v.Daemon != v.Version {
				lines = append(lines, "Restart the daemon to update it.")
			}
			return a.Print(v, strings.Join(lines, "\n"))
		},
	}
}
