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

// Greeter finds out, before there is a configuration, which ids belong into it: it waits for somebody to
// write /start to the bot. No gate may be using the bot meanwhile.
type Greeter struct {
	Token     string
	ServerURL string     // "": Telegram's
	Client    HTTPClient // nil: one with time-outs
}

// SetupUser is somebody who wrote /start, and where.
type SetupUser struct {
	Person  int64  // what belongs into [approvers.NAME] as telegram = …
	Name    string // as they call themselves: for people to look at, no proof of anything
	Chat    int64  // the same number in a private chat; a group's is negative
	Thread  int    // of a forum's topic; 0: none
	Payload string // what stood behind /start
}

// Private says whether they wrote to the bot alone.
func (g SetupUser) Private() bool { return g.Chat == g.Person }

// Bot is the bot's name, without @: the token is one that Telegram knows.
func (g *Greeter) Bot(ctx context.Context) (name string, err error) {
	a, err := g.api(ctx, func(context.Context, *bot.Bot, *models.Update) {}, func(error) {})
	if err != nil {
		return "", err
	}
	me, err := a.me(ctx)
	switch {
	case troubleOf(err) == tokenWrong:
		return "", errToken
	case err != nil:
		return "", err
	}
	return me.Username, nil
}

// errTaken says that somebody else gets the updates.
var errTaken = errors.New("somebody else gets the messages of this bot: stop permesso serve, or whatever else uses it, for a moment")

// Await waits for the first /start that ok accepts, nil accepting all; ctx bounds it.
func (g *Greeter) Await(ctx context.Context, ok func(SetupUser) bool) (SetupUser, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var found SetupUser
	a, err := g.api(ctx, func(_ context.Context, _ *bot.Bot, u *models.Update) {
		guest, started := guestOf(u)
		if started && found.Person == 0 && (ok == nil || ok(guest)) {
			found = guest
			stop(nil)
		}
	}, func(err error) {
		switch {
		case errors.Is(err, bot.ErrorConflict):
			stop(errTaken)
		case troubleOf(err) == tokenWrong:
			stop(errToken)
		}
	})
	if err != nil {
		return SetupUser{}, err
	}
	if _, err := a.bot.DeleteWebhook(ctx, &bot.DeleteWebhookParams{}); err != nil {
		return SetupUser{}, Redact(g.Token, fmt.Errorf("take the webhook away: %w", err))
	}
	a.bot.Start(ctx)
	if found.Person == 0 {
		return found, context.Cause(ctx)
	}
	return found, nil
}

// guestOf says who wrote /start, if a person did.
func guestOf(u *models.Update) (g SetupUser, started bool) {
	if u.Message == nil {
		return g, false
	}
	if _, real := personOf(u.Message); !real {
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

// Test sends a card that nothing waits behind, to see what one looks like.
func (g *Greeter) Test(ctx context.Context, to Place, style chat.Style) error {
	a, err := g.api(ctx, func(context.Context, *bot.Bot, *models.Update) {}, func(error) {})
	if err != nil {
		return err
	}
	now := time.Now()
	t := painter{style, catalogue(style.Language)}
	c := t.Card(&approval.Pending{
		RequestID: "0000000000000000", ShortID: "00000000", Type: approval.TypeAction, SourceGroup: "test", ToolName: "hello",
		ToolSHA256: "-", RequestData: approval.Raw(`{"name":"Telegram"}`), Summary: "hello", Reversibility: approval.Reversible,
		Timestamp: now, ExpiresAt: now.Add(5 * time.Minute),
	})
	c.Menu, c.Foot = nil, t.testCard
	_, err = a.send(ctx, to.Chat, layOut(c), how{thread: to.Thread})
	return err
}

func (g *Greeter) api(ctx context.Context, handler bot.HandlerFunc, heard func(error)) (*api, error) {
	c := &Channel{Token: g.Token, ServerURL: g.ServerURL, Client: g.Client}
	b, err := c.newBot(ctx, c.client(), handler, heard)
	if err != nil {
		return nil, err
	}
	return &api{bot: b, limiter: &Limiter{}, token: g.Token}, nil
}
