package telegram

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// api wraps the Bot API calls that the channel makes. Its errors do not hold the token.
type api struct {
	bot     *bot.Bot
	limiter *Limiter // nil: no rate limits
	token   string
	moved   func(from, to deliver.ID) // a group has become a supergroup
}

// send sends a message and returns its ID.
func (a *api) send(ctx context.Context, to deliver.Address, m deliver.Message) (deliver.ID, error) {
	chatID, thread, reply := to.Chat.Number(), int(to.Thread.Number()), replyTo(int(m.ReplyTo.Number()))
	if err := a.wait(ctx, chatID); err != nil {
		return "", err
	}
	timeout := sendTimeout
	if m.File != nil {
		timeout *= 3
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	text, entities := layOut(m)
	var sent *models.Message
	var err error
	if m.File != nil {
		sent, err = a.bot.SendDocument(ctx, &bot.SendDocumentParams{
			ChatID: chatID, MessageThreadID: thread, DisableNotification: m.Silent, ReplyParameters: reply,
			Document: &models.InputFileUpload{Filename: m.File.Name, Data: strings.NewReader(m.File.Text)},
			Caption:  text, CaptionEntities: entities,
		})
	} else {
		sent, err = a.bot.SendMessage(ctx, &bot.SendMessageParams{
			ChatID: chatID, MessageThreadID: thread, Text: text, Entities: entities, LinkPreviewOptions: noPreview(),
			DisableNotification: m.Silent, ReplyParameters: reply, ReplyMarkup: markup(m),
		})
	}
	if err != nil {
		return "", a.callFailed(chatID, err)
	}
	return deliver.NumberID(int64(sent.ID)), nil
}

// edit changes a message. It is no error if the message already looks so.
func (a *api) edit(ctx context.Context, chatID int64, id deliver.ID, m deliver.Message) error {
	if err := a.wait(ctx, chatID); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	text, entities := layOut(m)
	_, err := a.bot.EditMessageText(ctx, &bot.EditMessageTextParams{
		ChatID: chatID, MessageID: int(id.Number()), Text: text, Entities: entities, LinkPreviewOptions: noPreview(), ReplyMarkup: keyboard(m.Buttons),
	})
	if isUnchanged(err) {
		return nil
	}
	return a.callFailed(chatID, err)
}

// disarm removes the buttons of a message and returns its text, "" if it is not the bot's. Only an edit that changes
// something returns the text: a message without buttons gets one for a moment.
func (a *api) disarm(ctx context.Context, to deliver.Address, id deliver.ID) (text string, err error) {
	text, same, err := a.setButtons(ctx, to, id, nil)
	if !same || err != nil {
		return text, err
	}
	marker := [][]deliver.Button{{{Text: "…", Data: "none"}}}
	if text, _, err = a.setButtons(ctx, to, id, marker); err != nil || text == "" {
		return "", err
	}
	_, _, err = a.setButtons(ctx, to, id, nil)
	return text, err
}

// setButtons replaces the buttons of a message of the bot, and returns its text; same: it has these already.
func (a *api) setButtons(ctx context.Context, to deliver.Address, id deliver.ID, rows [][]deliver.Button) (text string, same bool, err error) {
	chatID := to.Chat.Number()
	if err := a.wait(ctx, chatID); err != nil {
		return "", false, err
	}
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	m, err := a.bot.EditMessageReplyMarkup(ctx, &bot.EditMessageReplyMarkupParams{ChatID: chatID, MessageID: int(id.Number()), ReplyMarkup: keyboard(rows)})
	switch {
	case err == nil:
		return m.Text, false, nil
	case isUnchanged(err):
		return "", true, nil
	case errors.Is(err, bot.ErrorBadRequest) && classify(err) != deliver.Unreachable:
		return "", false, nil // it is another's, or it was deleted
	}
	return "", false, a.callFailed(chatID, err)
}

func isUnchanged(err error) bool {
	return err != nil && strings.Contains(err.Error(), "message is not modified")
}

// answer answers a tap. Answers do not count against the rate limits.
func (a *api) answer(ctx context.Context, id, text string, alert bool) error {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	_, err := a.bot.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: id, Text: deliver.Truncate(text, maxTapAnswer), ShowAlert: alert})
	return a.failed(err)
}

func (a *api) wait(ctx context.Context, chatID int64) error {
	if a.limiter == nil {
		return ctx.Err()
	}
	return a.limiter.Wait(ctx, chatID, chatID < 0)
}

// delay is how long the rate limits delay a message or an edit.
func (a *api) delay(chatID deliver.ID, edit bool) time.Duration {
	if a.limiter == nil {
		return 0
	}
	n := chatID.Number()
	return a.limiter.Delay(n, n < 0, edit)
}

func (a *api) callFailed(chatID int64, err error) error {
	if a.limiter != nil {
		a.limiter.NoteError(chatID, err)
	}
	var moved *bot.MigrateError
	if errors.As(err, &moved) {
		a.moved(deliver.NumberID(chatID), deliver.NumberID(int64(moved.MigrateToChatID)))
	}
	return a.failed(err)
}

// failed classifies the error of a call and removes the token from it.
func (a *api) failed(err error) error {
	if err == nil {
		return nil
	}
	class := classify(err)
	if class == deliver.BadCredentials {
		return &deliver.Error{Class: class, Hint: "get the token from @BotFather and write it to the token file", Err: errToken}
	}
	failure := &deliver.Error{Class: class, Hint: hintFor(err), Err: Redact(a.token, err)}
	if strings.Contains(err.Error(), "TOPIC_CLOSED") {
		failure.RetryAfter = reopenedWithin
	}
	return failure
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

func markup(m deliver.Message) models.ReplyMarkup {
	switch {
	case m.Prompt != "":
		return &models.ForceReply{ForceReply: true, InputFieldPlaceholder: m.Prompt}
	case len(m.Buttons) == 0:
		return nil
	}
	return keyboard(m.Buttons)
}

// keyboard builds the rows of buttons. An empty keyboard removes a message's buttons.
func keyboard(rows [][]deliver.Button) *models.InlineKeyboardMarkup {
	k := &models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{}}
	for _, row := range rows {
		var line []models.InlineKeyboardButton
		for _, f := range row {
			line = append(line, models.InlineKeyboardButton{Text: f.Text, CallbackData: f.Data})
		}
		k.InlineKeyboard = append(k.InlineKeyboard, line)
	}
	return k
}

// classify maps the error of a call to its class.
func classify(err error) deliver.Class {
	var tooMany *bot.TooManyRequestsError
	var moved *bot.MigrateError
	var dial *net.OpError
	has := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(err.Error(), s) })
	}
	switch {
	case errors.As(err, &tooMany):
		return deliver.Temporary // the limiter waits
	case errors.As(err, &moved), errors.Is(err, bot.ErrorForbidden):
		return deliver.Unreachable
	case errors.Is(err, bot.ErrorUnauthorized), errors.Is(err, bot.ErrorNotFound):
		return deliver.BadCredentials
	case !errors.Is(err, bot.ErrorBadRequest):
	case has("message to edit not found", "message can't be edited", "MESSAGE_ID_INVALID"):
		return deliver.Gone
	case has("chat not found", "message thread not found", "TOPIC_CLOSED", "TOPIC_DELETED", "not enough rights", "CHAT_WRITE_FORBIDDEN", "PEER_ID_INVALID"):
		return deliver.Unreachable
	default:
		return deliver.Rejected
	}
	if errors.As(err, &dial) && dial.Op == "dial" {
		return deliver.Temporary
	}
	return deliver.Unknown
}

// reopenedWithin is how often a closed topic is tried. Telegram does not always say that it was reopened.
const reopenedWithin = 20 * time.Second

const memberHint = "in a private chat write /start to the bot and unblock it; in a group add it again"

func hintFor(err error) string {
	var moved *bot.MigrateError
	switch {
	case errors.As(err, &moved):
		return fmt.Sprintf("the group has a new id: configure %d as its chat id", moved.MigrateToChatID)
	case errors.Is(err, bot.ErrorForbidden):
		return memberHint
	}
	return "check the configured chat id; in a private chat write /start to the bot first"
}

// menuCommands are the commands in the bot's menu, in its order.
func menuCommands() []string {
	return []string{"pending", "status", "today", "last", "grants", "pause", "resume", "help"}
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
	return u, a.failed(err)
}
