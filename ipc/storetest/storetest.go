// Package storetest checks that a store keeps what package gate expects of it. It is
// test support. A store may keep a file for each document, append to a journal, or use
// another machine: the suite sees only the methods of store.Store.
package storetest

import (
	"context"
	"errors"
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
	approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocAgain, approval.DocRecord, approval.DocRedeemed,
}

func key(id string) approval.Key { return approval.Key{Workspace: Workspace, ID: id} }

var (
	first, second = key("aaaaaaaa00000001"), key("bbbbbbbb00000002")
	text, other   = []byte("text"), []byte("other text")
)

// TestStore runs the suite. open returns a new backend with the empty workspace
// Workspace.
func TestStore(t *testing.T, open func(t *testing.T) *Backend) {
	tests := map[string]func(t *testing.T, b *Backend){
		"documents": testDocuments, "exclusive create": testExclusive, "alongside": testAlongside, "cancellation": testCancellation,
		"responses": testResponses, "folders": testFolders, "retention": testRetention, "lease": testLease,
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

func testDocuments(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	for _, d := range documents {
		requireRead(t, s, d, first, nil)
		require.NoError(t, s.Create(ctx, d, first, text, store.Durable))
		requireRead(t, s, d, first, text)
		requireRead(t, b.Open(), d, first, text)
		for _, how := range []store.Mode{store.Durable, store.Volatile} {
			require.ErrorIs(t, s.Create(ctx, d, first, other, how), store.ErrExists, d)
		}
		requireRead(t, s, d, first, text)
		require.NoError(t, s.Create(ctx, d, first, other, store.Replace))
		requireRead(t, s, d, first, other)
		require.NoError(t, s.Confirm(ctx, d, first))
		requireRead(t, s, d, second, nil)
	}
	for _, d := range documents {
		require.NoError(t, s.Remove(ctx, d, first))
		requireRead(t, s, d, first, nil)
		require.NoError(t, s.Remove(ctx, d, first), "a missing document is no error")
		require.NoError(t, s.Create(ctx, d, first, other, store.Volatile), "a removed name is free")
	}
	require.NoError(t, s.Probe(ctx))
	release, err := s.Reserve(ctx, 1<<10)
	require.NoError(t, err)
	release()
}

// testExclusive lets several processes create one document. One of them succeeds.
func testExclusive(t *testing.T, b *Backend) {
	stores := []store.Store{b.Open(), b.Open(), b.Open()}
	for _, d := range documents {
		errs := make([]error, 9)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				errs[i] = stores[i%len(stores)].Create(context.Background(), d, first, []byte{byte('0' + i)}, store.Durable)
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

func testAlongside(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	runs := 0
	require.NoError(t, s.Create(ctx, approval.DocClaim, first, text, store.Durable, func() error { runs++; return nil }))
	require.Equal(t, 1, runs)
	boom := errors.New("boom")
	require.ErrorIs(t, s.Create(ctx, approval.DocClaim, second, text, store.Durable, func() error { return boom }), boom)
}

// testCancellation checks that an ended context stops a write before it begins, and not
// in its middle.
func testCancellation(t *testing.T, b *Backend) {
	s := b.Open()
	require.NoError(t, s.Create(context.Background(), approval.DocRecord, second, text, store.Durable))
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, s.Create(ctx, approval.DocClaim, first, text, store.Durable, func() error { cancel(); return nil }))
	requireRead(t, s, approval.DocClaim, first, text)

	_, _, stageErr := s.Stage(ctx, first, text)
	_, _, listErr := s.List(ctx, approval.DocPending, Workspace)
	_, readErr := s.Read(ctx, approval.DocRecord, second)
	_, leaseErr := s.Lease(ctx)
	_, workspacesErr := s.Workspaces(ctx)
	_, reserveErr := s.Reserve(ctx, 1)
	_, oldErr := s.OlderThan(ctx, approval.DocRecord, Workspace, time.Now())
	_, _, refusalsErr := s.RefusalsOlderThan(ctx, Workspace, time.Now(), true)
	for what, err := range map[string]error{
		"Create": s.Create(ctx, approval.DocPending, first, text, store.Durable),
		"Remove": s.Remove(ctx, approval.DocRecord, second),
		"Sync":   s.Sync(ctx, approval.DocRecord, Workspace), "Refuse": s.Refuse(ctx, Workspace, "x", "why"),
		"RemoveStray": s.RemoveStray(ctx, Workspace, "x"), "Probe": s.Probe(ctx),
		"Stage": stageErr, "List": listErr, "Read": readErr, "Lease": leaseErr, "Workspaces": workspacesErr,
		"Reserve": reserveErr, "OlderThan": oldErr, "RefusalsOlderThan": refusalsErr,
	} {
		require.ErrorIs(t, err, context.Canceled, what)
	}
	requireRead(t, s, approval.DocPending, first, nil)
	requireRead(t, s, approval.DocRecord, second, text)
}

func testResponses(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	for _, want := range [][]byte{text, other} {
		show, _, err := s.Stage(ctx, first, want)
		require.NoError(t, err)
		sync, err := show()
		require.NoError(t, err)
		requireRead(t, s, approval.DocResponse, first, want)
		require.NoError(t, sync())
	}
	_, drop, err := s.Stage(ctx, second, text)
	require.NoError(t, err)
	requireRead(t, s, approval.DocResponse, second, nil)
	drop()
	requireRead(t, s, approval.DocResponse, second, nil)
}

func testFolders(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
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
		require.NoError(t, s.Create(ctx, d, first, text, store.Durable))
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
	old, young := time.Now().Add(-100*365*24*time.Hour), time.Now().Add(time.Hour)
	require.NoError(t, s.Create(ctx, approval.DocRecord, first, text, store.Durable))
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

func testLease(t *testing.T, b *Backend) {
	ctx, one, two := context.Background(), b.Open(), b.Open()
	release, err := one.Lease(ctx)
	require.NoError(t, err)
	for _, s := range []store.Store{one, two} {
		_, err = s.Lease(ctx)
		require.ErrorIs(t, err, store.ErrUnavailable)
	}
	require.NoError(t, two.Create(ctx, approval.DocDecision, first, text, store.Durable), "a decision needs no lease")
	require.NoError(t, release())
	release, err = two.Lease(ctx)
	require.NoError(t, err)
	require.NoError(t, release())
}

// testCrash checks what survives.
func testCrash(t *testing.T, b *Backend) {
	ctx, s := context.Background(), b.Open()
	_, err := s.Lease(ctx)
	require.NoError(t, err)
	for _, d := range documents {
		require.NoError(t, s.Create(ctx, d, first, text, store.Durable))
		require.NoError(t, s.Create(ctx, d, second, text, store.Durable))
	}
	show, _, err := s.Stage(ctx, first, text)
	require.NoError(t, err)
	sync, err := show()
	require.NoError(t, err)
	require.NoError(t, sync())
	for _, d := range documents {
		require.NoError(t, s.Remove(ctx, d, second))
		require.NoError(t, s.Sync(ctx, d, Workspace))
	}
	b.Crash()
	s = b.Open()
	release, err := s.Lease(ctx)
	require.NoError(t, err, "a crash ends the lease")
	for _, d := range documents {
		requireRead(t, s, d, first, text)
		requireRead(t, s, d, second, nil)
	}
	requireRead(t, s, approval.DocResponse, first, text)

	// What the lease found visible stays.
	require.NoError(t, release())
	require.NoError(t, s.Create(ctx, approval.DocDecision, second, text, store.Volatile))
	_, err = b.Open().Lease(ctx)
	require.NoError(t, err)
	b.Crash()
	requireRead(t, b.Open(), approval.DocDecision, second, text)
}
