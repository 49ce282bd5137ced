// Package gatetest is test support: a home in a temporary folder, and a gate on it.
// Everything is real except the handlers and the people.
package gatetest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
	"github.com/permesso-dev/permesso/watcher"
)

// Options configure a rig.
type Options struct {
	Dir        string                   // of the home; "": a temporary folder
	FS         ipc.FS                   // of the home; nil: the real file system
	Now        func() time.Time         // nil: time.Now
	Workspaces []approval.Workspace     // at least one
	Tools      map[string]approval.Tool // nil: Tools()
	Rules      []policy.Rule            // added to those of Tools
	Signed     bool                     // the audit log has a tree and checkpoints
	Gate       func(*gate.Gate)         // changes the gate before it starts; may be nil

	FloodPerSecond int // of the watcher
}

// Rig is a home and, after Open, the gate on it.
type Rig struct {
	Layout   ipc.Layout
	FS       ipc.FS
	Store    *ipc.Store // new at each Open, like all from Policy on
	Seal     *seal.Key
	Receipts *receipt.Signer
	Verifier *receipt.Verifier
	Executor *Executor
	Policy   *policy.Engine
	Log      *audit.Log
	Gate     *gate.Gate
	Keys     []approval.Key // that Start found
	Rescans  atomic.Int32   // of the watcher, since New

	t       testing.TB
	options Options
	release func() error
	stop    func()
}

// New prepares a home with keys and with the folders of the workspaces. At the end of
// the test the rig is closed.
func New(t testing.TB, o Options) *Rig {
	t.Helper()
	r := &Rig{t: t, options: o, Layout: ipc.Layout{Home: o.Dir}, FS: o.FS, Executor: &Executor{}}
	if o.Dir == "" {
		r.Layout.Home = filepath.Join(t.TempDir(), "home")
	}
	if o.FS == nil {
		r.FS = ipc.OS()
	}
	if o.Tools == nil {
		r.options.Tools = Tools()
	}
	require.NoError(t, r.Layout.PrepareHome(r.FS))
	for _, ws := range o.Workspaces {
		require.NoError(t, r.Layout.Prepare(r.FS, ws.Name))
	}
	r.Store = r.newStore()
	var err error
	r.Seal, err = seal.LoadOrCreate(r.FS, r.Layout.Keys())
	require.NoError(t, err)
	r.Receipts, err = receipt.LoadOrCreate(r.FS, r.Layout.Keys(), "test")
	require.NoError(t, err)
	r.Verifier, err = r.Receipts.Verifier()
	require.NoError(t, err)
	r.Verifier.Now = o.Now
	t.Cleanup(r.Close)
	return r
}

// journalSize is that of a segment, in bytes: enough for a large document.
const journalSize = 2 << 20

func (r *Rig) newStore() *ipc.Store {
	return &ipc.Store{
		FS: r.FS, Layout: r.Layout, JournalSize: journalSize,
		RequestSize: func(ws string) int64 {
			found, _ := r.Workspace(ws)
			return int64(found.Limits.WithDefaults().RequestSize)
		},
		Verify: func(d approval.Doc, k approval.Key, b []byte) error {
			_, err := r.Seal.Open(d, k, b)
			return err
		},
		RecoverLog: func(head []byte, lines [][]byte) ([]byte, error) {
			return audit.Recover(r.FS, r.Layout.Audit(), head, lines)
		},
	}
}

// MemoryFolder is a temporary folder in which an fsync costs nothing, if there is one.
func MemoryFolder(t testing.TB) string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shm, "permesso-test-") //nolint:usetesting // t.TempDir is on the disk
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// Open does what serve does before Run: lock, audit log, Start.
func (r *Rig) Open() {
	r.t.Helper()
	var err error
	r.Store = r.newStore() // a new process knows nothing of the last one
	r.release, err = r.Store.Lease(context.Background())
	require.NoError(r.t, err)
	keys := audit.Keys{}
	if r.options.Signed {
		keys = audit.Keys{Signer: r.Receipts.NoteSigner(), Known: r.Verifier.Known()}
	}
	r.Log, err = audit.OpenFrom(r.FS, r.Layout.Audit(), r.options.Now, keys, r.Store.LogHead())
	require.NoError(r.t, err)
	r.Log.Committer = r.Store
	r.Store.SetLog(r.Log)
	r.Policy = &policy.Engine{}
	require.NoError(r.t, r.Policy.Load(policy.Config{Rules: append(rules(), r.options.Rules...)}))
	r.Gate = &gate.Gate{
		Store: r.Store, Seal: r.Seal, Receipts: r.Receipts, Executor: r.Executor,
		Audit: r.Log, Log: zerolog.Nop(), Now: r.options.Now,
		Config: func() (gate.Settings, gate.Policy) { return r, r.Policy },
	}
	if r.options.Gate != nil {
		r.options.Gate(r.Gate)
	}
	r.Keys, err = r.Gate.Start(context.Background())
	require.NoError(r.t, err)
}

// Run runs the gate until Close; if interval is not 0, with a watcher that rescans in
// this interval.
func (r *Rig) Run(interval time.Duration) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	if interval > 0 {
		w := r.watcher(interval)
		wg.Go(func() { _ = w.Run(ctx) })
	}
	wg.Go(func() { _ = r.Gate.Run(ctx, r.Keys) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
}

// watcher wakes keys as serve does.
func (r *Rig) watcher(interval time.Duration) *watcher.Watcher {
	w := &watcher.Watcher{
		Interval: interval, Log: r.Gate.Log, FloodPerSecond: r.options.FloodPerSecond,
		Wake: func(ws, kind, name string) {
			id, _, _ := strings.Cut(name, ".")
			k := approval.Key{Workspace: ws, ID: id}
			if d := approval.Doc(kind); d != approval.DocRequest {
				r.Gate.Hint(k, d)
				return
			}
			r.Gate.Wake(k)
		},
		Rescan: func(ws string, _ bool) {
			if err := errors.Join(r.Log.Checkpoint(), r.Gate.Rescan(context.Background(), ws)); err != nil {
				r.t.Errorf("rescan: %v", err)
			}
			r.Rescans.Add(1)
		},
	}
	for _, ws := range r.options.Workspaces {
		for _, f := range []watcher.Folder{
			{Path: r.Layout.Requests(ws.Name), Kind: string(approval.DocRequest), Suffixes: []string{".json", ".cancel"}, IgnoreRemovals: true},
			{Path: r.Layout.Pendings(ws.Name), Kind: string(approval.DocPending), Trusted: true},
			{Path: r.Layout.Decisions(ws.Name), Kind: string(approval.DocDecision), Trusted: true},
			{Path: r.Layout.Responses(ws.Name), Kind: string(approval.DocResponse), Trusted: true},
		} {
			f.Group = ws.Name
			require.NoError(r.t, w.Add(f))
		}
	}
	return w
}

// Stop ends Run. The home stays open.
func (r *Rig) Stop() {
	if r.stop != nil {
		r.stop()
	}
}

// Close stops the gate. Open may follow: that is a restart of the daemon.
func (r *Rig) Close() {
	r.Stop()
	if r.release != nil {
		require.NoError(r.t, errors.Join(r.Log.Close(), r.release()))
		r.release = nil
	}
}

// Crash is Close on a disk that fails. Nothing more becomes durable.
func (r *Rig) Crash() {
	r.Stop()
	_ = errors.Join(r.Log.Close(), r.release())
	r.release = nil
}

// Workspace implements gate.Settings.
func (r *Rig) Workspace(name string) (approval.Workspace, bool) {
	for _, ws := range r.options.Workspaces {
		if ws.Name == name {
			ws.Timeout = cmp.Or(ws.Timeout, time.Hour)
			return ws, true
		}
	}
	return approval.Workspace{}, false
}

// Provers implements gate.Settings.
func (r *Rig) Provers() facts.Provers { return nil }

// ToolNames implements gate.Settings.
func (r *Rig) ToolNames() []string { return slices.Sorted(maps.Keys(r.options.Tools)) }

// Tool implements gate.Settings.
func (r *Rig) Tool(name string) (approval.Tool, bool) {
	t, ok := r.options.Tools[name]
	return t, ok
}

// WriteRequest writes a request as an agent should: to another name, then a rename.
func (r *Rig) WriteRequest(k approval.Key, body string) {
	r.t.Helper()
	dir := r.Layout.Requests(k.Workspace)
	temp := filepath.Join(dir, "."+k.ID)
	require.NoError(r.t, os.WriteFile(temp, []byte(body), 0o644))
	require.NoError(r.t, os.Rename(temp, filepath.Join(dir, k.ID+".json")))
}

// Await waits until ok returns true. It gives up after two minutes, for slow machines.
func (r *Rig) Await(what string, ok func() bool) {
	r.t.Helper()
	for limit := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(200 * time.Microsecond) {
		require.True(r.t, time.Now().Before(limit), "timeout: %s", what)
	}
}
