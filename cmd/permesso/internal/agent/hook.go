package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/hook"
)

// Locate names the two folders of a workspace of a daemon on this machine.
type Locate func(workspace string) (requests, responses string, err error)

// Hook is the command that an agent runs before each of its calls, with those that put it into the agent's settings.
// Without locate there is no daemon on this machine. known refuses a workspace that the daemon's configuration does not have.
func Hook(c *console.Console, locate Locate, known func(workspace string) error) *cobra.Command {
	h := &hookCommand{program: program{c}, locate: locate, known: known}
	cmd := h.ask()
	cmd.AddCommand(h.install(), h.uninstall(), h.check(), h.run())
	return cmd
}

// hooksFolder is that of this user's hooks.
const hooksFolder = "permesso-hooks"

type hookCommand struct {
	program
	locate    Locate
	known     func(workspace string) error
	workspace string
}

func (h *hookCommand) ask() *cobra.Command {
	var w endpoint
	var wait string
	c := &cobra.Command{
		Use: "hook AGENT", Short: "Ask before each call of an agent that you already run",
		Args: cobra.ExactArgs(1), ValidArgs: hook.Agents(),
		RunE: func(cmd *cobra.Command, pos []string) error {
			agent, err := agentNamed(pos[0])
			if err != nil {
				return deny(err)
			}
			ctx, stop := untilSignal(cmd)
			defer stop()
			if dir := h.Env(hook.Checking); dir != "" { // before all that needs a daemon
				return h.answer(hook.Hook{Agent: agent, Timeout: w.timeout, Check: dir}.Run(ctx, h.In))
			}
			x := hook.Hook{Agent: agent, Timeout: w.timeout, Wait: hook.Wait(wait), State: h.state(hooksFolder)}
			if x.Gate, err = h.gate(&w); err != nil {
				return h.answer(x.Refuse(ctx, h.In, withHint(err)))
			}
			if x.Wait == hook.Defer && h.Env(hook.Deferring) == "" {
				x.Wait = hook.Hold // no one would start the agent again
			}
			return h.answer(x.Run(ctx, h.In))
		},
	}
	w.flags(h.program, c, "the agent's time-out for the hook (default: the agent's own); the hook denies 5 s before it")
	waitFlag(c, &wait)
	h.workspaceFlag(c)
	return c
}

func waitFlag(c *cobra.Command, wait *string) {
	c.Flags().StringVar(wait, "wait", string(hook.Hold), "`way` to wait for a person: "+strings.Join(hook.Waits(), ", "))
	_ = c.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions(hook.Waits(), cobra.ShellCompDirectiveNoFileComp))
}

// state is a folder of this user, "" if there is none.
func (h *hookCommand) state(name string) string {
	dir := h.Env("XDG_STATE_HOME")
	if home := h.Env("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, name)
}

// untilSignal is a context that ends when this process is to end.
func untilSignal(c *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// gate is that of this user's daemon, unless flags or the environment name one, or the folders of a sandbox are here.
func (h *hookCommand) gate(w *endpoint) (g agentGate, err error) {
	_, none := os.Stat(w.requests)
	if none != nil && h.locate != nil && !w.folders && h.Env("PERMESSO_URL") == "" && h.Env("PERMESSO_REQUESTS") == "" {
		if w.requests, w.responses, err = h.locate(h.workspace); err != nil {
			return nil, err
		}
	}
	return w.connect(h.program)
}

func (h *hookCommand) workspaceFlag(c *cobra.Command) {
	if h.locate != nil {
		c.Flags().StringVar(&h.workspace, "workspace", "default", "`workspace` of this user's daemon")
	}
}

func agentNamed(name string) (hook.Agent, error) {
	agent, ok := hook.AgentNamed(name)
	if !ok {
		return agent, console.Fail(console.ExitUsage, "permesso hook --help", "no agent %q is known: give one of %s", name, strings.Join(hook.Agents(), ", "))
	}
	return agent, nil
}

// deny is an error in the form on which all agents block: exit 2, and one line.
func deny(err error) error {
	return console.Fail(hook.Deny, "", "%s", console.OneLine(withHint(err).Error()))
}

func withHint(err error) error {
	if hint := console.HintFor(err); hint != "" {
		return fmt.Errorf("%w; %s", err, hint)
	}
	return err
}

// answer writes the whole answer at once. If that fails, the call is denied.
func (h *hookCommand) answer(x hook.Answer) error {
	if len(x.Out) > 0 {
		if _, err := h.Out.Write(append(x.Out, '\n')); err != nil {
			return deny(err)
		}
	}
	if x.Exit != hook.Allow {
		return deny(errors.New(x.Reason))
	}
	return nil
}
