package ipc

import (
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/journal"
)

// DiskStatus is what the journal of one HOME is doing. Rates are per second.
type DiskStatus struct {
	Segments       int       `json:"segments"`
	Free           int       `json:"free"`
	SegmentBytes   int64     `json:"segment_bytes"`
	ReservedBytes  int64     `json:"reserved_bytes"`           // for the outcomes of what runs
	Oldest         time.Time `json:"oldest,omitzero"`          // of the commits after the last checkpoint
	LastCheckpoint time.Time `json:"last_checkpoint,omitzero"` // or the start; zero without the lease
	LateFiles      int       `json:"late_files"`               // committed, and not yet written
	FreeBytes      uint64    `json:"free_bytes"`               // on the file system of HOME
	Since          time.Time `json:"since"`                    // the start
	Total          DiskRate  `json:"total"`                    // since then
	LastMinute     DiskRate  `json:"last_minute"`              // or since the start
	Failed         string    `json:"failed,omitempty"`         // why nothing is committed any more
}

// DiskRate counts commits, the groups in which they were synced, and their bytes.
type DiskRate struct {
	Commits          uint64  `json:"commits"`
	Groups           uint64  `json:"groups"`
	Bytes            uint64  `json:"bytes"`
	CommitsPerSecond float64 `json:"commits_per_second"`
	GroupsPerSecond  float64 `json:"groups_per_second"`
	BytesPerSecond   float64 `json:"bytes_per_second"`
}

func rateOf(c journal.Counts, d time.Duration) DiskRate {
	s := max(d.Seconds(), 1)
	return DiskRate{c.Commits, c.Groups, c.Bytes, float64(c.Commits) / s, float64(c.Groups) / s, float64(c.Bytes) / s}
}

// Disk returns the figures of the journal. The caller has the lease, or Lease could not write
// HOME: then they are those of the files.
func (s *Store) Disk() (*DiskStatus, error) {
	j := s.writer()
	space, _, freeErr := s.FS.Free(s.Layout.Home)
	switch {
	case j == nil && s.notLeased.Load() == nil:
		return nil, fmt.Errorf("read journal: %w", store.ErrLocked)
	case j == nil:
		st, err := journal.Inspect(s.FS, s.Layout.Journal())
		return &DiskStatus{Segments: st.Segments, Free: st.Free, SegmentBytes: st.Size, FreeBytes: space}, classify(errors.Join(freeErr, err))
	}
	if freeErr != nil {
		return nil, fmt.Errorf("check free space: %w", classify(freeErr))
	}
	st, now := j.Stats(), time.Now()
	d := &DiskStatus{
		Segments: st.Segments, Free: st.Free, SegmentBytes: st.Size, ReservedBytes: st.Reserved,
		LastCheckpoint: time.Unix(0, s.lastCheckpoint.Load()).UTC(), LateFiles: int(s.lateCount.Load()), FreeBytes: space, Since: st.Began.UTC(),
		Total: rateOf(st.Counts, now.Sub(st.Began)), LastMinute: rateOf(st.LastMinute, min(time.Minute, now.Sub(st.Began))),
	}
	if first := s.firstCommit.Load(); first != 0 {
		d.Oldest = time.Unix(0, first).UTC()
	}
	if err := s.checkJournal(j); err != nil {
		d.Failed = err.Error()
	} else if err := j.Err(); err != nil {
		d.Failed = err.Error()
	}
	return d, nil
}
