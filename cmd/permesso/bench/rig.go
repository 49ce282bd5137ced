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

// house is a gate as serve wires it, with eyes.
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
	unsigned bool // the audit log has neither tree nor checkpoints
}

// tame taints nobody and reaches nobody; it writes, so it asks.
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

func (settings) Tool(name string) (approval.Tool, bool) {
	t, ok := tools[name]
	return t, ok
}

// build makes a home; nothing runs yet.
func (b *bench) newRig(name string) (*rig, error) {
	h := &rig{layout: ipc.Layout{Home: filepath.Join(b.dir, name)}, fs: &countingFS{FS: ipc.OS()}}
	if err := errors.Join(h.layout.PrepareHome(h.fs), h.layout.Prepare(h.fs, workspace)); err != nil {
		return nil, err
	}
	var err error
	if h.key, err = seal.LoadOrCreate(h.fs, h.layout.Keys()); err != nil {
		return nil, err
	}
	h.store = &timedStore{Store: &ipc.Store{FS: h.fs, Layout: h.layout}, readAt: map[string]time.Time{}, visibleAt: map[string]time.Time{}}
	return h, nil
}

// start starts the gate on what lies there, and returns how long that took
// until the gate knew its keys.
func (h *rig) start() error {
	release, err := h.store.Open()
	if err != nil {
		return err
	}
	signer, err := receipt.LoadOrCreate(h.fs, h.layout.Keys(), "bench")
	if err != nil {
		return err
	}
	verifier, err := signer.Verifier()
	if err != nil {
		return err
	}
	signing := audit.Keys{Signer: signer.NoteSigner(), Known: verifier.Known()}
	if h.unsigned {
		signing = audit.Keys{}
	}
	log, err := audit.OpenSigned(h.fs, h.layout.Audit(), time.Now, signing)
	if err != nil {
		return err
	}
	h.log = log
	log.Note(approval.Entry{Event: approval.EventStarted}) // as serve does: it is signed before anything is measured
	runner := &exec.Runner{Verifier: verifier, Log: zerolog.New(io.Discard)}
	h.gate = &gate.Gate{
		Store: h.store, Workspaces: h.store, Seal: h.key, Receipts: signer, Executor: runner, Audit: log, Settings: settings{},
		Policy: newPolicy(),
		Log:    zerolog.New(io.Discard), Changed: h.changed,
	}
	if h.keys, err = h.gate.Start(); err != nil {
		return err
	}
	h.decider = &gate.Decider{
		Store: h.store, Seal: h.key, Daemon: true, Decided: h.gate.Wake,
		May: func(string, *approval.Pending, approval.Person) (string, bool) { return "bench", true },
	}
	w := &watcher.Watcher{Wake: h.wake, Rescan: h.rescan, Log: zerolog.New(io.Discard), FloodPerSecond: 1 << 30}
	for kind, dir := range map[string]string{
		"request": h.layout.Requests(workspace), "pending": h.layout.Pendings(workspace),
		"decision": h.layout.Decisions(workspace), "response": h.layout.Responses(workspace),
	} {
		if err := w.Add(watcher.Folder{Path: dir, Group: workspace, Kind: kind, Suffixes: []string{".json"}, Trusted: true}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Run(ctx) })
	wg.Go(func() { _ = h.gate.Run(ctx, h.keys) })
	if len(h.keys) > 0 { // so that Idle means done, not yet to come
		if err := waitFor("begun", func() bool { return !h.gate.Idle() }); err != nil {
			cancel()
			return err
		}
	}
	h.stop = func() error {
		cancel()
		wg.Wait()
		return errors.Join(runner.Close(), log.Close(), release())
	}
	return nil
}

// end stops the gate; a figure that was measured is not spoilt by a bad end.
func (h *rig) stopAndReport() {
	if err := h.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: stop:", err)
	}
}

func (h *rig) wake(_, kind, name string) {
	id, _, _ := splitExt(name)
	k := approval.Key{Workspace: workspace, ID: id}
	if kind == "request" {
		h.gate.Wake(k)
	} else {
		h.gate.Hint(k, approval.Doc(kind))
	}
}

func splitExt(name string) (string, string, bool) {
	ext := filepath.Ext(name)
	return name[:len(name)-len(ext)], ext, true
}

func (h *rig) rescan(string) {
	_ = h.log.Checkpoint() // as serve does
	_ = h.gate.Rescan(workspace)
}

// eyes notes when a decision was first read and when a response was visible.
type timedStore struct {
	*ipc.Store
	mu        sync.Mutex
	readAt    map[string]time.Time
	visibleAt map[string]time.Time
}

func (e *timedStore) Read(d approval.Doc, k approval.Key) ([]byte, error) {
	b, err := e.Store.Read(d, k)
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

func (e *timedStore) Stage(k approval.Key, b []byte) (func() (func() error, error), func(), error) {
	show, drop, err := e.Store.Stage(k, b)
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

func (e *timedStore) Publish(k approval.Key, b []byte) (func() error, error) {
	sync, err := e.Store.Publish(k, b)
	e.markVisible(k)
	return sync, err
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

// countingFS counts what reaches the disk.
type countingFS struct {
	ipc.FS
	syncs atomic.Int64
}

// countingFS leaves file syncs to the wrapped file: OpenFile counts them.
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

// request writes a request as an agent does.
func (h *rig) writeRequest(id, tool string) error {
	dir := h.layout.Requests(workspace)
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
			return fmt.Errorf("%s: not within two minutes", what)
		}
	}
	return nil
}

func (h *rig) exists(d, id string) bool {
	_, err := os.Stat(filepath.Join(h.layout.Workspace(workspace), d, id+".json"))
	return err == nil
}

func id(n int) string { return fmt.Sprintf("%08x%08x", n+1, n) }

// ruled is policy that allows one tool.
func newPolicy() *policy.Engine {
	e := &policy.Engine{}
	if err := e.Load(policy.Config{Rules: []policy.Rule{{Name: "allowed", Tool: "allowed", Outcome: approval.Allow}}}); err != nil {
		panic(err) // a constant
	}
	return e
}
