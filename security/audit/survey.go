package audit

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
)

// survey is what the files of a log hold: the entries that count, and where they end.
type survey struct {
	size  int64               // number of the last entry that counts
	tree  tree                // over all that count
	roots map[int64]tlog.Hash // at the sizes that were asked for
	last  []byte              // its line, with the line feed

	segment int   // where it is; 0: there is none
	good    int64 // bytes of the lines that count there
	whole   bool  // nothing follows them there
	damage  *damage
	numbers []int // of all segments, also of those behind a damage
}

// damage is where the entries end although more lines follow.
type damage struct {
	what     string // such as: log.jsonl has an invalid line after number 9
	lines    int    // that follow, in all segments
	entries  int    // of them
	from, to int64  // their smallest and their largest number
}

func (d *damage) String() string {
	text := fmt.Sprintf("%s; %s from there on, not counted and not verified", d.what, hints.Plural(d.lines, "line"))
	if d.entries > 0 {
		text += fmt.Sprintf(", of them %s with %s", hints.Plural(d.entries, "entry"), hints.Span("number", d.from, d.to))
	}
	return text + "; nothing was removed"
}

// takeSurvey reads the log in dir completely, and keeps its roots at some sizes.
func takeSurvey(fsys afero.Fs, dir string, sizes ...int64) (*survey, error) {
	s := &survey{roots: map[int64]tlog.Hash{}, whole: true}
	asked := map[int64]bool{}
	for _, n := range sizes {
		asked[n] = true
	}
	var err error
	if s.numbers, err = segmentNumbers(fsys, dir); err != nil {
		return nil, err
	}
	r := &surveyor{survey: s, fs: fsys, dir: dir, asked: asked, interner: interner{}}
	for i := range s.numbers {
		if err := r.readSegment(i); err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
	}
	return s, nil
}

type surveyor struct {
	*survey
	fs       afero.Fs
	dir      string
	asked    map[int64]bool
	buf      []byte
	interner interner
}

// decode decodes the line at the front of b. n is its length, with the line feed; 0: there
// is no complete line.
func (r *surveyor) decode(b []byte) (e event.Entry, n int, ok bool) {
	n = bytes.IndexByte(b, '\n') + 1
	if n == 0 {
		return e, 0, false
	}
	if !r.interner.fastDecode(b[:n-1], &e) {
		var err error
		if e, err = decode(b[:n-1]); err != nil {
			return e, n, false
		}
	}
	return e, n, e.Seq > 0
}

// readSegment reads the i-th segment, up to the number with which the next one begins.
func (r *surveyor) readSegment(i int) (err error) {
	path := segmentPath(r.dir, r.numbers[i])
	name := filepath.Base(path)
	if r.buf, err = readInto(r.fs, path, r.buf); err != nil {
		return err
	}
	if r.damage != nil {
		r.countLines(r.buf)
		return nil
	}
	first, _, ok := r.decode(r.buf)
	switch {
	case r.numbers[i] != i+1:
		r.damaged(r.buf, "%s is missing", filepath.Base(segmentPath(r.dir, i+1)))
		return nil
	case !ok:
		r.damaged(r.buf, "%s does not begin with an entry", name)
		return nil
	case first.Seq != r.size+1:
		r.damaged(r.buf, "%s begins with number %d, but number %d should follow", name, first.Seq, r.size+1)
		return nil
	}
	stop, err := r.stop(i, first.Seq)
	if err != nil {
		return err
	}
	r.segment, r.good = i+1, 0
	rest := r.readLines(r.buf, stop)
	r.whole = len(rest) == 0
	if stop == 0 && bytes.IndexByte(rest, '\n') >= 0 || stop > r.size+1 && len(rest) > 0 {
		what := "has an invalid line after number %d"
		if e, _, ok := r.decode(rest); ok {
			what = fmt.Sprintf("has number %d", e.Seq) + " after number %d"
		}
		r.damaged(rest, "%s "+what, name, r.size)
	}
	return nil
}

// stop is the number with which the segment after the i-th begins, 0 if there is none, or if
// it cannot follow one that begins with number first.
func (r *surveyor) stop(i int, first int64) (int64, error) {
	if i+1 == len(r.numbers) || r.numbers[i+1] != i+2 {
		return 0, nil
	}
	next, err := firstSeq(r.fs, segmentPath(r.dir, i+2))
	if isDamaged(err) || next < first {
		return 0, nil
	}
	return next, err
}

// readLines reads the lines that count, and returns what follows them.
func (r *surveyor) readLines(b []byte, stop int64) []byte {
	var last []byte
	for stop == 0 || r.size+1 < stop {
		e, n, ok := r.decode(b)
		if !ok || e.Seq != r.size+1 {
			break
		}
		r.tree.add(leafHash(b[:n-1]))
		r.size, r.good = e.Seq, r.good+int64(n)
		if r.asked[r.size] {
			r.roots[r.size] = r.tree.root()
		}
		last, b = b[:n], b[n:]
	}
	if last != nil {
		r.last = bytes.Clone(last)
	}
	return b
}

func (r *surveyor) damaged(rest []byte, format string, v ...any) {
	r.damage = &damage{what: fmt.Sprintf(format, v...)}
	r.countLines(rest)
}

func (r *surveyor) countLines(b []byte) {
	d := r.damage
	for len(b) > 0 {
		e, n, ok := r.decode(b)
		d.lines++
		if ok {
			if d.entries++; d.entries == 1 {
				d.from = e.Seq
			}
			d.from, d.to = min(d.from, e.Seq), max(d.to, e.Seq)
		}
		if n == 0 {
			return
		}
		b = b[n:]
	}
}

// RootAt returns the root of the first entries of a log. If it has fewer that can be read, the
// error wraps ErrDamaged.
func RootAt(fsys afero.Fs, dir string, size int64) (tlog.Hash, error) {
	s, err := takeSurvey(fsys, dir, size)
	if err == nil && s.size < size {
		err = fmt.Errorf("%w: it has %d entries that can be read, not %d", ErrDamaged, s.size, size)
	}
	if err != nil {
		return tlog.Hash{}, err
	}
	return s.roots[size], nil
}
