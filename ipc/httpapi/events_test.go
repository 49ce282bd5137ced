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
	resp  *http.Response
	lines chan line
}

// follow opens a stream; last is its Last-Event-ID, "" for none.
func (h *house) follow(key, last string) *stream {
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
	s := &stream{resp, make(chan line, 1000)}
	go s.read()
	h.t.Cleanup(s.close)
	return s
}

func (s *stream) read() {
	defer close(s.lines)
	in := bufio.NewScanner(s.resp.Body)
	var e line
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
				s.lines <- e
			}
			e = line{}
		}
	}
}

func (s *stream) close() { _ = s.resp.Body.Close() }

func (s *stream) next(t *testing.T) line {
	t.Helper()
	select {
	case e, ok := <-s.lines:
		require.True(t, ok, "the stream ended")
		return e
	case <-time.After(10 * time.Second):
		require.Fail(t, "no event came")
		return line{}
	}
}
