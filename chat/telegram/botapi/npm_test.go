package botapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// apiServer is one of the two servers, with a user.
type apiServer struct {
	url      string
	client   bot.HttpClient
	say      func(t *testing.T, text string)
	tap      func(t *testing.T, m *models.Message, button int)
	messages func(t *testing.T) []botapi.Message
}

func strictFake(t *testing.T) apiServer {
	s := newServer(t)
	return apiServer{
		url: s.URL, client: http.DefaultClient,
		say: func(_ *testing.T, text string) { s.Say(ricardo, ricardo, text) },
		tap: func(t *testing.T, m *models.Message, button int) {
			t.Helper()
			_, err := s.Tap(ricardo, ricardo, m.ID, m.ReplyMarkup.InlineKeyboard[0][button].Text)
			require.NoError(t, err)
		},
		messages: func(*testing.T) []botapi.Message { return s.State().FromBot(ricardo) },
	}
}

func thirdParty(t *testing.T) apiServer {
	f := botapi.StartThirdParty(t)
	person := botapi.User{ID: ricardo, FirstName: "Ricardo", Username: "ricardo"}
	chat := botapi.Chat{ID: ricardo, Type: botapi.Private, FirstName: "Ricardo"}
	require.NoError(t, f.Say(t.Context(), person, chat, "/start"))
	return apiServer{
		url: f.URL, client: &botapi.JSONClient{},
		say: func(t *testing.T, text string) {
			t.Helper()
			require.NoError(t, f.Say(t.Context(), person, chat, text))
		},
		tap: func(t *testing.T, m *models.Message, button int) {
			t.Helper()
			data := m.ReplyMarkup.InlineKeyboard[0][button].CallbackData
			require.NoError(t, f.Tap(t.Context(), person, botapi.Message{ID: m.ID, Chat: chat, Text: m.Text}, data))
		},
		messages: func(t *testing.T) []botapi.Message {
			t.Helper()
			all, err := f.FromBot(t.Context(), ricardo)
			require.NoError(t, err)
			return all
		},
	}
}

// TestConformance holds the same conversation, through the library, with the strict fake and with the
// third-party server, and compares the results.
func TestConformance(t *testing.T) {
	fake, foreign := converse(t, strictFake(t)), converse(t, thirdParty(t))
	require.Equal(t, fake, foreign)
	require.Equal(t, []string{
		"received message from 7001 in 7001: /start",
		"received message from 7001 in 7001: pending",
		"sent: a card [yes→nonce-1 no→nonce-2] [bold 0+1]",
		"received tap from 7001 on a card: nonce-2",
		"answered",
		"shows: decided [] []",
		"shows: 🔐 second [] []",
		"received message from 7001 in 7001: 🔐 3 because",
	}, fake)
}

// converse returns what the bot received and what the user saw.
func converse(t *testing.T, s apiServer) (log []string) {
	t.Helper()
	heard := make(chan *models.Update, 10)
	b, err := bot.New(botapi.Token, bot.WithServerURL(s.url), bot.WithHTTPClient(10*time.Second, s.client),
		bot.WithDefaultHandler(func(_ context.Context, _ *bot.Bot, u *models.Update) { heard <- u }))
	require.NoError(t, err, "getMe")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Start(ctx)
	}()
	defer func() {
		stop()
		<-done
	}()
	say := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	listen := func() *models.Update {
		select {
		case u := <-heard:
			return u
		case <-time.After(time.Minute):
			require.Fail(t, "no update came", "%q", log)
			return nil
		}
	}
	listenMessage := func() {
		m := listen().Message
		require.NotNil(t, m)
		say("received message from %d in %d: %s", m.From.ID, m.Chat.ID, m.Text)
	}

	listenMessage()
	s.say(t, "pending")
	listenMessage()

	card, err := b.SendMessage(ctx, &bot.SendMessageParams{
		ChatID: ricardo, Text: "a card",
		Entities:           []models.MessageEntity{{Type: models.MessageEntityTypeBold, Length: 1}},
		LinkPreviewOptions: &models.LinkPreviewOptions{IsDisabled: bot.True()}, DisableNotification: true,
		ReplyMarkup: &models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{{
			{Text: "yes", CallbackData: "nonce-1"}, {Text: "no", CallbackData: "nonce-2"},
		}}},
	})
	require.NoError(t, err)
	say("sent: %s", describe(s.messages(t)[0]))
	s.tap(t, card, 1)
	q := listen().CallbackQuery
	require.NotNil(t, q)
	say("received tap from %d on %s: %s", q.From.ID, q.Message.Message.Text, q.Data)
	_, err = b.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: q.ID, Text: "Denied"})
	require.NoError(t, err)
	say("answered")

	_, err = b.EditMessageText(ctx, &bot.EditMessageTextParams{
		ChatID: ricardo, MessageID: card.ID, Text: "decided", Entities: []models.MessageEntity{},
		ReplyMarkup: &models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{}},
	})
	require.NoError(t, err)
	say("shows: %s", describe(s.messages(t)[0]))

	second, err := b.SendMessage(ctx, &bot.SendMessageParams{ChatID: ricardo, Text: "🔐 second"})
	require.NoError(t, err)
	require.NotEqual(t, card.ID, second.ID)
	say("shows: %s", describe(s.messages(t)[1]))
	s.say(t, "🔐 3 because")
	listenMessage()
	return log
}

// describe shows a message in one line.
func describe(m botapi.Message) string {
	keys, marks := []string{}, []string{}
	if m.Keyboard != nil {
		for _, row := range m.Keyboard.InlineKeyboard {
			for _, b := range row {
				keys = append(keys, b.Text+"→"+b.CallbackData)
			}
		}
	}
	for _, e := range m.Entities {
		marks = append(marks, fmt.Sprintf("%s %d+%d", e.Type, e.Offset, e.Length))
	}
	return fmt.Sprintf("%s %v %v", m.Text, keys, marks)
}

// TestThirdPartyServer checks the basics between the library and that server, so that such failures are not
// blamed on the fake.
func TestThirdPartyServer(t *testing.T) {
	f := botapi.StartThirdParty(t)
	heard := make(chan string, 1)
	b, err := bot.New(f.Token, bot.WithServerURL(f.URL), bot.WithHTTPClient(time.Second, &botapi.JSONClient{}),
		bot.WithDefaultHandler(func(_ context.Context, _ *bot.Bot, u *models.Update) { heard <- u.Message.Text }))
	require.NoError(t, err)
	me, err := b.GetMe(t.Context())
	require.NoError(t, err)
	require.Equal(t, "TestNameBot", me.Username)

	require.NoError(t, f.Say(t.Context(), botapi.User{ID: ricardo, FirstName: "Ricardo"}, botapi.Chat{ID: ricardo, Type: botapi.Private}, "hello"))
	ctx, stop := context.WithCancel(t.Context())
	go b.Start(ctx)
	require.Equal(t, "hello", <-heard)
	stop()

	m, err := b.SendMessage(t.Context(), &bot.SendMessageParams{ChatID: ricardo, Text: "true"})
	require.NoError(t, err)
	require.Equal(t, "true", m.Text, "a text that looks like JSON stays a string")
	_, err = b.EditMessageText(t.Context(), &bot.EditMessageTextParams{ChatID: ricardo, MessageID: m.ID, Text: "[1]"})
	require.NoError(t, err)
	all, err := f.FromBot(t.Context(), ricardo)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "[1]", all[0].Text)
}
