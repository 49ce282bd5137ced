package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// newHTTPRig is a home with a tool that posts to srv with a secret.
func newHTTPRig(t *testing.T, srv *httptest.Server, outcome, extra string) *rig {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("hunter2hunter2\n"), 0o600))
	return newRig(t, "default", fmt.Sprintf(`
[tools.post]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
summary = "{text}"
[tools.post.handler]
kind = "http"
method = "POST"
url = "%s/v1/boards/{board}/posts"
body = '{"text":{text}}'
secret_headers = { Authorization = "Bearer %s" }
allow_private = ["%s"]
%s
[[rules]]
match = { tool = "post" }
outcome = %q
`, srv.URL, token, srv.Listener.Addr(), extra, outcome))
}

// A tool of kind http in the real daemon: approved, sent once as it was shown. The
// response does not contain the secret.
func TestHTTPToolEndToEnd(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- r.Method + " " + r.RequestURI + " " + r.Header.Get("Authorization") + " " + string(b)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":9007199254740993,"as":"`+r.Header.Get("Authorization")+`"}`)
	}))
	t.Cleanup(srv.Close)
	h := newHTTPRig(t, srv, "ask", "")
	d := h.serve()
	id := h.ask(`{"tool_name":"post","request_data":{"text":"Meeting at 5","board":"team a"}}`)
	h.awaitPending("default", id)
	pending, err := os.ReadFile(filepath.Join(h.layout.Pendings("default"), id+".json"))
	require.NoError(t, err)
	require.Contains(t, string(pending), `"target":"`+srv.Listener.Addr().String()+`"`, "the card shows the target")
	require.Empty(t, got, "nothing is sent before the approval")
	code, _, said := h.run("", "approve", id)
	require.Zero(t, code, said)
	r := h.response(id)
	require.Equal(t, approval.StatusApproved, r.Status)
	require.Equal(t, `{"status":201,"body":{"id":9007199254740993,"as":"Bearer [redacted: secret of 14 characters]"}}`, string(r.Result)) //nolint:testifylint // byte for byte
	require.Equal(t, `POST /v1/boards/team%20a/posts Bearer hunter2hunter2 {"text":"Meeting at 5"}`, <-got)

	r = h.response(h.ask(`{"tool_name":"post","request_data":{"text":"x","board":"../admin"}}`))
	require.Equal(t, approval.StatusAutoRejected, r.Status, "no person is asked")
	require.Contains(t, *r.Error, "argument board, \"../admin\", becomes part of a URL's path")
	d.stop()
	require.Empty(t, got)
	require.NotContains(t, d.logged(), "hunter2")
	require.NotContains(t, d.logged(), "Meeting")
}

// If the daemon is killed before the HTTP response, the outcome is unknown: the
// request is interrupted and not sent again. An idempotent request is sent once
// more with the same key.
func TestKilledHTTPRequestIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		why, extra string
		sent       int32
		status     approval.Status
	}{
		{"not idempotent: sent once", "", 1, approval.StatusInterrupted},
		{"idempotent: sent once more with the same key", "idempotent = true", 2, approval.StatusAutoApproved},
	} {
		t.Run(row.why, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int32
			asked := make(chan string, 10)
			ctx, release := context.WithCancel(t.Context())
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := sent.Add(1)
				asked <- r.Header.Get("Idempotency-Key")
				if n == 1 {
					<-ctx.Done()
				}
				_, _ = io.WriteString(w, "done")
			}))
			t.Cleanup(srv.Close)
			t.Cleanup(release)
			h := newHTTPRig(t, srv, "allow", row.extra)
			d := h.serve()
			id := h.ask(`{"tool_name":"post","request_data":{"text":"x","board":"b"}}`)
			key := <-asked
			require.Equal(t, row.extra != "", key == id)
			d.kill()
			d = h.serve()
			r := h.response(id)
			require.Equal(t, row.status, r.Status)
			if row.sent == 2 {
				require.Equal(t, key, <-asked)
			}
			d.stop()
			require.Equal(t, row.sent, sent.Load())
		})
	}
}

// On SIGTERM the daemon waits for the HTTP response, as it waits for commands.
func TestShutdownWaitsForTheHTTPResponse(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(srv.Close)
	h := newHTTPRig(t, srv, "allow", "")
	d := h.serve()
	id := h.ask(`{"tool_name":"post","request_data":{"text":"x","board":"b"}}`)
	<-asked
	d.signal(syscall.SIGTERM)
	close(answer)
	require.NoError(t, d.awaitExit())
	require.JSONEq(t, `{"status":200,"body":"done"}`, string(h.response(id).Result))
}
