package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// Disk space of documents, in bytes.
const (
	defaultOutputSpace = 256 << 10 // of a handler without max_output
	overheadSpace      = 64 << 10  // the other members, and the files' blocks
	refusalSpace       = 16 << 10
)

// usualSpace is the space that a run of a tool without max_output needs.
const usualSpace = 3*defaultOutputSpace + overheadSpace

// spaceNeeded is the space for the claim, the record, the response and the audit
// entries of one run. A tool that runs nothing has no output.
func spaceNeeded(request int, t approval.Tool) int64 {
	space := 4*int64(request) + overheadSpace
	if t.Runs() {
		space += 3 * int64(cmp.Or(t.Handler.MaxOutput, defaultOutputSpace))
	}
	return space
}

// reserve reserves space on the disk and room in the journal. It reports a lack of space;
// an error, which wraps store.ErrNoRoom, says that the key has to wait for room.
func (g *Gate) reserve(ctx context.Context, bytes int64) (release func(), ok bool, err error) {
	release, err = g.Store.Reserve(ctx, bytes)
	switch {
	case err == nil:
		return release, true, nil
	case errors.Is(err, store.ErrNoRoom):
		return nil, false, err
	}
	// A tool with a large max_output must not degrade the gate for the others.
	if errors.Is(err, store.ErrNoSpace) && bytes > 2*usualSpace {
		if release, err := g.Store.Reserve(ctx, 2*usualSpace); err == nil {
			release()
			return nil, false, nil
		}
	}
	g.reportError(ctx, err)
	return nil, false, nil
}

// reserveRun reserves space for a run until its record is written. Without space
// nothing starts.
func (g *Gate) reserveRun(ctx context.Context, k approval.Key, request int, t approval.Tool) (ok bool, err error) {
	release, ok, err := g.reserve(ctx, spaceNeeded(request, t))
	if ok {
		g.condition.reservations.set(k, release)
	}
	return ok, err
}

func (g *Gate) releaseReservation(k approval.Key) {
	if release, ok := g.condition.reservations.take(k); ok {
		release()
	}
}

// Waiting for room in the journal.
const (
	roomRetry   = 50 * time.Millisecond
	roomTimeout = 2 * time.Second // after which a submission is refused
	noRoomLimit = 5 * time.Second // after which the gate is degraded
)

// awaitRoom lets a key wait for room in the journal, and asks for a checkpoint. A caller
// gets an answer in time.
func (g *Gate) awaitRoom(ctx context.Context, k approval.Key, cause error) (retryAt time.Time) {
	now := g.Now()
	if g.condition.noRoomFor(now) > noRoomLimit {
		g.setHealth(noSpace, cause, -1)
	}
	if o := g.submissions.at(k); o != nil && now.Sub(g.firstSeen(k, now)) >= roomTimeout {
		g.seen.remove(k)
		g.reject(o, fmt.Errorf("%w: %s", submit.ErrDegraded, diagnose(cause).Reason))
		return time.Time{}
	}
	g.askCheckpoint(ctx)
	return now.Add(roomRetry)
}

// noRoomFor is called when the journal has no room. It returns how long that has been so.
func (c *condition) noRoomFor(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	gap := now.Sub(c.noRoomLast)
	if c.noRoomSince.IsZero() || gap < 0 || gap > 2*probeInterval {
		c.noRoomSince = now
	}
	c.noRoomLast = now
	return now.Sub(c.noRoomSince)
}

// findRoom records that new work was committed.
func (c *condition) findRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noRoomSince = time.Time{}
}
