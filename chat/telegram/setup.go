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
)

// Errors of Setup.
var (
	// ErrToken says that Telegram does not know the token.
	ErrToken = errToken
	// ErrTaken says that another program gets the messages of the bot, by asking or by a webhook.
	ErrTaken = errors.New("another program gets the messages of this bot")
	// ErrGuessed says that somebody wrote too many wrong numbers.
	ErrGuessed = errors.New("somebody tries out numbers")
)

// Setup makes the acquaintance of a bot, before any gate uses it: what it is called, who starts it and
// where, and whether a card and a tap get through. What waits at Telegram for a gate waits on: Setup
// acknowledges nothing but what was meant for it. Its methods are called one after the other, and its errors
// do not hold the token.
type Setup struct {
	Token     string
	ServerURL string        // of a Bot API server; "": Telegram's
	Client    HTTPClient    // nil: one with time-outs
	Tell      func(string)  // tells whoever runs the setup what is going on; nil: nobody
	Every     time.Duration // between two looks at updates that are not ours; 0: a second

	calls    *api
	offset   int64          // below it everything is ours and acknowledged, or about to be
	seen     map[int64]bool // updates that were looked at; true: it was ours
	name     string         // of the bot
	answered int            // strangers, and people who left the number out
}

// Bot is what Telegram says of a bot.
type Bot struct {
	ID         int64
	Username   string
	JoinsGroup bool // it may be added to groups
	HearsAll   bool // in groups it gets what is not meant for it, too
}

// Started is who started the bot, and where.
type Started struct {
	Person   int64
	Name     string // as they call themselves; hostile
	Username string // "": none
	Chat     int64  // the same as Person in a private chat
	Title    string // of a group; hostile
	Thread   int    // of a forum's topic; 0: none
}

// The patience with those who write a wrong number, or none.
const (
	mostGuesses = 20
	mostAnswers = 5
)

// Code is the number that somebody proves with that they see the terminal. A bot can be written to by
// everybody, and anybody may call themselves like you.
func Code() string {
	n, _ := rand.Int(rand.Reader, big.NewInt(1_000_000)) // never fails
	return fmt.Sprintf("%06d", n)
}

// Me asks Telegram what the bot is called. The error is ErrToken where the token is not good.
func (s *Setup) Me(ctx context.Context) (Bot, error) {
	a, err := s.api()
	if err != nil {
		return Bot{}, err
	}
	me, err := a.me(ctx)
	if troubleOf(err) == tokenWrong {
		return Bot{}, ErrToken
	}
	if err != nil {
		return Bot{}, fmt.Errorf("ask Telegram: %w", err)
	}
	s.name = me.Username
	return Bot{me.ID, me.Username, me.CanJoinGroups, me.CanReadAllGroupMessages}, nil
}

func (s *Setup) api() (*api, error) {
	if s.calls != nil {
		return s.calls, nil
	}
	options := []bot.Option{bot.WithHTTPClient(pollTimeout, s.client()), bot.WithSkipGetMe(), bot.WithServerURL(s.server())}
	b, err := bot.New(s.Token, options...)
	if err != nil {
		return nil, Redact(s.Token, err)
	}
	s.calls, s.seen = &api{bot: b, limiter: &Limiter{}, token: s.Token}, map[int64]bool{}
	return s.calls, nil
}

func (s *Setup) client() HTTPClient {
	if s.Client != nil {
		return s.Client
	}
	return &http.Client{Timeout: requestTimeout}
}

func (s *Setup) server() string { return cmp.Or(s.ServerURL, "https://api.telegram.org") }

func (s *Setup) tell(text string) {
	if s.Tell != nil {
		s.Tell(text)
	}
}

// Start waits until a person writes /start with the number, in whatever chat. The error is ErrTaken,
// ErrGuessed, or that of ctx.
func (s *Setup) Start(ctx context.Context, code string) (Started, error) {
	wrong := 0
	var found Started
	err := s.listen(ctx, func(u *models.Update) (ours, enough bool, err error) {
		m := u.Message
		if m == nil {
			return false, false, nil
		}
		said, ok := s.started(m.Text)
		if !ok {
			return false, false, nil
		}
		if _, real := personOf(m); !real {
			s.tell("a /start came that nobody sent as themselves: an anonymous administrator's, for example, or a forwarded one")
			return true, false, nil
		}
		if said != code {
			if said != "" {
				wrong++
			}
			s.almost(ctx, m)
			return true, false, guessed(wrong)
		}
		found = Started{
			Person: m.From.ID, Name: strings.TrimSpace(m.From.FirstName + " " + m.From.LastName), Username: m.From.Username,
			Chat: m.Chat.ID, Title: m.Chat.Title, Thread: threadOf(m),
		}
		return true, true, nil
	})
	return found, err
}

func guessed(wrong int) error {
	if wrong >= mostGuesses {
		return ErrGuessed
	}
	return nil
}

// started reads /start and what stands behind it.
func (s *Setup) started(text string) (said string, ok bool) {
	text, slash, ours := unslashed(text, []string{s.name})
	word, rest, _ := strings.Cut(text, " ")
	return strings.TrimSpace(rest), slash && ours && strings.EqualFold(word, "start")
}

// almost tells somebody who wrote /start alone what is missing. Whoever wants to keep us busy is met with
// silence.
func (s *Setup) almost(ctx context.Context, m *models.Message) {
	s.tell(fmt.Sprintf("%d wrote /start without the number, or with a wrong one", m.From.ID))
	if s.answered++; s.answered > mostAnswers {
		return
	}
	text := look{text: setupWordsIn(m.From.LanguageCode).almost}
	if _, err := s.calls.send(ctx, m.Chat.ID, text, how{thread: threadOf(m), replyTo: m.ID}); err != nil && ctx.Err() == nil {
		s.tell("that could not be answered: " + err.Error())
	}
}

// Card sends a test card where the bot was started, and waits until the same person taps on it.
func (s *Setup) Card(ctx context.Context, to Started, workspace, language string) error {
	w := setupWordsIn(language)
	data := "test:" + nonce()
	card := setupCard(w, say(w.card, "workspace", workspace), w.tap)
	card.rows = [][]face{{{w.works, data}}}
	a, err := s.api()
	if err != nil {
		return err
	}
	id, err := a.send(ctx, to.Chat, card, how{thread: to.Thread})
	if err != nil {
		return fmt.Errorf("send a test card: %w", err)
	}
	err = s.listen(ctx, func(u *models.Update) (ours, enough bool, err error) {
		q := u.CallbackQuery
		if q == nil || q.Data != data {
			return false, false, nil
		}
		if q.From.ID != to.Person {
			s.tell(fmt.Sprintf("%d tapped on the card, and not %d", q.From.ID, to.Person))
			return true, false, a.answer(ctx, q.ID, w.notYours, true)
		}
		return true, true, a.answer(ctx, q.ID, w.through, false)
	})
	outcome := w.tapped
	if err != nil {
		outcome = w.nobody
	}
	// Also where nobody tapped in time: the button means nothing any more.
	after, stop := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer stop()
	if changed := a.edit(after, to.Chat, id, setupCard(w, outcome)); err == nil && changed != nil {
		err = fmt.Errorf("change the test card: %w", changed)
	}
	return err
}

// Hello sends a message without buttons, which asks nobody anything. It does no harm beside a gate.
func (s *Setup) Hello(ctx context.Context, to Place, workspace string) error {
	w := setupWordsIn(to.Language)
	a, err := s.api()
	if err != nil {
		return err
	}
	if _, err = a.send(ctx, to.Chat, setupCard(w, say(w.card, "workspace", workspace)), how{thread: to.Thread}); troubleOf(err) == tokenWrong {
		return ErrToken
	}
	return err
}

func setupCard(w *setupWords, lines ...string) look {
	t := &writer{}
	t.line(bold, w.title)
	for _, l := range lines {
		t.foreign("", l)
	}
	return look{text: t.b.String(), marks: t.marks}
}

// Unhook takes the bot's webhook off; nothing that waits is lost by that.
func (s *Setup) Unhook(ctx context.Context) error {
	a, err := s.api()
	if err != nil {
		return err
	}
	if _, err := a.bot.DeleteWebhook(ctx, &bot.DeleteWebhookParams{}); err != nil {
		return fmt.Errorf("take the webhook off: %w", Redact(s.Token, err))
	}
	return nil
}

// Close acknowledges what was meant for the setup, so that no gate hears of it.
func (s *Setup) Close(ctx context.Context) error {
	if s.offset == 0 {
		return nil
	}
	_, err := s.updates(ctx, 0)
	return err
}

// listen shows each update to heed, once, until it has enough. What is ours is acknowledged as far as
// nothing else stands before it.
func (s *Setup) listen(ctx context.Context, heed func(*models.Update) (ours, enough bool, err error)) error {
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
			ours, enough, err := heed(u)
			s.seen[u.ID] = ours
			if err != nil || enough {
				s.advance(all)
				return err
			}
		}
		s.advance(all)
		if len(all) > 0 && all[len(all)-1].ID >= s.offset { // they come again at once
			if err := pause(ctx, cmp.Or(s.Every, time.Second)); err != nil {
				return err
			}
		}
	}
}

// advance moves the offset over what is ours.
func (s *Setup) advance(all []*models.Update) {
	for _, u := range all {
		if !s.seen[u.ID] {
			return
		}
		s.offset = u.ID + 1
	}
}

// updates gets those from the offset on. The library's own way to get them acknowledges all that it hands on.
func (s *Setup) updates(ctx context.Context, wait time.Duration) (all []*models.Update, err error) {
	for tries := 0; ; tries++ {
		all, err = s.getUpdates(ctx, wait)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, ErrTaken), errors.Is(err, ErrToken):
			return all, err
		case tries == 2:
			s.tell("Telegram is not reached: " + err.Error())
		}
		if err := pause(ctx, min(time.Duration(tries+1)*cmp.Or(s.Every, time.Second), 10*time.Second)); err != nil {
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
	resp, err := s.client().Do(req)
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
		return nil, takenBy(answer.Description)
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusNotFound:
		return nil, ErrToken
	case err != nil:
		return nil, fmt.Errorf("get updates: status %d: %w", resp.StatusCode, err)
	case !answer.OK:
		return nil, Redact(s.Token, fmt.Errorf("get updates: %s", answer.Description))
	}
	return slices.DeleteFunc(answer.Result, func(u *models.Update) bool { return u == nil || u.ID < s.offset }), nil
}

func takenBy(description string) error {
	if strings.Contains(description, "webhook") {
		return fmt.Errorf("%w, by a webhook", ErrTaken)
	}
	return ErrTaken
}
