package botapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

const (
	maxPoll       = 50 * time.Second
	updateTTL     = 24 * time.Hour // how long an unacknowledged update is kept
	firstUpdateID = 731_904_112
)

// kinds are the kinds of updates. The last three must be requested explicitly.
var kinds = []string{
	"message", "edited_message", "channel_post", "edited_channel_post", "business_connection", "business_message",
	"edited_business_message", "deleted_business_messages", "inline_query", "chosen_inline_result", "callback_query",
	"shipping_query", "pre_checkout_query", "purchased_paid_media", "poll", "poll_answer", "my_chat_member",
	"chat_join_request", "chat_boost", "removed_chat_boost",
	"chat_member", "message_reaction", "message_reaction_count",
}

// queue holds the updates that the bot has not acknowledged.
type queue struct {
	updates []update
	next    int64           // the id of the next one; 0: firstUpdateID
	allowed []string        // nil: the default kinds
	poll    chan<- *refusal // ends the waiting long poll
	refused time.Time       // time of the last 409
}

type update struct {
	id   int64
	at   time.Time
	body json.RawMessage
}

// push queues an update, unless the bot does not request its kind, and returns its ID or 0.
func (s *Server) push(kind string, payload any) int64 {
	q := &s.queue
	if q.next == 0 {
		q.next = firstUpdateID
	}
	wanted := q.allowed
	if wanted == nil {
		wanted = kinds[:len(kinds)-3]
	}
	if !slices.Contains(wanted, kind) {
		return 0
	}
	id := q.next
	q.next++
	body, err := json.Marshal(map[string]any{"update_id": id, kind: payload})
	if err != nil {
		panic(err) // only for invalid JSON from a test
	}
	q.updates = append(q.updates, update{id, s.now(), body})
	s.notify()
	return id
}

// Unacknowledged returns the IDs of the updates that the bot has not acknowledged.
func (s *Server) Unacknowledged() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []int64
	for _, u := range s.queue.updates {
		ids = append(ids, u.id)
	}
	return ids
}

// poll is a getUpdates with its parameters.
type poll struct {
	offset  int64
	limit   int
	timeout time.Duration
	ended   chan *refusal // gets the refusal if another call ends it
}

// getUpdates is a long poll. It drops the updates below the offset and returns the others, again and again. A
// second poll ends the first one with 409.
func (s *Server) getUpdates(ctx context.Context, c *call) any {
	c.refuseUnknown([]string{"offset", "limit", "timeout", "allowed_updates"})
	p := s.startPoll(c)
	if p == nil {
		s.conflict(ctx, conflict("can't use getUpdates method while webhook is active; "+
			"use deleteWebhook to delete the webhook first"))
	}
	return s.wait(ctx, p)
}

// startPoll ends the waiting poll and starts another one; nil: a webhook is set.
func (s *Server) startPoll(c *call) *poll {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hook.url != "" {
		return nil
	}
	p := s.readPoll(c)
	s.endPoll("terminated by other getUpdates request; make sure that only one bot instance is running")
	s.acknowledge(p.offset)
	s.queue.poll = p.ended
	s.notify()
	return p
}

// wait answers a poll as soon as there is an update.
func (s *Server) wait(ctx context.Context, p *poll) any {
	late := time.NewTimer(p.timeout)
	defer late.Stop()
	over := false
	for {
		s.mu.Lock()
		found, changed, closing := s.deliverable(p.offset, p.limit), s.change(), s.closing
		s.mu.Unlock()
		select {
		case refused := <-p.ended:
			s.conflict(ctx, refused)
		default:
		}
		if len(found) > 0 || over {
			return found
		}
		select {
		case <-changed:
		case <-late.C:
			over = true
		case <-ctx.Done():
			over = true
		case <-closing:
			over = true
		case refused := <-p.ended:
			s.conflict(ctx, refused)
		}
	}
}

// readPoll reads the parameters of getUpdates.
func (s *Server) readPoll(c *call) *poll {
	p := &poll{offset: c.integer("offset"), limit: int(c.integer("limit")), ended: make(chan *refusal, 1)}
	p.timeout = min(max(time.Duration(c.integer("timeout"))*time.Second, 0), maxPoll)
	s.allowKinds(c)
	if c.params["limit"] == "" {
		p.limit = 100
	}
	if p.limit < 1 || p.limit > 100 {
		panic(strict("limit is 1 to 100, not %d", p.limit))
	}
	return p
}

// acknowledge drops the updates below the offset. A negative offset keeps that many.
func (s *Server) acknowledge(offset int64) {
	q := &s.queue
	q.updates = slices.DeleteFunc(q.updates, func(u update) bool { return s.now().Sub(u.at) > updateTTL })
	if offset < 0 {
		q.updates = slices.Clone(q.updates[max(0, len(q.updates)+int(offset)):])
		return
	}
	q.updates = slices.DeleteFunc(q.updates, func(u update) bool { return u.id < offset })
}

// deliverable returns the updates for a poll.
func (s *Server) deliverable(offset int64, limit int) []json.RawMessage {
	found := []json.RawMessage{}
	for _, u := range s.queue.updates {
		if u.id >= offset && len(found) < limit {
			found = append(found, u.body)
		}
	}
	return found
}

// endPoll ends the waiting long poll, if there is one.
func (s *Server) endPoll(why string) {
	if s.queue.poll != nil {
		select {
		case s.queue.poll <- conflict(why):
		default:
		}
	}
	s.queue.poll = nil
}

// conflict refuses with a 409. The first one comes at once, the next ones after a delay.
func (s *Server) conflict(ctx context.Context, refused *refusal) {
	pause := cmp.Or(s.ConflictPause, 3*time.Second)
	s.mu.Lock()
	now := s.now()
	first := now.Sub(s.queue.refused) >= pause
	if first {
		s.queue.refused = now
	}
	s.mu.Unlock()
	if !first {
		sleep(ctx, pause)
	}
	panic(refused)
}

func conflict(why string) *refusal {
	return &refusal{Code: http.StatusConflict, Description: "Conflict: " + why}
}

// allowKinds reads allowed_updates, which stay in force until changed.
func (s *Server) allowKinds(c *call) {
	var wanted []string
	if !c.object("allowed_updates", "allowed_updates", &wanted) {
		return
	}
	for _, kind := range wanted {
		if !slices.Contains(kinds, kind) {
			panic(strict("no updates of the kind %q", kind))
		}
	}
	if len(wanted) == 0 {
		wanted = nil
	}
	s.queue.allowed = wanted
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
