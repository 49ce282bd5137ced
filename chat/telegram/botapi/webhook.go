package botapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// webhookRetry is the delay after a failed delivery. The real server waits longer.
const webhookRetry = 20 * time.Millisecond

// webhook is the registered webhook.
type webhook struct {
	url, secret string
	generation  int
}

var secretForm = regexp.MustCompile(`^[A-Za-z0-9_-]{0,256}$`)

func (s *Server) setWebhook(c *call) any {
	link, secret := c.params["url"], c.params["secret_token"]
	if link == "" {
		return s.deleteWebhook(c)
	}
	s.checkHook(link)
	if !secretForm.MatchString(secret) {
		panic(badRequest("secret token contains unallowed characters"))
	}
	s.allowKinds(c)
	s.endPoll("terminated by setWebhook request")
	s.hook = webhook{url: link, secret: secret, generation: s.hook.generation + 1}
	s.startWebhook()
	return true
}

// checkHook refuses URLs that Telegram refuses.
func (s *Server) checkHook(link string) {
	u, err := url.Parse(link)
	switch {
	case err != nil || u.Host == "":
		panic(badRequest("invalid webhook URL specified"))
	case s.Local:
	case u.Scheme != "https":
		panic(badRequest("bad webhook: An HTTPS URL must be provided for webhook"))
	case !slices.Contains([]string{"", "80", "88", "443", "8443"}, u.Port()):
		panic(badRequest("bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443"))
	}
}

func (s *Server) deleteWebhook(*call) any {
	s.hook = webhook{generation: s.hook.generation + 1}
	return true
}

// startWebhook delivers updates in the background while this webhook is set and the server listens. It needs
// s.mu.
func (s *Server) startWebhook() {
	if s.hook.url == "" || s.closing == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	closing := s.closing
	go func() {
		<-closing
		cancel()
	}()
	go s.deliver(ctx, s.hook)
}

// deliver posts one update after another, each until it is accepted. (The real server posts up to
// max_connections at a time.)
func (s *Server) deliver(ctx context.Context, hook webhook) {
	for {
		s.mu.Lock()
		mine, updates, changed := s.hook.generation == hook.generation, s.queue.updates, s.change()
		s.mu.Unlock()
		if !mine || ctx.Err() != nil {
			return
		}
		if len(updates) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if !post(ctx, hook, updates[0]) {
			sleep(ctx, webhookRetry)
			continue
		}
		s.mu.Lock()
		s.queue.updates = slices.DeleteFunc(slices.Clone(s.queue.updates), func(u update) bool { return u.id == updates[0].id })
		s.notify()
		s.mu.Unlock()
	}
}

// post sends an update to the bot. Telegram follows no redirects, and accepts every 2xx.
func post(ctx context.Context, hook webhook, u update) (accepted bool) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.url, bytes.NewReader(u.body))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	if hook.secret != "" {
		req.Header.Set("X-Telegram-Bot-Api-Secret-Token", hook.secret)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode >= 200 && resp.StatusCode <= 299
}
