package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

func (a *app) statsCmd() *cobra.Command {
	var f historyFlags
	c := &cobra.Command{
		Use: "stats", Short: "Show statistics of requests and decisions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.stats(cmd.Context(), f) },
	}
	c.Flags().StringVar(&f.since, "since", "", "only requests made at this `time` or later")
	c.Flags().StringVar(&f.until, "until", "", "only requests made before this `time`")
	c.Flags().StringVar(&f.workspace, "workspace", "", "only requests of this `workspace`")
	return c
}

func (a *app) stats(ctx context.Context, f historyFlags) error {
	f.all, f.limit = true, 1
	q, err := f.query(time.Now())
	if err != nil {
		return err
	}
	return a.ask(ctx, func(d *control.Client) error {
		st, err := d.Stats(ctx, q)
		switch {
		case st == nil:
		case a.JSON:
			err = errors.Join(err, a.Print(st, ""))
		default:
			a.printStats(st)
		}
		return err
	})
}

func (a *app) printStats(st *read.Stats) {
	fmt.Fprintf(a.Out, "%d requests, %d of them needed an approver\n", st.Requests, st.Asked)
	for _, s := range read.Statuses() {
		if n := st.Statuses[approval.Status(s)]; n > 0 {
			fmt.Fprintf(a.Out, "  %-13s %6d\n", s, n)
		}
	}
	fmt.Fprintf(a.Out, "median time to decide: %s\n", seconds(st.Median))
	for _, part := range []struct {
		head string
		list []read.Tally
	}{{"APPROVER", st.Approvers}, {"TOOL", st.Tools}} {
		if len(part.list) == 0 {
			continue
		}
		fmt.Fprintln(a.Out)
		t := a.Table(part.head, "REQUESTS", "DECIDED", "APPROVED", "MEDIAN", "WITHIN 5s")
		for _, l := range part.list {
			t.Row(truncate(chat.Escape(l.Name)), fmt.Sprint(l.Requests), fmt.Sprint(l.Decided), percent(l.Share), seconds(l.Median), fmt.Sprint(l.Hasty))
		}
		t.Print()
	}
	for _, l := range st.Approvers {
		if l.RubberStamps() {
			fmt.Fprintf(a.Out, "\n%s approves %s, half of it within %s: too fast to read the requests. Allow by a rule what is always\n"+
				"approved, so that approvers read the rest.\n", chat.Escape(l.Name), percent(l.Share), seconds(l.Median))
		}
	}
}

func percent(share *float64) string {
	if share == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", *share*100)
}

func seconds(s *float64) string {
	if s == nil {
		return "–"
	}
	return shortDuration(time.Duration(*s * float64(time.Second)))
}
