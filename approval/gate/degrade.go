package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/move"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// # Degraded mode
//
// If the disk is full, read-only or broken, the gate takes no new work: it asks about
// nothing and starts nothing. Runs that have started still end, if their record can
// be written. New requests are refused while there is space for a refusal. Otherwise
// they stay in the folder until the disk works again. The gate examines the disk
// every few seconds and recovers by itself. After a failed write or sync that must not be
// repeated, nothing is done any more: the gate needs a restart and reports that.
//
// A full journal is no fault: a key waits for the next checkpoint, and the gate is degraded
// only if that takes long.

// Degradation is the reason why the gate takes no new work.
type Degradation struct {
	Reason  string // "the disk is full": follows "gate degraded: "
	Hint    string // what the operator can do
	Restart bool   // only a restart ends it
}

// health is what the gate can do. A higher value can do less.
type health uint8

const (
	healthy      health = iota
	noSpace             // only outcomes and refusals are written
	writeFailing        // writes fail; outcomes are tried
	stopped             // nothing is read or done until a restart
)

// probeInterval is the time between two examinations of a degraded gate.
const probeInterval = 5 * time.Second

// minExamineInterval is the minimum time between examinations that errors cause.
const minExamineInterval = time.Second

// afterExamine is the delay of a retry after the next examination.
const afterExamine = 100 * time.Millisecond

// condition is the current health.
type condition struct {
	examining sync.Mutex

	mu           sync.Mutex
	level        health
	degradation  Degradation
	failureCount int            // failures so far; an examination ignores its result if a failure came after it began
	next         time.Time      // examination
	lastExamined time.Time      // when the last examination began
	noRoomSince  time.Time      // when the journal was first found full; zero: it has room
	noRoomLast   time.Time      // when it was last found full
	reservations keyMap[func()] // disk space of running requests
}

// Degraded returns why the gate takes no new work; ok is false if it takes work.
func (g *Gate) Degraded() (p Degradation, ok bool) {
	c := &g.condition
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.degradation, c.level != healthy
}

func (g *Gate) health() (level health, next time.Time) {
	c := &g.condition
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level, c.next
}

func (g *Gate) isStopped() bool {
	level, _ := g.health()
	return level == stopped
}

// reportError is called for every error. An examination finds out whether the disk
// has failed or only the files of one request.
func (g *Gate) reportError(ctx context.Context, err error) {
	switch {
	case errors.Is(err, store.ErrRestart):
		g.setHealth(stopped, err, -1)
	case errors.Is(err, store.ErrNoSpace):
		g.setHealth(noSpace, err, -1)
	case diagnose(err).Reason != "" && g.mayExamine():
		g.Examine(ctx)
	}
}

// mayExamine limits how often errors cause a test write. An agent can cause errors in
// its own folder.
func (g *Gate) mayExamine() bool {
	c := &g.condition
	c.mu.Lock()
	defer c.mu.Unlock()
	since := g.Now().Sub(c.lastExamined)
	return since < 0 || since >= minExamineInterval
}

// examinationDue reports whether next is not ahead: after a clock was set back, it would be
// more than one interval away.
func examinationDue(next, now time.Time) bool {
	wait := next.Sub(now)
	return wait <= 0 || wait > probeInterval
}

// checkHealth runs on every tick. A healthy gate only checks the free space.
func (g *Gate) checkHealth(ctx context.Context) {
	level, next := g.health()
	switch {
	case level == stopped, !examinationDue(next, g.Now()):
	case level != healthy:
		g.Examine(ctx)
	default:
		g.condition.mu.Lock()
		g.condition.next = g.Now().Add(probeInterval)
		g.condition.mu.Unlock()
		if release, ok, _ := g.reserve(ctx, usualSpace); ok {
			release()
		}
	}
}

// Examine tests the disk and records a change of health. Nothing but a restart ends the
// level stopped.
func (g *Gate) Examine(ctx context.Context) {
	c := &g.condition
	if g.isStopped() || !c.examining.TryLock() {
		return
	}
	ctx = context.WithoutCancel(ctx) // the end of a caller is no failure of the disk
	defer c.examining.Unlock()
	c.mu.Lock()
	failureCount := c.failureCount
	c.lastExamined = g.Now()
	c.mu.Unlock()
	level, err := g.examine(ctx)
	g.setHealth(level, err, failureCount)
}

func (g *Gate) examine(ctx context.Context) (health, error) {
	if err := g.Store.Probe(ctx); err != nil {
		return levelOf(err, writeFailing), err
	}
	if err := g.Audit.Sync(); err != nil {
		return levelOf(err, noSpace), err // documents can be written, the audit log cannot
	}
	// Twice the space of one run, so that the gate does not switch back and forth.
	release, err := g.Store.Reserve(ctx, 2*usualSpace)
	switch {
	case err == nil:
		release()
		g.condition.findRoom()
	case !errors.Is(err, store.ErrNoRoom) || g.condition.noRoomFor(g.Now()) > noRoomLimit:
		return levelOf(err, writeFailing), err
	}
	return healthy, nil
}

// levelOf is the health after an error of an examination; other is that of an error of no
// class.
func levelOf(err error, other health) health {
	switch {
	case errors.Is(err, store.ErrRestart):
		return stopped
	case errors.Is(err, store.ErrNoSpace), errors.Is(err, store.ErrNoRoom):
		return noSpace
	}
	return other
}

// setHealth records the health and reports each change once. failureCount is the
// count when the examination began; -1 means that cause is itself a new failure.
func (g *Gate) setHealth(level health, cause error, failureCount int) {
	c := &g.condition
	p := Degradation{}
	if level != healthy {
		p = diagnose(cause)
		p.Restart = level == stopped
	}
	c.mu.Lock()
	was, old := c.level, c.degradation
	if was == stopped || failureCount >= 0 && failureCount != c.failureCount {
		c.mu.Unlock()
		return
	}
	if failureCount < 0 {
		c.failureCount++
		level = max(level, was)
	}
	c.level, c.degradation, c.next = level, p, g.Now().Add(probeInterval)
	c.mu.Unlock()
	if was != level || old.Reason != p.Reason {
		g.notifyHealth(was, level, p, cause)
	}
}

func (g *Gate) notifyHealth(was, level health, p Degradation, cause error) {
	if level == healthy {
		if was == healthy {
			return
		}
		g.Log.Info().Msg("gate recovered")
		g.Audit.Note(event.Entry{Time: g.Now().UTC(), Event: event.Recovered})
	} else {
		g.Log.Error().Err(cause).Str("hint", p.Hint).Msg("gate degraded: " + p.Reason)
		g.Audit.Note(event.Entry{Time: g.Now().UTC(), Event: event.Degraded, Reason: p.Reason})
	}
	if g.Health != nil {
		g.Health(p, level != healthy)
	}
}

// diagnose explains a disk error. Reason is empty if err is not a disk error.
func diagnose(err error) Degradation {
	for _, x := range []struct {
		is         []error
		what, hint string
	}{
		{[]error{store.ErrJournalLost}, "the journal was removed or replaced while the daemon runs", ""},
		{[]error{store.ErrRestart}, "a sync failed and must not be retried", "repair the disk, then restart the daemon"},
		{[]error{store.ErrNoRoom}, "the journal is full", "its checkpoints fail or the disk is too slow: check the daemon's log"},
		{[]error{store.ErrNoSpace}, "the disk is almost full", "free space or inodes on the file system of HOME"},
		{[]error{syscall.ENOSPC}, "the disk is full", "free space or inodes on the file system of HOME"},
		{[]error{syscall.EDQUOT}, "the disk quota is used up", "free space, or raise the quota of the daemon's user"},
		{[]error{syscall.EROFS}, "the disk is read-only", "check the kernel log (dmesg), then remount it read-write"},
		{[]error{syscall.EMFILE, syscall.ENFILE}, "too many files are open", "raise the limit of open files (LimitNOFILE)"},
		{[]error{syscall.EIO}, "the disk reports errors", "check the kernel log (dmesg)"},
		{[]error{fs.ErrPermission}, "HOME is not writable", "fix owner and mode of the folders in HOME"},
	} {
		for _, target := range x.is {
			if errors.Is(err, target) {
				return Degradation{Reason: x.what, Hint: cmp.Or(x.hint, hints.Of(err))}
			}
		}
	}
	var path *fs.PathError // of the audit log
	if errors.Is(err, store.ErrUnavailable) || errors.As(err, &path) && !errors.Is(err, syscall.ENOENT) {
		return Degradation{Reason: "documents cannot be written", Hint: "check the daemon's log"}
	}
	return Degradation{}
}

// delay reports whether a degraded gate must not make this move now. A request that
// was delayed once waits until the gate is healthy or the request expires.
func (g *Gate) delay(m move.Move, s *state) (waiting bool) {
	level, next := g.health()
	switch {
	case level == healthy:
		return false
	case m == move.RunClaim, m == move.RunAgain:
	case m == move.Intake && (level >= writeFailing || g.seen.has(s.key)):
		g.firstSeen(s.key, s.now)
	default:
		return false
	}
	s.retryAt = g.retryAfterExamine(next)
	return true
}

func (g *Gate) retryAfterExamine(next time.Time) time.Time {
	if now := g.Now(); examinationDue(next, now) {
		return now.Add(probeInterval)
	}
	return next.Add(afterExamine)
}

// degraded means that only runs that have started may go on.
func (g *Gate) degraded() bool {
	level, _ := g.health()
	return level != healthy
}

// waitedTooLong reports that a delayed request waited longer than its timeout.
func (g *Gate) waitedTooLong(s *state, limit time.Duration) bool {
	t, ok := g.seen.get(s.key)
	return ok && s.now.Sub(t) >= limit
}

// refuseDegraded refuses a request that the gate cannot take now, if there is space
// for a refusal.
func (g *Gate) refuseDegraded(ctx context.Context, s *state) (waiting bool, err error) {
	if s.submission == nil && g.delay(move.Intake, s) { // it has just become so
		return true, nil
	}
	p, degraded := g.Degraded()
	if !degraded {
		p.Reason = "the free disk space is too small for this tool's max_output"
	}
	release, ok := func() {}, false
	if !degraded || s.submission == nil {
		if release, ok, err = g.reserve(ctx, int64(4*len(s.q)+refusalSpace)); err != nil {
			return false, err
		}
	}
	switch {
	case ok:
		defer release()
	case s.submission != nil:
		g.reject(s.submission, fmt.Errorf("%w: %s", submit.ErrDegraded, p.Reason))
		return true, nil
	default:
		g.firstSeen(s.key, s.now)
		s.retryAt = g.Now().Add(probeInterval)
		return true, nil
	}
	return g.refuseLimited(ctx, s, approval.StatusAutoRejected, submit.ErrDegraded, approval.Because("degraded", "problem", p.Reason))
}
