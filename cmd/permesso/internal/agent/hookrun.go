package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/hook"
)

// run starts an agent whose hooks defer, and starts it again after each decision.
func (h *hookCommand) run() *cobra.Command {
	var w endpoint
	c := &cobra.Command{
		Use: "run -- claude -p PROMPT [ARGUMENT]...", Short: "Run Claude Code without it waiting for a person: it ends, and goes on after the decision",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, argv []string) error {
			g, err := h.gate(&w)
			if err != nil {
				return err
			}
			d := deferred{hookCommand: h, gate: g}
			if d.first, d.again, d.json, err = deferring(argv); err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd)
			defer stop()
			return d.run(ctx)
		},
	}
	w.flags(h.program, c, "")
	_ = c.Flags().MarkHidden("timeout")
	h.workspaceFlag(c)
	return c
}

// deferred is an agent that is started again after each decision.
type deferred struct {
	*hookCommand
	gate  client.Client
	first []string // the command line
	again []string // without the prompt, which must not be said twice
	json  bool     // the user has asked for JSON
}

// deferring are the command lines of the first start, and of each later one without --resume and its session.
func deferring(argv []string) (first, again []string, asJSON bool, err error) {
	usage := func(format string, args ...any) ([]string, []string, bool, error) {
		return nil, nil, false, console.Fail(console.ExitUsage, "permesso hook run -- claude -p 'fix the test' --model opus", format, args...)
	}
	again = []string{argv[0], "-p"}
	printing, format := false, ""
	for i := 1; i < len(argv); i++ {
		name, value, joined := strings.Cut(argv[i], "=")
		next := func() string {
			if !joined && i+1 < len(argv) {
				i++
				value = argv[i]
			}
			return value
		}
		switch name {
		case "-p", "--print":
			printing = true
			if !joined && i+1 < len(argv) && !strings.HasPrefix(argv[i+1], "-") {
				i++ // the prompt
			}
		case "-r", "--resume":
			next()
		case "-c", "--continue":
		case "--output-format":
			format = next()
		default:
			again = append(again, argv[i])
		}
	}
	switch {
	case !printing:
		return usage("an agent defers only with -p, and the prompt right behind it, or on standard input")
	case format != "" && format != "json" && format != "text":
		return usage("the output format %s cannot be joined: take json or text", format)
	}
	first = slices.DeleteFunc(slices.Clone(argv), func(s string) bool { return strings.HasPrefix(s, "--output-format=") })
	if i := slices.Index(first, "--output-format"); i > 0 && i+1 < len(first) {
		first = slices.Delete(first, i, i+2)
	}
	asks := []string{"--output-format", "json"}
	return append(first, asks...), append(again, asks...), format == "json", nil
}

// ended is what is read of the agent's own account of its end.
type ended struct {
	Stop    string `json:"stop_reason"`
	Session string `json:"session_id"`
	Result  string `json:"result"`
	IsError bool   `json:"is_error"`
	Call    struct {
		ID   string `json:"id"`
		Tool string `json:"name"`
	} `json:"deferred_tool_use"`
}

func (d *deferred) run(ctx context.Context) error {
	argv := d.first
	for {
		out, err := d.start(ctx, argv)
		if err != nil {
			return err
		}
		var e ended
		if json.Unmarshal(out, &e) != nil {
			fmt.Fprintln(d.Out, console.OneLine(string(out)))
			return console.Fail(console.ExitError, "", "the agent ended without the JSON that it was asked for")
		}
		if e.Stop != "tool_deferred" || e.Session == "" || e.Call.ID == "" {
			if d.json {
				_, err = d.Out.Write(out)
				return err
			}
			fmt.Fprintln(d.Out, e.Result)
			if e.IsError {
				return console.Fail(console.ExitError, "", "the agent ended with an error")
			}
			return nil
		}
		argv = append(slices.Clone(d.again), "--resume", e.Session)
		if err := d.wait(ctx, e, argv); err != nil {
			return err
		}
	}
}

// wait waits for the end of the request of a deferred call.
func (d *deferred) wait(ctx context.Context, e ended, argv []string) error {
	id := hook.Waiting(d.state(hooksFolder), hook.WaitsFor("claude-code", e.Session, e.Call.ID))
	if id == "" {
		return console.Fail(console.ExitError, "permesso hook install claude-code", "the agent has deferred a call of %s, and no hook of permesso knows of it", console.OneLine(e.Call.Tool))
	}
	fmt.Fprintf(d.Err, "permesso: request %s waits for a decision. If this ends before: permesso hook run -- %s\n",
		approval.ShortID(id), console.OneLine(strings.Join(argv, " ")))
	for {
		_, err := d.gate.Await(ctx, client.Submitted{ID: id})
		if _, silent := errors.AsType[*client.Silence](err); !silent || ctx.Err() != nil {
			return err // the hook itself reads the end, when it is asked again
		}
		select { // the daemon is down
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// start runs the agent to its end.
func (d *deferred) start(ctx context.Context, argv []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = d.In, &out, d.Err
	cmd.Env = append(os.Environ(), hook.Deferring+"=1")
	err := cmd.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok && exited.ExitCode() > 0 && out.Len() > 0 {
		return out.Bytes(), nil // it says itself what went wrong
	}
	if err != nil {
		return nil, console.Wrap(console.ExitError, err, "give the agent's command behind --")
	}
	return out.Bytes(), nil
}
