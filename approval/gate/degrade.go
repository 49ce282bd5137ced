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
type strength uint8

const (
	well      strength = iota
	tight              // no room for new work; endings and refusals are written
	ill                // writing fails; endings are tried
	uncertain          // something visible may not be durable: nothing is built on it
)

// probeEvery is how often a gate that is not well looks whether it is again.
const probeEvery = 5 * time.Second

// lookEvery is how often errors make it look besides.
const lookEvery = time.Second

// shortNap lets an examination that is due come first.
const shortNap = 100 * time.Millisecond

// condition is how the gate is.
type condition struct {
	examining sync.Mutex

	mu      sync.Mutex
	can     strength
	problem Degradation
	news    int                     // bad news so far: an examination that began before it is worth nothing
	next    time.Time               // of the next examination
	looked  time.Time               // when the last one began
	rooms   map[approval.Key]func() // what runs have set aside
}

// Problem tells why the gate takes no new work; ok is false when it does.
func (g *Gate) Degraded() (p Degradation, ok bool) {
	c := &g.condition
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem, c.can != well
}

func (g *Gate) strength() (can strength, next time.Time) {
	c := &g.condition
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.can, c.next
}

// suspect is told of every error. Whether it is the disk's, or only that of one
// request's files, an examination finds out.
func (g *Gate) suspect(err error) {
	switch {
	case errors.Is(err, approval.ErrUnsynced), errors.Is(err, approval.ErrRestart):
		g.become(uncertain, err, -1)
		g.Examine()
	case errors.Is(err, approval.ErrNoSpace):
		g.become(tight, err, -1)
	case describe(err).What != "" && g.mayLook():
		g.Examine()
	}
}

// mayLook keeps errors that one agent can cause in its own folder from costing
// a trial write each.
func (g *Gate) mayLook() bool {
	c := &g.condition
	c.mu.Lock()
	defer c.mu.Unlock()
	since := g.Now().Sub(c.looked)
	return since < 0 || since >= lookEvery
}

// due says that it is time to examine again. A clock that was set back must not
// put that off.
func (g *Gate) due() bool {
	_, next := g.strength()
	wait := next.Sub(g.Now())
	return wait <= 0 || wait > probeEvery
}

// checkup is what the ticker does: as long as the gate is well, it only looks
// for room.
func (g *Gate) checkup() {
	switch {
	case !g.due():
	case g.weak():
		g.Examine()
	default:
		g.condition.mu.Lock()
		g.condition.next = g.Now().Add(probeEvery)
		g.condition.mu.Unlock()
		if release, ok := g.reserve(need(0, approval.Tool{})); ok {
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
	news, hopeless := c.news, c.problem.Restart
	c.looked = g.Now()
	c.mu.Unlock()
	can, err := g.examine()
	if !hopeless {
		g.become(can, err, news)
	}
}

func (g *Gate) examine() (strength, error) {
	prober, ok := g.Store.(HealthStore)
	if !ok {
		return well, nil
	}
	if err := prober.Probe(); err != nil {
		if can, _ := g.strength(); can == uncertain || errors.Is(err, approval.ErrUnsynced) {
			return uncertain, err
		}
		return ill, err
	}
	if log, ok := g.Audit.(interface{ Sync() error }); ok {
		if err := log.Sync(); err != nil {
			return tight, err // documents can be written, history cannot
		}
	}
	// A little more than one run needs, lest the gate opens and closes all the time.
	release, err := prober.Reserve(2 * need(0, approval.Tool{}))
	switch {
	case errors.Is(err, approval.ErrNoSpace):
		return tight, err
	case err != nil:
		return ill, err
	}
	release()
	return well, nil
}

// become notes how the gate is, and tells of it once per change. news is what an
// examination knew when it began; -1 is bad news itself.
func (g *Gate) become(can strength, cause error, news int) {
	c := &g.condition
	now := g.Now()
	p := Degradation{}
	if can != well {
		p = describe(cause)
		p.Since, p.Restart = now, errors.Is(cause, approval.ErrRestart)
	}
	c.mu.Lock()
	was, old := c.can, c.problem
	if old.Restart || news >= 0 && news != c.news {
		c.mu.Unlock()
		return
	}
	if news < 0 {
		c.news++
		can = max(can, was)
	}
	if was != well && can != well {
		p.Since = old.Since
	}
	c.can, c.problem, c.next = can, p, now.Add(probeEvery)
	c.mu.Unlock()
	if was != can || old.What != p.What || old.Restart != p.Restart {
		g.tell(was, can, p, cause)
	}
}

func (g *Gate) tell(was, can strength, p Degradation, cause error) {
	if can == well {
		if was == well {
			return
		}
		g.Log.Info().Msg("the gate takes requests again")
		g.Audit.Note(approval.Entry{Time: g.Now().UTC(), Event: approval.EventRecovered})
	} else {
		g.Log.Error().Err(cause).Str("hint", p.Hint).Msg("the gate takes no requests: " + p.What)
		g.Audit.Note(approval.Entry{Time: g.Now().UTC(), Event: approval.EventDegraded, Reason: p.What})
	}
	if g.Health != nil {
		g.Health(p, can != well)
	}
}

// describe says in words what an error of the disk means; What is empty where
// it is none.
func describe(err error) Degradation {
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
func (g *Gate) hold(m approval.Move, s *state) (held bool) {
	can, next := g.strength()
	starts := m == approval.RunClaim || m == approval.RunAgain
	switch {
	case can == well:
		return false
	case m == approval.Intake:
		if held = can >= ill || g.held(s.key); held {
			g.firstSeen(s.key, s.now)
		}
	case can == uncertain || starts:
		held = true
	}
	if held {
		s.again = g.afterExamination(next)
	}
	return held
}

func (g *Gate) held(k approval.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.seen[k]
	return ok
}

// afterExamination is when to look at a held key again.
func (g *Gate) afterExamination(next time.Time) time.Time {
	now := g.Now()
	if wait := next.Sub(now); wait <= 0 || wait > probeEvery {
		return now.Add(probeEvery)
	}
	return next.Add(shortNap)
}

// weak says that only what was started before may go on.
func (g *Gate) weak() bool {
	can, _ := g.strength()
	return can != well
}

// tooOld says that a request lay longer than anybody would have been asked.
func (g *Gate) tooOld(s *state, limit time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, ok := g.seen[s.key]
	return ok && s.now.Sub(t) >= limit
}
