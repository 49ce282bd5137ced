// Package console is one run of the program for its commands: streams,
// environment, common flags, and errors with exit codes.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
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
	Serving    bool      // this process is the daemon
	UnsafeHome bool      // it may use a HOME on a file system that keeps no promises
	Told       *sync.Map // lines of Tell; nil: they may come twice
}

// Tell prints a line about the circumstances of the command, and its hint: once in a run.
func (a *Console) Tell(hint, format string, v ...any) {
	err := Fail(ExitOK, hint, format, v...)
	if a.Told != nil {
		if _, told := a.Told.LoadOrStore(err.Error(), true); told {
			return
		}
	}
	a.PrintIssue("permesso: ", err)
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
	b, err := os.ReadFile(name)
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = Wrap(ExitError, fmt.Errorf("read %s: %w", name, pe.Err), "check the name of the file; - is standard input")
	}
	return b, err
}

// Dumb reports whether the terminal knows no escape sequences.
func (a *Console) Dumb() bool { return a.Env("TERM") == "dumb" }

// Colors reports whether standard output takes colors and the person wants them.
func (a *Console) Colors() bool {
	return IsTerminal(a.Out) && !a.Dumb() && a.Env("NO_COLOR") == ""
}

// Redraws reports whether a line of standard error can be drawn over.
func (a *Console) Redraws() bool { return IsTerminal(a.Err) && !a.Dumb() }

// Status draws a line on a terminal over the last one; "" erases it.
func (a *Console) Status(line string) {
	if a.Redraws() && !a.JSON {
		fmt.Fprint(a.Err, "\r\x1b[K"+line)
	}
}

// Progress returns a step function that counts on a terminal and ends with ctx.
// The caller erases the line at the end.
func (a *Console) Progress(ctx context.Context, what string) (step func() error) {
	steps := 0
	return func() error {
		steps++
		a.Status(fmt.Sprintf("%s … %d", what, steps))
		return ctx.Err()
	}
}

// Percent returns a progress function for a terminal, nil otherwise.
func (a *Console) Percent(what string) func(done, total int64) {
	if !a.Redraws() {
		return nil
	}
	var drawn time.Time
	return func(done, total int64) {
		if now := time.Now(); done < total && now.Sub(drawn) > 100*time.Millisecond {
			drawn = now
			a.Status(fmt.Sprintf("%s %d %%", what, 100*done/total))
		}
	}
}

// OneLine keeps file names and contents from looking like another line of output.
func OneLine(s string) string { return chat.Escape(strings.ReplaceAll(s, "\n", "; ")) }

// ByAgent is the line about an approved call that the agent executes.
const ByAgent = "execution: by the agent; the gate runs nothing"

// ByGateway is the line about one that the MCP gateway makes for the agent.
const ByGateway = "execution: the MCP gateway calls the server's tool once; the gate itself runs nothing"

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
	switch {
	case r.Execution == approval.ExecutionAgent:
		fmt.Fprintln(a.Out, ByAgent)
	case r.Result.Kind() == '{':
		fmt.Fprintf(a.Out, "result: %s\n", r.Result)
	}
}

// Print writes v as JSON with --json, otherwise text, wrapped on a terminal.
func (a *Console) Print(v any, text string) error {
	return a.PrintToCopy(v, WrapText(text, Width(a.Out)))
}

// PrintToCopy writes v as JSON with --json, otherwise text as it is.
func (a *Console) PrintToCopy(v any, text string) error {
	if !a.JSON {
		fmt.Fprintln(a.Out, text)
		return nil
	}
	b, err := json.Marshal(v, json.Deterministic(true), codec.Times())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", b)
	return err
}

// StorageHint is the hint about a workspace that has used most of its limits.stored.
const StorageHint = "raise limits.stored of the workspace, or shorten [retention] and run permesso prune; " +
	"refused, denied and expired requests are removed first, what ran is not"

// AlarmHint is what an operator does about an alarm of the audit log.
const AlarmHint = "find out what changed HOME/audit and compare with a copy kept elsewhere; to put a whole copy back, stop the daemon if it runs (no kill -9), replace HOME/audit by it, start the daemon; then permesso audit acknowledge --reason TEXT"

// keyHint is for a HOME without a key. Another key does not open what the lost one has sealed.
const keyHint = "permesso init makes the keys of a new HOME; if this one was in use, put keys/ back from a backup: another key verifies none of its requests, records and receipts"

// commandHint is the advice that only this program can give: it names a command. Other
// packages return the class of the error.
func commandHint(err error) string {
	for _, x := range []struct {
		is   error
		hint string
	}{
		{receipt.ErrNoKey, keyHint},
		{seal.ErrNoKey, keyHint},
		{store.ErrJournalLost, "permesso doctor says what is missing"},
		{store.ErrRestart, "the decision may have been recorded; check with permesso show ID before retrying"},
		{audit.ErrAlarm, AlarmHint},
		{syscall.ENOSPC, "free space there: remove other files, or set a shorter [retention]; while the daemon runs, permesso status --disk shows what waits for space"},
		{syscall.EDQUOT, "free space, or raise the quota of the daemon's user"},
		{syscall.EROFS, "after a disk error check dmesg first; then: mount -o remount,rw MOUNTPOINT, and start the daemon again if it has ended"},
		{store.ErrLocked, "stop the other daemon, or use another --home"},
	} {
		if errors.Is(err, x.is) {
			return x.hint
		}
	}
	return ""
}

// HintIfFull adds a hint to an error if it says that there is no space left below dir, which is
// not the daemon's.
func HintIfFull(err error, dir, hint string) error {
	path, ok := errors.AsType[*fs.PathError](err)
	if !ok || !strings.HasPrefix(path.Path, dir) || !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return Wrap(ExitError, err, hint)
}

// HintFor is what an operator can do about an error, or "".
func HintFor(err error) string {
	if e, ok := errors.AsType[*Error](err); ok && e.hint != "" {
		return e.hint
	}
	return Hints(hints.Of(err), commandHint(err))
}

// Hints joins hints; empty ones are left out.
func Hints(all ...string) string {
	var some []string
	for _, hint := range all {
		if hint != "" {
			some = append(some, hint)
		}
	}
	return strings.Join(some, "; ")
}

// Advice is the field hint of a log line about an error.
type Advice struct{ Err error }

// MarshalZerologObject implements zerolog.LogObjectMarshaler, for EmbedObject.
func (a Advice) MarshalZerologObject(e *zerolog.Event) {
	if hint := HintFor(a.Err); hint != "" {
		e.Str("hint", hint)
	}
}

// PrintIssue prints an error and its hint. An error without a text has only its hint printed.
func (a *Console) PrintIssue(before string, err error) {
	if err.Error() != "" {
		a.Note("%s", before+err.Error())
	}
	if hint := HintFor(err); hint != "" {
		a.Note("hint: %s", hint)
	}
}

// VerifyFirst adds to an error of a changed audit log the command that shows where.
func VerifyFirst(err error) error {
	for _, bad := range []error{audit.ErrDamaged, audit.ErrTampered, audit.ErrNotProven} {
		if errors.Is(err, bad) {
			return hints.Add(err, Hints("run permesso audit verify for details", hints.Of(err)))
		}
	}
	return err
}

// Table prints rows in columns. On a terminal the headers are faint and statuses
// are colored.
type Table struct {
	app   *Console
	color bool
	rows  [][]string
}

// Table returns a table with these headers.
func (a *Console) Table(heads ...string) *Table {
	return &Table{app: a, color: a.Colors(), rows: [][]string{heads}}
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Print writes the table to standard output. On a narrow terminal its cells are wrapped; where
// their words are too wide, each row becomes lines of a name and a value.
func (t *Table) Print() {
	full, least := make([]int, len(t.rows[0])), make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			full[i] = max(full[i], utf8.RuneCountInString(cell))
			for word := range strings.FieldsSeq(cell) {
				least[i] = max(least[i], utf8.RuneCountInString(word))
			}
		}
	}
	width := Width(t.app.Out)
	if width > 0 && !shrink(full, least, width-2*(len(full)-1)) {
		t.printRecords(width)
		return
	}
	for n, row := range t.rows {
		t.printRow(n, row, full)
	}
}

// shrink takes columns from the widest, down to their widest word, until all of them fit.
func shrink(widths, least []int, room int) (fits bool) {
	for {
		sum, at := 0, -1
		for i, w := range widths {
			sum += w
			if w > least[i] && (at < 0 || w > widths[at]) {
				at = i
			}
		}
		if sum <= room || at < 0 {
			return sum <= room
		}
		widths[at]--
	}
}

func (t *Table) printRow(n int, row []string, widths []int) {
	cells, height := make([][]string, len(row)), 0
	for i, cell := range row {
		cells[i] = strings.Split(WrapText(cell, widths[i]), "\n")
		height = max(height, len(cells[i]))
	}
	for k := range height {
		var line strings.Builder
		for i, rows := range cells {
			part := ""
			if k < len(rows) {
				part = rows[k]
			}
			line.WriteString(t.paint(n, part) + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(part)+2))
		}
		fmt.Fprintln(t.app.Out, strings.TrimRight(line.String(), " "))
	}
}

func (t *Table) printRecords(width int) {
	heads, wide := t.rows[0], 0
	for _, head := range heads {
		wide = max(wide, utf8.RuneCountInString(head))
	}
	for n, row := range t.rows[1:] {
		if n > 0 {
			fmt.Fprintln(t.app.Out)
		}
		for i, cell := range row {
			pad := strings.Repeat(" ", wide-utf8.RuneCountInString(heads[i])+2)
			fmt.Fprintln(t.app.Out, WrapText(t.paint(0, heads[i])+pad+t.paint(n+1, cell), width))
		}
	}
}

const (
	faint  = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// colors are the colors of statuses.
var colors = map[string]string{
	string(approval.StatusApproved):     green,
	string(approval.StatusAutoApproved): green,
	string(approval.StatusDenied):       red,
	string(approval.StatusAutoRejected): red,
	string(approval.StatusFailed):       red,
	string(approval.StatusInterrupted):  red,
	string(approval.StatusExpired):      yellow,
	string(read.StatusPending):          yellow,
	string(read.StatusRunning):          yellow,
}

func (t *Table) paint(row int, cell string) string {
	color := colors[cell]
	if row == 0 {
		color = faint
	}
	if !t.color || color == "" {
		return cell
	}
	return color + cell + reset
}

// NamedPlaces are the flags for the state folder and the configuration that were named, by flags or the environment: for a
// command line that starts elsewhere.
func (a *Console) NamedPlaces() (words []string, err error) {
	for _, f := range []struct{ flag, given, variable string }{{"--home", a.HomeFlag, "PERMESSO_HOME"}, {"--config", a.ConfigFlag, "PERMESSO_CONFIG"}} {
		value := cmp.Or(f.given, a.Env(f.variable))
		if value == "" {
			continue
		}
		if value, err = filepath.Abs(value); err != nil {
			return nil, err
		}
		words = append(words, f.flag, value)
	}
	return words, nil
}
