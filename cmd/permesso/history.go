package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

// historyFlags select requests.
type historyFlags struct {
	since, until, tool, workspace, status, by string
	limit                                     int
	all, lines                                bool
}

func (a *app) historyCmd() *cobra.Command {
	var f historyFlags
	c := &cobra.Command{
		Use: "history", Short: "List past and pending requests, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.all && cmd.Flags().Changed("limit") {
				return console.Fail(console.ExitUsage, "leave out one of them", "--all and --limit exclude each other: all requests, or at most N")
			}
			return a.history(cmd.Context(), f)
		},
	}
	c.Flags().StringVar(&f.since, "since", "", "only requests made at this `time` or later")
	c.Flags().StringVar(&f.until, "until", "", "only requests made before this `time`")
	c.Flags().StringVar(&f.tool, "tool", "", "only requests for this `tool`, or without a tool of this action type")
	c.Flags().StringVar(&f.workspace, "workspace", "", "only requests of this `workspace`")
	c.Flags().StringVar(&f.status, "status", "", "only requests with this `status`")
	c.Flags().StringVar(&f.by, "by", "", "only requests that this `person` decided")
	c.Flags().IntVarP(&f.limit, "limit", "n", 50, "show at most `N` requests")
	c.Flags().BoolVar(&f.all, "all", false, "show all requests")
	c.Flags().BoolVar(&f.lines, "jsonl", false, "print JSON, a line for each request")
	return c
}

func (a *app) history(ctx context.Context, f historyFlags) error {
	q, err := f.query(time.Now())
	if err != nil {
		return err
	}
	return a.ask(ctx, func(d *control.Client) error {
		if a.JSON || f.lines {
			more, err := a.printItems(f.lines, func(each func(*read.Request) error) (bool, error) { return d.EachRequest(ctx, q, each) })
			if err == nil && more {
				a.Note("permesso: showing the newest %d; --all shows the rest", q.Limit)
			}
			return err
		}
		found, more, err := d.History(ctx, q)
		if err == nil || len(found) > 0 {
			a.printHistory(found)
		}
		if err == nil && more {
			a.Say("showing the newest %d; --all shows the rest", len(found))
		}
		return err
	})
}

func (f *historyFlags) query(now time.Time) (q control.HistoryQuery, err error) {
	q = control.HistoryQuery{Workspace: f.workspace, Tool: f.tool, Status: f.status, By: f.by}
	if q.Since, err = parseTime("since", f.since, now); err != nil {
		return q, err
	}
	if q.Until, err = parseTime("until", f.until, now); err != nil {
		return q, err
	}
	switch {
	case f.limit < 1:
		return q, console.Fail(console.ExitUsage, "--all shows all requests", "--limit %d: must be at least 1", f.limit)
	case f.status != "" && !slices.Contains(read.Statuses(), f.status):
		return q, console.Fail(console.ExitUsage, "use one of "+strings.Join(read.Statuses(), " "),
			"--status %q: unknown status", f.status)
	case !q.Until.IsZero() && !q.Since.Before(q.Until):
		return q, console.Fail(console.ExitUsage, "--since must be before --until", "--since %s is not before --until %s", f.since, f.until)
	}
	if !f.all {
		q.Limit = f.limit
	}
	return q, nil
}

// parseTime parses a --since or --until time; "" is the zero time.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if back, err := console.ParseDuration(text); err == nil && back >= 0 {
		return now.Add(-back), nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, console.Fail(console.ExitUsage, "a "+console.TimeHelp, "--%s %q: not a time", flag, text)
	}
	return t, nil
}

// historyItem is an item of history --json. Unknown times are null.
type historyItem struct {
	RequestID  string          `json:"request_id"`
	Workspace  string          `json:"workspace"`
	Tool       string          `json:"tool_name"`
	ActionType string          `json:"action_type"`
	Capability string          `json:"capability"`
	Target     string          `json:"target"`
	Status     approval.Status `json:"status"`
	By         string          `json:"by"`
	ByID       string          `json:"by_id"`
	Via        string          `json:"via"`
	Rule       string          `json:"rule"`
	Reason     string          `json:"reason"`
	AskedAt    *time.Time      `json:"asked_at"`
	DecidedAt  *time.Time      `json:"decided_at"`
	EndedAt    *time.Time      `json:"ended_at"`
}

// printList prints one array with --json, and otherwise the text of each item.
func printList[T any](a *app, items []T, text func(T) string) error {
	if a.JSON {
		return a.Print(items, "")
	}
	for _, item := range items {
		a.Say("%s", text(item))
	}
	return nil
}

// itemPrinter prints items while they are read: one array, or a line for each.
type itemPrinter struct {
	out                    *bufio.Writer
	before, between, after string
}

func (a *app) itemPrinter(lines bool) *itemPrinter {
	out := bufio.NewWriterSize(a.Out, 64<<10)
	if lines {
		return &itemPrinter{out, "", "\n", "\n"}
	}
	return &itemPrinter{out, "[", ",", "]\n"}
}

func (p *itemPrinter) print(item []byte) error {
	_, _ = p.out.WriteString(p.before) // the next write returns its error, too
	p.before = p.between
	_, err := p.out.Write(item)
	return err
}

// printItems prints items while they are read, also after an error.
func (a *app) printItems(lines bool, items func(each func(*read.Request) error) (more bool, err error)) (more bool, err error) {
	p := a.itemPrinter(lines)
	more, err = items(func(r *read.Request) error {
		b, err := json.Marshal(newHistoryItem(r), codec.Times())
		if err != nil {
			return err
		}
		return p.print(b)
	})
	return more, cmp.Or(err, p.end())
}

// end ends the array, or the last line.
func (p *itemPrinter) end() error {
	switch p.before {
	case "[":
		_, _ = p.out.WriteString("[")
	case "":
		return nil
	}
	_, _ = p.out.WriteString(p.after)
	return p.out.Flush()
}

func newHistoryItem(r *read.Request) historyItem {
	return historyItem{
		r.Key.ID, r.Key.Workspace, r.Tool, r.ActionType, r.Capability, r.Target, r.Status, r.By, r.ByID, r.Via, r.Rule, r.Reason,
		timeOrNil(r.AskedAt), timeOrNil(r.DecidedAt), timeOrNil(r.EndedAt),
	}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (a *app) printHistory(found []*read.Request) {
	if len(found) == 0 {
		fmt.Fprintln(a.Out, "No requests.")
		return
	}
	t := a.Table("ASKED", "ID", "WORKSPACE", "WHAT", "STATUS", "BY", "TOOK")
	for _, cells := range historyCells(found) {
		t.Row(cells...)
	}
	t.Print()
}

// historyCells are the cells of each request in a table.
func historyCells(found []*read.Request) (rows [][]string) {
	beginnings := map[string]int{}
	for _, r := range found {
		beginnings[approval.ShortID(r.Key.ID)]++
	}
	for _, r := range found {
		status := string(r.Status)
		if r.Undone != "" {
			status = strings.ReplaceAll(string(r.Undone), "_", " ") + ", held"
		}
		id := approval.ShortID(r.Key.ID)
		if beginnings[id] > 1 {
			id = r.Key.ID
		}
		rows = append(rows, []string{
			r.Asked().Local().Format(time.DateTime), id, r.Key.Workspace,
			toolAndTarget(r), status, whoDecided(r), durations(r),
		})
	}
	return rows
}

// toolAndTarget is the tool and its target, shortened.
func toolAndTarget(r *read.Request) string {
	name := cmp.Or(r.Kind(), "–")
	if r.Target == "" {
		return truncate(chat.Escape(name))
	}
	return truncate(chat.Escape(name) + " → " + chat.Escape(r.Target))
}

const maxWidth = 48

func truncate(s string) string {
	if r := []rune(s); len(r) > maxWidth {
		return string(r[:maxWidth-1]) + "…"
	}
	return s
}

func whoDecided(r *read.Request) string {
	switch {
	case r.By == "" && r.Rule == "", r.By == "" && r.Status == read.StatusPending:
		return "–"
	case r.By == "":
		return truncate(chat.Escape(r.Rule))
	case r.Via == "gate":
		return r.By
	}
	return truncate(chat.Escape(r.By) + " via " + chat.Escape(r.Via))
}

// durations is the time to the decision and, if something ran, the time after it.
func durations(r *read.Request) string {
	if r.AskedAt.IsZero() || r.EndedAt.IsZero() {
		return "–"
	}
	if r.DecidedAt.IsZero() || !r.Person || r.EndedAt.Equal(r.DecidedAt) {
		return shortDuration(r.EndedAt.Sub(r.AskedAt))
	}
	took, after := shortDuration(r.DecidedAt.Sub(r.AskedAt)), shortDuration(r.EndedAt.Sub(r.DecidedAt))
	if after == "0s" { // it was only released
		return took
	}
	return took + " + " + after
}

// shortDuration formats a duration in its two largest units: 350ms, 12.4s, 3m10s, 2h5m, 3d4h.
func shortDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "–" // the clock was set back
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	d = d.Round(time.Hour)
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

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
	a.Say("%d requests, %d of them needed an approver", st.Requests, st.Asked)
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
			a.Say("\n%s approves %s, half of it within %s: too fast to read the requests. Allow by a rule what is always\n"+
				"approved, so that approvers read the rest.", chat.Escape(l.Name), percent(l.Share), seconds(l.Median))
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
