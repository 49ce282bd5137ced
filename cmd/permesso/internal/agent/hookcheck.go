package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/hook"
	"github.com/permesso-dev/permesso/ipc/hook/check"
)

func (h *hookCommand) check() *cobra.Command {
	var x check.Check
	c := &cobra.Command{
		Use: "check AGENT", Short: "Prove that the hook of an agent is called, and that what it denies is not executed",
		Args: cobra.ExactArgs(1), ValidArgs: check.Agents(),
		RunE: func(cmd *cobra.Command, pos []string) (err error) {
			if x.Agent, err = agentNamed(pos[0]); err != nil {
				return err
			}
			if !slices.Contains(check.Agents(), x.Agent.Name) {
				return console.Fail(console.ExitUsage, "permesso hook check --help", "%s cannot be checked: give one of %s", x.Agent.Name, strings.Join(check.Agents(), ", "))
			}
			if x.Place, err = h.place(); err != nil {
				return err
			}
			return h.prove(cmd.Context(), x)
		},
	}
	c.Flags().StringVar(&x.Program, "program", "", "the agent's program as a `path` (default: the one in PATH)")
	c.Flags().Var((*console.Duration)(&x.Timeout), "timeout", "how long the agent may run (default 1m)")
	return c
}

// place is this user's folder, and the current one as the project.
func (h *hookCommand) place() (p check.Place, err error) {
	p.Env = h.Env
	p.Home, p.Project, err = folders()
	return p, err
}

// prove checks, and prints what was seen.
func (h *hookCommand) prove(ctx context.Context, x check.Check) error {
	x.Environ, x.Progress = os.Environ(), func(doing string) { h.Status(console.OneLine(doing)) }
	r, err := x.Run(ctx)
	h.Status("")
	if err != nil {
		return err
	}
	lines, proven := r.Lines(x.Agent), r.Proven(x.Agent)
	for i, l := range lines {
		lines[i].Hint = console.HookHint(x.Agent.Name, l)
	}
	if err := h.Print(struct {
		check.Report

		Proven bool         `json:"proven"`
		Lines  []check.Line `json:"lines"`
	}{r, proven, lines}, checkText(lines)); err != nil || proven {
		return err
	}
	return &console.Error{Code: console.ExitErrors, Err: errors.New("")}
}

var checkSigns = map[check.Severity]string{check.OK: "✓", check.Info: "·", check.Warning: "!", check.Error: "✗"}

func checkText(lines []check.Line) string {
	var out strings.Builder
	for i, l := range lines {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s %-9s %s", checkSigns[l.Severity], l.Of, console.OneLine(l.What))
		if l.Hint != "" {
			fmt.Fprintf(&out, "\n  hint: %s", l.Hint)
		}
	}
	return out.String()
}

// warn says which files switch the hook off here, and that nothing can be promised for the installed version, if one is found.
func (h *hookCommand) warn(ctx context.Context, a hook.Agent) {
	if place, err := h.place(); err == nil {
		for _, l := range place.Standing(a).Lines(a) {
			if l.Of == "off" && l.Severity != check.Info {
				h.PrintIssue("permesso: warning: ", console.Fail(console.ExitOK, console.HookHint(a.Name, l), "%s", l.What))
			}
		}
	}
	program, err := check.Find(a, "")
	if err != nil {
		return
	}
	if old := check.TooOld(a, check.Version(ctx, program, os.Environ())); old != "" {
		h.PrintIssue("permesso: warning: ", console.Fail(console.ExitOK, check.Update(a), "%s", old))
	}
}
