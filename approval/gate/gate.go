package gate

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/store"
)

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
	// JudgeProgram rules on the steps of a program in their order, where what the earlier ones
	// consume counts, and on the program by the strictest.
	JudgeProgram(steps []approval.Facts) (run approval.Ruling, each []approval.Ruling)
	// OffersProgram is Offers for a program with these steps.
	OffersProgram(f approval.Facts, steps []approval.Facts, given approval.Ruling) []approval.Offer
	// Offers says what approvals of a request with this ruling would remember.
	Offers(f approval.Facts, given approval.Ruling) []approval.Offer
	// Recurrence is how often people approved the same workspace, action (the tool, or the
	// action type without one) and capability.
	Recurrence(workspace, action, capability string) int
}

// Grants keeps grants.
type Grants interface {
	// AddFromDecision makes the grant of a decision durable, and it holds from then on. The
	// grant's id is the request's id. A second call for the same decision does nothing.
	AddFromDecision(p *approval.Pending, d *approval.Decision) error
}

// executor verifies the receipt, then runs the tool. Resume awaits the end of a task that an earlier Run has kept.
type executor interface {
	Run(ctx context.Context, job approval.Job) approval.Effect
	Resume(ctx context.Context, job approval.Job) approval.Effect
}

// Audit is the audit log. Note leaves it to a later commit, or to Sync, to make the entry
// durable. The entries of moves are part of their commits.
type Audit interface {
	Note(e event.Entry)
	Sync() error
}

// pauseGuard stops new runs during a pause. Enter reports whether a claim may begin
// in a workspace. After true, call Leave when the claim is written or given up.
type pauseGuard interface {
	Enter(workspace string) bool
	Leave(workspace string)
}

// Settings is one state of the configuration.
type Settings interface {
	Workspace(name string) (approval.Workspace, bool)
	Tool(name string) (approval.Tool, bool)
	ToolNames() []string // sorted
	// Provers verify proofs. Without any, no proof can be verified.
	Provers() facts.Provers
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
	case r.Code == "expired":
		return errExpired // the same for every way to expire
	case r.Code == "malformed":
		return r.Args["detail"] // an error's own text
	case w == nil:
		return r.String()
	}
	return w.Reasons([]approval.Reason{r})
}

// Gate is the state machine of the daemon. Fill in the fields, call Start, then
// either Run or Step.
type Gate struct {
	Store    store.Store
	Seal     sealer
	Receipts receiptIssuer
	// Config returns the current settings and the policy of the same configuration.
	Config   func() (Settings, Policy)
	Grants   Grants // nil: nothing is remembered
	Executor executor
	Planner  planner // nil: programs are refused
	Audit    Audit
	Pauses   pauseGuard // nil: no pauses
	Words    Words      // nil: the technical form of reasons
	Host     Host       // nil: nothing is known of the host's files
	// HoldsSecret reports whether a text has a secret. The text of a file that a request
	// would replace goes to chat services. nil: every text may have one.
	HoldsSecret func(text string) bool
	Log         zerolog.Logger
	// Head is the newest checkpoint of the audit log; nil, or without one: responses do not name it.
	Head func() *approval.LogHead

	Now               func() time.Time                  // nil: time.Now
	Changed           func(approval.Key)                // called when a request becomes pending or gets its response; may be nil
	Accepted          func(approval.Key)                // called when a submission is durable, before its caller gets the result; may be nil
	Limited           func(workspace string)            // called when a limit refuses a request; may be nil
	ResponseRetention time.Duration                     // of responses; 0: DefaultResponseRetention
	RecordRetention   time.Duration                     // retention of records; 0: DefaultRecordRetention
	Health            func(p Degradation, present bool) // called when the gate becomes degraded or healthy; may be nil
	StorageChanged    func(ws string, s Storage)        // called when a budget is almost or wholly used up, or is not any more; may be nil
	Inline            bool                              // handlers and checkpoints run in the caller's goroutine

	index       index
	sched       scheduler
	condition   condition
	quotas      quotas
	submissions submissions

	running  keyMap[bool]
	outcomes keyMap[outcome]        // of finished runs without a record
	ended    keyMap[outcome]        // of finished steps of programs without a record
	orphans  keyMap[[]approval.Key] // steps that an earlier process has claimed, by their request
	plans    keyMap[planned]        // of programs that are not taken in yet
	resumeAt keyMap[time.Time]      // of programs whose run goes on later
	seen     keyMap[time.Time]      // first seen: incomplete and delayed requests
	late     keyMap[time.Time]      // past the deadline and not ended; a clock set back must not revive them

	mu       sync.Mutex
	rates    map[string]*rates // by workspace
	work     sync.WaitGroup    // claims and runs under way
	stopping bool              // no new runs
}

// Start scans the folders and returns the keys that may need a move. The caller has
// the store's lease: everything that an earlier process committed is visible and durable.
func (g *Gate) Start(ctx context.Context) (keys []approval.Key, err error) {
	if g.Now == nil {
		g.Now = time.Now
	}
	g.ResponseRetention = cmp.Or(g.ResponseRetention, DefaultResponseRetention)
	g.index = newIndex()
	g.sched.init()
	g.rates = map[string]*rates{}
	if err := g.countStored(ctx); err != nil {
		return nil, err
	}
	return g.scanAll(ctx)
}

// settings are those of now. An intake uses one configuration.
func (g *Gate) settings() Settings {
	s, _ := g.Config()
	return s
}

func (g *Gate) changed(k approval.Key) {
	if g.Changed != nil {
		g.Changed(k)
	}
}

// newEntry begins an audit entry about a request.
func (g *Gate) newEntry(k approval.Key, kind event.Kind) event.Entry {
	return event.Entry{Time: g.Now().UTC(), Event: kind, Workspace: k.Workspace, RequestID: k.ID}
}

// readIfExists reads a document; ok is false if there is none.
func (g *Gate) readIfExists(ctx context.Context, d approval.Doc, k approval.Key) ([]byte, bool, error) {
	b, err := g.Store.Read(ctx, d, k)
	switch {
	case errors.Is(err, store.ErrMissing):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return b, true, nil
}
