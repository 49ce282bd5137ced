package gate

import (
	"context"
	"errors"
	"fmt"

	"github.com/permesso-dev/permesso/approval"
)

// Disk space of documents, in bytes.
const (
	defaultOutputSpace = 256 << 10 // of a handler without max_output
	overheadSpace      = 64 << 10  // the other members, and the files' blocks
	refusalSpace       = 16 << 10
)

// refuseDegraded refuses a request that the gate cannot take now, if there is space
// for a refusal.
func (g *Gate) refuseDegraded(ctx context.Context, s *state) (waiting bool, err error) {
	p, degraded := g.Degraded()
	if degraded && s.submission != nil {
		g.reject(s.submission, fmt.Errorf("%w: %s", approval.ErrDegraded, p.Reason))
		return true, nil
	}
	if !degraded {
		p.Reason = "the free disk space is too small for this tool's max_output"
	}
	release, ok := g.reserve(ctx, int64(4*len(s.q)+refusalSpace))
	if !ok && s.submission != nil {
		g.reject(s.submission, fmt.Errorf("%w: %s", approval.ErrDegraded, p.Reason))
		return true, nil
	}
	if !ok {
		g.firstSeen(s.key, s.now)
		s.retryAt = g.Now().Add(probeInterval)
		return true, nil
	}
	defer release()
	return g.refuseLimited(ctx, s, approval.StatusAutoRejected, approval.ErrDegraded, approval.Because(approval.ReasonDegraded, "problem", p.Reason))
}

// spaceNeeded is the space for the claim, the record, the response and the audit
// entry of one run.
func spaceNeeded(request int, t approval.Tool) int64 {
	output := int64(t.Handler.MaxOutput)
	if output == 0 {
		output = defaultOutputSpace
	}
	return 4*int64(request) + 3*output + overheadSpace
}

func (g *Gate) reserve(ctx context.Context, bytes int64) (release func(), ok bool) {
	release, err := g.Store.Reserve(ctx, bytes)
	if err == nil {
		return release, true
	}
	// A tool with a large max_output must not degrade the gate for the others.
	if usual := 2 * spaceNeeded(0, approval.Tool{}); errors.Is(err, approval.ErrNoSpace) && bytes > usual {
		if release, err := g.Store.Reserve(ctx, usual); err == nil {
			release()
			return nil, false
		}
	}
	g.reportError(ctx, err)
	return nil, false
}

// reserveRun reserves space for a run until its record is written. Without space
// nothing starts.
func (g *Gate) reserveRun(ctx context.Context, s *state, request int, t approval.Tool) bool {
	release, ok := g.reserve(ctx, spaceNeeded(request, t))
	if !ok {
		s.retryAt = g.Now().Add(minExamineInterval)
		return false
	}
	g.condition.reservations.set(s.key, release)
	return true
}

func (g *Gate) releaseReservation(k approval.Key) {
	if release, ok := g.condition.reservations.take(k); ok {
		release()
	}
}
