package ipc

import (
	"fmt"
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// inodesPerRun is how many files one run may leave or need on the way: its
// claims, record, response, temporary files, and a segment of the log.
const inodesPerRun = 8

// SpaceReporter is an FS that knows how much room there is; an FS need not be one.
type SpaceReporter interface {
	// Free gives the bytes and inodes that are free for us on the file system
	// that holds name. Where there is no such limit it is math.MaxUint64.
	Free(name string) (bytes, inodes uint64, err error)
}

// room is what has been set aside for runs that are under way.
type room struct {
	mu    sync.Mutex
	bytes uint64
	runs  uint64
}

// Reserve sets room aside on the disk, as far as the kernel tells: nothing
// keeps other programs from taking it. The error is approval.ErrNoRoom when
// there is not enough besides what is set aside already.
func (s *Store) Reserve(bytes int64) (release func(), err error) {
	want := uint64(max(bytes, 0))
	r := &s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if spacer, ok := s.FS.(SpaceReporter); ok {
		free, inodes, err := spacer.Free(s.Layout.Home)
		switch {
		case err != nil:
			return nil, fmt.Errorf("look for room: %w", err)
		case free < r.bytes+want:
			return nil, fmt.Errorf("%w: %d KiB free, %d needed", approval.ErrNoSpace, free>>10, (r.bytes+want)>>10)
		case inodes < (r.runs+1)*inodesPerRun:
			return nil, fmt.Errorf("%w: %d inodes free, %d needed", approval.ErrNoSpace, inodes, (r.runs+1)*inodesPerRun)
		}
	}
	r.bytes += want
	r.runs++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bytes -= want
		r.runs--
	}), nil
}
