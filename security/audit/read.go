package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
)

// ErrDamaged says that lines are missing or changed in a way that a crash does not
// cause.
var ErrDamaged = errors.New("the audit log is damaged")

// Entries calls each for every entry in dir, oldest first, until it returns an
// error. The daemon may be writing. A folder without a log has no entries. The
// error is each's, or wraps ErrDamaged after all entries before the damage.
func Entries(fsys afero.Fs, dir string, each func(event.Entry) error) error {
	return EntriesAfter(fsys, dir, 0, each)
}

// EntriesAfter is Entries for the entries with numbers above seq. It does not read
// segments that contain only older ones.
func EntriesAfter(fsys afero.Fs, dir string, seq int64, each func(event.Entry) error) error {
	all, err := segments(fsys, dir)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	w := &walk{fs: fsys, dir: dir}
	from, err := w.find(all, seq+1)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	return w.lines(all, from, math.MaxInt64, func(_ []byte, e event.Entry, _ place) error {
		if e.Seq <= seq {
			return nil
		}
		return each(e)
	})
}

// place is the beginning of a line.
type place struct {
	segment int
	offset  int64
	seq     int64 // the line's number
}

// walk reads the lines that count.
type walk struct {
	fs  afero.Fs
	dir string

	// left is called for content of a segment after the last line that counts: lines
	// that the next segment repeats, and bytes that are not lines. If nil, such
	// content is not read.
	left func(path string, seq int64, line, rest []byte)
}

// lines calls each for every line from a place to before number end, with the place
// after it. all are the segments.
func (w *walk) lines(all []int, from place, end int64, each func(line []byte, e event.Entry, next place) error) error {
	for i, n := range all {
		if n < from.segment {
			continue
		}
		stop := int64(math.MaxInt64)
		if i+1 < len(all) {
			var err error
			if stop, err = firstSeq(w.fs, segmentPath(w.dir, all[i+1])); err != nil {
				return fmt.Errorf("read audit log: %w", err)
			}
		}
		seq, err := w.segment(from, stop, end, each)
		if err != nil {
			return err
		}
		if seq >= end {
			return nil
		}
		from = place{segment: n + 1, seq: seq}
	}
	return nil
}

// segment calls each for the lines of one segment, to before number stop, where the
// next one begins, or end. It returns the next number.
func (w *walk) segment(from place, stop, end int64, each func([]byte, event.Entry, place) error) (int64, error) {
	path := segmentPath(w.dir, from.segment)
	f, err := w.fs.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(from.offset, io.SeekStart); err != nil {
		return 0, fmt.Errorf("read audit log: %w", err)
	}
	s := newScanner(f, from.seq)
	for s.want < min(stop, end) && s.next() {
		if err := each(s.line, s.entry, place{from.segment, from.offset + s.good, s.want}); err != nil {
			return 0, err
		}
	}
	switch {
	case s.err != nil:
		return 0, fmt.Errorf("read audit log: %w", s.err)
	case s.want == end:
	case stop == math.MaxInt64 && s.torn && s.ended: // ended by a line feed, so it is not being written
		return 0, fmt.Errorf("read audit log: %w: %s has an invalid line after number %d", ErrDamaged, path, s.want-1)
	case stop != math.MaxInt64 && s.want != stop:
		return 0, fmt.Errorf("read audit log: %w: number %d is missing in %s", ErrDamaged, s.want, path)
	case w.left != nil:
		return s.want, w.leftovers(f, path, from.offset, s)
	}
	return s.want, nil
}

// leftovers reports the content after the last line that counts.
func (w *walk) leftovers(f afero.File, path string, offset int64, s *scanner) error {
	next := s.want
	for !s.torn && s.next() {
		w.left(path, s.entry.Seq, s.line, nil)
	}
	if s.err != nil {
		return fmt.Errorf("read audit log: %w", s.err)
	}
	s.want = next
	if !s.torn {
		return nil
	}
	_, err := f.Seek(offset+s.good, io.SeekStart)
	rest, readErr := io.ReadAll(f)
	if err = errors.Join(err, readErr); err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	if len(rest) > 0 {
		w.left(path, next, nil, rest)
	}
	return nil
}

// find returns the beginning of the segment that contains a number.
func (w *walk) find(all []int, seq int64) (place, error) {
	for i := len(all) - 1; i >= 0; i-- {
		first, err := firstSeq(w.fs, segmentPath(w.dir, all[i]))
		if err != nil {
			return place{}, err
		}
		if first <= seq {
			return place{segment: all[i], seq: first}, nil
		}
	}
	return place{segment: 1, seq: 1}, nil
}

// scanner reads lines while they are complete and in sequence.
type scanner struct {
	r    *bufio.Reader
	want int64

	entry event.Entry
	line  []byte // without its line feed
	good  int64  // bytes in complete lines
	torn  bool   // there are bytes after them
	ended bool   // those bytes include a line feed
	err   error  // from reading
}

func newScanner(r io.Reader, first int64) *scanner {
	return &scanner{r: bufio.NewReaderSize(r, 16<<10), want: first}
}

func (s *scanner) next() bool {
	line, err := s.r.ReadBytes('\n')
	if err != nil {
		s.torn = len(line) > 0
		if !errors.Is(err, io.EOF) {
			s.err = err
		}
		return false
	}
	s.line = line[:len(line)-1]
	s.entry, err = decode(s.line)
	if err != nil || s.entry.Seq != s.want {
		s.torn, s.ended = true, true
		return false
	}
	s.want++
	s.good += int64(len(line))
	return true
}

// firstSeq reads the first number of a segment. Segments appear with a complete
// first line, so anything else is damage.
func firstSeq(fsys afero.Fs, path string) (int64, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	e, err := decode(line)
	if err != nil || e.Seq < 1 {
		return 0, hints.Add(fmt.Errorf("%w: %s does not begin with an entry", ErrDamaged, path),
			"move the folder away: the daemon begins a new log")
	}
	return e.Seq, nil
}

func isDamaged(err error) bool { return errors.Is(err, ErrDamaged) }

// segments lists the numbers of the segments in dir, in order and without gaps.
func segments(fsys afero.Fs, dir string) ([]int, error) {
	all, err := segmentNumbers(fsys, dir)
	for i, n := range all {
		if n != i+1 {
			return nil, fmt.Errorf("%w: %s is missing", ErrDamaged, segmentPath(dir, i+1))
		}
	}
	return all, err
}

func segmentNumbers(fsys afero.Fs, dir string) ([]int, error) {
	f, err := fsys.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, name := range names {
		if n, ok := segmentNumber(name); ok {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

const segmentSuffix = ".jsonl"

func segmentPath(dir string, n int) string {
	if n == 1 {
		return filepath.Join(dir, "log.jsonl")
	}
	return filepath.Join(dir, "log-"+strconv.Itoa(n)+segmentSuffix)
}

func segmentNumber(name string) (int, bool) {
	if name == "log.jsonl" {
		return 1, true
	}
	digits, ok := strings.CutPrefix(name, "log-")
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, segmentSuffix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 1 && strconv.Itoa(n) == digits
}
