package telegram

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-telegram/bot"
)

// Telegram's limits on messages, as its FAQ for bots gives them, and how we stay below them. It measures
// when a message arrives and we when it leaves, so a full second or minute is not filled to the brim.
const (
	chatEvery = time.Second
	chatBurst = 3 // what a chat may get at once after a rest

	groupWindow = time.Minute + time.Second
	groupMost   = 20

	allMost  = 28 // in any second, over all chats, two fewer than allowed: allBurst at once, then one every allEvery
	allBurst = 4
	allEvery = time.Second / (allMost - allBurst)

	maxLanes = 1000 // chats remembered before the idle ones are dropped
)

// Limiter holds messages back so that Telegram takes them: one a second to a chat, after a rest three at
// once; 20 a minute to a group; 30 a second over all; and nothing to a chat that has to rest for
// retry_after. Edits count as messages, answers to callback queries do not. The zero value is ready.
//
// Waiting messages of one chat go in the order in which they came, and no chat waits for another one's
// second.
type Limiter struct {
	Now func() time.Time // nil: time.Now; what it says must pass as fast as the timers

	mu    sync.Mutex // guards the maps and the fields of lanes
	lanes map[int64]*lane
	all   lane
}

// lane is one chat's past, or that of all.
type lane struct {
	turn    chan struct{} // held by the one that is next
	users   int           // waiting, or next
	bucket  bucket
	minute  []time.Time // of a group: when the last messages went, at most groupMost
	blocked time.Time   // until then
}

// bucket lets burst through at once and then one each time every has passed.
type bucket struct {
	full time.Time // when it is as full as it can get
}

// ready is the earliest time at which the bucket lets one through.
func (b bucket) ready(burst int, every time.Duration) time.Time {
	return b.full.Add(-time.Duration(burst-1) * every)
}

func (b *bucket) spend(now time.Time, every time.Duration) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(every)
}

// Wait returns nil as soon as one message may go to the chat, and counts it as sent. The error is that of
// ctx; a ctx whose deadline comes before the message's time fails at once.
func (l *Limiter) Wait(ctx context.Context, chatID int64, isGroup bool) error {
	chat := l.enter(chatID)
	defer l.leave(chat)
	if err := chat.take(ctx); err != nil {
		return err
	}
	defer chat.release()
	if err := l.until(ctx, func(now time.Time) time.Time { return chat.ready(now, isGroup) }); err != nil {
		return err
	}
	if err := l.all.take(ctx); err != nil {
		return err
	}
	defer l.all.release()
	return l.until(ctx, func(now time.Time) time.Time {
		at := chat.ready(now, isGroup)
		if all := l.all.bucket.ready(allBurst, allEvery); all.After(at) {
			at = all
		}
		if !at.After(now) {
			l.all.bucket.spend(now, allEvery)
			chat.spend(now)
		}
		return at
	})
}

// Refused tells the limiter of an error that Telegram answered with. Where it is a
// *bot.TooManyRequestsError, nothing goes to that chat for as long as it says, and Refused returns how long
// that is; else 0.
func (l *Limiter) Refused(chatID int64, err error) time.Duration {
	var tooMany *bot.TooManyRequestsError
	if !errors.As(err, &tooMany) {
		return 0
	}
	rest := max(time.Duration(tooMany.RetryAfter)*time.Second, time.Second)
	chat := l.enter(chatID)
	defer l.leave(chat)
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := l.now().Add(rest); until.After(chat.blocked) {
		chat.blocked = until
	}
	return rest
}

func (l *Limiter) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// enter returns the chat's lane, which stays remembered until leave.
func (l *Limiter) enter(chatID int64) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lanes == nil {
		l.lanes = map[int64]*lane{}
		l.all.turn = make(chan struct{}, 1)
	}
	if len(l.lanes) >= maxLanes {
		l.sweep()
	}
	chat := l.lanes[chatID]
	if chat == nil {
		chat = &lane{turn: make(chan struct{}, 1)}
		l.lanes[chatID] = chat
	}
	chat.users++
	return chat
}

func (l *Limiter) leave(chat *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chat.users--
}

// sweep drops the lanes without a memory that matters.
func (l *Limiter) sweep() {
	now := l.now()
	for id, chat := range l.lanes {
		recent := len(chat.minute) > 0 && chat.minute[len(chat.minute)-1].Add(groupWindow).After(now)
		if chat.users == 0 && !recent && !chat.blocked.After(now) {
			delete(l.lanes, id)
		}
	}
}

// until waits for the time that ready gives, asked again each time that came: it may have moved.
func (l *Limiter) until(ctx context.Context, ready func(now time.Time) time.Time) error {
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
		if err := pause(ctx, at.Sub(now)); err != nil {
			return err
		}
	}
}

// pause waits, unless ctx ends before that or is bound to.
func pause(ctx context.Context, d time.Duration) error {
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

// take waits for one's turn; those who wait get it in order.
func (c *lane) take(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *lane) release() { <-c.turn }

// ready is the earliest time at which a message may go to this chat.
func (c *lane) ready(now time.Time, isGroup bool) time.Time {
	at := c.blocked
	if b := c.bucket.ready(chatBurst, chatEvery); b.After(at) {
		at = b
	}
	if isGroup && len(c.minute) == groupMost {
		if m := c.minute[0].Add(groupWindow); m.After(at) {
			at = m
		}
	}
	return at
}

// spend counts a message.
func (c *lane) spend(now time.Time) {
	c.bucket.spend(now, chatEvery)
	if len(c.minute) == groupMost {
		c.minute = c.minute[1:]
	}
	c.minute = append(c.minute, now)
}
