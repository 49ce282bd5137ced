package ipc

import (
	"context"
	"fmt"
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// inodesPerRun is how many files one run may create: claims, record, response, temporary
// files, and a segment of the log.
const inodesPerRun = 8

// reservation is the space that is reserved for running actions.
type reservation struct {
	mu    sync.Mutex
	bytes uint64
	runs  uint64
}

// Reserve reserves disk space. Other programs can still use it up. The error is
// approval.ErrNoSpace when free space minus reserved space is less than bytes.
func (s *Store) Reserve(ctx context.Context, bytes int64) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	want := uint64(max(bytes, 0))
	r := &s.reserved
	r.mu.Lock()
	defer r.mu.Unlock()
	free, inodes, err := s.FS.Free(s.Layout.Home)
	switch {
	case err != nil:
		return nil, fmt.Errorf("check free space: %w", classify(err))
	case free < r.bytes+want:
		return nil, fmt.Errorf("%w: %d KiB free, %d needed", approval.ErrNoSpace, free>>10, (r.bytes+want)>>10)
	case inodes < (r.runs+1)*inodesPerRun:
		return nil, fmt.Errorf("%w: %d inodes free, %d needed", approval.ErrNoSpace, inodes, (r.runs+1)*inodesPerRun)
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
