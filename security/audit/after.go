package audit

import (
	"fmt"
	"math"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

// EntriesAfter is Entries from the entry after the one numbered seq on; segments
// that hold only older ones are not opened further than their first line.
func EntriesAfter(fsys afero.Fs, dir string, seq int64, each func(approval.Entry) error) error {
	all, err := segments(fsys, dir)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	firsts := make([]int64, len(all)+1)
	firsts[len(all)] = math.MaxInt64
	for i, n := range all {
		if firsts[i], err = firstSeq(fsys, segmentPath(dir, n)); err != nil {
			return fmt.Errorf("read audit log: %w", err)
		}
	}
	for i, n := range all {
		if firsts[i+1] <= seq+1 {
			continue
		}
		_, err := readSegment(fsys, segmentPath(dir, n), firsts[i], firsts[i+1], func(x approval.Entry) error {
			if x.Seq <= seq {
				return nil
			}
			return each(x)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
