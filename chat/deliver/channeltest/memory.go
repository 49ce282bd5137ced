// Package channeltest tests adapters for chat/deliver. It is test support. Its Memory shows how to write an
// adapter, and Run is what every adapter has to pass.
package channeltest

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/permesso-dev/permesso/chat/deliver"
)

// Memory is a chat service in memory, together with its adapter. The adapter's part are the methods Open,
// Listen, Send and Edit.
type Memory struct {
	Traits deliver.Traits // what the service can do

	mu       sync.Mutex
	in       *deliver.Inbox
	waiting  []deliver.Event // events that no run has handled
	arrived  chan struct{}   // an event waits
	messages []*message
	failing  int // how many calls fail
	lastID   int
}

// message is a message of the bot, as it is shown now.
type message struct {
	id deliver.ID
	to deliver.Address
	deliver.Message
}

// content is the text of a message's file.
func (m *message) content() string {
	if m.File == nil {
		return ""
	}
	return m.File.Text
}

// NewMemory returns a service.
func NewMemory(traits deliver.Traits) *Memory {
	return &Memory{Traits: traits, arrived: make(chan struct{}, 1)}
}

// Open takes the inbox of this run. Whatever connects to the network waits for Listen.
func (m *Memory) Open(_ context.Context, in *deliver.Inbox) (deliver.Traits, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in = in
	return m.Traits, nil
}

// Listen passes events on. An event is kept until its effect is durable: Done says when.
func (m *Memory) Listen(ctx context.Context) error {
	for {
		m.mu.Lock()
		events, in := m.waiting, m.in
		m.waiting = nil
		m.mu.Unlock()
		for _, e := range events {
			e.Done = func(handled bool) {
				if !handled {
					m.add(e)
				}
			}
			in.Receive(e)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.arrived:
		}
	}
}

// Send shows a message. It does not return before the service has it, and says by the error's class whether it
// may have it although the call failed.
func (m *Memory) Send(_ context.Context, to deliver.Address, msg deliver.Message) (deliver.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing > 0 {
		m.failing--
		return "", &deliver.Error{Class: deliver.Temporary, Err: errors.New("the service is busy")}
	}
	m.lastID++
	id := deliver.ID("m" + strconv.Itoa(m.lastID))
	m.messages = append(m.messages, &message{id, to, msg})
	return id, nil
}

// Edit changes a message.
func (m *Memory) Edit(_ context.Context, to deliver.Address, id deliver.ID, msg deliver.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, old := range m.messages {
		if old.id == id && old.to == to {
			old.Message = msg
			return nil
		}
	}
	return &deliver.Error{Class: deliver.Gone, Err: errors.New("no such message")}
}

// add keeps an event for Listen.
func (m *Memory) add(e deliver.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = append(m.waiting, e)
	select {
	case m.arrived <- struct{}{}:
	default:
	}
}

// Fixture returns the service's side for Run: a group chat.
func (m *Memory) Fixture() Fixture {
	at := deliver.Address{Chat: "group"}
	return Fixture{
		Adapter: m, At: at, Approver: "ann", Stranger: "eve",
		Shown: func() (all []Shown) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, msg := range m.messages {
				shown := Shown{ID: msg.id, Text: msg.Text() + msg.content(), Buttons: map[string]string{}}
				for _, row := range msg.Buttons {
					for _, b := range row {
						shown.Buttons[b.Text] = b.Data
					}
				}
				all = append(all, shown)
			}
			return all
		},
		Tap: func(by, id deliver.ID, data string) string {
			answer := make(chan string, 1)
			m.add(deliver.Event{ID: "tap", Tap: &deliver.Tap{By: by, At: at, Message: id, Data: data, Answer: func(_ context.Context, text string, _ bool) error {
				answer <- text
				return nil
			}}})
			return <-answer
		},
		Say: func(by deliver.ID, text string, replyTo deliver.ID) {
			m.add(deliver.Event{ID: "text", Said: &deliver.Said{By: by, Direct: true, At: at, Text: text, Group: true, ReplyTo: replyTo}})
		},
		Fail: func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.failing = 2
		},
	}
}
