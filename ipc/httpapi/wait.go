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

// Thousands may wait at once, so whoever waits stands as near to the door as can
// be: what the library puts on a stack and keeps meanwhile would be most of the
// memory. It still declares the operation, and answers everybody who does not wait.

const onePath = "/v1/approvals/"

// patient says whether a request is one to wait for, and for how long.
func patient(r *http.Request, k *approval.APIKey) (id string, wait time.Duration, ok bool) {
	id, ok = strings.CutPrefix(r.URL.Path, onePath)
	bare, named := strings.CutPrefix(id, idPrefix)
	if r.Method != http.MethodGet || !ok || !named || !approval.ValidID(bare) || !slices.ContainsFunc(lookers(), k.Can) {
		return "", 0, false
	}
	text, ok := strings.CutPrefix(r.URL.RawQuery, "wait=")
	n, err := strconv.ParseUint(text, 10, 8)
	if !ok || err != nil || n == 0 || n > uint64(longestWait/time.Second) {
		return "", 0, false // what is wrong with it the library tells
	}
	return id, time.Duration(n) * time.Second, true
}

// waitFor answers once a request is over, or its time.
func (s *Server) waitFor(w http.ResponseWriter, r *http.Request, k *approval.APIKey, id string, wait time.Duration) {
	a, err := s.awaited(r.Context(), k, id, wait)
	var p *Problem
	switch {
	case errors.As(err, &p):
		p.write(w)
		return
	case err != nil: // whoever waited has gone
		return
	}
	b, err := marshal(a)
	if err != nil {
		s.broken("encode "+id, err).write(w)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(b) //nolint:gosec // JSON, and called so: no browser makes a page of it
}

func (s *Server) awaited(ctx context.Context, k *approval.APIKey, id string, wait time.Duration) (*Approval, error) {
	key := approval.Key{Workspace: k.Workspace, ID: strings.TrimPrefix(id, idPrefix)}
	defer s.Metrics.waits()()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for last := false; ; {
		woken, leave := s.hub.join(key)
		_, a, err := s.find(ctx, k, id) // after joining: nothing is missed in between
		if err != nil || a.over || last {
			leave()
			return a, err
		}
		select {
		case <-woken:
		case <-timer.C:
			last = true
		case <-s.quit:
			last = true
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
		leave()
		if !s.still(k) {
			return nil, problem(http.StatusUnauthorized, sayBadKey)
		}
	}
}
