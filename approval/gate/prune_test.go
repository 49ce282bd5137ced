package gate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

const (
	day       = 24 * time.Hour
	waitLimit = time.Minute
)

// newSettledRig is a rig in which a rule allowed key(1) and it ran, ago in the past.
func newSettledRig(t testing.TB, p options, ago time.Duration) *rig {
	p.inline = true
	h := newRig(t, p)
	h.writeRequest(key(1), request(key(1), "auto", ""))
	h.step(key(1))
	require.Equal(t, "auto_approved", h.outcome(key(1)))
	h.clock.move(ago)
	return h
}

func (h *rig) prune() gate.Pruned {
	h.t.Helper()
	n, err := h.gate.Prune(context.Background(), nil)
	require.NoError(h.t, err)
	return n
}

func TestPruneByAge(t *testing.T) {
	for _, c := range []struct {
		ago              time.Duration
		response, record bool // remain
	}{
		{0, true, true},
		{-10 * day, true, true}, // a clock set back
		{7*day - time.Minute, true, true},
		{7*day + time.Minute, false, true},
		{90*day - time.Minute, false, true},
		{90*day + time.Minute, false, false},
		{10 * 365 * day, false, false},
	} {
		h := newSettledRig(t, options{}, c.ago)
		p := h.gate.Pruner()
		counts, err := p.Count(context.Background(), h.clock.now(), nil)
		require.NoError(t, err)
		n := h.prune()
		require.Equal(t, counts[personal], n, "%v: Count agrees with Prune", c.ago)
		require.Equal(t, c.response, h.has(approval.DocResponse, key(1)), c.ago)
		require.Equal(t, c.record, h.has(approval.DocRecord, key(1)), c.ago)
		require.Equal(t, gate.Pruned{}, h.prune(), "%v: a second prune removes nothing", c.ago)
		h.step(key(1))
		require.Equal(t, c.response, h.has(approval.DocResponse, key(1)), "%v: not restored", c.ago)
		require.Equal(t, 1, h.executor.count(), "%v: nothing runs again", c.ago)
		h.reopen()
		h.step(key(1))
		require.Equal(t, c.response, h.has(approval.DocResponse, key(1)), "%v: not restored after a restart", c.ago)
		require.Equal(t, 1, h.executor.count(), c.ago)
	}
}

func TestPrunedResponsesAreNotRestored(t *testing.T) {
	h := newSettledRig(t, options{}, 8*day)
	h.prune()
	h.step(key(1))
	h.run(0)
	h.waitFor(waitLimit, "idle", h.gate.Idle)
	require.NoError(t, h.gate.RescanSettled(context.Background(), personal))
	require.True(t, h.gate.Idle(), "a pruned response wakes no key")
	h.Stop()

	h.clock.move(-5 * day) // the clock was wrongly set forward
	h.reopen()
	h.step(key(1))
	require.True(t, h.has(approval.DocResponse, key(1)), "a response within its retention is restored")
}

// The record makes leftovers harmless: it stays as long as there are any.
func TestPruneSkipsKeysWithLeftovers(t *testing.T) {
	for name, path := range map[string]func(ipc.Layout) string{
		"Q":            func(l ipc.Layout) string { return filepath.Join(l.Requests(personal), key(1).ID+".json") },
		"X":            func(l ipc.Layout) string { return filepath.Join(l.Requests(personal), key(1).ID+".cancel") },
		"P":            func(l ipc.Layout) string { return filepath.Join(l.Pendings(personal), key(1).ID+".json") },
		"D":            func(l ipc.Layout) string { return filepath.Join(l.Decisions(personal), key(1).ID+".json") },
		"R":            func(l ipc.Layout) string { return filepath.Join(l.Receipts(personal), key(1).ID+".json") },
		"second claim": func(l ipc.Layout) string { return filepath.Join(l.Receipts(personal), key(1).ID+".again.json") },
		"a folder":     func(l ipc.Layout) string { return filepath.Join(l.Requests(personal), key(1).ID+".json", "in") },
	} {
		h := newSettledRig(t, options{}, 100*day)
		file := path(h.layout)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
		require.Equal(t, gate.Pruned{}, h.prune(), name)
		require.True(t, h.has(approval.DocRecord, key(1)), name)
		require.True(t, h.has(approval.DocResponse, key(1)), name)
	}
}

func TestPruneNeedsVerifiedRecord(t *testing.T) {
	h := newSettledRig(t, options{}, 100*day)
	file := filepath.Join(h.layout.Records(personal), key(1).ID+".json")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(b), `"ended_at":"20`, `"ended_at":"19`, 1)), 0o600))
	require.Equal(t, gate.Pruned{}, h.prune())
	require.True(t, h.has(approval.DocRecord, key(1)))
	require.Contains(t, h.logs.String(), "prune skipped")
}

func TestPrunedIDCanBeReused(t *testing.T) {
	h := newSettledRig(t, options{}, 100*day)
	sibling := approval.Key{Workspace: personal, ID: key(1).ID[:8] + "99999999"}
	h.ask(sibling, request(sibling, "run", ""))
	require.Equal(t, "99999999", h.pending(sibling).ShortID)
	require.Equal(t, 1, h.prune().Records)

	third := approval.Key{Workspace: personal, ID: key(1).ID[:8] + "77777777"}
	h.ask(third, request(third, "run", ""))
	require.Equal(t, key(1).ID[:8], h.pending(third).ShortID, "the short id is free")

	h = newSettledRig(t, options{}, 100*day)
	require.Equal(t, 1, h.prune().Records)
	h.writeRequest(key(1), request(key(1), "auto", `{"again":1}`))
	h.step(key(1))
	require.Equal(t, "auto_approved", h.outcome(key(1)))
	require.Equal(t, []string{`{}`, `{"again":1}`}, h.executor.argsOf(key(1)))
}

func TestPruneRemovesMarkersAndDescriptions(t *testing.T) {
	h := newSettledRig(t, options{}, 0)
	orphan := key(2)
	for _, k := range []approval.Key{key(1), orphan} {
		require.NoError(t, h.store.Commit(context.Background(), store.Put(approval.DocRedeemed, k, []byte("{}"))))
	}
	require.NoError(t, h.store.Refuse(context.Background(), personal, "evil.json", "no"))
	h.clock.move(89 * day)
	require.Equal(t, gate.Pruned{Responses: 1, Bytes: int64(len(h.read(approval.DocResponse, key(1))))}, h.prune())
	require.True(t, h.has(approval.DocRedeemed, key(1)), "removed together with its record")
	h.clock.move(2 * day)
	n := h.prune()
	n.Bytes = 0
	require.Equal(t, gate.Pruned{Records: 1, Markers: 2, Refusals: 1}, n)
	require.False(t, h.has(approval.DocRedeemed, key(1)))
	require.False(t, h.has(approval.DocRedeemed, orphan), "an orphan is removed, too")
	require.Empty(t, h.refusals(personal))
}

func TestPruneRemovesOldDescriptions(t *testing.T) {
	h := newRig(t, options{})
	for i := range 1100 {
		require.NoError(t, h.store.Refuse(context.Background(), personal, fmt.Sprintf("evil-%d.json", i), "no"))
	}
	h.clock.move(91 * day)
	require.Equal(t, 1000, h.prune().Refusals)
	require.NoError(t, h.store.Refuse(context.Background(), personal, "new.json", "no"))
	require.Contains(t, h.refusals(personal), "new.json")
}

func TestPruningIsAudited(t *testing.T) {
	h := newSettledRig(t, options{}, 91*day)
	h.prune()
	require.NoError(t, h.log.Sync())
	var last event.Entry
	require.NoError(t, audit.Entries(ipc.OS(), h.layout.Audit(), func(e event.Entry) error { last = e; return nil }))
	require.Equal(t, event.Pruned, last.Event)
	require.Equal(t, personal, last.Workspace)
	require.Equal(t, "1 records, 1 responses, 0 markers, 0 descriptions", last.Detail)

	h = newSettledRig(t, options{}, 91*day)
	h.gate.Store = failing(h.gate.Store, "Commit", "", errors.New("no space left on device"))
	_, err := h.gate.Prune(context.Background(), nil)
	require.ErrorContains(t, err, "no space left")
	require.True(t, h.has(approval.DocResponse, key(1)), "nothing is removed without an audit entry")
	require.True(t, h.has(approval.DocRecord, key(1)))
}

// A checkpoint fails. Before it a record is not removed; until one has succeeded after the
// removal, the id is not used.
func TestPruneAfterFailedCheckpoint(t *testing.T) {
	for failing, err := range map[int]error{1: store.ErrRestart, 2: store.ErrRestart, -1: errors.New("later"), -2: errors.New("later")} {
		tries := 0
		h := newSettledRig(t, options{}, 91*day)
		h.gate.Store = hookedStore{Store: h.gate.Store, method: "Checkpoint", before: func(approval.Key) error {
			if tries++; tries == max(failing, -failing) {
				return err
			}
			return nil
		}}
		_, got := h.gate.Prune(context.Background(), nil)
		require.ErrorIs(t, got, err, failing)
		removed := failing == 2 || failing == -2
		require.Equal(t, !removed, h.has(approval.DocRecord, key(1)), failing)
		_, got = h.gate.Prune(context.Background(), nil)
		if failing > 0 {
			require.ErrorIs(t, got, store.ErrRestart, "not tried again")
			continue
		}
		require.NoError(t, got)
		h.writeRequest(key(1), request(key(1), "auto", `{"again":1}`))
		h.gate.Wake(key(1))
		h.run(0)
		h.writeRequest(key(3), request(key(3), "auto", ""))
		h.gate.Wake(key(3))
		h.waitResponse(key(3), waitLimit)
		if removed {
			require.Equal(t, []string{"{}"}, h.executor.argsOf(key(1)), "locked until the next start")
			h.reopen()
			h.step(key(1))
		}
		h.waitFor(waitLimit, "the new request", func() bool { return h.has(approval.DocResponse, key(1)) })
		require.Equal(t, []string{"{}", `{"again":1}`}, h.executor.argsOf(key(1)), failing)
	}
}

func TestPrunedIDIsNotUsedBeforeSync(t *testing.T) {
	var h *rig
	var ran atomic.Int32
	pruning := false
	h = newRig(t, options{store: func(s store.Store) store.Store {
		s = hookedStore{Store: s, method: "Remove", doc: approval.DocRecord, after: func(k approval.Key) {
			h.writeRequest(k, request(k, "auto", `{"again":1}`))
			h.gate.Wake(k)
			h.writeRequest(key(2), request(key(2), "auto", ""))
			h.gate.Wake(key(2))
		}}
		return before(s, "Checkpoint", "", func(approval.Key) {
			if pruning && !h.has(approval.DocRecord, key(1)) { // another request runs while key(1) is locked
				h.waitResponse(key(2), waitLimit)
				ran.Store(int32(len(h.executor.argsOf(key(1)))))
			}
		})
	}})
	h.run(0)
	h.writeRequest(key(1), request(key(1), "auto", ""))
	h.gate.Wake(key(1))
	h.waitResponse(key(1), waitLimit)
	h.waitFor(waitLimit, "idle", h.gate.Idle)
	h.clock.move(91 * day)
	pruning = true
	records := 0
	h.waitFor(waitLimit, "record pruned", func() bool { // a busy key is skipped until the next prune
		records += h.prune().Records
		return records > 0
	})
	require.Equal(t, 1, records)
	require.Equal(t, int32(1), ran.Load(), "the id is not used before its removal is durable")
	h.waitFor(waitLimit, "new request", func() bool { return len(h.executor.argsOf(key(1))) == 2 && h.has(approval.DocRecord, key(1)) })
	require.Equal(t, []string{"{}", `{"again":1}`}, h.executor.argsOf(key(1)))
	require.Equal(t, approval.Digest([]byte(request(key(1), "auto", `{"again":1}`))), h.record(key(1)).RequestSHA256)
}

// Prune runs in a loop beside a busy gate: everything runs once.
func TestPruneWhileGateRuns(t *testing.T) {
	h := newRig(t, options{limits: approval.Limits{PerMinute: 100_000, AskPerMinute: 100_000}})
	h.gate.ResponseRetention, h.gate.RecordRetention = time.Millisecond, time.Millisecond
	h.run(50 * time.Millisecond)
	const n = 300
	go func() {
		for i := range n {
			h.writeRequest(key(i), request(key(i), "auto", ""))
		}
	}()
	total := 0
	h.waitFor(waitLimit, "all pruned", func() bool {
		pruned, err := h.gate.Prune(context.Background(), nil)
		require.NoError(t, err)
		total += pruned.Records
		return total >= n
	})
	require.Equal(t, n, total)
	require.Equal(t, n, h.executor.count())
	for i := range n {
		require.Len(t, h.executor.argsOf(key(i)), 1)
	}
}
