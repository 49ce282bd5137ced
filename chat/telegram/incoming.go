package telegram

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/chat/deliver"
)

// dispatch is the library's handler. It only passes the update on.
func (s *session) dispatch(ctx context.Context, _ *bot.Bot, u *models.Update) {
	if ctx.Err() == nil {
		s.receive(u, false)
	}
}

// receive passes an update to the inbox, unless it was begun before. What is not handled stays in the journal.
func (s *session) receive(u *models.Update, replayed bool) {
	if !s.journal.Begin(u.ID) {
		return
	}
	s.lastUpdateAt.Store(time.Now().Unix())
	e := s.event(u)
	e.ID, e.Replayed = strconv.FormatInt(u.ID, 10), replayed
	e.Done = func(handled bool) {
		if !handled {
			s.journal.Abandon(u.ID)
		} else if err := s.journal.Finished(u.ID); err != nil {
			s.log(err)
		}
	}
	s.in.Receive(e)
}

// errRemoved says that the bot cannot write to a chat.
var errRemoved = errors.New("the bot was removed or blocked")

// threadOf is the forum topic of a message. Outside of forums, message_thread_id is only a chain of replies.
func threadOf(m *models.Message) deliver.ID {
	if m.IsTopicMessage {
		return deliver.NumberID(int64(m.MessageThreadID))
	}
	return ""
}

// replay passes on the updates that earlier sessions did not finish.
func (s *session) replay() {
	left, err := s.journal.Unfinished()
	if err != nil {
		s.log(fmt.Errorf("read update journal: %w", err))
	}
	for _, u := range left {
		update, err := parseUpdate(u.JSON)
		if err != nil {
			s.log(fmt.Errorf("decode update %d: %w", u.ID, err))
			s.in.Warn("update", fmt.Sprintf("update %d could not be handled and was dropped", u.ID), "see the daemon's log")
			s.log(s.journal.Finished(u.ID))
			continue
		}
		s.receive(update, true)
	}
}

// event translates an update. All other kinds are ignored, such as edited messages and channel posts.
func (s *session) event(u *models.Update) (e deliver.Event) {
	switch {
	case u.CallbackQuery != nil:
		e.Tap = s.tap(u.CallbackQuery)
	case u.Message != nil && u.Message.MigrateToChatID != 0:
		e.Reach = &deliver.Reach{Chat: deliver.NumberID(u.Message.Chat.ID), Moved: deliver.NumberID(u.Message.MigrateToChatID)}
	case u.Message != nil:
		e.Said = s.said(u.Message)
	case u.MyChatMember != nil:
		e.Reach = &deliver.Reach{Chat: deliver.NumberID(u.MyChatMember.Chat.ID)}
		switch u.MyChatMember.NewChatMember.Type {
		case models.ChatMemberTypeBanned, models.ChatMemberTypeLeft:
			e.Reach.Err = &deliver.Error{Class: deliver.Unreachable, Hint: memberHint, Err: errRemoved}
		}
	}
	return e
}

// tap translates a tap. A button on an inline message has no chat.
func (s *session) tap(q *models.CallbackQuery) *deliver.Tap {
	t := &deliver.Tap{By: deliver.NumberID(q.From.ID), Data: q.Data}
	t.Answer = func(ctx context.Context, text string, alert bool) error { return s.api.answer(ctx, q.ID, text, alert) }
	var where models.Chat
	switch {
	case q.InlineMessageID != "", q.From.IsBot:
		return t
	case q.Message.Message != nil:
		m := q.Message.Message
		where, t.Message, t.At.Thread = m.Chat, deliver.NumberID(int64(m.ID)), threadOf(m)
	case q.Message.InaccessibleMessage != nil:
		m := q.Message.InaccessibleMessage
		where, t.Message = m.Chat, deliver.NumberID(int64(m.MessageID))
	}
	if where.Type != models.ChatTypePrivate || where.ID == q.From.ID {
		t.At.Chat = deliver.NumberID(where.ID)
	}
	return t
}

// said translates a message.
func (s *session) said(m *models.Message) *deliver.Said {
	t := &deliver.Said{
		At: deliver.Address{Chat: deliver.NumberID(m.Chat.ID), Thread: threadOf(m)}, Message: deliver.NumberID(int64(m.ID)), Text: m.Text, Group: m.Chat.ID < 0,
	}
	t.By, t.Direct = sender(m)
	t.Other = m.Text == "" && hasContent(m)
	if r := m.ReplyToMessage; r != nil {
		t.ReplyTo = deliver.NumberID(int64(r.ID))
		if r.From != nil && r.From.ID == s.api.bot.ID() && r.ReplyMarkup != nil {
			for _, b := range slices.Concat(r.ReplyMarkup.InlineKeyboard...) {
				t.Buttons = append(t.Buttons, b.CallbackData)
			}
		}
	}
	return t
}

// hasContent tells what a user sends, such as a picture, from what Telegram writes, such as that a message was pinned.
func hasContent(m *models.Message) bool {
	return m.Caption != "" || len(m.Photo) > 0 || m.Voice != nil || m.VideoNote != nil || m.Video != nil || m.Audio != nil ||
		m.Animation != nil || m.Document != nil || m.Sticker != nil || m.Location != nil || m.Contact != nil || m.Poll != nil || m.Dice != nil
}

// sender returns the user who wrote a message directly. A message that was forwarded, edited, or sent through a
// bot has none in a group; in a private chat it is not direct. The sender of one in the name of a group or a channel is that chat, and of a bot's message the
// bot, but it is not direct.
func sender(m *models.Message) (id deliver.ID, direct bool) {
	switch {
	case m.ForwardOrigin != nil, m.EditDate != 0, m.ViaBot != nil:
		if m.From != nil && m.Chat.Type == models.ChatTypePrivate && m.Chat.ID == m.From.ID {
			return deliver.NumberID(m.From.ID), false
		}
		return "", false
	case m.SenderChat != nil:
		return deliver.NumberID(m.SenderChat.ID), false
	case m.From != nil && m.From.IsBot:
		return deliver.NumberID(m.From.ID), false
	case m.From == nil || m.From.ID <= 0, m.SenderBusinessBot != nil || m.BusinessConnectionID != "", m.IsAutomaticForward:
		return "", false
	case m.Chat.Type == models.ChatTypePrivate && m.Chat.ID == m.From.ID, m.Chat.Type == models.ChatTypeGroup, m.Chat.Type == models.ChatTypeSupergroup:
		return deliver.NumberID(m.From.ID), true
	}
	return "", false
}
