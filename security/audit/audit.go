// Package audit keeps the gate's history: one entry per fact, in append-only files.
// Appended entries are durable.
//
// # Format
//
// The folder holds segments, log.jsonl, then log-2.jsonl, log-3.jsonl and so on.
// A segment has one JSON object per line, each ended by a line feed:
//
//	{"seq":1,"time":"2026-11-21T12:00:00Z","event":"approved","workspace":"personal",…}
//
// seq counts from 1, over all segments, without gaps. Lines are ASCII. Other
// characters are escaped as in JSON, so that an agent's text cannot end a line,
// change the writing direction or control a terminal. Invalid UTF-8 becomes U+FFFD.
// A value of more than 4096 bytes is cut, visibly.
//
// After a crash, after a failed write, or at 16 MiB the log continues in a new segment.
// The new one appears atomically, with all lines that may be missing from the one before.
// If both have a number, the later segment counts. An incomplete line, and all
// bytes after it, do not count.
//
// # Proof
//
// The lines are the leaves of an RFC 6962 tree. Its root is signed periodically;
// checkpoints.jsonl keeps these checkpoints. FORMAT.md describes how to verify a
// log without this package.
//
// # Writing
//
// Only the holder of HOME/lock writes; any process may read. An entry is durable in the
// store's journal, by a commit, before its line is in the log's file: the files are never
// synced here. After a crash [Complete] writes what the files lack, from the journal. A
// signed checkpoint covers only lines that are committed and written, so a crash may lose
// a checkpoint but never makes it wrong. There is no goroutine and no timer.
//
// What the journal does not have is never completed: if durable entries are missing, the log
// has an [Alarm], until the operator acknowledges it.
package audit

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/event"
)

// FS is the file system of the log.
type FS interface {
	afero.Fs
	// RenameNoReplace fails with fs.ErrExist if the new name exists.
	RenameNoReplace(oldname, newname string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
}

// Committer commits entries: the store. It calls Next and Durable of the log.
type Committer interface {
	// CommitEntry lets an entry join the next commit. wait returns when it is durable, and
	// in the log's file unless that cannot be written.
	CommitEntry(e event.Entry) (wait func() error, err error)
	// Flush returns when every entry that joined is durable and in the log's file.
	Flush() error
}

var errClosed = errors.New("the audit log is closed")

const (
	maxSegment = 16 << 20        // opening reads one segment: about 0.2 s
	maxNoted   = 1 << 20         // bytes of notes kept in memory until a caller waits
	signAfter  = 256             // entries between two periodic checkpoints
	signEvery  = 5 * time.Second // time between two periodic checkpoints
)

// Log is an open log. It is safe for concurrent use.
type Log struct {
	// OnEntry is called for every entry, in the log's order and before the entry is
	// durable. It must not call the log. Set it before the first entry.
	OnEntry func(event.Entry)
	// OnWritten is called when the lines up to seq are committed and in the files. It must
	// not call the log. nil: nothing is.
	OnWritten func(seq int64)
	// Committer commits the entries of Append and Note. Set it before the first entry.
	Committer Committer

	fs  FS
	dir string
	now func() time.Time

	newest  atomic.Pointer[Checkpoint]
	noted   atomic.Pointer[error] // why a note was not written
	hint    chan struct{}         // there are notes that no caller waits for
	alarmed bool                  // by Open
	torn    bool                  // at Open

	files       sync.Mutex        // locked before numbers
	file        afero.File        // nil: the next line begins a new segment
	size        int64             // of file
	segment     int               // number of the last segment, 0: there is none
	appended    int64             // number of the last line that is whole in the files
	last        []byte            // that line
	unwritten   [][]byte          // the committed lines after it
	tree        tree              // over the lines in the files; only if the log is signed
	checkpoints *checkpointWriter // nil: the log is not signed
	lastTried   int64             // size of the last checkpoint tried
	lastTriedAt time.Time

	numbers sync.Mutex
	seq     int64    // the last number
	queue   [][]byte // the last lines: not known to be committed
	queued  int      // their bytes
	closed  bool
}

// OpenSigned is OpenFrom without a head.
func OpenSigned(fsys FS, dir string, now func() time.Time, keys Keys) (*Log, error) {
	return OpenFrom(fsys, dir, now, keys, nil)
}

// OpenFrom opens the log in dir, an existing folder. The caller holds HOME/lock, and has
// called Recover, which returned the head; nil: it is not known. A nil now is time.Now. The
// log is signed by Checkpoint, by Close, and every five seconds if there are 256 new entries;
// with the zero Keys it is not.
//
// OpenFrom reads the complete log. If that is not what the head and the newest checkpoint say,
// it gets an Alarm, goes on after the last entry that can be read, and is signed anew: Alarmed
// reports that. No line is removed from the folder.
func OpenFrom(fsys FS, dir string, now func() time.Time, keys Keys, journalHead []byte) (*Log, error) {
	if now == nil {
		now = time.Now
	}
	expected, err := parseHead(journalHead)
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	l, alarm, err := open(fsys, dir, now, keys, expected)
	if err == nil && alarm != nil {
		if err = alarm.raise(fsys, dir, now()); err == nil {
			l, alarm, err = open(fsys, dir, now, keys, head{})
		}
		if err == nil && alarm != nil {
			err = fmt.Errorf("%w: %s", ErrDamaged, alarm.Reason)
		}
		if err == nil {
			l.alarmed = true
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	l.lastTriedAt = now() // a burst right after the start does not wait for a signature
	return l, nil
}

// open opens a log, unless it returns what is wrong with it.
func open(fsys FS, dir string, now func() time.Time, keys Keys, expected head) (*Log, *finding, error) {
	l := &Log{fs: fsys, dir: dir, now: now, hint: make(chan struct{}, 1)}
	if keys.Signer != nil {
		l.checkpoints = &checkpointWriter{fs: fsys, dir: dir, signer: keys.Signer}
	}
	if err := l.openSigning(keys); err != nil {
		return nil, nil, err
	}
	raised, err := ReadAlarm(fsys, dir)
	if err != nil {
		return nil, nil, err
	}
	sizes := []int64{expected.size}
	newest := l.newest.Load()
	if newest != nil {
		sizes = append(sizes, newest.Size)
	}
	if raised != nil {
		sizes = append(sizes, raised.Size)
	}
	s, err := takeSurvey(fsys, dir, sizes...)
	if err != nil {
		return nil, nil, err
	}
	if f := s.compare(expected, newest); f != nil {
		return nil, f, nil
	}
	if err := raised.noteReturn(fsys, dir, s); err != nil {
		return nil, nil, err
	}
	return l, nil, l.openSegment(s)
}

// openSegment opens the last segment for appending, if it is whole and not too long.
func (l *Log) openSegment(s *survey) error {
	l.segment, l.size, l.appended, l.seq = s.segment, s.good, s.size, s.size
	l.last, l.torn = s.last, !s.whole
	if l.checkpoints != nil {
		l.tree = s.tree
	}
	if s.segment == 0 || !s.whole || s.good >= maxSegment {
		return nil
	}
	f, err := l.fs.OpenFile(segmentPath(l.dir, s.segment), os.O_RDWR|os.O_APPEND, 0o600)
	l.file = f
	return err
}

// Alarmed reports whether opening the log raised an Alarm.
func (l *Log) Alarmed() bool { return l.alarmed }

// Torn reports whether bytes that do not count follow the last entry: only with the next one,
// which begins a new segment, the log can be read without an error.
func (l *Log) Torn() bool { return l.torn }

// Append commits e and returns when it is durable. After an error the entry may or
// may not be in the log, and the caller must not run the action.
func (l *Log) Append(e event.Entry) error {
	err := l.noteErr()
	if err == nil {
		err = l.commit(e)
	}
	if err != nil {
		return fmt.Errorf("append %s to audit log: %w", e.Event, err)
	}
	return nil
}

func (l *Log) commit(e event.Entry) error {
	wait, err := l.Committer.CommitEntry(e)
	if err != nil {
		return err
	}
	return wait()
}

// Note commits e without waiting for the disk. The next Append, Sync or Close makes
// it durable, and returns the error if it could not be committed.
func (l *Log) Note(e event.Entry) {
	if _, err := l.Committer.CommitEntry(e); err != nil {
		err = fmt.Errorf("note %s: %w", e.Event, err)
		l.noted.Store(&err)
		return
	}
	select {
	case l.hint <- struct{}{}:
	default:
	}
	if l.full() {
		_ = l.Committer.Flush() // the next Append returns the error
	}
}

// Noted gets a value when there are entries that no caller waits for: a Sync lets readers
// see them.
func (l *Log) Noted() <-chan struct{} { return l.hint }

func (l *Log) noteErr() error {
	if err := l.noted.Swap(nil); err != nil {
		return *err
	}
	return nil
}

func (l *Log) full() bool {
	l.numbers.Lock()
	defer l.numbers.Unlock()
	return l.queued > maxNoted
}

// Sync makes all noted entries durable.
func (l *Log) Sync() error {
	err := l.noteErr()
	if l.outstanding() {
		err = errors.Join(err, l.Committer.Flush())
	}
	if err != nil {
		return fmt.Errorf("sync audit log: %w", err)
	}
	return nil
}

// outstanding reports whether a line is not in the files.
func (l *Log) outstanding() bool {
	l.files.Lock()
	defer l.files.Unlock()
	l.numbers.Lock()
	defer l.numbers.Unlock()
	return len(l.unwritten)+len(l.queue) > 0
}

// Close makes all noted entries durable, signs the log and closes it.
func (l *Log) Close() error {
	if l.isClosed() {
		return nil
	}
	err := l.Checkpoint()
	l.numbers.Lock()
	l.closed = true
	l.numbers.Unlock()
	l.files.Lock()
	defer l.files.Unlock()
	if l.checkpoints != nil {
		l.checkpoints.close()
	}
	l.closeSegment()
	return err
}

func (l *Log) isClosed() bool {
	l.numbers.Lock()
	defer l.numbers.Unlock()
	return l.closed
}
