package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/hints"
)

// complete brings the log to the state of the journal after a crash. lines are all that the
// journal has, from its mark on, each with its line feed. The log continues in a new
// segment that holds them: what a crash left of them in the files may be torn, or wrong, or
// not be on the disk. A second call, or one after a crash at any point, gives the same. The
// caller makes everything durable.
//
// If an entry is missing that was durable before the mark, or if the log has entries that
// the journal lacks, complete raises an Alarm and keeps the lines in a file of their own. If
// the log has other entries with their numbers, it raises an Alarm, too; the journal's lines
// count, and the file as it was is kept beside it. No crash causes that.
func complete(fsys FS, dir string, lines [][]byte, expected head) error {
	c, err := newCompletion(fsys, dir, lines)
	if err == nil {
		c.expected = expected
		err = c.run()
	}
	if err != nil {
		return fmt.Errorf("complete audit log: %w", err)
	}
	return nil
}

// completion is the state of one complete.
type completion struct {
	expected head
	fs       FS
	dir      string
	lines    [][]byte
	first    int64 // number of the first line
	old      []int // segments that began before it
	later    []int // the others, which hold only lines of the journal
}

func newCompletion(fsys FS, dir string, lines [][]byte) (*completion, error) {
	c := &completion{fs: fsys, dir: dir, lines: lines}
	for i, line := range lines {
		seq, ok := seqOf(line)
		if i == 0 {
			c.first = seq
		}
		if !ok || seq != c.first+int64(i) || !bytes.HasSuffix(line, []byte("\n")) {
			return nil, fmt.Errorf("line %d of the journal is not the entry that follows", i+1)
		}
	}
	all, err := segmentNumbers(fsys, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	n := len(all)
	for ; n > 0; n-- {
		first, err := firstSeq(fsys, segmentPath(dir, all[n-1]))
		if err != nil && !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		if err == nil && all[n-1] == n && first < c.first {
			break
		}
	}
	c.old, c.later = all[:n], all[n:]
	return c, nil
}

func (c *completion) run() error {
	alarm, wrongAt, err := c.checkOld()
	if err == nil && alarm == nil {
		alarm, err = c.checkLater()
	}
	switch {
	case err != nil:
		return err
	case alarm != nil:
		if alarm.Have < c.first { // they cannot follow
			if err := c.keepLines(); err != nil {
				return err
			}
		}
		return Raise(c.fs, c.dir, *c.expected.promise(alarm))
	}
	if err := c.keepConflicts(); err != nil {
		return err
	}
	return c.write(wrongAt)
}

// keepLines keeps the lines that cannot follow the log, in a file that does not count.
func (c *completion) keepLines() error {
	if err := c.fs.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	_, err := c.keep(filepath.Join(c.dir, "journal"), slices.Concat(c.lines...))
	return err
}

// keepConflicts keeps the segments that have other entries than the journal, with an alarm.
func (c *completion) keepConflicts() error {
	segments := c.later
	if n := len(c.old); n > 0 {
		segments = slices.Insert(slices.Clone(c.later), 0, c.old[n-1])
	}
	var what []string
	for _, n := range segments {
		path := segmentPath(c.dir, n)
		content, err := readInto(c.fs, path, nil)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		from, to := c.conflict(content)
		if from == 0 {
			continue
		}
		kept, err := c.keep(strings.TrimSuffix(path, segmentSuffix), content)
		if err != nil {
			return err
		}
		what = append(what, fmt.Sprintf("%s of %s: not what the journal committed; not counted, and the file as it was is kept as %s",
			hints.Span("entry", from, to), filepath.Base(path), kept))
	}
	if len(what) == 0 {
		return nil
	}
	return c.raiseConflict(strings.Join(what, "; "))
}

// conflict finds the first entry of a segment that differs from the journal's line, and the
// number of the last one.
func (c *completion) conflict(content []byte) (from, to int64) {
	first, ok := seqOf(content)
	if !ok {
		return 0, 0
	}
	s := newScanner(bytes.NewReader(content), first)
	for s.next() {
		if from > 0 {
			to = s.entry.Seq
		} else if i := s.entry.Seq - c.first; i >= 0 && i < int64(len(c.lines)) && !bytes.Equal(s.line, bytes.TrimSuffix(c.lines[i], []byte("\n"))) {
			from, to = s.entry.Seq, s.entry.Seq
		}
	}
	return from, to
}

// raiseConflict raises an alarm, or changes that which stands: what it says to be missing may
// be in the file that is kept.
func (c *completion) raiseConflict(reason string) error {
	stands, err := ReadAlarm(c.fs, c.dir)
	if err != nil {
		return err
	}
	end := c.first + int64(len(c.lines)) - 1
	if stands == nil {
		return Raise(c.fs, c.dir, *c.expected.promise(&Alarm{Want: end, Have: end, Reason: reason}))
	}
	now := *stands
	now.Have, now.Returned = end, true
	s, err := takeSurvey(c.fs, c.dir, stands.Size)
	if err != nil {
		return err
	}
	if stands.Size > 0 && s.roots[stands.Size].String() == stands.Root {
		reason += fmt.Sprintf("; its first %d entries are those that were durable", stands.Size)
	}
	now.Reason = "the log was put back after an alarm: " + reason + ". Before that: " + stands.Reason
	return replaceAlarm(c.fs, c.dir, now)
}

// keep writes a durable file base-N.old, unless there is one with this content.
func (c *completion) keep(base string, content []byte) (name string, err error) {
	err = eachAside(base, func(aside string) error {
		name = filepath.Base(aside)
		if b, err := readInto(c.fs, aside, nil); err == nil {
			if bytes.Equal(b, content) {
				return nil
			}
			return fs.ErrExist
		}
		return createSynced(c.fs, c.dir, tempName, content, func(temp string) error {
			return c.fs.RenameNoReplace(temp, aside)
		})
	})
	return name, err
}

// checkOld looks for the entries before the journal's first. wrongAt is where the journal's
// lines differ from those in the last segment, -1 if they do not.
func (c *completion) checkOld() (a *Alarm, wrongAt int64, err error) {
	if len(c.old) == 0 {
		return c.missing(0), -1, nil
	}
	path := segmentPath(c.dir, c.old[len(c.old)-1])
	f, err := c.fs.Open(path)
	if err != nil {
		return nil, -1, err
	}
	defer f.Close()
	first, err := firstSeq(c.fs, path)
	if err != nil {
		return nil, -1, err
	}
	s, good := newScanner(f, first), int64(0)
	for s.want < c.first && s.next() {
		good = s.good
	}
	if s.err != nil || s.want < c.first {
		return c.missing(s.want - 1), -1, s.err
	}
	for s.next() {
		i := s.entry.Seq - c.first
		switch {
		case i >= int64(len(c.lines)):
			return c.beyond(s.entry.Seq), -1, nil
		case !bytes.Equal(s.line, c.lines[i][:len(c.lines[i])-1]):
			return nil, good, s.err
		}
		good = s.good
	}
	return nil, -1, s.err
}

// checkLater looks for entries that the journal lacks.
func (c *completion) checkLater() (*Alarm, error) {
	end := c.first + int64(len(c.lines)) - 1
	for _, n := range c.later {
		last, err := lastSeq(c.fs, segmentPath(c.dir, n))
		if err != nil {
			return nil, err
		}
		if last > end {
			return c.beyond(last), nil
		}
	}
	return nil, nil
}

// lastSeq is the number of the last complete line of a segment, 0 if its first is none.
func lastSeq(fsys afero.Fs, path string) (int64, error) {
	first, err := firstSeq(fsys, path)
	if errors.Is(err, ErrDamaged) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	f, err := fsys.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	s := newScanner(f, first)
	for s.next() {
	}
	return s.want - 1, s.err
}

func (c *completion) missing(have int64) *Alarm {
	if have == c.first-1 {
		return nil
	}
	a := missingEntries(have, c.first-1, "durable")
	a.Reason = describe(c.fs, c.dir, have, a)
	return a
}

func (c *completion) beyond(have int64) *Alarm {
	end := c.first + int64(len(c.lines)) - 1
	return &Alarm{Want: have, Have: end, Reason: fmt.Sprintf("the journal ends with entry %d, the log with %d: another journal was put in its place", end, have)}
}

// write replaces the later segments by one with the journal's lines, and cuts off wrong
// lines before it: they must not contradict those that count.
func (c *completion) write(wrongAt int64) error {
	next := len(c.old) + 1
	for _, n := range slices.Backward(c.later) {
		if n > next {
			if err := c.fs.Remove(segmentPath(c.dir, n)); err != nil {
				return err
			}
		}
	}
	f, err := create(c.fs, filepath.Join(c.dir, tempName), slices.Concat(c.lines...), func(temp string) error {
		return c.fs.Rename(temp, segmentPath(c.dir, next))
	})
	if err == nil {
		err = f.Close()
	}
	if err == nil && wrongAt >= 0 {
		err = cutFile(c.fs, segmentPath(c.dir, len(c.old)), wrongAt)
	}
	return err
}

func cutFile(fsys afero.Fs, path string, size int64) error {
	f, err := fsys.OpenFile(path, os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// compare looks for the line of which the journal says that it was durable: the newest before
// a clean stop. If the log does not have it, byte for byte, compare raises an Alarm. OpenFrom
// compares the lines before it.
func compare(fsys FS, dir string, expected head) error {
	want := expected.size
	have, found, err := find(fsys, dir, expected.line)
	if err != nil {
		return fmt.Errorf("compare audit log: %w", err)
	}
	if found {
		return nil
	}
	a := missingEntries(have, want, "durable before the last stop")
	a.Reason = describe(fsys, dir, have, a)
	if have >= want {
		a.Reason = fmt.Sprintf("entry %d differs from the one that was durable before the last stop", want)
	}
	return Raise(fsys, dir, *expected.promise(a))
}

// promise adds to an alarm what was durable.
func (h *head) promise(a *Alarm) *Alarm {
	if h.known {
		root := h.tree.root()
		a.Size, a.Root = h.size, root.String()
	}
	return a
}

// describe is the reason of an alarm about missing entries, or about a damage if that is why.
func describe(fsys FS, dir string, have int64, a *Alarm) string {
	s, err := takeSurvey(fsys, dir)
	if err != nil || s.damage == nil || s.size > have {
		return a.Reason
	}
	return s.describe(a.Want, "")
}

// find searches a line, and returns the last number of the segment that should have it.
func find(fsys FS, dir string, line []byte) (have int64, found bool, err error) {
	all, err := segments(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamaged) || err == nil && len(all) == 0 {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	seq, _ := seqOf(line)
	at, err := (&walk{fs: fsys, dir: dir}).find(all, seq)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return 0, false, err
	}
	path := segmentPath(dir, max(at.segment, 1))
	content, err := readInto(fsys, path, nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, false, err
	}
	if bytes.HasPrefix(content, line) || bytes.Contains(content, append([]byte("\n"), line...)) {
		return seq, true, nil
	}
	have, err = lastSeq(fsys, path)
	return have, false, err
}
