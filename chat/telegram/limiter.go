package telegram

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-telegram/bot"
)

// Telegram's limits on messages, from its FAQ for bots, and the lower limits used here. Telegram counts when a
// message arrives, the Limiter when it is sent, so each window has a margin.
const (
	chatInterval = time.Second
	chatBurst    = 3 // messages at once after a pause

	groupWindow = time.Minute + time.Second
	groupMax    = 20
	groupEdits  = 15 // … of which edits leave the others to new messages

	allMax      = 28 // in any second, over all chats, two fewer than allowed: allBurst at once, then one every allInterval
	allBurst    = 4
	allInterval = time.Second / (allMax - allBurst)

	maxChats = 1000 // above it, idle chats are dropped
)

// Limiter delays messages to stay within Telegram's limits: one a second to a chat, three at once after a
// pause; 20 a minute to a group; 30 a second in total; and none to a chat during its retry_after. Edits count
// as messages, answers to callback queries do not. The zero value is ready.
//
// Messages of one chat are sent in order. No chat waits for another chat's limit.
type Limiter struct {
	Now func() time.Time // nil: time.Now; must run as fast as the timers

	mu    sync.Mutex // guards the maps and the fields of their chats
	chats map[int64]*chatState
	all   chatState
}

// chatState is the recent traffic of one chat, or of all chats.
type chatState struct {
	turn         chan struct{} // held by the next sender
	users        int           // senders, waiting or next
	bucket       bucket
	recent       []time.Time // of a group: the last send times, at most groupMax
	blockedUntil time.Time   // until retry_after has passed
}

// bucket is a token bucket: a burst at once, then one message per interval.
type bucket struct {
	fullAt time.Time // when the bucket is full again
}

// ready returns the earliest time for the next message.
func (b bucket) ready(burst int, every time.Duration) time.Time {
	return b.fullAt.Add(-time.Duration(burst-1) * every)
}

func (b *bucket) spend(now time.Time, every time.Duration) {
	b.fullAt = later(b.fullAt, now).Add(every)
}

// Wait returns nil when a message may be sent to the chat, and counts it. Its error is ctx's. It fails at once
// if the deadline of ctx is too early.
func (l *Limiter) Wait(ctx context.Context, chatID int64, isGroup bool) error {
	chat := l.acquire(chatID)
	defer l.release(chat)
	if err := chat.lockTurn(ctx); err != nil {
		return err
	}
	defer chat.unlockTurn()
	if err := l.waitUntil(ctx, func(time.Time) time.Time { return chat.ready(isGroup) }); err != nil {
		return err
	}
	if err := l.all.lockTurn(ctx); err != nil {
		return err
	}
	defer l.all.unlockTurn()
	return l.waitUntil(ctx, func(now time.Time) time.Time {
		at := later(chat.ready(isGroup), l.all.bucket.ready(allBurst, allInterval))
		if !at.After(now) {
			l.all.bucket.spend(now, allInterval)
			chat.spend(now)
		}
		return at
	})
}

// Delay is how long Wait would take now. Telegram counts edits as messages. An edit waits longer: until a full burst
// is possible, so that new messages need not wait for the edits before them.
func (l *Limiter) Delay(chatID int64, isGroup, edit bool) time.Duration {
	chat := l.acquire(chatID)
	defer l.release(chat)
	l.mu.Lock()
	defer l.mu.Unlock()
	at := chat.ready(isGroup)
	if edit {
		at = later(at, chat.bucket.fullAt)
		if n := len(chat.recent); isGroup && n >= groupEdits {
			at = later(at, chat.recent[n-groupEdits].Add(groupWindow))
		}
	}
	return at.Sub(l.now())
}

// NoteError handles an error from Telegram. After a *bot.TooManyRequestsError it blocks the chat for the given
// time and returns that time; otherwise it returns 0.
func (l *Limiter) NoteError(chatID int64, err error) time.Duration {
	var tooMany *bot.TooManyRequestsError
	if !errors.As(err, &tooMany) {
		return 0
	}
	rest := max(time.Duration(tooMany.RetryAfter)*time.Second, time.Second)
	chat := l.acquire(chatID)
	defer l.release(chat)
	l.mu.Lock()
	defer l.mu.Unlock()
	chat.blockedUntil = later(chat.blockedUntil, l.now().Add(rest))
	return rest
}

func (l *Limiter) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// acquire returns the chat's state and keeps it in memory until release.
func (l *Limiter) acquire(chatID int64) *chatState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.chats == nil {
		l.chats = map[int64]*chatState{}
		l.all.turn = make(chan struct{}, 1)
	}
	if len(l.chats) >= maxChats {
		l.dropIdle()
	}
	chat := l.chats[chatID]
	if chat == nil {
		chat = &chatState{turn: make(chan struct{}, 1)}
		l.chats[chatID] = chat
	}
	chat.users++
	return chat
}

func (l *Limiter) release(chat *chatState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chat.users--
}

// dropIdle drops the state of chats that no limit applies to.
func (l *Limiter) dropIdle() {
	now := l.now()
	for id, chat := range l.chats {
		recent := len(chat.recent) > 0 && chat.recent[len(chat.recent)-1].Add(groupWindow).After(now)
		if chat.users == 0 && !recent && !chat.blockedUntil.After(now) {
			delete(l.chats, id)
		}
	}
}

// waitUntil waits for the time that ready returns. It asks again at that time, which may have moved.
func (l *Limiter) waitUntil(ctx context.Context, ready func(now time.Time) time.Time) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.mu.Lock()
		now := l.now()
		at := ready(now)
		l.mu.Unlock()
		if !at.After(now) {
			return nil
		}
		if err := sleep(ctx, at.Sub(now)); err != nil {
			return err
		}
	}
}

// sleep waits, unless ctx ends before that or has an earlier deadline.
func sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return fmt.Errorf("wait %s for Telegram's rate limit: %w", d.Round(time.Millisecond), context.DeadlineExceeded)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// lockTurn waits for the sender's turn; senders get it in order.
func (c *chatState) lockTurn(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *chatState) unlockTurn() { <-c.turn }

// ready returns the earliest time for a message to this chat.
func (c *chatState) ready(isGroup bool) time.Time {
	at := later(c.blockedUntil, c.bucket.ready(chatBurst, chatInterval))
	if isGroup && len(c.recent) == groupMax {
		at = later(at, c.recent[0].Add(groupWindow))
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// spend counts a message.
func (c *chatState) spend(now time.Time) {
	c.bucket.spend(now, chatInterval)
	c.recent = append(c.recent, now)
	c.recent = c.recent[max(0, len(c.recent)-groupMax):]
}
