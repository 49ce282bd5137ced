package botapi

import (
	"regexp"
	"slices"
	"strconv"
	"time"
)

// deletable is how long a bot can delete its messages.
const deletable = 48 * time.Hour

func (s *Server) getMe(*call) any {
	bot := s.bot()
	return map[string]any{
		"id": bot.ID, "is_bot": true, "first_name": bot.FirstName, "username": bot.Username,
		"can_join_groups": true, "can_read_all_group_messages": !s.Privacy, "supports_inline_queries": false,
		"can_connect_to_business": false, "has_main_web_app": false,
	}
}

// body reads a text with its entities and checks the limits.
func (c *call) body(text, entities string, limit int, tooLong string) (string, []Entity) {
	if c.params["parse_mode"] != "" {
		if c.params[entities] != "" {
			panic(strict("Telegram ignores %s with parse_mode", entities))
		}
		panic(strict("parse_mode is not supported: send %s", entities))
	}
	words := c.params[text]
	var list []Entity
	c.object(entities, "entities", &list)
	if words == "" && text == "caption" {
		return "", nil
	}
	checkText(words, limit, tooLong)
	checkEntities(words, list)
	return words, withAutomatic(words, list)
}

// messageText reads the parameters of a text message.
func (c *call) messageText() (string, []Entity) {
	if c.params["text"] == "" {
		panic(badRequest("message text is empty"))
	}
	var preview struct {
		IsDisabled bool   `json:"is_disabled"`
		URL        string `json:"url"`
		Small      bool   `json:"prefer_small_media"`
		Large      bool   `json:"prefer_large_media"`
		Above      bool   `json:"show_above_text"`
	}
	c.object("link_preview_options", "link preview options", &preview)
	return c.body("text", "entities", maxText, "message is too long")
}

func (s *Server) sendMessage(c *call) any {
	text, entities := c.messageText()
	return s.send(c, Message{Text: text, Entities: entities})
}

func (s *Server) sendDocument(c *call) any {
	caption, entities := c.body("caption", "caption_entities", maxCaption, "message caption is too long")
	c.boolean("disable_content_type_detection")
	return s.send(c, Message{Document: s.document(c), Caption: caption, CaptionEntities: entities})
}

// document returns the file of a call: uploaded with it, or named by the ID of an earlier one.
func (s *Server) document(c *call) *Document {
	id, file := c.params["document"], c.files["document"]
	switch {
	case id != "" && s.files[id] == nil:
		panic(badRequest("wrong file identifier/HTTP URL specified"))
	case id != "":
		return s.files[id]
	case file.name == "":
		panic(badRequest("there is no document in the request"))
	case len(file.content) == 0:
		panic(badRequest("file must be non-empty"))
	case int64(len(file.content)) > s.maxFile():
		panic(&refusal{Code: 413, Description: "Request Entity Too Large"})
	}
	n := strconv.Itoa(len(s.files) + 1)
	d := &Document{
		FileID: "BQACAgIAAxkBAAM" + n, UniqueID: "AgAD" + n,
		Name: file.name, Type: file.kind, Size: int64(len(file.content)), Content: file.content,
	}
	setIn(&s.files, d.FileID, d)
	return d
}

// send adds a message of the bot to a chat.
func (s *Server) send(c *call, m Message) any {
	r := s.chatFor(c)
	s.address(c, r, &m)
	m.Keyboard, m.ForceReply = c.markup()
	m.Silent, m.Protected = c.boolean("disable_notification"), c.boolean("protect_content")
	s.allow(&r.Chat)
	bot := s.bot()
	m.From = &bot
	return *s.put(r, m)
}

// address finds the topic of a new message and the message that it replies to.
func (s *Server) address(c *call, r *chatState, m *Message) {
	if thread := int(c.integer("message_thread_id")); thread != 0 {
		if _, ok := r.topics[thread]; !ok {
			panic(badRequest("message thread not found"))
		}
		m.ThreadID, m.IsTopicMessage = thread, true
		m.ReplyTo = replied(r.messages[thread-1])
	}
	var to struct {
		Message      *int   `json:"message_id"`
		Chat         *int64 `json:"chat_id"`
		AllowMissing bool   `json:"allow_sending_without_reply"`
	}
	switch there := c.object("reply_parameters", "reply parameters", &to); {
	case !there:
		return
	case to.Message == nil:
		panic(badRequest(`can't find field "message_id"`))
	case to.Chat != nil && *to.Chat != r.ID:
		panic(strict("replies to other chats are not supported"))
	}
	if target := r.find(*to.Message); target != nil {
		m.ReplyTo = replied(target)
	} else if !to.AllowMissing {
		panic(badRequest("message to be replied not found"))
	}
}

// ownMessage returns the bot's message that a call names; what is the action, for errors.
func (s *Server) ownMessage(c *call, what string) (*chatState, *Message) {
	r := s.chatFor(c)
	m := r.find(int(c.integer("message_id")))
	switch {
	case m == nil:
		panic(badRequest("message to %s not found", what))
	case what == "edit" && (m.From == nil || m.From.ID != s.bot().ID):
		panic(badRequest("message can't be edited"))
	}
	return r, m
}

func (s *Server) editMessageText(c *call) any {
	text, entities := c.messageText()
	keyboard := c.inline()
	r, m := s.ownMessage(c, "edit")
	if m.Document != nil {
		panic(badRequest("there is no text in the message to edit"))
	}
	changed := *m
	changed.Text, changed.Entities, changed.Keyboard = text, entities, keyboard
	return s.edit(r, m, changed)
}

func (s *Server) editMessageReplyMarkup(c *call) any {
	keyboard := c.inline()
	r, m := s.ownMessage(c, "edit")
	changed := *m
	changed.Keyboard = keyboard
	return s.edit(r, m, changed)
}

// edit replaces a message with another one that differs.
func (s *Server) edit(r *chatState, m *Message, changed Message) any {
	if m.Text == changed.Text && slices.EqualFunc(m.Entities, changed.Entities, sameEntity) && sameKeyboard(m.Keyboard, changed.Keyboard) {
		panic(badRequest("message is not modified: specified new message content and reply markup are exactly " +
			"the same as a current content and reply markup of the message"))
	}
	s.allow(&r.Chat)
	changed.EditDate = s.now().Unix()
	changed.Edits++
	*m = changed
	return changed
}

func sameEntity(a, b Entity) bool {
	a.User, b.User = nil, nil
	return a == b
}

func sameKeyboard(a, b *Keyboard) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Rows, b.Rows, slices.Equal)
}

func (s *Server) deleteMessage(c *call) any {
	switch {
	case c.params["chat_id"] == "":
		panic(badRequest("chat identifier is not specified"))
	case c.params["message_id"] == "":
		panic(badRequest("message identifier is not specified"))
	}
	r, m := s.ownMessage(c, "delete")
	old := s.now().Sub(time.Unix(m.Date, 0)) > deletable
	if old || r.Type != Private && (m.From == nil || m.From.ID != s.bot().ID) {
		panic(badRequest("message can't be deleted"))
	}
	m.Deleted = true
	return true
}

var actions = []string{
	"typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document",
	"choose_sticker", "find_location", "record_video_note", "upload_video_note",
}

func (s *Server) sendChatAction(c *call) any {
	if !slices.Contains(actions, c.params["action"]) {
		panic(badRequest("wrong parameter action in request"))
	}
	s.address(c, s.chatFor(c), new(Message))
	return true
}

var (
	commandForm  = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)
	languageForm = regexp.MustCompile(`^(?:[a-z]{2})?$`)
)

func (s *Server) setMyCommands(c *call) any {
	var list []BotCommand
	if !c.object("commands", "commands", &list) || len(list) > 100 {
		panic(badRequest("BOT_COMMANDS_TOO_MUCH"))
	}
	for _, command := range list {
		switch n := utf16Len(command.Description); {
		case !commandForm.MatchString(command.Command):
			panic(badRequest("BOT_COMMAND_INVALID"))
		case n < 1 || n > 256:
			panic(badRequest("BOT_COMMAND_DESCRIPTION_INVALID"))
		}
	}
	language := c.params["language_code"]
	if !languageForm.MatchString(language) {
		panic(badRequest("invalid language code specified"))
	}
	var scope struct {
		Type string `json:"type"`
		Chat int64  `json:"chat_id"`
	}
	c.object("scope", "BotCommandScope", &scope)
	setIn(&s.commands, language, list)
	return true
}
