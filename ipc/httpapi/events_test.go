package httpapi_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stream is a client that follows events.
type stream struct {
	resp   *http.Response
	events chan streamEvent
}

// follow opens a stream; last is its Last-Event-ID, "" for none.
func (h *rig) follow(key, last string) *stream {
	h.t.Helper()
	r, err := http.NewRequest("GET", h.base+"/v1/events", nil)
	require.NoError(h.t, err)
	r.Header.Set("Authorization", "Bearer "+h.secret(key))
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := h.web.Do(r) //nolint:bodyclose // close does
	require.NoError(h.t, err)
	require.Equal(h.t, http.StatusOK, resp.StatusCode)
	require.Equal(h.t, "text/event-stream", resp.Header.Get("Content-Type"))
	s := &stream{resp, make(chan streamEvent, 1000)}
	go s.read()
	h.t.Cleanup(s.close)
	return s
}

func (s *stream) read() {
	defer close(s.events)
	in := bufio.NewScanner(s.resp.Body)
	var e streamEvent
	for in.Scan() {
		name, text, _ := strings.Cut(in.Text(), ": ")
		switch name {
		case "id":
			e.id = text
		case "event":
			e.event = text
		case "data":
			e.data = text
		case "":
			if e.id != "" {
				s.events <- e
			}
			e = streamEvent{}
		}
	}
}

func (s *stream) close() { _ = s.resp.Body.Close() }

func (s *stream) next(t *testing.T) streamEvent {
	t.Helper()
	select {
	case e, ok := <-s.events:
		require.True(t, ok, "the stream ended")
		return e
	case <-time.After(time.Minute):
		require.Fail(t, "no event within a minute")
		return streamEvent{}
	}
}

func TestEventsOfOwnRequests(t *testing.T) {
	h := newRig(t)
	own, all := h.follow("agent", ""), h.follow("ann", "")
	othersID := h.askAs("another")
	id := h.ask()
	e := own.next(t)
	require.Contains(t, e.data, id, "requests of other clients are not visible")
	require.Contains(t, all.next(t).data, othersID, "a key that decides sees the whole workspace")
	require.Contains(t, all.next(t).data, id)
	require.Equal(t, 200, h.do("ann", "POST", path(id, "/decision"), code("1")).StatusCode)
	require.Equal(t, "approved", own.next(t).event)
	last := own.next(t)
	require.Equal(t, "executed", last.event)
	require.NotContains(t, last.data, "hi", "an event contains no arguments")

	// Reconnect after the first event: missed events come, and none twice.
	own.close()
	again := h.follow("agent", e.id)
	require.Equal(t, "approved", again.next(t).event)
	require.Equal(t, last, again.next(t))
	future := h.follow("agent", "999999999")
	next := h.ask()
	require.Contains(t, future.next(t).data, next, "an unknown event number means: only new events")

	h.newKey("elsewhere", other, "", "read")
	silent := h.follow("elsewhere", "")
	h.ask()
	h.revoke("agent")
	h.askAs("another")
	select {
	case e := <-silent.events:
		require.Fail(t, "an event of another workspace", "%v", e)
	default:
	}
}

// TestRevokedKeyStopsAtOnce revokes keys of clients that wait.
func TestRevokedKeyStopsAtOnce(t *testing.T) {
	h := newRig(t)
	h.newKey("watch", home, "", "read")
	s := h.follow("watch", "")
	id := h.ask()
	require.Contains(t, s.next(t).data, id)
	done := make(chan answer, 1)
	go func() { done <- h.do("agent", "GET", path(id, "?wait=60"), nil) }()
	require.Eventually(t, func() bool {
		return strings.Contains(string(h.do("watch", "GET", "/metrics", nil).body), "permesso_rest_waiting_clients 1")
	}, time.Minute, 5*time.Millisecond)
	h.revoke("watch")
	h.revoke("agent")
	require.Equal(t, 200, h.do("ann", "POST", path(id, "/decision"), code("1")).StatusCode)
	h.requireProblem(h.receive(done), 401, "Invalid API key")
	for e := range s.events {
		require.Fail(t, "an event for a key that was revoked", "%v", e)
	}
}

// receive returns a response that another goroutine waits for.
func (h *rig) receive(done <-chan answer) answer {
	h.t.Helper()
	select {
	case a := <-done:
		return a
	case <-time.After(time.Minute):
		require.Fail(h.t, "no response within a minute")
		return answer{}
	}
}

// TestWaiting checks that waiting clients are woken when the request has ended, and not
// before.
func TestWaiting(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	id := h.ask()
	began := time.Now()
	a := h.do("agent", "GET", path(id, "?wait=1"), nil)
	require.Equal(t, "pending", a.json["status"])
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	done := make(chan answer, 3)
	for range 3 {
		go func() { done <- h.do("agent", "GET", path(id, "?wait=60"), nil) }()
	}
	require.Equal(t, 200, h.do("ann", "POST", path(id, "/decision"), code("3")).StatusCode)
	began = time.Now()
	for range 3 {
		a := h.receive(done)
		require.Equal(t, "denied", a.json["status"])
		require.Equal(t, "Denied by user", a.json["error"])
	}
	require.Less(t, time.Since(began), 50*time.Second, "not by the timer")
	require.Equal(t, 422, h.do("agent", "GET", path(id, "?wait=61"), nil).StatusCode)
	require.Equal(t, 422, h.do("agent", "GET", path(id, "?wait=-1"), nil).StatusCode)
}

// TestShutdownAnswersWaitingClients stops the server while clients wait.
func TestShutdownAnswersWaitingClients(t *testing.T) {
	closing := make(chan func(), 1)
	h := newRig(t, func(h *rig) { h.closing = closing })
	id := h.ask()
	s := h.follow("agent", "")
	done := make(chan answer, 1)
	go func() { done <- h.do("agent", "GET", path(id, "?wait=60"), nil) }()
	require.Eventually(t, func() bool {
		h.newKey("watch", home, "", "read")
		return strings.Contains(string(h.do("watch", "GET", "/metrics", nil).body), "permesso_rest_waiting_clients 1")
	}, time.Minute, 5*time.Millisecond)
	began := time.Now()
	(<-closing)()
	require.Equal(t, "pending", h.receive(done).json["status"])
	for range s.events {
	}
	require.Less(t, time.Since(began), 50*time.Second, "not by the timer")
}
