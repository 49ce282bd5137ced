// Package push is the web-push adapter of package chat/deliver: it notifies browsers that have no page of ours open.
//
// # Messages
//
// A message has words of the host alone, see chat.Notice, and the path of the request's page. It is encrypted for the
// browser (RFC 8291), so that the push service cannot read it, and signed for the service (RFC 8292). The service
// worker of the pages shows it. A click opens the page; the worker decides nothing.
//
// # Endpoints
//
// The browser of a logged-in user says where its messages go, so an endpoint is not trusted: it must use https, its
// address must be public, which is checked for each connection, and redirects are not followed. A subscription ends
// when its service does not know it any more.
package push

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// Via is the channel's name.
const Via = "push"

// Adapter sends messages to the subscriptions of a Store, for a deliver.Channel. The chat of an address is the ID of
// a subscription. Set the fields.
type Adapter struct {
	deliver.Notices
	Key   func() (*Key, error)
	Store *Store
	Now   func() time.Time

	once   sync.Once
	client *http.Client
}

// payload is what the service worker gets.
type payload struct {
	Title   string `json:"title"`
	Body    string `json:"body"`
	Tag     string `json:"tag"`  // a message replaces an earlier one with its tag
	Path    string `json:"path"` // of the request's page, below that of a session
	Settled bool   `json:"settled"`
	Silent  bool   `json:"silent"`
}

// timeout limits a call.
const timeout = 15 * time.Second

// settledLife is how long a service keeps an outcome for a browser that is not connected.
const settledLife = 24 * time.Hour

// Open implements deliver.Adapter.
func (a *Adapter) Open(context.Context, *deliver.Inbox) (deliver.Traits, error) {
	return deliver.Traits{Service: "Web push", Letters: a, Outcomes: true, OneWay: true}, nil
}

// Send implements deliver.Adapter. To a subscription that has ended there is nothing to send.
func (a *Adapter) Send(ctx context.Context, to deliver.Address, m deliver.Message) (deliver.ID, error) {
	x, ok := a.Store.Find(string(to.Chat))
	if !ok {
		return m.ID, nil
	}
	r, err := a.request(ctx, x, m)
	if err != nil {
		return "", &deliver.Error{Class: deliver.Rejected, Err: err}
	}
	e := a.do(r)
	switch {
	case e == nil:
		return m.ID, nil
	case e.Class == deliver.Gone:
		return m.ID, a.Store.Remove(x.ID(), "")
	}
	e.Service = false // another subscription may have another service
	return "", e
}

// request is the call that sends a message.
func (a *Adapter) request(ctx context.Context, x Subscription, m deliver.Message) (*http.Request, error) {
	tag := cmp.Or(m.ID, m.ReplyTo)
	p := payload{
		Title: strings.TrimPrefix(m.Title, "Re: "), Body: strings.Join(m.Lines, "\n"), Tag: string(tag),
		Path: "r/" + m.Key.Workspace + "/" + m.Key.ID, Settled: m.ID == "", Silent: m.Silent || m.ID == "",
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	keys, err := newReceiver(x.Key, x.Auth)
	if err != nil {
		return nil, err
	}
	body, err := encrypt(keys, text)
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(x.Endpoint)
	if err != nil {
		return nil, errors.New("the endpoint is not valid")
	}
	r := (&http.Request{Method: http.MethodPost, URL: endpoint, Host: endpoint.Host, Header: http.Header{}}).WithContext(ctx)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	now, urgency, life := a.Now(), "high", settledLife
	if m.ID == "" {
		urgency = "low"
	} else {
		life = max(m.Until.Sub(now), 0)
	}
	key, err := a.Key()
	if err != nil {
		return nil, err
	}
	sign, err := key.authorization(endpoint, now)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"Authorization": sign, "Content-Encoding": "aes128gcm", "Content-Type": "application/octet-stream",
		"TTL": strconv.Itoa(int(life.Seconds())), "Urgency": urgency, "Topic": string(tag),
	} {
		r.Header.Set(name, value)
	}
	return r, nil
}

// do makes a call. Gone says that the subscription has ended, or that its endpoint is on no public network.
func (a *Adapter) do(r *http.Request) *deliver.Error {
	a.once.Do(a.connect)
	ctx, stop := context.WithTimeout(r.Context(), timeout)
	defer stop()
	resp, err := a.client.Do(r.WithContext(ctx))
	if err != nil {
		e := deliver.CallFailed(err)
		if errors.Is(err, errNotPublic) {
			e.Class = deliver.Gone
		}
		return e
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	e := deliver.StatusFailed(resp)
	switch {
	case e != nil && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone):
		e.Class = deliver.Gone
	case e != nil && e.Class == deliver.BadCredentials:
		e.Class = deliver.Rejected // a redirect, or a subscription for another key: the next call would fail too
	}
	return e
}

var errNotPublic = errors.New("the endpoint is not on the public network")

// connect makes the client. It uses no proxy, which would connect without the check.
func (a *Adapter) connect() {
	dialer := &net.Dialer{Timeout: timeout, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		switch addr := at.Addr().Unmap(); {
		case err == nil && facts.PublicAddress(addr), err == nil && a.Store.Local && addr.IsLoopback():
			return nil
		}
		return errNotPublic
	}}
	a.client = &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: timeout, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
