package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

// denyAll are the flags of deny --all.
type denyAll struct {
	on, sure  bool
	workspace string
}

// deniedItem is an item of deny --all --json.
type deniedItem struct {
	RequestID string `json:"request_id"`
	Workspace string `json:"workspace"`
	Denied    bool   `json:"denied"`
	Error     string `json:"error,omitempty"` // why not
}

// denyAll denies what is pending in a workspace, each request as it was listed.
func (a *app) denyAll(ctx context.Context, f denyAll, reason string) error {
	var list []control.Waiting
	var lines []string
	err := a.ask(ctx, func(c *control.Client) (err error) { // closed before the person reads: it may lock HOME
		if f.workspace == "" {
			return console.Fail(console.ExitUsage, "workspaces: "+strings.Join(c.Workspaces, ", "), "deny --all needs --workspace")
		}
		if err := console.CheckWorkspace(f.workspace, c.Workspaces); err != nil {
			return err
		}
		list, err = c.Waiting(ctx, f.workspace)
		list = slices.DeleteFunc(list, func(w control.Waiting) bool { return w.Decision != nil })
		for _, w := range list {
			lines = append(lines, c.Style().Line(w.Pending))
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return a.Print([]deniedItem{}, "No pending approvals.")
	}
	if !f.sure && a.asksHere() {
		if f.sure, err = a.Confirm(ctx, strings.Join(lines, "\n"), fmt.Sprintf("Deny these %d requests?", len(list))); err != nil && !errors.Is(err, console.ErrNoAnswer) {
			return err
		}
	} else if !a.JSON {
		fmt.Fprintln(a.Out, strings.Join(lines, "\n"))
	}
	if !f.sure {
		code, hint := console.ExitUsage, "--yes denies them without asking"
		if a.asksHere() {
			code, hint = console.ExitRefused, ""
		}
		return console.Fail(code, hint, "%d pending requests: nothing was decided", len(list))
	}
	return a.ask(ctx, func(c *control.Client) error { return a.denyListed(ctx, c, list, reason) })
}

// denyListed denies each request. One that was decided meanwhile is told, and is no error.
func (a *app) denyListed(ctx context.Context, c *control.Client, list []control.Waiting, reason string) error {
	var items []deniedItem
	var failed error
	denied := 0
	for _, w := range list {
		in := decide.ByCode("3", reason)
		in.Key, in.PendingSHA256 = w.Key(), w.SHA256
		item := deniedItem{RequestID: in.Key.ID, Workspace: in.Key.Workspace, Denied: true}
		if _, err := c.Decide(ctx, in); err == nil {
			denied++
		} else {
			item.Denied, item.Error = false, err.Error()
			if _, refused := errors.AsType[*decide.Refusal](err); !refused || errors.Is(err, decide.ErrNotAuthorized) {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", w.Pending.ShortID, err))
			} else if !a.JSON {
				fmt.Fprintf(a.Out, "%s: %s\n", w.Pending.ShortID, item.Error)
			}
		}
		items = append(items, item)
	}
	return errors.Join(a.Print(items, fmt.Sprintf("denied %d of %d", denied, len(list))), failed)
}
