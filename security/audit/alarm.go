package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/hints"
)

// ErrAlarm says that the log has an Alarm.
var ErrAlarm = errors.New("alarm")

// Alarm says that the log lacks entries that were durable. It stays until the operator
// acknowledges it.
type Alarm struct {
	Since  time.Time `json:"since"`
	Want   int64     `json:"want"` // number of an entry that was durable; 0: not known
	Have   int64     `json:"have"` // number of the last entry that was found
	Reason string    `json:"reason"`

	Size     int64  `json:"size,omitzero"` // entries that were durable; 0: not known
	Root     string `json:"root,omitzero"` // of their tree, in base64
	Returned bool   `json:"returned,omitzero"`
}

// missingEntries is the alarm about entries after the last one that was found.
func missingEntries(have, want int64, why string) *Alarm {
	return &Alarm{Want: want, Have: have, Reason: fmt.Sprintf("%s missing, although %s", hints.Span("entry", have+1, want), why)}
}

// alarmFile is the name of the file of an Alarm in the log's folder.
const alarmFile = "alarm.json"

// Raise makes an alarm durable. An earlier alarm stays as it is.
func Raise(fsys FS, dir string, a Alarm) error {
	err := fsys.MkdirAll(dir, 0o700)
	if err == nil {
		err = writeAlarm(fsys, dir, a, fsys.RenameNoReplace)
	}
	if errors.Is(err, fs.ErrExist) {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("raise alarm of audit log: %w", err)
	}
	return nil
}

// replaceAlarm is Raise, but also for an alarm that stands.
func replaceAlarm(fsys FS, dir string, a Alarm) error {
	if err := writeAlarm(fsys, dir, a, fsys.Rename); err != nil {
		return fmt.Errorf("replace alarm of audit log: %w", err)
	}
	return nil
}

// writeAlarm syncs: what the alarm is about may be gone when the journal has gone on.
func writeAlarm(fsys FS, dir string, a Alarm, rename func(from, to string) error) error {
	if a.Since.IsZero() {
		a.Since = time.Now()
	}
	a.Since = a.Since.UTC().Truncate(time.Second)
	b, err := json.Marshal(a, codec.Times())
	if err != nil {
		return err
	}
	return createSynced(fsys, dir, ".alarm.new", append(b, '\n'), func(temp string) error {
		return rename(temp, filepath.Join(dir, alarmFile))
	})
}

// ReadAlarm returns the alarm of a log, nil if there is none. A file that cannot be
// understood is one, too.
func ReadAlarm(fsys afero.Fs, dir string) (*Alarm, error) {
	b, err := readInto(fsys, filepath.Join(dir, alarmFile), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && len(b) > 0 {
		return nil, fmt.Errorf("read alarm of audit log: %w", err)
	}
	a := &Alarm{}
	if err := json.Unmarshal(b, a); err != nil {
		a = &Alarm{Reason: "the file " + alarmFile + " cannot be read"}
	}
	return a, nil
}

// EndAlarm removes the alarm. The caller has appended the entry that says who acknowledged it,
// and why.
func EndAlarm(fsys FS, dir string) error {
	if err := fsys.Remove(filepath.Join(dir, alarmFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end alarm of audit log: %w", err)
	}
	return nil
}

// finding is why a log that is opened gets an Alarm, and what is put aside then.
type finding struct {
	Alarm
	survey      *survey
	checkpoints bool // they contradict the log
}

// compare looks for what differs from the journal's head and the newest checkpoint.
func (s *survey) compare(expected head, newest *Checkpoint) *finding {
	f := &finding{survey: s, Alarm: Alarm{Want: s.size, Have: s.size}}
	root := func(size int64, want tlog.Hash) bool { return s.size < size || s.roots[size] == want }
	want, why := expected.size, "durable"
	if newest != nil && newest.Size >= want {
		want, why = newest.Size, "under a signed checkpoint"
	}
	if newest != nil {
		f.checkpoints = s.size < newest.Size || !root(newest.Size, newest.Root)
		f.Size, f.Root = newest.Size, newest.Root.String()
	}
	if expected.known && expected.size >= f.Size {
		expectedRoot := expected.tree.root()
		f.Size, f.Root = expected.size, expectedRoot.String()
	}
	switch {
	case s.size < want:
		f.Want, f.Reason = want, s.describe(want, why)
	case expected.known && !root(expected.size, expected.tree.root()):
		f.Reason = fmt.Sprintf("an entry between numbers 1 and %d was changed: they are not those that the journal committed", expected.size)
	case f.checkpoints:
		f.Reason = fmt.Sprintf("an entry between numbers 1 and %d was changed: they are not those that checkpoint %d signed", newest.Size, newest.Size)
	case s.damage != nil && (expected.known || s.segment < len(s.numbers)):
		f.Reason = s.damage.String()
	case expected.known && s.size > expected.size && (newest == nil || newest.Size < s.size):
		f.Want, f.Reason = expected.size, fmt.Sprintf("%s added: neither the journal nor a signed checkpoint has that", hints.Span("entry", expected.size+1, s.size))
	case newest == nil && expected.signed > 0:
		f.Reason = fmt.Sprintf("%s is missing or empty, but %d entries were signed there", checkpointFile, expected.signed)
	case newest != nil && newest.Size < expected.signed:
		f.Reason = fmt.Sprintf("%s ends with a checkpoint of %d entries, but %d were signed there", checkpointFile, newest.Size, expected.signed)
	default:
		return nil
	}
	return f
}

// describe says what is missing up to number want.
func (s *survey) describe(want int64, why string) string {
	if s.damage != nil {
		return fmt.Sprintf("%s; entries up to %d were durable", s.damage, want)
	}
	return missingEntries(s.size, want, why).Reason
}

// raise raises the alarm, and then puts aside what contradicts the entries that count: the
// log is signed as it is.
func (f *finding) raise(fsys FS, dir string, now time.Time) error {
	f.Since = now
	if err := Raise(fsys, dir, f.Alarm); err != nil {
		return err
	}
	if f.checkpoints {
		if err := putAside(fsys, filepath.Join(dir, "checkpoints"), filepath.Join(dir, checkpointFile)); err != nil {
			return err
		}
	}
	for _, n := range slices.Backward(f.survey.numbers) {
		if n > f.survey.segment {
			if err := putAside(fsys, strings.TrimSuffix(segmentPath(dir, n), segmentSuffix), segmentPath(dir, n)); err != nil {
				return err
			}
		}
	}
	return fsys.SyncDir(dir)
}

// putAside renames a file to base-N.old.
func putAside(fsys FS, base, name string) error {
	return eachAside(base, func(aside string) error { return fsys.RenameNoReplace(name, aside) })
}

// eachAside calls try for the names base-N.old, until its error is not fs.ErrExist.
func eachAside(base string, try func(aside string) error) error {
	for n := 1; ; n++ {
		if err := try(fmt.Sprintf("%s-%d.old", base, n)); !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// noteReturn changes the text of an alarm if the entries that it says to be missing are there
// again: the operator has put the log back. The alarm stays.
func (a *Alarm) noteReturn(fsys FS, dir string, s *survey) error {
	if a == nil || a.Size == 0 || a.Returned || s.size < a.Size || s.roots[a.Size].String() != a.Root {
		return nil
	}
	now := *a
	now.Have, now.Returned = s.size, true
	now.Reason = fmt.Sprintf("the log was put back: its first %d entries are those that were durable. Before that: %s", a.Size, a.Reason)
	return replaceAlarm(fsys, dir, now)
}
