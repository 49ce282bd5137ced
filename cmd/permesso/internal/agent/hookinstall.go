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

// edit is a change of one file.
type edit struct {
	file, backup         string // the backup is what was there without the hook
	before, clean, after []byte // clean is without the hook; nil: no file
	keeps, drops         bool   // writes the backup; removes it
}

// edit returns the change that is to be made.
func (s *hookSettings) edit(a hook.Agent) (x edit, err error) {
	if x.file, err = s.file(a); err != nil {
		return x, err
	}
	x.before, err = os.ReadFile(x.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return x, err
	}
	x.clean, err = a.Remove(s.scope(), x.before)
	x.after = x.clean
	if err == nil && !s.removes {
		x.after, err = s.add(a, x.before)
	}
	if err != nil {
		if _, ours := errors.AsType[*console.Error](err); ours {
			return x, err
		}
		return x, console.Wrap(console.ExitError, fmt.Errorf("%s: %w", x.file, err),
			"edit it by hand; the lines of the hook: permesso hook install "+a.Name+" --project --print, in an empty folder")
	}
	x.backup = x.file + ".before-permesso"
	old, missing := os.ReadFile(x.backup)
	same := missing == nil && a.Restores(s.scope(), old, x.before)
	x.keeps = !s.removes && x.clean != nil && (!same || bytes.Equal(x.clean, x.before))
	x.drops = s.removes && same
	if x.drops && !bytes.Equal(x.before, x.after) {
		x.after = old // as it was, to the byte
	}
	if x.drops || missing != nil && !x.keeps || !s.removes && !same && x.clean == nil {
		x.backup = ""
	}
	return x, nil
}

// write makes the change.
func (x edit) write() (err error) {
	mode := fs.FileMode(0o644) // of new ones: those of the system are for every user, and there is no secret in them
	if info, err := os.Stat(x.file); err == nil {
		mode = info.Mode().Perm()
	}
	if x.keeps {
		err = writeSettings(x.backup, x.clean, mode)
	}
	switch {
	case err != nil:
	case x.after == nil:
		err = os.Remove(x.file)
	default:
		err = writeSettings(x.file, x.after, mode)
	}
	if err == nil && x.drops {
		err = os.Remove(x.file + ".before-permesso")
	}
	return err
}

// change shows what changes, asks, keeps a backup without the hook, and writes the settings.
func (s *hookSettings) change(ctx context.Context, a hook.Agent) error {
	x, err := s.edit(a)
	if err != nil {
		return err
	}
	if s.print {
		fmt.Fprint(s.Out, string(x.after))
		return nil
	}
	if bytes.Equal(x.before, x.after) {
		return s.Print(map[string]any{"file": x.file, "changed": false}, x.file+" is already so")
	}
	text := x.file + "\n" + difference(string(x.before), string(x.after))
	if s.yes {
		if !s.JSON {
			fmt.Fprint(s.Out, text)
		}
	} else if yes, err := s.Confirm(ctx, text, "Change it?"); err != nil {
		return console.Wrap(console.ExitUsage, err, "--yes changes it without a question, --print changes nothing")
	} else if !yes {
		return console.Fail(console.ExitRefused, "", "nothing was changed")
	}
	if err := x.write(); err != nil {
		return err
	}
	said, advice := "changed "+x.file, ""
	switch {
	case x.after == nil:
		said = "removed " + x.file
	case x.backup != "":
		said += "; before: " + x.backup
	case !s.removes:
		said += "; no backup: without the hook the file is not needed"
	}
	if !s.removes {
		s.warn(ctx, a)
		if advice = a.Advice(s.scope()); hook.Wait(s.wait) == hook.Defer {
			advice = console.Hints("start the agent by permesso hook run -- claude -p PROMPT: a call of one that is started otherwise waits as with --wait hold", advice)
		}
	}
	if advice != "" {
		said += "\nnote: " + advice
	}
	return s.Print(map[string]any{"file": x.file, "changed": true, "backup": x.backup, "note": advice}, said)
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
