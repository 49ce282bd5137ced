package gate_test

import (
	"fmt"
	"os"
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
					return before(s, "Commit", when, func(k approval.Key) { change(h, k) })
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

// People type a short id, so it names one request in all workspaces. A collision refuses
// nothing.
func TestShortIDs(t *testing.T) {
	h := newRig(t, options{inline: true})
	asked := func(ws, id, want string) approval.Key {
		t.Helper()
		k := approval.Key{Workspace: ws, ID: id}
		h.ask(k, request(k, "run", ""))
		require.Equal(t, want, h.pending(k).ShortID)
		return k
	}
	first := asked(personal, "aaaaaaaa00000001", "aaaaaaaa")
	second := asked(personal, "aaaaaaaa00000002", "00000002")
	asked(other, "aaaaaaaa00000003", "00000003")
	asked(other, "aaaaaaaa1100000002", "100000002")
	asked(personal, "10000000bbbbbbbb", "bbbbbbbb") // else it would be the beginning of the last one
	asked(other, first.ID, "a00000001")
	asked(other, "aaaaaaaabb100000003", "b100000003") // nine digits would begin with a short id

	h.decide(decision(first, approval.Approved))
	h.step(first)
	require.Equal(t, "approved", h.outcome(first))
	h.reopen()
	asked(other, "aaaaaaaa00000007", "00000007") // a record keeps its short id
	asked(personal, "00000002cccccccc", "cccccccc")

	find := func(typed string) []approval.Key {
		keys, err := h.viewer().Find(t.Context(), nil, typed)
		require.NoError(t, err)
		return keys
	}
	require.Equal(t, []approval.Key{first}, find("aaaaaaaa"))
	require.Equal(t, []approval.Key{second}, find("00000002"))
	require.Equal(t, []approval.Key{first}, find("aaaa"), "no other short id begins so")
	require.Len(t, find("0000"), 3)

	// An agent chooses its ids: one that begins with a short id on a card is not what that card's reader types.
	asked(personal, "eeee000011111111", "eeee0000")
	read := asked(personal, "eeee00007a7a6666", "7a7a6666")
	hidden := asked(personal, "7a7a666612345678", "12345678")
	require.Equal(t, []approval.Key{read}, find("7a7a"))
	require.Equal(t, []approval.Key{read}, find("7a7a6666"))
	require.Equal(t, []approval.Key{hidden}, find("1234"))
	require.Equal(t, []approval.Key{hidden}, find(hidden.ID))
	long := asked(personal, hidden.ID+"99999999", "99999999")
	require.Equal(t, []approval.Key{hidden}, find(hidden.ID), "a complete id is one request")
	require.Equal(t, []approval.Key{long}, find(long.ID))
	require.Empty(t, find("a6666"), "the middle of an id")

	// Dashes do not count.
	for n, want := range []string{"bbbbbb00", "000000dd", "0000000dd", "00000000dd", "40000000000dd"} {
		asked(personal, fmt.Sprintf("bbbbbb00-0000-4000-800%d-0000000000dd", n), want)
	}

	auto := approval.Key{Workspace: personal, ID: "aaaaaaaa00000008"}
	h.writeRequest(auto, request(auto, "auto", ""))
	h.step(auto)
	require.Equal(t, "auto_approved", h.outcome(auto))
	require.Equal(t, 2, h.executor.count())
}

// Concurrent requests whose ids begin alike all run, and those that are asked about have
// short ids of their own.
func TestConcurrentShortIDs(t *testing.T) {
	h := newRig(t, options{})
	h.run(0)
	var wg sync.WaitGroup
	var all []approval.Key
	for i := range 20 {
		k := approval.Key{Workspace: personal, ID: fmt.Sprintf("aaaaaaaa%08x", i)}
		all = append(all, k)
		h.writeRequest(k, request(k, []string{"auto", "run"}[i%2], ""))
		wg.Go(func() { h.gate.Wake(k) })
	}
	wg.Wait()
	short := map[string]bool{}
	for i, k := range all {
		if i%2 == 0 {
			require.Equal(t, approval.StatusAutoApproved, h.waitResponse(k, 5*time.Second).Status)
			continue
		}
		h.waitFor(waitLimit, "pending", func() bool { return h.pending(k) != nil })
		short[h.pending(k).ShortID] = true
	}
	require.Len(t, short, 10)
	require.Equal(t, 10, h.executor.count())
}
