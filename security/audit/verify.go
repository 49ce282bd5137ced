package audit

import (
	"bufio"
	"bytes"
	"cmp"
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
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
)

// ErrTampered says that the log does not match a signature or a witness. ErrDamaged
// says that it cannot be read.
var ErrTampered = errors.New("the audit log was changed")

// Check verifies a log, without a daemon or while one is writing.
type Check struct {
	FS   afero.Fs
	Dir  string
	Keys note.Verifiers // all valid keys

	// Witnesses kept elsewhere: feet of messages, checkpoints, and facts.
	Feet        []Foot
	Checkpoints []string
	Facts       Facts

	// Progress is called with the number of verified entries, and of all that are signed;
	// may be nil.
	Progress func(done, total int64)
}

// Report is Run's result for a valid log.
type Report struct {
	Entries     int64    `json:"entries"`
	Signed      int64    `json:"signed"` // entries under the newest checkpoint
	Checkpoints int      `json:"checkpoints"`
	Witnesses   int      `json:"witnesses"`
	Root        string   `json:"root"` // of all entries, base64
	Notes       []string `json:"notes"`
}

// Foot is the text about a checkpoint on a card: the size of the log, and the first
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
		return Foot{}, fmt.Errorf("foot %q: write it as on a card, such as 1042 9f3c", s)
	}
	n, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil || n < 1 {
		return Foot{}, fmt.Errorf("foot %q: the first number must be a number of entries", s)
	}
	return Foot{n, f[1]}, nil
}

func (f Foot) String() string { return fmt.Sprintf("%d %s", f.Size, f.Digits) }

// witness is the expected beginning of the root of the first size lines.
type witness struct {
	size   int64
	digits string // hexadecimal
	what   string
}

// Run verifies the log. The error describes the first fault. It wraps ErrTampered,
// ErrDamaged or ErrNotSigned, unless a file could not be read.
func (c *Check) Run() (*Report, error) {
	alarm, err := ReadAlarm(c.FS, c.Dir)
	if err == nil && alarm != nil {
		err = fmt.Errorf("%w: %w: %s", ErrTampered, ErrAlarm, alarm.Reason)
	}
	if err != nil {
		return nil, fmt.Errorf("verify audit log: %w", err)
	}
	a, err := c.begin()
	if err != nil {
		return nil, fmt.Errorf("verify audit log: %w", err)
	}
	if err := a.run(place{segment: 1, seq: 1}); err != nil {
		return nil, fmt.Errorf("verify audit log: %w", err)
	}
	return a.end()
}

// verifier is the state of a verification.
type verifier struct {
	*Check
	all       []int
	witnesses []witness // by size

	tree          tree
	matched       int              // number of matched witnesses
	repeated      map[int64]repeat // by number: lines that a later segment must repeat
	repeatedCount map[string]int   // by path: number of lines that the next segment repeats
	uncounted     []*rest
	missing       Facts
	report        Report
}

type repeat struct {
	leaf tlog.Hash
	path string
}

// rest is what follows the last entry of a segment that counts, and is not repeated.
type rest struct {
	path   string
	after  int64 // number of that entry
	bytes  int
	lines  int
	leaves map[int64]tlog.Hash // of its entries, without those that a later segment has
}

// begin reads the checkpoints before it lists the segments, so that the segments
// contain all signed entries.
func (c *Check) begin() (*verifier, error) {
	a := &verifier{Check: c, repeated: map[int64]repeat{}, repeatedCount: map[string]int{}, missing: c.Facts.clone()}
	if err := a.readCheckpoints(); err != nil {
		return nil, err
	}
	for _, msg := range c.Checkpoints {
		cp, err := ParseCheckpoint(msg, c.Keys)
		if err != nil {
			return nil, fmt.Errorf("a kept checkpoint: %w", err)
		}
		a.addWitness(cp.Size, hex.EncodeToString(cp.Root[:]), fmt.Sprintf("the kept checkpoint %d", cp.Size))
	}
	for _, f := range c.Feet {
		a.addWitness(f.Size, f.Digits, "the kept foot "+strconv.Quote(f.String()))
	}
	a.report.Witnesses = len(c.Checkpoints) + len(c.Feet) + len(c.Facts.Receipts)
	slices.SortStableFunc(a.witnesses, func(x, y witness) int { return int(min(max(x.size-y.size, -1), 1)) })
	var err error
	a.all, err = segments(c.FS, c.Dir)
	return a, err
}

func (a *verifier) addWitness(size int64, digits, what string) {
	a.witnesses = append(a.witnesses, witness{size, digits, what})
}

// readCheckpoints verifies every line. A power cut may leave the last one
// incomplete.
func (a *verifier) readCheckpoints() error {
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

func (a *verifier) checkpoint(path string, line []byte) error {
	cp, _, err := parseCheckpointLine(line, a.Keys)
	if err != nil {
		return fmt.Errorf("%w: line %d of %s: %w", ErrTampered, a.report.Checkpoints+1, path, err)
	}
	if cp.Size < a.report.Signed {
		return fmt.Errorf("%w: checkpoint %d comes after %d in %s", ErrTampered, cp.Size, a.report.Signed, path)
	}
	a.report.Checkpoints++
	a.report.Signed = cp.Size
	a.addWitness(cp.Size, hex.EncodeToString(cp.Root[:]), fmt.Sprintf("checkpoint %d", cp.Size))
	return nil
}

// lastCheckpoint checks the bytes after the last line feed: none, the beginning of
// a line, or a line whose line feed was changed.
func (a *verifier) lastCheckpoint(path string, rest []byte) error {
	switch {
	case len(rest) == 0:
		return nil
	case jsontext.Value(rest).IsValid():
		return a.checkpoint(path, rest)
	case jsontext.Value(rest[:len(rest)-1]).IsValid():
		return fmt.Errorf("%w: the last line feed of %s was changed", ErrTampered, path)
	}
	a.note("the last checkpoint is incomplete (%d bytes in %s) after a power cut; the next start removes it", len(rest), path)
	return nil
}

func (a *verifier) note(format string, v ...any) {
	a.report.Notes = append(a.report.Notes, fmt.Sprintf(format, v...))
}

// run reads the lines from a place to the end.
func (a *verifier) run(from place) error {
	w := &walk{fs: a.FS, dir: a.Dir, left: a.left}
	return w.lines(a.all, from, math.MaxInt64, a.line)
}

// progressEvery is the number of lines between two calls of Progress.
const progressEvery = 1 << 14

func (a *verifier) line(line []byte, e event.Entry, _ place) error {
	if err := checkASCII(line); err != nil {
		return fmt.Errorf("%w: number %d: %w", ErrTampered, e.Seq, err)
	}
	leaf := leafHash(line)
	if r, ok := a.repeated[e.Seq]; ok {
		if r.leaf != leaf {
			return fmt.Errorf("%w: entry in %s differs from number %d in the following segment", ErrTampered, r.path, e.Seq)
		}
		delete(a.repeated, e.Seq)
		a.repeatedCount[r.path]++
	}
	for _, r := range a.uncounted {
		if r.leaves[e.Seq] == leaf {
			delete(r.leaves, e.Seq)
		}
	}
	if e.Event == event.LogAcknowledged {
		a.note("number %d: %s acknowledged an alarm on %s, with the reason %q: %s",
			e.Seq, cmp.Or(e.By, "the operator"), e.Time.Format(time.RFC3339), e.Reason, e.Detail)
	}
	a.tree.add(leaf)
	a.missing.remove(&e)
	if a.Progress != nil && e.Seq%progressEvery == 0 {
		a.Progress(min(e.Seq, a.report.Signed), a.report.Signed)
	}
	return a.matchWitnesses()
}

// matchWitnesses compares the tree with the witnesses of its size.
func (a *verifier) matchWitnesses() error {
	if a.matched == len(a.witnesses) || a.witnesses[a.matched].size > a.tree.size {
		return nil
	}
	h := a.tree.root()
	root := hex.EncodeToString(h[:])
	for ; a.matched < len(a.witnesses) && a.witnesses[a.matched].size == a.tree.size; a.matched++ {
		if w := a.witnesses[a.matched]; !strings.HasPrefix(root, w.digits) {
			since := int64(1)
			if a.matched > 0 {
				since = a.witnesses[a.matched-1].size + 1
			}
			return fmt.Errorf("%w: %s does not match: something was changed, added or removed at %s",
				ErrTampered, w.what, hints.Span("number", min(since, w.size), w.size))
		}
	}
	return nil
}

// left handles content that does not count: bytes after a crash, and lines that
// the next segment must repeat, byte for byte.
func (a *verifier) left(path string, seq int64, line, content []byte) {
	if line != nil {
		a.repeated[seq] = repeat{leafHash(line), path}
		return
	}
	r := &rest{path: path, after: seq - 1, bytes: len(content), leaves: map[int64]tlog.Hash{}}
	for line := range bytes.Lines(content) {
		r.lines++
		line, ended := bytes.CutSuffix(line, []byte("\n"))
		if e, err := decode(line); err == nil && ended {
			r.leaves[e.Seq] = leafHash(line)
		}
	}
	a.uncounted = append(a.uncounted, r)
}

// String describes what a crash left, or what an alarm was about.
func (r *rest) String() string {
	if len(r.leaves) == 0 {
		return fmt.Sprintf("%s: %d bytes after number %d are not an entry and do not count; a crash left them", r.path, r.bytes, r.after)
	}
	numbers := slices.Sorted(maps.Keys(r.leaves))
	return fmt.Sprintf("%s: %s after number %d, not counted and not verified, of them %s with %s: the log was changed there",
		r.path, hints.Plural(r.lines, "line"), r.after, hints.Plural(len(numbers), "entry"), hints.Span("number", numbers[0], numbers[len(numbers)-1]))
}

// checkASCII refuses a line that encode cannot have written.
func checkASCII(line []byte) error {
	for i, c := range line {
		if c < ' ' || c > '~' {
			return fmt.Errorf("byte %d is not printable ASCII", i)
		}
	}
	return nil
}

// noteRepeated counts the segments that a kill has ended.
func (a *verifier) noteRepeated() {
	const why = "in the next segment, where they count: the log continued there after a kill, a power cut or a failed write"
	if n := len(a.repeatedCount); n > 1 {
		a.note("the last entries of %d segments are repeated, each "+why, n)
		return
	}
	for path, n := range a.repeatedCount {
		a.note("%s: its last %d entries are repeated "+why, path, n)
	}
}

// end checks for missing entries and witnesses.
func (a *verifier) end() (*Report, error) {
	n := a.tree.size
	covered := a.missing.excuse()
	switch {
	case len(a.repeated) > 0:
		seq := slices.Min(slices.Collect(maps.Keys(a.repeated)))
		return nil, fmt.Errorf("verify audit log: %w: number %d exists only in %s, where it does not count",
			ErrTampered, seq, a.repeated[seq].path)
	case a.matched < len(a.witnesses):
		w := a.witnesses[len(a.witnesses)-1]
		return nil, fmt.Errorf("verify audit log: %w: it ends with number %d, but %s covers %d: the end was cut off",
			ErrTampered, n, w.what, w.size)
	case !a.missing.empty():
		return nil, fmt.Errorf("verify audit log: %w: %s", ErrTampered, &a.missing)
	case n > 0 && len(a.witnesses) == 0:
		return nil, hints.Add(fmt.Errorf("verify audit log: %w: no checkpoint covers any of the %d entries", ErrNotSigned, n),
			"a running daemon signs its log within seconds and when it stops; if it did, "+checkpointFile+" was removed")
	}
	if !covered.empty() {
		a.note("%s: an alarm that was acknowledged later covers it", &covered)
	}
	for _, r := range a.uncounted {
		a.note("%s", r)
	}
	a.noteRepeated()
	if n > a.report.Signed {
		a.note("no checkpoint covers %s yet", hints.Span("number", a.report.Signed+1, n))
	}
	if a.Progress != nil {
		a.Progress(n, n)
	}
	a.report.Entries = n
	a.report.Root = a.tree.root().String()
	return &a.report, nil
}
