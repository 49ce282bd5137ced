package gate_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
	"github.com/permesso-dev/permesso/watcher"
)

// The two workspaces of every rig.
const (
	personal = "personal"
	other    = "other"
)

// options configure a rig. The zero value is the real file system, the real clock,
// and a gate that does not run yet.
type options struct {
	inMemory    bool            // in /dev/shm, if there is one: for long tests
	frozenClock bool            // only the test moves the clock
	inline      bool            // handlers run within Step
	limits      approval.Limits // of both workspaces
	timeout     time.Duration   // 0: an hour
	quietHours  approval.QuietHours
	tools       map[string]approval.Tool
	rules       []policy.Rule
	provers     approval.Provers
	store       func(gate.Store) gate.Store // wraps the real store
	audit       func(gate.Audit) gate.Audit
	fs          ipc.FS // of the gate and its log; nil: the real one
}

// rig is a HOME in a temporary folder. Everything is real except the handlers and the
// people.
type rig struct {
	t        testing.TB
	options  options
	layout   ipc.Layout
	store    *ipc.Store
	key      *seal.Key
	signer   *receipt.Signer
	gate     *gate.Gate
	executor *fakeExecutor
	logs     *logBuffer
	clock    *clock
	changes  chan struct{} // a document may have changed

	mu    sync.Mutex
	tools map[string]approval.Tool

	log     *audit.Log
	keys    []approval.Key
	release func() error
	stop    func()
	rescans atomic.Int32
}

func newRig(t testing.TB, p options) *rig {
	h := &rig{
		t: t, options: p, layout: ipc.Layout{Home: tempFolder(t, p.inMemory)}, logs: &logBuffer{}, clock: &clock{},
		changes: make(chan struct{}, 1), tools: map[string]approval.Tool{},
	}
	if p.frozenClock {
		h.clock.base = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	}
	for _, name := range []string{"run", "fails", "auto", "never"} {
		h.tools[name] = approval.Tool{Name: name, Trust: harmlessTrust, Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/" + name}}}
	}
	h.tools["again"] = approval.Tool{Name: "again", Trust: harmlessTrust, Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/again"}, Idempotent: true}}
	h.tools["receipt"] = approval.Tool{Name: "receipt", Trust: harmlessTrust, Handler: approval.Handler{Kind: approval.HandlerNone}}
	for name, tool := range p.tools {
		h.tools[name] = tool
	}
	require.NoError(t, h.layout.PrepareHome(ipc.OS()))
	for _, ws := range []string{personal, other} {
		require.NoError(t, h.layout.Prepare(ipc.OS(), ws))
	}
	var err error
	h.key, err = seal.LoadOrCreate(ipc.OS(), h.layout.Keys())
	require.NoError(t, err)
	h.signer, err = receipt.LoadOrCreate(ipc.OS(), h.layout.Keys(), "test")
	require.NoError(t, err)
	verifier, err := h.signer.Verifier()
	require.NoError(t, err)
	verifier.Now = h.clock.now
	h.executor = &fakeExecutor{verifier: verifier, onRun: h.changed}
	t.Cleanup(h.close)
	h.open()
	return h
}

// tempFolder is a temporary folder. In memory, an fsync costs nothing.
func tempFolder(t testing.TB, memory bool) string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); !memory || err != nil || !info.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shm, "permesso-gate-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// open does what serve does before Run: lock, audit log, Start.
func (h *rig) open() {
	fsys := h.options.fs
	if fsys == nil {
		fsys = ipc.OS()
	}
	h.store = &ipc.Store{FS: fsys, Layout: h.layout, RequestSize: func(string) int64 {
		return int64(h.options.limits.WithDefaults().RequestSize)
	}}
	var err error
	h.release, err = h.store.Lease(context.Background())
	require.NoError(h.t, err)
	h.log, err = audit.Open(fsys, h.layout.Audit(), h.clock.now)
	require.NoError(h.t, err)
	rules := append([]policy.Rule{
		{Name: "auto", Tool: "auto", Outcome: approval.Allow},
		{Name: "never", Tool: "never", Outcome: approval.Deny, Reason: "no"},
	}, h.options.rules...)
	h.gate = &gate.Gate{
		Store: h.store, Seal: h.key, Receipts: h.signer, Policy: newPolicy(h.t, rules),
		Executor: h.executor, Audit: h.log, Settings: h, Log: zerolog.New(h.logs), Now: h.clock.now,
		Changed: func(approval.Key) { h.changed() }, Inline: h.options.inline,
	}
	if h.options.store != nil {
		h.gate.Store = h.options.store(h.store)
	}
	if h.options.audit != nil {
		h.gate.Audit = h.options.audit(h.log)
	}
	h.keys, err = h.gate.Start(context.Background())
	require.NoError(h.t, err)
}

// run runs the gate until close; if interval is not zero, with a real watcher.
func (h *rig) run(interval time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	if interval > 0 {
		w := h.watcher(interval)
		wg.Go(func() { _ = w.Run(ctx) })
	}
	wg.Go(func() { _ = h.gate.Run(ctx, h.keys) })
	h.stop = func() {
		cancel()
		wg.Wait()
	}
}

// watcher wakes keys as serve does.
func (h *rig) watcher(interval time.Duration) *watcher.Watcher {
	w := &watcher.Watcher{
		Interval: interval, Log: zerolog.New(h.logs),
		Wake: func(ws, kind, name string) {
			id, _, _ := strings.Cut(name, ".")
			k := approval.Key{Workspace: ws, ID: id}
			if d := approval.Doc(kind); d != approval.DocRequest {
				h.gate.Hint(k, d)
				return
			}
			h.gate.Wake(k)
		},
		Rescan: func(ws string) {
			if err := h.gate.Rescan(context.Background(), ws); err != nil {
				h.t.Errorf("rescan: %v", err)
			}
			h.rescans.Add(1)
		},
	}
	for _, ws := range []string{personal, other} {
		for _, f := range []watcher.Folder{
			{Path: h.layout.Requests(ws), Kind: string(approval.DocRequest), Suffixes: []string{".json", ".cancel"}, IgnoreRemovals: true},
			{Path: h.layout.Pendings(ws), Kind: string(approval.DocPending), Trusted: true},
			{Path: h.layout.Decisions(ws), Kind: string(approval.DocDecision), Trusted: true},
			{Path: h.layout.Responses(ws), Kind: string(approval.DocResponse), Trusted: true},
		} {
			f.Group = ws
			require.NoError(h.t, w.Add(f))
		}
	}
	return w
}

func (h *rig) close() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	if h.release == nil {
		return
	}
	require.NoError(h.t, errors.Join(h.log.Close(), h.release()))
	h.release = nil
}

// reopen restarts the daemon.
func (h *rig) reopen() {
	h.close()
	h.open()
}

// Workspace implements gate.Settings.
func (h *rig) Workspace(name string) (approval.Workspace, bool) {
	known := name == personal || name == other
	if !known {
		return approval.Workspace{}, false
	}
	return approval.Workspace{
		Name: name, Timeout: cmp.Or(h.options.timeout, time.Hour), QuietHours: h.options.quietHours, Approvers: []string{"ann"}, LocalDecisions: true, Limits: h.options.limits,
	}, true
}

// Tool implements gate.Settings.
func (h *rig) Tool(name string) (approval.Tool, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.tools[name]
	return t, ok
}

// Provers implements gate.Settings.
func (h *rig) Provers() approval.Provers { return h.options.provers }

// setTool sets a tool; the zero Tool removes it.
func (h *rig) setTool(name string, tool approval.Tool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tool.Name == "" {
		delete(h.tools, name)
		return
	}
	h.tools[name] = tool
}

// key returns the nth key of the first workspace. All short ids differ.
func key(n int) approval.Key { return keyIn(personal, n) }

func keyIn(ws string, n int) approval.Key {
	return approval.Key{Workspace: ws, ID: fmt.Sprintf("%08x%08x", uint32(n), 0xabcdef01)}
}

// request is a request for tool with args; more are further members.
func request(k approval.Key, tool, args string, more ...string) string {
	return fmt.Sprintf(`{"request_id":%q,"tool_name":%q,"request_data":%s%s}`, k.ID, tool, cmp.Or(args, "{}"), strings.Join(append([]string{""}, more...), ","))
}

func (h *rig) requestPath(k approval.Key) string {
	return filepath.Join(h.layout.Requests(k.Workspace), k.ID+".json")
}

// writeRequest writes a request as an agent should: to another name, then a rename.
func (h *rig) writeRequest(k approval.Key, body string) {
	temp := filepath.Join(h.layout.Requests(k.Workspace), "."+k.ID)
	require.NoError(h.t, os.WriteFile(temp, []byte(body), 0o644))
	require.NoError(h.t, os.Rename(temp, h.requestPath(k)))
}

func (h *rig) cancel(k approval.Key) {
	require.NoError(h.t, os.WriteFile(filepath.Join(h.layout.Requests(k.Workspace), k.ID+".cancel"), nil, 0o644))
}

// step steps keys without a running gate.
func (h *rig) step(keys ...approval.Key) {
	for _, k := range keys {
		_, err := h.gate.Step(context.Background(), k)
		require.NoError(h.t, err)
	}
}

// ask writes a request that policy asks about, and steps it.
func (h *rig) ask(k approval.Key, body string) {
	h.writeRequest(k, body)
	h.step(k)
	require.True(h.t, h.has(approval.DocPending, k), "asked: %s", h.outcome(k))
}

// decider returns a decider like that of another process.
func (h *rig) decider() *gate.Decider {
	return &gate.Decider{
		Store: &ipc.Store{FS: ipc.OS(), Layout: h.layout}, Seal: h.key, Now: h.clock.now, May: localOnly,
	}
}

// localOnly accepts the local operator only.
func localOnly(_ string, _ *approval.Pending, by approval.Person) (string, bool) {
	return by.Name, by.Channel == "local"
}

func person(name string) approval.Person {
	return approval.Person{Channel: "local", ID: "1000", Name: name}
}

func decision(k approval.Key, v approval.Verdict) approval.DecisionInput {
	return approval.DecisionInput{Key: k, Verdict: v, By: person("ann"), Via: "cli"}
}

// decide decides without an error.
func (h *rig) decide(a approval.DecisionInput) {
	_, err := h.decider().Decide(context.Background(), a)
	require.NoError(h.t, err)
}

// read returns a document, nil if there is none.
func (h *rig) read(d approval.Doc, k approval.Key) []byte {
	b, err := h.store.Read(context.Background(), d, k)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(h.t, err)
	return b
}

func (h *rig) has(d approval.Doc, k approval.Key) bool { return h.read(d, k) != nil }

// response returns the response, nil if there is none.
func (h *rig) response(k approval.Key) *approval.Response {
	b := h.read(approval.DocResponse, k)
	if b == nil {
		return nil
	}
	r, err := approval.ParseResponse(b)
	require.NoError(h.t, err)
	return r
}

// outcome returns status and error of the response in one line.
func (h *rig) outcome(k approval.Key) string {
	r := h.response(k)
	switch {
	case r == nil:
		return "none"
	case r.Error != nil:
		return string(r.Status) + ": " + *r.Error
	}
	return string(r.Status)
}

func (h *rig) record(k approval.Key) *approval.Record {
	v := gate.Viewer{Store: h.store, Workspaces: h.store, Seal: h.key}
	r, err := v.Record(context.Background(), k)
	require.NoError(h.t, err)
	return r
}

// pending returns the verified pending, nil if there is none.
func (h *rig) pending(k approval.Key) *approval.Pending {
	v := gate.Viewer{Store: h.store, Workspaces: h.store, Seal: h.key}
	w, err := v.Pending(k)
	require.NoError(h.t, err)
	if w == nil {
		return nil
	}
	return w.Pending
}

// isSettled reports that k has only a record and a response.
func (h *rig) isSettled(k approval.Key) bool {
	for _, d := range []approval.Doc{approval.DocRequest, approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocAgain} {
		if _, err := h.store.Read(context.Background(), d, k); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return h.has(approval.DocRecord, k) && h.has(approval.DocResponse, k)
}

// refusals are the descriptions in errors/.
func (h *rig) refusals(ws string) string {
	var all strings.Builder
	entries, err := os.ReadDir(h.layout.Errors(ws))
	require.NoError(h.t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(h.layout.Errors(ws), e.Name()))
		if !errors.Is(err, fs.ErrNotExist) { // a temporary file
			require.NoError(h.t, err)
		}
		all.Write(b)
	}
	return all.String()
}

// history lists the audit events of a request.
func (h *rig) history(k approval.Key) []approval.Event {
	var events []approval.Event
	require.NoError(h.t, h.log.Sync())
	require.NoError(h.t, audit.Entries(ipc.OS(), h.layout.Audit(), func(e approval.Entry) error {
		if e.Workspace == k.Workspace && e.RequestID == k.ID {
			events = append(events, e.Event)
		}
		return nil
	}))
	return events
}

func (h *rig) changed() {
	select {
	case h.changes <- struct{}{}:
	default:
	}
}

// waitFor checks ok at every change, and every 2 ms because no event signals a
// cleanup. It gives up 30 s after within, for slow machines, and returns how long it
// took.
func (h *rig) waitFor(within time.Duration, what string, ok func() bool) time.Duration {
	h.t.Helper()
	began := time.Now()
	now := time.NewTicker(2 * time.Millisecond)
	defer now.Stop()
	for !ok() {
		if took := time.Since(began); took > within+30*time.Second {
			require.Failf(h.t, "timeout", "%s, for %v\n%s", what, took, h.logs)
		}
		select {
		case <-h.changes:
		case <-now.C:
		}
	}
	return time.Since(began)
}

// waitResponse waits for the response.
func (h *rig) waitResponse(k approval.Key, within time.Duration) *approval.Response {
	h.t.Helper()
	h.waitFor(within, "response of "+k.String(), func() bool { return h.has(approval.DocResponse, k) })
	return h.response(k)
}

// sharedFile reads a file of the shared folder. If there is none, the test is
// skipped, except in CI.
func sharedFile(t *testing.T, path ...string) []byte {
	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "..", "shared"}, path...)...))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		return nil
	}
	require.NoError(t, err)
	return b
}

// field is one member of a JSON object, as it is written there.
func field(t testing.TB, object []byte, name string) string {
	var m map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(object, &m))
	return string(m[name])
}

// harmlessTrust adds no taint. It states a write, so policy asks.
var harmlessTrust = approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: "true"}

// newPolicy is a policy with only these rules.
func newPolicy(t testing.TB, rules []policy.Rule) *policy.Engine {
	t.Helper()
	e := &policy.Engine{}
	require.NoError(t, e.Load(policy.Config{Rules: rules}))
	return e
}
