package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
)

// Exit codes, see the package comment.
const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2
	exitNotRun   = 3
	exitFailed   = 4
	exitTimeout  = 5
	exitRefused  = 6
	exitLocked   = 7
	exitWarnings = 8
	exitErrors   = 9
)

// Main is the program and its environment.
type Main struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) string
}

// app is one run of the program.
type app struct {
	Main
	ctx        context.Context
	configFlag string
	homeFlag   string
	scriptFlag string // of serve
	json       bool
	serving    bool // this process is the daemon
}

// exit is an error with an exit code and an optional hint.
type exit struct {
	code int
	err  error
	hint string
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }
func (e *exit) Hint() string  { return e.hint }

func fail(code int, hint, format string, a ...any) error {
	return &exit{code, fmt.Errorf(format, a...), hint}
}

// Run runs one command line and returns its exit code.
func (m Main) Run(ctx context.Context, args []string) int {
	a := &app{Main: m, ctx: ctx}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(m.In)
	root.SetOut(m.Out)
	root.SetErr(m.Err)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	return a.report(explainUsage(c, err))
}

// report prints each of joined errors with its hint, and returns the exit code.
func (a *app) report(err error) int {
	code := exitError
	var e *exit
	var ref *approval.Refusal
	switch {
	case errors.As(err, &e):
		code = e.code
	case errors.As(err, &ref):
		code = exitRefused
	case errors.Is(err, ipc.ErrLocked):
		code = exitLocked
	case isUsage(err):
		code = exitUsage
		hint := "permesso --help"
		// Cobra appends its suggestion on separate lines.
		if text, near, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n"); ok {
			err, hint = errors.New(text), "did you mean "+strings.Join(strings.Fields(near), " or ")+"?"
		}
		err = approval.WithHint(err, hint)
	}
	begin := "permesso: "
	for _, e := range approval.Errors(err) {
		if e.Error() != "" {
			fmt.Fprintf(a.Err, "%s%v\n", begin, e)
			begin = ""
		}
		if hint := hintFor(e); hint != "" {
			fmt.Fprintf(a.Err, "hint: %s\n", hint)
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
		return fail(exitUsage, help, "%s: %q %s", flag[strings.LastIndex(flag, " ")+1:], value, cause)
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
		return fail(exitUsage, help, "%s takes only %s, got %d arguments", name, strings.Join(takes, " "), given)
	}
	article := "a "
	if strings.ContainsAny(needs[0][:1], "AEIOU") {
		article = "an "
	}
	return fail(exitUsage, cmp.Or(idHints[name], help), "%s needs %s", name, article+strings.Join(needs, " and a "))
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
	root.PersistentFlags().StringVar(&a.configFlag, "config", "", "configuration `file` (default $XDG_CONFIG_HOME/permesso/permesso.toml)")
	root.PersistentFlags().StringVar(&a.homeFlag, "home", "", "state `folder` (default $XDG_STATE_HOME/permesso)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
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

// instance is one HOME with its configuration.
type instance struct {
	cfg    *config.Config
	layout ipc.Layout
	store  *ipc.Store
	fs     ipc.FS
	live   live // the daemon's configuration after reloads
}

// instance reads the configuration and locates the state folder.
func (a *app) instance() (*instance, error) {
	file, err := config.Locate(a.configFlag, a.Env)
	if err != nil {
		return nil, err
	}
	cfg, err := a.reader().Load(file)
	if err != nil {
		return nil, err
	}
	home, err := config.LocateHome(a.homeFlag, a.Env)
	if err != nil {
		return nil, err
	}
	h := &instance{cfg: cfg, layout: ipc.Layout{Home: home}, fs: ipc.OS()}
	h.store = &ipc.Store{FS: h.fs, Layout: h.layout, RequestSize: h.requestSize}
	return h, nil
}

func (h *instance) requestSize(ws string) int64 {
	return int64(h.conf().Workspaces[ws].Limits.WithDefaults().RequestSize)
}

// openHome is instance for a home that has keys.
func (a *app) openHome() (*instance, *keys, error) {
	h, err := a.instance()
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(h.layout.Keys()); err != nil {
		return nil, nil, fail(exitError, "run permesso init, then permesso serve; or name another home: --home, or sudo -u permesso for the system's daemon", "no daemon for this user in %s", h.layout.Home)
	}
	if err := h.actAsOwner(); err != nil {
		return nil, nil, err
	}
	k, err := h.loadKeys()
	return h, k, err
}

// actAsOwner drops root's privileges to those of the home's owner: the daemon
// could not read files that root writes. The decision's author stays root.
func (h *instance) actAsOwner() error {
	info, err := os.Stat(h.layout.Home)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || owner.Uid == 0 {
		return nil
	}
	operator() // read our UID before it changes
	uid, gid := int(owner.Uid), int(owner.Gid)
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
		return fmt.Errorf("act as the owner of %s: %w", h.layout.Home, err)
	}
	return nil
}

func (h *instance) viewer(k *keys) *gate.Viewer {
	return &gate.Viewer{Store: h.store, Workspaces: h.store, Seal: k.seal, Words: chat.Words{}}
}

// operator is the local user, identified by UID.
var operator = sync.OnceValue(func() approval.Person {
	return personOf(strconv.Itoa(os.Getuid()))
})

// personOf returns the local person of a UID.
func personOf(uid string) approval.Person {
	name := uid
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	return approval.Person{Channel: "local", ID: uid, Name: "operator:" + name}
}

// terminal reports whether f is a terminal.
func terminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// readFile reads a file named on the command line; "-" is standard input.
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.In)
	}
	return os.ReadFile(name)
}
