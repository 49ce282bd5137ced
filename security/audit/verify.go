package audit

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/permesso-dev/permesso/approval"
)

// ErrTampered says that the log is not the one that was signed, or that
// somebody keeps a witness of. ErrDamaged besides says that it cannot be read.
var ErrTampered = errors.New("the audit log is not what it was")

// Check verifies a log. It needs no daemon, and one may be writing meanwhile.
type Check struct {
	FS   afero.Fs
	Dir  string
	Keys note.Verifiers // those that may have signed

	// Witnesses that somebody kept: feet of messages, checkpoints, and receipts
	// by their digest with the name to call each by. A receipt must have the
	// entry that was written before it was used.
	Feet        []Foot
	Checkpoints []string
	Receipts    map[string]string

	// Progress is told how many bytes of how many are done; may be nil.
	Progress func(done, total int64)
}

// Report is what Run found in a log that is in order.
type Report struct {
	Entries     int64    `json:"entries"`
	Signed      int64    `json:"signed"` // entries under the newest checkpoint
	Checkpoints int      `json:"checkpoints"`
	Witnesses   int      `json:"witnesses"`
	Root        string   `json:"root"` // of all entries, base64
	Notes       []string `json:"notes"`
}

// Foot is what a card shows of a checkpoint: the size of the log, and the first
// digits of its root.
type Foot struct {
	Size   int64
	Digits string // hexadecimal, at least 4
}

// ParseFoot reads "1042 9f3c", also with the word "log" before it.
func ParseFoot(s string) (Foot, error) {
	f := strings.Fields(strings.ToLower(s))
	if len(f) == 3 && f[0] == "log" {
		f = f[1:]
	}
	if len(f) != 2 || len(f[1]) < 4 || len(f[1]) > 2*tlog.HashSize || strings.Trim(f[1], "0123456789abcdef") != "" {
		return Foot{}, fmt.Errorf("foot %q: write it as a card does: 1042 9f3c", s)
	}
	n, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil || n < 1 {
		return Foot{}, fmt.Errorf("foot %q: the first number is a number of entries", s)
	}
	return Foot{n, f[1]}, nil
}

func (f Foot) String() string { return fmt.Sprintf("%d %s", f.Size, f.Digits) }

// witness is what the root of the first size lines must begin with.
type witness struct {
	size   int64
	digits string // hexadecimal
	what   string
}

// Run verifies all of it. The error wraps ErrTampered, ErrDamaged or
// ErrNotSigned, unless a file could not be read at all; it tells the first fault.
func (c *Check) Run() (*Report, error) {
	a, err := c.begin()
	if err != nil {
		return nil, fmt.Errorf("verify audit log: %w", err)
	}
	if err := a.run(place{segment: 1, seq: 1}); err != nil {
		return nil, fmt.Errorf("verify audit log: %w", err)
	}
	return a.end()
}

// auditor is a verification under way.
type auditor struct {
	*Check
	all       []int
	witnesses []witness // by size
	total     int64     // bytes

	tree     tree
	met      int              // witnesses
	repeated map[int64]repeat // by number: lines that a later segment must hold
	twice    map[string]int   // by path: how many of them it did hold
	missing  map[string]string
	rep      Report
}

type repeat struct {
	leaf tlog.Hash
	path string
}

// begin reads the checkpoints, and only then looks which segments there are:
// what was signed by then is in them.
func (c *Check) begin() (*auditor, error) {
	a := &auditor{Check: c, repeated: map[int64]repeat{}, twice: map[string]int{}, missing: maps.Clone(c.Receipts)}
	if err := a.readCheckpoints(); err != nil {
		return nil, err
	}
	for _, msg := range c.Checkpoints {
		cp, err := ParseCheckpoint(msg, c.Keys)
		if err != nil {
			return nil, fmt.Errorf("a kept checkpoint: %w", err)
		}
		a.expect(cp.Size, hex.EncodeToString(cp.Root[:]), fmt.Sprintf("the kept checkpoint %d", cp.Size))
	}
	for _, f := range c.Feet {
		a.expect(f.Size, f.Digits, "the kept foot "+strconv.Quote(f.String()))
	}
	a.rep.Witnesses = len(c.Checkpoints) + len(c.Feet) + len(c.Receipts)
	slices.SortStableFunc(a.witnesses, func(x, y witness) int { return int(min(max(x.size-y.size, -1), 1)) })
	var err error
	if a.all, err = segments(c.FS, c.Dir); err != nil {
		return nil, err
	}
	if c.Progress != nil {
		for _, n := range a.all {
			if info, err := c.FS.Stat(segmentPath(c.Dir, n)); err == nil {
				a.total += info.Size()
			}
		}
	}
	return a, nil
}

func (a *auditor) expect(size int64, digits, what string) {
	a.witnesses = append(a.witnesses, witness{size, digits, what})
}

// readCheckpoints holds every line to its signature. What a power cut leaves of
// the last one is shorter than a line.
func (a *auditor) readCheckpoints() error {
	path := filepath.Join(a.Dir, checkpointFile)
	f, err := a.FS.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 16<<10)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return a.lastCheckpoint(path, line)
		}
		if err != nil {
			return err
		}
		if err := a.checkpoint(path, line[:len(line)-1]); err != nil {
			return err
		}
	}
}

func (a *auditor) checkpoint(path string, line []byte) error {
	cp, _, err := parseMark(line, a.Keys)
	if err != nil {
		return fmt.Errorf("%w: line %d of %s: %w", ErrTampered, a.rep.Checkpoints+1, path, err)
	}
	if cp.Size < a.rep.Signed {
		return fmt.Errorf("%w: checkpoint %d stands behind %d in %s", ErrTampered, cp.Size, a.rep.Signed, path)
	}
	a.rep.Checkpoints++
	a.rep.Signed = cp.Size
	a.expect(cp.Size, hex.EncodeToString(cp.Root[:]), fmt.Sprintf("checkpoint %d", cp.Size))
	return nil
}

// lastCheckpoint judges what no line feed ends: nothing, the beginning of a
// line, or a line that lost its end to something else.
func (a *auditor) lastCheckpoint(path string, rest []byte) error {
	switch {
	case len(rest) == 0:
		return nil
	case jsontext.Value(rest).IsValid():
		return a.checkpoint(path, rest)
	case jsontext.Value(rest[:len(rest)-1]).IsValid():
		return fmt.Errorf("%w: %s ends in something else than a line feed", ErrTampered, path)
	}
	a.note("the last checkpoint is not whole (%d bytes in %s): a power cut leaves that, and the next start clears it away", len(rest), path)
	return nil
}

func (a *auditor) note(format string, v ...any) {
	a.rep.Notes = append(a.rep.Notes, fmt.Sprintf(format, v...))
}

// run reads the lines from a place on.
func (a *auditor) run(from place) error {
	w := &walk{fs: a.FS, dir: a.Dir, left: a.left}
	return w.lines(a.all, from, math.MaxInt64, a.line)
}

// progressEvery is how many lines pass between two words of progress.
const progressEvery = 1 << 14

func (a *auditor) line(line []byte, e approval.Entry, next place) error {
	if err := plain(line); err != nil {
		return fmt.Errorf("%w: number %d: %w", ErrTampered, e.Seq, err)
	}
	leaf := leafHash(line)
	if r, ok := a.repeated[e.Seq]; ok {
		if r.leaf != leaf {
			return fmt.Errorf("%w: %s has another number %d than the segment behind it", ErrTampered, r.path, e.Seq)
		}
		delete(a.repeated, e.Seq)
		a.twice[r.path]++
	}
	a.tree.add(leaf)
	if len(a.missing) > 0 && (e.Event == approval.EventApproved || e.Event == approval.EventAutoApproved) {
		delete(a.missing, e.ReceiptSHA256)
	}
	if a.Progress != nil && e.Seq%progressEvery == 0 {
		a.Progress(a.done(next), a.total)
	}
	return a.meet()
}

// meet holds the tree against the witnesses of its size.
func (a *auditor) meet() error {
	if a.met == len(a.witnesses) || a.witnesses[a.met].size > a.tree.size {
		return nil
	}
	h := a.tree.root()
	root := hex.EncodeToString(h[:])
	for ; a.met < len(a.witnesses) && a.witnesses[a.met].size == a.tree.size; a.met++ {
		if w := a.witnesses[a.met]; !strings.HasPrefix(root, w.digits) {
			since := int64(1)
			if a.met > 0 {
				since = a.witnesses[a.met-1].size + 1
			}
			return fmt.Errorf("%w: %s does not fit: something between numbers %d and %d was changed, added or removed",
				ErrTampered, w.what, min(since, w.size), w.size)
		}
	}
	return nil
}

func (a *auditor) done(next place) int64 {
	done := next.offset
	for _, n := range a.all {
		if n < next.segment {
			if info, err := a.FS.Stat(segmentPath(a.Dir, n)); err == nil {
				done += info.Size()
			}
		}
	}
	return done
}

// left is told what does not count. A crash leaves it so; a segment that was
// left on purpose repeats what it may lack, byte for byte.
func (a *auditor) left(path string, seq int64, line []byte, rest int64) {
	if line != nil {
		a.repeated[seq] = repeat{leafHash(line), path}
		return
	}
	a.note("%s: %d bytes behind number %d are no entry and never counted: a crash leaves that", path, rest, seq-1)
}

// plain refuses a line that nobody may have written: everything but printable
// ASCII is escaped.
func plain(line []byte) error {
	for i, c := range line {
		if c < ' ' || c > '~' {
			return fmt.Errorf("byte %d is not printable ASCII", i)
		}
	}
	return nil
}

// end judges the whole: what must be there, and is not.
func (a *auditor) end() (*Report, error) {
	n := a.tree.size
	switch {
	case len(a.repeated) > 0:
		seq := slices.Min(slices.Collect(maps.Keys(a.repeated)))
		return nil, fmt.Errorf("verify audit log: %w: number %d stands only in %s, where it does not count",
			ErrTampered, seq, a.repeated[seq].path)
	case a.met < len(a.witnesses):
		w := a.witnesses[len(a.witnesses)-1]
		return nil, fmt.Errorf("verify audit log: %w: it ends with number %d, but %s was made of %d: the end was cut off",
			ErrTampered, n, w.what, w.size)
	case len(a.missing) > 0:
		name := slices.Sorted(maps.Values(a.missing))[0]
		return nil, fmt.Errorf("verify audit log: %w: the entry of %d receipts is missing, of %s for example",
			ErrTampered, len(a.missing), name)
	case n > 0 && len(a.witnesses) == 0:
		return nil, fmt.Errorf("verify audit log: %w: of %d entries none is under a checkpoint\nhint: a gate that runs signs "+
			"its log within seconds, and when it stops; if it did, somebody removed %s", ErrNotSigned, n, checkpointFile)
	}
	for _, path := range slices.Sorted(maps.Keys(a.twice)) {
		a.note("%s: its last %d entries are repeated in the next segment, where they count: after a failed write or fsync "+
			"the log goes on so", path, a.twice[path])
	}
	if more := n - a.rep.Signed; more > 0 {
		a.note("numbers %d to %d are under no checkpoint yet", a.rep.Signed+1, n)
	}
	if a.Progress != nil {
		a.Progress(a.total, a.total)
	}
	a.rep.Entries = n
	a.rep.Root = a.tree.root().String()
	return &a.rep, nil
}
