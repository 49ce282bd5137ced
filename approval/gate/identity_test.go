package gate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
)

// Arguments are bytes: they are kept, shown, recorded and run exactly as written.
func TestArgumentsAreKeptExactly(t *testing.T) {
	for _, args := range []string{
		`{"n":1e400}`,
		`{"n":9007199254740993}`, // 2^53+1
		`{"n":-0.0,"m":1E+2,"z":100000000000000000000000000000000000000001}`,
		"{ \"a\" :\t[ 1 , 2 ] }",
		`{"b":1,"a":2,"":3}`,
		`{"s":"\u0041\/\ud83d\ude00 <é>"}`,
		`{"a":` + strings.Repeat("[", 29) + strings.Repeat("]", 29) + `}`,
	} {
		t.Run(args[:min(len(args), 30)], func(t *testing.T) {
			h := newRig(t, options{inline: true})
			asked, allowed := key(1), key(2)
			h.ask(asked, request(asked, "run", args))
			require.Equal(t, args, string(h.pending(asked).RequestData))
			require.Contains(t, string(h.read(approval.DocPending, asked)), args)
			h.decide(decision(asked, approval.Approved))
			h.writeRequest(allowed, request(allowed, "auto", args))
			h.step(asked, allowed)
			for _, k := range []approval.Key{asked, allowed} {
				require.Equal(t, []string{args}, h.executor.argsOf(k))
				require.Contains(t, string(h.read(approval.DocRecord, k)), args)
				require.Contains(t, h.record(k).Receipt, approval.Digest([]byte(args)), "the receipt covers these bytes")
				require.Equal(t, approval.Digest(h.requestBytes(k, args)), h.response(k).RequestSHA256)
			}
		})
	}
}

func (h *rig) requestBytes(k approval.Key, args string) []byte {
	tool := "run"
	if k == key(2) {
		tool = "auto"
	}
	return []byte(request(k, tool, args))
}

// An id belongs to the first request that used it.
func TestOtherRequestUnderTakenID(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	first, second := request(k, "run", `{"to":"ann"}`), request(k, "run", `{"to":"mallory"}`)
	const want = "another request under a used ID: ignored"

	h.ask(k, first)
	pending := h.read(approval.DocPending, k)
	h.writeRequest(k, second)
	h.step(k)
	require.Equal(t, pending, h.read(approval.DocPending, k))
	require.False(t, h.has(approval.DocRequest, k))
	require.Contains(t, h.refusals(personal), want)
	require.Equal(t, []event.Kind{event.Requested, event.Forged}, h.history(k))

	h.writeRequest(k, first) // the same bytes again are no forgery
	h.step(k)
	require.False(t, h.has(approval.DocRequest, k))
	require.Len(t, h.history(k), 2)

	h.writeRequest(k, second)
	h.decide(decision(k, approval.Approved)) // and while a decision is in the slot
	h.step(k)
	require.Equal(t, []string{`{"to":"ann"}`}, h.executor.argsOf(k))
	require.True(t, h.isSettled(k))

	response := h.read(approval.DocResponse, k)
	for _, body := range []string{second, first, `{"request_id":"`, "", strings.Repeat(" ", approval.MaxRequestSize+1)} {
		before := h.refusalsOf(k)
		h.writeRequest(k, body)
		h.step(k)
		require.Equal(t, response, h.read(approval.DocResponse, k))
		require.True(t, h.isSettled(k))
		require.Len(t, h.executor.argsOf(k), 1)
		require.Equal(t, before || body != first, h.refusalsOf(k))
	}
	require.Contains(t, h.history(k)[2:], event.Forged, "also after it was settled")
}

func (h *rig) refusalsOf(k approval.Key) bool {
	return strings.Contains(h.refusals(k.Workspace), `"`+k.ID+`.request"`)
}

// After intake, changes to the request file have no effect.
func TestRequestIsReadOnce(t *testing.T) {
	args := `{"to":"ann"}`
	for name, change := range map[string]func(h *rig, k approval.Key){
		"deleted":              func(h *rig, k approval.Key) { _ = os.Remove(h.requestPath(k)) },
		"changed":              func(h *rig, k approval.Key) { h.writeRequest(k, request(k, "run", `{"to":"mallory"}`)) },
		"replaced by a folder": func(h *rig, k approval.Key) { _ = os.Remove(h.requestPath(k)); _ = os.Mkdir(h.requestPath(k), 0o777) },
		"replaced by a link": func(h *rig, k approval.Key) {
			_ = os.Remove(h.requestPath(k))
			_ = os.Symlink("/etc/passwd", h.requestPath(k))
		},
	} {
		// Right after the file was read, and later.
		for _, when := range []approval.Doc{approval.DocPending, approval.DocClaim, approval.DocRecord} {
			t.Run(name+" before "+string(when)+" is written", func(t *testing.T) {
				var h *rig
				p := options{inline: true, store: func(s store.Store) store.Store {
					return before(s, "Create", when, func(k approval.Key) { change(h, k) })
				}}
				h = newRig(t, p)
				asked, allowed := key(1), key(2)
				h.ask(asked, request(asked, "run", args))
				h.decide(decision(asked, approval.Approved))
				h.writeRequest(allowed, request(allowed, "auto", args))
				h.step(asked, allowed)
				h.step(asked, allowed)
				for _, k := range []approval.Key{asked, allowed} {
					require.Equal(t, []string{args}, h.executor.argsOf(k))
					require.True(t, h.isSettled(k))
					require.NoError(t, os.RemoveAll(h.requestPath(k)))
				}
				require.Equal(t, "approved", h.outcome(asked))
				require.Equal(t, "auto_approved", h.outcome(allowed))
			})
		}
	}
}

// People type the first eight digits, so they must identify one request.
func TestShortIDs(t *testing.T) {
	id := func(ws, tail string) approval.Key { return approval.Key{Workspace: ws, ID: "aaaaaaaa" + tail} }
	const (
		waiting = "auto_rejected: short_id_pending short_id=aaaaaaaa"
		earlier = "auto_rejected: short_id_settled short_id=aaaaaaaa"
	)
	for _, tool := range []string{"run", "auto"} {
		t.Run(tool, func(t *testing.T) {
			h := newRig(t, options{inline: true})
			first := id(personal, "00000001")
			h.ask(first, request(first, "run", ""))
			for k, want := range map[approval.Key]string{
				id(personal, "00000002"): earlier,
				id(other, "00000003"):    waiting,
			} {
				h.writeRequest(k, request(k, tool, ""))
				h.step(k)
				require.Equal(t, want, h.outcome(k))
			}
			h.decide(decision(first, approval.Approved))
			h.step(first)
			require.Equal(t, "approved", h.outcome(first))

			// Among records, a short id is unique per workspace. A restart keeps
			// that.
			for range 2 {
				same, elsewhere := id(personal, "00000004"), id(other, "00000005")
				h.writeRequest(same, request(same, tool, ""))
				h.step(same)
				require.Equal(t, earlier, h.outcome(same))
				if tool == "auto" {
					// The refused one has the same digits.
					h.writeRequest(elsewhere, request(elsewhere, tool, ""))
					h.step(elsewhere)
					require.Equal(t, earlier, h.outcome(elsewhere))
				}
				h.reopen()
			}
			require.Equal(t, 1, h.executor.count())
		})
	}
}

// Of two concurrent requests with one short id, one runs.
func TestConcurrentShortIDs(t *testing.T) {
	h := newRig(t, options{})
	h.run(0)
	for n := range 40 {
		var wg sync.WaitGroup
		pair := []approval.Key{}
		for i := range 2 {
			k := approval.Key{Workspace: personal, ID: fmt.Sprintf("%08x%08x", n, i)}
			pair = append(pair, k)
			h.writeRequest(k, request(k, "auto", ""))
			wg.Go(func() { h.gate.Wake(k) })
		}
		wg.Wait()
		a, b := h.waitResponse(pair[0], 5*time.Second), h.waitResponse(pair[1], 5*time.Second)
		require.ElementsMatch(t, []approval.Status{approval.StatusAutoApproved, approval.StatusAutoRejected}, []approval.Status{a.Status, b.Status})
	}
	require.Equal(t, 40, h.executor.count())
}

// A changed or removed response is restored, and the audit log records that.
func TestResponsesAreRestored(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"removed":   func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 10)) },
		"forged": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			forged := strings.Replace(string(b), `"denied"`, `"approved"`, 1)
			require.NotEqual(t, string(b), forged)
			require.NoError(t, os.WriteFile(path, []byte(forged), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, k := newRig(t, options{}), key(1)
			h.run(time.Minute) // no rescan during the test
			h.writeRequest(k, request(k, "run", ""))
			h.waitFor(5*time.Second, "pending", func() bool { return h.has(approval.DocPending, k) })
			h.decide(decision(k, approval.Denied))
			h.waitResponse(k, 5*time.Second)
			h.waitFor(5*time.Second, "rest", func() bool { return h.isSettled(k) })
			want := h.read(approval.DocResponse, k)
			change(t, filepath.Join(h.layout.Responses(personal), k.ID+".json"))
			h.waitFor(5*time.Second, "response restored", func() bool {
				return string(h.read(approval.DocResponse, k)) == string(want)
			})
			h.waitFor(time.Second, "history", func() bool {
				events := h.history(k)
				return events[len(events)-1] == event.ResponseRestored
			})
			info, err := os.Stat(filepath.Join(h.layout.Responses(personal), k.ID+".json"))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o644), info.Mode().Perm())
		})
	}
}

// Without events, RescanSettled finds missing and extra responses, and Start finds
// changed ones.
func TestResponsesAreComparedWithRecords(t *testing.T) {
	h := newRig(t, options{})
	keys := []approval.Key{key(1), key(2)}
	for _, k := range keys {
		h.writeRequest(k, request(k, "never", ""))
		h.step(k)
	}
	h.run(0)
	forged, path := key(3), func(k approval.Key) string { return filepath.Join(h.layout.Responses(personal), k.ID+".json") }
	want := h.read(approval.DocResponse, keys[0])
	require.NoError(t, os.Remove(path(keys[0])))
	require.NoError(t, os.WriteFile(path(forged), want, 0o644))
	require.NoError(t, h.gate.RescanSettled(context.Background(), personal))
	h.waitFor(5*time.Second, "response restored", func() bool { return h.has(approval.DocResponse, keys[0]) })
	h.waitFor(5*time.Second, "forged response removed", func() bool { return !h.has(approval.DocResponse, forged) })
	require.Equal(t, []event.Kind{event.Forged}, h.history(forged))
	h.close()

	require.NoError(t, os.WriteFile(path(keys[1]), []byte("{}"), 0o644))
	h.open()
	h.step(h.keys...)
	require.Equal(t, approval.StatusAutoRejected, h.response(keys[1]).Status)
}

// A response to a pending request is forged: it is removed at once.
func TestForgedResponseBeforeOutcome(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	path := filepath.Join(h.layout.Responses(personal), k.ID+".json")
	require.NoError(t, os.WriteFile(path, []byte(`{"status":"approved"}`), 0o644))
	h.step(k)
	require.NoFileExists(t, path)
	require.Equal(t, []event.Kind{event.Requested, event.Forged}, h.history(k))
	h.decide(decision(k, approval.Denied))
	h.step(k)
	require.Equal(t, "denied: Denied by user", h.outcome(k))
}
