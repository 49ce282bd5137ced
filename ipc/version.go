package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/journal"
)

// layoutVersion is the content of HOME/version: a journal exists. It is written after the
// segments are durable and before the first commit. So with it, a segment that is missing was
// removed, and commits may have been in it; without it, one that is missing was never there.
const layoutVersion = "2\n"

// versioned reports whether HOME has its version. One that is not ours is an error.
func (l Layout) versioned(fsys FS) (bool, error) {
	b, err := fsys.ReadFile(l.Version(), 64)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read version of HOME: %w", err)
	case string(b) != layoutVersion:
		return false, hints.Add(fmt.Errorf("HOME has version %.20q, this program knows version %q", b, layoutVersion),
			"use the program that wrote it; if the file "+l.Version()+" was changed, restore HOME from a backup")
	}
	return true, nil
}

// writeVersion makes the names of the segments durable, then the version. A crash in between
// leaves a HOME without a version, as before. On a full disk the next start writes it.
func (s *Store) writeVersion() error {
	l := s.Layout
	err := errors.Join(s.FS.SyncDir(l.Journal()), s.FS.SyncDir(l.Home))
	if err == nil {
		err = s.save(l.Version(), []byte(layoutVersion), store.Replace)
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("write version of HOME: %w", err)
	}
	return nil
}

// CheckJournal returns the error of a start about missing segments. It changes nothing.
func (l Layout) CheckJournal(fsys FS) error {
	has, err := l.versioned(fsys)
	if err != nil || !has {
		return err
	}
	return journal.CheckComplete(fsys, l.Journal())
}

// checkVersionFile refuses a version that another user could change.
func (l Layout) checkVersionFile(fsys FS) error {
	info, err := lstat(fsys, l.Version())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("check file: %w", err)
	case !info.Mode().IsRegular():
		return hints.Add(fmt.Errorf("check file %s: is not a regular file", l.Version()), "find what made it, and move it away")
	case info.Mode().Perm()&othersWrite != 0:
		return hints.Add(fmt.Errorf("check file %s: other users may write to it (mode %04o)", l.Version(), info.Mode().Perm()),
			"chmod 0600 "+shellQuote(l.Version()))
	}
	return nil
}
