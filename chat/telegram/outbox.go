package telegram

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// job is something to be done in a chat. It looks at the state of things only when its turn comes, so that
// what changed meanwhile is sent once, as it is then.
type job struct {
	name string // of jobs of one name there is one; "": each is one of its own
	rank int    // lower ones go first: answers before cards, cards before edits
	// do does it. An error has it done again after a while, unless the job is lossy and has been tried
	// often enough.
	do    func(ctx context.Context) error
	lossy bool
}

// The ranks of jobs.
const (
	rankAnswer = iota
	rankCard
	rankEdit
	rankNotice
)

const (
	lossyTries     = 5
	firstRetry     = time.Second
	longestWaits   = 60  // a minute, where the first wait is a second
	unreachedWaits = 300 // how often is tried what does not pass by itself: every five minutes
)

// outbox does the jobs of each chat one after the other, and those of different chats side by side. Nobody
// who puts something in waits for the network.
type outbox struct {
	first time.Duration // the wait after a first failure; 0: a second
	// told hears how each job went.
	told func(chatID int64, err error)

	ctx  context.Context
	wg   sync.WaitGroup
	mu   sync.Mutex
	tray map[int64]*tray
}

// tray holds what is to be done in one chat.
type tray struct {
	jobs []*errand
	wake chan struct{}
}

// errand is a job in its tray.
type errand struct {
	job
	ready   time.Time
	tries   int
	running bool
	again   bool // it was put in once more while it ran
}

// put has a job done after a while. The context of the jobs ends with that of the outbox.
func (o *outbox) put(chatID int64, j job, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return
	}
	if o.tray == nil {
		o.tray = map[int64]*tray{}
	}
	t := o.tray[chatID]
	if t == nil {
		t = &tray{wake: make(chan struct{}, 1)}
		o.tray[chatID] = t
		o.wg.Go(func() { o.work(chatID, t) })
	}
	t.put(j, time.Now().Add(after))
}

func (t *tray) put(j job, ready time.Time) {
	defer func() {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}()
	for _, e := range t.jobs {
		if j.name == "" || e.name != j.name {
			continue
		}
		switch {
		case e.running:
			e.again = true
		case e.tries > 0: // the wait after a failure is not cut short
		case ready.Before(e.ready):
			e.ready = ready
		}
		e.job = j
		return
	}
	t.jobs = append(t.jobs, &errand{job: j, ready: ready})
}

// hurry cuts the waits after failures in a chat short: it can be written to again.
func (o *outbox) hurry(chatID int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tray[chatID]
	if t == nil {
		return
	}
	for _, e := range t.jobs {
		if e.tries > 0 {
			e.ready, e.tries = time.Now(), 0
		}
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// work does a chat's jobs until there are none.
func (o *outbox) work(chatID int64, t *tray) {
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

// next is the job to do now, or how long to wait for one; less than nothing: the tray is empty and gone.
func (o *outbox) next(chatID int64, t *tray) (e *errand, do func(context.Context) error, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(t.jobs) == 0 || o.ctx.Err() != nil {
		delete(o.tray, chatID)
		return nil, nil, -1
	}
	now := time.Now()
	wait = time.Hour
	for _, x := range t.jobs {
		switch {
		case x.ready.After(now):
			wait = min(wait, x.ready.Sub(now))
		case e == nil || x.rank < e.rank:
			e = x
		}
	}
	if e == nil {
		return nil, nil, wait
	}
	e.running, e.again = true, false
	return e, e.do, 0
}

func (o *outbox) done(chatID int64, t *tray, e *errand, err error) {
	if o.ctx.Err() != nil {
		return
	}
	if o.told != nil {
		o.told(chatID, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e.running = false
	switch {
	case err != nil && (!e.lossy || e.tries < lossyTries && troubleOf(err) != refused):
		e.ready = time.Now().Add(o.retry(e.tries, err))
		e.tries++
	case e.again:
		e.ready, e.tries = time.Now(), 0
	default:
		for i, other := range t.jobs {
			if other == e {
				t.jobs = append(t.jobs[:i:i], t.jobs[i+1:]...)
				break
			}
		}
	}
}

// retry is how long to wait after a failure, never the same for everybody: those who failed together must
// not come back together. Where Telegram itself says how long, the limiter holds the next attempt back.
func (o *outbox) retry(tries int, err error) time.Duration {
	wait := o.first
	if wait <= 0 {
		wait = firstRetry
	}
	switch troubleOf(err) {
	case unreached, refused:
		wait *= unreachedWaits
	case tokenWrong:
		wait *= longestWaits
	default:
		wait *= time.Duration(min(1<<min(tries, 10), longestWaits))
	}
	return wait*3/4 + time.Duration(rand.Int64N(int64(wait/2)+1)) //nolint:gosec // nothing secret depends on it
}
