package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/event"
)

// Next numbers an entry and returns its line, with the line feed. The Committer calls it in
// the order of its commits, and Durable when the line is committed.
func (l *Log) Next(e event.Entry) (line []byte, seq int64, err error) {
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	l.numbers.Lock()
	defer l.numbers.Unlock()
	if l.closed {
		return nil, 0, errClosed
	}
	e.Seq = l.seq + 1
	if line, err = encode(e); err != nil {
		return nil, 0, err
	}
	l.seq = e.Seq
	if l.OnEntry != nil {
		l.OnEntry(e)
	}
	l.queue, l.queued = append(l.queue, line), l.queued+len(line)
	return line, e.Seq, nil
}

// Durable says that the lines up to seq are committed: it writes them, in order, with one
// write and without a sync. After a failed write the next call begins a new segment with
// all lines that the file may lack. Periodically it also signs the log.
func (l *Log) Durable(seq int64) error {
	l.files.Lock()
	defer l.files.Unlock()
	l.takeCommitted(seq)
	if len(l.unwritten) == 0 {
		return nil
	}
	if err := l.checkFiles(); err != nil {
		return fmt.Errorf("write audit log: %w", err)
	}
	if err := l.writeLines(); err != nil {
		return fmt.Errorf("write audit log: %w", err)
	}
	if l.OnWritten != nil {
		l.OnWritten(l.appended)
	}
	if l.signatureDue() {
		_ = l.sign() // Checkpoint returns the error
	}
	return nil
}

// Appended returns the number of the last line that is whole in the files.
func (l *Log) Appended() int64 {
	l.files.Lock()
	defer l.files.Unlock()
	return l.appended
}

// takeCommitted moves the lines up to seq from the queue.
func (l *Log) takeCommitted(seq int64) {
	l.numbers.Lock()
	defer l.numbers.Unlock()
	n := min(max(0, seq-(l.seq-int64(len(l.queue)))), int64(len(l.queue)))
	for _, line := range l.queue[:n] {
		l.queued -= len(line)
	}
	l.unwritten = append(l.unwritten, l.queue[:n]...)
	l.queue = slices.Delete(l.queue, 0, int(n))
}

// writeLines writes the committed lines into the current segment, or into a new one.
func (l *Log) writeLines() error {
	b := l.unwritten[0]
	if len(l.unwritten) > 1 {
		b = slices.Concat(l.unwritten...)
	}
	if l.file == nil {
		f, err := l.create(b)
		if err != nil {
			return fmt.Errorf("begin segment: %w", err)
		}
		l.file, l.size = f, 0
		l.segment++
	} else if _, err := l.file.Write(b); err != nil {
		l.closeSegment()
		return err
	}
	if l.size += int64(len(b)); l.size >= maxSegment {
		l.closeSegment()
	}
	for _, line := range l.unwritten {
		l.appended++
		l.addLeaf(l.appended, line[:len(line)-1])
	}
	l.last = l.unwritten[len(l.unwritten)-1]
	l.unwritten = slices.Delete(l.unwritten, 0, len(l.unwritten))
	return nil
}

// create makes the next segment, with lines.
func (l *Log) create(lines []byte) (afero.File, error) {
	return create(l.fs, filepath.Join(l.dir, tempName), lines, func(temp string) error {
		return l.fs.RenameNoReplace(temp, segmentPath(l.dir, l.segment+1))
	})
}

// tempName is that of a file without its name yet. A crash may leave one.
const tempName = ".log.new"

// create makes a file under a temporary name and calls rename: so it appears atomically. It
// returns the file, open for appending. A file that an earlier attempt left is not used: after
// a failed sync the kernel may write nothing of it.
func create(fsys FS, temp string, content []byte, rename func(temp string) error) (afero.File, error) {
	const create = os.O_WRONLY | os.O_CREATE | os.O_EXCL | os.O_APPEND
	f, err := fsys.OpenFile(temp, create, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err = fsys.Remove(temp); err == nil {
			f, err = fsys.OpenFile(temp, create, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(content); err == nil {
		err = rename(temp)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// createSynced is create for a file that is durable before it has its name.
func createSynced(fsys FS, dir, temp string, content []byte, rename func(temp string) error) error {
	f, err := create(fsys, filepath.Join(dir, temp), content, func(string) error { return nil })
	if err != nil {
		return err
	}
	err = errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = rename(filepath.Join(dir, temp))
	}
	return errors.Join(err, fsys.SyncDir(dir))
}

// closeSegment closes the current segment.
func (l *Log) closeSegment() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}
