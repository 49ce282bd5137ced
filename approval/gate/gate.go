// Package gate takes requests in, has them decided, runs what was approved, and
// writes the outcome. It wakes a key, loads its documents, asks approval.Next for the
// next move, and makes that move. It repeats this until the key is settled or has to
// wait.
//
// # Order
//
// Each move is a few writes in a fixed order. A crash between any two of them leaves
// documents from which Next finds the correct next move:
//
//	ask     P durable, then remove Q
//	claim   R and the audit entry durable, in parallel; then the effect
//	end     C durable, then S visible
//	settle  S durable, then remove D R Q X, P last
//	decide  D durable, then check for C, then tell the approver
//	prune   the removal of S D R Q X P durable, then C's removal durable, then the id is new
//
// If a move fails, its key is retried later. An examination finds out whether the
// disk as a whole has failed: see degrade.go.
//
// Nothing runs without R, and R is written once. So nothing runs twice. Documents
// that are visible after a kill may not be durable yet. So the whole file system is
// synced before Start.
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

// Store keeps the documents.
type Store interface {
	// Read returns a document's bytes. The error wraps fs.ErrNotExist if there is
	// none, and approval.ErrRefused if a request is not a regular file within its
	// limits.
	Read(d approval.Doc, k approval.Key) ([]byte, error)
	// Create writes a new document; it wraps fs.ErrExist if there is one.
	Create(d approval.Doc, k approval.Key, b []byte, how approval.WriteMode) error
	// Publish makes a response visible and replaces any other. The returned function
	// makes it durable.
	Publish(k approval.Key, b []byte) (sync func() error, err error)
	// Remove removes a document; a missing one is no error.
	Remove(d approval.Doc, k approval.Key) error
	// Sync makes the names in a folder durable.
	Sync(d approval.Doc, workspace string) error
}

// workspaceStore is what the daemon's Store does in addition.
type workspaceStore interface {
	// Workspaces lists the workspaces that have folders.
	Workspaces() ([]string, error)
	// List returns the ids that have a document of kind d, and the other file names
	// in that folder.
	List(d approval.Doc, workspace string) (ids, strays []string, err error)
	// Refuse writes a capped description of a refused file, never its content.
	Refuse(workspace, name, why string) error
	// RemoveStray removes a file with an invalid name from the requests folder.
	RemoveStray(workspace, name string) error
}

// parallelCreator is a Store that runs a function while a folder is synced. It is
// optional.
type parallelCreator interface {
	CreateParallel(d approval.Doc, k approval.Key, b []byte, beside func() error) error
}

// unsyncedReporter is a Store that reports whether a visible document may not be
// durable. It is optional.
type unsyncedReporter interface {
	Unsynced(d approval.Doc, k approval.Key) bool
}

// responsePreparer is a Store that can write a response invisibly while its record
// becomes durable. It is optional.
type responsePreparer interface {
	Stage(k approval.Key, b []byte) (show func() (sync func() error, err error), drop func(), err error)
}

// sealer adds and verifies the MAC of a document. Open fails unless the MAC is
// correct for that kind and key.
type sealer interface {
	Seal(d approval.Doc, k approval.Key, body []byte) []byte
	Open(d approval.Doc, k approval.Key, file []byte) (body []byte, err error)
}

// receiptIssuer issues the signed note that an executor demands.
type receiptIssuer interface {
	IssueReceipt(c *approval.Claim, d *approval.Decision, expires time.Time) (note string, err error)
}

// Policy evaluates requests.
type Policy interface {
	Judge(f approval.Facts) approval.Ruling
	// Reserve counts what a run consumes, right before its claim. If it returns a
	// ruling, that ruling refuses the run. The claim's audit entry makes the
	// reservation final; without a claim, undo cancels it.
	Reserve(f approval.Facts, given approval.Ruling, human bool) (undo func(), refused *approval.Ruling)
	// Recurrence is how often people approved the same workspace, capability (or
	// tool, if it has none) and target.
	Recurrence(workspace, capability, tool, target string) int
}

// grantStore keeps grants.
type grantStore interface {
	// AddFromDecision makes the grant of a decision durable. The grant's id is the
	// request's id. A second call for the same decision does nothing.
	AddFromDecision(p *approval.Pending, d *approval.Decision) error
}

// executor verifies the receipt, then runs the tool.
type executor interface {
	Run(ctx context.Context, job approval.Job) approval.Effect
}

// Audit is the audit log. Append returns when the entry is durable. Note leaves that
// to the next Append.
type Audit interface {
	Append(e approval.Entry) error
	Note(e approval.Entry)
}

// pauseGuard stops new runs during a pause. Enter reports whether a claim may begin
// in a workspace. After true, call Leave when the claim is written or given up.
type pauseGuard interface {
	Enter(workspace string) bool
	Leave(workspace string)
}

// pauseFailure is a pauseGuard that reports why Enter last returned false, if that
// was not a pause. It is optional.
type pauseFailure interface {
	Failure() error
}

// Settings is one state of the configuration.
type Settings interface {
	Workspace(name string) (approval.Workspace, bool)
	Tool(name string) (approval.Tool, bool)
}

// proverSource is a Settings with provers. It is optional.
type proverSource interface {
	Provers() approval.Provers
}

// settingsSnapshotter is a Settings that may change while the gate runs. Snapshot
// returns the current configuration and policy, so that one configuration evaluates
// and runs a request.
type settingsSnapshotter interface {
	Snapshot() (Settings, Policy)
}

// Words renders reasons for agents, programs and the audit log.
type Words interface {
	Reasons(reasons []approval.Reason) string
}

// say renders one reason, "" if there is none. Without words it returns the technical
// form.
func say(w Words, r approval.Reason) string {
	switch {
	case r.IsZero():
		return ""
	case r.Code == approval.ReasonExpired:
		return errExpired // the same for every way to expire
	case r.Code == approval.ReasonMalformed:
		return r.Args["detail"] // an error's own text
	case w == nil:
		return r.String()
	}
	return w.Reasons([]approval.Reason{r})
}

// Gate is the state machine of the daemon. Fill in the fields, call Start, then
// either Run or Step.
type Gate struct {
	Store      Store
	Workspaces workspaceStore
	Seal       sealer
	Receipts   receiptIssuer
	Policy     Policy
	Grants     grantStore // nil: nothing is remembered
	Executor   executor
	Audit      Audit
	Settings   Settings
	Pauses     pauseGuard // nil: no pauses
	Words      Words      // nil: the technical form of reasons
	Log        zerolog.Logger

	Now               func() time.Time                  // nil: time.Now
	Changed           func(approval.Key)                // called when a request becomes pending or gets its response; may be nil
	Accepted          func(approval.Key)                // called when a submission is durable, before its caller gets the result; may be nil
	ResponseRetention time.Duration                     // of responses; 0: DefaultResponseRetention
	RecordRetention   time.Duration                     // retention of records; 0: DefaultRecordRetention
	Health            func(p Degradation, present bool) // called when the gate becomes degraded or healthy; may be nil
	Inline            bool                              // handlers and parallel writes run in the caller's goroutine

	index       index
	sched       scheduler
	condition   condition
	submissions submissions

	mu                sync.Mutex
	running           map[approval.Key]bool
	outcomes          map[approval.Key]outcome   // of finished runs without a record
	unsyncedResponses map[approval.Key]bool      // the sync failed: write them again
	seen              map[approval.Key]time.Time // first seen: incomplete and delayed requests
	late              map[approval.Key]time.Time // past the deadline and not ended; a clock set back must not revive them
	slots             map[string]int             // running handlers by workspace
	queued            map[string][]approval.Key  // waiting for a handler slot, oldest first
	isQueued          map[approval.Key]bool
	paused            map[string][]approval.Key // waiting for the end of a pause
	isPaused          map[approval.Key]bool
	rates             map[string]*rates
	work              sync.WaitGroup // claims and runs under way
	stopping          bool           // no new runs
	pruneBlocked      error          // why pruning stopped until the next start
}

// Start scans the folders and returns the keys that may need a move. The caller holds
// HOME/lock and has synced the file system: the gate must not act on a document that
// a killed daemon left unsynced.
func (g *Gate) Start() (keys []approval.Key, err error) {
	if g.Now == nil {
		g.Now = time.Now
	}
	if g.ResponseRetention == 0 {
		g.ResponseRetention = DefaultResponseRetention
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

// snapshot is the configuration that one intake uses.
func (g *Gate) snapshot() (Settings, Policy) {
	if m, ok := g.Settings.(settingsSnapshotter); ok {
		return m.Snapshot()
	}
	return g.Settings, g.Policy
}

func (g *Gate) changed(k approval.Key) {
	if g.Changed != nil {
		g.Changed(k)
	}
}

// parallel runs a and b concurrently and waits for both.
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

// readIfExists reads a document; ok is false if there is none.
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
