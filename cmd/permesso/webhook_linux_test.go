package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	leakedToken   = "ghp_1B4nfTyCkQ8hRv2LpXsW9eZ7aUdM3o0JgKiY"
)

// receiver is a program that hears of requests.
type receiver struct {
	*httptest.Server
	status atomic.Int32

	mu       sync.Mutex
	messages []heard
}

// heard is a message with a valid signature.
type heard struct {
	id, body string
	fields   map[string]any
}

// newReceiver verifies each message by itself, as the specification has it.
func newReceiver(t *testing.T) *receiver {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookSecret, "whsec_"))
	require.NoError(t, err)
	r := &receiver{}
	r.status.Store(http.StatusNoContent)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		status := int(r.status.Load())
		body, err := io.ReadAll(q.Body)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", q.Header.Get("webhook-id"), q.Header.Get("webhook-timestamp"), body)
		h := heard{id: q.Header.Get("webhook-id"), body: string(body)}
		switch {
		case err != nil || "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) != q.Header.Get("webhook-signature") || json.Unmarshal(body, &h.fields) != nil:
			status = http.StatusUnauthorized
		case status == http.StatusNoContent:
			r.mu.Lock()
			r.messages = append(r.messages, h)
			r.mu.Unlock()
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// await waits for this number of messages.
func (r *receiver) await(t *testing.T, n int) []heard {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.messages) >= n
	}, testTimeout, 10*time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.messages, n)
	return r.messages
}

// newWebhookRig is a home with webhooks to these addresses, named a, b …
func newWebhookRig(t *testing.T, urls ...string) *rig {
	t.Helper()
	h := newRig(t, "personal", "")
	file := filepath.Join(h.dir, "webhook.secret")
	require.NoError(t, os.WriteFile(file, []byte(webhookSecret+"\n"), 0o600))
	_, tool, found := strings.Cut(uiConfig, "[tools.hello]")
	require.True(t, found)
	text := uiConfig + "[tools.leak]" + strings.Replace(tool, `"hello"]`, `"token", "`+leakedToken+`"]`, 1)
	for i, url := range urls {
		text += fmt.Sprintf("[webhooks.%c]\nurl = \"%s/secret-path\"\nsecret_file = %q\nallow_private = [\"127.0.0.1\"]\n", 'a'+i, url, file)
	}
	require.NoError(t, os.WriteFile(h.config, []byte(text), 0o600))
	return h
}

// deny settles a new request.
func (h *rig) deny(reason string) string {
	h.t.Helper()
	id := h.ask(`{"tool_name":"hello","request_data":{"name":"ann"}}`)
	h.awaitPending("personal", id)
	code, _, errs := h.run("", "deny", id, reason)
	require.Zero(h.t, code, errs)
	h.response(id)
	return id
}

// A program hears how a request ended: once, in the API's words, with a signature, without a secret.
func TestWebhook(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h := newWebhookRig(t, r.URL)
	d := h.serve()
	before := time.Now().Add(-time.Second)
	denied := h.deny("too <early> \u202e" + leakedToken)
	leak := h.ask(`{"tool_name":"leak","request_data":{"name":"ann"}}`)
	h.awaitPending("personal", leak)
	code, _, errs := h.run("", "approve", leak)
	require.Zero(t, code, errs)
	all := r.await(t, 2)
	first, second := all[0].fields, all[1].fields
	require.Equal(t, "settled", first["type"])
	require.Equal(t, "personal", first["workspace"])
	require.Equal(t, "appr_"+denied, first["approval_id"])
	require.Equal(t, "denied", first["status"])
	require.Equal(t, "hello", first["tool_name"])
	require.Equal(t, "Denied by user", first["error"])
	at, err := time.Parse(time.RFC3339Nano, first["timestamp"].(string))
	require.NoError(t, err)
	require.WithinRange(t, at, before, time.Now().Add(time.Second))
	require.Contains(t, first["feedback"], "too <early> \u202e", "JSON is the only escape")
	require.Equal(t, "appr_"+leak, second["approval_id"])
	require.Equal(t, "done", second["execution"])
	require.Nil(t, second["receipt"], "it is for the agent alone")
	require.Contains(t, second, "receipt")
	require.NotEqual(t, all[0].id, all[1].id)
	for _, m := range all {
		require.NotContains(t, m.body, leakedToken)
	}
	require.Contains(t, fmt.Sprint(second["result"]), "token ")
	d.stop()
	require.NotContains(t, d.logged(), "secret-path")
}

// What a receiver does not take is sent later, oldest first and with the same ids: after a restart, and after kill -9.
func TestWebhookReceiverIsDown(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.status.Store(http.StatusServiceUnavailable)
	h := newWebhookRig(t, r.URL)
	d := h.serve()
	ids := []string{h.deny("one"), h.deny("two")}
	require.Eventually(t, func() bool {
		_, out, _ := h.run("", "status")
		require.NotContains(t, out, "secret-path")
		return strings.Contains(out, "⚠ webhook a fails since 20") && strings.Contains(out, "HTTP status 503")
	}, testTimeout, 50*time.Millisecond)
	_, out, _ := h.run("", "doctor", "--quick")
	require.Contains(t, out, "webhook a fails since 20")
	d.kill()
	d = h.serve()
	ids = append(ids, h.deny("three"))
	d.kill()
	r.status.Store(http.StatusNoContent)
	d = h.serve()
	for i, m := range r.await(t, 3) {
		require.Equal(t, "appr_"+ids[i], m.fields["approval_id"])
	}
	require.Eventually(t, func() bool {
		_, out, _ := h.run("", "status")
		return !strings.Contains(out, "webhook")
	}, testTimeout, 50*time.Millisecond)
	d.stop()
	d = h.serve()
	h.deny("four")
	r.await(t, 4)
	d.stop()
}

// A receiver that takes a connection and answers nothing delays neither decisions nor another webhook.
func TestWebhookHangs(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer hanging.Close()
	defer close(release)
	r := newReceiver(t)
	h := newWebhookRig(t, hanging.URL, r.URL)
	d := h.serve()
	for n := range 5 {
		h.deny(fmt.Sprint(n))
	}
	r.await(t, 5)
	d.stop()
}

// 410 Gone ends the attempts, with an alarm. A webhook that leaves the configuration leaves the status.
func TestWebhookGone(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.status.Store(http.StatusGone)
	h := newWebhookRig(t, r.URL)
	d := h.serve()
	h.deny("one")
	require.Eventually(t, func() bool {
		_, out, _ := h.run("", "status")
		return strings.Contains(out, "⚠ webhook a is disabled until its configuration changes or the daemon starts again: the receiver answered 410 Gone")
	}, testTimeout, 50*time.Millisecond)
	require.Contains(t, d.logged(), "the receiver answered 410 Gone")
	text, err := os.ReadFile(h.config)
	require.NoError(t, err)
	without, _, _ := strings.Cut(string(text), "[webhooks.a]")
	h.replaceConfig(without)
	require.Eventually(t, func() bool {
		_, out, _ := h.run("", "status")
		return !strings.Contains(out, "webhook")
	}, testTimeout, 50*time.Millisecond)
	d.stop()
}

// A secret file that cannot be used is shown, without the secret; the gate works.
func TestWebhookWithoutSecret(t *testing.T) {
	t.Parallel()
	h := newWebhookRig(t, "http://127.0.0.1:9")
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "webhook.secret"), []byte("hunter2\n"), 0o600))
	d := h.serve()
	h.deny("one")
	require.Eventually(t, func() bool {
		_, out, _ := h.run("", "status")
		return strings.Contains(out, "⚠ webhook a is down: ") && strings.Contains(out, "the secret must be whsec_") && !strings.Contains(out, "hunter2")
	}, testTimeout, 50*time.Millisecond)
	d.stop()
	require.NotContains(t, d.logged(), "hunter2")
}

func TestWebhookTest(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h := newWebhookRig(t, r.URL)
	code, out, errs := h.run("", "webhook", "test", "a")
	require.Zero(t, code, errs)
	require.Regexp(t, `^delivered: HTTP status 204 after \d+ ms\n$`, out)
	m := r.await(t, 1)[0]
	require.Equal(t, "test", m.fields["type"])
	require.Regexp(t, "^msg_[0-9a-f]{32}$", m.id)

	r.status.Store(http.StatusTeapot)
	code, out, errs = h.run("", "webhook", "test", "a", "--json")
	require.Equal(t, 1, code)
	var result map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.InDelta(t, 418, result["status"], 0)
	require.Equal(t, false, result["delivered"])
	require.Contains(t, errs, "HTTP status 418")
	code, _, errs = h.run("", "webhook", "test", "b")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "no webhook \"b\" is configured\nhint: configured: a")
	r.Close()
	code, _, errs = h.run("", "webhook", "test", "a")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "connection refused")
	require.NotContains(t, errs, "secret-path")
}

func TestWebhookSecret(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h := newWebhookRig(t, r.URL)
	file := filepath.Join(h.dir, "new.secret")
	code, out, errs := h.run("", "webhook", "secret", file)
	require.Zero(t, code, errs)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	secret, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, "^whsec_[A-Za-z0-9+/]{43}=\n$", string(secret))
	require.NotContains(t, out+errs, string(secret[:20]))
	code, _, errs = h.run("", "webhook", "secret", file)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "file exists")
	still, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, secret, still)
}
