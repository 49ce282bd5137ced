package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) serviceCmd() *cobra.Command {
	s := &setup.Service{Console: a.Console}
	install := serviceSubcommand(s, "install", "Install the unit and its files", s.Install)
	uninstall := serviceSubcommand(s, "uninstall", "Stop the service and remove its unit", s.Uninstall)
	for _, sub := range []*cobra.Command{install, uninstall} {
		sub.Flags().StringVar(&s.Root, "root", "", "install below this root `folder`, without systemctl calls")
		sub.Flags().BoolVar(&s.DryRun, "dry-run", false, "print the steps, change nothing")
		_ = sub.MarkFlagDirname("root")
	}
	show := serviceSubcommand(s, "show", "Print the unit, or the file for another way to start the daemon", s.Show)
	others := []string{"socket", "openrc", "runit"}
	for i, what := range []string{"print the systemd socket unit that starts the service on demand", "print the script for OpenRC", "print the script for runit"} {
		show.Flags().BoolFunc(others[i], what, func(string) error { s.Other = others[i]; return nil })
	}
	show.MarkFlagsMutuallyExclusive(append(others, "user")...)
	for _, sub := range []*cobra.Command{install, show} {
		sub.Flags().StringVar(&s.Program, "program", "", "permesso `file` that the unit starts (default: this program)")
		_ = sub.MarkFlagFilename("program")
	}
	return console.Group(&cobra.Command{
		Use: "service", Short: "Manage the systemd service; print the files for OpenRC, runit, or a socket",
	}, install, uninstall, show)
}

func serviceSubcommand(s *setup.Service, name, short string, run func(context.Context) error) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.System = !s.User && (s.System || os.Getuid() == 0)
			return run(cmd.Context())
		},
	}
	c.Flags().BoolVar(&s.System, "system", false, "use the system service, under its own user")
	c.Flags().BoolVar(&s.User, "user", false, "use the service of this user")
	c.MarkFlagsMutuallyExclusive("system", "user")
	return c
}
