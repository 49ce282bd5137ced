package telegram

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// StartListener finds the IDs that a configuration needs: it waits for a user to write /start to the bot. No
// daemon may use the bot meanwhile.
type StartListener struct {
	Token     string
	ServerURL string     // "": Telegram's own
	Client    HTTPClient // nil: one with timeouts
}

// SetupUser is a user who wrote /start, and where.
type SetupUser struct {
	Person  int64  // goes into [approvers.NAME] as telegram = …
	Name    string // chosen by the user: display only, proves nothing
	Chat    int64  // equals Person in a private chat; negative for a group
	Thread  int    // of a forum topic; 0: none
	Payload string // the text after /start
}

// Private reports whether the user wrote in a private chat.
func (g SetupUser) Private() bool { return g.Chat == g.Person }

// Bot returns the bot's name, without @, if Telegram accepts the token.
func (g *StartListener) Bot(ctx context.Context) (name string, err error) {
	a, err := g.api(ctx, func(context.Context, *bot.Bot, *models.Update) {}, func(error) {})
	if err != nil {
		return "", err
	}
	me, err := a.me(ctx)
	switch {
	case classify(err) == badToken:
		return "", errToken
	case err != nil:
		return "", err
	}
	return me.Username, nil
}

// errBotInUse says that another program gets the updates.
var errBotInUse = errors.New("another program gets the updates of this bot: stop it during the setup, also if it is a daemon of permesso")

// Await waits for the first /start that ok accepts; nil accepts all. ctx bounds it.
func (g *StartListener) Await(ctx context.Context, ok func(SetupUser) bool) (SetupUser, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var found SetupUser
	a, err := g.api(ctx, func(_ context.Context, _ *bot.Bot, u *models.Update) {
		user, started := setupUserOf(u)
		if started && found.Person == 0 && (ok == nil || ok(user)) {
			found = user
			stop(nil)
		}
	}, func(err error) {
		switch {
		case errors.Is(err, bot.ErrorConflict):
			stop(errBotInUse)
		case classify(err) == badToken:
			stop(errToken)
		}
	})
	if err != nil {
		return SetupUser{}, err
	}
	if _, err := a.bot.DeleteWebhook(ctx, &bot.DeleteWebhookParams{}); err != nil {
		return SetupUser{}, Redact(g.Token, fmt.Errorf("delete webhook: %w", err))
	}
	a.bot.Start(ctx)
	if found.Person == 0 {
		return found, context.Cause(ctx)
	}
	return found, nil
}

// setupUserOf returns the user who wrote /start, if a person did so directly.
func setupUserOf(u *models.Update) (g SetupUser, started bool) {
	if u.Message == nil {
		return g, false
	}
	if _, real := directSender(u.Message); !real {
		return g, false
	}
	m := u.Message
	word, payload, _ := strings.Cut(strings.TrimSpace(m.Text), " ")
	if command, _, _ := strings.Cut(word, "@"); command != "/start" {
		return g, false
	}
	name := strings.TrimSpace(m.From.FirstName + " " + m.From.LastName)
	return SetupUser{m.From.ID, chat.Escape(name), m.Chat.ID, threadOf(m), strings.TrimSpace(payload)}, true
}

// Test sends a card of a fictitious request, to show what a card looks like.
func (g *StartListener) Test(ctx context.Context, to Place, style chat.Style) error {
	a, err := g.api(ctx, func(context.Context, *bot.Bot, *models.Update) {}, func(error) {})
	if err != nil {
		return err
	}
	now := time.Now()
	t := renderer{style, catalogFor(style.Language)}
	c := t.Card(&approval.Pending{
		RequestID: "0000000000000000", ShortID: "00000000", Type: approval.TypeAction, SourceGroup: "test", ToolName: "hello",
		ToolSHA256: "-", RequestData: approval.Raw(`{"name":"Telegram"}`), Summary: "hello", Reversibility: approval.Reversible,
		Timestamp: now, ExpiresAt: now.Add(5 * time.Minute),
	})
	c.Menu, c.Foot = nil, t.TestCard
	_, err = a.send(ctx, to.Chat, layOut(c), sendOptions{thread: to.Thread})
	return err
}

func (g *StartListener) api(ctx context.Context, handler bot.HandlerFunc, onError func(error)) (*api, error) {
	c := &Channel{Token: g.Token, ServerURL: g.ServerURL, Client: g.Client}
	b, err := c.newBot(ctx, c.client(), handler, onError)
	if err != nil {
		return nil, err
	}
	return &api{bot: b, limiter: &Limiter{}, token: g.Token}, nil
}
