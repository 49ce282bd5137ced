package audit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
)

// Facts are what documents say that the log must have.
type Facts struct {
	// Receipts are names of receipts by digest. The log must have the entry of each.
	Receipts map[string]string
	// Outcomes are kinds of entries by WORKSPACE/ID of a record. The log must have one of
	// each, about that request.
	Outcomes map[string][]event.Kind
	// At is when what a name stands for was written. An alarm that was acknowledged later
	// covers it.
	At map[string]time.Time

	acknowledged time.Time
}

// clone copies the facts, to remove those that the log has.
func (f Facts) clone() Facts {
	return Facts{Receipts: maps.Clone(f.Receipts), Outcomes: maps.Clone(f.Outcomes), At: f.At}
}

func (f *Facts) empty() bool { return len(f.Receipts)+len(f.Outcomes) == 0 }

// remove removes the facts that an entry tells.
func (f *Facts) remove(e *event.Entry) {
	if e.Event == event.LogAcknowledged && e.Time.After(f.acknowledged) {
		f.acknowledged = e.Time
	}
	if e.Event == event.Approved || e.Event == event.AutoApproved {
		delete(f.Receipts, e.ReceiptSHA256)
	}
	if len(f.Outcomes) > 0 && e.RequestID != "" {
		if k := e.Workspace + "/" + e.RequestID; slices.Contains(f.Outcomes[k], e.Event) {
			delete(f.Outcomes, k)
		}
	}
}

// excuse removes the facts that an acknowledged alarm covers, and returns them.
func (f *Facts) excuse() (covered Facts) {
	all := f.clone()
	isOpen := func(name string) bool {
		at, ok := f.At[name]
		return !ok || !at.Before(f.acknowledged)
	}
	maps.DeleteFunc(all.Receipts, func(_, name string) bool { return isOpen(name) })
	maps.DeleteFunc(all.Outcomes, func(name string, _ []event.Kind) bool { return isOpen(name) })
	maps.DeleteFunc(f.Receipts, func(_, name string) bool { return !isOpen(name) })
	maps.DeleteFunc(f.Outcomes, func(name string, _ []event.Kind) bool { return !isOpen(name) })
	return all
}

// String describes what the log lacks, with an example.
func (f *Facts) String() string {
	if len(f.Receipts) > 0 {
		return fmt.Sprintf("the entry of %s is missing, of %s for example", hints.Plural(len(f.Receipts), "receipt"), slices.Sorted(maps.Values(f.Receipts))[0])
	}
	return fmt.Sprintf("the outcome of %s is missing, of %s for example", hints.Plural(len(f.Outcomes), "record"), slices.Sorted(maps.Keys(f.Outcomes))[0])
}

// RaiseIfMissing raises an Alarm if the log lacks one of the facts. have is the number of its
// last entry. It reads backwards, until it has found all.
func RaiseIfMissing(fsys FS, dir string, have int64, f Facts) error {
	missing, err := findFacts(fsys, dir, f)
	if err != nil {
		return fmt.Errorf("compare audit log with the documents: %w", err)
	}
	if missing.empty() {
		return nil
	}
	return Raise(fsys, dir, Alarm{Have: have, Reason: missing.String()})
}

func findFacts(fsys afero.Fs, dir string, f Facts) (missing Facts, err error) {
	missing = f.clone()
	if missing.empty() {
		return missing, nil
	}
	err = Backwards(fsys, dir, nil, func(e event.Entry) error {
		if missing.remove(&e); missing.empty() {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) || errors.Is(err, ErrDamaged) { // damage: what is missing may be behind it
		err = nil
	}
	missing.excuse()
	return missing, err
}
