package gate_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// The two workspaces of every rig.
const (
	personal = "personal"
	other    = "other"
)

// options configure a rig. The zero value is the real file system, the real clock,
// and a gate that does not run yet.
type options struct {
	frozenClock bool            // only the test moves the clock
	inline      bool            // handlers run within Step
	limits      approval.Limits // of both workspaces
	timeout     time.Duration   // 0: an hour
	noFolder    bool            // requests come only from callers
	quietHours  approval.QuietHours
	tools       map[string]approval.Tool
	rules       []policy.Rule
	provers     facts.Provers
	store       func(store.Store) store.Store // wraps the real store
	audit       func(gate.Audit) gate.Audit
	fs          ipc.FS // nil: the real one
}

// rig is gatetest's rig with the fakes of these tests.
type rig struct {
	*gatetest.Rig
	t        testing.TB
	options  options
	layout   ipc.Layout
	store    *ipc.Store
	key      *seal.Key
	signer   *receipt.Signer
	gate     *gate.Gate
	executor *fakeExecutor
	planner  fakePlanner
	logs     *logBuffer
	clock    *clock
	changes  chan struct{} // a document may have changed

	mu    sync.Mutex
	tools map[string]approval.Tool

	log  *audit.Log
	keys []approval.Key
}

func newRig(t testing.TB, p options) *rig {
	h := &rig{
		t: t, options: p, logs: &logBuffer{}, clock: &clock{}, changes: make(chan struct{}, 1), tools: gatetest.Tools(),
	}
	if p.frozenClock {
		h.clock.base = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	}
	again, receipt := h.tools["run"], h.tools["note"]
	again.Name, again.Handler.Idempotent, receipt.Name = "again", true, "receipt"
	h.tools["again"], h.tools["receipt"] = again, receipt
	maps.Copy(h.tools, p.tools)
	o := gatetest.Options{
		FS: p.fs, Now: h.clock.now, Rules: p.rules, Gate: h.change,
		Workspaces: []approval.Workspace{{Name: personal, Limits: p.limits}, {Name: other, Limits: p.limits}},
	}
	if p.fs == nil { // a faulty disk has the real one's speed: several writes share a sync
		o.Dir = gatetest.MemoryFolder(t)
	}
	h.Rig = gatetest.New(t, o)
	h.layout, h.key, h.signer = h.Layout, h.Seal, h.Receipts
	h.executor = &fakeExecutor{verifier: h.Verifier, onRun: h.changed}
	h.open()
	return h
}

// open does what serve does before Run: lock, audit log, Start.
func (h *rig) open() {
	h.Open()
	h.gate, h.log, h.keys = h.Gate, h.Log, h.Keys
}

// change sets what the options ask for.
func (h *rig) change(g *gate.Gate) {
	h.store = h.Store
	g.Executor, g.Inline, g.Log = h.executor, h.options.inline, zerolog.New(h.logs)
	g.Planner = &h.planner
	g.Config = func() (gate.Settings, gate.Policy) { return h, h.Policy }
	g.Changed = func(approval.Key) { h.changed() }
	if h.options.store != nil {
		g.Store = h.options.store(h.store)
	}
	if h.options.audit != nil {
		g.Audit = h.options.audit(h.Log)
	}
}

// run runs the gate until close; if interval is not zero, with a real watcher.
func (h *rig) run(interval time.Duration) {
	h.Keys = h.keys
	h.Run(interval)
}

func (h *rig) close() { h.Close() }

// reopen restarts the daemon.
func (h *rig) reopen() {
	h.Close()
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
		NoFolder: h.options.noFolder,
	}, true
}

// ToolNames implements gate.Settings.
func (h *rig) ToolNames() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.tools))
}

// Tool implements gate.Settings.
func (h *rig) Tool(name string) (approval.Tool, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.tools[name]
	return t, ok
}

// Provers implements gate.Settings.
func (h *rig) Provers() facts.Provers { return h.options.provers }

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

func (h *rig) writeRequest(k approval.Key, body string) { h.WriteRequest(k, body) }

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

func decision(k approval.Key, v approval.Verdict) decide.Input {
	return decide.Input{Key: k, Verdict: v, By: person("ann"), Via: "cli"}
}

// decide decides without an error.
func (h *rig) decide(a decide.Input) {
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
	v := read.Viewer{Store: h.store, Seal: h.key}
	r, err := v.Record(context.Background(), k)
	require.NoError(h.t, err)
	return r
}

// pending returns the verified pending, nil if there is none.
func (h *rig) pending(k approval.Key) *approval.Pending {
	v := read.Viewer{Store: h.store, Seal: h.key}
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
func (h *rig) history(k approval.Key) []event.Kind {
	var events []event.Kind
	require.NoError(h.t, h.log.Sync())
	require.NoError(h.t, audit.Entries(ipc.OS(), h.layout.Audit(), func(e event.Entry) error {
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
