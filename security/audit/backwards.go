package audit

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/event"
)

// Backwards calls each for the entries in dir, newest first, until it returns an
// error, which Backwards returns. If keep is not nil, only the lines for which it
// returns true are decoded. It gets the raw line: searching bytes is much faster
// than decoding. keep is called by several goroutines at once.
//
// Backwards checks only the lines that it decodes; Entries and Check check all. It
// reads one segment at a time into memory. An error that wraps ErrDamaged comes
// after all entries that follow the damage.
func Backwards(fsys afero.Fs, dir string, keep func(line []byte) bool, each func(event.Entry) error) error {
	all, err := segments(fsys, dir)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	end := int64(math.MaxInt64) // first number of the following segment
	l := newLines()
	var buf []byte
	for _, n := range slices.Backward(all) {
		path := segmentPath(dir, n)
		if buf, err = readInto(fsys, path, buf); err != nil {
			return fmt.Errorf("read audit log: %w", err)
		}
		first, ok := seqOf(buf)
		if !ok {
			return fmt.Errorf("read audit log: %w: %s does not begin with an entry", ErrDamaged, path)
		}
		starts, last := completeLines(buf, first, end)
		if end != math.MaxInt64 && last+1 != end {
			return fmt.Errorf("read audit log: %w: number %d is missing in %s", ErrDamaged, last+1, path)
		}
		if err := l.each(buf, starts, keep, each); err != nil {
			return err
		}
		end = first
	}
	return nil
}

// batch is how many lines are decoded at once: few, for callers that need only the
// newest, but enough to use all processors.
const batch = 4096

func (l *lines) each(buf []byte, starts []int, keep func([]byte) bool, each func(event.Entry) error) error {
	for to := len(starts) - 1; to > 0; {
		from := max(to-batch, 0)
		list := l.decode(buf, starts[from:to+1], keep)
		for i := len(list) - 1; i >= 0; i-- {
			switch {
			case list[i].err != nil:
				return fmt.Errorf("read audit log: %w: %w", ErrDamaged, list[i].err)
			case list[i].kept:
				if err := each(list[i].entry); err != nil {
					return err
				}
			}
		}
		to = from
	}
	return nil
}

// decoded is the result of decoding one line.
type decoded struct {
	entry event.Entry
	kept  bool
	err   error
}

// decode decodes a range of lines, on all processors.
func (l *lines) decode(buf []byte, starts []int, keep func([]byte) bool) []decoded {
	n, share := len(starts)-1, (len(starts)-1)/len(l.interners)+1
	l.list = slices.Grow(l.list[:0], n)[:n]
	var wg sync.WaitGroup
	for i, c := range l.interners {
		wg.Go(func() {
			for at := i * share; at < min((i+1)*share, n); at++ {
				l.list[at] = c.decode(buf[starts[at]:starts[at+1]-1], keep)
			}
		})
	}
	wg.Wait()
	return l.list
}

func (c interner) decode(line []byte, keep func([]byte) bool) (d decoded) {
	if keep != nil && !keep(line) {
		return d
	}
	d.kept = true
	if c.fastDecode(line, &d.entry) {
		return d
	}
	if d.entry, d.err = decode(line); d.err != nil {
		seq, _ := seqOf(line)
		d.err = fmt.Errorf("number %d: %w", seq, d.err)
	}
	return d
}

// readInto reads a complete segment, reusing buf.
func readInto(fsys afero.Fs, path string, buf []byte) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	buf = slices.Grow(buf[:0], int(info.Size()))[:info.Size()]
	n, err := io.ReadFull(f, buf)
	if err != nil && n < len(buf) && n > 0 {
		err = nil // the file shrank: its lines show whether it is damaged
	}
	return buf[:n], err
}

// completeLines returns the starts of the lines numbered from first to before end,
// and the last number. A line out of sequence, and all after it, do not count.
func completeLines(buf []byte, first, end int64) (starts []int, last int64) {
	at, want := 0, first
	starts = make([]int, 1, len(buf)/256+2)
	for want < end {
		n := bytes.IndexByte(buf[at:], '\n')
		if n < 0 {
			break
		}
		if seq, ok := seqOf(buf[at : at+n]); !ok || seq != want {
			break
		}
		at += n + 1
		starts = append(starts, at)
		want++
	}
	return starts, want - 1
}

// linePrefix begins every line, because the number is the first field.
const linePrefix = `{"seq":`

func seqOf(line []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(linePrefix))
	if !ok {
		return 0, false
	}
	digits, _, ok := bytes.Cut(rest[:min(len(rest), 20)], []byte(","))
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseInt(string(digits), 10, 64)
	return seq, err == nil && seq > 0
}

// lines reads the lines of one pass over the log.
type lines struct {
	list      []decoded
	interners []interner // one for each processor
}

func newLines() *lines {
	l := &lines{interners: make([]interner, runtime.GOMAXPROCS(0))}
	for i := range l.interners {
		l.interners[i] = interner{}
	}
	return l
}

// interner stores repeated strings once.
type interner map[string]string

// maxInterned bounds the stored strings, because agents choose some of them.
const maxInterned = 10_000

func (c interner) intern(b []byte) string {
	if s, ok := c[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(c) < maxInterned {
		c[s] = s
	}
	return s
}

// fastDecode decodes a line without escapes in encode's form, which nearly every
// line has, much faster than decode. It returns false for other lines.
func (c interner) fastDecode(line []byte, e *event.Entry) bool {
	seq, ok := seqOf(line)
	if !ok || bytes.IndexByte(line, '\\') >= 0 {
		return false
	}
	e.Seq = seq
	rest := line[bytes.IndexByte(line, ',')+1:]
	for {
		var name, value []byte
		if name, value, rest, ok = member(rest); !ok || !c.set(e, name, value) {
			return false
		}
		if len(rest) == 1 && rest[0] == '}' {
			return !e.Time.IsZero() && e.Event != ""
		}
		if len(rest) == 0 || rest[0] != ',' {
			return false
		}
		rest = rest[1:]
	}
}

// member splits a name and its value, two strings, from the front of s.
func member(s []byte) (name, value, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '"' {
		return nil, nil, nil, false
	}
	s = s[1:]
	n := bytes.IndexByte(s, '"')
	if n < 0 || len(s) < n+3 || s[n+1] != ':' || s[n+2] != '"' {
		return nil, nil, nil, false
	}
	name, s = s[:n], s[n+3:]
	if n = bytes.IndexByte(s, '"'); n < 0 {
		return nil, nil, nil, false
	}
	return name, s[:n], s[n+1:], true
}

// set sets a field. It returns false for duplicate names and values that are not
// strings: decode handles those.
func (c interner) set(e *event.Entry, name, value []byte) bool {
	if string(name) == "time" {
		first := e.Time.IsZero()
		return first && e.Time.UnmarshalText(value) == nil
	}
	i, ok := texts[string(name)]
	if !ok || len(value) == 0 { // encode writes no empty ones
		return false
	}
	to := reflect.ValueOf(e).Elem().Field(i)
	if to.String() != "" {
		return false
	}
	switch string(name) {
	case "request_id", "receipt_sha256": // no two requests share them
		to.SetString(string(value))
	default:
		to.SetString(c.intern(value))
	}
	return true
}
