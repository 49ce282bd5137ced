package telegram_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// setupRig is a Setup with a strict fake of Telegram.
type setupRig struct {
	*telegram.Setup
	t   *testing.T
	api *botapi.Server
	ctx context.Context

	mu   sync.Mutex
	told []string
}

const code = "482913"

func newSetupRig(t *testing.T) *setupRig {
	t.Helper()
	a := &setupRig{t: t, api: botapi.Start(t)}
	a.ctx = t.Context()
	for id, name := range map[int64]string{ann: "Ann", eve: "Ann"} { // names are not unique
		a.api.AddUser(botapi.User{ID: id, FirstName: name, LastName: "B.", Username: fmt.Sprintf("ann_%d", id), LanguageCode: "it"})
	}
	a.api.AddChat(botapi.Chat{ID: family, Type: botapi.Supergroup, Title: "Family"})
	a.api.AddChat(botapi.Chat{ID: forum, Type: botapi.Supergroup, Title: "Forum", IsForum: true})
	a.Setup = &telegram.Setup{Token: botapi.Token, ServerURL: a.api.URL, Every: time.Millisecond, Progress: func(text string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.told = append(a.told, text)
	}}
	return a
}

func (a *setupRig) toldText() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.told, "\n")
}

// me calls Me, which must succeed.
func (a *setupRig) me() telegram.Bot {
	a.t.Helper()
	me, err := a.Me(a.ctx)
	require.NoError(a.t, err)
	return me
}

// callMethod calls a method as another program would.
func (a *setupRig) callMethod(ctx context.Context, method string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.api.URL+"/bot"+botapi.Token+"/"+method, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// runCard runs Card in the background, and passes the test card to then.
func (a *setupRig) runCard(to telegram.Started, then func(m botapi.Message)) error {
	a.t.Helper()
	done := make(chan error, 1)
	go func() { done <- a.Card(a.ctx, to, personal, "en") }()
	var m botapi.Message
	require.NoError(a.t, a.api.Await(a.ctx, func(s botapi.State) bool {
		for _, m = range s.FromBot(to.Chat) {
			if strings.HasPrefix(m.Text, "🔐 Test card") {
				return true
			}
		}
		return false
	}))
	then(m)
	return <-done
}

func TestSetup(t *testing.T) {
	for _, row := range []struct {
		why  string
		says func(a *setupRig)
		want telegram.Started
	}{
		{
			"in private", func(a *setupRig) { a.api.Say(ann, ann, "/start "+code) },
			telegram.Started{Person: ann, Name: "Ann B.", Username: "ann_1001", Chat: ann},
		},
		{
			"in a group", func(a *setupRig) { a.api.Say(ann, family, "/start@permesso_bot "+code) },
			telegram.Started{Person: ann, Name: "Ann B.", Username: "ann_1001", Chat: family, Title: "Family"},
		},
		{
			"in a topic", func(a *setupRig) {
				topic := a.api.AddTopic(forum, "work")
				a.api.Post(forum, botapi.Message{From: &botapi.User{ID: ann}, Text: "/Start@Permesso_Bot  " + code, ThreadID: topic})
			},
			telegram.Started{Person: ann, Name: "Ann B.", Username: "ann_1001", Chat: forum, Title: "Forum", Thread: 1},
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			a := newSetupRig(t)
			require.Equal(t, telegram.Bot{Username: "permesso_bot", CanJoinGroups: true, ReadsAllMessages: true}, a.me())
			a.api.Say(ann, ann, "/start") // otherwise the bot may not write to her
			row.says(a)
			got, err := a.Start(a.ctx, code)
			require.NoError(t, err)
			require.Equal(t, row.want, got)
			require.NoError(t, a.runCard(got, func(m botapi.Message) {
				require.Equal(t, "🔐 Test card\nIn this chat permesso will ask for approvals in workspace personal. No request is pending, and nothing runs.\n"+
					"Tap the button to check that your answer arrives.", m.Text)
				require.Equal(t, got.Thread, m.ThreadID)
				tap, err := a.api.Tap(ann, m.Chat.ID, m.ID, "✅ It works")
				require.NoError(t, err)
				answer, err := tap.Answer(a.ctx)
				require.NoError(t, err)
				require.Equal(t, "Your tap arrived.", answer.Text)
			}))
			last := a.api.State().FromBot(got.Chat)
			require.Equal(t, "🔐 Test card\n✅ Your answer arrived.", last[len(last)-1].Text)
			require.Empty(t, last[len(last)-1].Buttons())
			require.NoError(t, a.Close(a.ctx))
			require.Empty(t, a.api.Unacknowledged(), "no daemon gets it")
			require.Empty(t, a.api.State().Refused())
		})
	}
}

// Only a user who sees the terminal is accepted.
func TestSetupAcceptsOnlyTheCode(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		why, hears string
		says       func(a *setupRig)
	}{
		{"no number", "6666 wrote /start without the number", func(a *setupRig) { a.api.Say(eve, eve, "/start") }},
		{"a wrong number", "or with a wrong one", func(a *setupRig) { a.api.Say(eve, eve, "/start 482914") }},
		{"the number without /start", "", func(a *setupRig) { a.api.Say(eve, eve, code) }},
		{"another bot's /start", "", func(a *setupRig) { a.api.Say(eve, family, "/start@other_bot "+code) }},
		{"forwarded", "no user wrote directly", func(a *setupRig) { a.api.Forward(eve, eve, ann, "/start "+code) }},
		{"an anonymous administrator", "no user wrote directly", func(a *setupRig) { a.api.SayAnonymously(family, "/start "+code) }},
	} {
		t.Run(row.why, func(t *testing.T) {
			a := newSetupRig(t)
			a.me()
			row.says(a)
			a.api.Say(ann, ann, "/start "+code)
			got, err := a.Start(a.ctx, code)
			require.NoError(t, err)
			require.Equal(t, ann, got.Person)
			require.Contains(t, a.toldText(), row.hears)
		})
	}
	t.Run("too many wrong numbers", func(t *testing.T) {
		a := newSetupRig(t)
		a.me()
		for n := range 20 {
			a.api.Say(eve, eve, fmt.Sprintf("/start %06d", n))
		}
		_, err := a.Start(a.ctx, code)
		require.ErrorIs(t, err, telegram.ErrTooManyGuesses)
		require.LessOrEqual(t, len(a.api.State().FromBot(eve)), 5, "replies are limited")
	})
}

// Updates for a stopped daemon stay at Telegram: a tap on a card, for example.
func TestSetupLeavesOtherUpdates(t *testing.T) {
	a := newSetupRig(t)
	a.me()
	a.api.Say(eve, eve, "/start 000000") // Setup's own update
	tap := a.api.TapData(ann, ann, 1, "1:"+strings.Repeat("ab", 16))
	word := a.api.Say(ann, ann, "approve a7f3b2c1")
	a.api.Say(ann, ann, "/start "+code)
	got, err := a.Start(a.ctx, code)
	require.NoError(t, err)
	require.NoError(t, a.runCard(got, func(m botapi.Message) {
		_, err := a.api.Tap(ann, ann, m.ID, "✅ It works")
		require.NoError(t, err)
	}))
	require.NoError(t, a.Close(a.ctx))
	left := a.api.Unacknowledged()
	require.NotEmpty(t, left)
	require.Equal(t, tap.UpdateID, left[0])
	_, answered := tap.Answered()
	require.False(t, answered)
	require.NotZero(t, word.ID)
}

func TestSetupCard(t *testing.T) {
	t.Run("another user taps", func(t *testing.T) {
		a := newSetupRig(t)
		a.me()
		a.api.Say(ann, family, "hello")
		err := a.runCard(telegram.Started{Person: ann, Chat: family}, func(m botapi.Message) {
			other, err := a.api.Tap(eve, family, m.ID, "✅ It works")
			require.NoError(t, err)
			answer, err := other.Answer(a.ctx)
			require.NoError(t, err)
			require.Equal(t, botapi.Answer{Text: "This button is not for you.", Alert: true, At: answer.At}, answer)
			right, err := a.api.Tap(ann, family, m.ID, "✅ It works")
			require.NoError(t, err)
			_, err = right.Answer(a.ctx)
			require.NoError(t, err)
		})
		require.NoError(t, err)
		require.Contains(t, a.toldText(), "user 6666 tapped on the test card; waiting for user 1001")
	})
	t.Run("no tap in time", func(t *testing.T) {
		a := newSetupRig(t)
		a.me()
		a.api.Say(ann, ann, "hello")
		short, stop := context.WithTimeout(a.ctx, 2*time.Second) // long enough for the card to be sent
		defer stop()
		require.ErrorIs(t, a.Card(short, telegram.Started{Person: ann, Chat: ann}, personal, "it"), context.DeadlineExceeded)
		m := a.api.State().FromBot(ann)[0]
		require.Equal(t, "🔐 Scheda di prova\nTempo scaduto: nessun tocco.", m.Text)
		require.Empty(t, m.Buttons())
	})
	t.Run("unreachable chat", func(t *testing.T) {
		a := newSetupRig(t)
		a.me()
		a.api.Say(ann, ann, "hello")
		a.api.Block(ann, true)
		require.ErrorContains(t, a.Card(a.ctx, telegram.Started{Person: ann, Chat: ann}, personal, "en"), "bot was blocked by the user")
	})
}

func TestSetupRefuses(t *testing.T) {
	t.Run("wrong token", func(t *testing.T) {
		a := newSetupRig(t)
		a.Token = "123456789:hunter2-hunter2-hunter2"
		_, err := a.Me(a.ctx)
		require.ErrorIs(t, err, telegram.ErrToken)
		_, err = a.Start(a.ctx, code)
		require.ErrorIs(t, err, telegram.ErrToken)
	})
	t.Run("bot with a webhook", func(t *testing.T) {
		a := newSetupRig(t)
		a.api.Local = true
		require.NoError(t, a.callMethod(a.ctx, "setWebhook?url=http://127.0.0.1:9/hook"))
		a.me()
		_, err := a.Start(a.ctx, code)
		require.ErrorIs(t, err, telegram.ErrBotInUse)
		require.ErrorContains(t, err, "webhook")
	})
	t.Run("another program polls", func(t *testing.T) {
		a := newSetupRig(t)
		a.api.ConflictPause = time.Millisecond
		ctx, stop := context.WithCancel(a.ctx)
		var other sync.WaitGroup
		t.Cleanup(func() { stop(); other.Wait() })
		other.Go(func() {
			for ctx.Err() == nil {
				_ = a.callMethod(ctx, "getUpdates?timeout=50")
			}
		})
		_, err := a.Start(a.ctx, code)
		require.ErrorIs(t, err, telegram.ErrBotInUse)
	})
	t.Run("no token in errors", func(t *testing.T) {
		a := newSetupRig(t)
		a.api.Close()
		_, err := a.Me(a.ctx)
		require.Error(t, err)
		require.NotContains(t, err.Error(), botapi.Token)
		ctx, stop := context.WithTimeout(a.ctx, testTimeout)
		defer stop()
		tell := a.Progress
		a.Progress = func(text string) {
			tell(text)
			if strings.Contains(text, "Telegram is unreachable") {
				stop()
			}
		}
		_, err = a.Start(ctx, code)
		require.ErrorIs(t, err, context.Canceled)
		require.NotContains(t, a.toldText(), "strict-fake-and-nobodys-token")
	})
}
