package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/webhook"
)

func (a *app) webhookCmd() *cobra.Command {
	names := func(cfg *config.Config, pos []string) []string {
		if len(pos) > 0 {
			return nil
		}
		return slices.Collect(maps.Keys(cfg.Webhooks))
	}
	return console.Group(
		&cobra.Command{Use: "webhook", Short: "Test a webhook, or create its secret"},
		&cobra.Command{
			Use: "test NAME", Short: "Send a signed test message and print what came back", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeConfig(names),
			RunE: func(cmd *cobra.Command, pos []string) error { return a.webhookTest(cmd.Context(), pos[0]) },
		},
		&cobra.Command{
			Use: "secret FILE", Short: "Create a file with a new secret", Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, pos []string) error { return a.webhookSecret(pos[0]) },
		})
}

// webhookResult is what webhook test --json prints.
type webhookResult struct {
	Webhook   string `json:"webhook"`
	MessageID string `json:"webhook_id"`
	Delivered bool   `json:"delivered"`
	Status    *int   `json:"status"`
	Response  string `json:"response"`
	Error     string `json:"error"`
	TookMS    int64  `json:"took_ms"`
}

func (a *app) webhookTest(ctx context.Context, name string) error {
	h, err := home.Load(a.Console)
	if err != nil {
		return err
	}
	w, ok := h.Config.Webhooks[name]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(h.Config.Webhooks)), ", ")
		if known == "" {
			return console.Fail(console.ExitUsage, "add [webhooks."+name+"] with url and secret_file", "no webhook is configured")
		}
		return console.Fail(console.ExitUsage, "configured: "+known, "no webhook %q is configured", name)
	}
	e, err := home.WebhookEndpoint(w)
	if err != nil {
		return console.Wrap(console.ExitError, err, "run this as the daemon's user; permesso webhook secret FILE creates a secret")
	}
	at := time.Now()
	r := webhookResult{Webhook: name, MessageID: webhook.MessageID("test", name, "", at)}
	body, err := json.Marshal(map[string]any{"type": "test", "timestamp": at.UTC(), "webhook": name}, json.Deterministic(true))
	if err != nil {
		return err
	}
	resp, err := e.Post(ctx, r.MessageID, at, body)
	r.TookMS = time.Since(at).Milliseconds()
	return a.printWebhookResult(r, resp, err)
}

func (a *app) printWebhookResult(r webhookResult, resp webhook.Response, err error) error {
	text := ""
	if err != nil {
		r.Error = err.Error()
	} else {
		r.Status, r.Response, r.Delivered = &resp.Status, strings.ToValidUTF8(resp.Body, "\uFFFD"), resp.Delivered()
		text = fmt.Sprintf("HTTP status %d after %d ms", resp.Status, r.TookMS)
		if body := strings.TrimSpace(r.Response); body != "" {
			text += ": " + truncate(chat.Escape(body))
		}
	}
	if a.JSON {
		if err := a.Print(r, ""); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return console.Wrap(console.ExitError, fmt.Errorf("webhook %s: %w", r.Webhook, err), "check its url and allow_private")
	case !r.Delivered:
		return console.Fail(console.ExitError, "the receiver must answer 200 to 299; a redirect is not followed", "webhook %s: %s", r.Webhook, text)
	case a.JSON:
		return nil
	}
	return a.Print(nil, "delivered: "+text)
}

// webhookSecret never replaces a file: the receiver may use its secret.
func (a *app) webhookSecret(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return console.Wrap(console.ExitError, err, "name a new file in a folder of yours")
	}
	_, err = f.WriteString(webhook.NewSecret() + "\n")
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(file)
		return err
	}
	return a.Print(map[string]string{"file": file}, "created "+file+": name it as secret_file, and give its content to the receiver")
}
