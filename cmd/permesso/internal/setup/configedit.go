package setup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// editor is one run of config edit.
type editor struct {
	*console.Console
	file string // the configuration
	copy string // private, beside it
	old  []byte // what was copied
}

// errUnchanged ends an edit that changed nothing.
var errUnchanged = errors.New("unchanged")

// RunEditor opens the configuration in the person's editor, and replaces the file if the
// edited copy is valid. The file may be broken. Otherwise the copy is kept.
func RunEditor(ctx context.Context, a *console.Console) error {
	h, err := home.Locate(a)
	if err != nil {
		return err
	}
	file, err := home.FileOf(a, h.Layout.Home)
	if err == nil && file == "" {
		err = console.Fail(console.ExitError, "run permesso init", "no configuration file")
	}
	if err != nil {
		return err
	}
	e := &editor{Console: a, file: file}
	var edited []byte
	var says func(sha string) string
	err = editFile(file, func(old []byte) (_ []byte, err error) {
		edited, err = e.edit(ctx, old)
		says = watchDaemon(h)
		return edited, err
	})
	switch {
	case errors.Is(err, errUnchanged):
		return errors.Join(os.Remove(e.copy), a.Print(map[string]any{"config": file, "changed": false}, "unchanged "+file))
	case err != nil && e.copy != "":
		hint := console.HintFor(err)
		if text, failed := os.ReadFile(e.copy); failed == nil && bytes.Equal(text, e.old) {
			err = errors.Join(err, os.Remove(e.copy))
		} else {
			hint = console.Hints(hint, "your text is in "+e.copy)
		}
		return console.Fail(console.ExitError, hint, "%s is unchanged: %w", file, err)
	case err != nil:
		return err
	}
	if after, err := home.Reader(a).Parse(file, edited); err == nil {
		printNew(a, nil, after)
	}
	daemon := says(approval.Digest(edited))
	return errors.Join(os.Remove(e.copy), a.Print(map[string]any{"config": file, "changed": true, "daemon": daemon}, "wrote   "+file+"\n"+daemon))
}

// edit returns the text once it is valid.
func (e *editor) edit(ctx context.Context, old []byte) ([]byte, error) {
	if err := e.makeCopy(old); err != nil {
		return nil, err
	}
	for {
		if err := e.open(); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(e.copy)
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return nil, console.Fail(console.ExitError, "an empty file would take away every rule and approver", "the text is empty")
		}
		_, err = home.Reader(e.Console).Parse(e.file, text)
		if err == nil && bytes.Equal(text, old) {
			return nil, errUnchanged
		}
		if err == nil {
			return text, nil
		}
		if err := e.askAgain(ctx, err); err != nil {
			return nil, err
		}
	}
}

// makeCopy writes the copy that the editor opens. It ends as the file does, for the editor's
// highlighting.
func (e *editor) makeCopy(text []byte) error {
	target, err := filepath.EvalSymlinks(e.file)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".edit-*-"+filepath.Base(target)) // only its owner can read it
	if err != nil {
		return err
	}
	e.copy, e.old = f.Name(), text
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// open runs the editor on the terminal of this program.
func (e *editor) open() error {
	given := cmp.Or(e.Env("VISUAL"), e.Env("EDITOR"))
	name := cmp.Or(given, "vi")
	if given == "" && !console.IsTerminal(e.In) {
		return console.Fail(console.ExitUsage, "set VISUAL or EDITOR to a program that edits the file", "config edit needs a terminal")
	}
	cmd := osexec.Command("/bin/sh", "-c", name+` "$1"`, "sh", e.copy) //nolint:noctx // Ctrl-C is the editor's
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.In, e.Out, e.Err
	err := cmd.Run()
	hint := "run permesso config edit again"
	if given == "" {
		hint = "set VISUAL or EDITOR"
	}
	switch ended, ok := errors.AsType[*osexec.ExitError](err); {
	case err == nil:
		return nil
	case ok && ended.Exited():
		return console.Fail(console.ExitError, hint, "the editor (%s) ended with exit code %d", name, ended.ExitCode())
	case ok:
		return console.Fail(console.ExitError, hint, "the editor (%s) was stopped", name)
	}
	return console.Fail(console.ExitError, hint, "the editor (%s) did not start: %w", name, err)
}

// askAgain prints what is wrong, and returns an error if the person gives up.
func (e *editor) askAgain(ctx context.Context, wrong error) error {
	issues, ok := errors.AsType[*config.Error](wrong)
	if !ok {
		return wrong
	}
	for _, issue := range issues.Errors {
		e.PrintIssue("", issue.Format(e.file))
	}
	invalid := errors.New("the text has errors")
	if !console.IsTerminal(e.In) {
		return invalid
	}
	fmt.Fprint(e.Out, "Edit it again? [Y/n] ")
	line, err := readLine(ctx, e.In, readOne)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err != nil || strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "n") {
		return invalid
	}
	return nil
}
