package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/store"
)

// Run runs one command line below root, and returns its exit code. What went wrong is printed.
func (a *Console) Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = interrupted(err)
	}
	return a.report(explainUsage(c, err))
}

// interrupted is the error of a command that a signal ended.
func interrupted(err error) error {
	code := ExitError
	if e, ok := errors.AsType[*Error](err); ok {
		code = e.Code
	}
	return Fail(code, HintFor(err), "interrupted")
}

// report prints each of joined errors with its hint, and returns the exit code.
func (a *Console) report(err error) int {
	code := ExitError
	var e *Error
	var ref *decide.Refusal
	switch {
	case errors.As(err, &e):
		code = e.Code
	case errors.As(err, &ref):
		code = ExitRefused
	case errors.Is(err, store.ErrLocked):
		code = ExitLocked
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
		return Fail(ExitUsage, help, "%s: %q %s", flag[strings.LastIndex(flag, " ")+1:], value, cause)
	}
	if strings.HasPrefix(text, "unknown command") && !c.HasSubCommands() || strings.HasPrefix(text, "accepts 0 arg(s)") {
		return Fail(ExitUsage, help, "%s takes no arguments, got %q", name, c.Flags().Arg(0))
	}
	if _, ours := errors.AsType[*Error](err); ours || !isUsage(err) {
		return err
	}
	if together, ok := strings.CutSuffix(text, "] were all set"); ok {
		flags := strings.Fields(together[strings.LastIndex(together, "[")+1:])
		return Fail(ExitUsage, help, "%s: give one of --%s", name, strings.Join(flags, " and --"))
	}
	if flag := flagWithoutValue(c, text); flag != nil {
		value, _ := pflag.UnquoteUsage(flag)
		if strings.HasPrefix(text, "required") {
			return Fail(ExitUsage, help, "%s needs --%s %s", name, flag.Name, value)
		}
		return Fail(ExitUsage, help, "--%s needs a value: --%s %s", flag.Name, flag.Name, value)
	}
	if !strings.Contains(text, " arg(s), ") {
		// Cobra appends its suggestion on separate lines.
		if text, near, ok := strings.Cut(text, "\n\nDid you mean this?\n"); ok {
			err, help = errors.New(text), "did you mean "+strings.Join(strings.Fields(near), " or ")+"?"
		}
		return Wrap(ExitUsage, err, help)
	}
	takes := strings.Fields(c.Use)[1:]
	var needs []string
	for _, word := range takes {
		article := "a "
		if strings.ContainsAny(word[:1], "AEIOU") {
			article = "an "
		}
		if !strings.HasPrefix(word, "[") {
			needs = append(needs, article+word)
		}
	}
	if given := c.Flags().NArg(); given >= len(needs) {
		return Fail(ExitUsage, help, "%s takes only %s, got %d arguments", name, strings.Join(takes, " "), given)
	}
	if takes[0] == "--" {
		return Fail(ExitUsage, help, "%s needs %s", name, strings.Join(takes, " "))
	}
	return Fail(ExitUsage, cmp.Or(idHints[name], help), "%s needs %s", name, strings.Join(needs, " and "))
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

// Group completes a command that only has subcommands: without one of them it is an error.
func Group(c *cobra.Command, subs ...*cobra.Command) *cobra.Command {
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
		return Fail(ExitUsage, "permesso "+c.Name()+" --help",
			"%s needs a subcommand: %s", c.Name(), choice+last)
	}
	c.AddCommand(subs...)
	return c
}
