package botapi

import "slices"

// The objects of the Bot API that the fake supports, with the fields of core.telegram.org/bots/api. Fields
// without a JSON name are for tests.

// User is a person or a bot.
type User struct {
	ID        int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name,omitempty"`
	Username  string `json:"username,omitempty"`
	Language  string `json:"language_code,omitempty"`
}

// The types of chats.
const (
	Private    = "private"
	Group      = "group"
	Supergroup = "supergroup"
	Channel    = "channel"
)

// Chat is a chat. The ID of a private chat is its user's; other IDs are negative.
type Chat struct {
	ID        int64  `json:"id"`
	Type      string `json:"type"`
	Title     string `json:"title,omitempty"`
	Username  string `json:"username,omitempty"`
	FirstName string `json:"first_name,omitempty"`
	IsForum   bool   `json:"is_forum,omitempty"`
}

// Entity is the format of a part of a text. Offset and Length count UTF-16 code units.
type Entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	User     *User  `json:"user,omitempty"`
	Language string `json:"language,omitempty"`
}

// Button is a button of an inline keyboard.
type Button struct {
	Text         string `json:"text"`
	CallbackData string `json:"callback_data,omitempty"`
	URL          string `json:"url,omitempty"`
	Style        string `json:"style,omitempty"`
}

// Keyboard is an inline keyboard, row by row.
type Keyboard struct {
	Rows [][]Button `json:"inline_keyboard"`
}

// Document is an uploaded file.
type Document struct {
	FileID   string `json:"file_id"`
	UniqueID string `json:"file_unique_id"`
	Name     string `json:"file_name,omitempty"`
	Type     string `json:"mime_type,omitempty"`
	Size     int64  `json:"file_size"`
	Content  []byte `json:"-"`
}

// Origin is the source of a forwarded message; Type is "user", "hidden_user", "chat" or "channel".
type Origin struct {
	Type           string `json:"type"`
	Date           int64  `json:"date"`
	SenderUser     *User  `json:"sender_user,omitempty"`
	SenderUserName string `json:"sender_user_name,omitempty"`
	SenderChat     *Chat  `json:"sender_chat,omitempty"`
	Chat           *Chat  `json:"chat,omitempty"`
	MessageID      int    `json:"message_id,omitempty"`
}

// Topic is the service message at the head of a forum topic.
type Topic struct {
	Name      string `json:"name"`
	IconColor int    `json:"icon_color"`
}

// Message is a message in its current form.
type Message struct {
	ID              int       `json:"message_id"`
	ThreadID        int       `json:"message_thread_id,omitempty"`
	From            *User     `json:"from,omitempty"`
	SenderChat      *Chat     `json:"sender_chat,omitempty"`
	Date            int64     `json:"date"`
	Chat            Chat      `json:"chat"`
	ForwardOrigin   *Origin   `json:"forward_origin,omitempty"`
	IsTopicMessage  bool      `json:"is_topic_message,omitempty"`
	ReplyTo         *Message  `json:"reply_to_message,omitempty"`
	ViaBot          *User     `json:"via_bot,omitempty"`
	EditDate        int64     `json:"edit_date,omitempty"`
	AuthorSignature string    `json:"author_signature,omitempty"`
	Text            string    `json:"text,omitempty"`
	Entities        []Entity  `json:"entities,omitempty"`
	Document        *Document `json:"document,omitempty"`
	Caption         string    `json:"caption,omitempty"`
	CaptionEntities []Entity  `json:"caption_entities,omitempty"`
	TopicCreated    *Topic    `json:"forum_topic_created,omitempty"`
	MigrateTo       int64     `json:"migrate_to_chat_id,omitempty"`
	MigrateFrom     int64     `json:"migrate_from_chat_id,omitempty"`
	Keyboard        *Keyboard `json:"reply_markup,omitempty"`

	Silent     bool `json:"-"` // sent without a sound
	Protected  bool `json:"-"` // cannot be forwarded
	ForceReply bool `json:"-"` // opens a reply to it on the user's screen
	Edits      int  `json:"-"` // how often the bot edited it
	Deleted    bool `json:"-"`
}

func (m Message) keys() []Button {
	if m.Keyboard == nil {
		return nil
	}
	return slices.Concat(m.Keyboard.Rows...)
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

// Shown is the text that a user reads: the text, or a document's caption.
func (m Message) Shown() string {
	if m.Document != nil {
		return m.Caption
	}
	return m.Text
}

// BotCommand is an entry of the bot's command menu.
type BotCommand struct {
	Command     string `json:"command"`
	Description string `json:"description"`
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
