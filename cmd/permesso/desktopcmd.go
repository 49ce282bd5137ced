package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/desktop"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) desktopNotifyCmd() *cobra.Command {
	var unit bool
	s := &setup.Service{Console: a.Console}
	c := &cobra.Command{
		Use: "desktop-notify", Short: "Notify the desktop of pending requests", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if unit {
				return s.ShowDesktop()
			}
			return a.desktopNotify(cmd.Context())
		},
	}
	c.Flags().BoolVar(&unit, "unit", false, "print a systemd user unit that runs this command")
	c.Flags().StringVar(&s.Program, "program", "", "with --unit: permesso `file` that the unit starts (default: this program)")
	_ = c.MarkFlagFilename("program")
	return c
}

func (a *app) desktopNotify(ctx context.Context) error {
	n := &desktop.Notifier{
		Dial: func(ctx context.Context) (desktop.Source, error) { return control.OpenServed(ctx, a.Console) },
		Open: a.openRequest,
		Log:  func(err error) { fmt.Fprintln(a.Err, "permesso: "+console.OneLine(err.Error())) },
	}
	err := n.Run(ctx)
	if errors.Is(err, desktop.ErrNoBus) {
		err = console.Wrap(console.ExitError, err, "run it in the session of a desktop, as a user service: permesso desktop-notify --unit")
	}
	return err
}

// openRequest opens a request's page, logged in.
func (a *app) openRequest(ctx context.Context, k approval.Key) error {
	d, err := control.OpenServed(ctx, a.Console)
	if err != nil {
		return err
	}
	address, _, err := d.Link(ctx)
	if err != nil {
		return err
	}
	if k.ID != "" {
		address += "?to=r/" + k.Workspace + "/" + k.ID
	}
	return a.openPage(address)
}
