package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
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
	a := &app{&console.Console{In: m.In, Out: m.Out, Err: m.Err, Env: m.Env, Version: version, Told: &sync.Map{}}}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(m.In)
	root.SetOut(m.Out)
	root.SetErr(m.Err)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return console.ExitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = interrupted(err)
	}
	return a.report(explainUsage(c, err))
}

// interrupted is the error of a command that a signal ended.
func interrupted(err error) error {
	code := console.ExitError
	if e, ok := errors.AsType[*console.Error](err); ok {
		code = e.Code
	}
	return console.Fail(code, console.HintFor(err), "interrupted")
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

const requestHint = "permesso request prints the id; permesso pending lists the ids on the host"

// idHints say which command lists the ids that a command takes.
var idHints = map[string]string{
	"approve": "permesso pending lists the ids", "deny": "permesso pending lists the ids", "show": "permesso history lists the ids",
	"answer": "permesso pending lists the ids", "change": "permesso pending lists the ids", "ask": "permesso pending lists the ids",
	"revoke": "permesso grants lists the ids", "key revoke": "permesso key list shows the ids",
	"cancel": requestHint, "wait": requestHint, "audit prove": "permesso history lists the ids",
}

// explainUsage replaces cobra's errors.
func explainUsage(c *cobra.Command, err error) error {
	text, name := err.Error(), strings.TrimPrefix(c.CommandPath(), "permesso ")
	help := c.CommandPath() + " --help"
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
	if strings.HasPrefix(text, "unknown command") && !c.HasSubCommands() || strings.HasPrefix(text, "accepts 0 arg(s)") {
		return console.Fail(console.ExitUsage, help, "%s takes no arguments, got %q", name, c.Flags().Arg(0))
	}
	if _, ours := errors.AsType[*console.Error](err); ours || !isUsage(err) {
		return err
	}
	if flag := flagWithoutValue(c, text); flag != nil {
		value, _ := pflag.UnquoteUsage(flag)
		if strings.HasPrefix(text, "required") {
			return console.Fail(console.ExitUsage, help, "%s needs --%s %s", name, flag.Name, value)
		}
		return console.Fail(console.ExitUsage, help, "--%s needs a value: --%s %s", flag.Name, flag.Name, value)
	}
	if !strings.Contains(text, " arg(s), ") {
		// Cobra appends its suggestion on separate lines.
		if text, near, ok := strings.Cut(text, "\n\nDid you mean this?\n"); ok {
			err, help = errors.New(text), "did you mean "+strings.Join(strings.Fields(near), " or ")+"?"
		}
		return console.Wrap(console.ExitUsage, err, help)
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

// flagWithoutValue is the flag whose value is missing, by the library's error, or nil.
func flagWithoutValue(c *cobra.Command, text string) *pflag.Flag {
	var name, short string
	if n, _ := fmt.Sscanf(text, "required flag(s) %q", &name); n == 1 {
		return c.Flag(name)
	}
	if _, err := fmt.Sscanf(text, "flag needs an argument: --%s", &name); err == nil {
		return c.Flag(name)
	}
	if _, err := fmt.Sscanf(text, "flag needs an argument: '%1s'", &short); err == nil {
		return c.Flags().ShorthandLookup(short)
	}
	return nil
}

// group completes a command that only has subcommands: without one of them it is an error.
func group(c *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	names := make([]string, 0, len(subs))
	for _, sub := range subs {
		names = append(names, sub.Name())
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
		Use:           "permesso",
		Short:         "An approval gate for AI agents: may I?",
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
			a.toolCmd(),
			a.approverCmd(),
			a.serveCmd(),
			a.sweepCmd(),
			a.pruneCmd(),
			a.configCmd(),
			a.statusCmd(),
			a.backupCmd(),
			a.restoreCmd(),
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
			a.versionCmd(),
			a.webhookCmd(),
		},
		"decide": {
			a.uiCmd(), a.tuiCmd(),
			a.desktopNotifyCmd(),
			a.pendingCmd(),
			a.showCmd(),
			a.todayCmd(),
			a.watchCmd(),
			a.historyCmd(),
			a.statsCmd(),
			a.approveCmd(),
			a.denyCmd(),
			a.answerCmd(),
			a.changeCmd(),
			a.askCmd(),
			a.decideCmd(),
			a.grantsCmd(),
			a.grantCmd(),
			a.revokeCmd(),
			a.ruleCmd(),
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
			root.AddCommand(c)
		}
	}
	root.AddCommand(
		&cobra.Command{Use: "environment", Short: "Environment variables"}, // topics of permesso help
		&cobra.Command{Use: "files", Short: "Files and folders"},
	)
	addCompletions(root, a.completions())
	show := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		addHelp(c)
		var text strings.Builder
		c.SetOut(&text)
		show(c, args)
		fmt.Fprint(a.Out, console.WrapText(text.String(), console.Width(a.Out)))
	})
	return root
}

//go:embed help.toml
var helpFile []byte

// helpTexts are the texts of help.toml, by the names of commands.
var helpTexts = sync.OnceValue(func() (texts map[string]struct{ Long, Example string }) {
	if err := toml.Unmarshal(helpFile, &texts); err != nil {
		panic(err) // they are part of the program
	}
	return texts
})

// addHelp gives a command its texts. Most runs show none, so only help reads them.
func addHelp(c *cobra.Command) {
	all, statuses := helpTexts(), read.Statuses()
	if text, ok := all[strings.TrimPrefix(c.CommandPath(), "permesso ")]; ok {
		c.Example = text.Example
		c.Long = strings.NewReplacer("@ID@", all["ID"].Long, "@ENDPOINT@", all["ENDPOINT"].Long, "@REPLAY@", all["REPLAY"].Long, "@TIME@", timeHelp,
			"@STATUSES@", strings.Join(statuses[:7], " ")+"\n"+strings.Join(statuses[7:], " ")).Replace(text.Long)
	}
}

// completions are those of arguments by their word in the use line, and of flags.
func (a *app) completions() map[string]cobra.CompletionFunc {
	fixed := func(values []string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	workspaces, approvers := a.completeConfig(workspaceNames), a.completeConfig(approverNames)
	return map[string]cobra.CompletionFunc{
		"WORKSPACE":   workspaces,
		"--workspace": a.completeConfig(func(cfg *config.Config, _ []string) []string { return workspaceNames(cfg, nil) }),
		"APPROVER":    approvers, "--approver": approvers,
		"FILE":     cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"--from":   a.completeIDs(waitingIDs),
		"--client": a.completeIDs(keyIDs),
		"--target": cobra.NoFileCompletions, "--session": cobra.NoFileCompletions, "--reason": cobra.NoFileCompletions,
		"--command": cobra.NoFileCompletions, "--commands": cobra.NoFileCompletions,
		"--action-type": fixed(approval.ActionTypes()),
		"--autonomy":    fixed(grant.Levels()),
		"--capability":  fixed(config.Capabilities()),
		"--sandbox":     fixed(setup.Sandboxes()),
		"--scope":       fixed(apikey.Scopes()),
		"--status":      fixed(slices.Sorted(slices.Values(read.Statuses()))),
		"--tool": a.completeConfig(func(cfg *config.Config, _ []string) []string {
			return slices.Collect(maps.Keys(cfg.Tools))
		}),
		"--by": a.completeConfig(func(cfg *config.Config, pos []string) []string {
			return append(approverNames(cfg, pos), home.Operator().Name)
		}),
	}
}

// addCompletions adds completions to all commands below c. What a command has set itself stays.
func addCompletions(c *cobra.Command, all map[string]cobra.CompletionFunc) {
	for _, sub := range c.Commands() {
		addCompletions(sub, all)
		if first := strings.Fields(sub.Use + " -")[1]; sub.ValidArgsFunction == nil {
			sub.ValidArgsFunction = cobra.NoFileCompletions
			if list := all[strings.Trim(first, "[]")]; list != nil {
				sub.ValidArgsFunction = list
			}
		}
		for name, list := range all {
			if flag, ok := strings.CutPrefix(name, "--"); ok && sub.Flags().Lookup(flag) != nil {
				_ = sub.RegisterFlagCompletionFunc(flag, list) // fails only if the command has set it
			}
		}
	}
}

// completeConfig completes with what the configuration has, sorted.
func (a *app) completeConfig(list func(cfg *config.Config, pos []string) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
		h, err := home.Load(a.Console)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(slices.Values(list(h.Config, pos))), cobra.ShellCompDirectiveNoFileComp
	}
}

func approverNames(cfg *config.Config, _ []string) []string {
	return slices.Collect(maps.Keys(cfg.Approvers))
}

func workspaceNames(cfg *config.Config, pos []string) []string {
	if len(pos) > 0 {
		return nil
	}
	return home.WorkspaceNames(cfg)
}

func completeLevelAndCapability(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
	values := [][]string{grant.Levels(), config.Capabilities(), nil}
	return values[min(len(pos), 2)], cobra.ShellCompDirectiveNoFileComp
}

// completeIDs completes the first argument with ids that the daemon lists.
func (a *app) completeIDs(list func(ctx context.Context, d *control.Client) ([]string, error)) cobra.CompletionFunc {
	return func(_ *cobra.Command, pos []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
		if len(pos) == 0 {
			_ = a.ask(context.Background(), func(d *control.Client) (err error) { // without an answer there are no suggestions
				ids, err = list(context.Background(), d)
				return err
			})
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
