package botapi

import (
	"regexp"
	"slices"
	"strconv"
	"time"
)

// deletable is how long a bot can delete its messages.
const deletable = 48 * time.Hour

func (s *Server) getMe(*call) (any, *refusal) {
	bot := s.bot()
	return map[string]any{
		"id": bot.ID, "is_bot": true, "first_name": bot.FirstName, "username": bot.Username,
		"can_join_groups": true, "can_read_all_group_messages": !s.Privacy, "supports_inline_queries": false,
		"can_connect_to_business": false, "has_main_web_app": false,
	}, nil
}

// body reads a text with its entities and checks the limits.
func (c *call) body(text, entities string, limit int, tooLong string) (string, []Entity, *refusal) {
	if c.params["parse_mode"] != "" {
		if c.params[entities] != "" {
			return "", nil, strict("Telegram ignores %s with parse_mode", entities)
		}
		return "", nil, strict("parse_mode is not supported: send %s", entities)
	}
	words := c.params[text]
	var list []Entity
	if _, refused := c.object(entities, "entities", &list); refused != nil {
		return "", nil, refused
	}
	if words == "" && text == "caption" {
		return "", nil, nil
	}
	if refused := checkText(words, limit, tooLong); refused != nil {
		return "", nil, refused
	}
	if refused := checkEntities(words, list); refused != nil {
		return "", nil, refused
	}
	return words, withAutomatic(words, list), nil
}

// messageText reads the parameters of a text message.
func (c *call) messageText() (string, []Entity, *refusal) {
	if c.params["text"] == "" {
		return "", nil, badRequest("message text is empty")
	}
	var preview struct {
		IsDisabled bool   `json:"is_disabled"`
		URL        string `json:"url"`
		Small      bool   `json:"prefer_small_media"`
		Large      bool   `json:"prefer_large_media"`
		Above      bool   `json:"show_above_text"`
	}
	if _, refused := c.object("link_preview_options", "link preview options", &preview); refused != nil {
		return "", nil, refused
	}
	return c.body("text", "entities", maxText, "message is too long")
}

func (s *Server) sendMessage(c *call) (any, *refusal) {
	text, entities, refused := c.messageText()
	if refused != nil {
		return nil, refused
	}
	return s.send(c, Message{Text: text, Entities: entities})
}

func (s *Server) sendDocument(c *call) (any, *refusal) {
	caption, entities, refused := c.body("caption", "caption_entities", maxCaption, "message caption is too long")
	if refused != nil {
		return nil, refused
	}
	if _, refused := c.boolean("disable_content_type_detection"); refused != nil {
		return nil, refused
	}
	document, refused := s.document(c)
	if refused != nil {
		return nil, refused
	}
	return s.send(c, Message{Document: document, Caption: caption, CaptionEntities: entities})
}

// document returns the file of a call: uploaded with it, or named by the ID of an earlier one.
func (s *Server) document(c *call) (*Document, *refusal) {
	id, file := c.params["document"], c.files["document"]
	switch {
	case id != "" && s.files[id] == nil:
		return nil, badRequest("wrong file identifier/HTTP URL specified")
	case id != "":
		return s.files[id], nil
	case file.name == "":
		return nil, badRequest("there is no document in the request")
	case len(file.content) == 0:
		return nil, badRequest("file must be non-empty")
	case int64(len(file.content)) > s.maxFile():
		return nil, &refusal{Code: 413, Description: "Request Entity Too Large"}
	}
	if s.files == nil {
		s.files = map[string]*Document{}
	}
	n := strconv.Itoa(len(s.files) + 1)
	d := &Document{
		FileID: "BQACAgIAAxkBAAM" + n, UniqueID: "AgAD" + n,
		Name: file.name, Type: file.kind, Size: int64(len(file.content)), Content: file.content,
	}
	s.files[d.FileID] = d
	return d, nil
}

// send adds a message of the bot to a chat.
func (s *Server) send(c *call, m Message) (any, *refusal) {
	r, refused := s.chatFor(c)
	if refused != nil {
		return nil, refused
	}
	if refused := s.address(c, r, &m); refused != nil {
		return nil, refused
	}
	buttons, refused := c.markup()
	if refused != nil {
		return nil, refused
	}
	if m.Silent, refused = c.boolean("disable_notification"); refused != nil {
		return nil, refused
	}
	if m.Protected, refused = c.boolean("protect_content"); refused != nil {
		return nil, refused
	}
	if refused := s.allow(&r.Chat); refused != nil {
		return nil, refused
	}
	m.Keyboard, m.ForceReply = buttons.keyboard, buttons.forceReply
	bot := s.bot()
	m.From = &bot
	return *s.put(r, m), nil
}

// address finds the topic of a new message and the message that it replies to.
func (s *Server) address(c *call, r *chatState, m *Message) *refusal {
	thread, refused := c.integer("message_thread_id")
	if refused != nil {
		return refused
	}
	if thread != 0 {
		if _, ok := r.topics[int(thread)]; !ok {
			return badRequest("message thread not found")
		}
		m.ThreadID, m.IsTopicMessage = int(thread), true
		m.ReplyTo = replied(r.messages[thread-1])
	}
	var to struct {
		Message      *int   `json:"message_id"`
		Chat         *int64 `json:"chat_id"`
		AllowMissing bool   `json:"allow_sending_without_reply"`
	}
	there, refused := c.object("reply_parameters", "reply parameters", &to)
	switch {
	case refused != nil || !there:
		return refused
	case to.Message == nil:
		return badRequest(`can't find field "message_id"`)
	case to.Chat != nil && *to.Chat != r.ID:
		return strict("replies to other chats are not supported")
	}
	if target := r.find(*to.Message); target != nil {
		m.ReplyTo = replied(target)
	} else if !to.AllowMissing {
		return badRequest("message to be replied not found")
	}
	return nil
}

// ownMessage returns the bot's message that a call names; what is the action, for errors.
func (s *Server) ownMessage(c *call, what string) (*chatState, *Message, *refusal) {
	r, refused := s.chatFor(c)
	if refused != nil {
		return nil, nil, refused
	}
	id, refused := c.integer("message_id")
	if refused != nil {
		return nil, nil, refused
	}
	m := r.find(int(id))
	switch {
	case m == nil:
		return nil, nil, badRequest("message to %s not found", what)
	case what == "edit" && (m.From == nil || m.From.ID != s.bot().ID):
		return nil, nil, badRequest("message can't be edited")
	}
	return r, m, nil
}

func (s *Server) editMessageText(c *call) (any, *refusal) {
	text, entities, refused := c.messageText()
	if refused != nil {
		return nil, refused
	}
	keyboard, refused := c.inline()
	if refused != nil {
		return nil, refused
	}
	r, m, refused := s.ownMessage(c, "edit")
	if refused != nil {
		return nil, refused
	}
	if m.Document != nil {
		return nil, badRequest("there is no text in the message to edit")
	}
	changed := *m
	changed.Text, changed.Entities, changed.Keyboard = text, entities, keyboard
	return s.edit(r, m, changed)
}

func (s *Server) editMessageReplyMarkup(c *call) (any, *refusal) {
	keyboard, refused := c.inline()
	if refused != nil {
		return nil, refused
	}
	r, m, refused := s.ownMessage(c, "edit")
	if refused != nil {
		return nil, refused
	}
	changed := *m
	changed.Keyboard = keyboard
	return s.edit(r, m, changed)
}

// edit replaces a message with another one that differs.
func (s *Server) edit(r *chatState, m *Message, changed Message) (any, *refusal) {
	if m.Text == changed.Text && slices.EqualFunc(m.Entities, changed.Entities, sameEntity) && sameKeyboard(m.Keyboard, changed.Keyboard) {
		return nil, badRequest("message is not modified: specified new message content and reply markup are exactly " +
			"the same as a current content and reply markup of the message")
	}
	if refused := s.allow(&r.Chat); refused != nil {
		return nil, refused
	}
	changed.EditDate = s.now().Unix()
	changed.Edits++
	*m = changed
	return changed, nil
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

func (s *Server) deleteMessage(c *call) (any, *refusal) {
	switch {
	case c.params["chat_id"] == "":
		return nil, badRequest("chat identifier is not specified")
	case c.params["message_id"] == "":
		return nil, badRequest("message identifier is not specified")
	}
	r, m, refused := s.ownMessage(c, "delete")
	if refused != nil {
		return nil, refused
	}
	old := s.now().Sub(time.Unix(m.Date, 0)) > deletable
	if old || r.Type != Private && (m.From == nil || m.From.ID != s.bot().ID) {
		return nil, badRequest("message can't be deleted")
	}
	m.Deleted = true
	return true, nil
}

var actions = []string{
	"typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document",
	"choose_sticker", "find_location", "record_video_note", "upload_video_note",
}

func (s *Server) sendChatAction(c *call) (any, *refusal) {
	if !slices.Contains(actions, c.params["action"]) {
		return nil, badRequest("wrong parameter action in request")
	}
	r, refused := s.chatFor(c)
	if refused != nil {
		return nil, refused
	}
	return true, s.address(c, r, new(Message))
}

var commandForm = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

func (s *Server) setMyCommands(c *call) (any, *refusal) {
	var list []BotCommand
	there, refused := c.object("commands", "commands", &list)
	if refused != nil {
		return nil, refused
	}
	if !there || len(list) > 100 {
		return nil, badRequest("BOT_COMMANDS_TOO_MUCH")
	}
	for _, command := range list {
		switch n := utf16Len(command.Description); {
		case !commandForm.MatchString(command.Command):
			return nil, badRequest("BOT_COMMAND_INVALID")
		case n < 1 || n > 256:
			return nil, badRequest("BOT_COMMAND_DESCRIPTION_INVALID")
		}
	}
	language := c.params["language_code"]
	if language != "" && !regexp.MustCompile(`^[a-z]{2}$`).MatchString(language) {
		return nil, badRequest("invalid language code specified")
	}
	var scope struct {
		Type string `json:"type"`
		Chat int64  `json:"chat_id"`
	}
	if _, refused := c.object("scope", "BotCommandScope", &scope); refused != nil {
		return nil, refused
	}
	if s.commands == nil {
		s.commands = map[string][]BotCommand{}
	}
	s.commands[language] = list
	return true, nil
}
