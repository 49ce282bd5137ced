package deliver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Notices is the part of an adapter that all services share which only show notifications: no person can reply to
// one. It composes them, with words of the host alone, see chat.Notice. An outcome replaces its card, whose ID is in
// Message.ReplyTo. What goes wrong after an approval, and a pause that holds it, is a new message. A message without a
// key is about no request.
type Notices struct{}

// Listen implements Adapter. There is nothing to receive.
func (Notices) Listen(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Edit implements Adapter. It is never called.
func (Notices) Edit(context.Context, Address, ID, Message) error {
	return &Error{Class: Gone, Err: errors.New("a notification cannot be edited")}
}

// NewID implements Composer. An ID has 32 hex digits.
func (Notices) NewID(string) ID { return ID(nonce()) }

// NewSecret implements Composer. There are no replies, so no secret is valid.
func (Notices) NewSecret() (secret, digest string) { return "", "none" }

// Title implements Composer.
func (Notices) Title(p *approval.Pending, style chat.Style) string { return style.Notice(p).Title }

// Card implements Composer. It never shows everything that would run.
func (Notices) Card(p *approval.Pending, style chat.Style, _ string) (Message, error) {
	return Message{Lines: []string{style.Notice(p).Text}}, nil
}

// Outcome implements Composer.
func (Notices) Outcome(rec *approval.Record, style chat.Style) []string {
	return []string{style.SettledNotice(rec)}
}

// newNotice is a notification that replaces none.
func (s *session) newNotice(k approval.Key, n chat.Notice) Message {
	return Message{Key: k, ID: s.traits.Letters.NewID(k.ID), Title: n.Title, Lines: []string{n.Text}, Until: s.now().Add(maxOutcomeAge)}
}

// CallFailed classifies the error of an HTTP call. It leaves out the URL, which may be a secret.
func CallFailed(err error) *Error {
	var call *url.Error
	if errors.As(err, &call) {
		err = call.Err
	}
	e := &Error{Err: err}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		e.Class, e.Service = Temporary, true
	}
	return e
}

// StatusFailed classifies the status of an HTTP response, nil if the call succeeded. It leaves out the body, which is
// the service's.
func StatusFailed(resp *http.Response) *Error {
	e := &Error{Err: fmt.Errorf("HTTP status %d", resp.StatusCode)}
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		e.Class, e.Service = Temporary, true
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			e.RetryAfter = min(time.Duration(n)*time.Second, maxRetryAfter)
		}
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound, code >= 300 && code < 400:
		e.Class, e.Service = BadCredentials, true
	default:
		e.Class = Rejected
	}
	return e
}

// maxRetryAfter limits the delay that a service may ask for.
const maxRetryAfter = time.Hour
