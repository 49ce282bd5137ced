package gate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// newStoredRig is a rig with this budget, whose tools return a result of this size.
func newStoredRig(t testing.TB, budget int64, result int, p options) *rig {
	p.limits = approval.Limits{Pending: 1000, AskPerMinute: 1 << 30, PerMinute: 1 << 30, Stored: budget}
	h := newRig(t, p)
	h.executor.do = func(approval.Job) approval.Effect {
		return approval.Effect{Result: approval.Raw(`{"output":"` + strings.Repeat("o", result) + `"}`)}
	}
	return h
}

func (h *rig) storage(ws string) gate.Storage {
	st, err := h.gate.Storage(context.Background(), ws)
	require.NoError(h.t, err)
	return st
}

// fill runs requests until the workspace is full, and returns how many ran.
func (h *rig) fill() (n int) {
	for ; n < 1000; n++ {
		h.writeRequest(key(n), request(key(n), "auto", ""))
		h.step(key(n))
		if h.status(key(n)) != approval.StatusAutoApproved {
			return n
		}
	}
	return n
}

// What ran stays, so a workspace can be full. Then its new requests are refused, and everything
// else goes on: what was asked before, other workspaces, and refusals, which stay few.
func TestFullWorkspace(t *testing.T) {
	h := newStoredRig(t, 1<<20, 20_000, options{inline: true})
	var limited atomic.Int32
	var told []gate.Storage
	h.gate.Limited = func(string) { limited.Add(1) }
	h.gate.StorageChanged = func(ws string, st gate.Storage) {
		require.Equal(t, personal, ws)
		told = append(told, st)
	}
	asked := key(5000)
	h.ask(asked, request(asked, "run", ""))
	n := h.fill()
	require.Equal(t, `auto_rejected: limit_stored n="1 MiB"`, h.outcome(key(n)))
	require.Equal(t, int32(1), limited.Load(), "the operator's channels hear of it")
	require.Len(t, told, 2)
	require.True(t, told[0].Low && !told[0].Full && told[0].Used >= 1<<20/5*4 && told[0].Used < 1<<20/16*15, told[0])
	require.True(t, told[1].Low && told[1].Full, told[1])

	require.Equal(t, approval.StatusAutoRejected, h.try(6000, "run"), "no one is asked about what could not be recorded")
	_, err := h.gate.Submit(context.Background(), key(6001), []byte(request(key(6001), "auto", "")), submit.Origin{ClientID: "c"})
	require.ErrorIs(t, err, submit.ErrLimitReached)
	require.ErrorContains(t, err, "limit_stored")
	for i := range 500 {
		require.Equal(t, approval.StatusAutoRejected, h.try(7000+i, "auto"))
		require.LessOrEqual(t, h.storage(personal).Used, int64(1<<20+64<<10))
		require.True(t, i < 3 || h.has(approval.DocResponse, key(7000+i-3)), "the newest can still be read")
	}
	require.False(t, h.has(approval.DocRecord, key(7000)), "the oldest refusal went")
	for i := range n {
		require.True(t, h.has(approval.DocRecord, key(i)), "what ran stays")
	}
	h.decide(decision(asked, approval.Approved))
	h.step(asked)
	require.Equal(t, "approved", h.outcome(asked), "no outcome is lost for want of room")
	there := keyIn(other, 1)
	h.writeRequest(there, request(there, "auto", ""))
	h.step(there)
	require.Equal(t, "auto_approved", h.outcome(there))

	h.reopen()
	require.Equal(t, approval.StatusAutoRejected, h.try(8000, "auto"), "a restart finds the same")
	h.options.limits.Stored = 4 << 20
	require.Equal(t, approval.StatusAutoApproved, h.try(8001, "auto"), "a larger budget counts at once")
	h.options.limits.Stored = 1 << 20
	require.Equal(t, approval.StatusAutoRejected, h.try(8002, "auto"))
	h.clock.move(91 * day)
	h.prune()
	require.Equal(t, approval.StatusAutoApproved, h.try(8003, "auto"), "the end of the retention makes room")
}

// try writes a request, and returns its status.
func (h *rig) try(n int, tool string) approval.Status {
	h.writeRequest(key(n), request(key(n), tool, ""))
	h.step(key(n))
	return h.status(key(n))
}

// The hourly prune makes room early, and the log says why something went before its time.
func TestPruneMakesRoom(t *testing.T) {
	h := newStoredRig(t, 1<<20, 0, options{inline: true})
	for n := range 110 { // of 8 KiB: 880 KiB
		require.Equal(t, approval.StatusAutoRejected, h.try(n, "never"))
	}
	require.True(t, h.storage(personal).Low)
	pruned := h.prune()
	require.Equal(t, pruned.Records, pruned.Responses)
	require.Equal(t, int64(pruned.Records)*8192, pruned.Bytes)
	require.LessOrEqual(t, h.storage(personal).Used, int64(1<<20/4*3))
	require.False(t, h.has(approval.DocRecord, key(0)))
	require.True(t, h.has(approval.DocRecord, key(109)))
	require.Equal(t, gate.Pruned{}, h.prune(), "there is room now")
	var last event.Entry
	for _, e := range h.entries() {
		last = e
	}
	require.Equal(t, event.Pruned, last.Event)
	require.Equal(t, "to make room: limits.stored", last.Reason)
}

// Descriptions count, and go first, but not before they can be read. A flood that a sweep answers
// again and again is told once.
func TestDescriptionsMakeRoom(t *testing.T) {
	h := newStoredRig(t, 1<<20, 0, options{inline: true})
	var told []gate.Storage
	h.gate.StorageChanged = func(_ string, st gate.Storage) { told = append(told, st) }
	const n = 210 // of 4 KiB: four fifths
	for i := range n {
		require.NoError(t, h.store.Refuse(context.Background(), personal, fmt.Sprint("stray-", i), "no"))
	}
	require.Zero(t, h.prune().Refusals)
	h.clock.move(2 * time.Minute)
	require.Equal(t, n, h.prune().Refusals)
	require.Zero(t, h.storage(personal).Used)
	require.Len(t, told, 2, "almost full, and not any more")
	for n := range 200 {
		require.Equal(t, approval.StatusAutoRejected, h.try(n, "never"))
	}
	require.False(t, h.has(approval.DocRecord, key(20)), "sweeps made room")
	require.Len(t, told, 3)
}

// Whatever was run or answered stays, also if it failed: no budget is too small for it.
func TestEveryOutcomeStays(t *testing.T) {
	h := newRig(t, options{inline: true, limits: approval.Limits{Stored: 1 << 20}})
	h.crashAtClaim(key(1), "run")
	h.reopen()
	h.step(h.keys...)
	for n, tool := range []string{2: "fails", 3: "receipt"} {
		if tool != "" {
			h.ask(key(n), request(key(n), tool, ""))
			h.decide(decision(key(n), approval.Approved))
		}
	}
	h.ask(key(4), `{"request_id":"`+key(4).ID+`","type":"question","title":"Which?"}`)
	answer := decision(key(4), approval.Answered)
	answer.Text = "this one"
	h.decide(answer)
	h.step(key(2), key(3), key(4))
	require.Equal(t, approval.StatusAutoRejected, h.try(5, "never"))
	h.options.limits.Stored = 1
	h.prune()
	require.False(t, h.has(approval.DocRecord, key(5)))
	for n, want := range []approval.Status{1: approval.StatusInterrupted, approval.StatusFailed, approval.StatusApproved, approval.StatusAnswered} {
		require.True(t, n == 0 || h.has(approval.DocRecord, key(n)) && h.status(key(n)) == want, want)
	}
}

// A sweep takes time. Requests of that workspace wait, those of others do not, and all get their
// response.
func TestRequestsWaitForTheSweep(t *testing.T) {
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var on atomic.Bool
	h := newStoredRig(t, 512<<10, 0, options{store: func(s store.Store) store.Store {
		return before(s, "Remove", approval.DocRecord, func(approval.Key) {
			if on.Load() {
				once.Do(func() { close(blocked); <-release })
			}
		})
	}})
	letGo := sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo)
	on.Store(true)
	h.run(0)
	const n, most = 250, 512<<10 + perWorkspace*8<<10
	for i := range n {
		h.writeRequest(key(i), request(key(i), "never", ""))
		h.gate.Wake(key(i))
	}
	<-blocked
	for i := range 20 {
		there := keyIn(other, i)
		h.writeRequest(there, request(there, "auto", ""))
		h.gate.Wake(there)
		h.waitResponse(there, waitLimit)
	}
	require.LessOrEqual(t, h.storage(personal).Used, int64(most), "what has no room waits")
	letGo()
	h.waitFor(waitLimit, "every response", func() bool {
		refused := map[string]bool{}
		for _, e := range h.entries() {
			if e.Event == event.AutoRejected {
				refused[e.RequestID] = true
			}
		}
		return len(refused) == n
	})
	require.LessOrEqual(t, h.storage(personal).Used, int64(most))
}

// perWorkspace is how many steps of a workspace may run at once, each with one outcome.
const perWorkspace = 96

// entries are those of the audit log.
func (h *rig) entries() (all []event.Entry) {
	require.NoError(h.t, h.log.Sync())
	require.NoError(h.t, audit.Entries(ipc.OS(), h.layout.Audit(), func(e event.Entry) error {
		all = append(all, e)
		return nil
	}))
	return all
}

// A request that could not be removed, because it was in use, is the first to go later.
func TestSweepTriesAgain(t *testing.T) {
	h := newStoredRig(t, 1<<20, 0, options{inline: true})
	for n := range 110 {
		require.Equal(t, approval.StatusAutoRejected, h.try(n, "never"))
	}
	leftover := h.requestPath(key(0))
	require.NoError(t, os.MkdirAll(filepath.Join(leftover, "in"), 0o700))
	require.NotZero(t, h.prune().Records)
	require.True(t, h.has(approval.DocRecord, key(0)), "its record makes the leftover harmless")
	require.NoError(t, os.RemoveAll(leftover))
	for n := range 20 {
		require.Equal(t, approval.StatusAutoRejected, h.try(200+n, "never"))
	}
	require.NotZero(t, h.prune().Records)
	require.False(t, h.has(approval.DocRecord, key(0)))
}

// A request that ends while a sweep reads the records may go like the others.
func TestRefusalDuringAScan(t *testing.T) {
	var during func()
	h := newStoredRig(t, 1<<20, 0, options{inline: true, store: func(s store.Store) store.Store {
		return before(s, "Read", approval.DocRecord, func(approval.Key) {
			if f := during; f != nil {
				during = nil
				f()
			}
		})
	}})
	for n := range 105 {
		require.Equal(t, approval.StatusAutoRejected, h.try(n, "never"))
	}
	during = func() {
		for n := range 8 {
			require.Equal(t, approval.StatusAutoRejected, h.try(200+n, "never"))
		}
	}
	h.prune()
	require.Nil(t, during, "it scanned")
	require.True(t, h.has(approval.DocRecord, key(200)))
	h.options.limits.Stored = 64 << 10
	h.prune()
	require.LessOrEqual(t, h.storage(personal).Used, int64(48<<10))
	require.False(t, h.storage(personal).Full)
	require.False(t, h.has(approval.DocRecord, key(200)))
}
