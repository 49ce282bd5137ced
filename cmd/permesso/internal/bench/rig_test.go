package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/ipc"
)

const workspace = "default"

// rig is a gate with the real executor, whose store records times.
type rig struct {
	*gatetest.Rig
	b       *testing.B
	fs      *countingFS
	store   *timedStore
	decider *gate.Decider
	changed func(approval.Key)
}

// newRig creates a home. It starts nothing.
func newRig(b *testing.B, change ...func(*gatetest.Options)) *rig {
	b.Helper()
	r := &rig{b: b, fs: &countingFS{FS: ipc.OS()}}
	tools := gatetest.Tools()
	tools["none"], tools["true"] = tools["note"], tools["run"]
	for _, name := range []string{"none", "true", "auto"} {
		t := tools[name]
		t.Name, t.Handler.Argv = name, nil
		if name == "true" {
			t.Handler.Argv = []string{"/bin/true"}
		} else {
			t.Handler.Kind = approval.HandlerNone
		}
		tools[name] = t
	}
	o := gatetest.Options{
		Dir: folder(b), FS: r.fs, Signed: true, Tools: tools,
		Workspaces: []approval.Workspace{{Name: workspace, Limits: approval.Limits{Pending: 1 << 20, AskPerMinute: 1 << 20, PerMinute: 1 << 20, Running: 8}}},
		Gate: func(g *gate.Gate) {
			runner := &exec.Runner{Verifier: r.Verifier}
			b.Cleanup(func() { require.NoError(b, runner.Close()) })
			r.store.Store = r.Store
			g.Store, g.Executor, g.Changed = r.store, runner, r.changed
		},
		FloodPerSecond: 1 << 30,
	}
	for _, f := range change {
		f(&o)
	}
	r.Rig = gatetest.New(b, o)
	r.store = &timedStore{Store: r.Store, readAt: map[string]time.Time{}, visibleAt: map[string]time.Time{}}
	return r
}

// start starts the gate on the files in the home.
func (r *rig) start() {
	r.b.Helper()
	r.Open()
	r.Log.Note(event.Entry{Event: event.Started}) // as serve does; this signs the log before the measurement
	r.decider = &gate.Decider{
		Store: r.store, Seal: r.Seal, Decided: r.Gate.Wake,
		May: func(string, *approval.Pending, approval.Person) (string, bool) { return "bench", true },
	}
	r.Run(5 * time.Second)
	if len(r.Keys) > 0 { // so that Idle means finished, not that work has not begun
		r.Await("gate started", func() bool { return !r.Gate.Idle() })
	}
}

func id(n int) string { return fmt.Sprintf("%08x%08x", n+1, n) }

func key(n int) approval.Key { return approval.Key{Workspace: workspace, ID: id(n)} }

// request writes a request as an agent does.
func (r *rig) request(n int, tool string) {
	r.WriteRequest(key(n), fmt.Sprintf(`{"request_id":%q,"tool_name":%q,"request_data":{"text":"Meeting at 5"}}`, id(n), tool))
}

func (r *rig) approve(id string) error {
	_, err := r.decider.Decide(context.Background(), decide.Input{
		Key: approval.Key{Workspace: workspace, ID: id}, Verdict: approval.Approved, Code: "1", Via: "bench",
		By: approval.Person{Channel: "local", ID: "0", Name: "bench"},
	})
	return err
}

func (r *rig) exists(d, id string) bool {
	_, err := os.Stat(filepath.Join(r.Layout.Workspace(workspace), d, id+".json"))
	return err == nil
}

// timedStore records when a decision was first read and when a response became visible.
type timedStore struct {
	*ipc.Store
	mu        sync.Mutex
	readAt    map[string]time.Time
	visibleAt map[string]time.Time
}

func (e *timedStore) Read(ctx context.Context, d approval.Doc, k approval.Key) ([]byte, error) {
	b, err := e.Store.Read(ctx, d, k)
	if d == approval.DocDecision && err == nil {
		now := time.Now()
		e.mu.Lock()
		if _, ok := e.readAt[k.ID]; !ok {
			e.readAt[k.ID] = now
		}
		e.mu.Unlock()
	}
	return b, err
}

func (e *timedStore) Stage(ctx context.Context, k approval.Key, b []byte) (func() (func() error, error), func(), error) {
	show, drop, err := e.Store.Stage(ctx, k, b)
	if err != nil {
		return nil, nil, err
	}
	return func() (func() error, error) {
		sync, err := show()
		e.markVisible(k)
		return sync, err
	}, drop, nil
}

func (e *timedStore) markVisible(k approval.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.visibleAt[k.ID] = time.Now()
}

func (e *timedStore) visibleCount() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.visibleAt)
}

func (e *timedStore) times(id string) (seen, out time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.readAt[id], e.visibleAt[id]
}

// countingFS counts syncs.
type countingFS struct {
	ipc.FS
	syncs atomic.Int64
}

// File.Sync is counted by countingFile.
func (c *countingFS) SyncDir(name string) error { c.syncs.Add(1); return c.FS.SyncDir(name) }
func (c *countingFS) SyncFS(name string) error  { c.syncs.Add(1); return c.FS.SyncFS(name) }

func (c *countingFS) OpenFile(name string, flag int, perm os.FileMode) (afero.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return countingFile{f, c}, nil
}

type countingFile struct {
	afero.File
	c *countingFS
}

func (f countingFile) Sync() error { f.c.syncs.Add(1); return f.File.Sync() }
