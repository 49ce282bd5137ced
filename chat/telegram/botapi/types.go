package botapi

import (
	"slices"

	"github.com/go-telegram/bot/models"
)

// The objects of the Bot API.
type (
	// User is a person or a bot.
	User = models.User
	// Chat is a chat. The ID of a private chat is its user's; other IDs are negative.
	Chat = models.Chat
	// Entity is the format of a part of a text. Offset and Length count UTF-16 code units.
	Entity = models.MessageEntity
	// Button is a button of an inline keyboard.
	Button = models.InlineKeyboardButton
	// Keyboard is an inline keyboard, row by row.
	Keyboard = models.InlineKeyboardMarkup
	// BotCommand is an entry of the bot's command menu.
	BotCommand = models.BotCommand
)

// The types of chats.
const (
	Private    = models.ChatTypePrivate
	Group      = models.ChatTypeGroup
	Supergroup = models.ChatTypeSupergroup
)

// Document is an uploaded file.
type Document struct {
	models.Document
	Content []byte `json:"-"`
}

// Message is a message in its current form. Fields without a JSON name are for tests.
type Message struct {
	ID              int                        `json:"message_id"`
	ThreadID        int                        `json:"message_thread_id,omitempty"`
	From            *User                      `json:"from,omitempty"`
	SenderChat      *Chat                      `json:"sender_chat,omitempty"`
	Date            int64                      `json:"date"`
	Chat            Chat                       `json:"chat"`
	ForwardOrigin   *models.MessageOrigin      `json:"forward_origin,omitempty"`
	IsTopicMessage  bool                       `json:"is_topic_message,omitempty"`
	ReplyTo         *Message                   `json:"reply_to_message,omitempty"`
	EditDate        int64                      `json:"edit_date,omitempty"`
	Text            string                     `json:"text,omitempty"`
	Entities        []Entity                   `json:"entities,omitempty"`
	Document        *Document                  `json:"document,omitempty"`
	Voice           *models.Voice              `json:"voice,omitempty"`
	Caption         string                     `json:"caption,omitempty"`
	CaptionEntities []Entity                   `json:"caption_entities,omitempty"`
	TopicCreated    *models.ForumTopicCreated  `json:"forum_topic_created,omitempty"`
	TopicClosed     *models.ForumTopicClosed   `json:"forum_topic_closed,omitempty"`
	TopicReopened   *models.ForumTopicReopened `json:"forum_topic_reopened,omitempty"`
	MigrateTo       int64                      `json:"migrate_to_chat_id,omitempty"`
	MigrateFrom     int64                      `json:"migrate_from_chat_id,omitempty"`
	Keyboard        *Keyboard                  `json:"reply_markup,omitempty"`

	Silent     bool `json:"-"` // sent without a sound
	ForceReply bool `json:"-"` // opens a reply to it on the user's screen
	Edits      int  `json:"-"` // how often the bot edited it
}

func (m Message) keys() []Button {
	if m.Keyboard == nil {
		return nil
	}
	return slices.Concat(m.Keyboard.InlineKeyboard...)
}

// Buttons lists the texts of a message's buttons, row after row.
func (m Message) Buttons() (texts []string) {
	for _, b := range m.keys() {
		texts = append(texts, b.Text)
	}
	return texts
}

// Button returns the button with that text.
func (m Message) Button(text string) (Button, bool) {
	for _, b := range m.keys() {
		if b.Text == text {
			return b, true
		}
	}
	return Button{}, false
}

// refusal is an error response.
type refusal struct {
	OK          bool        `json:"ok"`
	Code        int         `json:"error_code"`
	Description string      `json:"description"`
	Parameters  *parameters `json:"parameters,omitempty"`
}

type parameters struct {
	RetryAfter int   `json:"retry_after,omitempty"`
	MigrateTo  int64 `json:"migrate_to_chat_id,omitempty"`
}
