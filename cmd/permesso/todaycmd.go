package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func (a *app) todayCmd() *cobra.Command {
	var workspace, since string
	c := &cobra.Command{
		Use: "today", Short: "Show what your agents did, as one message", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, d *control.Client, _ []string) error {
			return a.today(ctx, d, workspace, since)
		}),
	}
	c.Flags().StringVar(&workspace, "workspace", "", "only requests of this `workspace`")
	c.Flags().StringVar(&since, "since", "", "only requests made at this `time` or later (default: midnight)")
	return c
}

func (a *app) today(ctx context.Context, d *control.Client, workspace, since string) error {
	from, err := parseTime("since", since, time.Now())
	if err != nil {
		return err
	}
	if from.IsZero() {
		from = home.StartOfDay(time.Now())
	}
	day, err := d.Today(ctx, workspace, from)
	if day == nil {
		return err
	}
	text := ""
	if !a.JSON {
		text = d.Style().Day(day)
	}
	return errors.Join(err, a.Print(day, text))
}
