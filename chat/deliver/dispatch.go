package deliver

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

const (
	// maxTries is how often an event is handled whose handler panics or kills the process.
	maxTries = 3
	// handlingTimeout bounds the handling of one event, so that a hanging disk does not block everything.
	handlingTimeout = time.Minute
	// nameTimeout is the part of it that may pass until the bot's name is known.
	nameTimeout = 30 * time.Second
)

// dispatcher runs the handlers of events: in order for the same request, in parallel otherwise.
type dispatcher struct {
	session *session

	mu     sync.Mutex
	queues map[string][]func() // waiting handlers, by queue name
	idle   *sync.Cond          // all queues are empty
}

// receive only queues the event.
func (in *dispatcher) receive(e Event) {
	if in.session.ctx.Err() != nil {
		e.done(false)
		return
	}
	in.enqueue(in.session.queueName(e), func() { in.handle(e, 1) })
}

func (e Event) done(handled bool) {
	if e.Done != nil {
		e.Done(handled)
	}
}

// enqueue runs f after all that was queued under this name before.
func (in *dispatcher) enqueue(name string, f func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	waiting, running := in.queues[name]
	in.queues[name] = append(waiting, f)
	if !running {
		go in.drain(name)
	}
}

// drain runs a queue until it is empty.
func (in *dispatcher) drain(name string) {
	for {
		in.mu.Lock()
		if len(in.queues[name]) == 0 {
			if delete(in.queues, name); len(in.queues) == 0 {
				in.idle.Broadcast()
			}
			in.mu.Unlock()
			return
		}
		next := in.queues[name][0]
		in.queues[name] = in.queues[name][1:]
		in.mu.Unlock()
		next()
	}
}

// wait returns when no event is being handled.
func (in *dispatcher) wait() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.queues) > 0 {
		in.idle.Wait()
	}
}

// queueName is the same for events that must be handled in order.
func (s *session) queueName(e Event) string {
	switch {
	case e.Tap != nil:
		_, n, _ := strings.Cut(e.Tap.Data, ":")
		if at, _, _ := s.sent.findButton(n); at.key.ID != "" {
			return at.key.String()
		}
		return "from " + string(e.Tap.By)
	case e.Said != nil:
		if at, ok := s.sent.findMessage(e.Said.At.Chat, e.Said.ReplyTo); ok {
			return at.key.String()
		}
		return "chat " + string(e.Said.At.Chat)
	}
	return ""
}

// handle runs one event's handler. The event is done when its effect is durable, and a tap is answered. After a panic it is tried
// again, at most maxTries times. A handler that has begun runs to its end, even if the run ends.
func (in *dispatcher) handle(e Event, try int) {
	s := in.session
	ctx, stop := context.WithTimeout(context.WithoutCancel(s.ctx), handlingTimeout)
	defer stop()
	defer func() {
		what := recover()
		if what == nil {
			return
		}
		s.log(fmt.Errorf("event %s: panic: %v\n%s", e.ID, what, debug.Stack()))
		if try >= maxTries {
			s.giveUp(e)
			return
		}
		time.AfterFunc(s.outbox.retryDelay(0, nil), func() {
			if s.ctx.Err() != nil {
				e.done(false)
				return
			}
			in.enqueue(s.queueName(e), func() { in.handle(e, try+1) })
		})
	}()
	if !s.ready(ctx, e) {
		e.done(false)
		return
	}
	if e.Replayed && try == 1 && s.countTry(e.ID) > maxTries {
		s.log(fmt.Errorf("drop event %s: %d attempts did not finish", e.ID, maxTries))
		s.giveUp(e)
		return
	}
	switch {
	case e.Tap != nil:
		answered := s.handleTap(ctx, *e.Tap)
		s.outbox.wg.Go(func() {
			if <-answered {
				s.finish(e)
			} else {
				e.done(false) // the next run answers it
			}
		})
		return
	case e.Said != nil:
		s.handleSaid(ctx, *e.Said)
	case e.Reach != nil:
		s.handleReach(*e.Reach)
	}
	s.finish(e)
}

// ready waits until the adapter is open and, for a text that addresses a bot, for the bot's name: until then it
// could be another bot. It returns false if the run ends first.
func (s *session) ready(ctx context.Context, e Event) bool {
	select {
	case <-s.opened:
	case <-s.ctx.Done():
		return false
	}
	if !s.traits.Named || e.Said == nil || !strings.Contains(e.Said.Text, "@") {
		return true
	}
	ctx, stop := context.WithTimeout(ctx, nameTimeout)
	defer stop()
	select {
	case <-s.nameKnown:
	case <-ctx.Done(): // use the name from an earlier session
	case <-s.ctx.Done():
		return false
	}
	return true
}

func (s *session) finish(e Event) {
	e.done(true)
	if e.Replayed {
		s.clearTries(e.ID)
	}
}

// giveUp drops an event that cannot be handled.
func (s *session) giveUp(e Event) {
	s.warnings.set("event", fmt.Sprintf("event %s could not be handled and was dropped", e.ID),
		"see the daemon's log; the user can tap or write again")
	s.finish(e)
}

func triesName(id string) string { return "tries-" + id }

func (s *session) countTry(id string) int {
	n := 0
	if err := s.load(triesName(id), &n); err != nil {
		n = 0
	}
	n++
	s.log(s.save(triesName(id), n))
	return n
}

func (s *session) clearTries(id string) {
	s.log(s.State.Remove(triesName(id)))
}
