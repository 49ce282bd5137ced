package ipc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/store"
)

// Copy copies a HOME into an empty folder, also while a daemon uses it. A pass copies what is
// new or has changed since the one before, and removes what is gone. What Frozen copies is a
// state that a power cut could have left: files change only after their commit, which the
// journal has. Only removals, responses and messages, which every start repairs, may be from
// shortly after. An id is used again only after a checkpoint, which waits.
//
// It leaves out run/, locks, temporary files, requests that the gate has not accepted, and
// what is no regular file.
type Copy struct {
	FS   FS
	From Layout
	To   string // a folder, private to its owner
	// Step is called for each file. nil: no progress is shown.
	Step func()

	Files   int      // in the copy, without the journal
	Bytes   int64    // of them
	Skipped []string // what is no regular file

	made    bool                   // the folder, by Prepare
	began   bool                   // the folder is this copy's: all in it may be removed
	seen    map[string]fs.FileInfo // by name, of what was copied
	present map[string]bool        // in this pass
	large   map[string]largeFolder
	changed int
}

// largeFolder is a folder as a pass has copied it.
type largeFolder struct {
	info  fs.FileInfo // from before
	at    time.Time
	files []string // in the copy
}

// partialJournal is the name of the journal in a copy that is not complete.
const partialJournal = "journal.partial"

// Prepare creates the folder of the copy, or takes an empty one. No other user may read it:
// the copy holds the keys. If the caller is root, it belongs to the owner of HOME.
func (c *Copy) Prepare() error {
	if isBelow(c.To, c.From.Home) || isBelow(c.From.Home, c.To) {
		return hints.Add(fmt.Errorf("%s is a part of HOME, or holds it", c.To), "name a folder elsewhere, best on another disk")
	}
	err := c.FS.Mkdir(c.To, 0o700)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return hints.Add(fmt.Errorf("there is no folder %s", filepath.Dir(c.To)), "create it first")
	case err != nil && !errors.Is(err, fs.ErrExist):
		return err
	}
	c.made = err == nil
	if info, err := lstat(c.FS, c.To); err == nil && !info.IsDir() {
		return hints.Add(fmt.Errorf("%s is not a folder", c.To), "name a new folder")
	}
	if err := c.takeEmpty(); err != nil {
		if c.made {
			_ = c.FS.Remove(c.To) // it stays if it is not empty
		}
		return err
	}
	if err := c.makePrivate(); err != nil {
		return errors.Join(err, c.Discard())
	}
	return nil
}

// takeEmpty takes the folder for this copy, if it is empty and no other copy has it.
func (c *Copy) takeEmpty() error {
	notEmpty := hints.Add(fmt.Errorf("%s is not empty", c.To), "name a new folder")
	mine := filepath.Join(c.To, partialJournal)
	err := c.FS.Mkdir(mine, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return notEmpty
	}
	if err != nil {
		return err
	}
	names, err := namesIn(c.FS, c.To)
	if err == nil && len(names) == 1 {
		c.began = true
		return nil
	}
	return errors.Join(cmp.Or(err, notEmpty), c.FS.Remove(mine))
}

func (c *Copy) makePrivate() error {
	home, err := lstat(c.FS, c.From.Home)
	if err != nil {
		return err
	}
	if err := errors.Join(keepOwner(c.FS, c.To, home), c.FS.Chmod(c.To, 0o700)); err != nil {
		return err
	}
	info, err := lstat(c.FS, c.To)
	if err == nil && info.Mode().Perm()&othersAccess != 0 {
		err = hints.Add(fmt.Errorf("%s cannot be made private: other users could read the keys in the copy", c.To),
			"use a file system with permissions, such as ext4")
	}
	return err
}

// Discard removes a copy that failed. If it cannot remove all, what is left has no journal: it
// is no HOME. A folder that was there before Prepare stays, empty.
func (c *Copy) Discard() error {
	if !c.began {
		return nil // the folder is not ours
	}
	err := c.FS.Rename(Layout{c.To}.Journal(), filepath.Join(c.To, partialJournal))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	names, listErr := namesIn(c.FS, c.To)
	err = errors.Join(err, listErr)
	for _, name := range names {
		err = errors.Join(err, c.FS.RemoveAll(filepath.Join(c.To, name)))
	}
	if err == nil && c.made {
		_ = c.FS.Remove(c.To) // without the privileges of root it may have to stay, empty
	}
	return err
}

// Pass copies what has changed since the pass before, and returns how many files that were.
func (c *Copy) Pass(ctx context.Context) (changed int, err error) {
	if c.seen == nil {
		c.seen, c.large = map[string]fs.FileInfo{}, map[string]largeFolder{}
	}
	c.present, c.changed, c.Skipped = map[string]bool{}, 0, nil
	if err := c.folder(ctx, ""); err != nil {
		return c.changed, fmt.Errorf("copy %s: %w", c.From.Home, err)
	}
	for name, info := range c.seen {
		if c.present[name] {
			continue
		}
		if err := c.FS.RemoveAll(filepath.Join(c.To, name)); err != nil {
			return c.changed, err
		}
		c.count(info, -1)
		delete(c.seen, name)
		c.changed++
	}
	return c.changed, nil
}

// folder copies one folder of HOME, named from there.
func (c *Copy) folder(ctx context.Context, dir string) error {
	names, err := namesIn(c.FS, filepath.Join(c.From.Home, dir))
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		name = filepath.Join(dir, name)
		if leftOut(name) {
			continue
		}
		if err := c.entry(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // what is gone meanwhile is not missed
		}
	}
	return nil
}

// leftOut reports whether a file is no part of a copy.
func leftOut(name string) bool {
	base := filepath.Base(name)
	switch {
	case name == "lock", name == "run", name == "journal", name == "served", name == "seccomp.bpf":
		return true
	case strings.HasPrefix(base, largePrefix):
		return false // the journal refers to it
	}
	return strings.HasPrefix(base, tempPrefix) || filepath.Ext(base) == ".lock"
}

// isLarge reports whether a folder may have very many files, none of which is ever written in
// place: while it is unchanged, so are they.
func isLarge(name string) bool {
	record, _ := filepath.Match("records/*", name)
	response, _ := filepath.Match("ipc/*/responses", name)
	return record || response
}

// settledTime is how long before a look a folder must have changed last: later changes may have
// the same time.
const settledTime = time.Second

// unchanged keeps what the pass before copied of a large folder, if nothing has changed there.
func (c *Copy) unchanged(name string, info fs.FileInfo) bool {
	old, ok := c.large[name]
	if !ok || !sameVersion(old.info, info) || old.at.Sub(info.ModTime()) < settledTime {
		return false
	}
	for _, file := range old.files {
		c.present[filepath.Join(name, file)] = true
	}
	return true
}

// isRequests reports whether a folder holds requests: an agent writes there.
func isRequests(name string) bool {
	match, _ := filepath.Match("ipc/*/requests", name)
	return match
}

func (c *Copy) entry(ctx context.Context, name string) error {
	info, err := lstat(c.FS, filepath.Join(c.From.Home, name))
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return c.subfolder(ctx, name, info)
	case !info.Mode().IsRegular():
		c.Skipped = append(c.Skipped, name)
		return nil
	}
	c.present[name] = true
	if old := c.seen[name]; old != nil && sameVersion(old, info) {
		return nil
	}
	if err := c.file(name, info); err != nil {
		return err
	}
	if old := c.seen[name]; old != nil {
		c.count(old, -1)
	}
	c.count(info, 1)
	c.seen[name] = info
	c.changed++
	if c.Step != nil {
		c.Step()
	}
	return nil
}

func (c *Copy) count(info fs.FileInfo, n int) {
	if !info.IsDir() {
		c.Files, c.Bytes = c.Files+n, c.Bytes+int64(n)*info.Size()
	}
}

func (c *Copy) subfolder(ctx context.Context, name string, info fs.FileInfo) error {
	to := filepath.Join(c.To, name)
	c.present[name] = true
	if c.seen[name] == nil {
		if err := c.FS.Mkdir(to, 0o700); err != nil {
			return err
		}
		c.seen[name] = info
	}
	if err := errors.Join(keepOwner(c.FS, to, info), c.FS.Chmod(to, info.Mode().Perm())); err != nil {
		return err
	}
	if isRequests(name) || c.unchanged(name, info) {
		return nil
	}
	before := time.Now()
	if err := c.folder(ctx, name); err != nil || !isLarge(name) {
		return err
	}
	names, err := namesIn(c.FS, to)
	c.large[name] = largeFolder{info, before, names}
	return err
}

// sameVersion reports whether two infos are of the same file, unchanged.
func sameVersion(a, b fs.FileInfo) bool {
	if a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) || a.Mode() != b.Mode() {
		return false
	}
	x, ok := a.Sys().(*syscall.Stat_t)
	y, both := b.Sys().(*syscall.Stat_t)
	return !ok || !both || x.Ino == y.Ino && changeTime(x).Equal(changeTime(y))
}

// file copies a file with its permissions, times and owner.
func (c *Copy) file(name string, info fs.FileInfo) (err error) {
	from, err := c.FS.Open(filepath.Join(c.From.Home, name))
	if err != nil {
		return err
	}
	defer from.Close()
	to := filepath.Join(c.To, name)
	f, err := c.FS.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close(), keepOwner(c.FS, to, info), c.FS.Chmod(to, info.Mode().Perm()),
		c.FS.Chtimes(to, time.Now(), info.ModTime()))
}

// keepOwner gives a file the owner of another one. Only root can.
func keepOwner(fsys FS, name string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return fsys.Chown(name, int(st.Uid), int(st.Gid))
}

// Frozen makes the last passes and copies the journal, while nothing is committed.
func (c *Copy) Frozen(ctx context.Context) error {
	for range 2 { // one alone may miss a file that gets its name while its folder is read
		if _, err := c.Pass(ctx); err != nil {
			return err
		}
	}
	return c.journal()
}

func (c *Copy) journal() error {
	names, err := namesIn(c.FS, c.From.Journal())
	if err != nil {
		return err
	}
	info, err := lstat(c.FS, c.From.Journal())
	if err != nil {
		return fmt.Errorf("copy journal: %w", err)
	}
	to := filepath.Join(c.To, partialJournal)
	if err := errors.Join(c.FS.RemoveAll(to), c.FS.Mkdir(to, 0o700), keepOwner(c.FS, to, info)); err != nil {
		return err
	}
	inside := &Copy{FS: c.FS, From: Layout{c.From.Journal()}, To: to}
	for _, name := range names {
		if !strings.HasPrefix(name, "segment-") {
			continue
		}
		info, err := lstat(c.FS, filepath.Join(inside.From.Home, name))
		if err == nil {
			err = inside.file(name, info)
		}
		if err != nil {
			return fmt.Errorf("copy journal: %w", err)
		}
	}
	return nil
}

// Complete makes the copy durable. Before, it has no journal: it is no HOME yet.
func (c *Copy) Complete() error {
	disk, err := c.FS.OpenFS(c.To)
	if err != nil {
		return err
	}
	err = disk.Sync()
	if err == nil {
		err = c.FS.Rename(filepath.Join(c.To, partialJournal), Layout{c.To}.Journal())
	}
	return errors.Join(err, disk.Sync(), disk.Close())
}

// Freeze calls f while nothing is committed. The caller has the lease.
func (s *Store) Freeze(f func() error) error {
	j := s.writer()
	if j == nil {
		return fmt.Errorf("freeze: %w", store.ErrLocked)
	}
	if err := s.checkJournal(j); err != nil {
		return err // a copy would lack what is only there
	}
	return j.Freeze(f)
}
