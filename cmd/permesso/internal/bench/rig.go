package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
	"github.com/permesso-dev/permesso/watcher"
)

const workspace = "default"

// rig is a gate, connected as in serve, whose store records times.
type rig struct {
	layout  ipc.Layout
	fs      *countingFS
	store   *timedStore
	key     *seal.Key
	gate    *gate.Gate
	log     *audit.Log
	decider *gate.Decider
	keys    []approval.Key
	stop    func() error

	changed  func(approval.Key)
	unsigned bool // audit log without tree and checkpoints
}

// harmless sets no taints and has no public sink; it writes, so it needs approval.
var harmless = approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: "true"}

var tools = map[string]approval.Tool{
	"none":    {Name: "none", Trust: harmless, Handler: approval.Handler{Kind: approval.HandlerNone}},
	"true":    {Name: "true", Trust: harmless, Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/true"}}},
	"allowed": {Name: "allowed", Trust: harmless, Handler: approval.Handler{Kind: approval.HandlerNone}},
}

type settings struct{}

func (settings) Workspace(name string) (approval.Workspace, bool) {
	huge := approval.Limits{Pending: 1 << 20, AskPerMinute: 1 << 20, PerMinute: 1 << 20, Running: 8}
	return approval.Workspace{Name: name, Timeout: time.Hour, Limits: huge}, name == workspace
}

// Provers implements gate.Settings.
func (settings) Provers() approval.Provers { return nil }

func (settings) Tool(name string) (approval.Tool, bool) {
	t, ok := tools[name]
	return t, ok
}

// newRig creates a home. It starts nothing.
func (b *bench) newRig(name string) (*rig, error) {
	r := &rig{layout: ipc.Layout{Home: filepath.Join(b.dir, name)}, fs: &countingFS{FS: ipc.OS()}}
	if err := errors.Join(r.layout.PrepareHome(r.fs), r.layout.Prepare(r.fs, workspace)); err != nil {
		return nil, err
	}
	var err error
	if r.key, err = seal.LoadOrCreate(r.fs, r.layout.Keys()); err != nil {
		return nil, err
	}
	r.store = &timedStore{Store: &ipc.Store{FS: r.fs, Layout: r.layout}, readAt: map[string]time.Time{}, visibleAt: map[string]time.Time{}}
	return r, nil
}

// start starts the gate on the files in the home.
func (r *rig) start() error {
	release, err := r.store.Lease(context.Background())
	if err != nil {
		return err
	}
	signer, err := receipt.LoadOrCreate(r.fs, r.layout.Keys(), "bench")
	if err != nil {
		return err
	}
	verifier, err := signer.Verifier()
	if err != nil {
		return err
	}
	signing := audit.Keys{Signer: signer.NoteSigner(), Known: verifier.Known()}
	if r.unsigned {
		signing = audit.Keys{}
	}
	log, err := audit.OpenSigned(r.fs, r.layout.Audit(), time.Now, signing)
	if err != nil {
		return err
	}
	r.log = log
	log.Note(approval.Entry{Event: approval.EventStarted}) // as serve does; this signs the log before the measurement
	runner := &exec.Runner{Verifier: verifier, Log: zerolog.New(io.Discard)}
	r.gate = &gate.Gate{
		Store: r.store, Seal: r.key, Receipts: signer, Executor: runner, Audit: log, Settings: settings{},
		Policy: newPolicy(),
		Log:    zerolog.New(io.Discard), Changed: r.changed,
	}
	if r.keys, err = r.gate.Start(context.Background()); err != nil {
		return err
	}
	r.decider = &gate.Decider{
		Store: r.store, Seal: r.key, Decided: r.gate.Wake,
		May: func(string, *approval.Pending, approval.Person) (string, bool) { return "bench", true },
	}
	w := &watcher.Watcher{Wake: r.wake, Rescan: r.rescan, Log: zerolog.New(io.Discard), FloodPerSecond: 1 << 30}
	for kind, dir := range map[string]string{
		"request": r.layout.Requests(workspace), "pending": r.layout.Pendings(workspace),
		"decision": r.layout.Decisions(workspace), "response": r.layout.Responses(workspace),
	} {
		if err := w.Add(watcher.Folder{Path: dir, Group: workspace, Kind: kind, Suffixes: []string{".json"}, Trusted: true}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Run(ctx) })
	wg.Go(func() { _ = r.gate.Run(ctx, r.keys) })
	if len(r.keys) > 0 { // so that Idle means finished, not that work has not begun
		if err := waitFor("gate started", func() bool { return !r.gate.Idle() }); err != nil {
			cancel()
			return err
		}
	}
	r.stop = func() error {
		cancel()
		wg.Wait()
		return errors.Join(runner.Close(), log.Close(), release())
	}
	return nil
}

// stopAndReport stops the gate. It only prints an error: the figures are valid.
func (r *rig) stopAndReport() {
	if err := r.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: stop:", err)
	}
}

func (r *rig) wake(_, kind, name string) {
	id, _, _ := splitExt(name)
	k := approval.Key{Workspace: workspace, ID: id}
	if kind == "request" {
		r.gate.Wake(k)
	} else {
		r.gate.Hint(k, approval.Doc(kind))
	}
}

func splitExt(name string) (string, string, bool) {
	ext := filepath.Ext(name)
	return name[:len(name)-len(ext)], ext, true
}

func (r *rig) rescan(string) {
	_ = r.log.Checkpoint() // as serve does
	_ = r.gate.Rescan(context.Background(), workspace)
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

func (c *countingFS) OpenFile(name string, flag int, perm os.FileMode) (aferoFile, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return countingFile{f, c}, nil
}

type countingFile struct {
	aferoFile
	c *countingFS
}

func (f countingFile) Sync() error { f.c.syncs.Add(1); return f.aferoFile.Sync() }

// writeRequest writes a request as an agent does.
func (r *rig) writeRequest(id, tool string) error {
	dir := r.layout.Requests(workspace)
	temp := filepath.Join(dir, "."+id)
	text := fmt.Sprintf(`{"request_id":%q,"tool_name":%q,"request_data":{"text":"Meeting at 5"}}`, id, tool)
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, id+".json"))
}

// waitFor waits until cond holds.
func waitFor(what string, cond func() bool) error {
	for deadline := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("timeout after two minutes: %s", what)
		}
	}
	return nil
}

func (r *rig) exists(d, id string) bool {
	_, err := os.Stat(filepath.Join(r.layout.Workspace(workspace), d, id+".json"))
	return err == nil
}

func id(n int) string { return fmt.Sprintf("%08x%08x", n+1, n) }

// newPolicy returns policy that allows one tool.
func newPolicy() *policy.Engine {
	e := &policy.Engine{}
	if err := e.Load(policy.Config{Rules: []policy.Rule{{Name: "allowed", Tool: "allowed", Outcome: approval.Allow}}}); err != nil {
		panic(err) // a constant
	}
	return e
}
