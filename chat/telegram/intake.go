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
	// mostTries is how often an update is handled that brings its handler down.
	mostTries = 3
	// handlingTime bounds the handling of one update: a disk that hangs must not hold up everything.
	handlingTime = time.Minute
	// nameTime is how much of it may pass until we know our name.
	nameTime = 30 * time.Second
)

// intake hands updates to their handlers: one after the other where they concern the same request, side by
// side where they do not.
type intake struct {
	session *session

	mu    sync.Mutex
	lines map[string][]func() // those that wait, by what they concern
	tries map[int64]int
	idle  chan struct{} // closed when no line is left; nil: there is none
}

// take is the library's handler. It only puts the update in its line.
func (in *intake) take(ctx context.Context, _ *bot.Bot, u *models.Update) {
	s := in.session
	if ctx.Err() != nil || !s.journal.Begin(u.ID) {
		return // a next life finds it in the journal
	}
	s.heardAt.Store(s.now().Unix())
	// What has begun is finished: the end of ctx is no reason to lose half of it.
	ctx = context.WithoutCancel(ctx)
	in.line(s.concern(u), func() {
		ctx, stop := context.WithTimeout(ctx, handlingTime)
		defer stop()
		in.handle(ctx, u)
	})
}

// line has f run after all that was put in this line before.
func (in *intake) line(name string, f func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.lines == nil {
		in.lines = map[string][]func(){}
	}
	waiting, running := in.lines[name]
	in.lines[name] = append(waiting, f)
	if running {
		return
	}
	if in.idle == nil {
		in.idle = make(chan struct{})
	}
	go in.follow(name)
}

// follow runs a line to its end.
func (in *intake) follow(name string) {
	for {
		in.mu.Lock()
		if len(in.lines[name]) == 0 {
			if delete(in.lines, name); len(in.lines) == 0 {
				close(in.idle)
				in.idle = nil
			}
			in.mu.Unlock()
			return
		}
		next := in.lines[name][0]
		in.lines[name] = in.lines[name][1:]
		in.mu.Unlock()
		next()
	}
}

// wait returns when nothing is being handled.
func (in *intake) wait() {
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

// concern names what an update is about, for the order of those about the same.
func (s *session) concern(u *models.Update) string {
	switch {
	case u.CallbackQuery != nil:
		_, n, _ := strings.Cut(u.CallbackQuery.Data, ":")
		if at, _, _ := s.book.find(n); at.key.ID != "" {
			return at.key.String()
		}
		return "from " + strconv.FormatInt(u.CallbackQuery.From.ID, 10)
	case u.Message != nil:
		if r := u.Message.ReplyToMessage; r != nil {
			if at, ok := s.book.spot(u.Message.Chat.ID, r.ID); ok {
				return at.key.String()
			}
		}
		return "chat " + strconv.FormatInt(u.Message.Chat.ID, 10)
	}
	return ""
}

// handle handles one update. It is finished when what it asked for is durable; one whose handler fails by
// a bug of ours comes again, though not without end.
func (in *intake) handle(ctx context.Context, u *models.Update) {
	s := in.session
	defer func() {
		what := recover()
		if what == nil {
			return
		}
		s.log(fmt.Errorf("update %d: panic: %v\n%s", u.ID, what, debug.Stack()))
		if in.failed(u.ID) < mostTries {
			s.journal.Abandon(u.ID)
			time.AfterFunc(s.outbox.retry(0, nil), func() {
				if s.outbox.ctx.Err() == nil {
					in.take(s.outbox.ctx, nil, u)
				}
			})
			return
		}
		s.poisoned(u.ID)
	}()
	if !s.knowsUs(ctx, u) {
		s.journal.Abandon(u.ID) // a next life finds it
		return
	}
	s.handle(ctx, u)
	in.done(u.ID)
}

// knowsUs waits for our name where somebody calls a bot by its name: before we know ours it could be
// another's. It is false where this life ends meanwhile.
func (s *session) knowsUs(ctx context.Context, u *models.Update) bool {
	if u.Message == nil || !strings.Contains(u.Message.Text, "@") {
		return true
	}
	ctx, stop := context.WithTimeout(ctx, nameTime)
	defer stop()
	select {
	case <-s.met:
	case <-ctx.Done(): // it is not to be had: what we were called before has to do
	case <-s.outbox.ctx.Done():
		return false
	}
	return true
}

func (in *intake) failed(id int64) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.tries == nil {
		in.tries = map[int64]int{}
	}
	in.tries[id]++
	return in.tries[id]
}

func (in *intake) done(id int64) {
	in.mu.Lock()
	delete(in.tries, id)
	in.mu.Unlock()
	if err := in.session.journal.Finished(id); err != nil {
		in.session.log(err)
	}
}

// poisoned gives an update up.
func (s *session) poisoned(id int64) {
	s.troubles.set("poison", fmt.Sprintf("what somebody sent could not be handled and was given up (update %d)", id),
		"the gate's log says why; whoever tapped or wrote it may do so again")
	s.intake.done(id)
	s.forgetTries(id)
}

// replay handles the updates that a former life took and did not finish. How often that was tried is
// counted on disk: such an update may be what ended that life.
func (s *session) replay(ctx context.Context) {
	left, err := s.journal.Unfinished()
	if err != nil {
		s.log(fmt.Errorf("read the journal: %w", err))
	}
	for _, u := range left {
		update, err := parseUpdate(u.JSON)
		if err != nil {
			s.log(fmt.Errorf("update %d cannot be read: %w", u.ID, err))
			s.poisoned(u.ID)
			continue
		}
		if s.countTry(u.ID) > mostTries {
			s.log(fmt.Errorf("update %d was begun %d times and never finished", u.ID, mostTries))
			s.poisoned(u.ID)
			continue
		}
		s.intake.take(ctx, nil, update)
	}
	s.intake.wait() // what was tapped before is decided before anything is said of it
	for _, u := range left {
		s.forgetTries(u.ID)
	}
}

func triesName(id int64) string { return "tries-" + strconv.FormatInt(id, 10) }

func (s *session) countTry(id int64) int {
	b, err := s.Notes.Get(triesName(id))
	n := 0
	if err == nil {
		n, err = strconv.Atoi(string(b))
	}
	if err != nil {
		n = 0
	}
	n++
	if err := s.Notes.Put(triesName(id), []byte(strconv.Itoa(n))); err != nil {
		s.log(fmt.Errorf("count the tries of update %d: %w", id, err))
	}
	return n
}

func (s *session) forgetTries(id int64) {
	if err := s.Notes.Remove(triesName(id)); err != nil {
		s.log(err)
	}
}

// handle finds the handler of an update. All kinds that are none of these are nothing to us, edited
// messages and posts of channels among them.
func (s *session) handle(ctx context.Context, u *models.Update) {
	switch {
	case u.CallbackQuery != nil:
		s.tap(ctx, u.CallbackQuery)
	case u.Message != nil:
		s.message(ctx, u.Message)
	case u.MyChatMember != nil:
		s.membership(u.MyChatMember)
	}
}
