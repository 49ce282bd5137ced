package ntfy_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/deliver/channeltest"
	"github.com/permesso-dev/permesso/chat/ntfy"
	"github.com/permesso-dev/permesso/chat/ntfy/ntfyserver"
)

const (
	topic = "secret-topic-0123456789"
	token = "tk_secrettoken"
)

func adapter(s *ntfyserver.Server) *ntfy.Adapter {
	return &ntfy.Adapter{Server: s.URL, Topic: s.Topic, Token: s.Token}
}

func TestConformance(t *testing.T) {
	channeltest.RunPublisher(t, func(t *testing.T) channeltest.Fixture {
		s := ntfyserver.New(t, topic)
		s.Token = token
		return channeltest.Fixture{
			Adapter: adapter(s), At: deliver.Address{Chat: ntfy.Place},
			Shown: func() (all []channeltest.Shown) {
				for _, m := range s.Messages() {
					all = append(all, channeltest.Shown{ID: deliver.ID(m.Sequence), Text: m.Title + "\n" + m.Text, Silent: m.Priority < 3})
				}
				return all
			},
			Fail: func() { s.Fail(http.StatusTooManyRequests, http.StatusBadGateway) },
		}
	})
}

// card is a card as the engine sends it.
func card(change func(m *deliver.Message)) deliver.Message {
	m := deliver.Message{
		Key: approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"}, ID: "0123456789abcdef0123456789abcdef",
		Title: "🔐 Vuoi che pubblichi perché sì?", Lines: []string{"x_post · x.com/ricardo · personal · a7f3b2c1"},
	}
	if change != nil {
		change(&m)
	}
	return m
}

func send(a *ntfy.Adapter, m deliver.Message) error {
	_, err := a.Send(context.Background(), deliver.Address{Chat: ntfy.Place}, m)
	return err
}

func TestMessages(t *testing.T) {
	s := ntfyserver.New(t, topic)
	a := adapter(s)
	a.Page = func(k approval.Key) string { return "https://gate.example.org/r/" + k.Workspace + "/" + k.ID }
	require.NoError(t, send(a, card(nil)))
	want := ntfyserver.Message{
		Sequence: "0123456789abcdef0123456789abcdef", Title: "🔐 Vuoi che pubblichi perché sì?", Text: "x_post · x.com/ricardo · personal · a7f3b2c1",
		Click: "https://gate.example.org/r/personal/a7f3b2c1d4e5f6a7", Priority: 4,
	}
	require.Equal(t, []ntfyserver.Message{want}, s.Messages())

	require.NoError(t, send(a, card(func(m *deliver.Message) { m.Silent = true })))
	want.Priority = 2
	require.Equal(t, []ntfyserver.Message{want}, s.Messages(), "in quiet hours; sent again, it replaces itself")

	require.NoError(t, send(a, outcome()))
	want.Text, want.Priority = "Settled: denied · a7f3b2c1", 1
	require.Equal(t, []ntfyserver.Message{want}, s.Messages())

	long := card(func(m *deliver.Message) { m.Title = strings.Repeat("perché ", 40) })
	require.NoError(t, send(a, long))
	require.Equal(t, strings.TrimSpace(long.Title), strings.TrimSpace(s.Messages()[0].Title), "a title of several encoded words")
	require.Empty(t, s.Refused())
}

func outcome() deliver.Message {
	return card(func(m *deliver.Message) {
		m.ReplyTo, m.ID, m.Title, m.Lines = m.ID, "", "Re: "+m.Title, []string{"Settled: denied · a7f3b2c1"}
	})
}

// A server that cannot replace a message gets no second one.
func TestOldServer(t *testing.T) {
	s := ntfyserver.New(t, topic)
	s.Old = true
	require.NoError(t, send(adapter(s), card(nil)))
	require.NoError(t, send(adapter(s), outcome()))
	require.Len(t, s.Messages(), 1)
	require.Equal(t, 4, s.Messages()[0].Priority)
	require.Equal(t, []string{"404 page not found"}, s.Refused())
}

func TestFailures(t *testing.T) {
	s := ntfyserver.New(t, topic)
	s.Token = token
	for _, row := range []struct {
		why     string
		fail    int
		change  func(a *ntfy.Adapter)
		class   deliver.Class
		service bool
	}{
		{why: "a limit", fail: http.StatusTooManyRequests, class: deliver.Temporary, service: true},
		{why: "a broken server", fail: http.StatusInternalServerError, class: deliver.Temporary, service: true},
		{why: "a full server", fail: http.StatusInsufficientStorage, class: deliver.Temporary, service: true},
		{why: "a message that is too large", fail: http.StatusRequestEntityTooLarge, class: deliver.Rejected},
		{why: "no token", change: func(a *ntfy.Adapter) { a.Token = "" }, class: deliver.BadCredentials, service: true},
		{why: "a wrong token", change: func(a *ntfy.Adapter) { a.Token = "tk_othersecret" }, class: deliver.BadCredentials, service: true},
		{why: "no server of ntfy", change: func(a *ntfy.Adapter) { a.Server += "/elsewhere" }, class: deliver.BadCredentials, service: true},
		{why: "no server", change: func(a *ntfy.Adapter) { a.Server = closed(t) }, class: deliver.Temporary, service: true},
		{why: "a server that hangs up", change: func(a *ntfy.Adapter) { a.Server = hangsUp(t) }, class: deliver.Unknown},
		{why: "an address that is none", change: func(a *ntfy.Adapter) { a.Server = "http://[" }, class: deliver.Rejected},
	} {
		t.Run(row.why, func(t *testing.T) {
			a := adapter(s)
			if row.change != nil {
				row.change(a)
			}
			if row.fail != 0 {
				s.Fail(row.fail)
			}
			err := send(a, card(nil))
			var e *deliver.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, row.class, e.Class, err)
			require.Equal(t, row.service, e.Service)
			require.NotContains(t, err.Error()+e.Hint, "secret")
			if row.fail == http.StatusTooManyRequests {
				require.Equal(t, time.Second, e.RetryAfter)
			}
		})
	}
	require.Empty(t, s.Messages())
}

// closed is the address of a port at which no server listens.
func closed(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "http://" + l.Addr().String()
}

func hangsUp(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Another server must not get the topic and the token.
func TestNoRedirect(t *testing.T) {
	other := ntfyserver.New(t, topic)
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(first.Close)
	err := send(&ntfy.Adapter{Server: first.URL, Topic: topic}, card(nil))
	require.Equal(t, deliver.BadCredentials, deliver.ClassOf(err))
	require.Empty(t, other.Messages())
	require.NotContains(t, err.Error(), "secret")
}

func TestCheck(t *testing.T) {
	for _, row := range []struct {
		topic, token string
		ok           bool
	}{
		{topic, "", true},
		{topic, token, true},
		{"alerts", token, true},
		{"alerts", "", false},
		{"", token, false},
		{"a/b" + topic, "", false},
		{strings.Repeat("a", 65), "", false},
		{topic, "secret\nheader: x", false},
	} {
		err := ntfy.Check(row.topic, row.token)
		require.Equal(t, row.ok, err == nil, "%q %q: %v", row.topic, row.token, err)
		if err != nil {
			require.NotContains(t, err.Error(), "secret")
		}
		_, opened := (&ntfy.Adapter{Topic: row.topic, Token: row.token}).Open(context.Background(), nil)
		require.Equal(t, err, opened)
	}
}

func TestEditIsImpossible(t *testing.T) {
	err := (&ntfy.Adapter{}).Edit(context.Background(), deliver.Address{}, "", deliver.Message{})
	require.Equal(t, deliver.Gone, deliver.ClassOf(err))
}
