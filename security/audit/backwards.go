package audit

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

// Backwards calls each for the entries in dir, newest first, until it returns an
// error, which Backwards returns. Where keep is not nil only the lines for which
// it is true are decoded: it sees a line as it stands in the log, and looking
// for some bytes there is much faster than decoding.
//
// It is made for looking, and checks only what it decodes; Entries and verifying
// check everything. It reads one segment at a time into memory. An error that
// wraps ErrDamaged comes after all entries behind the damage.
func Backwards(fsys afero.Fs, dir string, keep func(line []byte) bool, each func(approval.Entry) error) error {
	all, err := segments(fsys, dir)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	end := int64(math.MaxInt64) // where the segment behind begins
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
		starts, last := wholeLines(buf, first, end)
		if end != math.MaxInt64 && last+1 != end {
			return fmt.Errorf("read audit log: %w: number %d is missing in %s", ErrDamaged, last+1, path)
		}
		if err := eachLine(buf, starts, keep, each); err != nil {
			return err
		}
		end = first
	}
	return nil
}

func eachLine(buf []byte, starts []int, keep func([]byte) bool, each func(approval.Entry) error) error {
	for i := len(starts) - 2; i >= 0; i-- {
		line := buf[starts[i] : starts[i+1]-1]
		if keep != nil && !keep(line) {
			continue
		}
		e, ok := scan(string(line))
		if !ok {
			var err error
			if e, err = decode(line); err != nil {
				seq, _ := seqOf(line)
				return fmt.Errorf("read audit log: %w: number %d: %w", ErrDamaged, seq, err)
			}
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

// readInto reads a whole segment, reusing buf.
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
		err = nil // shorter than it was a moment ago: its lines tell
	}
	return buf[:n], err
}

// wholeLines gives where the lines numbered from first on begin, below end, and
// where the last of them ends. A line whose number does not follow, and all
// behind it, never counted.
func wholeLines(buf []byte, first, end int64) (starts []int, last int64) {
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

// begins is how every line begins, because the number is the first field.
const begins = `{"seq":`

func seqOf(line []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(begins))
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

// scan reads a line as encode writes it where nothing had to be escaped, which
// is nearly every line, and many times faster than decode. Of anything else it
// says that it is not for it.
func scan(line string) (e approval.Entry, ok bool) {
	rest, ok := strings.CutPrefix(line, begins)
	if !ok || strings.IndexByte(rest, '\\') >= 0 {
		return e, false
	}
	digits, rest, ok := strings.Cut(rest, ",")
	if !ok {
		return e, false
	}
	var err error
	if e.Seq, err = strconv.ParseInt(digits, 10, 64); err != nil {
		return e, false
	}
	for {
		var name, value string
		if name, rest, ok = quoted(rest, `":"`); !ok {
			return e, false
		}
		end := strings.IndexByte(rest, '"')
		if end < 0 {
			return e, false
		}
		value, rest = rest[:end], rest[end+1:]
		if !set(&e, name, value) {
			return e, false
		}
		if rest == "}" {
			return e, !e.Time.IsZero() && e.Event != ""
		}
		if rest, ok = strings.CutPrefix(rest, ","); !ok {
			return e, false
		}
	}
}

// quoted takes a name and what stands between it and its value.
func quoted(s, end string) (name, rest string, ok bool) {
	if s, ok = strings.CutPrefix(s, `"`); !ok {
		return "", "", false
	}
	return strings.Cut(s, end)
}

// set puts a value into its field; a name twice, and one with a value that is
// no string, are decode's business.
func set(e *approval.Entry, name, value string) bool {
	var to *string
	switch name {
	case "time":
		t, err := time.Parse(time.RFC3339Nano, value)
		if err != nil || !e.Time.IsZero() {
			return false
		}
		e.Time = t
		return true
	case "event":
		to = (*string)(&e.Event)
	case "workspace":
		to = &e.Workspace
	case "tool":
		to = &e.Tool
	case "capability":
		to = &e.Capability
	case "target":
		to = &e.Target
	case "action_type":
		to = &e.ActionType
	case "request_id":
		to = &e.RequestID
	case "client_id":
		to = &e.ClientID
	case "session_id":
		to = &e.SessionID
	case "by":
		to = &e.By
	case "by_id":
		to = &e.ByID
	case "via":
		to = &e.Via
	case "rule":
		to = &e.Rule
	case "reason":
		to = &e.Reason
	case "receipt_sha256":
		to = &e.ReceiptSHA256
	case "detail":
		to = &e.Detail
	default:
		return false
	}
	if *to != "" {
		return false
	}
	*to = value
	return true
}
