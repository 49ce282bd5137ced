package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/security/audit"
)

// newestCheckpoint is the newest signed checkpoint of the log.
func (a *app) newestCheckpoint() (*audit.Checkpoint, error) {
	h, err := home.Existing(a.Console)
	if err != nil {
		return nil, err
	}
	known, err := h.AuditKeys()
	if err != nil {
		return nil, err
	}
	c, err := audit.Newest(h.FS, h.Layout.Audit(), known)
	if err != nil {
		return nil, refusedIfTampered(console.VerifyFirst(err))
	}
	if c == nil {
		return nil, control.ExplainNoLog(h, console.Fail(console.ExitRefused,
			"a running daemon signs its log within seconds; if one ran, permesso audit verify says whether checkpoints are lost", "the log has no checkpoint"))
	}
	return c, nil
}

func (a *app) auditWitnessCmd() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use: "witness", Short: "Append the newest signed checkpoint to a file or a command elsewhere", Args: cobra.NoArgs,
		Long: `Append the newest signed checkpoint to FILE, or give it to COMMAND on standard input.

FILE is created if it is missing. Keep it where the daemon's user cannot change it: on another
host, or append-only. Only such a witness shows that the whole state folder was set back. A FILE
that ends with this checkpoint is left as it is. If this log is not a continuation of the newest
checkpoint in FILE, nothing is appended, and the command exits with 6.

With !COMMAND, the shell runs COMMAND; quote it, because of the "!". What COMMAND has kept before
is not compared: audit verify --witness does that.

While the audit log has an alarm, the checkpoint is appended, and the command exits with 6.`,
		Example: `  permesso audit witness --to /mnt/other/permesso.witness
  permesso audit witness --to '!ssh witness@other.example "cat >> permesso.witness"'
  permesso audit verify --witness /mnt/other/permesso.witness`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.auditWitness(cmd.Context(), to) },
	}
	c.Flags().StringVar(&to, "to", "", "`FILE`, or !COMMAND")
	return c
}

func (a *app) auditWitness(ctx context.Context, to string) error {
	if err := checkWitnessName(to); err != nil {
		return err
	}
	h, err := home.Locate(a.Console)
	if err != nil {
		return err
	}
	c, err := a.newestCheckpoint()
	if err != nil {
		return err
	}
	entry := []byte(c.Note + "\n") // an empty line between two
	if command, ok := strings.CutPrefix(to, "!"); ok {
		err = a.pipe(ctx, command, entry)
	} else {
		err = appendWitness(h, to, c, entry)
	}
	if err != nil {
		return fmt.Errorf("witness checkpoint %d: %w", c.Size, err)
	}
	if err := a.Print(map[string]any{"size": c.Size, "foot": c.Foot(), "to": to}, fmt.Sprintf("witnessed: %d entries, log %s", c.Size, c.Foot())); err != nil {
		return err
	}
	alarm, err := audit.ReadAlarm(h.FS, h.Layout.Audit())
	if err == nil && alarm != nil {
		err = console.Fail(console.ExitRefused, console.AlarmHint, "the checkpoint was appended, but the audit log has an alarm: %s", console.OneLine(alarm.Reason))
	}
	return err
}

// checkWitnessName refuses what names no file, and what is probably meant as a command.
func checkWitnessName(to string) error {
	if to == "" || to == "!" {
		return console.Fail(console.ExitUsage, "permesso audit witness --help", "--to names no file or command")
	}
	if to[0] == '!' {
		return nil
	}
	if info, err := os.Stat(to); err == nil {
		if !info.Mode().IsRegular() { // opening a pipe waits for a reader
			return console.Fail(console.ExitUsage, "name a file, or a command: --to '!COMMAND'", "--to %s is not a file", to)
		}
		return nil
	}
	command := strings.TrimSpace(strings.TrimPrefix(to, "|"))
	if to[0] == '|' || strings.Contains(to, " ") {
		return console.Fail(console.ExitUsage, "a command begins with !: --to '!"+command+"'; a new file with such a name: create it first",
			"--to %q: there is no such file", to)
	}
	return nil
}

func (a *app) pipe(ctx context.Context, command string, in []byte) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), a.Err, a.Err
	if err := cmd.Run(); err != nil {
		return console.Wrap(console.ExitError, fmt.Errorf("the command ended with an error: %w", err), "the checkpoint may not be kept; to try the command: permesso audit checkpoint | COMMAND")
	}
	return nil
}

// appendWitness appends a checkpoint to a file, unless the newest one there contradicts it.
func appendWitness(h *home.Home, name string, c *audit.Checkpoint, entry []byte) error {
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if bytes.HasSuffix(b, entry) {
		return nil
	}
	if kept := audit.SplitCheckpoints(string(b)); len(kept) > 0 {
		if err := continues(h, name, kept[len(kept)-1], c); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return console.Fail(console.ExitError, "create it first", "there is no folder %s", filepath.Dir(name))
	}
	if err != nil {
		return err
	}
	_, err = f.Write(entry)
	return errors.Join(err, f.Close())
}

// continues refuses a log that is not a continuation of a kept checkpoint.
func continues(h *home.Home, name, kept string, c *audit.Checkpoint) error {
	const hint = "nothing was appended: compare with permesso audit verify --witness; the log may have been set back, or FILE is of another daemon"
	known, err := h.AuditKeys()
	if err != nil {
		return err
	}
	newest, err := audit.ParseCheckpoint(kept, known)
	if err != nil {
		return console.Fail(console.ExitRefused, hint, "the newest checkpoint in %s is damaged, or its key is not one of this log's keys", name)
	}
	if c.Size < newest.Size {
		return console.Fail(console.ExitRefused, hint, "this log is smaller than that of the newest checkpoint in %s: %d entries are signed, %d are in the file", name, c.Size, newest.Size)
	}
	root, err := audit.RootAt(h.FS, h.Layout.Audit(), newest.Size)
	if err != nil {
		return err
	}
	if root != newest.Root {
		return console.Fail(console.ExitRefused, hint, "this log is not a continuation of the newest checkpoint in %s: its first %d entries differ", name, newest.Size)
	}
	return nil
}

func (a *app) auditAcknowledgeCmd() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "acknowledge", Short: "End the alarm of the audit log; the log says who did and why", Args: cobra.NoArgs,
		Long: `End the alarm of the audit log, which says that entries or checkpoints are missing or were changed.

Use it when you know what happened, and have kept a copy of HOME/audit. It restores nothing: what is
missing stays missing. To put back a copy of the log, do that first, while no daemon runs.

The log gets an entry log_alarm_acknowledged with your name, the reason and the text of the alarm. Then
status, doctor and audit verify report no alarm: audit verify exits with 0, and names the entry each time.`,
		Example: `  permesso audit acknowledge --reason "disk replaced, log restored from the backup of Monday"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(d *control.Client) error {
				alarm, err := d.Acknowledge(cmd.Context(), reason)
				if err != nil {
					return err
				}
				return a.Print(alarm, "acknowledged: "+console.OneLine(alarm.Reason))
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "what was found, as `text`")
	return c
}
