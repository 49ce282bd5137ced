// Package crashtest runs the real gate, store, audit log and deciders on a
// simulated disk, stops the world before every single operation, lets a kill
// or a power cut take what it may take, starts the gate again on what is left,
// stops it again before every operation of its recovery, and judges the end
// against the promises of the design.
//
// # Worlds
//
// A World is a disk and what no disk holds: the effects that happened, what
// people were told, what the agent has read. A crash loses the processes and
// part of the disk; it cannot take back the rest, and that is what the
// promises are about.
//
// # Counting
//
// A disk state counts once per flow: its canonical hash covers what is visible,
// what is durable, and the rest of the World. States that are the same count
// once, however they came about.
package crashtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
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

// Mutant is one ingredient taken out of the protocol. The zero Mutant is the
// protocol as it is.
type Mutant string

// The mutants. The first three and the fifth and sixth live in the disk, the
// others in the store that the gate or the decider is given.
const (
	NoFileSync   Mutant = "file fsync"
	NoFolderSync Mutant = "folder fsync"
	NoClaim      Mutant = "receipt before execution"
	NoDuplicate  Mutant = "duplicate check"
	NoSlot       Mutant = "slot exclusivity"
	NoStartSync  Mutant = "sync at start"
	NoLook       Mutant = "the look for C and P before acknowledging"
	NoExpirySlot Mutant = "expiry through the slot"
	NoBrake      Mutant = "the look for a pause before a claim"
)

// Mutants lists all nine.
func Mutants() []Mutant {
	return []Mutant{NoFileSync, NoFolderSync, NoClaim, NoDuplicate, NoSlot, NoStartSync, NoLook, NoExpirySlot, NoBrake}
}

// Lab is what all worlds share: keys and the verifier, which hold no state.
type Lab struct {
	Mutant Mutant
	key    *seal.Key
	signer *receipt.Signer
}

// effect is something that happened outside.
type effect struct {
	id, args, key string
}

// told is what a person was told and must stay true.
type told struct {
	id      string
	verdict approval.Verdict
}

// World is one disk and what cannot be undone.
type World struct {
	lab   *Lab
	disk  *crashfs.Disk
	now   time.Time
	flow  *Flow
	stage int // how far the script has come

	down    bool // the gate was not working while run_before passed
	renamed bool // the last operation was a rename

	onOpen func() bool // asked when a gate has opened its home: is the rest known? May be nil

	effects   []effect
	told      []told
	consent   map[string][]string // id → digests of the arguments somebody approved
	accepted  map[string]bool     // a pending or a claim was durable, or a client was told so
	submitted map[string]string   // id → the bytes that a client was told are accepted
	read      map[string]string   // id → the first response that the agent read
	pruned    map[string]bool     // its record is being removed
	paused    bool                // permesso pause has returned, and nobody has resumed
	broken    []string            // promises that were broken on the way
	overdue   []string            // what ran too late
	trace     []string
}

func (l *Lab) newWorld(f *Flow) (*World, error) {
	w := &World{
		lab: l, disk: crashfs.New(), now: start, flow: f,
		consent: map[string][]string{}, accepted: map[string]bool{}, submitted: map[string]string{}, read: map[string]string{},
		pruned: map[string]bool{},
	}
	w.dress()
	p := w.disk.Process("setup")
	if err := errors.Join(p.MkdirAll("/", 0o700), layout.PrepareHome(p), layout.Prepare(p, workspace), p.SyncFS("/")); err != nil {
		return nil, err
	}
	w.mutate()
	return w, nil
}

// dress gives the disk what a snapshot does not keep.
func (w *World) dress() {
	w.disk.Now = func() time.Time { return w.now }
	w.disk.Normal = func(name string) string {
		if strings.HasPrefix(name, ".tmp-") {
			return ".tmp"
		}
		return name
	}
}

func (w *World) mutate() {
	w.disk.IgnoreSync = w.lab.Mutant == NoFileSync
	w.disk.IgnoreSyncDir = w.lab.Mutant == NoFolderSync
	w.disk.IgnoreSyncFS = w.lab.Mutant == NoStartSync
	w.disk.ReplaceOnNoReplace = w.lab.Mutant == NoSlot
}

// clone copies the world around another disk.
func (w *World) clone(d *crashfs.Disk) *World {
	c := *w
	c.disk = d
	c.effects, c.told, c.trace = slices.Clone(w.effects), slices.Clone(w.told), slices.Clone(w.trace)
	c.consent, c.accepted, c.read = maps.Clone(w.consent), maps.Clone(w.accepted), maps.Clone(w.read)
	c.pruned, c.submitted = maps.Clone(w.pruned), maps.Clone(w.submitted)
	c.broken, c.overdue = slices.Clone(w.broken), slices.Clone(w.overdue)
	c.dress()
	c.mutate()
	return &c
}

// forget begins a new life of an id.
func (w *World) forget(id string) {
	w.effects = slices.DeleteFunc(w.effects, func(e effect) bool { return e.id == id })
	w.told = slices.DeleteFunc(w.told, func(t told) bool { return t.id == id })
	delete(w.consent, id)
	delete(w.accepted, id)
	delete(w.submitted, id)
	delete(w.read, id)
	delete(w.pruned, id)
}

// hash is the same for worlds that differ in nothing but the times of files.
func (w *World) hash() [3]uint64 { return w.with(w.disk.Hash()) }

// fingerprint is the same for worlds that nothing can tell apart.
func (w *World) fingerprint() [3]uint64 { return w.with(w.disk.TimedHash()) }

// with is the hash of all that no disk holds, beside that of the disk.
func (w *World) with(d [16]byte) [3]uint64 {
	b := make([]byte, 0, 2048)
	b = fmt.Appendln(b, w.flow.Name, w.now.UnixNano(), w.stage, w.paused, w.down, len(w.effects), len(w.told), len(w.broken))
	for _, e := range w.effects {
		b = append(append(append(b, e.id...), e.args...), e.key...)
	}
	for _, t := range w.told {
		b = append(append(b, t.id...), t.verdict...)
	}
	for i, id := range []string{idA, idB, idAfter, idOther} {
		b = fmt.Append(b, i, w.accepted[id], w.pruned[id], len(w.consent[id]))
		for _, c := range w.consent[id] {
			b = append(b, c...)
		}
		b = append(append(b, w.submitted[id]...), 0)
		b = append(b, w.read[id]...)
	}
	for _, broken := range slices.Concat(w.broken, w.overdue) {
		b = append(append(b, broken...), 0)
	}
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	return [3]uint64{h.Sum64(), word(d[:8]), word(d[8:])}
}

func word(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// Workspace implements gate.Settings.
func (w *World) Workspace(name string) (approval.Workspace, bool) {
	return approval.Workspace{Name: name, Timeout: time.Hour}, name == workspace || name == otherWorkspace
}

// tools says what exists in every world.
var tools = map[string]approval.Tool{
	"run":   {Name: "run", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/run"}}},
	"fails": {Name: "fails", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/fails"}}},
	"again": {Name: "again", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/again"}, Idempotent: true}},
	"auto":  {Name: "auto", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/auto"}}},
	"never": {Name: "never", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/never"}}},
}

// Tool implements gate.Settings.
func (w *World) Tool(name string) (approval.Tool, bool) {
	t, ok := tools[name]
	return t, ok
}

// Judge implements gate.Policy.
func (w *World) Judge(f approval.Facts) approval.Ruling {
	outcome, ok := map[string]approval.Outcome{"auto": approval.Allow, "never": approval.Deny}[f.Tool]
	if !ok {
		outcome = approval.Ask
	}
	return approval.Ruling{Outcome: outcome, Rule: "by tool", Reasons: []string{"the tool says so"}}
}

// Reserve books nothing: what is consumed is policy's own affair.
func (w *World) Reserve(approval.Facts, approval.Ruling, bool) (undo func(), refused *approval.Ruling) {
	return func() {}, nil
}

// Recurrence is always none: it only shapes cards.
func (w *World) Recurrence(string, string, string, string) int { return 0 }

// memory writes what a person wants to be remembered, as the program does.
type memory struct {
	w     *World
	store *ipc.Store
}

// Concede implements gate.Memory.
func (m memory) AddFromDecision(p *approval.Pending, d *approval.Decision) error {
	g := policy.GrantFrom(p, d)
	if g == nil {
		return nil
	}
	body, err := g.Encode()
	if err != nil {
		return err
	}
	k := approval.GrantKey(g.ID)
	err = m.store.Create(approval.DocGrant, k, m.w.lab.key.Seal(approval.DocGrant, k, body), approval.Durable)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// daemon is the gate as one process.
type daemon struct {
	w    *World
	proc *crashfs.Proc
	gate *gate.Gate
	keys []approval.Key
	log  *audit.Log
	// release gives the lock back, as the end of the process would.
	release func() error
}

// boot is what serve does, in the same order. Where it fails, the process ends,
// and its lock with it.
func (w *World) boot() (d *daemon, err error) {
	proc := w.disk.Process("gate")
	d = &daemon{w: w, proc: proc}
	defer func() {
		if err != nil {
			proc.Kill()
			d = nil
		}
	}()
	store := w.store(d.proc)
	release, err := store.Open()
	if err != nil {
		return nil, fmt.Errorf("open home: %w", err)
	}
	d.release = release
	if w.onOpen != nil && w.onOpen() {
		return nil, errJoined
	}
	if d.log, err = audit.Open(d.proc, layout.Audit(), w.clock); err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	d.gate = &gate.Gate{
		Store: &gateStore{Store: store, w: w}, Workspaces: store, Seal: w.lab.key, Receipts: w.lab.signer, Policy: w,
		Grants: memory{w, store}, Executor: d, Audit: d.log, Settings: w, Log: zerolog.Nop(), Now: w.clock, Inline: true,
	}
	d.gate.Accepted = func(k approval.Key) { w.accepted[k.ID] = true }
	if w.flow.pauses() && w.lab.Mutant != NoBrake {
		d.gate.Pauses = &ipc.PauseGuard{Store: store}
	}
	d.keys, err = d.gate.Start()
	return d, err
}

func (w *World) clock() time.Time { return w.now }

func (w *World) store(p *crashfs.Proc) *ipc.Store {
	return &ipc.Store{FS: lockFS{p}, Layout: layout, Requests: func(ws string) (ipc.Requests, error) {
		return ipc.PlainRequests(p, layout.Requests(ws)), nil
	}}
}

// lockFS says in ipc's words that a lock is taken.
type lockFS struct{ *crashfs.Proc }

func (f lockFS) TryLock(name string) (io.Closer, error) {
	c, err := f.Proc.TryLock(name)
	if errors.Is(err, crashfs.ErrLocked) {
		err = fmt.Errorf("%w: %w", ipc.ErrLocked, err)
	}
	return c, err
}

// rest steps every key until nothing moves any more.
func (d *daemon) rest() error {
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
		if _, err := d.gate.Step(k); err != nil {
			errs = append(errs, fmt.Errorf("step %s: %w", k, err))
		}
	}
	return errors.Join(errs...)
}

// Run implements gate.Executor. It is an effect: nobody can take it back.
func (d *daemon) Run(_ context.Context, job approval.Job) approval.Effect {
	verifier, err := d.w.lab.signer.Verifier()
	if err != nil {
		return approval.Effect{Error: err.Error()}
	}
	verifier.Now = d.w.clock
	args := approval.Digest(job.Args)
	if err := verifier.Verify(job.Receipt, job.Workspace, job.RequestID, job.Tool.Name, args); err != nil {
		return approval.Effect{Error: err.Error()}
	}
	d.w.inTime(approval.Key{Workspace: job.Workspace, ID: job.RequestID})
	// A process that was killed does nothing any more, and stopping right
	// before or after the effect are two different crashes.
	if err := d.w.point(d.proc, "effect"); err != nil {
		return approval.Effect{Error: err.Error()}
	}
	d.w.effects = append(d.w.effects, effect{job.RequestID, args, job.Key})
	if err := d.w.point(d.proc, "after effect"); err != nil {
		return approval.Effect{Error: err.Error(), Started: true}
	}
	if job.Tool.Name == "fails" {
		return approval.Effect{Error: "Execution failed: boom", Started: true}
	}
	return approval.Effect{Result: approval.Raw(`{"done":true}`), Started: true}
}

// point makes a moment between two operations visible to whoever watches the
// disk. The file it looks at does not exist; looking changes nothing.
func (w *World) point(p *crashfs.Proc, name string) error {
	if w.disk.Before != nil {
		w.disk.Before(crashfs.Op{Proc: "gate", Kind: crashfs.OpStat, Path: name})
	}
	if _, err := p.Stat(path.Join("/", name)); errors.Is(err, crashfs.ErrKilled) {
		return err
	}
	return nil
}

// gateStore watches what the gate accepts, and is where some mutants live.
type gateStore struct {
	*ipc.Store
	w     *World
	slots map[approval.Key][]byte // of the mutant that expires without the slot
}

func (s *gateStore) Create(doc approval.Doc, k approval.Key, b []byte, how approval.WriteMode) error {
	switch {
	case s.w.lab.Mutant == NoClaim && doc == approval.DocClaim:
		return nil
	case s.w.lab.Mutant == NoExpirySlot && doc == approval.DocDecision:
		if s.slots == nil {
			s.slots = map[approval.Key][]byte{}
		}
		s.slots[k] = b
		return nil
	}
	err := s.Store.Create(doc, k, b, how)
	if err == nil && s.w.paused && (doc == approval.DocClaim || doc == approval.DocAgain) {
		s.w.broken = append(s.w.broken, "P a claim was made after pause had returned")
	}
	if err == nil && (doc == approval.DocPending || doc == approval.DocClaim) {
		s.w.accepted[k.ID] = true
	}
	return err
}

func (s *gateStore) Read(doc approval.Doc, k approval.Key) ([]byte, error) {
	if b, ok := s.slots[k]; ok && doc == approval.DocDecision {
		return b, nil
	}
	if s.w.lab.Mutant == NoDuplicate && doc == approval.DocRecord && !s.mine(k) {
		return nil, fs.ErrNotExist
	}
	return s.Store.Read(doc, k)
}

func (s *gateStore) Remove(doc approval.Doc, k approval.Key) error {
	if doc == approval.DocDecision {
		delete(s.slots, k)
	}
	if doc == approval.DocRecord {
		s.w.pruned[k.ID] = true
	}
	return s.Store.Remove(doc, k)
}

// mine leaves the mutant without a duplicate check able to end at all: it only
// overlooks the record of a request that has come again.
func (s *gateStore) mine(k approval.Key) bool {
	_, err := s.Store.Read(approval.DocRequest, k)
	return err != nil
}
