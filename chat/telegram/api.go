package telegram

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/chat"
)

// api wraps the Bot API calls that the channel makes. Its errors do not hold the token.
type api struct {
	bot     *bot.Bot
	limiter *Limiter // nil: no rate limits
	token   string
}

// sendOptions say how a message is sent.
type sendOptions struct {
	thread      int
	replyTo     int    // 0: no reply
	silent      bool   // no notification sound
	placeholder string // opens a reply with this in its empty field; "": none
}

// send sends a message and returns its ID.
func (a *api) send(ctx context.Context, chatID int64, msg message, h sendOptions) (id int, err error) {
	if err := a.wait(ctx, chatID); err != nil {
		return 0, err
	}
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	m, err := a.bot.SendMessage(ctx, &bot.SendMessageParams{
		ChatID: chatID, MessageThreadID: h.thread, Text: msg.text, Entities: msg.entities, LinkPreviewOptions: noPreview(),
		DisableNotification: h.silent, ReplyParameters: replyTo(h.replyTo), ReplyMarkup: markup(msg.buttons, h),
	})
	if err != nil {
		return 0, a.callFailed(chatID, err)
	}
	return m.ID, nil
}

// edit changes a message. It is no error if the message already looks so.
func (a *api) edit(ctx context.Context, chatID int64, id int, msg message) error {
	if err := a.wait(ctx, chatID); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	_, err := a.bot.EditMessageText(ctx, &bot.EditMessageTextParams{
		ChatID: chatID, MessageID: id, Text: msg.text, Entities: msg.entities, LinkPreviewOptions: noPreview(), ReplyMarkup: keyboard(msg.buttons),
	})
	if err != nil && strings.Contains(err.Error(), "message is not modified") {
		return nil
	}
	return a.callFailed(chatID, err)
}

// document sends a text as a file.
func (a *api) document(ctx context.Context, chatID int64, name, text string, caption message, h sendOptions) error {
	if err := a.wait(ctx, chatID); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, 3*sendTimeout)
	defer stop()
	_, err := a.bot.SendDocument(ctx, &bot.SendDocumentParams{
		ChatID: chatID, MessageThreadID: h.thread, DisableNotification: h.silent, ReplyParameters: replyTo(h.replyTo),
		Document: &models.InputFileUpload{Filename: name, Data: bytes.NewReader([]byte(text))},
		Caption:  caption.text, CaptionEntities: caption.entities,
	})
	if err != nil {
		return a.callFailed(chatID, err)
	}
	return nil
}

// answer answers a tap. Answers do not count against the rate limits.
func (a *api) answer(ctx context.Context, id, text string, alert bool) error {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	_, err := a.bot.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: id, Text: truncate(text, maxTapAnswer), ShowAlert: alert})
	return Redact(a.token, err)
}

func (a *api) wait(ctx context.Context, chatID int64) error {
	if a.limiter == nil {
		return ctx.Err()
	}
	return a.limiter.Wait(ctx, chatID, chatID < 0)
}

func (a *api) callFailed(chatID int64, err error) error {
	if a.limiter != nil {
		a.limiter.NoteError(chatID, err)
	}
	return Redact(a.token, err)
}

func replyTo(id int) *models.ReplyParameters {
	if id == 0 {
		return nil
	}
	return &models.ReplyParameters{MessageID: id, AllowSendingWithoutReply: true}
}

func noPreview() *models.LinkPreviewOptions {
	return &models.LinkPreviewOptions{IsDisabled: bot.True()}
}

func markup(rows [][]button, h sendOptions) models.ReplyMarkup {
	switch {
	case h.placeholder != "":
		return &models.ForceReply{ForceReply: true, InputFieldPlaceholder: h.placeholder}
	case len(rows) == 0:
		return nil
	}
	return keyboard(rows)
}

// keyboard builds the rows of buttons. An empty keyboard removes a message's buttons.
func keyboard(rows [][]button) *models.InlineKeyboardMarkup {
	k := &models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{}}
	for _, row := range rows {
		var line []models.InlineKeyboardButton
		for _, f := range row {
			line = append(line, models.InlineKeyboardButton{Text: f.text, CallbackData: f.data})
		}
		k.InlineKeyboard = append(k.InlineKeyboard, line)
	}
	return k
}

// errorClass says how to react to an error of the Bot API.
type errorClass int

const (
	noError         errorClass = iota
	transient                  // not done; retry
	unknownOutcome             // maybe done; retry
	chatUnreachable            // this chat is unreachable until a user or the operator fixes it
	badToken                   // no call can succeed with this token
	rejected                   // Telegram will never accept this call
)

// classify maps the error of a call to its class.
func classify(err error) errorClass {
	var tooMany *bot.TooManyRequestsError
	var moved *bot.MigrateError
	var dial *net.OpError
	switch {
	case err == nil:
		return noError
	case errors.As(err, &tooMany):
		return transient
	case errors.As(err, &moved), errors.Is(err, bot.ErrorForbidden):
		return chatUnreachable
	case errors.Is(err, bot.ErrorUnauthorized), errors.Is(err, bot.ErrorNotFound):
		return badToken
	case errors.Is(err, bot.ErrorBadRequest):
		for _, lost := range []string{"chat not found", "message thread not found", "TOPIC_CLOSED", "TOPIC_DELETED", "not enough rights", "CHAT_WRITE_FORBIDDEN", "PEER_ID_INVALID"} {
			if strings.Contains(err.Error(), lost) {
				return chatUnreachable
			}
		}
		return rejected
	case errors.As(err, &dial) && dial.Op == "dial":
		return transient
	}
	return unknownOutcome
}

// messageGone reports whether an edit failed because the message is gone or cannot be edited.
func messageGone(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "message to edit not found") ||
		strings.Contains(err.Error(), "message can't be edited") || strings.Contains(err.Error(), "MESSAGE_ID_INVALID"))
}

// menuCommands are the commands in the bot's menu, in its order.
func menuCommands() []string {
	return []string{"pending", "last", "grants", "pause", "resume", "help"}
}

// setCommands sets the bot's command menu.
func (a *api) setCommands(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	for _, language := range chat.Languages() {
		p := &bot.SetMyCommandsParams{LanguageCode: language}
		if language == chat.Languages()[0] {
			p.LanguageCode = ""
		}
		w := catalogFor(language)
		for _, c := range menuCommands() {
			p.Commands = append(p.Commands, models.BotCommand{Command: c, Description: w.Commands[c]})
		}
		if _, err := a.bot.SetMyCommands(ctx, p); err != nil {
			return Redact(a.token, err)
		}
	}
	return nil
}

// me returns the bot's own user.
func (a *api) me(ctx context.Context) (*models.User, error) {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	u, err := a.bot.GetMe(ctx)
	return u, Redact(a.token, err)
}
