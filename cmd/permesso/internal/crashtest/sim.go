// Package crashtest runs the real gate, store, audit log and deciders on a simulated
// disk. It stops before every single operation, simulates a kill or a power cut,
// starts the gate on the disk that is left, and does the same during the recovery. In
// the end it checks the promises of the design.
//
// # Simulations
//
// A sim is a disk and what no disk holds: the effects that happened, what people were
// told, what the agent has read. A crash loses the processes and part of the disk. It
// cannot undo the rest, and the promises are about that rest.
//
// # Counting
//
// A disk state counts once per flow. Its canonical hash covers what is visible, what
// is durable, and the rest of the sim.
package crashtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

const (
	home      = "/home"
	workspace = "w"
)

var (
	layout = ipc.Layout{Home: home}
	start  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// mutant is the name of a removed part of the protocol. The zero mutant is the
// complete protocol.
type mutant string

// The mutants. The first three, the fifth and the sixth are implemented in the disk,
// the others in the store of the gate or the decider.
const (
	noFileSync   mutant = "file fsync"
	noFolderSync mutant = "folder fsync"
	noClaim      mutant = "receipt before execution"
	noDuplicate  mutant = "duplicate check"
	noSlot       mutant = "slot exclusivity"
	noStartSync  mutant = "sync at start"
	noRecheck    mutant = "check for C and P before acknowledging"
	noExpirySlot mutant = "expiry through the slot"
	noPauseCheck mutant = "pause check before a claim"
	noGrantFirst mutant = "grant before acknowledging"
)

// allMutants lists all ten.
func allMutants() []mutant {
	return []mutant{noFileSync, noFolderSync, noClaim, noDuplicate, noSlot, noStartSync, noRecheck, noExpirySlot, noPauseCheck, noGrantFirst}
}

// config is what all simulations share. It holds no state.
type config struct {
	Mutant mutant
	key    *seal.Key
	signer *receipt.Signer
}

// effect is one run of a handler.
type effect struct {
	id, args, key string
}

// acknowledged is a decision that a person was told counts.
type acknowledged struct {
	id      string
	verdict approval.Verdict
}

// sim is one disk and what cannot be undone.
type sim struct {
	config      *config
	disk        *crashfs.Disk
	now         time.Time
	flow        *flow
	actionIndex int // index in the script

	gateWasDown bool // the gate did not work while RunBefore passed
	renamed     bool // the last operation was a rename

	onOpen func() bool // called when a gate has opened HOME; true: the future is known; may be nil

	effects        []effect
	acknowledged   []acknowledged
	approvedArgs   map[string][]string // id → digests of approved arguments
	accepted       map[string]bool     // a pending or a claim was durable, or a client was told so
	submitted      map[string]string   // id → the bytes that a client was told are accepted
	read           map[string]string   // id → the first response that the agent read
	pruned         map[string]bool     // its record is being removed
	paused         bool                // permesso pause has returned, and there was no resume
	brokenPromises []string            // on the way
	ranLate        []string            // runs after RunBefore
	trace          []string
}

func (l *config) newSim(f *flow) (*sim, error) {
	w := &sim{
		config: l, disk: crashfs.New(), now: start, flow: f,
		approvedArgs: map[string][]string{}, accepted: map[string]bool{}, submitted: map[string]string{}, read: map[string]string{},
		pruned: map[string]bool{},
	}
	w.setHooks()
	p := w.disk.Process("setup")
	if err := errors.Join(p.MkdirAll("/", 0o700), layout.PrepareHome(p), layout.Prepare(p, workspace), p.SyncFS("/")); err != nil {
		return nil, err
	}
	w.applyMutant()
	return w, nil
}

// setHooks sets what a snapshot of the disk does not keep.
func (w *sim) setHooks() {
	w.disk.Now = func() time.Time { return w.now }
	w.disk.Normal = func(name string) string {
		if strings.HasPrefix(name, ".tmp-") {
			return ".tmp"
		}
		return name
	}
}

func (w *sim) applyMutant() {
	w.disk.IgnoreSync = w.config.Mutant == noFileSync
	w.disk.IgnoreSyncDir = w.config.Mutant == noFolderSync
	w.disk.IgnoreSyncFS = w.config.Mutant == noStartSync
	w.disk.ReplaceOnNoReplace = w.config.Mutant == noSlot
}

// clone copies the simulation with another disk.
func (w *sim) clone(d *crashfs.Disk) *sim {
	c := *w
	c.disk = d
	c.effects, c.acknowledged, c.trace = slices.Clone(w.effects), slices.Clone(w.acknowledged), slices.Clone(w.trace)
	c.approvedArgs, c.accepted, c.read = maps.Clone(w.approvedArgs), maps.Clone(w.accepted), maps.Clone(w.read)
	c.pruned, c.submitted = maps.Clone(w.pruned), maps.Clone(w.submitted)
	c.brokenPromises, c.ranLate = slices.Clone(w.brokenPromises), slices.Clone(w.ranLate)
	c.setHooks()
	c.applyMutant()
	return &c
}

// resetID forgets everything about an id.
func (w *sim) resetID(id string) {
	w.effects = slices.DeleteFunc(w.effects, func(e effect) bool { return e.id == id })
	w.acknowledged = slices.DeleteFunc(w.acknowledged, func(t acknowledged) bool { return t.id == id })
	delete(w.approvedArgs, id)
	delete(w.accepted, id)
	delete(w.submitted, id)
	delete(w.read, id)
	delete(w.pruned, id)
}

// hash is equal for simulations that differ only in file times.
func (w *sim) hash() [3]uint64 { return w.hashWith(w.disk.Hash()) }

// fingerprint is equal only for simulations that nothing can tell apart.
func (w *sim) fingerprint() [3]uint64 { return w.hashWith(w.disk.TimedHash()) }

// hashWith hashes what no disk holds, and adds the hash of the disk.
func (w *sim) hashWith(d [16]byte) [3]uint64 {
	b := make([]byte, 0, 2048)
	b = fmt.Appendln(b, w.flow.Name, w.now.UnixNano(), w.actionIndex, w.paused, w.gateWasDown, len(w.effects), len(w.acknowledged), len(w.brokenPromises))
	for _, e := range w.effects {
		b = append(append(append(b, e.id...), e.args...), e.key...)
	}
	for _, t := range w.acknowledged {
		b = append(append(b, t.id...), t.verdict...)
	}
	for i, id := range []string{idA, idB, idAfter, idOther} {
		b = fmt.Append(b, i, w.accepted[id], w.pruned[id], len(w.approvedArgs[id]))
		for _, c := range w.approvedArgs[id] {
			b = append(b, c...)
		}
		b = append(append(b, w.submitted[id]...), 0)
		b = append(b, w.read[id]...)
	}
	for _, broken := range slices.Concat(w.brokenPromises, w.ranLate) {
		b = append(append(b, broken...), 0)
	}
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	return [3]uint64{h.Sum64(), binary.BigEndian.Uint64(d[:8]), binary.BigEndian.Uint64(d[8:])}
}

// Workspace implements gate.Settings.
func (w *sim) Workspace(name string) (approval.Workspace, bool) {
	return approval.Workspace{Name: name, Timeout: time.Hour}, name == workspace || name == otherWorkspace
}

// Provers implements gate.Settings.
func (*sim) Provers() facts.Provers { return nil }

// ToolNames implements gate.Settings.
func (*sim) ToolNames() []string { return []string{"again", "auto", "fails", "never", "run"} }

// Tool implements gate.Settings.
func (w *sim) Tool(name string) (approval.Tool, bool) {
	handler := approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/" + name}, Idempotent: name == "again"}
	return approval.Tool{Name: name, Handler: handler, Args: map[string]approval.Argument{"text": {}}}, slices.Contains(w.ToolNames(), name)
}

// Judge implements gate.Policy.
func (w *sim) Judge(f approval.Facts) approval.Ruling {
	outcome, ok := map[string]approval.Outcome{"auto": approval.Allow, "never": approval.Deny}[f.Tool]
	if !ok {
		outcome = approval.Ask
	}
	return approval.Ruling{Outcome: outcome, Rule: "by tool", Reasons: []approval.Reason{approval.Because("text", "text", "the tool says so")}}
}

// Reserve reserves nothing: the promises do not cover consumption.
func (w *sim) Reserve(approval.Facts, approval.Ruling, bool) (undo func(), refused *approval.Ruling) {
	return func() {}, nil
}

// Offers offers every grant of a tool: the promises do not depend on which.
func (w *sim) Offers(f approval.Facts, _ approval.Ruling) (offers []approval.Offer) {
	for _, s := range []approval.Scope{approval.Session, approval.Always} {
		t := approval.Terms{Form: grant.Tool, Workspace: f.Workspace, ClientID: f.ClientID, Tool: f.Tool, ToolSHA256: f.ToolSHA256}
		if s == approval.Session {
			t.SessionID = f.SessionID
		}
		offers = append(offers, approval.Offer{Scope: s, Terms: t, Hours: 24})
	}
	return offers
}

// Recurrence is always 0: it only affects messages.
func (w *sim) Recurrence(string, string, string, string) int { return 0 }

// grantStore writes grants as the daemon does.
type grantStore struct {
	w     *sim
	store *ipc.Store
	known map[string]bool // grants that this gate made durable; nil: a decider in another process
}

// AddFromDecision implements gate.grantStore.
func (m grantStore) AddFromDecision(p *approval.Pending, d *approval.Decision) error {
	g := grant.From(p, d)
	if g == nil {
		return nil
	}
	body, err := g.Encode()
	if err != nil {
		return err
	}
	k := grant.Key(g.ID)
	err = m.store.Create(context.Background(), approval.DocGrant, k, m.w.config.key.Seal(approval.DocGrant, k, body), store.Durable)
	if errors.Is(err, fs.ErrExist) {
		err = nil
		if !m.known[g.ID] { // another process wrote it, and may have failed to sync it
			err = m.store.FS.SyncFS(home)
		}
	}
	if m.known != nil {
		m.known[g.ID] = err == nil
	}
	return err
}

// daemon is the gate as one process.
type daemon struct {
	w    *sim
	proc *crashfs.Proc
	gate *gate.Gate
	keys []approval.Key
	log  *audit.Log
	// release releases the lock, like the end of the process.
	release func() error
}

// boot does what serve does, in the same order. If it fails, the process ends and its
// lock is released.
func (w *sim) boot() (d *daemon, err error) {
	proc := w.disk.Process("gate")
	d = &daemon{w: w, proc: proc}
	defer func() {
		if err != nil {
			proc.Kill()
			d = nil
		}
	}()
	store := w.store(d.proc)
	release, err := store.Lease(context.Background())
	if err != nil {
		return nil, fmt.Errorf("open home: %w", err)
	}
	d.release = release
	if w.onOpen != nil && w.onOpen() {
		return nil, errKnownFuture
	}
	if d.log, err = audit.OpenSigned(d.proc, layout.Audit(), w.clock, audit.Keys{}); err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	d.gate = &gate.Gate{
		Store: &gateStore{Store: store, w: w}, Seal: w.config.key, Receipts: w.config.signer, Policy: w,
		Grants: grantStore{w, store, map[string]bool{}}, Executor: d, Audit: d.log, Settings: w, Log: zerolog.Nop(), Now: w.clock, Inline: true,
	}
	d.gate.Accepted = func(k approval.Key) { w.accepted[k.ID] = true }
	if w.flow.pauses() && w.config.Mutant != noPauseCheck {
		d.gate.Pauses = &ipc.PauseGuard{Store: store}
	}
	d.keys, err = d.gate.Start(context.Background())
	return d, err
}

func (w *sim) clock() time.Time { return w.now }

func (w *sim) store(p *crashfs.Proc) *ipc.Store {
	return &ipc.Store{FS: lockFS{p}, Layout: layout, Requests: func(ws string) (ipc.Requests, error) {
		return trustedRequests{p, layout.Requests(ws)}, nil
	}}
}

// lockFS returns ipc's error for a lock that is held.
type lockFS struct{ *crashfs.Proc }

func (f lockFS) TryLock(name string) (ipc.Lock, error) {
	c, err := f.Proc.TryLock(name)
	if errors.Is(err, crashfs.ErrLocked) {
		err = fmt.Errorf("%w: %w", ipc.ErrLocked, err)
	}
	return c, err
}

// settle steps every key until no move is left.
func (d *daemon) settle() error {
	keys := d.keys
	d.keys = nil
	for _, id := range d.w.flow.ids() {
		k := approval.Key{Workspace: workspace, ID: id}
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	var errs []error
	for _, k := range keys {
		if _, err := d.gate.Step(context.Background(), k); err != nil {
			errs = append(errs, fmt.Errorf("step %s: %w", k, err))
		}
	}
	return errors.Join(errs...)
}

// Run implements gate.executor. It is an effect: it cannot be undone.
func (d *daemon) Run(_ context.Context, job approval.Job) approval.Effect {
	verifier, err := d.w.config.signer.Verifier()
	if err != nil {
		return approval.Effect{Error: err.Error()}
	}
	verifier.Now = d.w.clock
	args := approval.Digest(job.Args)
	if err := verifier.Verify(job.Receipt, job.Workspace, job.RequestID, job.Tool.Name, args); err != nil {
		return approval.Effect{Error: err.Error()}
	}
	d.w.checkRunTime(approval.Key{Workspace: job.Workspace, ID: job.RequestID})
	// A killed process does nothing. A crash right before the effect differs from one
	// right after it.
	if err := d.w.exposePoint(d.proc, "effect"); err != nil {
		return approval.Effect{Error: err.Error()}
	}
	d.w.effects = append(d.w.effects, effect{job.RequestID, args, job.Key})
	if err := d.w.exposePoint(d.proc, "after effect"); err != nil {
		return approval.Effect{Error: err.Error()}
	}
	if job.Tool.Name == "fails" {
		return approval.Effect{Error: "Execution failed: boom"}
	}
	return approval.Effect{Result: approval.Raw(`{"done":true}`)}
}

// exposePoint makes a point between two operations visible to the disk's hooks. The
// file does not exist, and Stat changes nothing.
func (w *sim) exposePoint(p *crashfs.Proc, name string) error {
	if w.disk.Before != nil {
		w.disk.Before(crashfs.Op{Proc: "gate", Kind: crashfs.OpStat, Path: name})
	}
	if _, err := p.Stat(path.Join("/", name)); errors.Is(err, crashfs.ErrKilled) {
		return err
	}
	return nil
}

// gateStore records what the gate accepts, and implements some mutants.
type gateStore struct {
	*ipc.Store
	w     *sim
	slots map[approval.Key][]byte // for noExpirySlot
}

func (s *gateStore) Create(ctx context.Context, doc approval.Doc, k approval.Key, b []byte, how store.Mode, alongside ...func() error) error {
	switch {
	case s.w.config.Mutant == noClaim && doc == approval.DocClaim:
		return nil
	case s.w.config.Mutant == noExpirySlot && doc == approval.DocDecision:
		if s.slots == nil {
			s.slots = map[approval.Key][]byte{}
		}
		s.slots[k] = b
		return nil
	}
	err := s.Store.Create(ctx, doc, k, b, how, alongside...)
	if err == nil && s.w.paused && (doc == approval.DocClaim || doc == approval.DocAgain) {
		s.w.brokenPromises = append(s.w.brokenPromises, "P a claim was made after pause had returned")
	}
	if err == nil && (doc == approval.DocPending || doc == approval.DocClaim) {
		s.w.accepted[k.ID] = true
	}
	return err
}

func (s *gateStore) Read(ctx context.Context, doc approval.Doc, k approval.Key) ([]byte, error) {
	if b, ok := s.slots[k]; ok && doc == approval.DocDecision {
		return b, nil
	}
	if s.w.config.Mutant == noDuplicate && doc == approval.DocRecord && !s.settlesOwn(k) {
		return nil, fs.ErrNotExist
	}
	return s.Store.Read(ctx, doc, k)
}

func (s *gateStore) Remove(ctx context.Context, doc approval.Doc, k approval.Key) error {
	if doc == approval.DocDecision {
		delete(s.slots, k)
	}
	if doc == approval.DocRecord {
		s.w.pruned[k.ID] = true
	}
	return s.Store.Remove(ctx, doc, k)
}

// settlesOwn limits noDuplicate: it hides a record only if the request came again.
// Otherwise that mutant could not end a request at all.
func (s *gateStore) settlesOwn(k approval.Key) bool {
	_, err := s.Store.Read(context.Background(), approval.DocRequest, k)
	return err != nil
}

// trustedRequests reads a folder of requests through an FS and trusts it: a simulated
// file system has no openat2 and no untrusted agent.
type trustedRequests struct {
	fsys ipc.FS
	dir  string
}

func (p trustedRequests) Read(name string, limit int64) ([]byte, error) {
	return p.fsys.ReadFile(filepath.Join(p.dir, name), limit)
}

func (p trustedRequests) Stat(name string) (exists bool, err error) {
	_, err = p.fsys.Stat(filepath.Join(p.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (p trustedRequests) Names(limit int) (names []string, more bool, err error) {
	f, err := p.fsys.Open(p.dir)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	names, err = f.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") })
	return names[:min(limit, len(names))], len(names) > limit, err
}

func (p trustedRequests) Remove(name string) error { return p.fsys.Remove(filepath.Join(p.dir, name)) }

func (p trustedRequests) SetAside(name string) error { return p.Remove(name) }
func (p trustedRequests) Stale() bool                { return false }
func (p trustedRequests) Warning() string            { return "" }
func (p trustedRequests) Close() error               { return nil }
