package botapi

import (
	"strconv"

	"github.com/go-telegram/bot/models"
)

// chatState is a chat with its messages. Message IDs count from 1 in each chat, so a bot that uses a message ID
// without its chat soon hits the wrong message.
type chatState struct {
	Chat
	topics   map[int]string
	closed   map[int]bool // topics in which only administrators write
	messages []*Message
	started  bool  // of a private chat: the user has written to the bot
	blocked  bool  // … and has blocked it
	upgraded int64 // of a group: the supergroup that replaced it
}

// AddUser adds or replaces a user or a bot.
func (s *Server) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user(u)
}

func (s *Server) user(u User) {
	setIn(&s.users, u.ID, u)
}

// AddChat adds a chat with the bot as a member. A private chat exists as soon as its user does.
func (s *Server) AddChat(c Chat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	setIn(&s.chats, c.ID, &chatState{Chat: c, topics: map[int]string{}})
}

// AddTopic opens a forum topic and returns its message_thread_id.
func (s *Server) AddTopic(chat int64, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mustChat(chat)
	m := s.put(r, Message{TopicCreated: &models.ForumTopicCreated{Name: name, IconColor: 7322096}, IsTopicMessage: true})
	m.ThreadID = m.ID
	r.topics[m.ID] = name
	return m.ID
}

// CloseTopic closes or reopens a topic. Telegram does not always tell the bot: then quiet is true.
func (s *Server) CloseTopic(chat int64, topic int, closed, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mustChat(chat)
	setIn(&r.closed, topic, closed)
	if quiet {
		return
	}
	m := Message{ThreadID: topic}
	if closed {
		m.TopicClosed = &models.ForumTopicClosed{}
	} else {
		m.TopicReopened = &models.ForumTopicReopened{}
	}
	s.deliverMessage(r, m)
}

// Block makes a user block or unblock the bot.
func (s *Server) Block(user int64, blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mustChat(user)
	r.blocked = blocked
	was, is := "kicked", "member"
	if blocked {
		was, is = is, was
	}
	member := func(status string) map[string]any {
		return map[string]any{"user": thisBot, "status": status, "until_date": 0}
	}
	s.push("my_chat_member", map[string]any{
		"chat": r.Chat, "from": s.users[user], "date": s.now().Unix(),
		"old_chat_member": member(was), "new_chat_member": member(is),
	})
}

// Upgrade makes a group a supergroup, as Telegram does when it gets a public history or topics. The old ID
// becomes invalid.
func (s *Server) Upgrade(by, group, supergroup int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.mustChat(group)
	old.upgraded = supergroup
	c := old.Chat
	c.ID, c.Type = supergroup, Supergroup
	s.chats[supergroup] = &chatState{Chat: c, topics: map[int]string{}}
	from := s.users[by]
	s.deliverMessage(old, Message{From: &from, MigrateTo: supergroup})
	s.deliverMessage(s.chats[supergroup], Message{From: &from, MigrateFrom: group})
}

// mustChat returns a chat that the test has added.
func (s *Server) mustChat(id int64) *chatState {
	r := s.chat(id)
	if r == nil {
		panic("botapi: no chat " + strconv.FormatInt(id, 10) + " was added")
	}
	return r
}

// chat returns the chat of that ID, or nil. A user's private chat is created at first use.
func (s *Server) chat(id int64) *chatState {
	if r := s.chats[id]; r != nil {
		return r
	}
	u, ok := s.users[id]
	if !ok {
		return nil
	}
	r := &chatState{Chat: Chat{ID: id, Type: Private, FirstName: u.FirstName, Username: u.Username}}
	setIn(&s.chats, id, r)
	return r
}

// setIn adds to a map, which may be nil.
func setIn[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// find returns a message of the chat, or nil if there is none.
func (r *chatState) find(id int) *Message {
	if id < 1 || id > len(r.messages) {
		return nil
	}
	return r.messages[id-1]
}

// put adds a message to a chat.
func (s *Server) put(r *chatState, m Message) *Message {
	m.ID, m.Chat, m.Date = len(r.messages)+1, r.Chat, s.now().Unix()
	r.messages = append(r.messages, &m)
	return &m
}

// replied is a message as quoted in a reply: without its own reply_to_message.
func replied(m *Message) *Message {
	copied := *m
	copied.ReplyTo = nil
	return &copied
}

// chatFor returns the chat of a call, if the bot may write there.
func (s *Server) chatFor(c *call) *chatState {
	if c.params["chat_id"] == "" {
		panic(badRequest("chat_id is empty"))
	}
	id, err := strconv.ParseInt(c.params["chat_id"], 10, 64)
	r := s.chat(id)
	switch {
	case err != nil || r == nil:
		panic(badRequest("chat not found"))
	case r.upgraded != 0:
		refused := badRequest("group chat was upgraded to a supergroup chat")
		refused.Parameters = &parameters{MigrateTo: r.upgraded}
		panic(refused)
	case r.blocked:
		panic(forbidden("bot was blocked by the user"))
	case r.Type == Private && s.users[r.ID].IsBot:
		panic(forbidden("bot can't send messages to bots"))
	case r.Type == Private && !r.started:
		panic(forbidden("bot can't initiate conversation with a user"))
	}
	return r
}
