package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/term"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
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

// console is one run of the program for what the commands call: its streams, environment and
// common flags.
type console struct {
	In         io.Reader
	Out, Err   io.Writer
	Env        func(string) string
	version    string // of the program
	configFlag string
	homeFlag   string
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

func fail(code int, hint, format string, a ...any) error {
	return &exit{code, fmt.Errorf(format, a...), hint}
}

// terminal reports whether f is a terminal.
func terminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// readFile reads a file named on the command line; "-" is standard input.
func (a *console) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.In)
	}
	return os.ReadFile(name)
}

// progress returns a step function that counts on a terminal and ends with ctx,
// and a function to call at the end.
func (a *console) progress(ctx context.Context, what string) (step func() error, done func()) {
	shown, steps := terminal(a.Err), 0
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

// oneLine keeps file names and contents from looking like another finding.
func oneLine(s string) string { return chat.Escape(strings.ReplaceAll(s, "\n", "; ")) }

// printResponse prints the outcome as text. Agents use --json.
func (a *console) printResponse(r *approval.Response) {
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

// print writes v as JSON with --json, otherwise text.
func (a *console) print(v any, text string) error {
	if !a.json {
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
