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

// send sends c once. An error that a retry may fix wraps ErrUnreachable.
func (r *REST) send(ctx context.Context, c call) (*view, error) {
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
		return nil, connectionError(attempt, ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, connectionError(attempt, ctx, err)
	case len(body) > maxResponse:
		return nil, errors.New("the response is too large")
	case resp.StatusCode >= 400:
		return nil, parseRefusal(resp, body)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated:
		return nil, fmt.Errorf("%w: status %d", ErrNoGate, resp.StatusCode)
	}
	return readView(body)
}

// connectionError is the error of a missing or incomplete response. The timeout of one
// attempt must not look like the caller's.
func connectionError(attempt, caller context.Context, err error) error {
	if attempt.Err() != nil && caller.Err() == nil {
		return fmt.Errorf("%w: timeout", ErrUnreachable)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
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
	Auto             bool                       `json:"auto"`
	Decision         *approval.ResponseDecision `json:"decision"`
	Result           approval.Raw               `json:"result"`
	Error            *string                    `json:"error"`
	Feedback         *string                    `json:"feedback"`
	RequiredResponse *string                    `json:"required_response"`
	Receipt          *string                    `json:"receipt"`
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
	if lines["request_id"] != a.ID || a.ArgsSHA256 != "" && (lines["args_sha256"] != a.ArgsSHA256 || lines["tool"] != quoted(a.Tool)) {
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
func quoted(tool string) string {
	if tool == "" {
		return `""`
	}
	return tool
}

// response converts the end to a response document. The digest of the request comes from
// the receipt; responded_at is the current time.
func (v *view) response(id string) *approval.Response {
	r := &approval.Response{
		Version: approval.Version, RequestID: id, Status: *v.Outcome, Result: v.Result, Error: v.Error, Feedback: v.Feedback,
		RequiredResponse: v.RequiredResponse, Receipt: v.Receipt, RespondedAt: time.Now().UTC(),
	}
	if v.Decision != nil {
		r.Decision = *v.Decision
	}
	r.Decision.Auto = v.Auto
	if v.Receipt != nil {
		r.RequestSHA256 = receiptLines(*v.Receipt)["request_sha256"]
	}
	return r
}
