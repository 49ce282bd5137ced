package telegram_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
)

const hookSecret = "a-long-and-random-one_0123456789"

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestWebhook(t *testing.T) {
	h := newRig(t)
	h.api.Local = true
	address := freePort(t)
	hook := func(c *channel) {
		c.Webhook = &telegram.Webhook{Listen: address, URL: "http://" + address + "/telegram", Secret: hookSecret}
	}
	h.start(hook)
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)

	// While the channel is stopped, Telegram keeps the updates.
	k = keyIn(personal, 2)
	m = h.ask(k, ann, postRequest)
	h.stopChannel()
	tap, err := h.api.Tap(ann, ann, m.ID, "❌ Deny")
	require.NoError(t, err)
	h.start(hook)
	require.Contains(t, h.waitForAnswer(tap).Text, "Denied: ")

	// Back to polling: the webhook is deleted.
	h.stopChannel()
	h.start()
	h.helpRoundTrip()
	require.NotContains(t, h.logs(), hookSecret)
}

// The webhook accepts only Telegram's requests, and only one update each.
func TestWebhookRefuses(t *testing.T) {
	h := newRig(t)
	h.api.Local = true
	address := freePort(t)
	var full atomic.Bool
	h.start(func(c *channel) {
		c.Webhook = &telegram.Webhook{Listen: address, URL: "http://" + address + "/telegram", Secret: hookSecret}
		c.Updates = fullState{c.Updates, &full}
	})
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	update := `{"update_id":77,"callback_query":{"id":"1","from":{"id":1001,"is_bot":false,"first_name":"Ann"},"chat_instance":"1",` +
		`"message":{"message_id":` + "2" + `,"date":1,"chat":{"id":1001,"type":"private"}},"data":"` + m.Keyboard.InlineKeyboard[0][0].CallbackData + `"}}`
	send := func(method, path, secret, body string) int {
		req, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body))
		require.NoError(t, err)
		if secret != "" {
			req.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, tc := range []struct {
		why, method, path, secret, body string
		want                            int
	}{
		{"without a secret", "POST", "/telegram", "", update, 401},
		{"with the beginning of the secret", "POST", "/telegram", hookSecret[:10], update, 401},
		{"with more than the secret", "POST", "/telegram", hookSecret + "x", update, 401},
		{"another path", "POST", "/", hookSecret, update, 404},
		{"another method", "GET", "/telegram", hookSecret, "", 405},
		{"too large", "POST", "/telegram", hookSecret, `{"update_id":1,"x":"` + strings.Repeat("x", 1<<20) + `"}`, 413},
		{"no JSON", "POST", "/telegram", hookSecret, "approve a7000001", 400},
		{"no update_id", "POST", "/telegram", hookSecret, `{"message":{}}`, 400},
	} {
		require.Equal(t, tc.want, send(tc.method, tc.path, tc.secret, tc.body), tc.why)
	}
	full.Store(true)
	require.Equal(t, 500, send("POST", "/telegram", hookSecret, update), "an update that is not durable is not accepted")
	require.Zero(t, h.handler.count(k))
	full.Store(false)
	require.Equal(t, 200, send("POST", "/telegram", hookSecret, update))
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	require.Equal(t, 200, send("POST", "/telegram", hookSecret, update), "accepted twice and handled once")
	require.Equal(t, 1, h.handler.count(k))
}

// An update that arrives during shutdown is in the journal before the channel ends: Telegram will not send it
// again, and the next session reads the journal only once.
func TestWebhookShutdown(t *testing.T) {
	h := newRig(t)
	h.api.Local = true
	address := freePort(t)
	hook := func(c *channel) {
		c.Webhook = &telegram.Webhook{Listen: address, URL: "http://" + address + "/telegram", Secret: hookSecret}
	}
	putting, unblock := make(chan struct{}), make(chan struct{})
	h.start(hook, func(c *channel) { c.Updates = slowState{c.Updates, putting, unblock} })
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	b, _ := m.Button("✅ Once")
	tap := h.api.TapData(ann, ann, m.ID, b.CallbackData)
	<-putting
	time.AfterFunc(100*time.Millisecond, func() { close(unblock) }) // shutdown must wait for it, however long
	h.stopChannel()
	select {
	case <-unblock:
	default:
		require.Fail(t, "the channel ended before the update was stored")
	}
	h.start(hook)
	require.Contains(t, h.waitForAnswer(tap).Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	require.Equal(t, 1, h.handler.count(k))
}

// slowState blocks when it stores a tap.
type slowState struct {
	chat.StateStore
	putting, unblock chan struct{}
}

func (d slowState) Put(name string, b []byte) error {
	if strings.HasPrefix(name, "update-") && strings.Contains(string(b), "callback_query") {
		close(d.putting)
		<-d.unblock
	}
	return d.StateStore.Put(name, b)
}

type fullState struct {
	chat.StateStore
	full *atomic.Bool
}

func (d fullState) Put(name string, b []byte) error {
	if d.full.Load() {
		return errors.New("no space left on device")
	}
	return d.StateStore.Put(name, b)
}

func TestWebhookRequiresSecretAndAddress(t *testing.T) {
	h := newRig(t)
	c := h.channel()
	c.Webhook = &telegram.Webhook{Listen: "127.0.0.1:0", URL: "https://gate.example.org/t", Secret: "short"}
	require.ErrorContains(t, c.Run(h.ctx), "secret")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c = h.channel()
	c.Webhook = &telegram.Webhook{Listen: l.Addr().String(), URL: "https://gate.example.org/t", Secret: hookSecret}
	require.ErrorContains(t, c.Run(h.ctx), "address already in use")
}
