package deliver

import (
	"context"
	"math"
	"time"
)

// noTextLimit is the limit of a service without one.
const noTextLimit = math.MaxInt32

func (s *session) maxText() int {
	if s.traits.MaxText > 0 {
		return s.traits.MaxText
	}
	return noTextLimit
}

// limitDelay is how long the service's limits delay a job. Answers and new cards do not wait for edits.
func (s *session) limitDelay(chatID ID, rank int) time.Duration {
	if s.traits.Delay == nil {
		return 0
	}
	return s.traits.Delay(chatID, rank >= rankEdit)
}

// send sends a message, without buttons if the service has none.
func (s *session) send(ctx context.Context, to Address, m Message) (ID, error) {
	if !s.traits.Buttons {
		m.Buttons = nil
	}
	id, err := s.Adapter.Send(ctx, to, m)
	if err == nil {
		s.searches.noteSent(to.Chat, id)
	}
	return id, err
}

// edit replaces a message. Where messages cannot be edited, it keeps the old text: what users must learn is
// sent as a new message.
func (s *session) edit(ctx context.Context, to Address, id ID, m Message) error {
	if !s.traits.Edits {
		return nil
	}
	return s.Adapter.Edit(ctx, to, id, m)
}

// follow completes a message that replies to another one.
func (m Message) follow(id ID) Message {
	m.ReplyTo = id
	return m
}

func (m Message) silent(quiet bool) Message {
	m.Silent = quiet
	return m
}
