package gate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// apiClient is the origin of a client with an API key.
var apiClient = submit.Origin{ClientID: "0123456789ab"}

// submit submits a request.
func (h *rig) submit(k approval.Key, body string, from submit.Origin) (repeated bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	taken, err := h.gate.Submit(ctx, k, []byte(body), from)
	return taken.Repeated, err
}

func TestSubmitIsIntake(t *testing.T) {
	for _, tt := range []struct {
		why, tool, want string
		doc             approval.Doc
	}{
		{"an ask is accepted when P exists", "run", "none", approval.DocPending},
		{"an allowed request runs", "auto", "auto_approved", approval.DocRecord},
		{"a denied request has a record", "never", "auto_rejected: Denied by policy: rule_deny rule=never words=no", approval.DocRecord},
	} {
		t.Run(tt.why, func(t *testing.T) {
			h := newRig(t, options{frozenClock: true, inline: true})
			repeated, err := h.submit(key(1), request(key(1), tt.tool, `{"n":1e400}`), apiClient)
			require.NoError(t, err)
			require.False(t, repeated)
			require.Equal(t, tt.want, h.outcome(key(1)))
			require.True(t, h.has(tt.doc, key(1)))
			entries, err := os.ReadDir(h.layout.Requests(personal))
			require.NoError(t, err)
			require.Empty(t, entries, "no file is written for the agent")
			repeated, err = h.submit(key(1), request(key(1), tt.tool, `{"n":1e400}`), apiClient)
			require.NoError(t, err)
			require.True(t, repeated, "the same bytes are the same request")
			require.LessOrEqual(t, len(h.executor.argsOf(key(1))), 1)
		})
	}
}

func TestSubmitRecordsClient(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true})
	owned := submit.Origin{ClientID: "0123456789ab", Principal: "ann", AskOn: "email"}
	_, err := h.submit(key(1), request(key(1), "run", ""), owned)
	require.NoError(t, err)
	p := h.pending(key(1))
	require.Equal(t, []string{"0123456789ab", "ann", "email"}, []string{p.ClientID, p.Principal, p.AskOn})

	_, err = h.submit(key(2), request(key(2), "auto", ""), owned)
	require.NoError(t, err)
	require.Equal(t, "0123456789ab", h.record(key(2)).ClientID, "the record has the client if there is no pending")
	_, err = h.submit(key(3), request(key(3), "never", ""), owned)
	require.NoError(t, err)
	require.Equal(t, "0123456789ab", h.record(key(3)).ClientID)

	h.writeRequest(key(4), request(key(4), "auto", ""))
	h.step(key(4))
	require.Empty(t, h.record(key(4)).ClientID, "no client for a request file")

	_, err = h.submit(key(5), request(key(5), "run", "", `"ask_on":"telegram"`), apiClient)
	require.ErrorIs(t, err, approval.ErrMalformed, "an agent cannot choose the channel")
}

// TestSubmitTakenID submits other requests under a used id.
func TestSubmitTakenID(t *testing.T) {
	elsewhere := submit.Origin{ClientID: "ba9876543210"}
	for _, tool := range []string{"run", "auto", "never"} {
		h := newRig(t, options{frozenClock: true, inline: true})
		body := request(key(1), tool, "")
		_, err := h.submit(key(1), body, apiClient)
		require.NoError(t, err)
		for why, other := range map[string]struct {
			body string
			from submit.Origin
		}{
			"other bytes":             {request(key(1), tool, `{"x":1}`), apiClient},
			"another client":          {body, elsewhere},
			"a request file's client": {body, submit.Origin{}},
		} {
			_, err := h.submit(key(1), other.body, other.from)
			require.ErrorIs(t, err, submit.ErrIDTaken, "%s, %s", tool, why)
		}
	}
	h := newRig(t, options{frozenClock: true, inline: true})
	_, err := h.submit(key(1), request(key(1), "run", ""), apiClient)
	require.NoError(t, err)
	_, err = h.submit(key(1), request(key(1), "run", ""), submit.Origin{ClientID: apiClient.ClientID, AskOn: "email"})
	require.ErrorIs(t, err, submit.ErrIDTaken, "asked on another channel")

	h.writeRequest(key(2), request(key(2), "run", `{"text":"squatting"}`))
	_, err = h.submit(key(2), request(key(2), "run", ""), apiClient)
	require.NoError(t, err, "the submission comes before an unread file")
	require.Equal(t, apiClient.ClientID, h.pending(key(2)).ClientID)
	require.Contains(t, h.refusals(personal), "another request under a used ID")
	h.ask(key(3), request(key(3), "run", ""))
	_, err = h.submit(key(3), request(key(3), "run", ""), apiClient)
	require.ErrorIs(t, err, submit.ErrIDTaken, "unless the file was read before")
	require.Equal(t, "ws:personal", h.pending(key(3)).ClientID)

	h.writeRequest(key(1), request(key(1), "run", `{"text":"evil"}`))
	h.step(key(1))
	require.Equal(t, apiClient.ClientID, h.pending(key(1)).ClientID, "a later file changes nothing")
	require.Contains(t, h.refusals(personal), "another request under a used ID")
}

func TestSubmitRejects(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true, limits: approval.Limits{Pending: 2, PerMinute: 6, RequestSize: 1000}})
	limited := 0
	h.gate.Limited = func(string) { limited++ }
	refused := func(k approval.Key, body string, from submit.Origin, want error) {
		t.Helper()
		_, err := h.submit(k, body, from)
		require.ErrorIs(t, err, want)
		require.Equal(t, "none", h.outcome(k), "a rejected submission leaves no record")
		require.False(t, h.has(approval.DocPending, k))
	}
	refused(key(1), `{"request_id":`, apiClient, approval.ErrMalformed)
	refused(key(1), request(key(2), "run", ""), apiClient, approval.ErrMalformed)
	refused(key(1), request(key(1), "run", `{"t":"`+strings.Repeat("x", 1000)+`"}`), apiClient, store.ErrRefused)
	refused(keyIn("nowhere", 1), request(key(1), "run", ""), apiClient, submit.ErrWorkspaceRefused)
	for n := range 2 {
		_, err := h.submit(key(10+n), request(key(10+n), "run", ""), apiClient)
		require.NoError(t, err)
	}
	require.Zero(t, limited)
	refused(key(12), request(key(12), "run", ""), apiClient, submit.ErrLimitReached)
	require.Equal(t, 1, limited)
	for range 6 {
		_, err := h.submit(key(1), "no", apiClient)
		if errors.Is(err, submit.ErrLimitReached) {
			return
		}
		require.ErrorIs(t, err, approval.ErrMalformed)
	}
	t.Fatal("refusals do not count against the workspace")
}

func TestSubmitWhilePaused(t *testing.T) {
	h := newRig(t, options{})
	h.gate.Pauses = alwaysPaused{}
	h.run(0)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := h.gate.Submit(ctx, key(1), []byte(request(key(1), "auto", "")), apiClient)
	require.ErrorIs(t, err, submit.ErrPaused, "a pause delays requests that would run")
	require.False(t, h.has(approval.DocClaim, key(1)))
	h.gate.Pauses = nil
	h.gate.Wake(key(1))
	h.waitFor(5*time.Second, "rest", h.gate.Idle)
	require.Equal(t, "none", h.outcome(key(1)), "a withdrawn submission never runs")
	_, err = h.submit(key(2), request(key(2), "run", ""), apiClient)
	require.NoError(t, err, "asking continues")
	h.Stop()
	_, err = h.submit(key(3), request(key(3), "run", ""), apiClient)
	require.ErrorIs(t, err, submit.ErrDegraded, "a stopped gate rejects at once")
}

// alwaysPaused is a pause without an end.
type alwaysPaused struct{}

func (alwaysPaused) Enter(string) bool { return false }
func (alwaysPaused) Leave(string)      {}

// TestConcurrentSubmit submits the same request many times at once: it runs once, and
// the other callers get a repetition.
func TestConcurrentSubmit(t *testing.T) {
	h := newRig(t, options{})
	h.run(0)
	const callers = 16
	for round := range 10 {
		k := key(round + 1)
		var wg sync.WaitGroup
		var mu sync.Mutex
		errs, odd := map[string]int{}, 0
		for n := range callers {
			wg.Go(func() {
				body := request(k, "auto", "")
				if n%4 == 3 {
					body = request(k, "auto", fmt.Sprintf(`{"n":%d}`, n))
				}
				_, err := h.submit(k, body, apiClient)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					odd++
					errs[err.Error()]++
				}
			})
		}
		wg.Wait()
		require.Less(t, odd, callers, "one is accepted: %v", errs)
		require.Equal(t, map[string]int{submit.ErrIDTaken.Error(): odd}, errs, "the others get ErrIDTaken")
		h.waitResponse(k, 10*time.Second)
		require.Len(t, h.executor.argsOf(k), 1)
	}
}

// watchedContext calls onWait when a caller begins to wait for its end.
type watchedContext struct {
	context.Context
	onWait func()
}

func (w watchedContext) Done() <-chan struct{} {
	w.onWait()
	return w.Context.Done()
}

// TestSubmitWhileSettling submits under an id that is just being settled, between its
// response and the end of that step. The frozen clock shows that the caller does not
// wait for the cooldown.
func TestSubmitWhileSettling(t *testing.T) {
	h := newRig(t, options{frozenClock: true})
	results := make(chan error, 1)
	var once sync.Once
	h.gate.Changed = func(k approval.Key) {
		h.changed()
		if !h.has(approval.DocResponse, k) {
			return
		}
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			waits := make(chan struct{})
			go func() {
				defer cancel()
				var begun sync.Once
				_, err := h.gate.Submit(watchedContext{ctx, func() { begun.Do(func() { close(waits) }) }}, k, []byte(request(k, "auto", `{"n":2}`)), apiClient)
				results <- err
			}()
			<-waits
		})
	}
	h.run(0)
	_, err := h.submit(key(1), request(key(1), "auto", ""), apiClient)
	require.NoError(t, err)
	require.ErrorIs(t, <-results, submit.ErrIDTaken)
	require.Len(t, h.executor.argsOf(key(1)), 1)
}

// TestSubmitWithFilesPresent: files that exist before the submission cause no new
// event, so they are handled together with it.
func TestSubmitWithFilesPresent(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true})
	h.cancel(key(1))
	_, err := h.submit(key(1), request(key(1), "run", ""), apiClient)
	require.NoError(t, err)
	require.Equal(t, "cancelled: Cancelled before a decision", h.outcome(key(1)))

	h.writeRequest(key(2), request(key(2), "run", ""))
	_, err = h.submit(key(2), request(key(2), "run", ""), apiClient)
	require.NoError(t, err)
	require.NoFileExists(t, h.requestPath(key(2)), "the same bytes")
	require.Equal(t, apiClient.ClientID, h.pending(key(2)).ClientID)
}

func TestSubmitOnFailingDisk(t *testing.T) {
	var disk error = syscall.EIO
	h := newRig(t, options{inline: true, store: func(s store.Store) store.Store {
		return hookedStore{Store: s, method: "Commit", doc: approval.DocPending, before: func(approval.Key) error { return disk }}
	}})
	_, err := h.submit(key(1), request(key(1), "run", ""), apiClient)
	require.ErrorIs(t, err, syscall.EIO)
	disk = nil
	h.step(key(1))
	require.False(t, h.has(approval.DocPending, key(1)), "a rejected submission is not asked later")
	repeated, err := h.submit(key(1), request(key(1), "run", ""), apiClient)
	require.NoError(t, err)
	require.False(t, repeated)
}

func TestClientCancels(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true})
	ctx := context.Background()
	_, err := h.submit(key(1), request(key(1), "run", ""), apiClient)
	require.NoError(t, err)
	_, err = h.gate.Cancel(ctx, key(1), submit.Origin{ClientID: "ba9876543210"}, "")
	require.ErrorIs(t, err, decide.ErrNotAuthorized)
	_, err = h.gate.Cancel(ctx, key(1), submit.Origin{}, "")
	require.ErrorIs(t, err, decide.ErrNotAuthorized, "a request file has another client")
	d, err := h.gate.Cancel(ctx, key(1), apiClient, "no longer needed")
	require.NoError(t, err)
	require.Equal(t, approval.Cancelled, d.Verdict)
	_, err = h.decider().Decide(ctx, decision(key(1), approval.Approved))
	require.ErrorIs(t, err, decide.ErrDecided, "the first decision wins")
	h.step(key(1))
	require.Equal(t, "cancelled: Cancelled before a decision", h.outcome(key(1)))
	_, err = h.gate.Cancel(ctx, key(1), apiClient, "no longer needed")
	require.ErrorIs(t, err, decide.ErrDecided)

	_, err = h.submit(key(2), request(key(2), "run", ""), apiClient)
	require.NoError(t, err)
	h.decide(decision(key(2), approval.Approved))
	_, err = h.gate.Cancel(ctx, key(2), apiClient, "")
	require.ErrorIs(t, err, decide.ErrDecided, "an approval cannot be cancelled")
	h.step(key(2))
	require.Len(t, h.executor.argsOf(key(2)), 1)
}

// A workspace without a folder takes no request file; the response says what to do. The
// same request is taken from a caller.
func TestNoRequestFiles(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true, noFolder: true})
	h.writeRequest(key(1), request(key(1), "auto", ""))
	h.step(key(1))
	require.Equal(t, "auto_rejected: folder_closed workspace=personal", h.outcome(key(1)))
	require.Empty(t, h.executor.argsOf(key(1)))
	_, err := h.submit(key(2), request(key(2), "auto", ""), apiClient)
	require.NoError(t, err)
	require.Equal(t, "auto_approved", h.outcome(key(2)))
}
