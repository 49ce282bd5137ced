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

	"github.com/permesso-dev/permesso/approval"
)

// ErrDamaged says that lines are missing or changed in a place where no crash
// of ours leaves it so.
var ErrDamaged = errors.New("the audit log is damaged")

// Entries calls each for every entry in dir, oldest first, until it returns an
// error. The daemon may be writing meanwhile. A folder without a log has no
// entries. The error is each's, or wraps ErrDamaged, after all entries before
// the damage.
func Entries(fsys afero.Fs, dir string, each func(approval.Entry) error) error {
	all, err := segments(fsys, dir)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	var seq int64
	for i, n := range all {
		end := int64(math.MaxInt64)
		if i+1 < len(all) {
			if end, err = firstSeq(fsys, segmentPath(dir, all[i+1])); err != nil {
				return fmt.Errorf("read audit log: %w", err)
			}
		}
		if seq, err = readSegment(fsys, segmentPath(dir, n), seq+1, end, each); err != nil {
			return err
		}
	}
	return nil
}

// readSegment passes on the lines numbered from first up to, but not including,
// end, where the next segment begins. It returns the last number.
func readSegment(fsys afero.Fs, path string, first, end int64, each func(approval.Entry) error) (int64, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close()
	s := newScanner(f, first)
	seq := first - 1
	for seq+1 < end && s.next() {
		seq = s.entry.Seq
		if err := each(s.entry); err != nil {
			return 0, err
		}
	}
	switch {
	case s.err != nil:
		return 0, fmt.Errorf("read audit log: %w", s.err)
	case end == math.MaxInt64 && s.torn && s.ended: // by a line feed: not just being written
		return 0, fmt.Errorf("read audit log: %w: %s ends behind number %d", ErrDamaged, path, seq)
	case end != math.MaxInt64 && seq+1 != end:
		return 0, fmt.Errorf("read audit log: %w: number %d is missing in %s", ErrDamaged, seq+1, path)
	}
	return seq, nil
}

// scanner reads lines as long as they are whole and their numbers follow.
type scanner struct {
	r    *bufio.Reader
	want int64

	entry approval.Entry
	good  int64 // bytes in whole lines
	torn  bool  // there is something behind them
	ended bool  // which has a line feed
	err   error // from reading
}

func newScanner(r io.Reader, first int64) *scanner {
	return &scanner{r: bufio.NewReaderSize(r, 64<<10), want: first}
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
	s.entry, err = decode(line[:len(line)-1])
	if err != nil || s.entry.Seq != s.want {
		s.torn, s.ended = true, true
		return false
	}
	s.want++
	s.good += int64(len(line))
	return true
}

// firstSeq reads the number that a segment begins with. Segments appear with a
// whole first line or not at all, so anything else is damage.
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
		return 0, fmt.Errorf("%w: %s does not begin with an entry\nhint: move the folder away: "+
			"the gate begins a new log", ErrDamaged, path)
	}
	return e.Seq, nil
}

// segments lists the numbers of the segments in dir, in order.
func segments(fsys afero.Fs, dir string) ([]int, error) {
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
	for i, n := range all {
		if n != i+1 {
			return nil, fmt.Errorf("%w: %s is missing", ErrDamaged, segmentPath(dir, i+1))
		}
	}
	return all, nil
}

func segmentPath(dir string, n int) string {
	if n == 1 {
		return filepath.Join(dir, "log.jsonl")
	}
	return filepath.Join(dir, "log-"+strconv.Itoa(n)+".jsonl")
}

func segmentNumber(name string) (int, bool) {
	if name == "log.jsonl" {
		return 1, true
	}
	digits, ok := strings.CutPrefix(name, "log-")
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, ".jsonl")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 1 && strconv.Itoa(n) == digits
}
