package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/doctor"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc"
)

func (a *app) backupCmd() *cobra.Command {
	return &cobra.Command{
		Use: "backup DIR", Short: "Copy HOME into a new folder, also while the daemon runs", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeFolders,
		RunE:              func(cmd *cobra.Command, pos []string) error { return a.backup(cmd.Context(), pos[0]) },
	}
}

func (a *app) restoreCmd() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use: "restore DIR", Short: "Check a backup, and show how to put it in place", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeFolders,
		RunE: func(cmd *cobra.Command, pos []string) error {
			if !check {
				return console.Fail(console.ExitUsage, "permesso restore --check "+sandbox.ShellWord(pos[0])+doctor.GivenFlags(a.Console)+" checks the copy and prints the commands: stop the daemon, move HOME away, copy the backup to HOME, start the daemon",
					"restore puts nothing in place: it only checks, with --check")
			}
			return a.restoreCheck(cmd.Context(), pos[0])
		},
	}
	c.Flags().BoolVar(&check, "check", false, "check the copy; change nothing")
	return c
}

func completeFolders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// backupResult is what backup prints.
type backupResult struct {
	Dir     string   `json:"dir"`
	Files   int      `json:"files"`
	Bytes   int64    `json:"bytes"`
	HeldMS  int64    `json:"held_ms"` // how long the daemon committed nothing
	Skipped []string `json:"skipped"` // no regular files
	Config  string   `json:"config"`  // not in the copy; "": none

	flags string // that the next command needs
}

func (r *backupResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "copied %s (%s) to %s", hints.Plural(r.Files, "file"), binarySize(r.Bytes), console.OneLine(r.Dir))
	if r.HeldMS > 0 {
		fmt.Fprintf(&b, "; nothing was committed for %d ms", r.HeldMS)
	}
	b.WriteString("\nThe copy holds the secret keys: keep it as safe as HOME.")
	if r.Config != "" {
		fmt.Fprintf(&b, "\nNot in the copy: %s, and the secret files that it names.", console.OneLine(r.Config))
	}
	for _, name := range r.Skipped {
		fmt.Fprintf(&b, "\nskipped, not a regular file: %s", console.OneLine(name))
	}
	fmt.Fprintf(&b, "\nnext: permesso restore --check %s%s", console.OneLine(sandbox.ShellWord(r.Dir)), r.flags)
	return b.String()
}

func binarySize(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// namedFolder is the absolute path of a folder that a command line names. An empty name, as of
// an unset variable, is not the current folder.
func namedFolder(dir string) (string, error) {
	if dir == "" {
		return "", console.Fail(console.ExitUsage, "name the folder; . is the current one", "the name of the folder is empty")
	}
	return filepath.Abs(dir)
}

// backup creates the folder first: opening HOME may drop the privileges of root.
func (a *app) backup(ctx context.Context, dir string) error {
	from, err := home.Find(a.Console)
	if err != nil {
		return err
	}
	if dir, err = namedFolder(dir); err != nil {
		return err
	}
	from, dir = doctor.Resolved(from), doctor.Resolved(dir) // so that a folder in HOME is one by any name
	switch err := home.CheckReadable(from); {
	case errors.Is(err, fs.ErrNotExist):
		return console.Fail(console.ExitError, "name the daemon's HOME: --home", "there is no home in %s", from)
	case errors.Is(err, syscall.ENOTDIR):
		return console.Fail(console.ExitError, "name the daemon's HOME: --home", "%s is not a folder", from)
	case err != nil:
		return err
	}
	r := &backupResult{Dir: dir, flags: doctor.GivenFlags(a.Console)}
	r.Config, _ = home.FileOf(a.Console, from) // what it holds is not needed
	c := &ipc.Copy{FS: ipc.OS(), From: ipc.Layout{Home: from}, To: dir}
	if err := c.Prepare(); err != nil {
		return err
	}
	err = a.ask(ctx, func(d *control.Client) error { return a.copyHome(ctx, d, c, r) })
	a.Status("")
	if err != nil {
		err = console.HintIfFull(fmt.Errorf("backup: %w", err), dir, "free space there, or name a folder on another disk")
		return errors.Join(err, discard(c))
	}
	return a.Print(r, r.String())
}

// discard removes a backup that failed.
func discard(c *ipc.Copy) error {
	if err := c.Discard(); err != nil {
		return console.Wrap(console.ExitError, fmt.Errorf("remove the incomplete copy: %w", err), "remove "+c.To+" yourself: it is no backup")
	}
	return nil
}

func sameFolder(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// backupPasses is the most passes before the daemon is asked to wait.
const backupPasses = 5

// copyHome makes passes until little has changed, and the last one while nothing is committed.
func (a *app) copyHome(ctx context.Context, d *control.Client, c *ipc.Copy, r *backupResult) error {
	if !sameFolder(d.Home, c.From.Home) {
		return console.Fail(console.ExitError, "name it: --home "+d.Home, "the daemon that answers has its HOME in %s", d.Home)
	}
	r.Config = cmp.Or(d.Config, r.Config)
	drawn := time.Time{}
	c.Step = func() {
		if now := time.Now(); now.Sub(drawn) > 100*time.Millisecond {
			drawn = now
			a.Status(fmt.Sprintf("copying … %s, %s", hints.Plural(c.Files, "file"), binarySize(c.Bytes)))
		}
	}
	for range backupPasses {
		if changed, err := c.Pass(ctx); err != nil || changed < 100 {
			if err != nil {
				return err
			}
			break
		}
	}
	var err error
	for range 3 {
		began := time.Now()
		err = d.Freeze(ctx, func() error { return c.Frozen(ctx) })
		if d.Served {
			r.HeldMS = time.Since(began).Milliseconds()
		}
		if !errors.Is(err, control.ErrThawed) {
			break
		}
	}
	if errors.Is(err, control.ErrThawed) {
		return console.Wrap(console.ExitError, err, "copy to a faster disk, or stop the daemon first")
	}
	if err == nil {
		err = c.Complete()
	}
	r.Files, r.Bytes, r.Skipped = c.Files, c.Bytes, append([]string{}, c.Skipped...)
	return err
}

func (a *app) restoreCheck(ctx context.Context, dir string) error {
	to, err := home.Find(a.Console)
	if err != nil {
		return err
	}
	if dir, err = namedFolder(dir); err != nil {
		return err
	}
	r, err := doctor.CheckCopy(ctx, a.Console, dir, to)
	a.Status("")
	if err != nil {
		return err
	}
	return r.Report(a.Console)
}

func (a *app) diskStatus(ctx context.Context, d *control.Client) error {
	st, err := d.Disk(ctx)
	if err != nil {
		return err
	}
	return a.Print(st, describeDisk(st, d.Served, time.Now()))
}

func describeDisk(d *ipc.DiskStatus, served bool, now time.Time) string {
	ago := func(t time.Time) string { return now.Sub(t).Round(time.Second).String() + " ago" }
	var b strings.Builder
	label := "journal"
	if d.Failed != "" {
		fmt.Fprintf(&b, "failed      %s\n", console.OneLine(d.Failed))
		label = "before" // the rest is no longer true
	}
	fmt.Fprintf(&b, "%-11s %d segments of %d KiB, %d free", label, d.Segments, d.SegmentBytes>>10, d.Free)
	if d.ReservedBytes > 0 {
		fmt.Fprintf(&b, ", %d KiB reserved for outcomes", d.ReservedBytes>>10)
	}
	fmt.Fprintf(&b, "\nspace       %s free on the disk of HOME", binarySize(int64(d.FreeBytes)))
	switch {
	case d.LastCheckpoint.IsZero():
		b.WriteString("\ncheckpoint  unknown: HOME cannot be written, so its lock was not taken")
		return b.String()
	case d.Oldest.IsZero():
		fmt.Fprintf(&b, "\ncheckpoint  %s, every commit is in the files", ago(d.LastCheckpoint))
	default:
		fmt.Fprintf(&b, "\ncheckpoint  %s, the oldest commit after it %s", ago(d.LastCheckpoint), ago(d.Oldest))
	}
	if d.LateFiles > 0 {
		fmt.Fprintf(&b, "\nlate        %s committed and not yet written: permesso doctor checks the disk", hints.Plural(d.LateFiles, "file"))
	}
	if !served {
		b.WriteString("\ndaemon      not running")
		return b.String()
	}
	fmt.Fprintf(&b, "\nlast minute %s\nsince start %s (%s)", describeRate(d.LastMinute), describeRate(d.Total), ago(d.Since))
	return b.String()
}

func describeRate(r ipc.DiskRate) string {
	return fmt.Sprintf("%.1f commits/s, %.1f syncs/s, %.1f KiB/s", r.CommitsPerSecond, r.GroupsPerSecond, r.BytesPerSecond/1024)
}
