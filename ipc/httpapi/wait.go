package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Thousands of requests may wait at once, so they bypass the library: its stack and state
// would use most of the memory. The library still declares the operation, and answers
// requests that do not wait.

const onePath = "/v1/approvals/"

// parseWait reports whether a request waits for an end, and how long.
func parseWait(r *http.Request, k *approval.APIKey) (id string, wait time.Duration, ok bool) {
	id, ok = strings.CutPrefix(r.URL.Path, onePath)
	bare, named := strings.CutPrefix(id, idPrefix)
	if r.Method != http.MethodGet || !ok || !named || !approval.ValidID(bare) || !slices.ContainsFunc(readScopes(), k.Can) {
		return "", 0, false
	}
	text, ok := strings.CutPrefix(r.URL.RawQuery, "wait=")
	n, err := strconv.ParseUint(text, 10, 8)
	if !ok || err != nil || n == 0 || n > uint64(longestWait/time.Second) {
		return "", 0, false // the library reports the error
	}
	return id, time.Duration(n) * time.Second, true
}

// waitFor answers once the request has ended, or wait is over.
func (s *Server) waitFor(w http.ResponseWriter, r *http.Request, k *approval.APIKey, id string, wait time.Duration) {
	a, err := s.waitForEnd(r.Context(), k, id, wait)
	var p *Problem
	switch {
	case errors.As(err, &p):
		p.write(w)
		return
	case err != nil: // the client has disconnected
		return
	}
	b, err := marshal(a)
	if err != nil {
		s.internalError("encode response failed: "+id, err).write(w)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(b) //nolint:gosec // typed as JSON: no browser renders it
}

func (s *Server) waitForEnd(ctx context.Context, k *approval.APIKey, id string, wait time.Duration) (*Approval, error) {
	key := approval.Key{Workspace: k.Workspace, ID: strings.TrimPrefix(id, idPrefix)}
	defer s.Metrics.countWaiting()()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for last := false; ; {
		woken, unsubscribe := s.hub.subscribe(key)
		_, a, err := s.find(ctx, k, id) // after subscribing: no change is missed
		if err != nil || a.hasEnded || last {
			unsubscribe()
			return a, err
		}
		select {
		case <-woken:
		case <-timer.C:
			last = true
		case <-s.quit:
			last = true
		case <-ctx.Done():
			unsubscribe()
			return nil, ctx.Err()
		}
		unsubscribe()
		if !s.stillValid(k) {
			return nil, problem(http.StatusUnauthorized, detailBadKey)
		}
	}
}
