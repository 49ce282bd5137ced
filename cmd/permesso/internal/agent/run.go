package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
)

// Run is the command that submits a program.
func Run(c *console.Console) *cobra.Command { return program{c}.run() }

func (a program) run() *cobra.Command {
	var w endpoint
	var r approval.Request
	c := &cobra.Command{
		Use: "run [FILE|-]", Short: "Submit a program, wait for the decision, and print what ran", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			source, err := a.ReadFile(cmp.Or(strings.Join(pos, ""), "-"))
			if err != nil {
				return err
			}
			r.Program = string(source)
			if strings.TrimSpace(r.Program) == "" {
				return console.Fail(console.ExitUsage, "permesso plan --teach shows how to write one", "the program is empty")
			}
			if err := a.compose(&r, nil, ""); err != nil {
				return err
			}
			g, err := w.connect(a)
			if err != nil {
				return err
			}
			return a.runParts(cmd.Context(), g, &w, r)
		},
	}
	fl := c.Flags()
	fl.StringVar(&r.RequestID, "id", "", "request `id`: 16 to 64 hex digits or a UUID, lower-case (default random); over HTTP the Idempotency-Key")
	fl.StringVar(&r.Title, "title", "", "title, one line of `text`")
	fl.StringVar(&r.Rationale, "rationale", "", "reason for the program, as `text`")
	fl.StringVar(&r.SessionID, "session", "", "session `id`")
	fl.StringVar(&r.Resubmits, "resubmits", "", "`id` of the request that this one replaces")
	w.flags(a, c, "stop waiting after this long; the request stays pending (0: no limit)")
	return c
}

// runParts submits a program, and again while it goes on after a part.
func (a program) runParts(ctx context.Context, g agentGate, w *endpoint, r approval.Request) error {
	began, limit := time.Now(), w.timeout // for all parts
	left := func() {
		if limit > 0 {
			w.timeout = max(limit-time.Since(began), time.Millisecond)
		}
	}
	again := "to go on, run the same program with --id " + r.RequestID
	var before client.ProgramResult // of the parts that have run
	for more := true; more; left() {
		asked, err := a.submit(ctx, g, w, r)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Err, "permesso: submitted program %s\n", asked.ID)
		left()
		resp, err := within(ctx, w, "waiting for the response to "+asked.ID, again, func(ctx context.Context) (*approval.Response, error) {
			return g.Await(ctx, asked)
		})
		if err != nil {
			return withExitCode(err)
		}
		if r, more = client.NextPart(r, resp); a.JSON && more {
			before = client.ResultOf(resp)
			continue // the last response has the steps of all parts
		}
		err = a.printProgram(resp, before)
		if len(before.Steps) > 0 && isNotRun(err) {
			fmt.Fprintf(a.Err, "permesso: %d steps ran in the part before, %s: permesso wait %s prints them\n", len(before.Steps), r.Continues, r.Continues)
			err = &console.Error{Code: console.ExitFailed, Err: errors.New("")}
		}
		if before = client.ResultOf(resp); err != nil || !more {
			return err
		}
	}
	return nil
}

// isNotRun reports whether an error says that nothing ran.
func isNotRun(err error) bool {
	e, ok := errors.AsType[*console.Error](err)
	return ok && e.Code == console.ExitNotRun
}

// printProgram prints how a program, or a part of one, ended. It returns the exit code as Ended does.
// before is the result of the part before: its steps were printed.
func (a program) printProgram(resp *approval.Response, before client.ProgramResult) error {
	if a.JSON {
		raw, err := resp.Encode()
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "%s\n", raw)
		return Ended(resp)
	}
	out := client.ResultOf(resp)
	for _, x := range out.Guarantees {
		fmt.Fprintf(a.Out, "main: %s %s\n", x.State, console.OneLine(x.Guarantee))
	}
	decision := string(resp.Status)
	if resp.Status == approval.StatusApproved || resp.Decision.Code != nil && resp.Receipt != nil {
		decision = "approved_once"
		if resp.Decision.Code != nil && *resp.Decision.Code == "2" {
			decision = "approved_for_session"
		} else if resp.Decision.Code != nil && *resp.Decision.Code == "6" {
			decision = "approved_always"
		}
	}
	if resp.Receipt != nil {
		decision += " receipt=" + approval.Digest([]byte(*resp.Receipt))
	}
	fmt.Fprintln(a.Out, "approval: "+decision)
	for i, s := range out.Steps {
		if i < len(before.Steps) {
			continue
		}
		line := fmt.Sprintf("step %d: %s %s", s.Step, s.Tool, s.Status)
		switch {
		case s.Error != "":
			line += ": " + console.OneLine(s.Error)
		case s.Omitted:
			line += ", its result is not here because the response would be too long"
		case s.Result.Kind() == '{' && string(s.Result) != "{}":
			line += " " + strings.ReplaceAll(console.OneLine(string(s.Result)), `\\`, `\`) // JSON has its own escapes
		}
		fmt.Fprintln(a.Out, line)
	}
	switch out.Main {
	case client.MainReturned:
		fmt.Fprintln(a.Out, "executed: main")
	case client.MainNeeds:
		fmt.Fprintln(a.Out, "executed: main, as far as it goes without the results; it goes on")
	}
	for _, line := range []struct {
		name string
		text *string
	}{{"error", resp.Error}, {"note", resp.Decision.Note}, {"change", resp.Decision.Override}, {"feedback", resp.Feedback}} {
		if line.text != nil {
			fmt.Fprintf(a.Out, "%s: %s\n", line.name, *line.text)
		}
	}
	if out.Undo != "" {
		fmt.Fprintf(a.Out, "undo: this program undoes what ran; permesso run - asks for it:\n%s", out.Undo)
	}
	return Ended(resp)
}
