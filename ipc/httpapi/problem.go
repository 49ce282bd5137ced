package httpapi

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// Problem is an error as clients get it: problem details, RFC 9457.
type Problem struct {
	Type   string `json:"type" doc:"Always about:blank: the status is the kind of problem." example:"about:blank"`
	Title  string `json:"title" doc:"The status in words." example:"Not Found"`
	Status int    `json:"status" doc:"The HTTP status." example:"404"`
	Detail string `json:"detail" doc:"One sentence on what is wrong." example:"approval not found"`
	Hint   string `json:"hint,omitempty" doc:"What to do, only at a Unix socket of the daemon."`
	// Refusal says why a decision of a local caller was refused.
	Refusal *Refusal `json:"refusal,omitempty" doc:"Why a decision was refused, only at a Unix socket of the daemon."`

	after time.Duration // Retry-After; 0: none
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(p.after/time.Second)))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="permesso"`)
	}
	return h
}

// Refusal is an decide.Refusal in a Problem.
type Refusal struct {
	Reason  string    `json:"reason"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Verdict string    `json:"verdict,omitempty"`
	Hint    string    `json:"hint,omitempty"`
}

// NewProblem returns a problem for the result of a LocalOperation.
func NewProblem(status int, detail string) *Problem { return problem(status, detail) }

const problemType = "application/problem+json"

func problem(status int, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

func (p *Problem) retry(after time.Duration) *Problem {
	p.after = after
	return p
}

// write writes the problem without huma.
func (p *Problem) write(w http.ResponseWriter) {
	b, err := json.Marshal(p)
	if err != nil {
		b = []byte("{}")
	}
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(b)
}

// humaHooks sets global variables of the library, once per process: errors without
// values, and exact matching of names.
var humaHooks = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		for _, err := range errs {
			if d, ok := errors.AsType[*huma.ErrorDetail](err); ok && d.Location == "path.id" {
				return problem(http.StatusNotFound, detailNotFound) // no approval has such an id
			}
			if detail := detailOf(err); detail != "" {
				msg = detail
				break
			}
		}
		if status >= http.StatusInternalServerError {
			msg = "internal error: see the daemon's log" // the client must not see it
		}
		return problem(status, msg)
	}
})

// detailOf is a validator's message without the invalid value. It contains the name of a
// key only if that looks like one of ours, possibly misspelled.
func detailOf(err error) string {
	var d *huma.ErrorDetail
	if !errors.As(err, &d) {
		return ""
	}
	where := d.Location
	if len(where) > 60 || strings.Trim(where, "abcdefghijklmnopqrstuvwxyz_.[]-0123456789") != "" {
		where = "body"
	}
	where = strings.TrimPrefix(where, "body.")
	if where == "body" || where == "" {
		return d.Message
	}
	return where + ": " + d.Message
}

// Sentences that existing clients match.
const (
	detailBadKey     = "Invalid API key"
	detailNotFound   = "approval not found"
	detailNotPending = "approval not pending"
	detailExpired    = "approval expired"
	detailChanged    = "the approval changed since it was shown: get it again"
	detailNoRule     = "rule not found"
)

// submitProblem is the HTTP problem for a refused submission.
func (s *Server) submitProblem(err error) *Problem {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(approval.ErrMalformed):
		return problem(http.StatusUnprocessableEntity, strings.TrimPrefix(err.Error(), approval.ErrMalformed.Error()+": "))
	case is(store.ErrRefused):
		return problem(http.StatusRequestEntityTooLarge, err.Error())
	case is(submit.ErrLimitReached):
		return problem(http.StatusTooManyRequests, err.Error()).retry(5 * time.Second)
	case is(submit.ErrDegraded):
		return problem(http.StatusServiceUnavailable, err.Error()).retry(5 * time.Second)
	case is(submit.ErrPaused):
		return problem(http.StatusServiceUnavailable, err.Error()+": retry with the same Idempotency-Key").retry(5 * time.Second)
	case is(submit.ErrIDTaken):
		return problem(http.StatusUnprocessableEntity, "this Idempotency-Key was used with another body")
	case is(submit.ErrWorkspaceRefused):
		return problem(http.StatusForbidden, err.Error())
	}
	s.logError("submit request failed", err)
	return problem(http.StatusServiceUnavailable, "the request was not stored: retry with the same Idempotency-Key").retry(5 * time.Second)
}

// internalError logs an error and hides it from the client.
func (s *Server) internalError(what string, err error) *Problem {
	s.logError(what, err)
	return problem(http.StatusInternalServerError, "internal error: see the daemon's log")
}

func (s *Server) logError(what string, err error) {
	if s.errorLimiter.AllowN(s.Now(), 1) {
		s.Log.Error().Str("via", "rest").Err(err).Msg(what)
	}
}
