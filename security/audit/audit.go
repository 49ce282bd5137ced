// Package audit keeps the gate's history: one entry per fact, in files that are
// only ever appended to. What was appended is on the disk.
//
// # Format
//
// The folder holds segments, log.jsonl, then log-2.jsonl, log-3.jsonl and so on.
// A segment has one JSON object per line, each ended by a line feed:
//
//	{"seq":1,"time":"2026-11-21T12:00:00Z","event":"approved","workspace":"personal",…}
//
// seq counts from 1, over all segments, without gaps. Lines are plain ASCII:
// everything else is escaped as JSON permits, so that no text of an agent's can
// end a line, turn the direction of writing or speak to a terminal. Bytes that
// are not UTF-8 become U+FFFD, and a value of more than 4096 bytes is cut and
// says so.
//
// A segment is never changed once something went wrong with it: after a line
// torn by a power cut, after a failed write or fsync, or at 16 MiB the log goes
// on in the next one. That one appears whole, with all lines that may be missing
// from the one before. Where both have a number, the later segment holds; a line
// that is not whole, and all behind it, never counted.
//
// # Proof
//
// The lines are the leaves of an RFC 6962 tree, whose root is signed from time to
// time: checkpoints.jsonl keeps these checkpoints. FORMAT.md has all that is
// needed to verify a log without this package.
//
// # Writing
//
// One process writes, the holder of HOME/lock; everybody may read. Lines are
// written in the order of the calls, each with one write. Callers that wait for
// durability share fsyncs: the first in line syncs for all who have written by
// then, the others wait for it. A checkpoint is of lines that are durable, so it
// may be lost in a crash and is never wrong. There is no goroutine and no timer.
package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/permesso-dev/permesso/approval"
)

// FS is the file system that the log lies on.
type FS interface {
	afero.Fs
	// RenameNoReplace fails with fs.ErrExist where the new name exists.
	RenameNoReplace(oldname, newname string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
}

// ErrBroken says that a new segment's name could not be made durable, which is
// never tried twice. The log takes no more; only opening it again can help.
// Whatever else fails is tried again, on a new file, by the next Append or Sync.
var ErrBroken = fmt.Errorf("the audit log cannot be written: %w", approval.ErrRestart)

var errClosed = errors.New("the audit log is closed")

const (
	maxSegment  = 16 << 20        // opening reads one segment: about 0.2 s
	maxUnsynced = 1 << 20         // notes kept in memory until a caller syncs
	signAfter   = 256             // entries between two checkpoints, while nobody asks for one
	signEvery   = 5 * time.Second // and the time
)

// Log is the open log. Its methods may be called by many goroutines at once.
type Log struct {
	// Heard is told of every entry, in the log's order and before it is
	// durable; it must not call the log. Set it before the first entry.
	Heard func(approval.Entry)

	fs  FS
	dir string
	now func() time.Time

	syncing sync.Mutex // held by the one caller that syncs; taken before mu
	marking sync.Mutex // held by the one caller that signs; taken before mu, never with syncing
	signing *signing   // under marking; nil: the log is not signed
	newest  atomic.Pointer[Checkpoint]

	mu       sync.Mutex
	file     afero.File // nil: the next sync begins a new segment
	unnamed  bool       // the segment's name may not be durable yet
	size     int64      // of file
	segment  int        // number of the last segment, 0: there is none
	seq      int64      // number of the last line
	durable  int64      // number of the last line that is durable
	unsynced []byte     // the lines after it, for a new segment
	tried    int64      // size of the last checkpoint tried
	triedAt  time.Time
	tree     tree           // over the lines that are durable; only where the log is signed
	leaves   []tlog.Hash    // of the lines after them
	found    approval.Entry // the last when the log was opened
	stopped  error          // ErrBroken or errClosed
}

// Open opens the log in dir, an existing folder, and makes durable what is in
// it. The caller holds HOME/lock. A nil now is time.Now. Nothing is signed.
func Open(fsys FS, dir string, now func() time.Time) (*Log, error) {
	return OpenSigned(fsys, dir, now, Keys{})
}

// OpenSigned is Open for a log that is signed from time to time: by Checkpoint,
// by Close, and every five seconds while there are 256 new entries. A log that is shorter than its newest
// checkpoint is an error that wraps ErrDamaged.
func OpenSigned(fsys FS, dir string, now func() time.Time, keys Keys) (*Log, error) {
	if now == nil {
		now = time.Now
	}
	l := &Log{fs: fsys, dir: dir, now: now}
	if keys.Signer != nil {
		l.signing = &signing{fs: fsys, dir: dir, signer: keys.Signer}
	}
	if err := l.open(keys); err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	l.triedAt = now() // a burst right after the start is not made to wait for a signature
	return l, nil
}

func (l *Log) open(keys Keys) error {
	// What a crash left of a segment that never got its name.
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
	whole, err := l.recover(f)
	if err == nil {
		err = l.checkLength()
	}
	if err != nil || !whole || l.size >= maxSegment {
		return errors.Join(err, f.Close())
	}
	l.file = f
	return nil
}

// recover finds the last whole line of the last segment, and makes everything
// up to it durable: the next segment says nothing about those lines.
func (l *Log) recover(f afero.File) (whole bool, err error) {
	first, err := firstSeq(l.fs, segmentPath(l.dir, l.segment))
	if err != nil {
		return false, err
	}
	if err := l.grow(first); err != nil {
		return false, err
	}
	s := newScanner(f, first)
	for s.next() {
		l.seq, l.found = s.entry.Seq, s.entry
		l.plant(l.seq, s.line)
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

// Append writes e and returns when it is durable. After an error the entry may
// be in the log or not; what it was to precede must not happen.
func (l *Log) Append(e approval.Entry) error {
	seq, err := l.write(e)
	if err == nil {
		err = l.sync(seq)
	}
	if err != nil {
		return fmt.Errorf("append %s to audit log: %w", e.Event, err)
	}
	return nil
}

// Note writes e without waiting for the disk: it becomes durable with the next
// Append, Sync or Close, which also tell if it could not be written.
func (l *Log) Note(e approval.Entry) {
	if seq, err := l.write(e); err == nil && l.full() {
		_ = l.sync(seq) // the error stops the log: the next Append tells
	}
}

func (l *Log) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unsynced) > maxUnsynced
}

// Sync makes durable what was noted.
func (l *Log) Sync() error {
	l.mu.Lock()
	seq := l.seq
	l.mu.Unlock()
	if err := l.sync(seq); err != nil {
		return fmt.Errorf("sync audit log: %w", err)
	}
	return nil
}

// Found is the newest entry that was there when the log was opened; without any
// its Seq is 0.
func (l *Log) Found() approval.Entry { return l.found }

// Close makes durable what was noted, signs it, and ends the log.
func (l *Log) Close() error {
	err := l.Checkpoint()
	l.marking.Lock()
	if l.signing != nil {
		l.signing.close()
	}
	l.marking.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped == nil {
		l.stopped = errClosed
	}
	l.drop()
	return err
}

// write numbers the entry and writes its line, if there is a segment to write
// to. A write that fails is made good by the new segment of the next sync.
func (l *Log) write(e approval.Entry) (seq int64, err error) {
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
	if l.Heard != nil {
		l.Heard(e)
	}
	l.unsynced = append(l.unsynced, line...)
	if l.signing != nil {
		l.leaves = append(l.leaves, leafHash(line[:len(line)-1]))
	}
	if l.file == nil {
		return l.seq, nil
	}
	l.size += int64(len(line))
	if _, err := l.file.Write(line); err != nil {
		l.drop()
	}
	return l.seq, nil
}

// sync returns when every line up to seq is durable. Now and then the caller
// signs them too, without making the others wait.
func (l *Log) sync(seq int64) error {
	due, err := l.syncShared(seq)
	if due && l.marking.TryLock() {
		_ = l.sign() // the lines are durable; Checkpoint tells what is wrong
		l.marking.Unlock()
	}
	return err
}

func (l *Log) syncShared(seq int64) (due bool, err error) {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.syncLines(seq)
	if err != nil || l.tree.size < l.tried+signAfter {
		return false, err
	}
	since := l.now().Sub(l.triedAt)
	return since >= signEvery || since < 0, nil // a clock that was set back
}

func (l *Log) syncLines(seq int64) error {
	switch {
	case seq <= l.durable: // somebody synced for us
		return nil
	case l.stopped != nil:
		return l.stopped
	}
	if err := l.name(); err != nil {
		return err
	}
	switch {
	case l.file == nil || !l.syncFile():
		return l.rotate()
	case l.size >= maxSegment:
		l.drop()
	}
	return nil
}

// syncFile syncs what was written before; meanwhile others may write. The
// caller holds both locks.
func (l *Log) syncFile() bool {
	file, upTo, n := l.file, l.seq, len(l.unsynced)
	l.mu.Unlock()
	err := file.Sync()
	l.mu.Lock()
	if err != nil {
		return false
	}
	l.settle(upTo)
	l.unsynced = append(l.unsynced[:0], l.unsynced[n:]...)
	return true
}

// rotate goes on in a new segment, after a failed fsync for example: that is
// never tried again on the same file, where it would succeed and mean nothing.
// The new segment begins with the lines that the old one may lack.
func (l *Log) rotate() error {
	l.drop()
	f, err := l.create(l.unsynced)
	if err != nil {
		return fmt.Errorf("begin segment: %w", err)
	}
	l.file, l.size, l.unnamed = f, int64(len(l.unsynced)), true
	l.segment++
	if err := l.name(); err != nil {
		return err
	}
	l.settle(l.seq)
	l.unsynced = l.unsynced[:0]
	return nil
}

// name makes the name of a new segment durable. A sync of the folder that could
// not begin may be tried again; one that failed would succeed the next time and
// mean nothing.
func (l *Log) name() error {
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

// create makes the next segment: it appears under its name with all of lines,
// or not at all.
func (l *Log) create(lines []byte) (afero.File, error) {
	const how = os.O_WRONLY | os.O_CREATE | os.O_EXCL | os.O_APPEND
	f, err := l.fs.OpenFile(l.temp(), how, 0o600)
	if errors.Is(err, fs.ErrExist) { // an earlier attempt could not tidy up
		if err = l.fs.Remove(l.temp()); err == nil {
			f, err = l.fs.OpenFile(l.temp(), how, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	_, err = f.Write(lines)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.fs.RenameNoReplace(l.temp(), segmentPath(l.dir, l.segment+1))
	}
	if err != nil {
		f.Close()
		l.fs.Remove(l.temp())
		return nil, err
	}
	return f, nil
}

// drop writes no more to the segment in use.
func (l *Log) drop() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

func (l *Log) temp() string { return filepath.Join(l.dir, ".log.new") }
