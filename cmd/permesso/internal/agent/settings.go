package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/agentconf"
	"github.com/permesso-dev/permesso/ipc/wholefile"
)

// settingsFlags are the flags of a change of an agent's settings.
type settingsFlags struct {
	scopes map[agentconf.Scope]*bool
	print  bool
	yes    bool
}

// scopeHelp is what stands behind the flags of the scopes.
var scopeHelp = map[agentconf.Scope]string{
	agentconf.User:    "in the settings of this user (the default)",
	agentconf.Project: "in the settings of the project in this folder",
	agentconf.Managed: "in the settings of the system, which no project switches off",
}

func (s *settingsFlags) flags(c *cobra.Command, scopes ...agentconf.Scope) {
	s.scopes = map[agentconf.Scope]*bool{}
	var names []string
	for _, x := range scopes {
		s.scopes[x] = c.Flags().Bool(string(x), false, scopeHelp[x])
		names = append(names, string(x))
	}
	c.MarkFlagsMutuallyExclusive(names...)
	c.Flags().BoolVar(&s.print, "print", false, "print the new settings, change nothing")
	c.Flags().BoolVar(&s.yes, "yes", false, "change them without a question")
}

func (s *settingsFlags) scope() agentconf.Scope {
	for x, on := range s.scopes {
		if *on {
			return x
		}
	}
	return agentconf.User
}

// folders are the user's, and that of the project.
func folders() (home, project string, err error) {
	if home, err = os.UserHomeDir(); err == nil {
		project, err = os.Getwd()
	}
	return home, project, err
}

// settingsTarget is the file behind a name. Settings are often a link into a folder of dotfiles, which stays one.
func settingsTarget(file string) (string, error) {
	target, err := filepath.EvalSymlinks(file)
	if err == nil {
		return target, nil
	}
	if to, noLink := os.Readlink(file); noLink == nil {
		return "", console.Wrap(console.ExitError, fmt.Errorf("%s is a link to %s: %w", file, to, err), "create that file, or remove the link")
	}
	return file, nil
}

// settingsEdit is a change of one file of settings.
type settingsEdit struct {
	file, backup         string // the backup is what was there without ours
	before, clean, after []byte // clean is without ours; nil: no file
	keeps, drops         bool   // writes the backup; removes it
	secret               bool   // a new file is for this user alone
	byHand               string // a hint
	kept                 string // the name of the backup
	old                  []byte // what is in it; nil: there is none
}

// settingsChange is how settings get ours, and lose it.
type settingsChange struct {
	add      func(text, old []byte) ([]byte, error) // nil: it is taken away; old is the backup, if there is one
	remove   func(text, old []byte) ([]byte, error)
	restores func(old, now []byte) bool // the backup is now without ours
}

// plan reads the file and the backup, and finds what is to be written.
func (x *settingsEdit) plan(c settingsChange) (err error) {
	x.before, err = os.ReadFile(x.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old, missing := os.ReadFile(x.kept)
	x.old = old
	x.clean, err = c.remove(x.before, old)
	x.after = x.clean
	if err == nil && c.add != nil {
		x.after, err = c.add(x.before, old)
	}
	if err != nil {
		if _, ours := errors.AsType[*console.Error](err); ours {
			return err
		}
		return console.Wrap(console.ExitError, fmt.Errorf("%s: %w", x.file, err), x.byHand)
	}
	x.backup = x.kept
	same := missing == nil && c.restores(old, x.before)
	x.keeps = c.add != nil && x.clean != nil && (!same || bytes.Equal(x.clean, x.before))
	x.drops = c.add == nil && same
	if x.drops && !bytes.Equal(x.before, x.after) {
		x.after = old // as it was, to the byte
	}
	if x.drops || missing != nil && !x.keeps || c.add != nil && !same && x.clean == nil {
		x.backup = ""
	}
	return nil
}

// write makes the change, unless another program has made one since.
func (x *settingsEdit) write() (err error) {
	mode := fs.FileMode(0o644) // of new ones: those of the system are for every user, and there is no secret in them
	if x.secret {
		mode = 0o600
	}
	if info, err := os.Stat(x.file); err == nil {
		mode = info.Mode().Perm()
	}
	now, err := os.ReadFile(x.file)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case !bytes.Equal(now, x.before):
		return console.Fail(console.ExitError, "end the agent, then give the command again", "%s was changed meanwhile", x.file)
	}
	err = nil
	if x.keeps {
		err = writeSettings(x.kept, x.clean, mode)
	}
	switch {
	case err != nil:
	case x.after == nil:
		err = os.Remove(x.file)
	default:
		err = writeSettings(x.file, x.after, mode)
	}
	if err == nil && x.drops {
		err = os.Remove(x.kept)
	}
	return err
}

// apply shows what changes, asks, and writes it. noBackup is why there is none; it is said of what was added.
func (s *settingsFlags) apply(ctx context.Context, p program, x *settingsEdit, noBackup string, note func() string) error {
	if s.print {
		fmt.Fprint(p.Out, string(x.after))
		return nil
	}
	if bytes.Equal(x.before, x.after) {
		return p.Print(map[string]any{"file": x.file, "changed": false}, x.file+" is already so")
	}
	text := x.file + "\n" + difference(string(x.before), string(x.after))
	if s.yes {
		if !p.JSON {
			fmt.Fprint(p.Out, text)
		}
	} else if yes, err := p.Confirm(ctx, text, "Change it?"); err != nil {
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
	case noBackup != "":
		said += "; no backup: " + noBackup
	}
	if note != nil {
		advice = note()
	}
	if advice != "" {
		said += "\nnote: " + advice
	}
	return p.Print(map[string]any{"file": x.file, "changed": true, "backup": x.backup, "note": advice}, said)
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
	return wholefile.Replace(file, text, mode)
}
