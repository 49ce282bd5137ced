package deliver

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// job is a task for one chat. It reads the current status when it runs, so that several changes become one
// message.
type job struct {
	name string // a new job replaces a queued one of the same name; "": no name
	rank int    // lower first: answers before cards, cards before edits
	// do runs the job. An error retries it later; a lossy job is dropped after maxLossyTries retries.
	do    func(ctx context.Context) error
	lossy bool
}

const (
	rankAnswer = iota
	rankCard
	rankEdit
	rankNotice
)

const (
	maxLossyTries    = 5
	firstRetry       = time.Second
	maxRetryUnits    = 60  // a minute, if the first delay is a second
	maxPauseUnits    = 12  // while the service fails
	unreachableUnits = 300 // five minutes, for errors that a user must fix
)

// errIdle is returned by a job that had nothing to send: this does not show that the service works.
var errIdle = errors.New("nothing to send")

// outbox runs the jobs of each chat in order, and those of different chats in parallel. Adding a job never
// waits for the network.
type outbox struct {
	retryUnit time.Duration // the first retry delay
	// onDone gets the result of each job.
	onDone func(chatID ID, err error)
	// delay is how long the service's limits delay a job of that rank. A job that waits for them is not begun, so
	// that one of a lower rank can come before it.
	delay func(chatID ID, rank int) time.Duration

	ctx    context.Context
	wg     sync.WaitGroup
	mu     sync.Mutex
	queues map[ID]*queue
}

// queue holds the jobs of one chat.
type queue struct {
	jobs        []*queuedJob
	wake        chan struct{}
	pausedUntil time.Time // the service failed
	failures    int       // … so many times in a row
}

// queuedJob is a job in its queue.
type queuedJob struct {
	job
	readyAt time.Time
	tries   int
	running bool
	rerunAt time.Time // it was added again while it ran; zero: it was not
}

// put adds a job that runs after a delay. Jobs get the outbox's context.
func (o *outbox) put(chatID ID, j job, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return
	}
	t := o.queues[chatID]
	if t == nil {
		t = &queue{wake: make(chan struct{}, 1)}
		o.queues[chatID] = t
		o.wg.Go(func() { o.work(chatID, t) })
	}
	t.put(j, time.Now().Add(after))
}

// signal makes work look at the queue again.
func (t *queue) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *queue) put(j job, ready time.Time) {
	defer t.signal()
	for _, e := range t.jobs {
		if j.name == "" || e.name != j.name {
			continue
		}
		switch {
		case e.running:
			if e.rerunAt.IsZero() || ready.Before(e.rerunAt) {
				e.rerunAt = ready
			}
		case e.tries > 0: // a retry delay is not shortened
		case ready.Before(e.readyAt):
			e.readyAt = ready
		}
		e.job = j
		return
	}
	t.jobs = append(t.jobs, &queuedJob{job: j, readyAt: ready})
}

// retryNow ends the retry delays of a chat that is reachable again.
func (o *outbox) retryNow(chatID ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.queues[chatID]
	if t == nil {
		return
	}
	for _, e := range t.jobs {
		if e.tries > 0 {
			e.readyAt, e.tries = time.Now(), 0
		}
	}
	t.signal()
}

// work runs a chat's jobs until the queue is empty.
func (o *outbox) work(chatID ID, t *queue) {
	for {
		e, do, wait := o.next(chatID, t)
		switch {
		case e != nil:
			o.done(chatID, t, e, do(o.ctx))
		case wait < 0:
			return
		default:
			select {
			case <-o.ctx.Done():
				return
			case <-t.wake:
			case <-time.After(wait):
			}
		}
	}
}

// next returns the job to run now, of those with the lowest rank the one that was ready first, or how long to wait
// for one; -1: the queue is empty and removed.
func (o *outbox) next(chatID ID, t *queue) (e *queuedJob, do func(context.Context) error, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(t.jobs) == 0 || o.ctx.Err() != nil {
		delete(o.queues, chatID)
		return nil, nil, -1
	}
	now := time.Now()
	if wait = t.pausedUntil.Sub(now); wait > 0 {
		return nil, nil, wait
	}
	wait = time.Hour
	for _, x := range t.jobs {
		switch {
		case x.readyAt.After(now):
			wait = min(wait, x.readyAt.Sub(now))
		case e == nil, x.rank < e.rank, x.rank == e.rank && x.readyAt.Before(e.readyAt):
			e = x
		}
	}
	if e == nil {
		return nil, nil, wait
	}
	if limit := o.delay(chatID, e.rank); limit > 0 {
		return nil, nil, min(wait, limit)
	}
	e.running, e.rerunAt = true, time.Time{}
	return e, e.do, 0
}

func (o *outbox) done(chatID ID, t *queue, e *queuedJob, err error) {
	if o.ctx.Err() != nil {
		return
	}
	idle := errors.Is(err, errIdle)
	if idle {
		err = nil
	} else {
		o.onDone(chatID, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e.running = false
	if err == nil && !idle {
		t.failures = 0
	}
	switch {
	case serviceFailed(err): // no attempt of this message
		t.pausedUntil = time.Now().Add(o.retryDelay(t.failures, err))
		t.failures++
	case err != nil && (!e.lossy || e.tries < maxLossyTries && !never(err)):
		e.readyAt = time.Now().Add(o.retryDelay(e.tries, err))
		e.tries++
	case !e.rerunAt.IsZero():
		e.readyAt, e.tries = e.rerunAt, 0
	default:
		t.jobs = slices.DeleteFunc(t.jobs, func(other *queuedJob) bool { return other == e })
	}
}

// retryDelay is the delay after a failure. It is randomized, so that jobs that failed together do not retry
// together.
func (o *outbox) retryDelay(tries int, err error) time.Duration {
	wait := o.retryUnit
	switch class := ClassOf(err); {
	case serviceFailed(err):
		longest := maxPauseUnits
		if class == BadCredentials {
			longest = maxRetryUnits
		}
		wait *= time.Duration(min(1<<min(tries, 10), longest))
	case class == Unreachable, never(err):
		wait *= unreachableUnits
	case class == BadCredentials:
		wait *= maxRetryUnits
	default:
		wait *= time.Duration(min(1<<min(tries, 10), maxRetryUnits))
	}
	var e *Error
	switch {
	case !errors.As(err, &e) || e.RetryAfter == 0:
	case e.Class == Unreachable:
		wait = e.RetryAfter
	default:
		wait = max(wait, 4*e.RetryAfter/3)
	}
	return wait*3/4 + time.Duration(rand.Int64N(int64(wait/2)+1)) //nolint:gosec // no secret depends on it
}
