// Package console is one run of the program for its commands: streams,
// environment, common flags, and errors with exit codes.
package console

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/term"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Exit codes, see the comment of package main.
const (
	ExitOK       = 0
	ExitError    = 1
	ExitUsage    = 2
	ExitNotRun   = 3
	ExitFailed   = 4
	ExitTimeout  = 5
	ExitRefused  = 6
	ExitLocked   = 7
	ExitWarnings = 8
	ExitErrors   = 9
)

// Console is what a command needs of one run of the program.
type Console struct {
	In         io.Reader
	Out, Err   io.Writer
	Env        func(string) string
	Version    string // of the program
	ConfigFlag string
	HomeFlag   string
	JSON       bool
	Serving    bool // this process is the daemon
}

// Error is an error with an exit code and an optional hint.
type Error struct {
	Code int
	Err  error
	hint string
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Hint is what the operator can do, or "".
func (e *Error) Hint() string { return e.hint }

// Fail returns an error with an exit code and a hint, which may be "".
func Fail(code int, hint, format string, a ...any) error {
	return Wrap(code, fmt.Errorf(format, a...), hint)
}

// Wrap adds an exit code and a hint to an error.
func Wrap(code int, err error, hint string) error { return &Error{code, err, hint} }

// IsTerminal reports whether f is a terminal.
func IsTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// ReadFile reads a file named on the command line; "-" is standard input.
func (a *Console) ReadFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.In)
	}
	return os.ReadFile(name)
}

// Progress returns a step function that counts on a terminal and ends with ctx,
// and a function to call at the end.
func (a *Console) Progress(ctx context.Context, what string) (step func() error, done func()) {
	shown, steps := IsTerminal(a.Err), 0
	step = func() error {
		if steps++; shown {
			fmt.Fprintf(a.Err, "\r%s … %d", what, steps)
		}
		return ctx.Err()
	}
	return step, func() {
		if shown && steps > 0 {
			fmt.Fprint(a.Err, "\r\x1b[K")
		}
	}
}

// Percent returns a progress function for a terminal, nil otherwise.
func (a *Console) Percent(what string) func(done, total int64) {
	if !IsTerminal(a.Err) {
		return nil
	}
	var drawn time.Time
	return func(done, total int64) {
		if done >= total {
			a.EndProgress()
			return
		}
		if now := time.Now(); now.Sub(drawn) > 100*time.Millisecond {
			drawn = now
			fmt.Fprintf(a.Err, "\r%s %d %%", what, 100*done/total)
		}
	}
}

// EndProgress erases the line of a progress function.
func (a *Console) EndProgress() {
	if IsTerminal(a.Err) {
		fmt.Fprint(a.Err, "\r\x1b[K")
	}
}

// OneLine keeps file names and contents from looking like another line of output.
func OneLine(s string) string { return chat.Escape(strings.ReplaceAll(s, "\n", "; ")) }

// PrintResponse prints the outcome as text. Agents use --json.
func (a *Console) PrintResponse(r *approval.Response) {
	by := "policy"
	if r.Decision.By != nil {
		by = *r.Decision.By
	}
	fmt.Fprintf(a.Out, "%s (%s)\n", r.Status, by)
	for _, line := range []struct {
		name string
		text *string
	}{{"error", r.Error}, {"note", r.Decision.Note}, {"change", r.Decision.Override}, {"feedback", r.Feedback}} {
		if line.text != nil {
			fmt.Fprintf(a.Out, "%s: %s\n", line.name, *line.text)
		}
	}
	if r.Result.Kind() == '{' {
		fmt.Fprintf(a.Out, "result: %s\n", r.Result)
	}
}

// Print writes v as JSON with --json, otherwise text.
func (a *Console) Print(v any, text string) error {
	if !a.JSON {
		fmt.Fprintln(a.Out, text)
		return nil
	}
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", b)
	return err
}
