package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/ipc/webhook"
)

// webhookPrefix begins the name of a webhook among the channels. No channel has a space in its name.
const webhookPrefix = "webhook "

// webhookStore is the sent store of all webhooks.
const webhookStore = "webhooks"

// webhookKinds are the webhooks of the configuration, and those that run without being there any more.
func (c *channels) webhookKinds(cfg *config.Config) (list []kind) {
	names := slices.Collect(maps.Keys(cfg.Webhooks))
	c.mu.Lock()
	for running := range c.active {
		if name, ok := strings.CutPrefix(running, webhookPrefix); ok {
			names = append(names, name)
		}
	}
	c.mu.Unlock()
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		list = append(list, webhookKind(name))
	}
	return list
}

func webhookKind(name string) kind {
	settings := func(cfg *config.Config) any {
		if w, ok := cfg.Webhooks[name]; ok {
			return w
		}
		return nil
	}
	return kind{webhookPrefix + name, settings, func(s *server, _ <-chan approval.Key) (channel, error) { return openWebhook(s, name) }}
}

// openWebhook reads the secret at every start of the webhook.
func openWebhook(s *server, name string) (channel, error) {
	w, ok := s.Current().Webhooks[name]
	if !ok {
		return channel{}, errors.New("[webhooks." + name + "] is no longer configured")
	}
	e, err := home.WebhookEndpoint(w)
	if err != nil {
		return channel{}, err
	}
	state, err := (&ipc.SentStore{Store: s.Store, Channel: webhookStore}).State(name)
	if err != nil {
		return channel{}, err
	}
	h := &webhook.Hook{
		Log: s.feed, State: state, Workspaces: w.Workspaces, Message: s.settledMessage, Post: e.Post, Report: s.webhookReport(name),
		GaveUp: func(k approval.Key, err error) {
			s.log.Error().Str("via", webhookPrefix+name).Str("ws", k.Workspace).Str("id", k.ID).Err(err).Msg("webhook message given up")
		},
	}
	return channel{run: h.Run}, nil
}

// webhookReport shows what is wrong with a webhook in the status and, when that changes, in the log.
func (s *server) webhookReport(name string) func(what string) {
	via, last := webhookPrefix+name, ""
	return func(what string) {
		switch {
		case what != "":
			hint := "permesso webhook test " + name + " shows what the receiver answers; messages wait for three days"
			s.health.Set(via, via+" "+what, hint)
			if what != last {
				s.log.Warn().Str("via", via).Msg(via + " " + what)
			}
		case last != "":
			s.log.Info().Str("via", via).Msg("webhook delivers again")
			fallthrough
		default:
			s.health.Clear(via)
		}
		last = what
	}
}

// settledEvent is the message about a settled request: its view in the API, and what the view leaves to the caller.
type settledEvent struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // when it ended
	Workspace string    `json:"workspace"`
	*httpapi.Approval
}

// settledMessage returns the message about a request, nil if it has no record.
func (s *server) settledMessage(ctx context.Context, k approval.Key) (*webhook.Message, error) {
	st, err := s.Viewer(s.keys).Story(ctx, k)
	if err != nil || st.Record == nil {
		return nil, err
	}
	view, err := s.api.View(k, st)
	if err != nil {
		return nil, err
	}
	p := st.Pending
	if p == nil {
		p = &approval.Pending{}
	}
	maskView(view, func(text string) string { return s.style("").Redacted(p, text) })
	at := st.Record.EndedAt.UTC()
	body, err := json.Marshal(settledEvent{webhook.Settled, at, k.Workspace, view}, json.Deterministic(true))
	return &webhook.Message{ID: webhook.MessageID(webhook.Settled, k.Workspace, k.ID, at), Body: body}, err
}

// maxResult limits the result in a message. The specification asks for small messages.
const maxResult = 16 << 10

// maskView masks the secrets in a view, and leaves out the receipt: it is for the one who asked, and others could use
// it.
func maskView(v *httpapi.Approval, mask func(string) string) {
	v.Receipt = nil
	texts := []*string{v.Error, v.Feedback, v.RequiredResponse, v.SessionID}
	if d := v.Decision.Choice; d != nil {
		texts = append(texts, d.Note, d.Override)
	}
	for _, text := range texts {
		if text != nil {
			*text = mask(*text)
		}
	}
	result := v.Result.Value
	v.Result.Value = maskJSON(result, mask)
	switch {
	case len(result) > maxResult:
		v.Result.Value = notSent("it has "+strconv.Itoa(len(result))+" bytes", v)
	case mask(string(v.Result.Value)) != string(v.Result.Value):
		v.Result.Value = notSent("it holds a secret", v)
	}
}

// notSent stands for a result that a message leaves out.
func notSent(why string, v *httpapi.Approval) jsontext.Value {
	b, _ := jsontext.AppendQuote(nil, "not sent: "+why+"; GET /v1/approvals/"+v.ApprovalID) // valid UTF-8
	return b
}

// maskJSON masks the secrets in each string of a JSON value. Of what is no JSON nothing remains.
func maskJSON(v jsontext.Value, mask func(string) string) jsontext.Value {
	var masked bytes.Buffer
	same := jsontext.AllowDuplicateNames(true) // two names may have the same mask
	from, to := jsontext.NewDecoder(bytes.NewReader(v), same), jsontext.NewEncoder(&masked, same)
	for {
		t, err := from.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return bytes.TrimSpace(masked.Bytes())
		case err != nil:
			return jsontext.Value("null")
		case t.Kind() == '"':
			t = jsontext.String(mask(t.String()))
		}
		if err := to.WriteToken(t); err != nil {
			return jsontext.Value("null")
		}
	}
}
