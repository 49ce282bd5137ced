package botapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-telegram/bot/models"
)

// anonymousAdmin is the sender that Telegram names for an anonymous administrator.
var anonymousAdmin = User{ID: 1087968824, IsBot: true, FirstName: "Group", Username: "GroupAnonymousBot"}

// Say makes a user write to a chat. Writing to the bot's private chat starts it: before that the bot may not
// write to the user.
func (s *Server) Say(user, chat int64, text string) Message {
	return s.Post(chat, Message{From: &User{ID: user}, Text: text})
}

// Open lets the bot write to users: they have written to it long ago, and it has acknowledged that.
func (s *Server) Open(users ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range users {
		r := s.mustChat(id)
		r.started = true
		s.put(r, Message{From: s.known(User{ID: id}), Text: "hello"})
	}
}

// Forget drops the updates that the bot has not taken, as Telegram does after a day.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.updates = nil
}

// Reply makes a user reply to a message of the chat.
func (s *Server) Reply(user, chat int64, to int, text string) Message {
	return s.Post(chat, Message{From: &User{ID: user}, Text: text, ReplyTo: &Message{ID: to}})
}

// Forward makes a user forward another user's message.
func (s *Server) Forward(user, chat, author int64, text string) Message {
	by := &models.MessageOriginUser{SenderUser: User{ID: author, FirstName: "Author"}}
	origin := &models.MessageOrigin{Type: models.MessageOriginTypeUser, MessageOriginUser: by}
	return s.Post(chat, Message{From: &User{ID: user}, Text: text, ForwardOrigin: origin})
}

// SayAnonymously makes an anonymous administrator write.
func (s *Server) SayAnonymously(chat int64, text string) Message {
	return s.Post(chat, Message{From: &anonymousAdmin, SenderChat: &Chat{ID: chat}, Text: text})
}

// Post adds any message to a chat. IDs and times are added, and what is known of the sender, the sender's chat
// and the replied message.
func (s *Server) Post(chat int64, m Message) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mustChat(chat)
	if m.From != nil {
		m.From = s.known(*m.From)
		if m.From.ID == chat {
			r.started = true
		}
	}
	if m.SenderChat != nil && s.chats[m.SenderChat.ID] != nil {
		m.SenderChat = &s.chats[m.SenderChat.ID].Chat
	}
	return s.deliverMessage(r, m)
}

// known returns the user as added, or as given if unknown.
func (s *Server) known(u User) *User {
	if known, ok := s.users[u.ID]; ok {
		return &known
	}
	return &u
}

// deliverMessage adds a message to a chat and tells the bot.
func (s *Server) deliverMessage(r *chatState, m Message) Message {
	s.thread(r, &m)
	if m.Entities == nil {
		m.Entities = withAutomatic(m.Text, nil)
	}
	put := s.put(r, m)
	if s.receives(r, put) {
		s.push("message", *put)
	}
	s.notify()
	return *put
}

// receives reports whether the bot gets a message of a group.
func (s *Server) receives(r *chatState, m *Message) bool {
	return !s.Privacy || r.Type == Private || m.MigrateTo != 0 || m.MigrateFrom != 0 ||
		strings.HasPrefix(m.Text, "/") || strings.Contains(m.Text, "@"+thisBot.Username) ||
		m.ReplyTo != nil && m.ReplyTo.From != nil && m.ReplyTo.From.ID == thisBot.ID
}

// thread fills in the replied message. In a topic, a message without a reply seems to reply to the topic's
// head. In a supergroup, a reply has the replied message's ID as its thread.
func (s *Server) thread(r *chatState, m *Message) {
	if m.ReplyTo != nil {
		if target := r.find(m.ReplyTo.ID); target != nil {
			m.ReplyTo = replied(target)
		}
	}
	switch {
	case m.ThreadID != 0 && r.topics[m.ThreadID] != "":
		m.IsTopicMessage = true
		if m.ReplyTo == nil {
			m.ReplyTo = replied(r.messages[m.ThreadID-1])
		}
	case r.Type == Supergroup && m.ReplyTo != nil && m.ReplyTo.IsTopicMessage:
		m.ThreadID, m.IsTopicMessage = m.ReplyTo.ThreadID, true
	case r.Type == Supergroup && m.ReplyTo != nil:
		m.ThreadID = m.ReplyTo.ID
		if m.ReplyTo.ThreadID != 0 {
			m.ThreadID = m.ReplyTo.ThreadID
		}
	}
}

// Inject queues any update: payload is the JSON under the name of its kind. It returns the update's ID, or 0 if
// the bot did not request that kind.
func (s *Server) Inject(kind string, payload json.RawMessage) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.push(kind, payload)
}

// State is a snapshot of the server.
type State struct {
	chats    map[int64][]Message
	Commands map[string][]BotCommand // the bot's menu by language; "" is the default
	Calls    []Call                  // the bot's calls, getUpdates included, in the order of their effects
}

// Chat returns the messages of a chat, oldest first.
func (s State) Chat(id int64) []Message { return slices.Clone(s.chats[id]) }

// FromBot returns the bot's messages in a chat.
func (s State) FromBot(id int64) []Message {
	return slices.DeleteFunc(s.Chat(id), func(m Message) bool { return m.From == nil || !m.From.IsBot || m.TopicCreated != nil })
}

// Message returns a message of a chat.
func (s State) Message(chat int64, id int) (Message, bool) {
	if all := s.chats[chat]; id >= 1 && id <= len(all) {
		return all[id-1], true
	}
	return Message{}, false
}

// Count returns how often a method was called with success.
func (s State) Count(method string) int {
	n := 0
	for _, c := range s.Calls {
		if c.Method == method && c.Code == 200 {
			n++
		}
	}
	return n
}

// Refused returns the calls with an error of 400 to 404: a correct bot has none except those that a test
// provokes.
func (s State) Refused() []Call {
	return slices.DeleteFunc(slices.Clone(s.Calls), func(c Call) bool { return c.Code < 400 || c.Code > 404 })
}

// State returns a snapshot.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := State{chats: map[int64][]Message{}, Commands: maps.Clone(s.commands), Calls: slices.Clone(s.calls)}
	for id, r := range s.chats {
		for _, m := range r.messages {
			st.chats[id] = append(st.chats[id], *m)
		}
	}
	return st
}

// Messages is State().Chat.
func (s *Server) Messages(chat int64) []Message { return s.State().Chat(chat) }

// Await waits until ok returns true; it is called at every change. The error is ctx's.
func (s *Server) Await(ctx context.Context, ok func(State) bool) error {
	if err := s.await(ctx, func() bool { return ok(s.State()) }); err != nil {
		return fmt.Errorf("wait for Telegram's state: %w", err)
	}
	return nil
}

func (s *Server) await(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		changed := s.change()
		s.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
