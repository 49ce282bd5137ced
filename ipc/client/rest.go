package client

import (
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

// DefaultTimeout is how long a gate is tried that does not answer, or has no time.
// A gate that is started anew is back in a few seconds, and a limit a minute is
// over after one.
const DefaultTimeout = 75 * time.Second

const (
	longPoll   = 30 * time.Second // one question whether it is over
	settling   = 5 * time.Second  // what is decided needs a moment to be over
	grace      = 15 * time.Second // for an answer beyond what the gate may take by itself
	firstPause = 250 * time.Millisecond
	longPause  = 10 * time.Second
	longestKey = 249
	large      = 64 << 10
)

// REST reaches a gate through its HTTP door. It may be used by several goroutines
// at once.
type REST struct {
	URL     string        // http://127.0.0.1:8765, https://…, or unix:///path
	Key     string        `json:"-"` // with the scope request
	Timeout time.Duration // 0: DefaultTimeout

	once sync.Once
	base string // of all paths
	web  *http.Client
	err  error
}

// String keeps the key out of whatever is printed.
func (r *REST) String() string { return "REST(" + r.URL + ")" }

// GoString does so for %#v.
func (r *REST) GoString() string { return r.String() }

// Check says what is wrong with URL or Key, without asking anybody.
func (r *REST) Check() error {
	r.once.Do(func() { r.err = r.prepare() })
	return r.err
}

func (r *REST) prepare() error {
	if r.Key == "" || len(r.Key) > longestKey || strings.ContainsFunc(r.Key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fmt.Errorf("%w: PERMESSO_KEY must be a key as permesso key create prints it", ErrKey)
	}
	bad := errors.New("PERMESSO_URL must be http://HOST:PORT, https://HOST or unix:///PATH")
	u, err := url.Parse(r.URL)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return bad // and not the text: who writes a password there shows it to nobody
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

// plainID takes an id with the prefix that it has by HTTP, or without.
func plainID(id string) (string, error) {
	id = strings.TrimPrefix(id, idPrefix)
	if !approval.ValidID(id) {
		return "", fmt.Errorf("request id %q: 16 to 64 lower-case hex digits", id)
	}
	return id, nil
}

// Ask implements Gate. RequestID is the Idempotency-Key; the id is the gate's.
func (r *REST) Ask(ctx context.Context, q approval.Request) (Submitted, error) {
	key := q.RequestID
	if key == "" {
		key = NewID()
	}
	body, err := wish(&q)
	if err != nil {
		return Submitted{}, err
	}
	v, err := r.call(ctx, call{method: http.MethodPost, path: "/v1/approvals", key: key, body: body})
	if err != nil {
		return Submitted{}, fmt.Errorf("ask: %w", err)
	}
	id, err := plainID(v.ApprovalID)
	if err != nil {
		return Submitted{}, fmt.Errorf("ask: %w: it gives no approval_id", ErrNoGate)
	}
	a := asked(&q, id)
	return a, v.fits(a)
}

// wish is the body of a request. The arguments are put in by hand: an encoder
// would take blanks out of what is to stay verbatim.
func wish(q *approval.Request) ([]byte, error) {
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

// Await implements Gate. Without a deadline it waits as long as the gate does.
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
		v, err := r.call(ctx, call{method: http.MethodGet, path: fmt.Sprintf("/v1/approvals/%s%s?wait=%d", idPrefix, id, int(wait/time.Second)), takes: wait})
		if err == nil {
			err = v.fits(a)
		}
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if v.Outcome != nil {
			return v.response(id), nil
		}
		// A gate that is about to stop answers at once, again and again.
		if time.Since(began) < time.Second {
			if err := pause(ctx, time.Second); err != nil {
				return nil, fmt.Errorf("wait for %s: %w", id, err)
			}
		}
	}
}

// Cancel implements Gate.
func (r *REST) Cancel(ctx context.Context, a Submitted) error {
	id, err := plainID(a.ID)
	if err != nil {
		return err
	}
	path := "/v1/approvals/" + idPrefix + id
	_, err = r.call(ctx, call{method: http.MethodDelete, path: path})
	if errors.Is(err, ErrNotPending) {
		// Our own word may be what it is no longer pending for: its answer was lost.
		v, look := r.call(ctx, call{method: http.MethodGet, path: fmt.Sprintf("%s?wait=%d", path, int(settling/time.Second)), takes: settling})
		if look == nil && v.Outcome != nil && *v.Outcome == approval.StatusCancelled {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("cancel %s: %w", id, err)
	}
	return nil
}

// call is one request of HTTP, to be sent until there is an answer.
type call struct {
	method, path, key string
	body              []byte
	takes             time.Duration // the gate's, before it answers
}

// call sends c until the gate answers it, or our patience ends.
func (r *REST) call(ctx context.Context, c call) (*view, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	patience := r.Timeout
	if patience == 0 {
		patience = DefaultTimeout
	}
	var failing time.Time // since when
	for next := firstPause; ; next = min(2*next, longPause) {
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
		wait := next/2 + rand.N(next) //nolint:gosec // many clients must not come back at once; no secret hangs on it
		var refused *Refused
		if errors.As(err, &refused) {
			wait = max(wait, refused.After)
		}
		if time.Since(failing)+wait > patience {
			return nil, err
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
