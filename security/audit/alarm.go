package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/afero"
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
}

// missingEntries is the alarm about entries after the last one that was found.
func missingEntries(have, want int64, why string) *Alarm {
	return &Alarm{Want: want, Have: have, Reason: fmt.Sprintf("entries %d to %d are missing: %s", have+1, want, why)}
}

// alarmFile is the name of the file of an Alarm in the log's folder.
const alarmFile = "alarm.json"

// Raise makes an alarm durable. An earlier alarm stays as it is.
func Raise(fsys FS, dir string, a Alarm) error {
	if a.Since.IsZero() {
		a.Since = time.Now()
	}
	a.Since = a.Since.UTC().Truncate(time.Second)
	b, err := json.Marshal(a)
	if err == nil {
		err = fsys.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = writeAlarm(fsys, dir, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("raise alarm of audit log: %w", err)
	}
	return nil
}

// writeAlarm syncs: what the alarm is about may be gone when the journal has gone on. A torn
// file is an alarm, too.
func writeAlarm(fsys FS, dir string, b []byte) error {
	f, err := create(fsys, filepath.Join(dir, ".alarm.new"), b, func(temp string) error {
		return fsys.RenameNoReplace(temp, filepath.Join(dir, alarmFile))
	})
	if errors.Is(err, fs.ErrExist) {
		return fsys.SyncDir(dir)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), fsys.SyncDir(dir))
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

// shortError says that a log lacks entries that its newest checkpoint covers.
type shortError struct{ want, have int64 }

func (e *shortError) Error() string {
	return fmt.Sprintf("the log ends with number %d, but its newest checkpoint covers %d", e.have, e.want)
}

// alarm raises the alarm, and then puts the checkpoints aside: the log is signed as it is.
func (e *shortError) alarm(fsys FS, dir string, now time.Time) error {
	a := missingEntries(e.have, e.want, "a signed checkpoint covers them")
	a.Since = now
	err := Raise(fsys, dir, *a)
	for n := 1; err == nil; n++ {
		aside := filepath.Join(dir, "checkpoints-"+strconv.Itoa(n)+".old")
		err = fsys.RenameNoReplace(filepath.Join(dir, checkpointFile), aside)
		if err == nil {
			return nil
		}
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return fmt.Errorf("put checkpoints aside: %w", err)
}
