package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

var opDisk = get("disk", "/disk", "Figures of the journal", (*Service).disk).forOperator()

func (s *Service) disk(context.Context, *httpapi.Caller, *none) (*ipc.DiskStatus, error) {
	return s.Home.Store.Disk()
}

// Disk returns the figures of the journal.
func (c *Client) Disk(ctx context.Context) (*ipc.DiskStatus, error) {
	return call(ctx, c, opDisk, none{})
}

// freezeLimit is how long a command that was ended can hold up commits.
const freezeLimit = 10 * time.Second

// frozen is the one freeze of a daemon.
type frozen struct {
	mu   sync.Mutex
	id   int           // of the last freeze
	thaw chan struct{} // ends it; nil: there is none
}

// Frozen names a freeze.
type Frozen struct {
	ID int `json:"id"`
}

var (
	opFreeze = post("freeze", "/freeze", "Commit nothing, for a backup, for at most ten seconds", (*Service).freeze).forOperator()
	opThaw   = post("thaw", "/thaw", "Commit again. False: the ten seconds were over", (*Service).thaw).forOperator()
)

func (s *Service) freeze(_ context.Context, _ *httpapi.Caller, _ *none) (Frozen, error) {
	f := &s.frozen
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thaw != nil {
		return Frozen{}, console.Fail(console.ExitRefused, "try again when it has ended; one that was killed holds the journal for at most ten seconds", "another backup is being made")
	}
	begun, thaw := make(chan error, 1), make(chan struct{})
	go func() {
		begun <- s.Home.Store.Freeze(func() error { //nolint:contextcheck // it outlives the request
			begun <- nil
			f.wait(thaw)
			return nil
		})
	}()
	if err := <-begun; err != nil {
		return Frozen{}, err
	}
	f.id++
	f.thaw = thaw
	return Frozen{f.id}, nil
}

// wait returns when the freeze ends, or has lasted too long.
func (f *frozen) wait(thaw chan struct{}) {
	select {
	case <-thaw:
	case <-time.After(freezeLimit):
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.thaw == thaw {
			f.thaw = nil
		}
	}
}

func (s *Service) thaw(_ context.Context, _ *httpapi.Caller, in *struct{ Body Frozen }) (bool, error) {
	f := &s.frozen
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thaw == nil || f.id != in.Body.ID {
		return false, nil
	}
	close(f.thaw)
	f.thaw = nil
	return true, nil
}

// ErrThawed says that the daemon has committed again before f returned.
var ErrThawed = errors.New("the daemon could not wait any longer")

// Freeze calls f while nothing is committed, in the daemon or, without one, in this process.
// The error is ErrThawed if f took more than ten seconds, or the daemon ended meanwhile: the
// next one may have committed.
func (c *Client) Freeze(ctx context.Context, f func() error) error {
	for tries := 0; c.service == nil; tries++ {
		frozen, err := remote(ctx, c, opFreeze, none{})
		if err == nil {
			return c.whileFrozen(ctx, frozen, f)
		}
		lost, ok := errors.AsType[*lostError](err)
		if ok {
			err = c.afterLoss(ctx, lost, change{}, tries)
		}
		if err != nil {
			return err
		}
	}
	return f() // no other process has the lease
}

func (c *Client) whileFrozen(ctx context.Context, frozen Frozen, f func() error) error {
	err := f()
	ctx = context.WithoutCancel(ctx)
	held, thawErr := remote(ctx, c, opThaw, struct{ Body Frozen }{frozen})
	if lost, ok := errors.AsType[*lostError](thawErr); ok {
		held, thawErr = false, c.afterLoss(ctx, lost, change{}, 0)
	}
	if err == nil && thawErr == nil && !held {
		err = ErrThawed
	}
	return errors.Join(err, thawErr)
}
