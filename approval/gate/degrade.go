package gate

import (
	"errors"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// # When the disk fails
//
// A gate whose disk is full, read-only or broken takes no new work: nothing is
// asked, nothing runs. What has been started still ends, as far as it can be
// written. New requests get a refusal while there is room for one; otherwise
// they lie where they are, and are taken in when the disk works again. Every
// few seconds the gate tries, and goes on by itself. Only when a sync failed
// that cannot be repeated it has to be restarted, and says so.

// HealthStore is a Store that knows how its disk is; a Store need not be one.
type HealthStore interface {
	// Probe tries everything that writing a document takes. After nil,
	// whatever is visible is durable. It wraps approval.ErrRestart where
	// trying again is of no use.
	Probe() error
	// Reserve sets bytes aside on the disk; it wraps approval.ErrNoRoom.
	Reserve(bytes int64) (release func(), err error)
}

// Problem is why the gate takes no new work.
type Degradation struct {
	What    string // "its disk is full": completes a sentence about the gate
	Hint    string // what the operator can do
	Since   time.Time
	Restart bool // it does not go away by itself
}

// strength is what a gate can do; each can less than the one before.
type health uint8

const (
	healthy      health = iota
	noSpace             // no room for new work; endings and refusals are written
	writeFailing        // writing fails; endings are tried
	unsynced            // something visible may not be durable: nothing is built on it
)

// probeInterval is how often a gate that is not well looks whether it is again.
const probeInterval = 5 * time.Second

// minExamineInterval is how often errors make it look besides.
const minExamineInterval = time.Second

// afterExamine lets an examination that is due come first.
const afterExamine = 100 * time.Millisecond

// condition is how the gate is.
type condition struct {
	examining sync.Mutex

	mu           sync.Mutex
	level        health
	degradation  Degradation
	failureCount int                     // bad news so far: an examination that began before it is worth nothing
	next         time.Time               // of the next examination
	lastExamined time.Time               // when the last one began
	reservations map[approval.Key]func() // what runs have set aside
}

// Problem tells why the gate takes no new work; ok is false when it does.
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

// suspect is told of every error. Whether it is the disk's, or only that of one
// request's files, an examination finds out.
func (g *Gate) reportError(err error) {
	switch {
	case errors.Is(err, approval.ErrUnsynced), errors.Is(err, approval.ErrRestart):
		g.setHealth(unsynced, err, -1)
		g.Examine()
	case errors.Is(err, approval.ErrNoSpace):
		g.setHealth(noSpace, err, -1)
	case diagnose(err).What != "" && g.mayExamine():
		g.Examine()
	}
}

// mayExamine keeps errors that one agent can cause in its own folder from costing
// a trial write each.
func (g *Gate) mayExamine() bool {
	c := &g.condition
	c.mu.Lock()
	defer c.mu.Unlock()
	since := g.Now().Sub(c.lastExamined)
	return since < 0 || since >= minExamineInterval
}

// due says that it is time to examine again. A clock that was set back must not
// put that off.
func (g *Gate) examinationDue() bool {
	_, next := g.health()
	wait := next.Sub(g.Now())
	return wait <= 0 || wait > probeInterval
}

// checkup is what the ticker does: as long as the gate is well, it only looks
// for room.
func (g *Gate) checkHealth() {
	switch {
	case !g.examinationDue():
	case g.degraded():
		g.Examine()
	default:
		g.condition.mu.Lock()
		g.condition.next = g.Now().Add(probeInterval)
		g.condition.mu.Unlock()
		if release, ok := g.reserve(spaceNeeded(0, approval.Tool{})); ok {
			release()
		}
	}
}

// Examine finds out how the disk is, and notes it when that has changed. A gate
// that must be restarted stays so; what could not be removed is tried all the
// same.
func (g *Gate) Examine() {
	c := &g.condition
	if !c.examining.TryLock() {
		return
	}
	defer c.examining.Unlock()
	c.mu.Lock()
	failureCount, needsRestart := c.failureCount, c.degradation.Restart
	c.lastExamined = g.Now()
	c.mu.Unlock()
	level, err := g.examine()
	if !needsRestart {
		g.setHealth(level, err, failureCount)
	}
}

func (g *Gate) examine() (health, error) {
	prober, ok := g.Store.(HealthStore)
	if !ok {
		return healthy, nil
	}
	if err := prober.Probe(); err != nil {
		if level, _ := g.health(); level == unsynced || errors.Is(err, approval.ErrUnsynced) {
			return unsynced, err
		}
		return writeFailing, err
	}
	if log, ok := g.Audit.(interface{ Sync() error }); ok {
		if err := log.Sync(); err != nil {
			return noSpace, err // documents can be written, history cannot
		}
	}
	// A little more than one run needs, lest the gate opens and closes all the time.
	release, err := prober.Reserve(2 * spaceNeeded(0, approval.Tool{}))
	switch {
	case errors.Is(err, approval.ErrNoSpace):
		return noSpace, err
	case err != nil:
		return writeFailing, err
	}
	release()
	return healthy, nil
}

// become notes how the gate is, and tells of it once per change. news is what an
// examination knew when it began; -1 is bad news itself.
func (g *Gate) setHealth(level health, cause error, failureCount int) {
	c := &g.condition
	now := g.Now()
	p := Degradation{}
	if level != healthy {
		p = diagnose(cause)
		p.Since, p.Restart = now, errors.Is(cause, approval.ErrRestart)
	}
	c.mu.Lock()
	was, old := c.level, c.degradation
	if old.Restart || failureCount >= 0 && failureCount != c.failureCount {
		c.mu.Unlock()
		return
	}
	if failureCount < 0 {
		c.failureCount++
		level = max(level, was)
	}
	if was != healthy && level != healthy {
		p.Since = old.Since
	}
	c.level, c.degradation, c.next = level, p, now.Add(probeInterval)
	c.mu.Unlock()
	if was != level || old.What != p.What || old.Restart != p.Restart {
		g.notifyHealth(was, level, p, cause)
	}
}

func (g *Gate) notifyHealth(was, level health, p Degradation, cause error) {
	if level == healthy {
		if was == healthy {
			return
		}
		g.Log.Info().Msg("the gate takes requests again")
		g.Audit.Note(approval.Entry{Time: g.Now().UTC(), Event: approval.EventRecovered})
	} else {
		g.Log.Error().Err(cause).Str("hint", p.Hint).Msg("the gate takes no requests: " + p.What)
		g.Audit.Note(approval.Entry{Time: g.Now().UTC(), Event: approval.EventDegraded, Reason: p.What})
	}
	if g.Health != nil {
		g.Health(p, level != healthy)
	}
}

// describe says in words what an error of the disk means; What is empty where
// it is none.
func diagnose(err error) Degradation {
	if errors.Is(err, approval.ErrRestart) {
		return Degradation{What: "its disk failed to store what it was given", Hint: "mend the disk, then restart permesso serve"}
	}
	for _, x := range []struct {
		is         []error
		what, hint string
	}{
		{[]error{approval.ErrNoSpace}, "its disk is almost full", "free space or inodes where the home lies"},
		{[]error{syscall.ENOSPC}, "its disk is full", "free space or inodes where the home lies"},
		{[]error{syscall.EDQUOT}, "its disk quota is used up", "free space, or raise the quota of the gate's user"},
		{[]error{syscall.EROFS}, "its disk is read-only", "look at the kernel's log, then mount it read-write again"},
		{[]error{syscall.EMFILE, syscall.ENFILE}, "too many files are open", "raise the limit of open files (LimitNOFILE)"},
		{[]error{syscall.EIO}, "its disk gives errors", "look at the kernel's log (dmesg)"},
		{[]error{fs.ErrPermission}, "it may not write to its home", "mend the owner and mode of the home's folders: permesso doctor"},
		{[]error{approval.ErrUnsynced}, "its disk does not confirm what is written", "look at the kernel's log (dmesg)"},
	} {
		for _, target := range x.is {
			if errors.Is(err, target) {
				return Degradation{What: x.what, Hint: x.hint}
			}
		}
	}
	var path *fs.PathError
	if errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist) {
		return Degradation{What: "its files cannot be written", Hint: "look at the log"}
	}
	return Degradation{}
}

// hold keeps back what a gate that is not well must not do. A request that is
// held once waits until the gate is well, or nobody would be asked any more.
func (g *Gate) delay(m approval.Move, s *state) (waiting bool) {
	level, next := g.health()
	starts := m == approval.RunClaim || m == approval.RunAgain
	switch {
	case level == healthy:
		return false
	case m == approval.Intake:
		if waiting = level >= writeFailing || g.isDelayed(s.key); waiting {
			g.firstSeen(s.key, s.now)
		}
	case level == unsynced || starts:
		waiting = true
	}
	if waiting {
		s.retryAt = g.retryAfterExamine(next)
	}
	return waiting
}

func (g *Gate) isDelayed(k approval.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.seen[k]
	return ok
}

// retryAfterExamine is when to look at a held key again.
func (g *Gate) retryAfterExamine(next time.Time) time.Time {
	now := g.Now()
	if wait := next.Sub(now); wait <= 0 || wait > probeInterval {
		return now.Add(probeInterval)
	}
	return next.Add(afterExamine)
}

// weak says that only what was started before may go on.
func (g *Gate) degraded() bool {
	level, _ := g.health()
	return level != healthy
}

// waitedTooLong says that a request lay longer than anybody would have been asked.
func (g *Gate) waitedTooLong(s *state, limit time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, ok := g.seen[s.key]
	return ok && s.now.Sub(t) >= limit
}
