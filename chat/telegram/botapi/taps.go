package botapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// ErrNoAnswer is returned if the bot did not answer a tap in time: the user sees the progress icon disappear,
// and nothing else.
var ErrNoAnswer = errors.New("the tap was not answered in time")

// Tap is a tap on a button.
type Tap struct {
	ID       string // of the callback query
	UpdateID int64  // 0: the bot does not request callback queries
	User     int64
	Chat     int64
	Message  int
	Data     string
	At       time.Time

	server *Server
	answer *Answer
}

// Answer is what the user sees after a tap.
type Answer struct {
	Text  string // "": no text, the progress icon disappears
	Alert bool   // a dialog instead of a toast
	At    time.Time
}

// Tap taps the button with that text, if the message has it.
func (s *Server) Tap(user, chat int64, message int, button string) (*Tap, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mustChat(chat).find(message)
	if m == nil {
		return nil, fmt.Errorf("no message %d in chat %d to tap on", message, chat)
	}
	b, ok := m.Button(button)
	if !ok || b.CallbackData == "" {
		return nil, fmt.Errorf("message %d in chat %d has no button %q to tap on, but %q", message, chat, button, m.Buttons())
	}
	return s.tap(user, chat, message, b.CallbackData), nil
}

// TapData sends callback data as a modified client can: on any message, even without that button, of another
// user, or deleted.
func (s *Server) TapData(user, chat int64, message int, data string) *Tap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tap(user, chat, message, data)
}

func (s *Server) tap(user, chat int64, message int, data string) *Tap {
	t := &Tap{
		ID:   strconv.FormatInt(rand.Int64(), 10), //nolint:gosec // no secret
		User: user, Chat: chat, Message: message, Data: data, At: s.now(), server: s,
	}
	r := s.mustChat(chat)
	var shown any
	if m := r.find(message); m != nil {
		shown = *m
	} else {
		shown = map[string]any{"chat": r.Chat, "message_id": message, "date": 0}
	}
	setIn(&s.taps, t.ID, t)
	t.UpdateID = s.push("callback_query", map[string]any{
		"id": t.ID, "from": s.users[user], "message": shown,
		"chat_instance": strconv.FormatInt(-7_000_000_000_000_000_000+chat, 10), "data": data,
	})
	return t
}

// Answer waits for the bot's answer. The error is ErrNoAnswer after the server's CallbackTimeout.
func (t *Tap) Answer(ctx context.Context) (Answer, error) {
	s := t.server
	ctx, stop := context.WithTimeoutCause(ctx, t.At.Add(s.callbackTimeout()).Sub(s.now()), ErrNoAnswer)
	defer stop()
	if err := s.await(ctx, func() bool { _, ok := t.Answered(); return ok }); err != nil {
		return Answer{}, err
	}
	answer, _ := t.Answered()
	return answer, nil
}

// Answered returns the answer, if there is one yet.
func (t *Tap) Answered() (Answer, bool) {
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	if t.answer == nil {
		return Answer{}, false
	}
	return *t.answer, true
}

func (s *Server) callbackTimeout() time.Duration { return cmp.Or(s.CallbackTimeout, 15*time.Second) }

// answerCallbackQuery answers a tap, only once and in time.
func (s *Server) answerCallbackQuery(c *call) any {
	text, alert := c.params["text"], c.boolean("show_alert")
	t := s.taps[c.params["callback_query_id"]]
	now := s.now()
	switch {
	case utf16Len(text) > maxAnswer:
		panic(badRequest("MESSAGE_TOO_LONG"))
	case normalized(text) != text:
		panic(strict("Telegram would show %q instead of %q", normalized(text), text))
	case t == nil || t.answer != nil || now.Sub(t.At) > s.callbackTimeout():
		panic(badRequest("query is too old and response timeout expired or query ID is invalid"))
	}
	t.answer = &Answer{Text: text, Alert: alert, At: now}
	return true
}
