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
// After a line torn by a power cut, after a failed write or fsync, or at 16 MiB the
// log continues in a new segment, and the old one is never changed again. The new
// one appears atomically, with all lines that may be missing from the one before.
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
// Only the holder of HOME/lock writes; any process may read. Lines are written in
// the order of the calls, each with one write. Callers that wait for durability
// share fsyncs: the first syncs for all callers that have written by then, and the
// others wait. A checkpoint covers only durable lines, so a crash may lose it but
// never makes it wrong. There is no goroutine and no timer.
package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
)

// FS is the file system of the log.
type FS interface {
	afero.Fs
	// RenameNoReplace fails with fs.ErrExist if the new name exists.
	RenameNoReplace(oldname, newname string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
}

// ErrBroken says that a new segment's name could not be made durable. That is not
// retried: the log accepts no more entries until it is opened again. Any other
// failure is retried, on a new file, by the next Append or Sync.
var ErrBroken = fmt.Errorf("the audit log cannot be written: %w", store.ErrRestart)

var errClosed = errors.New("the audit log is closed")

const (
	maxSegment  = 16 << 20        // opening reads one segment: about 0.2 s
	maxUnsynced = 1 << 20         // notes kept in memory until a caller syncs
	signAfter   = 256             // entries between two periodic checkpoints
	signEvery   = 5 * time.Second // time between two periodic checkpoints
)

// Log is an open log. It is safe for concurrent use.
type Log struct {
	// OnEntry is called for every entry, in the log's order and before the entry is
	// durable. It must not call the log. Set it before the first entry.
	OnEntry func(event.Entry)

	fs  FS
	dir string
	now func() time.Time

	syncMu      sync.Mutex        // held while syncing; locked before mu
	signMu      sync.Mutex        // held while signing; locked before mu, never together with syncMu
	checkpoints *checkpointWriter // protected by signMu; nil: the log is not signed
	newest      atomic.Pointer[Checkpoint]

	mu          sync.Mutex
	file        afero.File // nil: the next sync begins a new segment
	unnamed     bool       // the segment's name may not be durable yet
	size        int64      // of file
	segment     int        // number of the last segment, 0: there is none
	seq         int64      // number of the last line
	durable     int64      // number of the last line that is durable
	unsynced    []byte     // the lines after it, for a new segment
	lastTried   int64      // size of the last checkpoint tried
	lastTriedAt time.Time
	tree        tree        // over the durable lines; only if the log is signed
	leaves      []tlog.Hash // of the lines after them
	foundAtOpen event.Entry // the last entry at Open
	stopped     error       // ErrBroken or errClosed
}

// OpenSigned opens the log in dir, an existing folder, and makes its content durable. The
// caller holds HOME/lock. A nil now is time.Now. The log is signed by Checkpoint, by Close,
// and every five seconds if there are 256 new entries; with the zero Keys it is not. If the
// log is shorter than its newest checkpoint, the error wraps ErrDamaged.
func OpenSigned(fsys FS, dir string, now func() time.Time, keys Keys) (*Log, error) {
	if now == nil {
		now = time.Now
	}
	l := &Log{fs: fsys, dir: dir, now: now}
	if keys.Signer != nil {
		l.checkpoints = &checkpointWriter{fs: fsys, dir: dir, signer: keys.Signer}
	}
	if err := l.open(keys); err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	l.lastTriedAt = now() // a burst right after the start does not wait for a signature
	return l, nil
}

func (l *Log) open(keys Keys) error {
	// A crash may leave a segment that was not renamed yet.
	if _, err := l.fs.Stat(l.temp()); err == nil {
		if err := l.fs.Remove(l.temp()); err != nil {
			return err
		}
	}
	all, err := segments(l.fs, l.dir)
	if err != nil {
		return err
	}
	if err := l.openSigning(keys); err != nil {
		return err
	}
	if len(all) == 0 {
		return l.checkLength()
	}
	l.segment = all[len(all)-1]
	f, err := l.fs.OpenFile(segmentPath(l.dir, l.segment), os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	complete, err := l.recover(f)
	if err == nil {
		err = l.checkLength()
	}
	if err != nil || !complete || l.size >= maxSegment {
		return errors.Join(err, f.Close())
	}
	l.file = f
	return nil
}

// recover finds the last complete line of the last segment, and makes everything up
// to it durable, because the next segment does not repeat those lines.
func (l *Log) recover(f afero.File) (complete bool, err error) {
	first, err := firstSeq(l.fs, segmentPath(l.dir, l.segment))
	if err != nil {
		return false, err
	}
	if err := l.extendTree(first); err != nil {
		return false, err
	}
	s := newScanner(f, first)
	for s.next() {
		l.seq, l.foundAtOpen = s.entry.Seq, s.entry
		l.addLeaf(l.seq, s.line)
	}
	if s.err != nil {
		return false, s.err
	}
	l.durable, l.size = l.seq, s.good
	if err := f.Sync(); err != nil {
		return false, err
	}
	return !s.torn, l.fs.SyncDir(l.dir)
}

// Append writes e and returns when it is durable. After an error the entry may or
// may not be in the log, and the caller must not run the action.
func (l *Log) Append(e event.Entry) error {
	seq, err := l.write(e)
	if err == nil {
		err = l.sync(seq)
	}
	if err != nil {
		return fmt.Errorf("append %s to audit log: %w", e.Event, err)
	}
	return nil
}

// Note writes e without waiting for the disk. The next Append, Sync or Close makes
// it durable, and returns the error if it could not be written.
func (l *Log) Note(e event.Entry) {
	if seq, err := l.write(e); err == nil && l.full() {
		_ = l.sync(seq) // the next Append returns the error
	}
}

func (l *Log) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unsynced) > maxUnsynced
}

// Sync makes all noted entries durable.
func (l *Log) Sync() error {
	l.mu.Lock()
	seq := l.seq
	l.mu.Unlock()
	if err := l.sync(seq); err != nil {
		return fmt.Errorf("sync audit log: %w", err)
	}
	return nil
}

// FoundAtOpen returns the newest entry at Open. Its Seq is 0 if there was none.
func (l *Log) FoundAtOpen() event.Entry { return l.foundAtOpen }

// Close makes all noted entries durable, signs the log and closes it.
func (l *Log) Close() error {
	err := l.Checkpoint()
	l.signMu.Lock()
	if l.checkpoints != nil {
		l.checkpoints.close()
	}
	l.signMu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped == nil {
		l.stopped = errClosed
	}
	l.closeSegment()
	return err
}

// write numbers the entry and writes its line, if there is an open segment. After a
// failed write the next sync begins a new segment with the line.
func (l *Log) write(e event.Entry) (seq int64, err error) {
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped != nil {
		return 0, l.stopped
	}
	e.Seq = l.seq + 1
	line, err := encode(e)
	if err != nil {
		return 0, err
	}
	l.seq = e.Seq
	if l.OnEntry != nil {
		l.OnEntry(e)
	}
	l.unsynced = append(l.unsynced, line...)
	if l.checkpoints != nil {
		l.leaves = append(l.leaves, leafHash(line[:len(line)-1]))
	}
	if l.file == nil {
		return l.seq, nil
	}
	l.size += int64(len(line))
	if _, err := l.file.Write(line); err != nil {
		l.closeSegment()
	}
	return l.seq, nil
}

// sync returns when every line up to seq is durable. Periodically the caller also
// signs them, without blocking the others.
func (l *Log) sync(seq int64) error {
	due, err := l.syncShared(seq)
	if due && l.signMu.TryLock() {
		_ = l.sign() // the lines are durable; Checkpoint returns the error
		l.signMu.Unlock()
	}
	return err
}

func (l *Log) syncShared(seq int64) (due bool, err error) {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.syncLines(seq)
	if err != nil || l.tree.size < l.lastTried+signAfter {
		return false, err
	}
	since := l.now().Sub(l.lastTriedAt)
	return since >= signEvery || since < 0, nil // the clock was set back
}

func (l *Log) syncLines(seq int64) error {
	switch {
	case seq <= l.durable: // another caller synced
		return nil
	case l.stopped != nil:
		return l.stopped
	}
	if err := l.syncName(); err != nil {
		return err
	}
	switch {
	case l.file == nil || !l.syncFile():
		return l.rotate()
	case l.size >= maxSegment:
		l.closeSegment()
	}
	return nil
}

// syncFile syncs the written lines. Other callers may write in the meantime. The
// caller holds both locks.
func (l *Log) syncFile() bool {
	file, upTo, n := l.file, l.seq, len(l.unsynced)
	l.mu.Unlock()
	err := file.Sync()
	l.mu.Lock()
	if err != nil {
		return false
	}
	l.markDurable(upTo)
	l.unsynced = append(l.unsynced[:0], l.unsynced[n:]...)
	return true
}

// rotate continues in a new segment, for example after a failed fsync. A second
// fsync of the same file could succeed although data was lost, so it is not
// retried. The new segment begins with the lines that the old one may lack.
func (l *Log) rotate() error {
	l.closeSegment()
	f, err := l.create(l.unsynced)
	if err != nil {
		return fmt.Errorf("begin segment: %w", err)
	}
	l.file, l.size, l.unnamed = f, int64(len(l.unsynced)), true
	l.segment++
	if err := l.syncName(); err != nil {
		return err
	}
	l.markDurable(l.seq)
	l.unsynced = l.unsynced[:0]
	return nil
}

// syncName makes the name of a new segment durable. A sync of the folder that could
// not start may be retried; after one that failed, a retry could succeed although
// the name was lost.
func (l *Log) syncName() error {
	if !l.unnamed {
		return nil
	}
	err := l.fs.SyncDir(l.dir)
	if err == nil {
		l.unnamed = false
		return nil
	}
	for _, began := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, fs.ErrPermission} {
		if errors.Is(err, began) {
			return fmt.Errorf("name segment: %w", err)
		}
	}
	l.stopped = fmt.Errorf("%w: %w", ErrBroken, err)
	return l.stopped
}

// create makes the next segment, with all of lines.
func (l *Log) create(lines []byte) (afero.File, error) {
	return create(l.fs, l.temp(), bytes.NewReader(lines), func() error {
		return l.fs.RenameNoReplace(l.temp(), segmentPath(l.dir, l.segment+1))
	})
}

// create makes a file under a temporary name, syncs it, and calls rename: so it appears
// atomically. It returns the file, open for appending.
func create(fsys FS, temp string, content io.Reader, rename func() error) (afero.File, error) {
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier attempt
		return nil, err
	}
	f, err := fsys.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = rename()
	}
	if err != nil {
		f.Close()
		fsys.Remove(temp)
		return nil, err
	}
	return f, nil
}

// closeSegment closes the current segment.
func (l *Log) closeSegment() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

func (l *Log) temp() string { return filepath.Join(l.dir, ".log.new") }
