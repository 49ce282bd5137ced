package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// DefaultRunBefore is how long after a decision what was approved may start.
const DefaultRunBefore = 10 * time.Minute

// slotTimeout is how long Decide waits for somebody else to clear an invalid
// decision out of the slot.
const slotTimeout = 10 * time.Second

// Decider turns answers into decisions. It is the only way to one, for every
// channel, the command line and any other process: who may decide is checked
// here and nowhere else.
type Decider struct {
	Store Store
	Seal  Sealer
	Now   func() time.Time // nil: time.Now
	// May names the person if they may decide what p waits for. It must
	// answer no for everybody it does not know; p is nil where there is no
	// such pending.
	May       func(workspace string, p *approval.Pending, by approval.Person) (name string, ok bool)
	RunBefore time.Duration // 0: DefaultRunBefore
	// Daemon says that this process holds the home's lock, so that what is
	// visible among the pendings was made durable by itself, or is just being.
	Daemon bool
	// Free clears a slot that an invalid decision blocks, or waits a moment
	// for the daemon to do so.
	Free func(ctx context.Context, k approval.Key) error
	// Decided is told of a decision that is durable; may be nil.
	Decided func(k approval.Key)
	// Refused is told of somebody who may not decide and tried; may be nil.
	Refused func(k approval.Key, by approval.Person, via string)

	isCancel bool // the answer is the agent's or the operator's, and no approver's
}

// Decide writes the decision if the person may, the request waits, its time
// has not passed and nobody was first. It returns only when the decision is
// durable. Every refusal is an *approval.Refusal; after any error nothing was
// decided, except where the error is of the disk: then ask again.
func (d *Decider) Decide(ctx context.Context, a approval.DecisionInput) (*approval.Decision, error) {
	p, sha, err := d.lookUp(a)
	if err != nil {
		return nil, err
	}
	dec, err := d.compose(a, p, sha)
	if err != nil {
		return nil, err
	}
	body, err := dec.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode decision: %w", err)
	}
	if reporter, ok := d.Store.(UnsyncedReporter); !d.Daemon || ok && reporter.Unsynced(approval.DocPending, a.Key) {
		// The daemon may have been killed between making P visible and making
		// it durable, or is in between; a decision must not outlive what it decides.
		if err := d.Store.Sync(approval.DocPending, a.Key.Workspace); err != nil {
			return nil, fmt.Errorf("sync pendings: %w", err)
		}
	}
	file := d.Seal.Seal(approval.DocDecision, a.Key, body)
	if err := d.createDecision(ctx, a.Key, sha, file); err != nil {
		return nil, err
	}
	if err := d.checkNotSettled(a.Key, file); err != nil {
		return nil, err
	}
	if err := d.checkStillPending(a.Key, sha, file); err != nil {
		return nil, err
	}
	if dec.Approved && d.now().After(dec.RunBefore) {
		if err := d.checkNotLate(a.Key, file); err != nil {
			return nil, err
		}
	}
	if d.Decided != nil {
		d.Decided(a.Key)
	}
	return dec, nil
}

// Cancel is Decide for the operator who takes a request off the table: nobody has
// denied it, and nothing runs.
func (d *Decider) Cancel(ctx context.Context, a approval.DecisionInput) (*approval.Decision, error) {
	c := *d
	c.isCancel, a.Verdict = true, approval.Cancelled
	return c.Decide(ctx, a)
}

// CanDecide is Decide without deciding: nil where the person may answer and the
// request waits for an answer, else the *approval.Refusal that Decide would give.
func (d *Decider) CanDecide(_ context.Context, a approval.DecisionInput) error {
	_, _, err := d.lookUp(a)
	return err
}

func (d *Decider) now() time.Time {
	if d.Now == nil {
		return time.Now().UTC()
	}
	return d.Now().UTC()
}

// lookUp checks, in this order: authorised, known, unresolved, unexpired.
func (d *Decider) lookUp(a approval.DecisionInput) (p *approval.Pending, sha string, err error) {
	k := a.Key
	b, err := d.Store.Read(approval.DocPending, k)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("read pending: %w", err)
	}
	if err == nil {
		p, err = openPending(d.Seal, k, b)
		if err != nil {
			p = nil // a host program's request is not waiting for anybody yet
		}
	}
	if d.May == nil {
		return nil, "", &approval.Refusal{Reason: approval.ErrNotAuthorized}
	}
	if _, ok := d.May(k.Workspace, p, a.By); !ok {
		if d.Refused != nil {
			d.Refused(k, a.By, a.Via)
		}
		return nil, "", &approval.Refusal{Reason: approval.ErrNotAuthorized}
	}
	if ref := d.settledRefusal(k); ref != nil {
		return nil, "", ref
	}
	if p == nil {
		return nil, "", &approval.Refusal{Reason: approval.ErrUnknown, Hint: "nothing of that id waits here"}
	}
	sha = approval.Digest(b)
	if a.PendingSHA256 != "" && a.PendingSHA256 != sha {
		return nil, "", &approval.Refusal{Reason: approval.ErrTooLate, Hint: "the request is no longer the one that was shown; look again"}
	}
	if taken := d.decidedRefusal(k, sha); taken != nil {
		return nil, "", taken
	}
	if !d.now().Before(p.ExpiresAt) {
		return nil, "", &approval.Refusal{Reason: approval.ErrTooLate, Hint: "it expired at " + p.ExpiresAt.UTC().Format(time.RFC3339)}
	}
	return p, sha, nil
}

// settledRefusal is the refusal that a record gives, if there is one.
func (d *Decider) settledRefusal(k approval.Key) *approval.Refusal {
	b, err := d.Store.Read(approval.DocRecord, k)
	if err != nil {
		return nil
	}
	ref := &approval.Refusal{Reason: approval.ErrDecided}
	rec, err := openRecord(d.Seal, k, b)
	if err != nil {
		return ref
	}
	ref.Hint = "it ended as " + string(rec.Status)
	if dec, err := openDecision(d.Seal, k, rec.Decision); err == nil {
		ref.By, ref.At, ref.Verdict = dec.DecidedBy, dec.DecidedAt, dec.Verdict
	}
	return ref
}

// decidedRefusal is the refusal that a valid decision in the slot gives. One that came
// too late lies there for a moment, until it is withdrawn: then the record
// knows who was first.
func (d *Decider) decidedRefusal(k approval.Key, sha string) *approval.Refusal {
	b, err := d.Store.Read(approval.DocDecision, k)
	if err != nil {
		return nil
	}
	dec, err := openDecision(d.Seal, k, b)
	if err != nil || dec.PendingSHA256 != sha {
		return nil
	}
	if settled := d.settledRefusal(k); settled != nil {
		return settled
	}
	return &approval.Refusal{Reason: approval.ErrDecided, By: dec.DecidedBy, At: dec.DecidedAt, Verdict: dec.Verdict}
}

func (d *Decider) compose(a approval.DecisionInput, p *approval.Pending, sha string) (*approval.Decision, error) {
	name, _ := d.May(a.Key.Workspace, p, a.By)
	if err := d.checkApplicable(a, p); err != nil {
		return nil, err
	}
	now := d.now()
	dec := &approval.Decision{
		Version: approval.Version, RequestID: a.Key.ID, Approved: a.Verdict == approval.Approved,
		Verdict: a.Verdict, Code: a.Code, Scope: a.Scope, Note: a.Note, Override: a.Override,
		Feedback: a.Feedback, Answer: a.Text, PendingSHA256: sha,
		DecidedBy: name, DecidedByID: a.By.Channel + ":" + a.By.ID, Via: a.Via, DecidedAt: now,
	}
	if dec.Approved {
		if dec.Scope == "" {
			dec.Scope = approval.Once
		}
		after := d.RunBefore
		if after <= 0 {
			after = DefaultRunBefore
		}
		dec.RunBefore = now.Add(after)
	}
	if err := dec.Check(a.Key); err != nil {
		return nil, fmt.Errorf("compose decision: %w", err)
	}
	return dec, nil
}

// fits refuses an answer that this kind of request has no use for.
func (d *Decider) checkApplicable(a approval.DecisionInput, p *approval.Pending) error {
	no := func(hint string) error { return &approval.Refusal{Reason: approval.ErrNotApplicable, Hint: hint} }
	if d.isCancel && a.Verdict == approval.Cancelled {
		return nil
	}
	switch a.Verdict {
	case approval.Approved:
		if p.Type == approval.TypeQuestion {
			return no("it is a question: answer it")
		}
	case approval.Answered:
		if p.Type != approval.TypeQuestion {
			return no("it is no question: approve or deny it")
		}
		if a.Text == "" {
			return no("the answer is empty")
		}
	case approval.Overridden:
		if a.Override == "" {
			return no("say what is to change")
		}
	case approval.RequestMore:
		if a.Feedback == "" {
			return no("say what you want to know")
		}
	case approval.Denied:
	default:
		return no("an answer approves, denies, answers, changes or asks")
	}
	if a.Verdict == approval.Approved {
		if why := approval.NotGrantable(p, a.Scope); why != "" {
			return no(why + ": allow it once")
		}
	}
	return nil
}

// take creates the decision. The file system is the referee.
func (d *Decider) createDecision(ctx context.Context, k approval.Key, sha string, file []byte) error {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	for {
		err := d.Store.Create(approval.DocDecision, k, file, approval.Durable)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("write decision: %w", err)
		}
		if taken := d.decidedRefusal(k, sha); taken != nil {
			return taken
		}
		if settled := d.settledRefusal(k); settled != nil {
			return settled
		}
		if d.Free == nil {
			return errors.New("the slot is blocked by an invalid decision: start the daemon, it clears it away")
		}
		if err := d.Free(ctx, k); err != nil {
			return fmt.Errorf("free the slot: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("free the slot: %w", err)
		}
	}
}

// checkNotSettled finds out whether the request was settled before our decision
// was there: then it is withdrawn, and the person hears that it is too late.
func (d *Decider) checkNotSettled(k approval.Key, file []byte) error {
	b, err := d.Store.Read(approval.DocRecord, k)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the record: %w", err)
	}
	rec, err := openRecord(d.Seal, k, b)
	if err == nil && string(rec.Decision) == string(file) {
		return nil
	}
	if err := d.withdraw(k, file); err != nil {
		return err
	}
	ref := d.settledRefusal(k)
	if ref == nil {
		ref = &approval.Refusal{}
	}
	ref.Reason = approval.ErrTooLate
	return ref
}

// checkStillPending finds out whether the gate took back what it asked, because its
// disk failed to keep it. Then there is nothing left that was decided.
func (d *Decider) checkStillPending(k approval.Key, sha string, file []byte) error {
	b, err := d.Store.Read(approval.DocPending, k)
	if err == nil && approval.Digest(b) == sha {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the pending: %w", err)
	}
	// Settled in the meantime: that our decision counts was not seen a moment ago.
	if _, err := d.Store.Read(approval.DocRecord, k); !errors.Is(err, fs.ErrNotExist) {
		return d.checkNotSettled(k, file)
	}
	if err := d.withdraw(k, file); err != nil {
		return err
	}
	return &approval.Refusal{Reason: approval.ErrUnknown, Hint: "it was taken back because the disk failed: it will be asked again"}
}

// checkNotLate is for an approval whose time was over before it was written. Nobody
// claims it any more; unless somebody had, the person hears that.
func (d *Decider) checkNotLate(k approval.Key, file []byte) error {
	for _, doc := range []approval.Doc{approval.DocClaim, approval.DocRecord} {
		if _, err := d.Store.Read(doc, k); err == nil {
			return nil // it was in time: the record says how it went
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for the claim: %w", err)
		}
	}
	if err := d.withdraw(k, file); err != nil {
		return err
	}
	return &approval.Refusal{Reason: approval.ErrTooLate, Hint: "writing it took longer than it was good for; it does not run"}
}

// withdraw removes our own decision out of the slot.
func (d *Decider) withdraw(k approval.Key, file []byte) error {
	cur, err := d.Store.Read(approval.DocDecision, k)
	if err != nil || string(cur) != string(file) {
		return nil //nolint:nilerr // it is not there, or not ours
	}
	if err := d.Store.Remove(approval.DocDecision, k); err != nil {
		return fmt.Errorf("withdraw decision: %w", err)
	}
	return nil
}

// ClearInvalid takes a decision that is not valid for what is pending out of
// the slot, after describe has noted it. The caller holds the home's lock.
func (d *Decider) ClearInvalid(k approval.Key, describe func() error) error {
	b, err := d.Store.Read(approval.DocPending, k)
	if err != nil {
		return fmt.Errorf("read pending: %w", err)
	}
	if d.decidedRefusal(k, approval.Digest(b)) != nil {
		return nil // it is valid after all
	}
	if err := describe(); err != nil {
		return err
	}
	return d.Store.Remove(approval.DocDecision, k)
}
