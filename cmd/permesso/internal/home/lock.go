package home

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// AnswerTimeout is how long a command or a daemon waits for a running daemon.
const AnswerTimeout = 2 * time.Second

const (
	lockTimeout  = 5 * time.Second // for a command, or a daemon that has no health report yet
	lockInterval = 20 * time.Millisecond
)

// WaitForLock calls take until its error is not store.ErrLocked, and returns that error.
// Other commands take the lock for a moment, and a daemon may be starting or stopping: the
// wait ends with store.ErrLocked after AnswerTimeout if a daemon has the lock, after 5
// seconds if another process has it.
func (h *Home) WaitForLock(ctx context.Context, take func() error) error {
	for began := time.Now(); ; {
		err := take()
		if !errors.Is(err, store.ErrLocked) {
			return err
		}
		waited := time.Since(began)
		if waited > lockTimeout || waited > AnswerTimeout && h.HealthAt(time.Now()).PID != 0 {
			return err
		}
		if err := Sleep(ctx, lockInterval); err != nil {
			return err
		}
	}
}

// Lock takes the home's lock, as WaitForLock does.
func (h *Home) Lock(ctx context.Context) (release func() error, err error) {
	if h.Store.JournalSize < 0 {
		return nil, console.Fail(console.ExitError, "a whole number of bytes from 262144 to 67108864, a multiple of 4096",
			"%s: %q is no size of a segment", JournalSize, os.Getenv(JournalSize))
	}
	err = h.WaitForLock(ctx, func() (err error) {
		release, err = h.Store.Lease(ctx)
		return err
	})
	if errors.Is(err, store.ErrLocked) {
		err = fmt.Errorf("another daemon serves this home: %w", err)
	}
	return release, err
}
