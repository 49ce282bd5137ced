package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/ipc/service"
)

// Thousands of requests may wait at once, so they bypass the library: its stack and state
// would use most of the memory. The library still declares the operation, and answers
// requests that do not wait.

const onePath = "/v1/approvals/"

// parseWait reports whether a request waits for an end, and how long.
func parseWait(r *http.Request, k *apikey.Key) (id string, wait time.Duration, ok bool) {
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
func (s *Server) waitFor(w http.ResponseWriter, r *http.Request, k *apikey.Key, id string, wait time.Duration) {
	stop := s.Metrics.countWaiting()
	st, err := s.Wait(r.Context(), s.clientOf(k), bareID(id), wait, s.quit)
	stop()
	if r.Context().Err() != nil {
		return // the client has disconnected
	}
	if errors.Is(err, service.ErrRevoked) {
		problem(http.StatusUnauthorized, detailBadKey).write(w)
		return
	}
	a, err := s.reply(k, id, st, err)
	if p := (*Problem)(nil); errors.As(err, &p) {
		p.write(w)
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
