package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
)

// send sends c once. Every error after which sending it again may help wraps
// ErrUnreachable.
func (r *REST) send(ctx context.Context, c call) (*view, error) {
	soon, cancel := context.WithTimeout(ctx, c.takes+2*grace)
	defer cancel()
	req, err := http.NewRequestWithContext(soon, c.method, r.base+c.path, bytes.NewReader(c.body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	req.Header.Set("Authorization", "Bearer "+r.Key)
	req.Header.Set("Accept", "application/json")
	if c.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if len(c.body) > large {
		req.Header.Set("Expect", "100-continue") // a gate that refuses it would not read it to its end
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	resp, err := r.web.Do(req)
	if err != nil {
		return nil, lost(soon, ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, lost(soon, ctx, err)
	case len(body) > maxResponse:
		return nil, errors.New("the response is too large")
	case resp.StatusCode >= 400:
		return nil, refusal(resp, body)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated:
		return nil, fmt.Errorf("%w: it answers %d", ErrNoGate, resp.StatusCode)
	}
	return readView(body)
}

// lost is a connection that gave no answer, or half of one. Our own deadline for
// one try must not look like the caller's.
func lost(ours, callers context.Context, err error) error {
	if ours.Err() != nil && callers.Err() == nil {
		return fmt.Errorf("%w: no answer in time", ErrUnreachable)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// refusal reads what a gate says against a request; what is no gate's is not
// repeated.
func refusal(resp *http.Response, body []byte) *Refused {
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

const longestDetail = 500

// oneLine is text that can be printed without harm.
func oneLine(text string) string {
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
	if len(text) > longestDetail {
		text = strings.ToValidUTF8(text[:longestDetail], "") + "…"
	}
	return text
}

// retryAfter reads the header in both its forms; 0 is that it says nothing.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 1<<20 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// view is a request as the gate's HTTP door shows it, as far as a client needs it.
// A gate that is newer than we are may say more.
type view struct {
	ApprovalID       string           `json:"approval_id"`
	Outcome          *approval.Status `json:"outcome"` // null until it is over
	Auto             bool             `json:"auto"`
	Decision         *choice          `json:"decision"`
	Result           approval.Raw     `json:"result"`
	Error            *string          `json:"error"`
	Feedback         *string          `json:"feedback"`
	RequiredResponse *string          `json:"required_response"`
	Receipt          *string          `json:"receipt"`
}

type choice struct {
	Code     *string `json:"code"`
	Note     *string `json:"note"`
	Override *string `json:"override"`
	By       *string `json:"by"`
	Via      *string `json:"via"`
}

func readView(body []byte) (*view, error) {
	v := &view{}
	if err := json.Unmarshal(body, v); err != nil || v.ApprovalID == "" {
		return nil, fmt.Errorf("%w: its answer is no approval", ErrNoGate)
	}
	return v, nil
}

// fits says whether this is the request that was asked for. What was approved is
// so for the bytes that its receipt names, and for no others.
func (v *view) fits(a Submitted) error {
	if v.ApprovalID != idPrefix+a.ID {
		return ErrIDConflict
	}
	if v.Receipt == nil {
		if v.Outcome != nil && (*v.Outcome == approval.StatusApproved || *v.Outcome == approval.StatusAutoApproved) {
			return fmt.Errorf("%w: it was approved without a receipt", ErrIDConflict)
		}
		return nil
	}
	lines := receiptLines(*v.Receipt)
	if lines["request_id"] != a.ID || a.ArgsSHA256 != "" && (lines["args_sha256"] != a.ArgsSHA256 || lines["tool"] != quoted(a.Tool)) {
		return fmt.Errorf("%w: its receipt is for something else", ErrIDConflict)
	}
	return nil
}

// receiptLines are the facts of a receipt, as they are written. The signature is
// not looked at: it is for those who do not have it from the gate itself.
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

// quoted is how a receipt writes the name of a tool; none is the empty text.
func quoted(tool string) string {
	if tool == "" {
		return `""`
	}
	return tool
}

// response is the same end in the words of a response file. Where the gate gives
// no digest of the request, the receipt does; responded_at is when we heard of it.
func (v *view) response(id string) *approval.Response {
	r := &approval.Response{
		Version: approval.Version, RequestID: id, Status: *v.Outcome, Result: v.Result, Error: v.Error, Feedback: v.Feedback,
		RequiredResponse: v.RequiredResponse, Receipt: v.Receipt, RespondedAt: time.Now().UTC(),
		Decision: approval.ResponseDecision{Auto: v.Auto},
	}
	if c := v.Decision; c != nil {
		r.Decision = approval.ResponseDecision{Code: c.Code, Note: c.Note, Override: c.Override, By: c.By, Via: c.Via, Auto: v.Auto}
	}
	if v.Receipt != nil {
		r.RequestSHA256 = receiptLines(*v.Receipt)["request_sha256"]
	}
	return r
}
