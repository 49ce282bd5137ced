package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/store"
)

// lookUp checks, in this order: the person is authorized, the request is known, not
// decided, not expired.
func (d *Decider) lookUp(ctx context.Context, a decide.Input) (p *approval.Pending, sha string, err error) {
	k := a.Key
	b, err := d.Store.Read(ctx, approval.DocPending, k)
	if err != nil && !errors.Is(err, store.ErrMissing) {
		return nil, "", fmt.Errorf("read pending: %w", err)
	}
	if err == nil {
		p, err = approval.OpenPending(d.Seal, k, b)
		if err != nil {
			p = nil // a request from a host program that policy has not evaluated
		}
	}
	if d.May == nil {
		return nil, "", &decide.Refusal{Reason: decide.ErrNotAuthorized}
	}
	if _, ok := d.May(k.Workspace, p, a.By); !ok {
		if d.Refused != nil {
			d.Refused(k, a.By, a.Via)
		}
		return nil, "", &decide.Refusal{Reason: decide.ErrNotAuthorized}
	}
	if ref := d.settledRefusal(ctx, k); ref != nil {
		return nil, "", ref
	}
	if p == nil {
		return nil, "", &decide.Refusal{Reason: decide.ErrUnknown, Hint: "no pending request has this ID"}
	}
	sha = approval.Digest(b)
	if a.PendingSHA256 != "" && a.PendingSHA256 != sha {
		return nil, "", &decide.Refusal{Reason: decide.ErrChanged, Hint: "look at it again"}
	}
	if taken := d.decidedRefusal(ctx, k, sha); taken != nil {
		return nil, "", taken
	}
	if !d.now().Before(p.ExpiresAt) {
		return nil, "", &decide.Refusal{Reason: decide.ErrTooLate, Hint: "it expired at " + p.ExpiresAt.UTC().Format(time.RFC3339)}
	}
	return p, sha, nil
}

// settledRefusal is the refusal for a request that has a record; nil if it has none.
func (d *Decider) settledRefusal(ctx context.Context, k approval.Key) *decide.Refusal {
	b, err := d.Store.Read(ctx, approval.DocRecord, k)
	if err != nil {
		return nil
	}
	ref := &decide.Refusal{Reason: decide.ErrDecided}
	rec, err := approval.OpenRecord(d.Seal, k, b)
	if err != nil {
		return ref
	}
	ref.Hint = "it ended as " + string(rec.Status)
	if dec, err := approval.OpenDecision(d.Seal, k, rec.Decision); err == nil {
		ref.By, ref.At, ref.Verdict = dec.DecidedBy, dec.DecidedAt, dec.Verdict
	}
	return ref
}

// decidedRefusal is the refusal for a slot that holds a valid decision. A late
// decision can be in the slot until it is withdrawn. The record then names the
// decision that counts.
func (d *Decider) decidedRefusal(ctx context.Context, k approval.Key, sha string) *decide.Refusal {
	b, err := d.Store.Read(ctx, approval.DocDecision, k)
	if err != nil {
		return nil
	}
	dec, err := approval.OpenDecision(d.Seal, k, b)
	if err != nil || dec.PendingSHA256 != sha {
		return nil
	}
	if settled := d.settledRefusal(ctx, k); settled != nil {
		return settled
	}
	return &decide.Refusal{Reason: decide.ErrDecided, By: dec.DecidedBy, At: dec.DecidedAt, Verdict: dec.Verdict}
}

// maxClaimedBy is the maximum length of the name that a host program gives, in bytes.
const maxClaimedBy = 200

// checkApplicable refuses a verdict that does not fit this kind of request.
func (d *Decider) checkApplicable(a decide.Input, p *approval.Pending) error {
	no := func(hint string) error { return &decide.Refusal{Reason: decide.ErrNotApplicable, Hint: hint} }
	if d.isCancel && a.Verdict == approval.Cancelled {
		return nil
	}
	if why := contradiction(a); why != "" {
		return no(why)
	}
	if len(a.ClaimedBy) > maxClaimedBy {
		return no(fmt.Sprintf("decided_by has more than %d bytes", maxClaimedBy))
	}
	switch a.Verdict {
	case approval.Approved:
		if p.Type == approval.TypeQuestion {
			return no("it is a question: answer it")
		}
	case approval.Answered:
		if p.Type != approval.TypeQuestion {
			return no("it is not a question: approve or deny it")
		}
		if a.Text == "" {
			return no("the answer is empty")
		}
	case approval.Overridden:
		if a.Override == "" {
			return no("the override is empty: write the change")
		}
		if a.Code == approval.CodeEdit && p.Editable == "" {
			return no("the agent takes no other text for this request: answer with 5 and what it should do")
		}
	case approval.RequestMore:
		if a.Feedback == "" {
			return no("the feedback is empty: write your question")
		}
	case approval.Denied:
	default:
		return no("the verdict must be approved, denied, answered, overridden or request_more")
	}
	if a.Verdict == approval.Approved && a.Commands == "" {
		if why := grant.WhyNot(p, a.Scope); !why.IsZero() {
			return no(say(d.Words, why) + ": allow it once")
		}
	}
	return nil
}

// pattern reads the command pattern of an approval, and refuses one that may not be given.
func (d *Decider) pattern(a decide.Input, p *approval.Pending) ([]string, error) {
	if a.Commands == "" {
		return nil, nil
	}
	no := func(hint string) ([]string, error) {
		return nil, &decide.Refusal{Reason: decide.ErrNotApplicable, Hint: hint}
	}
	local := a.By.Channel == approval.EntranceLocal || a.By.Channel == approval.EntranceSocket
	switch {
	case !local || d.Pattern == nil:
		return no("a command pattern is given on the daemon's host")
	case a.Verdict != approval.Approved || a.Scope != approval.Always:
		return no("only code 6 has a command pattern")
	}
	if why := grant.WhyNot(p, approval.Commands); !why.IsZero() {
		return no(say(d.Words, why))
	}
	words, why := d.Pattern(p, a.Commands)
	if !why.IsZero() {
		return no(say(d.Words, why))
	}
	return words, nil
}

// contradiction says which two parts of an input contradict each other, "" if none do. A
// person meant one of them, and it is unknown which.
func contradiction(a decide.Input) string {
	code, coded := decide.ByCode(a.Code, ""), a.Code != ""
	approved := a.Verdict == approval.Approved
	switch {
	case coded && code.Verdict == "":
		return "the code must be 1 to 7"
	case coded && (code.Verdict != a.Verdict || a.Scope != "" && a.Scope != code.Scope):
		return "the code, the verdict and the scope contradict each other"
	case a.Scope != "" && !approved, !slices.Contains([]approval.Scope{"", approval.Once, approval.Session, approval.Always}, a.Scope):
		return "the scope must be once, session or always, of an approval"
	case a.Note != "" && !approved:
		return "only an approval has a note"
	case a.Override != "" && a.Verdict != approval.Overridden:
		return "only codes 5 and 7 have a change"
	case a.Text != "" && a.Verdict != approval.Answered:
		return "only a question has an answer"
	case a.Feedback != "" && a.Verdict != approval.Denied && a.Verdict != approval.RequestMore:
		return "only a denial or a question to the agent has feedback"
	}
	return ""
}
