package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

func (a *app) pendingCmd() *cobra.Command {
	var all bool
	var limit int
	var workspace string
	c := &cobra.Command{
		Use: "pending", Short: "List pending requests", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, d *control.Client, _ []string) error {
			list, err := d.Waiting(ctx, workspace)
			if err != nil {
				return err
			}
			return a.printPending(d, list, all, limit)
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "include expired requests that are not settled yet; no limit")
	c.Flags().IntVar(&limit, "limit", 50, "show at most `N` requests")
	c.Flags().StringVar(&workspace, "workspace", "", "only requests of this `workspace`")
	return c
}

// waitingItem is an item of pending --json.
type waitingItem struct {
	RequestID string    `json:"request_id"`
	ShortID   string    `json:"short_id"`
	Workspace string    `json:"workspace"`
	Tool      string    `json:"tool_name"`
	Summary   string    `json:"summary"`
	AskedAt   time.Time `json:"asked_at"`
	ExpiresAt time.Time `json:"expires_at"`
	SHA256    string    `json:"pending_sha256"`

	Decision *undone `json:"decision"` // null: none
}

// undone is a decision that is not carried out yet, in JSON.
type undone struct {
	Verdict   approval.Verdict `json:"verdict"`
	By        string           `json:"decided_by"`
	DecidedAt time.Time        `json:"decided_at"`
	RunBefore *time.Time       `json:"run_before"`
	Held      bool             `json:"held"` // by a pause
}

// undoneOf is d in JSON.
func undoneOf(c *control.Client, workspace string, d *approval.Decision) *undone {
	if d == nil {
		return nil
	}
	return &undone{d.Verdict, d.DecidedBy, d.DecidedAt, timeOrNil(d.RunBefore), d.Approved && c.PauseOf(workspace) != nil}
}

// notDone says what was decided, and why it is not carried out yet.
func notDone(c *control.Client, workspace string, d *approval.Decision, running bool) (who, why string) {
	who = strings.ReplaceAll(string(d.Verdict), "_", " ") + " by " + chat.Escape(d.DecidedBy)
	pause := c.PauseOf(workspace)
	switch {
	case running:
		return who, "it was started and has not ended"
	case d.Approved && pause != nil:
		resume := "permesso resume"
		if pause.Workspace != ipc.AllWorkspaces {
			resume += " " + pause.Workspace
		}
		return who, "held by the pause until " + resume + ", or " + d.RunBefore.Local().Format(time.TimeOnly) + " when it expires"
	case !c.Served:
		return who, "takes effect when the daemon starts"
	}
	return who, ""
}

func (a *app) printPending(d *control.Client, list []control.Waiting, all bool, limit int) error {
	now, style := time.Now(), d.Style()
	if !all {
		list = slices.DeleteFunc(list, func(w control.Waiting) bool { return !now.Before(w.Pending.ExpiresAt) })
	}
	more := 0
	if !all && limit > 0 && len(list) > limit {
		list, more = list[:limit], len(list)-limit
	}
	if a.JSON {
		if more > 0 {
			a.Tell("--all shows the rest", "showing %d of %d", limit, limit+more)
		}
		items := make([]waitingItem, 0, len(list))
		for _, w := range list {
			p := w.Pending
			items = append(items, waitingItem{p.RequestID, p.ShortID, p.SourceGroup, p.ToolName, style.Redacted(p, p.Summary), p.Timestamp, p.ExpiresAt, w.SHA256, undoneOf(d, p.SourceGroup, w.Decision)})
		}
		return a.Print(items, "")
	}
	if len(list) == 0 {
		a.Say("No pending approvals.")
	}
	for _, p := range d.Paused {
		a.Say("⏸ %s", home.PauseLine(p))
	}
	for _, w := range list {
		line := style.Line(w.Pending)
		if w.Decision != nil {
			who, why := notDone(d, w.Pending.SourceGroup, w.Decision, false)
			why, _, _ = strings.Cut(why, " until ")
			line += " · " + strings.TrimSuffix(who+", "+why, ", ")
		}
		a.Say("%s", line)
	}
	if more > 0 {
		a.Say("showing %d of %d; --all shows the rest", limit, limit+more)
	}
	return nil
}

// asking is the run of a command that asks the daemon, or HOME without one.
func (a *app) asking(do func(ctx context.Context, d *control.Client, pos []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, pos []string) error {
		return a.ask(cmd.Context(), func(d *control.Client) error { return do(cmd.Context(), d, pos) })
	}
}

// ask opens the daemon, or HOME without one, for one command.
func (a *app) ask(ctx context.Context, do func(*control.Client) error) error {
	d, err := control.Open(ctx, a.Console)
	if err != nil {
		return err
	}
	return errors.Join(do(d), d.Close())
}

func (a *app) showCmd() *cobra.Command {
	var reveal bool
	c := &cobra.Command{
		Use: "show ID", Short: "Show one request and its history", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(waitingIDs),
		RunE: func(cmd *cobra.Command, pos []string) error {
			ctx := cmd.Context()
			if reveal && !a.JSON { // JSON is never masked
				return a.reveal(ctx, pos[0])
			}
			return a.ask(ctx, func(d *control.Client) error { return a.show(ctx, d, pos[0]) })
		},
	}
	c.Flags().BoolVar(&reveal, "reveal", false, "show masked secrets, too; the audit log says who did")
	return c
}

// splitID splits a typed id: WORKSPACE/ID, or ID alone.
func splitID(typed string) (ws, id string) {
	typed = strings.ToLower(strings.TrimSpace(typed))
	if ws, id, ok := strings.Cut(typed, "/"); ok {
		return ws, id
	}
	return "", typed
}

// find returns the one request that a typed id matches; list lists those of a workspace,
// or of all, by the beginning of the id.
func find(ctx context.Context, list func(ctx context.Context, ws, prefix string) ([]approval.Key, error), typed string) (approval.Key, error) {
	ws, id := splitID(typed)
	if len(id) < 4 {
		return approval.Key{}, console.Fail(console.ExitUsage, "permesso pending lists the ids", "ID %q is too short: give at least 4 digits", typed)
	}
	keys, err := list(ctx, ws, id)
	switch {
	case err != nil:
		return approval.Key{}, err
	case len(keys) == 0:
		return approval.Key{}, console.Wrap(console.ExitRefused, fmt.Errorf("%s: %w", typed, decide.ErrUnknown), "permesso pending lists the pending requests")
	case len(keys) > 1:
		return approval.Key{}, console.Fail(console.ExitRefused, "give more digits, or WORKSPACE/ID",
			"%q matches %d requests: %s", typed, len(keys), namesOf(keys))
	}
	return keys[0], nil
}

// maxNamed is how many requests an error names.
const maxNamed = 5

// namesOf lists requests as a person can type them, up to maxNamed.
func namesOf(keys []approval.Key) string {
	names := make([]string, 0, maxNamed+1)
	for _, k := range keys[:min(len(keys), maxNamed)] {
		names = append(names, k.String())
	}
	if len(keys) > maxNamed {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

func waitingIDs(ctx context.Context, d *control.Client) (ids []string, err error) {
	list, err := d.Waiting(ctx, "")
	for _, w := range list {
		ids = append(ids, w.Pending.ShortID+"\t"+chat.Escape(w.Pending.ToolName))
	}
	return ids, err
}

func (a *app) statusCmd() *cobra.Command {
	var disk, line bool
	asking := a.asking(func(ctx context.Context, d *control.Client, _ []string) error {
		if disk {
			return a.diskStatus(ctx, d)
		}
		st, err := d.Status(ctx)
		if err != nil {
			return err
		}
		return a.Print(st, st.String())
	})
	c := &cobra.Command{
		Use: "status", Short: "Show daemon status", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, pos []string) error {
			if line {
				return a.statusLine(cmd.Context())
			}
			return asking(cmd, pos)
		},
	}
	c.Flags().BoolVar(&disk, "disk", false, "show what is written to the journal, and how fast")
	c.Flags().BoolVar(&line, "line", false, "print one line for a prompt or status line, nothing if nothing waits")
	c.MarkFlagsMutuallyExclusive("disk", "line")
	return c
}

// statusLine prints what waits in a few words. It asks no daemon if it can read the files.
func (a *app) statusLine(ctx context.Context) error {
	g, err := control.ReadGlance(ctx, a.Console)
	text := glanceText(g, time.Now())
	if err != nil || text == "" && !a.JSON {
		return err
	}
	return a.PrintToCopy(g, text)
}

// glanceText is "" if nothing waits and all is well.
func glanceText(g home.Glance, now time.Time) string {
	var states []string
	if g.Daemon != home.DaemonUp {
		states = append(states, "daemon "+g.Daemon)
	}
	if g.Paused {
		states = append(states, "paused")
	}
	state := strings.Join(states, ", ")
	if g.Waiting == 0 {
		return state
	}
	verb := "wait"
	if g.Waiting == 1 {
		verb = "waits"
	}
	text := fmt.Sprintf("%d %s, oldest %s", g.Waiting, verb, glanceAge(now.Sub(g.Oldest)))
	if state != "" {
		text = state + ": " + text
	}
	return text
}

// glanceAge is an age in its largest whole unit.
func glanceAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, d)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d m", d/time.Minute)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/(24*time.Hour))
}
