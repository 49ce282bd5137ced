package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/journal"
)

// health holds the write failures of a Store.
type health struct {
	mu         sync.Mutex
	restartErr error    // a write or sync failed that is not repeated: until the restart
	leftovers  sync.Map // files that could not be removed
}

// syncDir makes the names in a folder durable. A sync that failed in the kernel is never
// repeated: the next one would succeed without writing anything.
func (s *Store) syncDir(dir string) error {
	if err := s.restartErr(); err != nil {
		return err
	}
	return s.stop(s.FS.SyncDir(dir))
}

// syncAll makes every file below HOME durable.
func (s *Store) syncAll() error {
	if s.SyncEach {
		return s.stop(s.syncChanged())
	}
	return s.stop(s.disk.Sync())
}

// stop records that nothing can be committed any more, unless err is of another kind.
func (s *Store) stop(err error) error {
	if err == nil || notOpened(err) || errors.Is(err, store.ErrRestart) || errors.Is(err, journal.ErrNoRoom) || errors.Is(err, journal.ErrTooLarge) {
		return err
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.restartErr = fmt.Errorf("%w: %w", store.ErrRestart, err)
	return s.health.restartErr
}

// checkJournal stops this store if the journal was removed or replaced: the next start would
// not find what is committed to it.
func (s *Store) checkJournal(j *journal.Journal) error {
	if err := s.restartErr(); err != nil {
		return err
	}
	err := j.CheckNames()
	if err == nil {
		return nil
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.restartErr = hints.Add(&classified{store.ErrJournalLost, err},
		"stop the daemon, which then writes its files; if the journal was moved, move it back; otherwise move what is left of the folder journal, and the file version, away from HOME; then start the daemon")
	return s.health.restartErr
}

// saveFiles makes the files durable without the journal: nothing is committed any more.
func (s *Store) saveFiles() error { return errors.Join(s.writeLate(), s.Flush(), s.syncAll()) }

func (s *Store) restartErr() error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.restartErr
}

// notOpened reports whether an error came from opening the file or folder to be synced.
func notOpened(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, fs.ErrPermission, fs.ErrNotExist} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// discard removes a file. If that fails, Probe tries again.
func (s *Store) discard(name string) {
	if err := s.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.health.leftovers.Store(name, true)
		return
	}
	s.health.leftovers.Delete(name)
}

// Probe implements store.Store.
func (s *Store) Probe(ctx context.Context) (err error) {
	defer func() { err = classify(err) }()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, name := range sortedNames(&s.health.leftovers) {
		s.discard(name)
	}
	if err := s.restartErr(); err != nil {
		return err
	}
	if err := s.probeDisk(); err != nil {
		return fmt.Errorf("probe disk: %w", err)
	}
	j := s.writer()
	if j == nil {
		return nil
	}
	return errors.Join(s.checkJournal(j), s.writeLate(), s.Flush())
}

func sortedNames(set *sync.Map) (names []string) {
	for name := range set.Range {
		names = append(names, name.(string))
	}
	slices.Sort(names)
	return names
}

// probeDisk writes, renames and removes one file in run/.
func (s *Store) probeDisk() error {
	name := filepath.Join(s.Layout.Run(), "probe")
	err := s.replace(name, make([]byte, 4096), 0o600)
	s.discard(name)
	return err
}

// inodesPerRun is how many files one run may create: claims, record, response, temporary
// files, and a segment of the log.
const inodesPerRun = 8

// reservation is the space that is reserved for running actions.
type reservation struct {
	mu    sync.Mutex
	bytes uint64
	runs  uint64
}

// Reserve implements store.Store. Other programs can still use up the disk's space. The
// error is store.ErrNoSpace when free space minus reserved space is less than bytes.
func (s *Store) Reserve(ctx context.Context, bytes int64) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if j := s.writer(); j != nil {
		if err := s.checkJournal(j); errors.Is(err, store.ErrJournalLost) {
			return nil, err
		}
	}
	want := uint64(max(bytes, 0))
	r := &s.reserved
	r.mu.Lock()
	defer r.mu.Unlock()
	free, inodes, err := s.FS.Free(s.Layout.Home)
	switch {
	case err != nil:
		return nil, fmt.Errorf("check free space: %w", classify(err))
	case free < r.bytes+want:
		return nil, fmt.Errorf("%w: %d KiB free, %d KiB needed", store.ErrNoSpace, free>>10, (r.bytes+want)>>10)
	case inodes < (r.runs+1)*inodesPerRun:
		return nil, fmt.Errorf("%w: %d inodes free, %d needed", store.ErrNoSpace, inodes, (r.runs+1)*inodesPerRun)
	}
	room := func() {}
	if j := s.writer(); j != nil {
		if room, err = j.Reserve(min(bytes, maxInJournal) + maxLine); err != nil {
			return nil, classify(err)
		}
	}
	r.bytes += want
	r.runs++
	return sync.OnceFunc(func() {
		room()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bytes -= want
		r.runs--
	}), nil
}
