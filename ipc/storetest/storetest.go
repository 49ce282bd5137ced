// Package storetest checks that a store keeps what package gate expects of it. It is
// test support. A store may keep a file for each document, append to a journal, or use
// another machine: the suite sees only the methods of store.Store.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// Workspace is the workspace of every document in the suite.
const Workspace = "w"

// Backend is the data that several stores share, as several processes do.
type Backend struct {
	// Open opens one more store on the same data.
	Open func() store.Store
	// Agent writes a file into the requests folder.
	Agent func(name string, b []byte)
	// Crash loses everything that is not durable, and every lease. Stores that were
	// open before it must not be used. nil: this backend cannot crash.
	Crash func()
}

var documents = []approval.Doc{
	approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocAgain, approval.DocTask, approval.DocRecord, approval.DocRedeemed,
}

func key(id string) approval.Key { return approval.Key{Workspace: Workspace, ID: id} }

var (
	first, second = key("aaaaaaaa00000001"), key("bbbbbbbb00000002")
	text, other   = []byte(`{"text":1}`), []byte(`{"text":2}`) // a replay removes decisions that are torn
)

// TestStore runs the suite. open returns a new backend with the empty workspace
// Workspace.
func TestStore(t *testing.T, open func(t *testing.T) *Backend) {
	tests := map[string]func(t *testing.T, b *Backend){
		"documents": testDocuments, "exclusive commit": testExclusive, "several": testSeveral, "check": testCheck, "cancellation": testCancellation,
		"responses": testResponses, "folders": testFolders, "retention": testRetention, "stored": testStored, "lease": testLease,
	}
	if open(t).Crash != nil {
		tests["crash"] = testCrash
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func requireRead(t *testing.T, s store.Store, d approval.Doc, k approval.Key, want []byte) {
	t.Helper()
	b, err := s.Read(context.Background(), d, k)
	if want == nil {
		require.ErrorIs(t, err, store.ErrMissing, d)
		return
	}
	require.NoError(t, err, d)
	require.Equal(t, string(want), string(b), d)
}

// lease takes the lease until the end of the test, or until it is released: the collector closes a lock that
// nothing refers to.
func lease(t *testing.T, s store.Store) (release func() error) {
	t.Helper()
	release, err := s.Lease(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { runtime.KeepAlive(release) })
	return release
}

func put(d approval.Doc, k approval.Key, b []byte, how store.Mode) store.Op {
	return store.Op{Doc: d, Key: k, Bytes: b, Mode: how}
}

func testDocuments(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	lease(t, s)
	for _, d := range documents {
		requireRead(t, s, d, first, nil)
		require.NoError(t, s.Commit(ctx, store.Put(d, first, text)))
		requireRead(t, s, d, first, text)
		requireRead(t, b.Open(), d, first, text)
		for _, how := range []store.Mode{store.Durable, store.Volatile} {
			require.ErrorIs(t, s.Commit(ctx, put(d, first, other, how)), store.ErrExists, d)
		}
		requireRead(t, s, d, first, text)
		require.NoError(t, s.Commit(ctx, put(d, first, other, store.Replace)))
		requireRead(t, s, d, first, other)
		requireRead(t, s, d, second, nil)
	}
	require.NoError(t, s.Checkpoint(ctx))
	require.False(t, s.NeedsCheckpoint())
	for _, d := range documents {
		require.NoError(t, s.Remove(ctx, d, first))
		requireRead(t, s, d, first, nil)
		require.NoError(t, s.Remove(ctx, d, first), "a missing document is no error")
		require.NoError(t, s.Commit(ctx, put(d, first, other, store.Volatile)), "a removed name is free")
	}
	require.NoError(t, s.Probe(ctx))
	release, err := s.Reserve(ctx, 1<<10)
	require.NoError(t, err)
	release()
}

// testExclusive commits one document several times at once. One commit succeeds. Decisions
// come from several processes.
func testExclusive(t *testing.T, b *Backend) {
	stores := []store.Store{b.Open(), b.Open(), b.Open()}
	lease(t, stores[0])
	for _, d := range documents {
		n := 1
		if d == approval.DocDecision || d == approval.DocRedeemed {
			n = len(stores)
		}
		errs := make([]error, 9)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				errs[i] = stores[i%n].Commit(context.Background(), store.Put(d, first, []byte{byte('0' + i)}))
			})
		}
		wg.Wait()
		winner := slices.Index(errs, nil)
		require.GreaterOrEqual(t, winner, 0, "%v", errs)
		for i, err := range errs {
			if i != winner {
				require.ErrorIs(t, err, store.ErrExists)
			}
		}
		requireRead(t, stores[0], d, first, []byte{byte('0' + winner)})
	}
}

// testSeveral checks that a commit with a document that exists writes none of the others.
func testSeveral(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	lease(t, s)
	claim, record := store.Put(approval.DocClaim, first, text), store.Put(approval.DocRecord, first, other)
	require.NoError(t, s.Commit(ctx, claim, record, store.Show(first, text)))
	requireRead(t, s, approval.DocClaim, first, text)
	requireRead(t, s, approval.DocRecord, first, other)
	requireRead(t, s, approval.DocResponse, first, text)

	err := s.Commit(ctx, store.Put(approval.DocPending, first, text), claim, store.Show(first, other))
	require.ErrorIs(t, err, store.ErrExists)
	requireRead(t, s, approval.DocPending, first, nil)
	requireRead(t, s, approval.DocResponse, first, text)
	err = b.Open().Commit(ctx, store.Put(approval.DocClaim, second, text), store.Put(approval.DocRecord, second, text))
	require.ErrorIs(t, err, store.ErrUnavailable, "without the lease")
}

// testCheck checks when the check of a decision runs, and that its error is returned.
func testCheck(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	lease(t, s)
	for _, s := range []store.Store{s, b.Open()} {
		boom, seen := errors.New("boom"), false
		op := store.Put(approval.DocDecision, first, text)
		op.Check = func() error {
			requireRead(t, s, approval.DocDecision, first, text)
			seen = true
			return boom
		}
		require.ErrorIs(t, s.Commit(ctx, op), boom)
		require.True(t, seen)
		require.NoError(t, s.Remove(ctx, approval.DocDecision, first))
	}
}

// testCancellation checks that an ended context stops a write before it begins, and not
// in its middle.
func testCancellation(t *testing.T, b *Backend) {
	s := b.Open()
	lease(t, s)
	require.NoError(t, s.Commit(context.Background(), store.Put(approval.DocRecord, second, text)))
	ctx, cancel := context.WithCancel(context.Background())
	op := store.Put(approval.DocDecision, first, text)
	op.Check = func() error { cancel(); return nil }
	require.NoError(t, s.Commit(ctx, op))
	requireRead(t, s, approval.DocDecision, first, text)

	_, _, listErr := s.List(ctx, approval.DocPending, Workspace)
	_, readErr := s.Read(ctx, approval.DocRecord, second)
	_, leaseErr := s.Lease(ctx)
	_, workspacesErr := s.Workspaces(ctx)
	_, reserveErr := s.Reserve(ctx, 1)
	_, oldErr := s.OlderThan(ctx, approval.DocRecord, Workspace, time.Now())
	_, _, refusalsErr := s.RefusalsOlderThan(ctx, Workspace, time.Now(), true)
	_, storedErr := s.Stored(ctx, Workspace)
	for what, err := range map[string]error{
		"Stored": storedErr,
		"Commit": s.Commit(ctx, store.Put(approval.DocPending, first, text)),
		"Remove": s.Remove(ctx, approval.DocRecord, second), "Refuse": s.Refuse(ctx, Workspace, "x", "why"),
		"RemoveStray": s.RemoveStray(ctx, Workspace, "x"), "Probe": s.Probe(ctx), "Checkpoint": s.Checkpoint(ctx),
		"List": listErr, "Read": readErr, "Lease": leaseErr, "Workspaces": workspacesErr,
		"Reserve": reserveErr, "OlderThan": oldErr, "RefusalsOlderThan": refusalsErr,
	} {
		require.ErrorIs(t, err, context.Canceled, what)
	}
	requireRead(t, s, approval.DocPending, first, nil)
	requireRead(t, s, approval.DocRecord, second, text)
}

func testResponses(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	lease(t, s)
	for _, want := range [][]byte{text, other} {
		require.NoError(t, s.Commit(ctx, store.Show(first, want)))
		requireRead(t, s, approval.DocResponse, first, want)
	}
}

func testFolders(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	lease(t, s)
	names, err := s.Workspaces(ctx)
	require.NoError(t, err)
	require.Contains(t, names, Workspace)

	b.Agent(first.ID+".json", text)
	b.Agent(second.ID+".cancel", nil)
	b.Agent("Stray one.json", text)
	b.Agent("notes.txt", text)
	requireRead(t, s, approval.DocRequest, first, text)
	_, err = s.Read(ctx, approval.DocCancel, second)
	require.NoError(t, err)
	ids, strays, err := s.List(ctx, approval.DocRequest, Workspace)
	require.NoError(t, err)
	require.Equal(t, []string{first.ID}, ids)
	require.Equal(t, []string{"Stray one.json"}, strays)
	ids, _, err = s.List(ctx, approval.DocCancel, Workspace)
	require.NoError(t, err)
	require.Equal(t, []string{second.ID}, ids)
	require.NoError(t, s.RemoveStray(ctx, Workspace, "Stray one.json"))
	require.NoError(t, s.Remove(ctx, approval.DocRequest, first))
	require.NoError(t, s.Remove(ctx, approval.DocCancel, second))
	for _, d := range []approval.Doc{approval.DocRequest, approval.DocCancel} {
		ids, strays, err = s.List(ctx, d, Workspace)
		require.NoError(t, err)
		require.Empty(t, append(ids, strays...))
	}
	for _, d := range documents {
		require.NoError(t, s.Commit(ctx, store.Put(d, first, text)))
	}
	for _, d := range []approval.Doc{approval.DocPending, approval.DocDecision, approval.DocRecord} {
		ids, _, err = s.List(ctx, d, Workspace)
		require.NoError(t, err)
		require.Equal(t, []string{first.ID}, ids, d)
	}
	ids, _, err = s.List(ctx, approval.DocClaim, Workspace)
	require.NoError(t, err)
	require.Contains(t, ids, first.ID)
}

func testRetention(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	lease(t, s)
	old, young := time.Now().Add(-100*365*24*time.Hour), time.Now().Add(time.Hour)
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, first, text)))
	require.NoError(t, s.Refuse(ctx, Workspace, "name", "why"))
	sizes, err := s.OlderThan(ctx, approval.DocRecord, Workspace, young)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{first.ID: int64(len(text))}, sizes)
	sizes, err = s.OlderThan(ctx, approval.DocRecord, Workspace, old)
	require.NoError(t, err)
	require.Empty(t, sizes)
	for _, tt := range []struct {
		before time.Time
		remove bool
		want   int
	}{{old, true, 0}, {young, false, 1}, {young, true, 1}, {young, true, 0}} {
		n, _, err := s.RefusalsOlderThan(ctx, Workspace, tt.before, tt.remove)
		require.NoError(t, err)
		require.Equal(t, tt.want, n)
	}
}

// testStored checks that a store follows what is on the disk: as another one finds that counts
// it afterwards.
func testStored(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	lease(t, s)
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, first, text)))
	count := func(want int64, what string) {
		for _, s := range []store.Store{s, b.Open()} {
			n, err := s.Stored(ctx, Workspace)
			require.NoError(t, err)
			require.Equal(t, want*store.OnDisk(1), n, what)
		}
	}
	count(1, "a record")
	large := bytes.Repeat([]byte("x"), int(store.OnDisk(1))+1)
	marker := store.Put(approval.DocRedeemed, first, text)
	for _, step := range []struct {
		what  string
		do    func() error
		after int64
	}{
		{"a record, with its response", func() error {
			return s.Commit(ctx, store.Put(approval.DocRecord, second, large), store.Show(second, text))
		}, 4},
		{"another response", func() error { return s.Commit(ctx, store.Show(second, large)) }, 5},
		{"a record that exists", func() error {
			require.Error(t, s.Commit(ctx, store.Put(approval.DocRecord, first, large)))
			return nil
		}, 5},
		{"a marker", func() error { return s.Commit(ctx, marker) }, 6},
		{"a description", func() error { return s.Refuse(ctx, Workspace, "name", "why") }, 7},
		{"the same again", func() error { return s.Refuse(ctx, Workspace, "name", "why") }, 7},
		{"a pending", func() error { return s.Commit(ctx, store.Put(approval.DocPending, first, large)) }, 7},
		{"no response", func() error { return s.Remove(ctx, approval.DocResponse, second) }, 5},
		{"none to remove", func() error { return s.Remove(ctx, approval.DocResponse, second) }, 5},
		{"no marker", func() error { return s.Remove(ctx, approval.DocRedeemed, first) }, 4},
		{"no record", func() error { return s.Remove(ctx, approval.DocRecord, second) }, 2},
		{"a record that is too large for a journal", func() error {
			return s.Commit(ctx, store.Put(approval.DocRecord, second, bytes.Repeat([]byte("x"), 75*int(store.OnDisk(1)))))
		}, 77},
		{"no such record", func() error { return s.Remove(ctx, approval.DocRecord, second) }, 2},
		{"no description", func() error {
			_, _, err := s.RefusalsOlderThan(ctx, Workspace, time.Now().Add(time.Hour), true)
			return err
		}, 1},
	} {
		require.NoError(t, step.do(), step.what)
		count(step.after, step.what)
	}
}

func testLease(t *testing.T, b *Backend) {
	ctx, one, two := context.Background(), b.Open(), b.Open()
	release, err := one.Lease(ctx)
	require.NoError(t, err)
	for _, s := range []store.Store{one, two} {
		_, err = s.Lease(ctx)
		require.ErrorIs(t, err, store.ErrUnavailable)
	}
	require.NoError(t, two.Commit(ctx, store.Put(approval.DocDecision, first, text)), "a decision needs no lease")
	require.NoError(t, release())
	release, err = two.Lease(ctx)
	require.NoError(t, err)
	require.NoError(t, release())
}

// testCrash checks what survives.
func testCrash(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	lease(t, s)
	for _, d := range documents {
		require.NoError(t, s.Commit(ctx, store.Put(d, first, text)))
		require.NoError(t, s.Commit(ctx, store.Put(d, second, text)))
	}
	require.NoError(t, s.Checkpoint(ctx))
	for _, d := range documents {
		require.NoError(t, s.Remove(ctx, d, second))
	}
	require.NoError(t, s.Checkpoint(ctx))
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocPending, second, other)))
	b.Crash()
	s = b.Open()
	release, err := s.Lease(ctx)
	require.NoError(t, err, "a crash ends the lease")
	for _, d := range documents {
		requireRead(t, s, d, first, text)
		if d != approval.DocPending {
			requireRead(t, s, d, second, nil)
		}
	}
	requireRead(t, s, approval.DocPending, second, other)

	// What the lease found visible stays.
	require.NoError(t, release())
	require.NoError(t, s.Commit(ctx, put(approval.DocDecision, second, text, store.Volatile)))
	_, err = b.Open().Lease(ctx)
	require.NoError(t, err)
	b.Crash()
	requireRead(t, b.Open(), approval.DocDecision, second, text)
}
