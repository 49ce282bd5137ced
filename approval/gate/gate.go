// Package gate moves requests from wish to deed. It wakes a key, loads its
// documents, asks approval.Next what to do, and does that one thing; then it
// asks again, until there is nothing left to do or something to wait for.
//
// # Order
//
// Every move is a few writes in a fixed order, and every order is chosen so
// that a crash between any two of them leaves documents from which Next finds
// the right way on:
//
//	ask     P durable, then Q goes
//	claim   R durable and the audit entry durable, side by side; then the effect
//	end     C durable, then S visible
//	settle  S durable, then D R Q X go, P last
//	decide  D durable, then C is looked for, then the person is told
//	prune   the removal of S D R Q X P durable, then C goes, durably, then the id is new
//
// A move that fails leaves its key where it is, to be tried again; whether the
// disk as a whole is ill, an examination finds out: see degrade.go.
//
// Nothing runs without R, and R is written once: that is why nothing runs
// twice. What is visible after a kill may not be durable yet, so before
// Start the whole file system is synced.
package gate

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
)

// Store keeps documents.
type Store interface {
	// Read returns a document's bytes. Its errors wrap fs.ErrNotExist when
	// there is none, and approval.ErrRefused when a request is not an ordinary file
	// within its limits.
	Read(d approval.Doc, k approval.Key) ([]byte, error)
	// Create writes a document under a name that is free; it wraps
	// fs.ErrExist when the name is taken.
	Create(d approval.Doc, k approval.Key, b []byte, how approval.WriteMode) error
	// Publish makes a response visible, over whatever is there, and returns
	// the function that makes it durable.
	Publish(k approval.Key, b []byte) (sync func() error, err error)
	// Remove takes a document away; one that is gone already is no error.
	Remove(d approval.Doc, k approval.Key) error
	// Sync makes the names in a folder durable.
	Sync(d approval.Doc, workspace string) error
}

// Workspaces is what a Store that belongs to a daemon can do besides.
type WorkspaceStore interface {
	// Workspaces lists the workspaces that have folders.
	Workspaces() ([]string, error)
	// List gives the ids that have a document of kind d, and the names in
	// that folder that are no documents.
	List(d approval.Doc, workspace string) (ids, strays []string, err error)
	// Refuse keeps a capped description of what was refused, never the thing
	// itself.
	Refuse(workspace, name, why string) error
	// RemoveStray takes a file away that lies among the requests under a name
	// that is none.
	RemoveStray(workspace, name string) error
}

// ParallelCreator is a Store that can do something else while a folder's names become
// durable; a Store need not be one.
type ParallelCreator interface {
	CreateParallel(d approval.Doc, k approval.Key, b []byte, beside func() error) error
}

// UnsyncedReporter is a Store that tells whether a document which it shows is not yet known
// to be durable; a Store need not be one.
type UnsyncedReporter interface {
	Unsynced(d approval.Doc, k approval.Key) bool
}

// ResponseStager is a Store that can write a response where no agent sees it yet, while
// its record becomes durable; a Store need not be one.
type ResponseStager interface {
	Stage(k approval.Key, b []byte) (show func() (sync func() error, err error), drop func(), err error)
}

// Sealer seals documents and opens them again. Open fails unless the seal is
// right for that kind and key.
type Sealer interface {
	Seal(d approval.Doc, k approval.Key, body []byte) []byte
	Open(d approval.Doc, k approval.Key, file []byte) (body []byte, err error)
}

// Receipts issues the signed note that an executor demands.
type ReceiptIssuer interface {
	IssueReceipt(c *approval.Claim, d *approval.Decision, expires time.Time) (note string, err error)
}

// Policy judges without writing anything.
type Policy interface {
	Judge(f approval.Facts) approval.Ruling
	// Reserve books what running the request consumes, right before its
	// claim, and has the last word: a ruling that comes back instead of undo
	// refuses it now. The log's entry of the claim ends the booking; undo does
	// where there was no claim.
	Reserve(f approval.Facts, given approval.Ruling, human bool) (undo func(), refused *approval.Ruling)
	// Recurrence is how often people approved the same kind of thing: the same
	// workspace, capability (or tool, where there is none) and target.
	Recurrence(workspace, capability, tool, target string) int
}

// Grants keeps the consent that an approval gives besides.
type GrantStore interface {
	// AddFromDecision makes durable what the decision lets through from now on, named
	// by the request's id. It may be called again for the same decision.
	AddFromDecision(p *approval.Pending, d *approval.Decision) error
}

// Executor carries out what was approved, after verifying the receipt.
type Executor interface {
	Run(ctx context.Context, job approval.Job) approval.Effect
}

// Audit keeps history. Append returns when the entry is durable; Note leaves
// that to the next Append.
type Audit interface {
	Append(e approval.Entry) error
	Note(e approval.Entry)
}

// Pauses stops what would run. Enter says whether a claim may begin in a
// workspace at this moment; after a yes, Leave follows when the claim is made
// or given up.
type PauseGuard interface {
	Enter(workspace string) bool
	Leave(workspace string)
}

// PauseFailure is a Pauses that can tell why it last said no, where that was not for
// a pause; a Pauses need not be one.
type PauseFailure interface {
	Failure() error
}

// Settings is what the configuration says; it answers for one moment.
type Settings interface {
	Workspace(name string) (approval.Workspace, bool)
	Tool(name string) (approval.Tool, bool)
}

// ProverSource is a Settings that names provers; a Settings need not be one.
type ProverSource interface {
	Provers() approval.Provers
}

// Snapshot is a Settings that may change while the gate runs. It gives what holds
// now, the policy included, so that a request is judged and run by one and the
// same configuration.
type SettingsSnapshotter interface {
	Snapshot() (Settings, Policy)
}

// Gate is the daemon's heart. Fill the fields in, call Start, then either Run
// or Step.
type Gate struct {
	Store      Store
	Workspaces WorkspaceStore
	Seal       Sealer
	Receipts   ReceiptIssuer
	Policy     Policy
	Grants     GrantStore // nil: nothing is remembered
	Executor   Executor
	Audit      Audit
	Settings   Settings
	Pauses     PauseGuard // nil: nothing is ever paused
	Log        zerolog.Logger

	Now       func() time.Time                  // nil: time.Now
	Changed   func(approval.Key)                // told when a request starts or stops to wait; may be nil
	Accepted  func(approval.Key)                // told before whoever submitted a request, once it is durable; may be nil
	Retention time.Duration                     // of responses; 0: DefaultResponses
	Records   time.Duration                     // retention of records; 0: DefaultRecords
	Health    func(p Degradation, present bool) // told when the gate stops or begins again to take new work; may be nil
	Inline    bool                              // effects and parallel writes run in the caller, one after the other

	index       index
	sched       scheduler
	condition   condition
	submissions submissions

	mu                sync.Mutex
	running           map[approval.Key]bool
	outcomes          map[approval.Key]outcome   // of effects, until their record is written
	unsyncedResponses map[approval.Key]bool      // responses whose sync failed: to be written anew
	seen              map[approval.Key]time.Time // incomplete requests, and those that are held
	late              map[approval.Key]time.Time // found too late, and not yet ended: no clock that is set back revives them
	slots             map[string]int             // running handlers by workspace
	queued            map[string][]approval.Key  // waiting for a handler slot, longest first
	isQueued          map[approval.Key]bool
	paused            map[string][]approval.Key // waiting for the end of a pause
	isPaused          map[approval.Key]bool
	rates             map[string]*rates
	work              sync.WaitGroup // claims and effects under way
	stopping          bool           // no new effects
	pruneBlocked      error          // why nothing is pruned before the next start
}

// Start learns which requests there are, and returns the keys that may need a
// move. The caller holds the lock on the home and has made durable what is
// visible there: a document that a killed daemon left unsynced must not be
// acted upon.
func (g *Gate) Start() (keys []approval.Key, err error) {
	if g.Now == nil {
		g.Now = time.Now
	}
	if g.Retention == 0 {
		g.Retention = DefaultResponses
	}
	g.index = newIndex()
	g.sched.init()
	g.running = map[approval.Key]bool{}
	g.outcomes = map[approval.Key]outcome{}
	g.unsyncedResponses = map[approval.Key]bool{}
	g.seen = map[approval.Key]time.Time{}
	g.late = map[approval.Key]time.Time{}
	g.slots = map[string]int{}
	g.queued, g.isQueued = map[string][]approval.Key{}, map[approval.Key]bool{}
	g.paused, g.isPaused = map[string][]approval.Key{}, map[approval.Key]bool{}
	g.rates = map[string]*rates{}
	return g.scanAll()
}

// moment is the configuration that one intake goes by.
func (g *Gate) snapshot() (Settings, Policy) {
	if m, ok := g.Settings.(SettingsSnapshotter); ok {
		return m.Snapshot()
	}
	return g.Settings, g.Policy
}

func (g *Gate) changed(k approval.Key) {
	if g.Changed != nil {
		g.Changed(k)
	}
}

// both runs a and b side by side and waits for both.
func (g *Gate) parallel(a, b func() error) error {
	if g.Inline {
		if err := a(); err != nil {
			return err
		}
		return b()
	}
	errs := make(chan error, 1)
	go func() { errs <- a() }()
	err := b()
	return errors.Join(<-errs, err)
}

func (g *Gate) noteEvent(k approval.Key, event approval.Event, fill func(*approval.Entry)) {
	e := approval.Entry{Time: g.Now().UTC(), Event: event, Workspace: k.Workspace, RequestID: k.ID}
	if fill != nil {
		fill(&e)
	}
	g.Audit.Note(e)
}

// present reads a document that may well not be there.
func (g *Gate) readIfExists(d approval.Doc, k approval.Key) ([]byte, bool, error) {
	b, err := g.Store.Read(d, k)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return b, true, nil
}
