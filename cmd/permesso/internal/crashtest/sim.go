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
// # Crashes
//
// A kill ends every process, and in interleavings also the gate alone. After a power cut each
// unsynced change of a folder survives or not, files are torn, and each block of the journal that
// was being written is old, new, torn or garbage. After some crashes people decide in other
// processes while the gate recovers.
//
// # Counting
//
// A disk state counts once per flow. Its canonical hash covers what is visible, what
// is durable, and the rest of the sim; of the journal, what a start would read.
package crashtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
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

// config is what all simulations share. It holds no state.
type config struct {
	Mutant mutant
	key    *seal.Key
	signer *receipt.Signer
	base   *crashfs.Disk // with an empty HOME
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

	gateWasDown bool          // the gate did not work while RunBefore passed
	renamed     bool          // the last operation was a rename
	phase       phase         // of the process that takes the lease
	gate        *crashfs.Proc // the last daemon that was started
	command     *crashfs.Proc // the last command that decides

	onOpen func() bool // called when a gate has opened HOME; true: the future is known; may be nil

	effects        []effect
	tasks          map[string]serverTask // of the MCP server, by request
	acknowledged   []acknowledged
	approvedArgs   map[string][]string // id → digests of approved arguments
	accepted       map[string]bool     // a pending or a claim was durable, or a client was told so
	submitted      map[string]string   // id → the bytes that a client was told are accepted
	read           map[string]string   // id → the first response that the agent read
	pruned         map[string]bool     // its record is being removed
	paused         bool                // permesso pause has returned, and there was no resume
	committed      map[int64]string    // audit entries that were durable: number → line
	heads          []audit.Foot        // that cards showed
	brokenPromises []string            // on the way
	ranLate        []string            // runs after RunBefore
	trace          []string
}

// phase is how far a process has come that takes the lease.
type phase uint8

const (
	working   phase = iota // or no one takes it
	replaying              // what it brings to the files is not durable
	beginning              // a new life of the journal
)

func (l *config) newSim(f *flow) (*sim, error) {
	w := &sim{
		config: l, disk: l.base.Snapshot(), now: start, flow: f,
		approvedArgs: map[string][]string{}, accepted: map[string]bool{}, submitted: map[string]string{}, read: map[string]string{},
		pruned: map[string]bool{}, committed: map[int64]string{}, tasks: map[string]serverTask{},
	}
	w.setHooks()
	return w, nil
}

// newBase returns a disk with an empty HOME and its journal.
func (l *config) newBase() (*crashfs.Disk, error) {
	w := &sim{config: l, disk: crashfs.New(), now: start, flow: &flow{}}
	w.setHooks()
	p := w.disk.Process("setup")
	if err := errors.Join(p.MkdirAll("/", 0o700), layout.PrepareHome(p), layout.Prepare(p, workspace)); err != nil {
		return nil, err
	}
	release, err := w.store(p).Lease(context.Background())
	if err != nil {
		return nil, err
	}
	return w.disk, errors.Join(release(), p.SyncFS("/"))
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
	if w.config.Mutant != sharedBlock {
		w.disk.NormalData = withoutSegments
	}
	w.disk.Ignore = w.ignores
	w.disk.ReplaceOnNoReplace = w.config.Mutant == noSlot
}

// clone copies the simulation with another disk.
func (w *sim) clone(d *crashfs.Disk) *sim {
	c := *w
	c.disk = d
	c.effects, c.acknowledged, c.trace = slices.Clone(w.effects), slices.Clone(w.acknowledged), slices.Clone(w.trace)
	c.approvedArgs, c.accepted, c.read = maps.Clone(w.approvedArgs), maps.Clone(w.accepted), maps.Clone(w.read)
	c.tasks = maps.Clone(w.tasks)
	c.pruned, c.submitted = maps.Clone(w.pruned), maps.Clone(w.submitted)
	c.brokenPromises, c.ranLate = slices.Clone(w.brokenPromises), slices.Clone(w.ranLate)
	c.committed, c.heads = maps.Clone(w.committed), slices.Clone(w.heads)
	c.phase, c.gate, c.command = working, nil, nil
	c.setHooks()
	return &c
}

// resetID forgets everything about an id.
func (w *sim) resetID(id string) {
	w.effects = slices.DeleteFunc(w.effects, func(e effect) bool { parent, _ := approval.CutStep(e.id); return parent == id })
	w.acknowledged = slices.DeleteFunc(w.acknowledged, func(t acknowledged) bool { return t.id == id })
	delete(w.approvedArgs, id)
	delete(w.accepted, id)
	delete(w.submitted, id)
	delete(w.read, id)
	delete(w.pruned, id)
	maps.DeleteFunc(w.tasks, func(k string, _ serverTask) bool { parent, _ := approval.CutStep(k); return parent == id })
}

// hash is equal for simulations that differ only in file times.
func (w *sim) hash() [3]uint64 { return w.hashWith(w.disk.Hash()) }

// fingerprint is equal only for simulations that nothing can tell apart.
func (w *sim) fingerprint() [3]uint64 { return w.hashWith(w.disk.TimedHash()) }

// hashWith hashes what no disk holds, and adds the hash of the disk.
func (w *sim) hashWith(d [16]byte) [3]uint64 {
	b := make([]byte, 0, 16<<10)
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
	for _, id := range sortedKeys(w.tasks) { // also of the steps of programs
		b = fmt.Append(b, id, w.tasks[id])
	}
	for _, seq := range sortedKeys(w.committed) {
		b = append(b, w.committed[seq]...)
	}
	for _, h := range w.heads {
		b = append(append(b, h.String()...), 0)
	}
	b = appendJournal(b, w.disk, w.disk.NormalData != nil)
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
func (*sim) ToolNames() []string {
	return []string{"again", "auto", "fails", "never", readTool, "run", taskTool}
}

// Tool implements gate.Settings.
func (w *sim) Tool(name string) (approval.Tool, bool) {
	if name == taskTool {
		server := approval.Handler{Kind: approval.HandlerMCP, MCP: approval.MCP{Server: "server", Tool: name}, HTTP: approval.HTTP{URL: "https://mcp.example.org/"}}
		return approval.Tool{Name: name, Handler: server, Args: map[string]approval.Argument{"text": {}}}, true
	}
	handler := approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/" + name}, Idempotent: name == "again"}
	return approval.Tool{Name: name, Handler: handler, Reads: name == readTool, Args: map[string]approval.Argument{"text": {}}}, slices.Contains(w.ToolNames(), name)
}

// Judge implements gate.Policy.
func (w *sim) Judge(f approval.Facts) approval.Ruling {
	outcome, ok := map[string]approval.Outcome{"auto": approval.Allow, readTool: approval.Allow, "never": approval.Deny}[f.Tool]
	if !ok {
		outcome = approval.Ask
	}
	return approval.Ruling{Outcome: outcome, Rule: "by tool", Reasons: []approval.Reason{approval.Because("text", "text", "the tool says so")}}
}

// JudgeProgram implements gate.Policy.
func (w *sim) JudgeProgram(steps []approval.Facts) (run approval.Ruling, each []approval.Ruling) {
	run = approval.Ruling{Outcome: approval.Allow, Rule: "by tool"}
	for _, f := range steps {
		r := w.Judge(f)
		if each = append(each, r); r.Outcome < run.Outcome {
			run = r
		}
	}
	return run, each
}

// OffersProgram offers nothing.
func (*sim) OffersProgram(approval.Facts, []approval.Facts, approval.Ruling) []approval.Offer {
	return nil
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
func (w *sim) Recurrence(string, string, string) int { return 0 }
