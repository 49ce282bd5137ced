package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/hook"
)

// hookSettings is one change of an agent's settings.
type hookSettings struct {
	*hookCommand
	scopes   map[hook.Scope]*bool
	events   []string
	approval time.Duration
	wait     string
	print    bool
	yes      bool
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
	s.scopes = map[hook.Scope]*bool{}
	for _, x := range []struct {
		scope hook.Scope
		help  string
	}{
		{hook.User, "in the settings of this user (the default)"},
		{hook.Project, "in the settings of the project in this folder"},
		{hook.Managed, "in the settings of the system, which no project switches off"},
	} {
		s.scopes[x.scope] = c.Flags().Bool(string(x.scope), false, x.help)
	}
	c.MarkFlagsMutuallyExclusive(string(hook.User), string(hook.Project), string(hook.Managed))
	c.Flags().BoolVar(&s.print, "print", false, "print the new settings, change nothing")
	c.Flags().BoolVar(&s.yes, "yes", false, "change them without a question")
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
	if s.locate != nil && s.workspace != "default" {
		args = append(args, "--workspace", s.workspace)
	}
	if s.locate != nil {
		if err := s.known(s.workspace); err != nil && s.Env("PERMESSO_URL")+s.Env("PERMESSO_REQUESTS") == "" {
			return nil, err
		}
		places, err := s.NamedPlaces()
		if err != nil {
			return nil, err
		}
		args = append(args, places...)
	}
	return a.Add(s.scope(), text, hook.Line{Program: program, Args: args, Timeout: timeout}, events)
}

// change shows what changes, asks, keeps a backup without the hook, and writes the settings.
func (s *hookSettings) change(ctx context.Context, a hook.Agent) error {
	file, err := s.file(a)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	clean, err := a.Remove(s.scope(), before)
	after := clean
	if err == nil && !s.removes {
		after, err = s.add(a, before)
	}
	if err != nil {
		if _, ours := errors.AsType[*console.Error](err); ours {
			return err
		}
		return console.Wrap(console.ExitError, fmt.Errorf("%s: %w", file, err),
			"edit it by hand; the lines of the hook: permesso hook install "+a.Name+" --project --print, in an empty folder")
	}
	backup := file + ".before-permesso"
	old, missing := os.ReadFile(backup)
	same := missing == nil && a.Restores(s.scope(), old, before)
	if same && s.removes && !bytes.Equal(before, after) {
		after = old // as it was, to the byte
	}
	if s.print {
		fmt.Fprint(s.Out, string(after))
		return nil
	}
	if bytes.Equal(before, after) {
		return s.Print(map[string]any{"file": file, "changed": false}, file+" is already so")
	}
	text := file + "\n" + difference(string(before), string(after))
	if s.yes {
		if !s.JSON {
			fmt.Fprint(s.Out, text)
		}
	} else if yes, err := s.Confirm(ctx, text, "Change it?"); err != nil {
		return console.Wrap(console.ExitUsage, err, "--yes changes it without a question, --print changes nothing")
	} else if !yes {
		return console.Fail(console.ExitRefused, "", "nothing was changed")
	}
	mode := fs.FileMode(0o644) // of new ones: those of the system are for every user, and there is no secret in them
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	if !s.removes && clean != nil && (!same || bytes.Equal(clean, before)) {
		err = writeSettings(backup, clean, mode)
	}
	if err == nil && after != nil {
		err = writeSettings(file, after, mode)
	} else if err == nil {
		err = os.Remove(file)
	}
	if err == nil && s.removes && same {
		err = os.Remove(backup)
	}
	if err != nil {
		return err
	}
	if s.removes && (same || missing != nil) || !s.removes && !same && clean == nil {
		backup = ""
	}
	said, advice := "changed "+file, ""
	switch {
	case after == nil:
		said = "removed " + file
	case backup != "":
		said += "; before: " + backup
	case !s.removes:
		said += "; no backup: without the hook the file is not needed"
	}
	if !s.removes {
		s.warnOld(ctx, a)
		if advice = a.Advice(s.scope()); hook.Wait(s.wait) == hook.Defer {
			advice = console.Hints("start the agent by permesso hook run -- claude -p PROMPT: a call of one that is started otherwise waits as with --wait hold", advice)
		}
	}
	if advice != "" {
		said += "\nnote: " + advice
	}
	return s.Print(map[string]any{"file": file, "changed": true, "backup": backup, "note": advice}, said)
}

func (s *hookSettings) scope() hook.Scope {
	for x, on := range s.scopes {
		if *on {
			return x
		}
	}
	return hook.User
}

func (s *hookSettings) file(a hook.Agent) (string, error) {
	scope := s.scope()
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	project, err := os.Getwd()
	if err != nil {
		return "", err
	}
	file, err := a.File(scope, home, project, s.Env)
	if err != nil {
		return "", console.Wrap(console.ExitUsage, err, "permesso hook install --help")
	}
	// Settings are often a link into a folder of dotfiles, which stays one.
	target, err := filepath.EvalSymlinks(file)
	if err == nil {
		return target, nil
	}
	if to, noLink := os.Readlink(file); noLink == nil {
		return "", console.Wrap(console.ExitError, fmt.Errorf("%s is a link to %s: %w", file, to, err), "create that file, or remove the link")
	}
	return file, nil
}

// difference are the lines that an edit takes away and adds, with two lines around them.
func difference(before, after string) string {
	a, b := lines(before), lines(after)
	edits := facts.Edits(a, b)
	var out strings.Builder
	for i, e := range edits {
		near := false
		for _, other := range edits[max(0, i-2):min(len(edits), i+3)] {
			near = near || other.Sign != ' '
		}
		if !near {
			continue
		}
		from := b
		if e.Sign == '-' {
			from = a
		}
		text := strings.TrimLeft(from[e.At], " ")
		fmt.Fprintf(&out, "%c %s%s\n", e.Sign, from[e.At][:len(from[e.At])-len(text)], console.OneLine(text))
	}
	return out.String()
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// writeSettings replaces a file of settings, or makes it.
func writeSettings(file string, text []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".permesso-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
