package audit

import (
	"bytes"
	"fmt"
	"math"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/event"
)

// Line is an entry and the bytes it was written with, without the line feed.
type Line struct {
	event.Entry
	Raw []byte
}

// Tail reads the end of a log and then new entries, over segments. The daemon may
// be writing.
type Tail struct {
	FS  afero.Fs
	Dir string

	at place // after the last line that was read
}

// Last returns the last n entries, oldest first. Next continues after them.
func (t *Tail) Last(n int) ([]Line, error) {
	t.at = place{segment: 1, seq: 1}
	all, err := segments(t.FS, t.Dir)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	w := &walk{fs: t.FS, dir: t.Dir}
	var lines []Line
	stop := int64(math.MaxInt64)
	for i := len(all) - 1; i >= 0 && (len(lines) < n || i == len(all)-1); i-- {
		first, err := firstSeq(t.FS, segmentPath(t.Dir, all[i]))
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		var here []Line
		_, err = w.segment(place{segment: all[i], seq: first}, stop, math.MaxInt64, func(line []byte, e event.Entry, next place) error {
			if here = append(here, Line{e, bytes.Clone(line)}); len(here) > 2*n+64 {
				here = append(here[:0], here[len(here)-n:]...)
			}
			if i == len(all)-1 {
				t.at = next
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		lines, stop = append(here, lines...), first
	}
	return lines[max(0, len(lines)-n):], nil
}

// Next calls each for every new entry, until it returns an error.
func (t *Tail) Next(each func(Line) error) error {
	if t.at.segment == 0 {
		t.at = place{segment: 1, seq: 1}
	}
	all, err := segments(t.FS, t.Dir)
	if err != nil || len(all) == 0 {
		return err
	}
	w := &walk{fs: t.FS, dir: t.Dir}
	from, err := w.find(all, t.at.seq)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	if from.segment <= t.at.segment {
		from = t.at // skip what a new segment repeats
	}
	return w.lines(all, from, math.MaxInt64, func(line []byte, e event.Entry, next place) error {
		if e.Seq < t.at.seq {
			return nil
		}
		t.at = next
		return each(Line{e, bytes.Clone(line)})
	})
}

// Path is the current segment.
func (t *Tail) Path() string { return segmentPath(t.Dir, max(t.at.segment, 1)) }

// Last returns the last n entries of the log in dir, oldest first. The daemon may be
// writing. If an entry cannot be read, the error wraps ErrDamaged. Earlier segments are
// checked only as far as they are needed.
func Last(fsys afero.Fs, dir string, n int) ([]event.Entry, error) {
	lines, err := (&Tail{FS: fsys, Dir: dir}).Last(n)
	entries := make([]event.Entry, len(lines))
	for i, l := range lines {
		entries[i] = l.Entry
	}
	return entries, err
}
