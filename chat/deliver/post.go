package deliver

import (
	"context"
	"math"
)

// noTextLimit is the limit of a service without one.
const noTextLimit = math.MaxInt32

func (s *session) maxText() int {
	if s.traits.MaxText > 0 {
		return s.traits.MaxText
	}
	return noTextLimit
}

// send sends a message, without buttons if the service has none.
func (s *session) send(ctx context.Context, to Address, m Message) (ID, error) {
	if !s.traits.Buttons {
		m.Buttons = nil
	}
	return s.Adapter.Send(ctx, to, m)
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
