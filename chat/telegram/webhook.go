package telegram

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/go-telegram/bot"
)

// Webhook makes Telegram deliver updates, instead of polling. The listener is plain HTTP: a reverse proxy with
// a certificate forwards URL to it.
type Webhook struct {
	Listen string // host:port
	URL    string // https
	Secret string // proves that the sender is Telegram: 1 to 256 of A-Z a-z 0-9 _ -
}

// maxUpdate is larger than any update, in bytes.
const maxUpdate = 1 << 20

// errNoSecret refuses a webhook that any client could call.
var errNoSecret = errors.New("webhook secret is missing or too short: put a long random one into secret_file")

// listener binds the address, so that an address in use is an error at once.
func (w *Webhook) listener(ctx context.Context) (net.Listener, error) {
	if len(w.Secret) < 16 {
		return nil, errNoSecret
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", w.Listen)
}

// serveWebhook serves the webhook until ctx ends.
func (s *session) serveWebhook(ctx context.Context) error {
	server := &http.Server{
		Handler: s.webhookHandler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 60 * time.Second, MaxHeaderBytes: 16 << 10,
	}
	closed := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(closed)
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		_ = server.Shutdown(last) // open requests are answered, or Telegram delivers them again
	})()
	go s.registerWebhook(ctx)
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve webhook: %w", err)
	}
	<-closed // acknowledged updates are in the journal, for the next session
	return nil
}

// registerWebhook registers the webhook at Telegram, and retries until it succeeds.
func (s *session) registerWebhook(ctx context.Context) {
	for tries := 0; ctx.Err() == nil; tries++ {
		err := s.setWebhook(ctx)
		if err == nil {
			s.in.Clear("webhook")
			return
		}
		if ctx.Err() == nil {
			s.in.Warn("webhook", fmt.Sprintf("webhook registration failed: %v", err), "url must be HTTPS with a valid certificate, at port 443, 80, 88 or 8443")
		}
		if sleep(ctx, s.in.RetryDelay(tries, err)) != nil {
			return
		}
	}
}

func (s *session) setWebhook(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	_, err := s.api.bot.SetWebhook(ctx, &bot.SetWebhookParams{
		URL: s.Webhook.URL, SecretToken: s.Webhook.Secret, AllowedUpdates: wantedUpdates(),
	})
	return Redact(s.Webhook.Secret, s.api.failed(err))
}

// webhookHandler accepts only Telegram's requests. It answers 200 only when the update is durable.
func (s *session) webhookHandler() http.Handler {
	path := "/"
	if u, err := url.Parse(s.Webhook.URL); err == nil && u.Path != "" {
		path = u.Path
	}
	want := sha256.Sum256([]byte(s.Webhook.Secret))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("X-Telegram-Bot-Api-Secret-Token")))
		switch {
		case subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path != path:
			w.WriteHeader(http.StatusNotFound)
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			w.WriteHeader(s.takeDelivery(http.MaxBytesReader(w, r.Body, maxUpdate)))
		}
	})
}

// takeDelivery stores an update and returns the HTTP status.
func (s *session) takeDelivery(body io.Reader) (status int) {
	raw, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case err != nil:
		return http.StatusBadRequest
	}
	u, err := parseUpdate(raw)
	if err != nil || u.ID <= 0 {
		_, err := s.journal.Take(raw) // keeps it for inspection if it has an ID
		s.log(err)
		return http.StatusBadRequest
	}
	fresh, err := s.journal.Take(raw)
	if err != nil {
		s.log(fmt.Errorf("store webhook update: %w", err))
		return http.StatusInternalServerError
	}
	if fresh {
		s.dispatch(s.ctx, nil, u)
	}
	return http.StatusOK
}
