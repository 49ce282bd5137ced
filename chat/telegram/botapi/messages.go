package botapi

import (
	"regexp"
	"slices"

	"github.com/go-telegram/bot/models"
)

func (s *Server) getMe(*call) any {
	me := thisBot
	me.CanJoinGroups, me.CanReadAllGroupMessages = true, !s.Privacy
	return me
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
	c.object("link_preview_options", "link preview options", new(models.LinkPreviewOptions))
	return c.body("text", "entities", maxText, "message is too long")
}

func (s *Server) sendMessage(c *call) any {
	text, entities := c.messageText()
	return s.send(c, Message{Text: text, Entities: entities})
}

func (s *Server) sendDocument(c *call) any {
	caption, entities := c.body("caption", "caption_entities", maxCaption, "message caption is too long")
	return s.send(c, Message{Document: c.document(), Caption: caption, CaptionEntities: entities})
}

// document returns the file that is uploaded with a call.
func (c *call) document() *Document {
	files := c.files["document"]
	switch {
	case len(files) != 1:
		panic(badRequest("there is no document in the request"))
	case files[0].Size == 0:
		panic(badRequest("file must be non-empty"))
	case files[0].Size > maxFile:
		panic(tooLarge)
	}
	file, err := files[0].Open()
	if err != nil {
		panic(unreadable(err))
	}
	defer file.Close()
	about := models.Document{
		FileID: "BQACAgIAAxkBAAM", FileUniqueID: "AgAD",
		FileName: files[0].Filename, MimeType: files[0].Header.Get("Content-Type"), FileSize: files[0].Size,
	}
	return &Document{about, readAll(file)}
}

// send adds a message of the bot to a chat.
func (s *Server) send(c *call, m Message) any {
	r := s.chatFor(c)
	s.address(c, r, &m)
	m.Keyboard, m.ForceReply = c.markup()
	m.Silent = c.boolean("disable_notification")
	s.allow(&r.Chat)
	bot := thisBot
	m.From = &bot
	return *s.put(r, m)
}

// address finds the topic of a new message and the message that it replies to.
func (s *Server) address(c *call, r *chatState, m *Message) {
	if thread := int(c.integer("message_thread_id")); thread != 0 {
		if _, ok := r.topics[thread]; !ok {
			panic(badRequest("message thread not found"))
		}
		if r.closed[thread] {
			panic(badRequest("TOPIC_CLOSED"))
		}
		m.ThreadID, m.IsTopicMessage = thread, true
		m.ReplyTo = replied(r.messages[thread-1])
	}
	var to models.ReplyParameters
	switch there := c.object("reply_parameters", "reply parameters", &to); {
	case !there:
	case to.MessageID == 0:
		panic(badRequest(`can't find field "message_id"`))
	case to.ChatID != nil:
		panic(strict("replies to other chats are not supported"))
	case r.find(to.MessageID) != nil:
		m.ReplyTo = replied(r.find(to.MessageID))
	case !to.AllowSendingWithoutReply:
		panic(badRequest("message to be replied not found"))
	}
}

func (s *Server) editMessageText(c *call) any {
	text, entities := c.messageText()
	r, m := s.toEdit(c)
	if m.Document != nil {
		panic(badRequest("there is no text in the message to edit"))
	}
	return s.edit(c, r, m, text, entities)
}

func (s *Server) editMessageReplyMarkup(c *call) any {
	r, m := s.toEdit(c)
	return s.edit(c, r, m, m.Text, m.Entities)
}

// toEdit is the message that a call edits.
func (s *Server) toEdit(c *call) (*chatState, *Message) {
	r := s.chatFor(c)
	m := r.find(int(c.integer("message_id")))
	switch {
	case m == nil:
		panic(badRequest("message to edit not found"))
	case m.From == nil || m.From.ID != thisBot.ID:
		panic(badRequest("message can't be edited"))
	}
	return r, m
}

func (s *Server) edit(c *call, r *chatState, m *Message, text string, entities []Entity) any {
	changed := *m
	changed.Text, changed.Entities, changed.Keyboard = text, entities, c.inline()
	if m.Text == changed.Text && slices.Equal(m.Entities, changed.Entities) && sameKeyboard(m.Keyboard, changed.Keyboard) {
		panic(badRequest("message is not modified: specified new message content and reply markup are exactly " +
			"the same as a current content and reply markup of the message"))
	}
	s.allow(&r.Chat)
	changed.EditDate = s.now().Unix()
	changed.Edits++
	*m = changed
	return changed
}

func sameKeyboard(a, b *Keyboard) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.InlineKeyboard, b.InlineKeyboard, slices.Equal)
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
	setIn(&s.commands, language, list)
	return true
}
