package telegram

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
)

const (
	// maxTries is how often an update is handled whose handler panics or kills the process.
	maxTries = 3
	// handlingTimeout bounds the handling of one update, so that a hanging disk does not block everything.
	handlingTimeout = time.Minute
	// nameTimeout is the part of it that may pass until the bot's name is known.
	nameTimeout = 30 * time.Second
)

// dispatcher runs the handlers of updates: in order for the same request, in parallel otherwise.
type dispatcher struct {
	session *session

	mu     sync.Mutex
	queues map[string][]func() // waiting handlers, by queue name
	tries  map[int64]int
	idle   chan struct{} // closed when all queues are empty; nil: they are
}

// dispatch is the library's handler. It only queues the update.
func (in *dispatcher) dispatch(ctx context.Context, _ *bot.Bot, u *models.Update) {
	s := in.session
	if ctx.Err() != nil || !s.journal.Begin(u.ID) {
		return // the next session finds it in the journal
	}
	s.lastUpdateAt.Store(s.now().Unix())
	// A handler that has begun runs to its end, even if ctx is canceled.
	ctx = context.WithoutCancel(ctx)
	in.enqueue(s.queueName(u), func() {
		ctx, stop := context.WithTimeout(ctx, handlingTimeout)
		defer stop()
		in.handle(ctx, u)
	})
}

// enqueue runs f after all that was queued under this name before.
func (in *dispatcher) enqueue(name string, f func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.queues == nil {
		in.queues = map[string][]func(){}
	}
	waiting, running := in.queues[name]
	in.queues[name] = append(waiting, f)
	if running {
		return
	}
	if in.idle == nil {
		in.idle = make(chan struct{})
	}
	go in.drain(name)
}

// drain runs a queue until it is empty.
func (in *dispatcher) drain(name string) {
	for {
		in.mu.Lock()
		if len(in.queues[name]) == 0 {
			if delete(in.queues, name); len(in.queues) == 0 {
				close(in.idle)
				in.idle = nil
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

// wait returns when no update is being handled.
func (in *dispatcher) wait() {
	for {
		in.mu.Lock()
		idle := in.idle
		in.mu.Unlock()
		if idle == nil {
			return
		}
		<-idle
	}
}

// queueName is the same for updates that must be handled in order.
func (s *session) queueName(u *models.Update) string {
	switch {
	case u.CallbackQuery != nil:
		_, n, _ := strings.Cut(u.CallbackQuery.Data, ":")
		if at, _, _ := s.sent.findButton(n); at.key.ID != "" {
			return at.key.String()
		}
		return "from " + strconv.FormatInt(u.CallbackQuery.From.ID, 10)
	case u.Message != nil:
		if r := u.Message.ReplyToMessage; r != nil {
			if at, ok := s.sent.findMessage(u.Message.Chat.ID, r.ID); ok {
				return at.key.String()
			}
		}
		return "chat " + strconv.FormatInt(u.Message.Chat.ID, 10)
	}
	return ""
}

// handle runs one update's handler. The update is finished when its effect is durable. After a panic it is
// retried, at most maxTries times.
func (in *dispatcher) handle(ctx context.Context, u *models.Update) {
	s := in.session
	defer func() {
		what := recover()
		if what == nil {
			return
		}
		s.log(fmt.Errorf("update %d: panic: %v\n%s", u.ID, what, debug.Stack()))
		if in.countFailure(u.ID) < maxTries {
			s.journal.Abandon(u.ID)
			time.AfterFunc(s.outbox.retryDelay(0, nil), func() {
				if s.outbox.ctx.Err() == nil {
					in.dispatch(s.outbox.ctx, nil, u)
				}
			})
			return
		}
		s.giveUp(u.ID)
	}()
	if !s.waitForName(ctx, u) {
		s.journal.Abandon(u.ID) // the next session retries it
		return
	}
	s.handle(ctx, u)
	in.finish(u.ID)
}

// waitForName waits for the bot's name if the text addresses a bot: until then it could be another bot. It
// returns false if the session ends first.
func (s *session) waitForName(ctx context.Context, u *models.Update) bool {
	if u.Message == nil || !strings.Contains(u.Message.Text, "@") {
		return true
	}
	ctx, stop := context.WithTimeout(ctx, nameTimeout)
	defer stop()
	select {
	case <-s.nameKnown:
	case <-ctx.Done(): // use the name from an earlier session
	case <-s.outbox.ctx.Done():
		return false
	}
	return true
}

func (in *dispatcher) countFailure(id int64) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.tries == nil {
		in.tries = map[int64]int{}
	}
	in.tries[id]++
	return in.tries[id]
}

func (in *dispatcher) finish(id int64) {
	in.mu.Lock()
	delete(in.tries, id)
	in.mu.Unlock()
	if err := in.session.journal.Finished(id); err != nil {
		in.session.log(err)
	}
}

// giveUp drops an update that cannot be handled.
func (s *session) giveUp(id int64) {
	s.warnings.set("update", fmt.Sprintf("update %d could not be handled and was dropped", id),
		"see the daemon's log; the user can tap or write again")
	s.dispatcher.finish(id)
	s.clearTries(id)
}

// replay handles the updates that earlier sessions did not finish. Tries are counted on disk, because such an
// update may be what killed the process.
func (s *session) replay(ctx context.Context) {
	left, err := s.journal.Unfinished()
	if err != nil {
		s.log(fmt.Errorf("read update journal: %w", err))
	}
	for _, u := range left {
		update, err := parseUpdate(u.JSON)
		if err != nil {
			s.log(fmt.Errorf("decode update %d: %w", u.ID, err))
			s.giveUp(u.ID)
			continue
		}
		if s.countTry(u.ID) > maxTries {
			s.log(fmt.Errorf("drop update %d: %d attempts did not finish", u.ID, maxTries))
			s.giveUp(u.ID)
			continue
		}
		s.dispatcher.dispatch(ctx, nil, update)
	}
	s.dispatcher.wait() // earlier taps decide before any status is shown
	for _, u := range left {
		s.clearTries(u.ID)
	}
}

func triesName(id int64) string { return "tries-" + strconv.FormatInt(id, 10) }

func (s *session) countTry(id int64) int {
	b, err := s.State.Get(triesName(id))
	n := 0
	if err == nil {
		n, err = strconv.Atoi(string(b))
	}
	if err != nil {
		n = 0
	}
	n++
	if err := s.State.Put(triesName(id), []byte(strconv.Itoa(n))); err != nil {
		s.log(fmt.Errorf("write try count of update %d: %w", id, err))
	}
	return n
}

func (s *session) clearTries(id int64) {
	if err := s.State.Remove(triesName(id)); err != nil {
		s.log(err)
	}
}

// handle calls the handler of an update. All other kinds are ignored, such as edited messages and channel
// posts.
func (s *session) handle(ctx context.Context, u *models.Update) {
	switch {
	case u.CallbackQuery != nil:
		s.handleTap(ctx, u.CallbackQuery)
	case u.Message != nil:
		s.handleMessage(ctx, u.Message)
	case u.MyChatMember != nil:
		s.handleMembership(u.MyChatMember)
	}
}
