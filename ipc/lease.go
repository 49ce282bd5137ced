package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/journal"
)

// Lease implements store.Store: it takes the lock of HOME, repairs the files from the
// journal, and begins a new life of it. The error wraps ErrLocked while another process has
// the lock.
func (s *Store) Lease(ctx context.Context) (release func() error, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lock, err := s.FS.TryLock(s.Layout.Lock())
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		s.notLeased.Store(&err)
	}
	if err != nil {
		return nil, classify(err)
	}
	// Opened before replay: what fails in between is reported to the syncs after it.
	if s.disk, err = s.FS.OpenFS(s.Layout.Home); err != nil {
		return nil, errors.Join(classify(err), lock.Close())
	}
	j, ready, err := s.recover()
	if err != nil {
		if _, missing := errors.AsType[*journal.MissingError](err); !missing {
			err = fmt.Errorf("recover from the journal: %w", err)
		}
		return nil, errors.Join(err, s.disk.Close(), lock.Close())
	}
	s.begin(lock, j)
	return func() error {
		err := s.Checkpoint(context.WithoutCancel(ctx))
		if errors.Is(err, store.ErrJournalLost) {
			err = errors.Join(err, s.saveFiles())
		}
		s.mu.Lock()
		s.lock = nil
		s.mu.Unlock()
		s.journal.Store(nil)
		return errors.Join(err, j.Close(), s.disk.Close(), ready.Close(), lock.Close())
	}, nil
}

// readOnly is the error of a Lease on a read-only file system: nothing can be written.
func (s *Store) readOnly() error {
	if err := s.notLeased.Load(); err != nil && errors.Is(*err, syscall.EROFS) {
		return *err
	}
	return nil
}

// recover brings the files to the state of the journal. A crash at any point only means to
// begin again: nothing in the journal is overwritten before the files are durable.
func (s *Store) recover() (*journal.Journal, Lock, error) {
	versioned, err := s.Layout.versioned(s.FS)
	if err != nil {
		return nil, nil, err
	}
	j, err := journal.Open(s.FS, s.Layout.Journal(), journal.Options{Size: s.JournalSize, Complete: versioned})
	if err != nil {
		return nil, nil, err
	}
	if !versioned {
		err = s.writeVersion()
	}
	var ready Lock
	if err == nil {
		ready, err = s.recoverFrom(j)
	}
	if err != nil {
		return nil, nil, errors.Join(err, j.Close())
	}
	return j, ready, nil
}

func (s *Store) recoverFrom(j *journal.Journal) (ready Lock, err error) {
	if err := s.replay(j); err != nil {
		return nil, err
	}
	if err := errors.Join(s.removeSpares(), s.sweepTemps(), s.emptyRun()); err != nil {
		return nil, err
	}
	if err := s.syncAll(); err != nil {
		return nil, err
	}
	if err := j.Begin(); err != nil {
		return nil, err
	}
	return s.takeReady()
}

// takeReady takes the lock that says that the writer has recovered. Another process holds
// it for a moment when it looks.
func (s *Store) takeReady() (ready Lock, err error) {
	for range 100 {
		if ready, err = s.FS.TryLock(s.Layout.Ready()); !errors.Is(err, ErrLocked) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return ready, err
}

func (s *Store) begin(lock Lock, j *journal.Journal) {
	w := &s.commits
	w.mu.Lock()
	w.pending, w.names = map[*commit]uint64{}, map[docKey]bool{}
	w.late, w.entries = map[docKey]lateFile{}, nil
	w.mu.Unlock()
	s.lateCount.Store(0)
	s.firstCommit.Store(0)
	s.lastCheckpoint.Store(time.Now().UnixNano())
	s.mu.Lock()
	s.lock = lock
	s.mu.Unlock()
	s.journal.Store(j)
}

// writer is the journal while this store has the lease, or nil.
func (s *Store) writer() *journal.Journal { return s.journal.Load() }

// Checkpoint implements store.Store.
func (s *Store) Checkpoint(ctx context.Context) error {
	j := s.writer()
	if err := ctx.Err(); err != nil || j == nil {
		return errors.Join(err, store.ErrUnavailable)
	}
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	if err := s.checkJournal(j); err != nil {
		return err
	}
	began, ended := s.firstCommit.Swap(0), s.spoil()
	err := s.checkpoint(j)
	if err != nil {
		s.firstCommit.CompareAndSwap(0, began)
	} else {
		s.lastCheckpoint.Store(time.Now().UnixNano())
	}
	ended(err)
	return classify(err)
}

// checkpoint commits a mark. Replay begins at a part that names the newest line of the log,
// or before it.
func (s *Store) checkpoint(j *journal.Journal) error {
	late := errors.Join(s.writeLate(), s.Flush())
	if s.firstMissing() <= j.Mark() { // the mark cannot move, and would only fill the journal
		if err := s.syncAll(); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	} else if err := s.moveMark(j); err != nil {
		return fmt.Errorf("checkpoint: %w", s.stop(err))
	}
	if late != nil {
		return fmt.Errorf("checkpoint: files wait for space: %w", late)
	}
	return nil
}

func (s *Store) moveMark(j *journal.Journal) error {
	last, err := s.commitLast(j)
	if err != nil {
		return err
	}
	return j.Checkpoint(s.syncAll, func() uint64 { return min(last, s.firstMissing()) })
}

// commitLast commits the newest line of the log, and returns its group.
func (s *Store) commitLast(j *journal.Journal) (group uint64, err error) {
	w := &s.commits
	w.order.Lock()
	line := s.lastLine
	if w.log != nil {
		_, line = w.log.Last()
	}
	body := appendPart(nil, partLast, line)
	group = j.Last() + 1
	wait := j.Add(body)
	w.order.Unlock()
	return group, wait()
}

// firstMissing is a group that is not after any commit whose files are missing.
func (s *Store) firstMissing() uint64 {
	w := &s.commits
	w.mu.Lock()
	defer w.mu.Unlock()
	first := uint64(math.MaxUint64)
	for _, group := range w.pending {
		first = min(first, group)
	}
	for _, f := range w.late {
		first = min(first, f.group)
	}
	if len(w.entries) > 0 {
		first = min(first, w.entries[0].group)
	}
	return first
}

// checkpointAfter is how long after a commit a checkpoint follows.
const checkpointAfter = 30 * time.Second

// NeedsCheckpoint implements store.Store.
func (s *Store) NeedsCheckpoint() bool {
	j := s.writer()
	if j == nil {
		return false
	}
	first := s.firstCommit.Load()
	return j.NeedsCheckpoint() || first != 0 && time.Since(time.Unix(0, first)) >= checkpointAfter
}

// Held reports whether this store has the lease, and HOME is still the folder that Lease
// locked. It is not, if HOME was removed or replaced since.
func (s *Store) Held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock != nil && s.lock.Held()
}

// Leased reports whether some process has the lease.
func (s *Store) Leased() (bool, error) {
	locked, err := s.FS.Locked(s.Layout.Lock())
	return locked, classify(err)
}

// Ready reports whether the process with the lease has recovered: a decision that is put
// into its slot now counts.
func (s *Store) Ready() bool {
	locked, err := s.FS.Locked(s.Layout.Ready())
	return locked && err == nil
}

// emptyRun removes the working folders of commands that ran when a daemon was killed.
// Those commands died with it.
func (s *Store) emptyRun() error {
	names, err := s.names(s.Layout.Run())
	for _, name := range names {
		err = errors.Join(err, s.FS.RemoveAll(filepath.Join(s.Layout.Run(), name)))
	}
	return err
}

func (s *Store) sweepTemps() error {
	if err := errors.Join(s.sweep(s.Layout.Grants()), s.sweep(s.Layout.APIKeys()), s.sweepSent()); err != nil {
		return err
	}
	names, err := s.Layout.Workspaces(s.FS)
	if err != nil {
		return err
	}
	for _, ws := range names {
		dirs := []string{
			s.Layout.Pendings(ws), s.Layout.Decisions(ws), s.Layout.Receipts(ws),
			s.Layout.Records(ws), s.Layout.Responses(ws), s.Layout.Errors(ws),
		}
		for _, dir := range dirs {
			if err := s.sweep(dir); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.sweep(s.Layout.Pauses()), s.sweep(s.Layout.EndedPauses()))
}

func (s *Store) sweepSent() error {
	sent := s.Layout.path("sent")
	channels, err := s.names(sent)
	for _, channel := range channels {
		if !ValidWorkspace(channel) {
			continue
		}
		dirs, listErr := s.names(filepath.Join(sent, channel))
		err = errors.Join(err, listErr)
		for _, dir := range dirs {
			err = errors.Join(err, s.sweep(filepath.Join(sent, channel, dir)))
		}
	}
	return err
}

func (s *Store) sweep(dir string) error {
	names, err := s.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, tempPrefix) {
			continue
		}
		// Another process that decides may rename its own temporary file meanwhile.
		if err := s.FS.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep: %w", err)
		}
	}
	return nil
}
