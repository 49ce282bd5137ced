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
// journal, and begins a new life of it. The error wraps store.ErrLocked while another process has
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
	if err := errors.Join(s.sweepTemps(), s.empty(s.Layout.Run())); err != nil {
		return nil, err
	}
	if err := s.syncAll(); err != nil {
		return nil, err
	}
	if err := j.Begin(); err != nil {
		return nil, err
	}
	if err := commitHead(j, s.logHead); err != nil {
		return nil, err
	}
	return s.takeReady()
}

// takeReady takes the lock that says that the writer has recovered. Another process holds
// it for a moment when it looks.
func (s *Store) takeReady() (ready Lock, err error) {
	for range 100 {
		if ready, err = s.FS.TryLock(s.Layout.Ready()); !errors.Is(err, store.ErrLocked) {
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
	s.SetLog(nil) // that of an earlier lease is closed
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
	began := s.firstCommit.Swap(0)
	err := s.checkpoint(j)
	if err != nil {
		s.firstCommit.CompareAndSwap(0, began)
	} else {
		s.lastCheckpoint.Store(time.Now().UnixNano())
	}
	return classify(err)
}

// checkpoint commits a mark. Replay begins before a part that has the head of the log.
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

// moveMark commits the head of the log after the sync, so that it names only what is durable.
func (s *Store) moveMark(j *journal.Journal) error {
	head, group := s.headNow(j)
	return j.Checkpoint(func() error {
		if err := s.syncAll(); err != nil {
			return err
		}
		return commitHead(j, head)
	}, func() uint64 { return min(group, s.firstMissing()) })
}

// headNow returns the head of the log, and a group that is not after any later entry.
func (s *Store) headNow(j *journal.Journal) (head []byte, group uint64) {
	w := &s.commits
	w.order.Lock()
	defer w.order.Unlock()
	if head = s.logHead; w.log != nil {
		head = w.log.Head()
	}
	return head, j.Last() + 1
}

func commitHead(j *journal.Journal, head []byte) error {
	if len(head) == 0 {
		return nil
	}
	return j.Add(appendPart(nil, partHead, head))()
}

// LogHead returns the head that the audit log must have, nil if it is not known.
func (s *Store) LogHead() []byte {
	w := &s.commits
	w.order.Lock()
	defer w.order.Unlock()
	if w.log != nil {
		return w.log.Head()
	}
	return s.logHead
}

// CommitLogHead commits the head of the log that SetLog has set: after an alarm it is not the
// one that the journal has. It comes before every entry of that log.
func (s *Store) CommitLogHead() error {
	j := s.writer()
	if j == nil {
		return store.ErrUnavailable
	}
	head, _ := s.headNow(j)
	if err := commitHead(j, head); err != nil {
		return fmt.Errorf("commit head of audit log: %w", s.stop(err))
	}
	return nil
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

// empty removes all in a folder. In run/ that is what commands left when a daemon was killed:
// they died with it.
func (s *Store) empty(dir string) error {
	names, err := s.names(dir)
	for _, name := range names {
		err = errors.Join(err, s.FS.RemoveAll(filepath.Join(dir, name)))
	}
	return err
}

// sweepTemps removes temporary files, except from requests/, which is the agent's.
func (s *Store) sweepTemps() error {
	folders := append(s.Layout.homeFolders(), folder{path: s.Layout.APIKeys(), refuse: othersAccess},
		folder{path: s.Layout.Home, refuse: othersAccess})
	names, err := s.Layout.Workspaces(s.FS)
	if err != nil {
		return err
	}
	for _, ws := range names {
		folders = append(folders, s.Layout.workspaceFolders(ws)...)
	}
	for _, f := range folders {
		if f.refuse == 0 {
			continue
		}
		if err := s.sweep(f.path); err != nil {
			return err
		}
	}
	return s.sweepSent()
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
