package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

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
	// Silent is called at most once by a call, if no gate answers within two seconds: see
	// Silence. nil: it is not told.
	Silent func(tried string) `json:"-"`

	once sync.Once
	base string // URL before all paths
	web  *http.Client
	err  error

	answered atomic.Bool // a gate has answered
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

const (
	idPrefix      = "appr_"
	approvalsPath = "/v1/approvals"
)

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
	v, err := r.call(ctx, call{method: http.MethodPost, path: approvalsPath, key: key, body: body})
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
	others := *q
	others.RequestID, others.RequestData = "", nil
	b, err := json.Marshal(others, json.OmitZeroStructFields(true))
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
	wait := pollTime(ctx)
	if r.Silent != nil && !r.answered.Load() {
		wait = 0 // the first answer comes at once: it shows that there is a gate
	}
	for ; ; wait = pollTime(ctx) {
		c := call{method: http.MethodGet, path: approvalsPath + "/" + idPrefix + id, serverWait: wait}
		if wait > 0 {
			c.path += "?wait=" + strconv.Itoa(int(wait/time.Second))
		}
		began := time.Now()
		v, err := r.call(ctx, c)
		if err == nil {
			err = v.checkMatches(a)
		}
		if s, ok := errors.AsType[*Silence](err); ok && r.answered.Load() {
			err = s.Err
		}
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if v.Outcome != nil {
			return v.response(id), nil
		}
		// A gate that is shutting down answers at once every time.
		if wait > 0 && time.Since(began) < time.Second {
			if err := sleep(ctx, time.Second); err != nil {
				return nil, fmt.Errorf("wait for %s: %w", id, err)
			}
		}
	}
}

// Look says what is known of a request.
func (r *REST) Look(ctx context.Context, a Submitted) (View, error) {
	id, err := plainID(a.ID)
	if err != nil {
		return View{}, err
	}
	a.ID = id
	v, err := r.call(ctx, call{method: http.MethodGet, path: approvalsPath + "/" + idPrefix + id})
	if err == nil {
		err = v.checkMatches(a)
	}
	if err != nil {
		return View{}, fmt.Errorf("look for %s: %w", id, err)
	}
	look := View{Approvers: v.Approvers}
	if v.Outcome != nil {
		look.Response = v.response(id)
	}
	if v.ExpiresAt != nil {
		look.Until = time.Unix(*v.ExpiresAt, 0)
	}
	return look, nil
}

// pollTime is how long the gate may wait for an end before it answers.
func pollTime(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(longPoll, max(time.Until(end), time.Second))
	}
	return longPoll
}

// Cancel implements Client.
func (r *REST) Cancel(ctx context.Context, a Submitted) error {
	status, err := r.CancelBecause(ctx, a, "")
	if status == approval.StatusCancelled {
		return nil // perhaps by our own DELETE, with its response lost
	}
	return err
}

// CancelBecause cancels a pending request, with a reason or "". It returns how the request has
// ended: by this cancel, or otherwise before, with an error. Without a status ErrNotPending
// means that it is decided, but has not ended.
func (r *REST) CancelBecause(ctx context.Context, a Submitted, reason string) (approval.Status, error) {
	id, err := plainID(a.ID)
	if err != nil {
		return "", err
	}
	path := approvalsPath + "/" + idPrefix + id
	query := ""
	if reason != "" {
		query = "?reason=" + url.QueryEscape(reason)
	}
	_, err = r.call(ctx, call{method: http.MethodDelete, path: path + query})
	if err == nil {
		return approval.StatusCancelled, nil
	}
	if errors.Is(err, ErrNotPending) {
		v, getErr := r.call(ctx, call{method: http.MethodGet, path: fmt.Sprintf("%s?wait=%d", path, int(settleTime/time.Second)), serverWait: settleTime})
		if getErr == nil && v.Outcome != nil {
			return *v.Outcome, fmt.Errorf("cancel %s: %w", id, err)
		}
	}
	return "", fmt.Errorf("cancel %s: %w", id, err)
}

// Find lists the requests of this key whose id begins with typed, ended ones too.
func (r *REST) Find(ctx context.Context, typed string) (ids []string, err error) {
	body, err := r.exchange(ctx, call{method: http.MethodGet, path: approvalsPath + "?id=" + url.QueryEscape(typed)})
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", typed, err)
	}
	var page struct {
		Items []view `json:"items"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, fmt.Errorf("%w: the response is no list", ErrNoGate)
	}
	for _, v := range page.Items {
		if id, err := plainID(v.ApprovalID); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// call is one HTTP request, which is sent until there is a response.
type call struct {
	method, path, key string
	body              []byte
	serverWait        time.Duration // the gate's waiting time before it answers
}

// call is exchange for a call whose answer is a request.
func (r *REST) call(ctx context.Context, c call) (*view, error) {
	body, err := r.exchange(ctx, c)
	if err != nil {
		return nil, err
	}
	return readView(body)
}

// exchange sends c until the gate answers, or the timeout is over. It returns the body of the
// answer.
func (r *REST) exchange(ctx context.Context, c call) ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	told := r.Silent == nil
	last := "no answer from " + r.base // what the last complete attempt says
	tell := func() {
		mu.Lock()
		defer mu.Unlock()
		if !told {
			told = true
			r.Silent(last)
		}
	}
	timer := time.AfterFunc(patience+c.serverWait, tell)
	defer func() {
		timer.Stop()
		mu.Lock() // after the return it is not called
		defer mu.Unlock()
		told = true
	}()
	timeout := cmp.Or(r.Timeout, DefaultTimeout)
	var failing time.Time // time of the first failure
	for next := minRetryDelay; ; next = min(2*next, maxRetryDelay) {
		began := time.Now()
		body, err := r.send(ctx, c)
		if err == nil || !errors.Is(err, ErrUnreachable) {
			r.answered.Store(true)
			return body, err
		}
		if ctx.Err() == nil || time.Since(began) >= patience { // else the attempt was too short to say anything
			mu.Lock()
			last = tried(err)
			mu.Unlock()
		}
		if ctx.Err() != nil {
			return nil, &Silence{last, ctx.Err()}
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		if time.Since(failing) >= patience {
			tell()
		}
		wait := next/2 + rand.N(next) //nolint:gosec // jitter for many clients, not a secret
		if refused, ok := errors.AsType[*Refused](err); ok {
			wait = max(wait, refused.After)
		}
		if time.Since(failing)+wait > timeout {
			return nil, err
		}
		if sleep(ctx, wait) != nil {
			return nil, &Silence{last, ctx.Err()}
		}
	}
}

// tried says of an error that wraps ErrUnreachable what did not answer.
func tried(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok && u.Timeout() {
		return "no answer from " + u.URL
	}
	return strings.TrimPrefix(err.Error(), ErrUnreachable.Error()+": ")
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

// send sends c once. An error that a retry may fix wraps ErrUnreachable.
func (r *REST) send(ctx context.Context, c call) ([]byte, error) {
	attempt, cancel := context.WithTimeout(ctx, c.serverWait+2*grace)
	defer cancel()
	req, err := http.NewRequestWithContext(attempt, c.method, r.base+c.path, bytes.NewReader(c.body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	req.Header.Set("Authorization", "Bearer "+r.Key)
	req.Header.Set("Accept", "application/json")
	if c.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if len(c.body) > largeBody {
		req.Header.Set("Expect", "100-continue") // a gate that refuses the request does not read its body
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	resp, err := r.web.Do(req)
	if err != nil {
		return nil, r.connectionError(attempt, ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, r.connectionError(attempt, ctx, err)
	case len(body) > maxResponse:
		return nil, errors.New("the response is too large")
	case resp.StatusCode >= 400:
		return nil, parseRefusal(resp, body)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated:
		return nil, fmt.Errorf("%w: status %d", ErrNoGate, resp.StatusCode)
	}
	return body, nil
}

// connectionError is the error of a missing or incomplete response. The timeout of one
// attempt must not look like the caller's.
func (r *REST) connectionError(attempt, caller context.Context, err error) error {
	if attempt.Err() != nil && caller.Err() == nil {
		return fmt.Errorf("%w: no answer from %s", ErrUnreachable, r.URL)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, &plainError{r.said(err), err})
}

// plainError is an error of the network in words for people.
type plainError struct {
	text string
	err  error
}

// Error implements error.
func (e *plainError) Error() string { return e.text }

func (e *plainError) Unwrap() error { return e.err }

// said is what an error of the network means.
func (r *REST) said(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return "nothing listens at " + r.URL
	case errors.As(err, &dns):
		return "there is no host " + dns.Name
	case errors.Is(err, fs.ErrPermission):
		return "this user may not connect to " + r.URL
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return r.URL + " closed the connection before it had answered"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "there is no way to " + r.URL
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "no answer from " + r.URL
	}
	return "what answers at " + r.URL + " does not speak HTTP as a gate does"
}

// parseRefusal reads an error response. Text from another server is not repeated.
func parseRefusal(resp *http.Response, body []byte) *Refused {
	e := &Refused{Status: resp.StatusCode, Detail: http.StatusText(resp.StatusCode), After: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	var problem struct {
		Detail string `json:"detail"`
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "application/problem+json" && json.Unmarshal(body, &problem) == nil && problem.Detail != "" {
		e.Detail = oneLine(problem.Detail)
	}
	return e
}

const maxDetail = 500

// oneLine is text without control characters, of limited length.
func oneLine(text string) string {
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + "…"
	}
	return text
}

// retryAfter reads both forms of the header; 0: none.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 1<<20 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// view is a request as the HTTP API returns it, with the members that a client needs. A
// newer gate may send more.
type view struct {
	ApprovalID       string                     `json:"approval_id"`
	Outcome          *approval.Status           `json:"outcome"` // null until the end
	Execution        *string                    `json:"execution"`
	Auto             bool                       `json:"auto"`
	ExpiresAt        *int64                     `json:"expires_at"`
	Approvers        []string                   `json:"approvers"`
	Log              *approval.LogHead          `json:"log"`
	Decision         *approval.ResponseDecision `json:"decision"`
	Result           approval.Raw               `json:"result"`
	Error            *string                    `json:"error"`
	Feedback         *string                    `json:"feedback"`
	RequiredResponse *string                    `json:"required_response"`
	Receipt          *string                    `json:"receipt"`
	Metadata         approval.Raw               `json:"metadata"`
}

func readView(body []byte) (*view, error) {
	v := &view{}
	if err := json.Unmarshal(body, v); err != nil || v.ApprovalID == "" {
		return nil, fmt.Errorf("%w: the response is no approval", ErrNoGate)
	}
	return v, nil
}

// checkMatches checks that this is the submitted request. An approval is valid only for
// the bytes that its receipt names.
func (v *view) checkMatches(a Submitted) error {
	if v.ApprovalID != idPrefix+a.ID {
		return ErrIDConflict
	}
	if v.Receipt == nil {
		if v.Outcome != nil && (*v.Outcome == approval.StatusApproved || *v.Outcome == approval.StatusAutoApproved) {
			return fmt.Errorf("%w: approved without a receipt", ErrIDConflict)
		}
		return nil
	}
	lines := receiptLines(*v.Receipt)
	if lines["request_id"] != a.ID || lines["program_sha256"] != a.ProgramSHA256 && a.ProgramSHA256+a.ArgsSHA256 != "" || a.ArgsSHA256 != "" && (lines["args_sha256"] != a.ArgsSHA256 || lines["tool"] != quoted(a.Tool)) {
		return fmt.Errorf("%w: the receipt is for another request", ErrIDConflict)
	}
	return nil
}

// receiptLines are the fields of a receipt. The signature is not checked: the receipt
// comes from the gate itself.
func receiptLines(receipt string) map[string]string {
	facts := map[string]string{}
	text, _, _ := strings.Cut(receipt, "\n\n")
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
			facts[name] = value
		}
	}
	return facts
}

// quoted is the name of a tool as a receipt has it; without a tool it is a quoted empty
// string.
func quoted(tool string) string { return cmp.Or(tool, `""`) }

// response converts the end to a response document. The digest of the request comes from
// the receipt; responded_at is the current time.
func (v *view) response(id string) *approval.Response {
	r := &approval.Response{
		Version: approval.Version, RequestID: id, Status: *v.Outcome, Result: v.Result, Error: v.Error, Feedback: v.Feedback,
		RequiredResponse: v.RequiredResponse, Receipt: v.Receipt, Metadata: v.Metadata, RespondedAt: time.Now().UTC(),
	}
	if v.Decision != nil {
		r.Decision = *v.Decision
	}
	r.Decision.Auto = v.Auto
	if v.Execution != nil && *v.Execution == approval.ExecutionAgent {
		r.Execution = approval.ExecutionAgent
	}
	r.Log = v.Log
	if v.Receipt != nil {
		r.RequestSHA256 = receiptLines(*v.Receipt)["request_sha256"]
	}
	return r
}
