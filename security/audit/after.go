package audit

import (
	"fmt"
	"math"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

// EntriesAfter is Entries for entries with numbers above seq. It does not read
// segments that contain only older ones.
func EntriesAfter(fsys afero.Fs, dir string, seq int64, each func(approval.Entry) error) error {
	all, err := segments(fsys, dir)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	w := &walk{fs: fsys, dir: dir}
	from, err := w.find(all, seq+1)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	return w.lines(all, from, math.MaxInt64, func(_ []byte, e approval.Entry, _ place) error {
		if e.Seq <= seq {
			return nil
		}
		return each(e)
	})
}
