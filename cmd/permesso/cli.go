package main

import (
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

// The exit codes, as the package comment explains them.
const (
	codeDone    = 0
	codeError   = 1
	codeUsage   = 2
	codeNotRun  = 3
	codeFailed  = 4
	codeWaiting = 5
	codeRefused = 6
	codeLocked  = 7
	codeUnwell  = 8
	codeSick    = 9
)

// Main is the program with its surroundings.
type Main struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) string
}

// app is one call of the program.
type app struct {
	Main
	ctx        context.Context
	configFlag string
	homeFlag   string
	scriptFlag string // serve's
	json       bool
	serving    bool // this process is the daemon, or about to be
}

// exit is an error with an exit code and, where there is advice, a hint.
type exit struct {
	code int
	err  error
	hint string
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

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
	err := root.ExecuteContext(ctx)
	if err == nil {
		return codeDone
	}
	return a.report(err)
}

// report says what went wrong: one line, then a hint.
func (a *app) report(err error) int {
	code, hint := codeError, ""
	var e *exit
	var ref *approval.Refusal
	switch {
	case errors.As(err, &e):
		code, hint = e.code, e.hint
	case errors.As(err, &ref):
		code = codeRefused
	case errors.Is(err, approval.ErrUnsynced):
		hint = "it may count all the same: permesso show, or try again"
	case errors.Is(err, ipc.ErrLocked):
		code, hint = codeLocked, "stop the other one first, or give this one a --home of its own"
	case isUsage(err):
		code, hint = codeUsage, "permesso --help"
		// Cobra says on lines of its own what would have been right.
		if text, near, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n"); ok {
			err, hint = errors.New(text), "did you mean "+strings.Join(strings.Fields(near), " or ")+"?"
		}
	}
	if err.Error() != "" {
		fmt.Fprintf(a.Err, "permesso: %v\n", err)
	}
	if hint != "" {
		fmt.Fprintf(a.Err, "hint: %s\n", hint)
	}
	return code
}

// isUsage recognises cobra's own complaints, which have no type.
func isUsage(err error) bool {
	for _, begin := range []string{"unknown command", "unknown flag", "unknown shorthand", "accepts ", "requires ", "invalid argument", "flag needs", "required flag", "if any flags"} {
		if strings.HasPrefix(err.Error(), begin) {
			return true
		}
	}
	return false
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "permesso",
		Short: "An approval gate for AI agents: may I?",
		Long: "An approval gate for AI agents: may I?\n\n" +
			"A sandboxed agent drops a request; a rule allows it, denies it, or asks a person; the gate runs\n" +
			"exactly what was approved, on the host, and writes the response. permesso demo shows it.\n\n" +
			"Exit codes: 0 done, or approved and run, or answered; 1 error; 2 the command line is wrong;\n" +
			"3 ended without running; 4 started, and failed or was interrupted; 5 still waiting;\n" +
			"6 the decision was refused; 7 another permesso serves this home; 8 doctor has warnings; 9 it found errors.",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&a.configFlag, "config", "", "configuration `file` (default $XDG_CONFIG_HOME/permesso/permesso.toml)")
	root.PersistentFlags().StringVar(&a.homeFlag, "home", "", "state `folder` (default $XDG_STATE_HOME/permesso)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	_ = root.MarkPersistentFlagFilename("config", "toml") // fails only for flags that are not there
	_ = root.MarkPersistentFlagDirname("home")
	root.AddGroup(
		&cobra.Group{ID: "host", Title: "On the host:"},
		&cobra.Group{ID: "decide", Title: "Looking and deciding:"},
		&cobra.Group{ID: "agent", Title: "For agents, inside the sandbox:"},
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

// house is one HOME as a command sees it.
type house struct {
	cfg    *config.Config
	layout ipc.Layout
	store  *ipc.Store
	fs     ipc.FS
	live   live // what a daemon's configuration has become since
}

// house reads the configuration and finds the state folder.
func (a *app) house() (*house, error) {
	file, err := config.Locate(a.configFlag, a.Env)
	if err != nil {
		return nil, err
	}
	cfg, err := a.reader().Load(file, a.Env)
	if err != nil {
		return nil, err
	}
	home, err := config.LocateHome(a.homeFlag, a.Env)
	if err != nil {
		return nil, err
	}
	h := &house{cfg: cfg, layout: ipc.Layout{Home: home}, fs: ipc.OS()}
	h.store = &ipc.Store{FS: h.fs, Layout: h.layout, RequestSize: h.requestSize}
	return h, nil
}

func (h *house) requestSize(ws string) int64 {
	return int64(h.conf().Workspaces[ws].Limits.WithDefaults().RequestSize)
}

// existing is house where somebody has served before.
func (a *app) existing() (*house, *keys, error) {
	h, err := a.house()
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(h.layout.Keys()); err != nil {
		return nil, nil, fail(codeError, "permesso init, then permesso serve; or name another --home", "no gate lives in %s", h.layout.Home)
	}
	if err := h.actAsOwner(); err != nil {
		return nil, nil, err
	}
	k, err := h.loadKeys()
	return h, k, err
}

// actAsOwner lets root give up being root in a home of somebody else's: what
// root writes there, that gate could not read. Who decides is still root.
func (h *house) actAsOwner() error {
	info, err := os.Stat(h.layout.Home)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || owner.Uid == 0 {
		return nil
	}
	operator() // as long as it is known
	uid, gid := int(owner.Uid), int(owner.Gid)
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
		return fmt.Errorf("act as the owner of %s: %w", h.layout.Home, err)
	}
	return nil
}

func (h *house) viewer(k *keys) *gate.Viewer {
	return &gate.Viewer{Store: h.store, Workspaces: h.store, Seal: k.seal, Words: chat.Words{}}
}

// operator is whoever sits at this machine: a local uid, which nobody chooses.
var operator = sync.OnceValue(func() approval.Person {
	return personOf(strconv.Itoa(os.Getuid()))
})

// personOf is the local person of a uid.
func personOf(uid string) approval.Person {
	name := uid
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	return approval.Person{Channel: "local", ID: uid, Name: "operator:" + name}
}

// terminal says whether f is one.
func terminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// readFile reads a file that the caller named, or standard input.
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.In)
	}
	return os.ReadFile(name)
}
