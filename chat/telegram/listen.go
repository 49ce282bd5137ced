package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
)

const (
	// tooIdle is after how much silence the library is to forget the number of the last update: after a
	// week Telegram begins anew, at any number.
	tooIdle   = 6 * 24 * time.Hour
	idleWatch = time.Hour
)

// newBot is the library, with our client, and nothing of its own that would log, answer or give up.
func (c *Channel) newBot(ctx context.Context, client HTTPClient, handler bot.HandlerFunc, heard func(error)) (*bot.Bot, error) {
	options := []bot.Option{
		bot.WithHTTPClient(pollTimeout, client), bot.WithSkipGetMe(), bot.WithNotAsyncHandlers(),
		bot.WithAllowedUpdates(wantedUpdates()), bot.WithDefaultHandler(handler), bot.WithDebugHandler(func(string, ...any) {}),
		bot.WithErrorsHandler(func(err error) {
			if err = Redact(c.Token, err); ctx.Err() == nil {
				heard(err)
			}
		}),
	}
	if c.ServerURL != "" {
		options = append(options, bot.WithServerURL(c.ServerURL))
	}
	b, err := bot.New(c.Token, options...)
	return b, Redact(c.Token, err)
}

// wantedUpdates are the kinds of updates that Telegram is to send. Edited messages and posts in channels
// are not among them.
func wantedUpdates() []string {
	return []string{models.AllowedUpdateMessage, models.AllowedUpdateCallbackQuery, models.AllowedUpdateMyChatMember}
}

// listen takes updates in until ctx ends.
func (s *session) listen(ctx context.Context) error {
	if s.Webhook != nil {
		return s.receive(ctx)
	}
	s.dropWebhook(ctx)
	for ctx.Err() == nil {
		if err := s.poll(ctx); err != nil {
			return err
		}
		s.replay(ctx)
	}
	return nil
}

// poll asks for updates until ctx ends, or nobody has written for long.
func (s *session) poll(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b, err := s.newBot(ctx, s.journal, s.intake.take, s.heard)
	if err != nil {
		return err
	}
	s.heardAt.Store(s.now().Unix())
	go func() {
		watch := time.NewTicker(idleWatch)
		defer watch.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-watch.C:
				if s.now().Sub(time.Unix(s.heardAt.Load(), 0)) > tooIdle {
					stop()
				}
			}
		}
	}()
	b.Start(ctx)
	return nil
}

// dropWebhook takes a webhook away that a former configuration set: as long as it is there, nobody can ask
// for updates.
func (s *session) dropWebhook(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	if _, err := s.api.bot.DeleteWebhook(ctx, &bot.DeleteWebhookParams{}); err != nil && ctx.Err() == nil {
		s.log(fmt.Errorf("take the webhook away: %w", err))
	}
}

// heard is told of every error in getting updates.
func (s *session) heard(err error) {
	if errors.Is(err, bot.ErrorConflict) {
		return // it has been told
	}
	s.lost("updates", err)
}

// parseUpdate reads an update as the library does.
func parseUpdate(raw []byte) (*models.Update, error) {
	u := &models.Update{}
	if err := json.Unmarshal(raw, u); err != nil {
		return nil, err
	}
	return u, nil
}
