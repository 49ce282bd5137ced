package ntfy

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// Via is the channel's name.
const Via = "ntfy"

// Place is where all messages go. The topic is not an address: it is a secret, and addresses are logged.
const Place = deliver.ID("topic")

// Adapter publishes messages to one topic, for a deliver.Channel. Set the fields. Those without a comment are
// required.
type Adapter struct {
	deliver.Notices
	Server string // base URL: "https://ntfy.sh"
	Topic  string
	Token  string                      // access token; "": none
	Page   func(k approval.Key) string // the URL of a request's page; nil: none
	Client *http.Client                // for tests; nil: one with a timeout
}

const topicLetters = "-_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// minTopic is the length of a topic that cannot be guessed. A server that wants a token protects shorter ones.
const minTopic = 16

// Check reports what is wrong with a topic and an access token. Its errors do not have them.
func Check(topic, token string) error {
	switch {
	case topic == "" || len(topic) > 64 || strings.Trim(topic, topicLetters) != "":
		return errors.New("the topic must have 1 to 64 letters, digits, - and _")
	case token == "" && len(topic) < minTopic:
		return errors.New("the topic can be guessed: without token_file it needs 16 characters or more, as from openssl rand -hex 16")
	case len(token) > 200 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the access token has characters that no token has")
	}
	return nil
}

// timeout limits a call.
const timeout = 20 * time.Second

// Open implements deliver.Adapter.
func (a *Adapter) Open(context.Context, *deliver.Inbox) (deliver.Traits, error) {
	if err := Check(a.Topic, a.Token); err != nil {
		return deliver.Traits{}, err
	}
	return deliver.Traits{Service: "ntfy", Letters: a, Outcomes: true, OneWay: true}, nil
}

// The priorities of messages.
const (
	priorityHigh = "4"
	priorityLow  = "2" // without a sound
	priorityMin  = "1"
)

// Send implements deliver.Adapter.
func (a *Adapter) Send(ctx context.Context, _ deliver.Address, m deliver.Message) (deliver.ID, error) {
	path, header := "/"+a.Topic, http.Header{"Priority": {priorityHigh}}
	if m.ID == "" { // an outcome. A server that cannot replace a message does not know the path
		path += "/" + string(m.ReplyTo)
		header.Set("Priority", priorityMin)
	} else { // such a server ignores the header
		header.Set("X-Sequence-ID", string(m.ID))
	}
	if m.Silent {
		header.Set("Priority", priorityLow)
	}
	header.Set("Title", mime.BEncoding.Encode("utf-8", strings.TrimPrefix(m.Title, "Re: ")))
	if a.Page != nil && m.Key.ID != "" {
		if at := a.Page(m.Key); at != "" {
			header.Set("Click", at)
		}
	}
	failed := a.publish(ctx, path, header, strings.Join(m.Lines, "\n"))
	switch {
	case failed == nil, m.ID == "" && failed.status == http.StatusNotFound:
		return m.ID, nil
	case failed.Class == deliver.BadCredentials:
		failed.Hint = "check the address of the server, the topic and the token, and who may write to the topic"
	}
	return "", &failed.Error
}

// failure is an error with the status of the response, 0 without one.
type failure struct {
	deliver.Error
	status int
}

// publish makes one call.
func (a *Adapter) publish(ctx context.Context, path string, header http.Header, text string) *failure {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(a.Server, "/")+path, strings.NewReader(text))
	if err != nil {
		return &failure{Error: deliver.Error{Class: deliver.Rejected, Err: errors.New("the server's address is not valid")}}
	}
	r.Header = header
	if a.Token != "" {
		r.Header.Set("Authorization", "Bearer "+a.Token)
	}
	resp, err := a.client().Do(r)
	if err != nil {
		return &failure{Error: *deliver.CallFailed(err)}
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	if e := deliver.StatusFailed(resp); e != nil {
		return &failure{*e, resp.StatusCode}
	}
	return nil
}

// client follows no redirect: another server must not get the topic and the token.
func (a *Adapter) client() *http.Client {
	c := http.Client{}
	if a.Client != nil {
		c = *a.Client
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}
