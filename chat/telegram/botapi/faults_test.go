package botapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

func TestServerFaults(t *testing.T) {
	tests := []struct {
		kind botapi.FaultKind
		want string // of the error, or of the description
		code int
		done bool
	}{
		{botapi.Offline, "EOF", 0, false},
		{botapi.TooMany, "Too Many Requests: retry after 7", 429, false},
		{botapi.BadGateway, "<h1>502 Bad Gateway</h1>", 502, false},
		{botapi.AnswerLost, "EOF", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.kind.String(), func(t *testing.T) {
			s := newServer(t)
			s.Fail("sendMessage", botapi.Fault{Kind: tt.kind, Times: 1, RetryAfter: 7})
			body := []byte(`{"chat_id":7001,"text":"x"}`)
			r, err := try(t.Context(), s.URL+"/bot"+botapi.Token+"/sendMessage", "application/json", body)
			if err != nil {
				r.Description = err.Error()
			}
			require.Contains(t, r.Description, tt.want)
			require.Equal(t, tt.code, r.Status)
			require.Equal(t, tt.done, len(s.State().FromBot(ricardo)) == 1)
			if tt.kind == botapi.TooMany {
				require.Equal(t, 7, r.Parameters.RetryAfter)
			}
			require.True(t, ask(t, s, "sendMessage", params{"chat_id": ricardo, "text": "x"}).OK, "only once")
		})
	}
}

func TestFaultsLast(t *testing.T) {
	s := newServer(t)
	s.Fail("", botapi.Fault{Kind: botapi.BadGateway})
	for _, method := range []string{"getMe", "getUpdates", "getMe"} {
		_, err := try(t.Context(), s.URL+"/bot"+botapi.Token+"/"+method, "", nil)
		require.ErrorContains(t, err, "502")
	}
	s.ClearFaults()
	require.True(t, ask(t, s, "getMe", nil).OK)

	s.Fail("getMe", botapi.Fault{Kind: botapi.Hang})
	client := http.Client{Timeout: 50 * time.Millisecond}
	_, err := client.Get(s.URL + "/bot" + botapi.Token + "/getMe") //nolint:bodyclose // there is none
	require.ErrorContains(t, err, "Timeout")
}

func TestLimits(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := newServer(t)
	s.Now = func() time.Time { return now }
	send := func(chat int64) result { return ask(t, s, "sendMessage", params{"chat_id": chat, "text": "x"}) }
	count := func(chat int64, n int) result {
		for i := range n {
			require.True(t, send(chat).OK, "message %d", i+1)
		}
		return send(chat)
	}

	s.Limits = true
	require.Equal(t, 1, count(ricardo, 5).Parameters.RetryAfter, "five at once, then one a second")
	now = now.Add(time.Second)
	require.Equal(t, "Too Many Requests: retry after 1", count(ricardo, 1).Description)
	require.True(t, send(group).OK, "the limit is per chat")

	now = now.Add(time.Hour)
	for range 20 {
		require.True(t, send(group).OK)
		now = now.Add(time.Second)
	}
	require.Equal(t, 40, send(group).Parameters.RetryAfter, "twenty a minute to a group")
	require.True(t, send(ricardo).OK)
	now = now.Add(40 * time.Second)
	require.True(t, send(group).OK)

	now = now.Add(time.Hour)
	for chat := range int64(6) {
		s.AddChat(botapi.Chat{ID: -5001 - chat, Type: botapi.Group})
		for range 5 {
			require.True(t, send(-5001-chat).OK)
		}
	}
	require.Equal(t, 1, send(ricardo).Parameters.RetryAfter, "30 a second in total")
	require.Equal(t, http.StatusTooManyRequests, send(group).Status)
}
