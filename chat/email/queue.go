package email

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// The delays between two attempts to send.
const (
	firstSendDelay = 5 * time.Second
	maxSendDelay   = 5 * time.Minute
)

// The states of a message that we send. The zero state: no attempt yet.
const (
	stateSending = "sending" // an attempt may be in progress, or another one is due
	stateSent    = "sent"
	stateFailed  = "failed" // final
)

// delivery is the progress of a message that we send.
type delivery struct {
	State     string    `json:"state,omitempty"`
	Attempts  int       `json:"tries,omitempty"`
	MaybeSent bool      `json:"maybe,omitempty"` // it may have arrived without a confirmation
	Next      time.Time `json:"next,omitzero"`   // no attempt before this time
	Error     string    `json:"error,omitempty"`
}

func (d *delivery) open() bool { return d.State == "" || d.State == stateSending }

// errOutdated is the error of compose for a message that is too old to be sent.
var errOutdated = errors.New("outdated")

// job is one message that is not settled. The caller of its functions holds the queue's lock.
type job struct {
	key  approval.Key // zero: not about a request
	to   string
	what string // for the log
	*delivery
	compose   func() (*outgoing, error)        // nil, or without an email: not at the moment
	save      func() error                     // saves the delivery
	notSent   func()                           // called if the message certainly did not arrive; may be nil
	failed    func(why error) (reports func()) // called after the final failure; may be nil
	maybeSent bool                             // an attempt before this one may have arrived
}

// queue sends messages that are due, one at a time. It does not know what they say.
type queue struct {
	transmit   func(ctx context.Context, d *outgoing) *mailbox.Error // makes one attempt
	mu         *sync.Mutex                                           // not held while a message is sent
	now        func() time.Time
	firstDelay time.Duration
	problems   *problems
	log        zerolog.Logger
	pause      mailbox.Retry // send nothing before this time: the server is down or refuses us
}

// send sends what is due of the jobs, the first ones first.
func (q *queue) send(ctx context.Context, jobs iter.Seq[*job]) {
	for ctx.Err() == nil {
		j, d, err := q.prepare(jobs)
		if err != nil {
			q.log.Error().Err(err).Msg("save sent record failed; email not sent")
			q.problems.set("note", "cannot send: "+err.Error(), "check free disk space")
			return
		}
		q.problems.clear("note")
		if j == nil {
			return
		}
		q.record(ctx, j, q.transmit(ctx, d))
	}
}

// prepare picks a job that is due and saves durably that an attempt begins.
func (q *queue) prepare(jobs iter.Seq[*job]) (*job, *outgoing, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	if q.pause.At.After(now) {
		return nil, nil, nil
	}
	for j := range jobs {
		if j.compose == nil || j.Next.After(now) {
			continue
		}
		d, err := j.compose()
		switch {
		case errors.Is(err, errOutdated):
			j.State = stateFailed
			if err := j.save(); err != nil {
				return nil, nil, err
			}
			continue
		case err != nil || d == nil:
			return nil, nil, err
		}
		// Saved before the attempt: after a crash during it, the retry is delayed, too, and
		// the message may have arrived.
		next := mailbox.Retry{N: j.Attempts}.Next(now, q.firstDelay, maxSendDelay)
		j.maybeSent = j.MaybeSent
		j.State, j.Attempts, j.Next, j.MaybeSent = stateSending, next.N, next.At.UTC(), true
		return j, d, j.save()
	}
	return nil, nil, nil
}

// record saves the result of an attempt, and reports it.
func (q *queue) record(ctx context.Context, j *job, f *mailbox.Error) {
	q.mu.Lock()
	report := q.apply(ctx, j, f)
	saved := j.save()
	q.mu.Unlock()
	report()
	if saved != nil {
		// After a restart it is sent again, under the same identifier.
		q.log.Error().Err(saved).Msg("save sent record failed")
	}
}

// apply applies the result of an attempt to the delivery. It returns what must be reported
// without the lock.
func (q *queue) apply(ctx context.Context, j *job, f *mailbox.Error) (reports func()) {
	if f == nil {
		j.State, j.MaybeSent, j.Error, j.Next = stateSent, j.maybeSent, "", time.Time{}
		q.pause = mailbox.Retry{}
		return func() {
			q.problems.clear("server")
			q.problems.clear("to " + j.to)
			q.log.Info().Str("ws", j.key.Workspace).Str("id", j.key.ID).Str("what", j.what).Msg("email sent")
		}
	}
	j.MaybeSent = j.maybeSent || f.MaybeSent
	if ctx.Err() != nil {
		return func() {} // the daemon stops; the next start tries again
	}
	j.Error = f.Error()
	if !f.MaybeSent && j.notSent != nil {
		j.notSent()
	}
	more := func() {}
	switch {
	case f.Account || f.Temporary && !f.MaybeSent && (f.Code == 0 || f.Code == 421):
		longest := time.Minute
		if f.Account {
			longest = maxSendDelay
		}
		q.pause = q.pause.Next(q.now(), q.firstDelay, longest)
		// The server failed, not this message: when the server is back, it is sent at once.
		j.Attempts, j.Next = j.Attempts-1, q.pause.At.UTC()
		more = func() { q.problems.set("server", "cannot send: "+f.Error(), hints.Of(f)) }
	case !f.Temporary:
		if j.State = stateFailed; j.failed != nil {
			more = j.failed(f)
		}
	}
	return func() {
		q.log.Warn().Str("ws", j.key.Workspace).Str("id", j.key.ID).Str("what", j.what).Err(f).Bool("again", j.open()).Msg("email not sent")
		more()
	}
}

// untilNext is the time until a job is due, at most the given time.
func (q *queue) untilNext(jobs iter.Seq[*job], most time.Duration) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	at := now.Add(most)
	for j := range jobs {
		next := j.Next
		if !next.After(now) {
			next = now.Add(time.Second) // due, but not at the moment
		}
		if next.Before(at) {
			at = next
		}
	}
	if q.pause.At.After(at) {
		at = q.pause.At
	}
	return min(max(at.Sub(now), 10*time.Millisecond), most)
}
