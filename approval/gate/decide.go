package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/store"
)

// DefaultRunBefore is how long after its approval a request may start.
const DefaultRunBefore = 10 * time.Minute

// slotTimeout is how long Decide waits until an invalid decision is removed from the
// slot.
const slotTimeout = 10 * time.Second

// Decider writes decisions. Every channel, the command line and every other process
// decides through it. It is the only place that checks whether a person may decide.
type Decider struct {
	Store store.Documents
	Seal  sealer
	Now   func() time.Time
	// May is an Authorizer's: it returns the person's name if that person may decide p,
	// nil if no such request is pending. It must refuse every person it does not know.
	May func(workspace string, p *approval.Pending, by approval.Person) (name string, ok bool)
	// RunBefore is the current time that an approved request has to start; nil or 0:
	// DefaultRunBefore.
	RunBefore func() time.Duration
	// ClearSlot removes an invalid decision from the slot, or waits until the daemon has
	// removed it.
	ClearSlot func(ctx context.Context, k approval.Key) error
	// Grants keeps what a decision gives, before Decide returns; nil: the gate adds it with
	// the outcome.
	Grants Grants
	// Decided is called when a decision is durable; may be nil.
	Decided func(k approval.Key)
	// Refused is called when a person without authority tried to decide; may be nil.
	Refused func(k approval.Key, by approval.Person, via string)
	Words   Words // nil: the technical form of reasons
	// Pattern reads a command pattern given for p, or says why it is refused; nil: none is taken.
	Pattern func(p *approval.Pending, line string) (words []string, why approval.Reason)

	isCancel bool // the decision comes from the agent or the operator, not from an approver
}

// Decide writes the decision if the person may decide and the request is pending, not
// expired and not decided yet. It returns when the decision is durable. Every refusal
// is an *decide.Refusal. After any other error the decision may be on disk; check
// before retrying.
func (d *Decider) Decide(ctx context.Context, a decide.Input) (*approval.Decision, error) {
	p, sha, err := d.lookUp(ctx, a)
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
	put := store.Put(approval.DocDecision, a.Key, d.Seal.Seal(approval.DocDecision, a.Key, body))
	put.Check = func() error { return d.checkCounts(context.WithoutCancel(ctx), a.Key, dec, put.Bytes) }
	if err := d.createDecision(ctx, put, sha); err != nil {
		return nil, err
	}
	if d.Grants != nil {
		if err := d.Grants.AddFromDecision(p, dec); err != nil {
			return nil, fmt.Errorf("remember the decision: %w", err)
		}
	}
	if d.Decided != nil {
		d.Decided(a.Key)
	}
	return dec, nil
}

// Cancel cancels a pending request for the operator, with the reason in Feedback. It is neither an approval nor a
// denial, and nothing runs.
func (d *Decider) Cancel(ctx context.Context, a decide.Input) (*approval.Decision, error) {
	c := *d
	c.isCancel, a.Verdict, a.Feedback = true, approval.Cancelled, approval.CancelReason(a.Feedback)
	return c.Decide(ctx, a)
}

// CanDecide does the checks of Decide and writes nothing. It returns nil, or the
// *decide.Refusal that Decide would return.
func (d *Decider) CanDecide(ctx context.Context, a decide.Input) error {
	_, _, err := d.lookUp(ctx, a)
	return err
}

func (d *Decider) now() time.Time {
	if d.Now == nil {
		return time.Now().UTC()
	}
	return d.Now().UTC()
}

func (d *Decider) compose(a decide.Input, p *approval.Pending, sha string) (*approval.Decision, error) {
	name, _ := d.May(a.Key.Workspace, p, a.By)
	if a.Verdict == approval.Approved { // a program may name the code or the scope alone
		a.Scope = cmp.Or(a.Scope, decide.ByCode(a.Code, "").Scope, approval.Once)
	}
	if err := d.checkApplicable(a, p); err != nil {
		return nil, err
	}
	pattern, err := d.pattern(a, p)
	if err != nil {
		return nil, err
	}
	now := d.now()
	dec := &approval.Decision{
		Version: approval.Version, RequestID: a.Key.ID, Approved: a.Verdict == approval.Approved,
		Verdict: a.Verdict, Code: a.Code, Scope: a.Scope, Note: a.Note, Override: a.Override,
		Feedback: a.Feedback, Answer: a.Text, Commands: pattern, PendingSHA256: sha,
		DecidedBy: name, DecidedByID: a.By.StableID(), ClaimedBy: a.ClaimedBy, Via: a.Via, DecidedAt: now,
	}
	if dec.Approved {
		after := DefaultRunBefore
		if d.RunBefore != nil {
			after = cmp.Or(d.RunBefore(), after)
		}
		dec.RunBefore = now.Add(after)
	}
	if err := dec.Check(a.Key); err != nil {
		return nil, fmt.Errorf("compose decision: %w", err)
	}
	return dec, nil
}

// createDecision commits the decision. Its slot says who was first.
func (d *Decider) createDecision(ctx context.Context, put store.Op, sha string) error {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	k := put.Key
	for {
		err := d.Store.Commit(ctx, put)
		if err == nil {
			return nil
		}
		if ref := (*decide.Refusal)(nil); errors.As(err, &ref) {
			return ref
		}
		if !errors.Is(err, store.ErrExists) {
			if plain := (*store.Unwritten)(nil); errors.As(err, &plain) {
				return plain
			}
			return fmt.Errorf("write decision: %w", err)
		}
		if taken := d.decidedRefusal(ctx, k, sha); taken != nil {
			return taken
		}
		if settled := d.settledRefusal(ctx, k); settled != nil {
			return settled
		}
		if d.ClearSlot == nil {
			return errors.New("the slot holds an invalid decision: start the daemon to remove it")
		}
		if err := d.ClearSlot(ctx, k); err != nil {
			return fmt.Errorf("free the slot: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("free the slot: %w", err)
		}
	}
}

// checkCounts finds out whether a decision that is in its slot counts, before it is durable.
// One that does not is withdrawn; the refusal says why. A record is visible before its pending
// is removed: who has read the pending first, and then finds no record, knows that the request
// was not settled.
func (d *Decider) checkCounts(ctx context.Context, k approval.Key, dec *approval.Decision, file []byte) error {
	p, err := d.Store.Read(ctx, approval.DocPending, k)
	if err != nil && !errors.Is(err, store.ErrMissing) {
		return fmt.Errorf("read pending: %w", err)
	}
	pending := err == nil && approval.Digest(p) == dec.PendingSHA256
	b, err := d.Store.Read(ctx, approval.DocRecord, k)
	switch {
	case err == nil:
		if rec, err := approval.OpenRecord(d.Seal, k, b); err != nil || string(rec.Decision) != string(file) {
			return d.withdraw(ctx, k, file, cmp.Or(d.settledRefusal(ctx, k), &decide.Refusal{Reason: decide.ErrTooLate}))
		}
		return nil // settled, by this decision
	case !errors.Is(err, store.ErrMissing):
		return fmt.Errorf("read record: %w", err)
	case !pending:
		return d.withdraw(ctx, k, file, &decide.Refusal{
			Reason: decide.ErrUnknown, Hint: "the request was removed or replaced while it was decided",
		})
	case dec.Approved && d.now().After(dec.RunBefore):
		return d.checkNotLate(ctx, k, file)
	}
	return nil
}

// checkNotLate withdraws an approval that was written after its RunBefore, unless the
// gate had claimed it before that.
func (d *Decider) checkNotLate(ctx context.Context, k approval.Key, file []byte) error {
	for _, doc := range []approval.Doc{approval.DocClaim, approval.DocRecord} {
		if _, err := d.Store.Read(ctx, doc, k); err == nil {
			return nil // claimed in time: the record has the result
		} else if !errors.Is(err, store.ErrMissing) {
			return fmt.Errorf("read claim: %w", err)
		}
	}
	return d.withdraw(ctx, k, file, &decide.Refusal{
		Reason: decide.ErrTooLate, Hint: "the approval expired before it was written; nothing runs",
	})
}

// withdraw removes our own decision from the slot and returns why.
func (d *Decider) withdraw(ctx context.Context, k approval.Key, file []byte, why *decide.Refusal) error {
	cur, err := d.Store.Read(ctx, approval.DocDecision, k)
	if err != nil || string(cur) != string(file) {
		return why // it is not there, or not ours
	}
	if err := d.Store.Remove(ctx, approval.DocDecision, k); err != nil {
		return fmt.Errorf("withdraw decision: %w", err)
	}
	return why
}

// ClearInvalid removes a decision from the slot that is not valid for the pending. It
// calls describe first. The caller has the lease.
func (d *Decider) ClearInvalid(ctx context.Context, k approval.Key, describe func() error) error {
	b, err := d.Store.Read(ctx, approval.DocPending, k)
	if err != nil {
		return fmt.Errorf("read pending: %w", err)
	}
	if d.decidedRefusal(ctx, k, approval.Digest(b)) != nil {
		return nil // it is valid
	}
	if err := describe(); err != nil {
		return err
	}
	return d.Store.Remove(ctx, approval.DocDecision, k)
}
