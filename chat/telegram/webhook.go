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

// Webhook has Telegram deliver updates instead of our asking for them. We listen without encryption:
// something before us, which has a certificate, passes on what comes to URL.
type Webhook struct {
	Listen string // host:port
	URL    string // https
	Secret string // what proves that it is Telegram: 1 to 256 of A-Z a-z 0-9 _ -
}

// maxUpdate is more than any update has, in bytes.
const maxUpdate = 1 << 20

// errNoSecret keeps a webhook from believing everybody.
var errNoSecret = errors.New("the webhook has no secret: put a long random one into its secret_file")

// listener takes the address, so that an address that is taken is told at once.
func (w *Webhook) listener(ctx context.Context) (net.Listener, error) {
	if len(w.Secret) < 16 {
		return nil, errNoSecret
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", w.Listen)
}

// receive serves the webhook until ctx ends.
func (s *session) receive(ctx context.Context) error {
	server := &http.Server{
		Handler: s.hook(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 60 * time.Second, MaxHeaderBytes: 16 << 10,
	}
	closed := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(closed)
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		_ = server.Shutdown(last) // what is under way is answered, or delivered again
	})()
	go s.setWebhook(ctx)
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the webhook: %w", err)
	}
	<-closed // a next life finds in the journal what this one has answered for
	return nil
}

// setWebhook tells Telegram where we are, as often as it takes.
func (s *session) setWebhook(ctx context.Context) {
	for tries := 0; ctx.Err() == nil; tries++ {
		err := s.tellWebhook(ctx)
		if err == nil {
			s.troubles.clear("webhook")
			return
		}
		if ctx.Err() == nil {
			s.troubles.set("webhook", fmt.Sprintf("Telegram was not told of the webhook: %v", err), "url must be an address with a certificate, at port 443, 80, 88 or 8443")
		}
		if pause(ctx, s.outbox.retry(tries, err)) != nil {
			return
		}
	}
}

func (s *session) tellWebhook(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, sendTimeout)
	defer stop()
	_, err := s.api.bot.SetWebhook(ctx, &bot.SetWebhookParams{
		URL: s.Webhook.URL, SecretToken: s.Webhook.Secret, AllowedUpdates: wantedUpdates(),
	})
	return Redact(s.Webhook.Secret, Redact(s.Token, err))
}

// hook answers Telegram, and nobody else. With 200 it answers only what is durable here.
func (s *session) hook() http.Handler {
	where := "/"
	if u, err := url.Parse(s.Webhook.URL); err == nil && u.Path != "" {
		where = u.Path
	}
	want := sha256.Sum256([]byte(s.Webhook.Secret))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("X-Telegram-Bot-Api-Secret-Token")))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path != where {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.WriteHeader(s.delivered(http.MaxBytesReader(w, r.Body, maxUpdate)))
	})
}

// delivered takes an update in and gives the status to answer with.
func (s *session) delivered(body io.Reader) (status int) {
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
		_, err := s.journal.Take(raw) // it sets aside what can be told apart
		s.log(err)
		return http.StatusBadRequest
	}
	fresh, err := s.journal.Take(raw)
	if err != nil {
		s.log(fmt.Errorf("take an update: %w", err))
		return http.StatusInternalServerError
	}
	if fresh {
		s.intake.take(s.outbox.ctx, nil, u)
	}
	return http.StatusOK
}
