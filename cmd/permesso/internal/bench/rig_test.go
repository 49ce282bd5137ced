package bench

import (
	"context"
	"errors"
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
	"github.com/permesso-dev/permesso/approval/store"
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

	executor *lastJob
	whole    []time.Duration // from requests to their responses
}

// lastJob remembers the last job.
type lastJob struct {
	*exec.Runner
	last approval.Job
}

func (e *lastJob) Run(ctx context.Context, job approval.Job) approval.Effect {
	e.last = job
	return e.Runner.Run(ctx, job)
}

// newRig creates a home. It starts nothing.
func newRig(b *testing.B, change ...func(*gatetest.Options)) *rig {
	b.Helper()
	delete(units, b.Name())
	unit(b)
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
			r.executor = &lastJob{Runner: &exec.Runner{Verifier: r.Verifier}}
			b.Cleanup(func() { require.NoError(b, r.executor.Close()) })
			r.store.Store = r.Store
			g.Store, g.Executor, g.Changed = r.store, r.executor, r.changed
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
		Store: r.store, Seal: r.Seal, Decided: r.Gate.Decided,
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

func (e *timedStore) Commit(ctx context.Context, ops ...store.Op) error {
	err := e.Store.Commit(ctx, ops...)
	for _, op := range ops {
		if err == nil && op.Doc == approval.DocResponse {
			e.markVisible(op.Key)
		}
	}
	return err
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

// countingFS counts syncs, and can make them slow.
type countingFS struct {
	ipc.FS
	syncs atomic.Int64
	delay atomic.Int64 // nanoseconds that each sync takes longer
}

func (c *countingFS) count() {
	c.syncs.Add(1)
	time.Sleep(time.Duration(c.delay.Load()))
}

// File.Sync is counted by countingFile.
func (c *countingFS) SyncDir(name string) error { c.count(); return c.FS.SyncDir(name) }

func (c *countingFS) OpenFS(name string) (ipc.OpenedFS, error) {
	disk, err := c.FS.OpenFS(name)
	return countingDisk{disk, c}, err
}

// sync makes everything durable.
func (c *countingFS) sync(dir string) error {
	disk, err := c.OpenFS(dir)
	if err != nil {
		return err
	}
	return errors.Join(disk.Sync(), disk.Close())
}

// countingDisk counts the syncs of a whole file system.
type countingDisk struct {
	ipc.OpenedFS
	c *countingFS
}

func (d countingDisk) Sync() error { d.c.count(); return d.OpenedFS.Sync() }

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

func (f countingFile) Sync() error { f.c.count(); return f.File.Sync() }

// Datasync is what the journal calls.
func (c *countingFS) Datasync(f afero.File) error {
	c.count()
	if counted, ok := f.(countingFile); ok {
		f = counted.File
	}
	return c.FS.Datasync(f)
}
