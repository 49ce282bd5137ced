package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// watch prints events until it is interrupted.
type watch struct {
	*app
	workspace string
	lines     bool // of JSON
	at        int64
}

func (a *app) watchCmd() *cobra.Command {
	w := &watch{app: a}
	c := &cobra.Command{
		Use: "watch", Short: "Print events as they happen", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.JSON {
				return console.Fail(console.ExitUsage, "permesso watch --jsonl", "watch prints no single JSON value: --jsonl prints one a line")
			}
			signal.Ignore(syscall.SIGPIPE) // a closed pipe is then an error of a write
			err := w.run(cmd.Context())
			if cmd.Context().Err() != nil || errors.Is(err, syscall.EPIPE) {
				return nil
			}
			return err
		},
	}
	c.Flags().StringVar(&w.workspace, "workspace", "", "only events of this `workspace`, and pauses of all")
	c.Flags().BoolVar(&w.lines, "jsonl", false, "print JSON, one object a line")
	return c
}

// run follows one daemon after the other, from the position that it has reached.
func (w *watch) run(ctx context.Context) error {
	c, err := control.OpenServed(ctx, w.Console)
	if err != nil {
		return err
	}
	if w.workspace != "" {
		if err := console.CheckWorkspace(w.workspace, c.Workspaces); err != nil {
			return err
		}
	}
	if _, w.at, err = c.Entries(ctx, 0, w.workspace); err != nil {
		return err
	}
	fmt.Fprintf(w.Err, "permesso: watching the daemon of %s\n", console.OneLine(c.Home))
	for {
		lost := w.follow(ctx, c)
		if ctx.Err() != nil || errors.Is(lost, syscall.EPIPE) {
			return lost
		}
		pid := c.PID
		if c, err = w.reopen(ctx, c, lost); err != nil {
			return err
		}
		if c.PID == pid { // it did not end
			return lost
		}
		fmt.Fprintln(w.Err, "permesso: the daemon answers again; events since then follow")
	}
}

// follow prints events until the daemon ends, or standard output.
func (w *watch) follow(ctx context.Context, c *control.Client) error {
	for {
		list, at, err := c.Entries(ctx, w.at, w.workspace)
		if err != nil {
			return err
		}
		if at < w.at {
			fmt.Fprintln(w.Err, "permesso: the log is shorter than before: events may be missing")
		}
		for _, e := range list {
			if err := w.print(&e); err != nil {
				return err
			}
		}
		w.at = at
	}
}

// reopenPause is how long a daemon that does not answer is left alone.
const reopenPause = 250 * time.Millisecond

// reopen waits for the next daemon of the same home.
func (w *watch) reopen(ctx context.Context, ended *control.Client, lost error) (*control.Client, error) {
	for told := false; ; {
		c, err := ended.Again(ctx)
		if err == nil || errors.Is(err, decide.ErrNotAuthorized) || ctx.Err() != nil {
			return c, err
		}
		if !told {
			told = true
			fmt.Fprintf(w.Err, "permesso: %s; waiting for the next one\n", console.OneLine(lost.Error()))
		}
		if err := home.Sleep(ctx, reopenPause); err != nil {
			return nil, err
		}
	}
}

// watchItem is a line of watch --jsonl: an entry of the audit log, with the words of the API.
type watchItem struct {
	Seq        int64     `json:"seq"`
	Time       time.Time `json:"time"`
	Event      string    `json:"event"`
	Workspace  string    `json:"workspace"`
	RequestID  string    `json:"request_id"`
	ToolName   string    `json:"tool_name"`
	ActionType string    `json:"action_type"`
	SessionID  string    `json:"session_id"`
	GrantID    string    `json:"grant_id"`
	By         string    `json:"by"`
	Via        string    `json:"via"`
	Reason     string    `json:"reason"`
}

func (w *watch) print(e *event.Entry) error {
	if !w.lines {
		id, grant := "–", ""
		if e.RequestID != "" {
			id = chat.Escape(approval.ShortID(e.RequestID))
		}
		if e.Grant != "" {
			grant = ", grant " + chat.Escape(approval.ShortID(e.Grant))
		}
		_, err := fmt.Fprintf(w.Out, "%s  %s  %s  %s  %s%s\n", e.Time.Local().Format(time.DateTime), cmp.Or(chat.Escape(e.Workspace), "–"), id,
			cmp.Or(chat.Escape(cmp.Or(e.Tool, e.ActionType)), "–"), entryInWords(e), grant)
		return err
	}
	b, err := json.Marshal(watchItem{
		e.Seq, e.Time.UTC(), string(e.Event), e.Workspace, e.RequestID, e.Tool, e.ActionType, e.SessionID, e.Grant, e.By, e.Via, e.Reason,
	})
	if err != nil {
		return err
	}
	_, err = w.Out.Write(append(b, '\n'))
	return err
}
