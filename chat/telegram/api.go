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

// api is the few calls that we make. Their errors do not hold the token.
type api struct {
	bot     *bot.Bot
	limiter *Limiter // nil: nothing is held back
	token   string
}

// how a message is sent.
type how struct {
	thread  int
	replyTo int    // 0: to nothing
	silent  bool   // without a sound
	open    string // a reply is opened, with this in its empty field; "": none
}

// send sends a message and returns its id.
func (a *api) send(ctx context.Context, chatID int64, l look, h how) (id int, err error) {
	if err := a.wait(ctx, chatID); err != nil {
		return 0, err
	}
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	m, err := a.bot.SendMessage(ctx, &bot.SendMessageParams{
		ChatID: chatID, MessageThreadID: h.thread, Text: l.text, Entities: l.marks, LinkPreviewOptions: noPreview(),
		DisableNotification: h.silent, ReplyParameters: replying(h.replyTo), ReplyMarkup: markup(l.rows, h),
	})
	if err != nil {
		return 0, a.failed(chatID, err)
	}
	return m.ID, nil
}

// edit changes a message. That it looks so already is no error.
func (a *api) edit(ctx context.Context, chatID int64, id int, l look) error {
	if err := a.wait(ctx, chatID); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	_, err := a.bot.EditMessageText(ctx, &bot.EditMessageTextParams{
		ChatID: chatID, MessageID: id, Text: l.text, Entities: l.marks, LinkPreviewOptions: noPreview(), ReplyMarkup: keyboard(l.rows),
	})
	if err != nil && strings.Contains(err.Error(), "message is not modified") {
		return nil
	}
	return a.failed(chatID, err)
}

// document sends a text as a file and returns the message's id.
func (a *api) document(ctx context.Context, chatID int64, name, text string, caption look, h how) (id int, err error) {
	if err := a.wait(ctx, chatID); err != nil {
		return 0, err
	}
	ctx, stop := context.WithTimeout(ctx, 3*sendTimeout)
	defer stop()
	m, err := a.bot.SendDocument(ctx, &bot.SendDocumentParams{
		ChatID: chatID, MessageThreadID: h.thread, DisableNotification: h.silent, ReplyParameters: replying(h.replyTo),
		Document: &models.InputFileUpload{Filename: name, Data: bytes.NewReader([]byte(text))},
		Caption:  caption.text, CaptionEntities: caption.marks,
	})
	if err != nil {
		return 0, a.failed(chatID, err)
	}
	return m.ID, nil
}

// answer answers a tap. It does not count against the limits.
func (a *api) answer(ctx context.Context, id, text string, alert bool) error {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	_, err := a.bot.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: id, Text: cut(text, maxToast), ShowAlert: alert})
	return Redact(a.token, err)
}

func (a *api) wait(ctx context.Context, chatID int64) error {
	if a.limiter == nil {
		return ctx.Err()
	}
	return a.limiter.Wait(ctx, chatID, chatID < 0)
}

func (a *api) failed(chatID int64, err error) error {
	if a.limiter != nil {
		a.limiter.Refused(chatID, err)
	}
	return Redact(a.token, err)
}

func replying(id int) *models.ReplyParameters {
	if id == 0 {
		return nil
	}
	return &models.ReplyParameters{MessageID: id, AllowSendingWithoutReply: true}
}

func noPreview() *models.LinkPreviewOptions {
	return &models.LinkPreviewOptions{IsDisabled: bot.True()}
}

func markup(rows [][]face, h how) models.ReplyMarkup {
	switch {
	case h.open != "":
		return &models.ForceReply{ForceReply: true, InputFieldPlaceholder: h.open}
	case len(rows) == 0:
		return nil
	}
	return keyboard(rows)
}

// keyboard is a row of buttons after the other. None at all takes those away that a message had.
func keyboard(rows [][]face) *models.InlineKeyboardMarkup {
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

// trouble is what an error of Telegram's means for us.
type trouble int

const (
	noTrouble  trouble = iota
	passing            // trying again helps; it was not done
	doubtful           // trying again helps; it may have been done
	unreached          // this chat cannot be written to until somebody sees to it
	tokenWrong         // nothing can be done with this token
	refused            // Telegram will never take it as it is
)

// troubleOf sorts an error of a call.
func troubleOf(err error) trouble {
	var tooMany *bot.TooManyRequestsError
	var moved *bot.MigrateError
	var dial *net.OpError
	switch {
	case err == nil:
		return noTrouble
	case errors.As(err, &tooMany):
		return passing
	case errors.As(err, &moved), errors.Is(err, bot.ErrorForbidden):
		return unreached
	case errors.Is(err, bot.ErrorUnauthorized), errors.Is(err, bot.ErrorNotFound):
		return tokenWrong
	case errors.Is(err, bot.ErrorBadRequest):
		for _, lost := range []string{"chat not found", "message thread not found", "TOPIC_CLOSED", "TOPIC_DELETED", "not enough rights", "CHAT_WRITE_FORBIDDEN", "PEER_ID_INVALID"} {
			if strings.Contains(err.Error(), lost) {
				return unreached
			}
		}
		return refused
	case errors.As(err, &dial) && dial.Op == "dial":
		return passing
	}
	return doubtful
}

// vanished says whether an edit failed because the message is not there to be changed any more.
func vanished(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "message to edit not found") ||
		strings.Contains(err.Error(), "message can't be edited") || strings.Contains(err.Error(), "MESSAGE_ID_INVALID"))
}

// commands tells Telegram what to offer people to choose from.
func (a *api) commands(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	for _, language := range chat.Languages() {
		p := &bot.SetMyCommandsParams{LanguageCode: language}
		if language == chat.Languages()[0] {
			p.LanguageCode = ""
		}
		for _, c := range catalogue(language).commands {
			p.Commands = append(p.Commands, models.BotCommand{Command: c[0], Description: c[1]})
		}
		if _, err := a.bot.SetMyCommands(ctx, p); err != nil {
			return Redact(a.token, err)
		}
	}
	return nil
}

// me says who we are.
func (a *api) me(ctx context.Context) (*models.User, error) {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	u, err := a.bot.GetMe(ctx)
	return u, Redact(a.token, err)
}
