package botapi

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// webhook is the registered webhook.
type webhook struct {
	url, secret string
	max         int
	generation  int
	lastError   string
	lastErrorAt time.Time
}

var secretForm = regexp.MustCompile(`^[A-Za-z0-9_-]{0,256}$`)

func (s *Server) setWebhook(c *call) any {
	drop, most := c.boolean("drop_pending_updates"), c.integer("max_connections")
	link, secret := c.params["url"], c.params["secret_token"]
	if link == "" {
		return s.deleteWebhook(c)
	}
	s.checkHook(link)
	switch {
	case len(secret) > 256:
		panic(badRequest("secret token is too long"))
	case !secretForm.MatchString(secret):
		panic(badRequest("secret token contains unallowed characters"))
	case most < 0 || most > 100:
		panic(strict("max_connections is 1 to 100, not %d", most))
	}
	s.allowKinds(c)
	if drop {
		s.queue.updates = nil
	}
	s.endPoll("terminated by setWebhook request")
	s.hook = webhook{url: link, secret: secret, max: int(cmp.Or(most, 40)), generation: s.hook.generation + 1}
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

func (s *Server) deleteWebhook(c *call) any {
	if c.boolean("drop_pending_updates") {
		s.queue.updates = nil
	}
	s.hook = webhook{generation: s.hook.generation + 1}
	return true
}

func (s *Server) getWebhookInfo(*call) any {
	info := map[string]any{
		"url": s.hook.url, "has_custom_certificate": false, "pending_update_count": len(s.queue.updates),
	}
	if s.hook.url != "" {
		info["max_connections"] = s.hook.max
	}
	if s.hook.lastError != "" {
		info["last_error_date"], info["last_error_message"] = s.hook.lastErrorAt.Unix(), s.hook.lastError
	}
	if s.queue.allowed != nil {
		info["allowed_updates"] = s.queue.allowed
	}
	return info
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
		if why := post(ctx, hook, updates[0]); why != "" {
			s.mu.Lock()
			if s.hook.generation == hook.generation {
				s.hook.lastError, s.hook.lastErrorAt = why, s.now()
			}
			s.notify()
			s.mu.Unlock()
			sleep(ctx, cmp.Or(s.WebhookRetry, time.Second))
			continue
		}
		s.mu.Lock()
		s.queue.updates = slices.DeleteFunc(slices.Clone(s.queue.updates), func(u update) bool { return u.id == updates[0].id })
		s.notify()
		s.mu.Unlock()
	}
}

// post sends an update to the bot, or returns why that failed. Telegram follows no redirects, and accepts every
// 2xx.
func post(ctx context.Context, hook webhook, u update) (why string) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.url, bytes.NewReader(u.body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	if hook.secret != "" {
		req.Header.Set("X-Telegram-Bot-Api-Secret-Token", hook.secret)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return "Connection refused"
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return "Wrong response from the webhook: " + resp.Status
	}
	return ""
}
