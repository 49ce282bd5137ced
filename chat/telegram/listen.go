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
	// After maxIdle without updates the library is restarted, so that it forgets its offset: after a week
	// Telegram continues at a random update ID.
	maxIdle   = 6 * 24 * time.Hour
	idleCheck = time.Hour
)

// newBot returns the library's bot with this client, and without its own logging and error handling.
func (c *Adapter) newBot(ctx context.Context, client httpClient, handler bot.HandlerFunc, onError func(error)) (*bot.Bot, error) {
	options := []bot.Option{
		bot.WithHTTPClient(pollTimeout, client), bot.WithSkipGetMe(), bot.WithNotAsyncHandlers(),
		bot.WithAllowedUpdates(wantedUpdates()), bot.WithDefaultHandler(handler), bot.WithDebugHandler(func(string, ...any) {}),
		bot.WithErrorsHandler(func(err error) {
			if err = Redact(c.Token, err); ctx.Err() == nil {
				onError(err)
			}
		}),
	}
	if c.ServerURL != "" {
		options = append(options, bot.WithServerURL(c.ServerURL))
	}
	b, err := bot.New(c.Token, options...)
	return b, Redact(c.Token, err)
}

// wantedUpdates are the kinds of updates to request. Edited messages and channel posts are left out.
func wantedUpdates() []string {
	return []string{models.AllowedUpdateMessage, models.AllowedUpdateCallbackQuery, models.AllowedUpdateMyChatMember}
}

// listen receives updates until ctx ends.
func (s *session) listen(ctx context.Context) error {
	if s.Webhook != nil {
		return s.serveWebhook(ctx)
	}
	s.deleteWebhook(ctx)
	for ctx.Err() == nil {
		if err := s.poll(ctx); err != nil {
			return err
		}
		s.replay()
	}
	return nil
}

// poll asks for updates until ctx ends, or until none came for maxIdle.
func (s *session) poll(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b, err := s.newBot(ctx, s.journal, s.dispatch, s.pollFailed)
	if err != nil {
		return err
	}
	s.lastUpdateAt.Store(time.Now().Unix())
	go func() {
		watch := time.NewTicker(idleCheck)
		defer watch.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-watch.C:
				if time.Since(time.Unix(s.lastUpdateAt.Load(), 0)) > maxIdle {
					stop()
				}
			}
		}
	}()
	b.Start(ctx)
	return nil
}

// deleteWebhook removes a webhook that an earlier configuration set: polling does not work while it exists.
func (s *session) deleteWebhook(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	if _, err := s.api.bot.DeleteWebhook(ctx, &bot.DeleteWebhookParams{}); err != nil && ctx.Err() == nil {
		s.log(fmt.Errorf("delete webhook: %w", err))
	}
}

// pollFailed gets every error of getUpdates.
func (s *session) pollFailed(err error) {
	if errors.Is(err, bot.ErrorConflict) {
		return // handleConflict has reported it
	}
	s.in.Failing("updates", err)
}

// parseUpdate decodes an update as the library does.
func parseUpdate(raw []byte) (*models.Update, error) {
	u := &models.Update{}
	if err := json.Unmarshal(raw, u); err != nil {
		return nil, err
	}
	return u, nil
}
