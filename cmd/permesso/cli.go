package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
)

// Main is the program and its environment.
type Main struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) string
}

// app is one run of the program.
type app struct{ *console.Console }

// Run runs one command line and returns its exit code.
func (m Main) Run(ctx context.Context, args []string) int {
	a := &app{&console.Console{In: m.In, Out: m.Out, Err: m.Err, Env: m.Env, Version: version}}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(m.In)
	root.SetOut(m.Out)
	root.SetErr(m.Err)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return console.ExitOK
	}
	return a.report(explainUsage(c, err))
}

// report prints each of joined errors with its hint, and returns the exit code.
func (a *app) report(err error) int {
	code := console.ExitError
	var e *console.Error
	var ref *decide.Refusal
	switch {
	case errors.As(err, &e):
		code = e.Code
	case errors.As(err, &ref):
		code = console.ExitRefused
	case errors.Is(err, ipc.ErrLocked):
		code = console.ExitLocked
	case isUsage(err):
		code = console.ExitUsage
		hint := "permesso --help"
		// Cobra appends its suggestion on separate lines.
		if text, near, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n"); ok {
			err, hint = errors.New(text), "did you mean "+strings.Join(strings.Fields(near), " or ")+"?"
		}
		err = hints.Add(err, hint)
	}
	begin := "permesso: "
	for _, e := range hints.Split(err) {
		a.PrintIssue(begin, e)
		if e.Error() != "" {
			begin = ""
		}
	}
	return code
}

// isUsage recognizes cobra's errors, which have no type.
func isUsage(err error) bool {
	for _, begin := range []string{"unknown command", "unknown flag", "unknown shorthand", "accepts ", "requires ", "invalid argument", "flag needs", "required flag", "if any flags"} {
		if strings.HasPrefix(err.Error(), begin) {
			return true
		}
	}
	return false
}

// idHints say which command lists the ids that a command takes.
var idHints = map[string]string{
	"approve": "permesso pending lists the ids", "deny": "permesso pending lists the ids", "show": "permesso history lists the ids",
	"revoke": "permesso grants lists the ids", "key revoke": "permesso key list shows the ids",
}

// explainUsage replaces cobra's errors on arguments and values of flags.
func explainUsage(c *cobra.Command, err error) error {
	text, name := err.Error(), strings.TrimPrefix(c.CommandPath(), "permesso ")
	help := "permesso " + name + " --help"
	var value, flag string
	if n, _ := fmt.Sscanf(text, "invalid argument %q for %q flag:", &value, &flag); n == 2 {
		_, cause, _ := strings.Cut(text, " flag: ")
		switch {
		case strings.Contains(cause, "strconv.ParseBool"):
			cause = "is not true or false"
		case strings.Contains(cause, "out of range"):
			cause = "is out of range"
		case strings.Contains(cause, "strconv."):
			cause = "is not a number"
		case strings.Contains(cause, "duration"):
			cause = "is not a duration such as 30s or 5m"
		}
		return console.Fail(console.ExitUsage, help, "%s: %q %s", flag[strings.LastIndex(flag, " ")+1:], value, cause)
	}
	if !strings.Contains(text, " arg(s), ") {
		return err
	}
	takes := strings.Fields(c.Use)[1:]
	var needs []string
	for _, word := range takes {
		if !strings.HasPrefix(word, "[") {
			needs = append(needs, word)
		}
	}
	if given := c.Flags().NArg(); given >= len(needs) {
		return console.Fail(console.ExitUsage, help, "%s takes only %s, got %d arguments", name, strings.Join(takes, " "), given)
	}
	article := "a "
	if strings.ContainsAny(needs[0][:1], "AEIOU") {
		article = "an "
	}
	return console.Fail(console.ExitUsage, cmp.Or(idHints[name], help), "%s needs %s", name, article+strings.Join(needs, " and a "))
}

// group completes a command that only has subcommands: without one of them it is an error.
func group(c *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	names := make([]string, 0, len(subs))
	for _, sub := range subs {
		names = append(names, sub.Name())
		if sub.ValidArgsFunction == nil {
			sub.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
	choice, last := strings.Join(names[:len(names)-1], ", "), names[len(names)-1]
	if choice != "" {
		last = " or " + last
	}
	c.Args = cobra.NoArgs
	c.RunE = func(*cobra.Command, []string) error {
		return console.Fail(console.ExitUsage, "permesso "+c.Name()+" --help",
			"%s needs a subcommand: %s", c.Name(), choice+last)
	}
	c.AddCommand(subs...)
	return c
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "permesso",
		Short: "An approval gate for AI agents: may I?",
		Long: "An approval gate for AI agents: may I?\n\n" +
			"A sandboxed agent submits a request. A rule allows it, denies it, or asks an approver. The daemon runs exactly\n" +
			"what was approved, on the host, and writes the response. permesso demo shows it.\n\n" +
			"Exit codes: 0 done, or approved and run, or answered; 1 error; 2 invalid command line; 3 ended without running;\n" +
			"4 started, and failed or was interrupted; 5 --timeout expired; 6 decision refused, or verification failed;\n" +
			"7 another daemon serves this home; 8 doctor found warnings; 9 doctor found errors.",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&a.ConfigFlag, "config", "", "configuration `file` (default $XDG_CONFIG_HOME/permesso/permesso.toml)")
	root.PersistentFlags().StringVar(&a.HomeFlag, "home", "", "state `folder` (default $XDG_STATE_HOME/permesso)")
	root.PersistentFlags().BoolVar(&a.JSON, "json", false, "print JSON")
	_ = root.MarkPersistentFlagFilename("config", "toml") // fails only for unknown flags
	_ = root.MarkPersistentFlagDirname("home")
	root.AddGroup(
		&cobra.Group{ID: "host", Title: "On the host:"},
		&cobra.Group{ID: "decide", Title: "For approvers:"},
		&cobra.Group{ID: "agent", Title: "For agents, in the sandbox:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		"host": {
			a.initCmd(),
			a.workspaceCmd(),
			a.serveCmd(),
			a.sweepCmd(),
			a.pruneCmd(),
			a.configCmd(),
			a.statusCmd(),
			a.pauseCmd(),
			a.resumeCmd(),
			a.doctorCmd(),
			a.mountsCmd(),
			a.keyCmd(),
			a.serviceCmd(),
			a.receiptCmd(),
			a.auditCmd(),
			a.demoCmd(),
			a.policyCmd(),
			a.emailCmd(),
			a.telegramCmd(),
		},
		"decide": {
			a.uiCmd(),
			a.pendingCmd(),
			a.showCmd(),
			a.historyCmd(),
			a.statsCmd(),
			a.approveCmd(),
			a.denyCmd(),
			a.decideCmd(),
			a.grantsCmd(),
			a.grantCmd(),
			a.revokeCmd(),
			a.sessionCmd(),
		},
		"agent": {
			a.requestCmd(),
			a.waitCmd(),
			a.cancelCmd(),
		},
	} {
		for _, c := range commands {
			c.GroupID = group
			if c.ValidArgsFunction == nil {
				c.ValidArgsFunction = cobra.NoFileCompletions
			}
			root.AddCommand(c)
		}
	}
	return root
}
