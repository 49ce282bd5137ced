package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
)

// DefaultTimeout is how long a request is retried while a gate does not answer or is
// busy. A restart takes a few seconds, and a limit per minute ends after one.
const DefaultTimeout = 75 * time.Second

const (
	longPoll      = 30 * time.Second // duration of one wait request
	settleTime    = 5 * time.Second  // a decision takes a moment to become an end
	grace         = 15 * time.Second // for a response, beyond the gate's own waiting time
	minRetryDelay = 250 * time.Millisecond
	maxRetryDelay = 10 * time.Second
	maxKey        = 249
	largeBody     = 64 << 10
)

// REST is a client of the HTTP API. It is safe for concurrent use.
type REST struct {
	URL     string        // http://127.0.0.1:8765, https://…, or unix:///path
	Key     string        `json:"-"` // with the scope request
	Timeout time.Duration // 0: DefaultTimeout

	once sync.Once
	base string // URL before all paths
	web  *http.Client
	err  error
}

// String leaves out the key.
func (r *REST) String() string { return "REST(" + r.URL + ")" }

// GoString is String, for %#v.
func (r *REST) GoString() string { return r.String() }

// Check validates URL and Key without a connection.
func (r *REST) Check() error {
	r.once.Do(func() { r.err = r.prepare() })
	return r.err
}

func (r *REST) prepare() error {
	if r.Key == "" || len(r.Key) > maxKey || strings.ContainsFunc(r.Key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fmt.Errorf("%w: PERMESSO_KEY must be a key printed by permesso key create", ErrKey)
	}
	bad := errors.New("PERMESSO_URL must be http://HOST:PORT, https://HOST or unix:///PATH")
	u, err := url.Parse(r.URL)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return bad // not the URL itself, which may contain a password
	}
	dial := (&net.Dialer{Timeout: grace}).DialContext
	switch {
	case u.Scheme == "unix" && u.Host == "" && filepath.IsAbs(u.Path):
		path := u.Path
		r.base = "http://localhost"
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: grace}).DialContext(ctx, "unix", path)
		}
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		r.base = strings.TrimSuffix(u.String(), "/")
	default:
		return bad
	}
	r.web = &http.Client{
		Transport:     &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, ExpectContinueTimeout: time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

const idPrefix = "appr_"

// plainID returns an id without the prefix that it has by HTTP.
func plainID(id string) (string, error) {
	id = strings.TrimPrefix(id, idPrefix)
	return id, checkID(id)
}

// Ask implements Client. RequestID is the Idempotency-Key; the gate chooses the id.
func (r *REST) Ask(ctx context.Context, q approval.Request) (Submitted, error) {
	key := cmp.Or(q.RequestID, NewID())
	body, err := requestBody(&q)
	if err != nil {
		return Submitted{}, err
	}
	v, err := r.call(ctx, call{method: http.MethodPost, path: "/v1/approvals", key: key, body: body})
	if err != nil {
		return Submitted{}, fmt.Errorf("ask: %w", err)
	}
	id, err := plainID(v.ApprovalID)
	if err != nil {
		return Submitted{}, fmt.Errorf("ask: %w: no approval_id in the response", ErrNoGate)
	}
	a := submitted(&q, id)
	return a, v.checkMatches(a)
}

// requestBody is the body of a request. The arguments are inserted as bytes: an encoder
// would remove their white space.
func requestBody(q *approval.Request) ([]byte, error) {
	b, err := json.Marshal(struct {
		Type         string       `json:"type,omitzero"`
		ToolName     string       `json:"tool_name,omitzero"`
		ActionType   string       `json:"action_type,omitzero"`
		SessionID    string       `json:"session_id,omitzero"`
		Title        string       `json:"title,omitzero"`
		Preview      string       `json:"preview,omitzero"`
		Rationale    string       `json:"rationale,omitzero"`
		ExpiresInSec int64        `json:"expires_in_sec,omitzero"`
		Options      []string     `json:"options,omitzero"`
		Proof        approval.Raw `json:"proof,omitzero"`
		Resubmits    string       `json:"resubmits,omitzero"`
	}{
		q.Type, q.ToolName, q.ActionType, q.SessionID, q.Title, q.Preview, q.Rationale, q.ExpiresInSec, q.Options, q.Proof, q.Resubmits,
	})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	comma := ","
	if len(b) == len("{}") {
		comma = ""
	}
	return slices.Concat(b[:len(b)-1], []byte(comma+`"request_data":`), arguments(q), []byte("}")), nil
}

// Await implements Client. Without a deadline it waits until the request has ended.
func (r *REST) Await(ctx context.Context, a Submitted) (*approval.Response, error) {
	id, err := plainID(a.ID)
	if err != nil {
		return nil, err
	}
	a.ID = id
	for {
		wait := longPoll
		if end, ok := ctx.Deadline(); ok {
			wait = min(wait, max(time.Until(end), time.Second))
		}
		began := time.Now()
		v, err := r.call(ctx, call{method: http.MethodGet, path: fmt.Sprintf("/v1/approvals/%s%s?wait=%d", idPrefix, id, int(wait/time.Second)), serverWait: wait})
		if err == nil {
			err = v.checkMatches(a)
		}
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if v.Outcome != nil {
			return v.response(id), nil
		}
		// A gate that is shutting down answers at once every time.
		if time.Since(began) < time.Second {
			if err := sleep(ctx, time.Second); err != nil {
				return nil, fmt.Errorf("wait for %s: %w", id, err)
			}
		}
	}
}

// Cancel implements Client.
func (r *REST) Cancel(ctx context.Context, a Submitted) error {
	id, err := plainID(a.ID)
	if err != nil {
		return err
	}
	path := "/v1/approvals/" + idPrefix + id
	_, err = r.call(ctx, call{method: http.MethodDelete, path: path})
	if errors.Is(err, ErrNotPending) {
		// Our own DELETE may have cancelled it, with its response lost.
		v, getErr := r.call(ctx, call{method: http.MethodGet, path: fmt.Sprintf("%s?wait=%d", path, int(settleTime/time.Second)), serverWait: settleTime})
		if getErr == nil && v.Outcome != nil && *v.Outcome == approval.StatusCancelled {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("cancel %s: %w", id, err)
	}
	return nil
}

// call is one HTTP request, which is sent until there is a response.
type call struct {
	method, path, key string
	body              []byte
	serverWait        time.Duration // the gate's waiting time before it answers
}

// call sends c until the gate answers, or the timeout is over.
func (r *REST) call(ctx context.Context, c call) (*view, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	timeout := cmp.Or(r.Timeout, DefaultTimeout)
	var failing time.Time // time of the first failure
	for next := minRetryDelay; ; next = min(2*next, maxRetryDelay) {
		v, err := r.send(ctx, c)
		if err == nil || !errors.Is(err, ErrUnreachable) {
			return v, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		wait := next/2 + rand.N(next) //nolint:gosec // jitter for many clients, not a secret
		var refused *Refused
		if errors.As(err, &refused) {
			wait = max(wait, refused.After)
		}
		if time.Since(failing)+wait > timeout {
			return nil, err
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
