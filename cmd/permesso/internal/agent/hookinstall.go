package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/hook"
)

// hookSettings is one change of an agent's settings.
type hookSettings struct {
	*hookCommand
	settingsFlags

	events   []string
	approval time.Duration
	wait     string
	removes  bool
}

func (h *hookCommand) install() *cobra.Command {
	s := &hookSettings{hookCommand: h}
	c := s.command("install AGENT", "Put the hook into the settings of an agent")
	c.Flags().StringSliceVar(&s.events, "events", []string{"pretool"}, "`pretool`: before each call; permission: where the agent would ask; or both")
	s.approval = 10 * time.Minute
	c.Flags().Var((*console.Duration)(&s.approval), "approval-timeout", "how long a person has for an answer; the agent waits 30 s longer")
	waitFlag(c, &s.wait)
	h.workspaceFlag(c)
	return c
}

func (h *hookCommand) uninstall() *cobra.Command {
	return (&hookSettings{hookCommand: h, removes: true}).command("uninstall AGENT", "Take the hook out of the settings of an agent")
}

func (s *hookSettings) command(use, short string) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgs: hook.Agents(),
		RunE: func(cmd *cobra.Command, pos []string) error {
			agent, err := agentNamed(pos[0])
			if err != nil {
				return err
			}
			return s.change(cmd.Context(), agent)
		},
	}
	s.flags(c, hook.User, hook.Project, hook.Managed)
	return c
}

// add returns the settings with the hook.
func (s *hookSettings) add(a hook.Agent, text []byte) ([]byte, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	events, err := a.Events(s.events)
	timeout := s.approval + hook.Spare
	args := []string{"hook", a.Name, "--timeout", timeout.String()}
	switch {
	case err != nil:
	case !slices.Contains(hook.Waits(), s.wait):
		err = fmt.Errorf("--wait: %q is none of %s", s.wait, strings.Join(hook.Waits(), ", "))
	case hook.Wait(s.wait) == hook.Defer && !a.Defers(events):
		err = errors.New("--wait defer: only claude-code can defer, and only with --events pretool")
	case s.approval < 10*time.Second, s.approval > 24*24*time.Hour: // a longer timer of JavaScript ends at once
		err = fmt.Errorf("--approval-timeout %s: a person needs 10s or more, and no agent waits longer than 24d", s.approval)
	}
	if err != nil {
		return nil, console.Wrap(console.ExitUsage, err, "permesso hook install --help")
	}
	if hook.Wait(s.wait) != hook.Hold {
		args = append(args, "--wait", s.wait)
	}
	gate, err := s.named()
	if err != nil {
		return nil, err
	}
	args = append(args, gate...)
	return a.Add(s.scope(), text, hook.Line{Program: program, Args: args, Timeout: timeout}, events)
}

// named are the flags for the workspace and the daemon, for a command line that an agent starts elsewhere.
func (h *hookCommand) named() (words []string, err error) {
	if h.locate == nil {
		return nil, nil
	}
	if h.workspace != "default" {
		words = []string{"--workspace", h.workspace}
	}
	if err := h.known(h.workspace); err != nil && h.Env("PERMESSO_URL")+h.Env("PERMESSO_REQUESTS") == "" {
		return nil, err
	}
	places, err := h.NamedPlaces()
	return append(words, places...), err
}

// edit returns the change that is to be made.
func (s *hookSettings) edit(a hook.Agent) (*settingsEdit, error) {
	home, project, err := folders()
	if err != nil {
		return nil, err
	}
	file, err := a.File(s.scope(), home, project, s.Env)
	if err != nil {
		return nil, console.Wrap(console.ExitUsage, err, "permesso hook install --help")
	}
	if file, err = settingsTarget(file); err != nil {
		return nil, err
	}
	x := &settingsEdit{
		file: file, kept: file + ".before-permesso",
		byHand: "edit it by hand; the lines of the hook: permesso hook install " + a.Name + " --project --print, in an empty folder",
	}
	c := settingsChange{
		remove:   func(text, _ []byte) ([]byte, error) { return a.Remove(s.scope(), text) },
		restores: func(old, now []byte) bool { return a.Restores(s.scope(), old, now) },
	}
	if !s.removes {
		c.add = func(text, _ []byte) ([]byte, error) { return s.add(a, text) }
	}
	return x, x.plan(c)
}

// change shows what changes, asks, keeps a backup without the hook, and writes the settings.
func (s *hookSettings) change(ctx context.Context, a hook.Agent) error {
	x, err := s.edit(a)
	if err != nil {
		return err
	}
	if s.removes {
		return s.apply(ctx, s.program, x, "", nil)
	}
	return s.apply(ctx, s.program, x, "without the hook the file is not needed", func() string {
		s.warn(ctx, a)
		advice := a.Advice(s.scope())
		if hook.Wait(s.wait) == hook.Defer {
			advice = console.Hints("start the agent by permesso hook run -- claude -p PROMPT: a call of one that is started otherwise waits as with --wait hold", advice)
		}
		return advice
	})
}
