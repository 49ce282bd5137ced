package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/security/audit"
)

// newestCheckpoint is the newest signed checkpoint of the log.
func (a *app) newestCheckpoint() (*audit.Checkpoint, error) {
	h, err := home.Locate(a.Console)
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
		return nil, console.Fail(console.ExitRefused, "start the daemon: it signs its log within seconds", "the log has no checkpoint yet")
	}
	return c, nil
}

func (a *app) auditWitnessCmd() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use: "witness", Short: "Append the newest signed checkpoint to a file or a command elsewhere", Args: cobra.NoArgs,
		Long: `Append the newest signed checkpoint to a file, or give it to a command on standard input.

Keep the file where the daemon's user cannot change it: on another host, or append-only.
Only such a witness shows that the whole state folder was set back. With a "!" before it, TO
is a command for the shell. A file that ends with this checkpoint is left as it is.`,
		Example: `  permesso audit witness --to /mnt/other/permesso.witness
  permesso audit witness --to '!ssh witness@other.example "cat >> permesso.witness"'
  permesso audit verify --witness /mnt/other/permesso.witness`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.auditWitness(cmd.Context(), to) },
	}
	c.Flags().StringVar(&to, "to", "", "`file`, or ! and a command")
	return c
}

func (a *app) auditWitness(ctx context.Context, to string) error {
	if to == "" || to == "!" {
		return console.Fail(console.ExitUsage, "permesso audit witness --help", "--to names no file or command")
	}
	c, err := a.newestCheckpoint()
	if err != nil {
		return err
	}
	entry := []byte(c.Note + "\n") // an empty line between two
	if command, ok := strings.CutPrefix(to, "!"); ok {
		err = a.pipe(ctx, command, entry)
	} else {
		err = appendWitness(to, entry)
	}
	if err != nil {
		return fmt.Errorf("witness checkpoint %d: %w", c.Size, err)
	}
	return a.Print(map[string]any{"size": c.Size, "foot": c.Foot(), "to": to}, fmt.Sprintf("witnessed: %d entries, log %s", c.Size, c.Foot()))
}

func (a *app) pipe(ctx context.Context, command string, in []byte) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), a.Err, a.Err
	return cmd.Run()
}

func appendWitness(name string, entry []byte) error {
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if bytes.HasSuffix(b, entry) {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(entry)
	return errors.Join(err, f.Close())
}

func (a *app) auditAcknowledgeCmd() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "acknowledge", Short: "End the alarm of the audit log; the log says who did and why", Args: cobra.NoArgs,
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
