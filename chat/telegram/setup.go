package telegram

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
)

var (
	// ErrToken says that Telegram rejected the token.
	ErrToken = errToken
	// ErrBotInUse says that another program gets the bot's updates, by polling or by a webhook.
	ErrBotInUse = errors.New("another program gets the updates of this bot")
	// ErrTooManyGuesses says that there were too many wrong codes.
	ErrTooManyGuesses = errors.New("too many wrong numbers")
)

// Setup checks a bot before any daemon uses it: its name, who starts it and where, and whether a card and a tap
// arrive. Updates for a daemon stay at Telegram: Setup acknowledges only its own. Call its methods one after
// the other. Its errors do not hold the token.
type Setup struct {
	Token     string
	ServerURL string        // of a Bot API server; "": Telegram's own
	Client    httpClient    // nil: one with timeouts
	Progress  func(string)  // reports progress to the operator; nil: no reports
	Every     time.Duration // delay before other updates are polled again; 0: a second

	calls   *api
	offset  int64          // all updates below it are Setup's own
	seen    map[int64]bool // updates already handled; true: Setup's own
	name    string         // of the bot
	replies int            // to users who sent no code or a wrong one
}

// Bot is what Telegram says about a bot.
type Bot struct {
	Username         string
	CanJoinGroups    bool // it may be added to groups
	ReadsAllMessages bool // in groups it gets all messages
}

// Started is the user who started the bot, and where.
type Started struct {
	Person   int64
	Name     string // chosen by the user; untrusted
	Username string // "": none
	Chat     int64  // equals Person in a private chat
	Title    string // of a group; untrusted
	Thread   int    // of a forum topic; 0: none
}

const (
	maxGuesses = 20
	maxReplies = 5
)

// Code returns the random code that proves that a Telegram user sees the operator's terminal. Any user can
// write to a bot, under any name.
func Code() string {
	n, _ := rand.Int(rand.Reader, big.NewInt(1_000_000)) // never fails
	return fmt.Sprintf("%06d", n)
}

// Me returns the bot's name and settings. The error is ErrToken if Telegram rejects the token.
func (s *Setup) Me(ctx context.Context) (Bot, error) {
	a, err := s.api()
	if err != nil {
		return Bot{}, err
	}
	me, err := a.me(ctx)
	if deliver.ClassOf(err) == deliver.BadCredentials {
		return Bot{}, ErrToken
	}
	if err != nil {
		return Bot{}, fmt.Errorf("call getMe: %w", err)
	}
	s.name = me.Username
	return Bot{me.Username, me.CanJoinGroups, me.CanReadAllGroupMessages}, nil
}

func (s *Setup) api() (*api, error) {
	if s.calls != nil {
		return s.calls, nil
	}
	options := []bot.Option{bot.WithHTTPClient(pollTimeout, clientOr(s.Client)), bot.WithSkipGetMe(), bot.WithServerURL(s.server())}
	b, err := bot.New(s.Token, options...)
	if err != nil {
		return nil, Redact(s.Token, err)
	}
	s.calls, s.seen = &api{bot: b, limiter: &Limiter{}, token: s.Token}, map[int64]bool{}
	return s.calls, nil
}

func (s *Setup) server() string { return cmp.Or(s.ServerURL, "https://api.telegram.org") }

func (s *Setup) notify(text string) {
	if s.Progress != nil {
		s.Progress(text)
	}
}

// Start waits until a user writes /start with the code, in any chat. The error is ErrBotInUse, ErrTooManyGuesses, or
// ctx's.
func (s *Setup) Start(ctx context.Context, code string) (Started, error) {
	wrong := 0
	var found Started
	err := s.listen(ctx, func(u *models.Update) (ours, enough bool, err error) {
		m := u.Message
		if m == nil {
			return false, false, nil
		}
		text, ok := s.parseStart(m.Text)
		if !ok {
			return false, false, nil
		}
		if _, real := sender(m); !real {
			s.notify("ignored a /start that no user wrote directly (forwarded, or from an anonymous administrator)")
			return true, false, nil
		}
		if text != code {
			if text != "" {
				wrong++
			}
			s.explainStart(ctx, m)
			if wrong >= maxGuesses {
				err = ErrTooManyGuesses
			}
			return true, false, err
		}
		found = Started{
			Person: m.From.ID, Name: strings.TrimSpace(m.From.FirstName + " " + m.From.LastName), Username: m.From.Username,
			Chat: m.Chat.ID, Title: m.Chat.Title, Thread: int(threadOf(m).Number()),
		}
		return true, true, nil
	})
	return found, err
}

// parseStart reads /start and the text after it.
func (s *Setup) parseStart(text string) (code string, ok bool) {
	text, slash, ours := deliver.StripSlash(text, []string{s.name})
	word, rest, _ := strings.Cut(text, " ")
	return strings.TrimSpace(rest), slash && ours && strings.EqualFold(word, "start")
}

// explainStart tells a user that the code is missing or wrong. The number of replies is limited.
func (s *Setup) explainStart(ctx context.Context, m *models.Message) {
	s.notify(fmt.Sprintf("user %d wrote /start without the number, or with a wrong one", m.From.ID))
	if s.replies++; s.replies > maxReplies {
		return
	}
	to := deliver.Address{Chat: deliver.NumberID(m.Chat.ID), Thread: threadOf(m)}
	text := deliver.Message{Lines: []string{setupCatalogFor(m.From.LanguageCode).CodeMissing}, ReplyTo: deliver.NumberID(int64(m.ID))}
	if _, err := s.calls.send(ctx, to, text); err != nil && ctx.Err() == nil {
		s.notify("answer to /start not sent: " + err.Error())
	}
}

// Card sends a test card to the chat where the bot was started, and waits until the same user taps on it.
func (s *Setup) Card(ctx context.Context, to Started, workspace, language string) error {
	w := setupCatalogFor(language)
	data := "test:" + rand.Text()
	card := setupCard(w, chat.Format(w.Card, "workspace", workspace), w.Tap)
	card.Buttons = [][]deliver.Button{{{Text: w.Works, Data: data}}}
	a, err := s.api()
	if err != nil {
		return err
	}
	id, err := a.send(ctx, deliver.Address{Chat: deliver.NumberID(to.Chat), Thread: deliver.NumberID(int64(to.Thread))}, card)
	if err != nil {
		return fmt.Errorf("send test card: %w", err)
	}
	err = s.listen(ctx, func(u *models.Update) (ours, enough bool, err error) {
		q := u.CallbackQuery
		if q == nil || q.Data != data {
			return false, false, nil
		}
		if q.From.ID != to.Person {
			s.notify(fmt.Sprintf("user %d tapped on the test card; waiting for user %d", q.From.ID, to.Person))
			return true, false, a.answer(ctx, q.ID, w.NotAllowed, true)
		}
		return true, true, a.answer(ctx, q.ID, w.TapArrived, false)
	})
	outcome := w.Tapped
	if err != nil {
		outcome = w.NotTapped
	}
	// Also after a timeout: the button has no meaning any more.
	after, stop := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer stop()
	if changed := a.edit(after, to.Chat, id, setupCard(w, outcome)); err == nil && changed != nil {
		err = fmt.Errorf("edit test card: %w", changed)
	}
	return err
}

// SendTestMessage sends a test message without buttons. It is safe while a daemon runs.
func (s *Setup) SendTestMessage(ctx context.Context, to deliver.Place, workspace string) error {
	w := setupCatalogFor(to.Language)
	a, err := s.api()
	if err != nil {
		return err
	}
	if _, err = a.send(ctx, to.Address, setupCard(w, chat.Format(w.Card, "workspace", workspace))); deliver.ClassOf(err) == deliver.BadCredentials {
		return ErrToken
	}
	return err
}

func setupCard(w *setupCatalog, lines ...string) deliver.Message {
	return deliver.Message{Card: &chat.Card{Question: w.Title, Menu: lines}}
}

// DeleteWebhook deletes the bot's webhook; no pending update is lost.
func (s *Setup) DeleteWebhook(ctx context.Context) error {
	a, err := s.api()
	if err != nil {
		return err
	}
	if _, err := a.bot.DeleteWebhook(ctx, &bot.DeleteWebhookParams{}); err != nil {
		return fmt.Errorf("delete webhook: %w", Redact(s.Token, err))
	}
	return nil
}

// Close acknowledges Setup's own updates, so that no daemon gets them.
func (s *Setup) Close(ctx context.Context) error {
	if s.offset == 0 {
		return nil
	}
	_, err := s.updates(ctx, 0)
	return err
}

// listen passes each update to handle once, until enough is true. Setup's own updates are acknowledged up to
// the first other one.
func (s *Setup) listen(ctx context.Context, handle func(*models.Update) (ours, enough bool, err error)) error {
	if _, err := s.api(); err != nil {
		return err
	}
	wait := pollTimeout - time.Second
	for {
		all, err := s.updates(ctx, wait)
		if err != nil {
			return err
		}
		for _, u := range all {
			if _, before := s.seen[u.ID]; before {
				continue
			}
			ours, enough, err := handle(u)
			s.seen[u.ID] = ours
			if err != nil || enough {
				s.advance(all)
				return err
			}
		}
		s.advance(all)
		if len(all) > 0 && all[len(all)-1].ID >= s.offset { // Telegram returns them again at once
			if err := sleep(ctx, cmp.Or(s.Every, time.Second)); err != nil {
				return err
			}
		}
	}
}

// advance moves the offset past Setup's own updates.
func (s *Setup) advance(all []*models.Update) {
	for _, u := range all {
		if !s.seen[u.ID] {
			return
		}
		s.offset = u.ID + 1
	}
}

// updates gets the updates from the offset on. The library's poller would acknowledge all of them.
func (s *Setup) updates(ctx context.Context, wait time.Duration) (all []*models.Update, err error) {
	for tries := 0; ; tries++ {
		all, err = s.getUpdates(ctx, wait)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, ErrBotInUse), errors.Is(err, ErrToken):
			return all, err
		case tries == 2:
			s.notify("Telegram is unreachable: " + err.Error())
		}
		if err := sleep(ctx, min(time.Duration(tries+1)*cmp.Or(s.Every, time.Second), 10*time.Second)); err != nil {
			return nil, err
		}
	}
}

func (s *Setup) getUpdates(ctx context.Context, wait time.Duration) ([]*models.Update, error) {
	body, err := json.Marshal(map[string]any{"offset": s.offset, "timeout": int(wait.Seconds()), "allowed_updates": wantedUpdates()})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.server()+"/bot"+s.Token+"/getUpdates", bytes.NewReader(body))
	if err != nil {
		return nil, Redact(s.Token, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := clientOr(s.Client).Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, Redact(s.Token, err)
	}
	defer resp.Body.Close()
	var answer struct {
		OK          bool             `json:"ok"`
		Result      []*models.Update `json:"result"`
		Description string           `json:"description"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&answer)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case resp.StatusCode == http.StatusConflict:
		return nil, inUseError(answer.Description)
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusNotFound:
		return nil, ErrToken
	case err != nil:
		return nil, fmt.Errorf("get updates: status %d: %w", resp.StatusCode, err)
	case !answer.OK:
		return nil, Redact(s.Token, fmt.Errorf("get updates: %s", answer.Description))
	}
	return slices.DeleteFunc(answer.Result, func(u *models.Update) bool { return u == nil || u.ID < s.offset }), nil
}

func inUseError(description string) error {
	if strings.Contains(description, "webhook") {
		return fmt.Errorf("%w, through a webhook", ErrBotInUse)
	}
	return ErrBotInUse
}
