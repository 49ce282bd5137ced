package botapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

func TestUpdatesRepeatUntilAcknowledged(t *testing.T) {
	s := newServer(t)
	s.Say(ricardo, ricardo, "one")
	s.Say(ricardo, ricardo, "two")
	poll := func(p params) []int64 { return ask(t, s, "getUpdates", p).ids(t) }

	all := poll(nil)
	require.Len(t, all, 3)
	require.Equal(t, []int64{all[0], all[0] + 1, all[0] + 2}, all)
	tests := []struct {
		why    string
		params params
		want   []int64
	}{
		{"repeated until acknowledged", nil, all},
		{"a limit", params{"limit": 2}, all[:2]},
		{"an offset", params{"offset": all[1]}, all[1:]},
		{"updates below the offset are dropped", params{"offset": 0}, all[1:]},
		{"all but the last one", params{"offset": -1}, all[2:]},
		{"the others are dropped", nil, all[2:]},
		{"all of them", params{"offset": all[2] + 1}, []int64{}},
		{"none left", nil, []int64{}},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, poll(tt.params), tt.why)
	}
	require.Empty(t, s.Unacknowledged())
}

func TestLongPoll(t *testing.T) {
	s := newServer(t)
	next := ask(t, s, "getUpdates", nil).ids(t)[0] + 1
	start, got := time.Now(), later(t, s, "getUpdates", params{"offset": next, "timeout": 30})
	require.NoError(t, s.Await(t.Context(), func(botapi.State) bool { return len(s.Unacknowledged()) == 0 }))
	s.Say(ricardo, ricardo, "now")
	require.Equal(t, []int64{next}, (<-got).ids(t))
	require.Less(t, time.Since(start), 10*time.Second)

	require.Empty(t, ask(t, s, "getUpdates", params{"offset": next + 1, "timeout": 1}).ids(t), "empty at the timeout")
}

func TestTwoPollsAtOnce(t *testing.T) {
	s := newServer(t)
	s.ConflictPause = 200 * time.Millisecond
	next := ask(t, s, "getUpdates", nil).ids(t)[0] + 1
	poll := func() <-chan result { return later(t, s, "getUpdates", params{"offset": next, "timeout": 30}) }
	first := poll()
	require.NoError(t, s.Await(t.Context(), func(botapi.State) bool { return len(s.Unacknowledged()) == 0 }))
	second := poll()
	const want = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
	r := <-first
	require.Equal(t, 409, r.Code)
	require.Equal(t, want, r.Description)

	third, start := poll(), time.Now()
	require.Equal(t, want, (<-second).Description)
	require.GreaterOrEqual(t, time.Since(start), 150*time.Millisecond, "the next conflict is delayed")
	s.Say(ricardo, ricardo, "x")
	require.Equal(t, []int64{next}, (<-third).ids(t), "the last one wins")
}

func TestAllowedUpdates(t *testing.T) {
	s := newServer(t)
	m := ask(t, s, "sendMessage", params{"chat_id": ricardo, "text": "x"}).message(t)
	first := ask(t, s, "getUpdates", params{"allowed_updates": []string{"message"}}).ids(t)[0]
	require.Zero(t, s.TapData(ricardo, ricardo, m.ID, "x").UpdateID, "taps are not requested")
	s.Say(ricardo, ricardo, "y")
	s.Inject("edited_message", json.RawMessage(`{}`))
	require.Equal(t, []int64{first, first + 1}, ask(t, s, "getUpdates", nil).ids(t), "allowed_updates stay in force")
	require.True(t, ask(t, s, "getUpdates", params{"allowed_updates": []string{}}).OK)
	require.NotZero(t, s.TapData(ricardo, ricardo, m.ID, "x").UpdateID)
	require.Zero(t, s.Inject("message_reaction", json.RawMessage(`{}`)), "some kinds must be requested")
}

func TestOldUpdatesAreDropped(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := botapi.Start(t)
	s.Now = func() time.Time { return now }
	addUsers(s)
	now = now.Add(25 * time.Hour)
	require.Empty(t, ask(t, s, "getUpdates", nil).ids(t))
}

func TestWebhook(t *testing.T) {
	s := newServer(t)
	s.Local = true
	type delivery struct{ secret, body string }
	got, fail := make(chan delivery, 10), true
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- delivery{r.Header.Get("X-Telegram-Bot-Api-Secret-Token"), string(body)}
		if fail {
			fail = false
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer hook.Close()

	require.True(t, ask(t, s, "setWebhook", params{"url": hook.URL, "secret_token": "s3cret"}).OK)
	first := <-got
	require.Equal(t, "s3cret", first.secret)
	require.Contains(t, first.body, `"text":"/start"`)
	require.Equal(t, first, <-got, "a failed delivery is repeated")
	require.NoError(t, s.Await(t.Context(), func(botapi.State) bool { return len(s.Unacknowledged()) == 0 }))
	s.Say(ricardo, ricardo, "second")
	require.Contains(t, (<-got).body, `"text":"second"`)

	r := ask(t, s, "getUpdates", nil)
	require.Equal(t, 409, r.Code)
	require.Equal(t, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first", r.Description)
	require.True(t, ask(t, s, "deleteWebhook", nil).OK)
	require.True(t, ask(t, s, "getUpdates", nil).OK)
}

func TestWebhookEndsThePoll(t *testing.T) {
	s := newServer(t)
	next := ask(t, s, "getUpdates", nil).ids(t)[0] + 1
	got := later(t, s, "getUpdates", params{"offset": next, "timeout": 30})
	require.NoError(t, s.Await(t.Context(), func(botapi.State) bool { return len(s.Unacknowledged()) == 0 }))
	require.True(t, ask(t, s, "setWebhook", params{"url": "https://127.0.0.1:8443/x"}).OK)
	require.Equal(t, "Conflict: terminated by setWebhook request", (<-got).Description)
}

func TestTaps(t *testing.T) {
	s := newServer(t)
	s.CallbackTimeout = 300 * time.Millisecond
	card := ask(t, s, "sendMessage", params{"chat_id": ricardo, "text": "a card", "reply_markup": buttons(1, params{"text": "yes", "callback_data": "nonce"})}).message(t)
	_, err := s.Tap(ricardo, ricardo, card.ID, "no")
	require.ErrorContains(t, err, `no button "no"`, "only existing buttons can be tapped")

	tap, err := s.Tap(ricardo, ricardo, card.ID, "yes")
	require.NoError(t, err)
	_, ok := tap.Answered()
	require.False(t, ok)
	updates := string(ask(t, s, "getUpdates", params{"offset": tap.UpdateID}).Result)
	require.Contains(t, updates, `"data":"nonce"`)
	require.Contains(t, updates, `"id":7001`)
	require.Contains(t, updates, `"text":"a card"`)

	answer := params{"callback_query_id": tap.ID, "text": "Approved", "show_alert": true}
	require.True(t, ask(t, s, "answerCallbackQuery", answer).OK)
	seen, err := tap.Answer(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Approved", seen.Text)
	require.True(t, seen.Alert)
	const tooOld = "Bad Request: query is too old and response timeout expired or query ID is invalid"
	require.Equal(t, tooOld, ask(t, s, "answerCallbackQuery", answer).Description, "only once")

	late := s.TapData(stranger, ricardo, card.ID, "forged")
	_, err = late.Answer(t.Context())
	require.ErrorIs(t, err, botapi.ErrNoAnswer)
	require.Equal(t, tooOld, ask(t, s, "answerCallbackQuery", params{"callback_query_id": late.ID}).Description)

	gone := s.TapData(ricardo, ricardo, 99, "nonce")
	updates = string(ask(t, s, "getUpdates", params{"offset": gone.UpdateID}).Result)
	require.Contains(t, updates, `"date":0`, "a deleted message is inaccessible")
	require.NotContains(t, updates, "a card")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.TapData(ricardo, ricardo, card.ID, "x").Answer(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// TestUserUpdates checks the updates that the actions of users produce.
func TestUserUpdates(t *testing.T) {
	s := newServer(t)
	s.AddChat(botapi.Chat{ID: -1005, Type: botapi.Supergroup, Title: "Flat"})
	s.AddUser(botapi.User{ID: 7009, IsBot: true, FirstName: "Robot"})
	topic := s.AddTopic(forum, "approvals")
	card := ask(t, s, "sendMessage", params{"chat_id": group, "text": "a card"}).message(t)
	flat := ask(t, s, "sendMessage", params{"chat_id": -1005, "text": "a card"}).message(t)
	inTopic := ask(t, s, "sendMessage", params{"chat_id": forum, "message_thread_id": topic, "text": "a card"}).message(t)

	tests := []struct {
		why  string
		do   func()
		kind string
		want string // expected members of the update's object, as JSON
	}{
		{"a reply", func() { s.Reply(ricardo, group, card.ID, "1") }, "message", `{"text":"1","from":{"username":"ricardo"},"reply_to_message":{"message_id":1,"text":"a card"}}`},
		{"a reply in a supergroup has a thread without a topic", func() { s.Reply(ricardo, -1005, flat.ID, "1") }, "message", `{"message_thread_id":1,"reply_to_message":{"message_id":1}}`},
		{"a message in a topic seems to reply to its head", func() { s.Post(forum, botapi.Message{From: &botapi.User{ID: ricardo}, ThreadID: topic, Text: "hi"}) }, "message", `{"is_topic_message":true,"message_thread_id":1,"reply_to_message":{"message_id":1,"forum_topic_created":{"name":"approvals"}}}`},
		{"a reply in a topic", func() { s.Reply(ricardo, forum, inTopic.ID, "3") }, "message", `{"is_topic_message":true,"message_thread_id":1,"reply_to_message":{"message_id":2}}`},
		{"a forward", func() { s.Forward(ricardo, ricardo, stranger, "approve a7f3") }, "message", `{"text":"approve a7f3","forward_origin":{"type":"user","sender_user":{"id":7002}}}`},
		{"an anonymous administrator", func() { s.SayAnonymously(group, "1") }, "message", `{"from":{"id":1087968824,"is_bot":true},"sender_chat":{"id":-4001}}`},
		{"a bot", func() { s.Say(7009, group, "1") }, "message", `{"from":{"id":7009,"is_bot":true}}`},
		{"a command", func() { s.Say(ricardo, group, "/pending@permesso_bot") }, "message", `{"text":"/pending@permesso_bot","entities":[{"type":"bot_command","offset":0,"length":21}]}`},
		{"blocked", func() { s.Block(ricardo, true) }, "my_chat_member", `{"new_chat_member":{"status":"kicked"},"old_chat_member":{"status":"member"}}`},
		{"any update", func() { s.Inject("inline_query", json.RawMessage(`{"id":"1","query":"x"}`)) }, "inline_query", `{"id":"1","query":"x"}`},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			tt.do()
			var updates []map[string]any
			require.NoError(t, json.Unmarshal(ask(t, s, "getUpdates", params{"offset": -1}).Result, &updates))
			require.Len(t, updates, 1)
			require.Contains(t, updates[0], tt.kind)
			var want map[string]any
			require.NoError(t, json.Unmarshal([]byte(tt.want), &want))
			requireHas(t, updates[0][tt.kind], want)
		})
	}
}

func TestPrivacy(t *testing.T) {
	s := newServer(t)
	s.Privacy = true
	require.NotContains(t, string(ask(t, s, "getMe", nil).Result), `"can_read_all_group_messages":true`)
	card := ask(t, s, "sendMessage", params{"chat_id": group, "text": "a card"}).message(t)
	tests := []struct {
		why   string
		do    func()
		heard bool
	}{
		{"a message", func() { s.Say(ricardo, group, "approve a7f3") }, false},
		{"a command", func() { s.Say(ricardo, group, "/pending") }, true},
		{"a mention", func() { s.Say(ricardo, group, "@permesso_bot approve a7f3") }, true},
		{"a reply to the bot", func() { s.Reply(ricardo, group, card.ID, "1") }, true},
		{"a reply to a user", func() { s.Reply(ricardo, group, card.ID+1, "1") }, false},
		{"a private message", func() { s.Say(ricardo, ricardo, "approve a7f3") }, true},
	}
	for _, tt := range tests {
		before := len(s.Unacknowledged())
		tt.do()
		require.Equal(t, tt.heard, len(s.Unacknowledged()) > before, tt.why)
	}
}

// requireHas checks that got has all members of want, recursively.
func requireHas(t *testing.T, got, want any) {
	t.Helper()
	object, ok := want.(map[string]any)
	if !ok {
		require.Equal(t, want, got)
		return
	}
	for name, value := range object {
		require.IsType(t, object, got)
		require.Contains(t, got, name)
		requireHas(t, got.(map[string]any)[name], value)
	}
}

func TestAwaitTimesOut(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Await(ctx, func(botapi.State) bool { return false }), context.DeadlineExceeded)
}
