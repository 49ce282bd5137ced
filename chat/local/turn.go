package local

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// turn is one request being answered.
type turn struct {
	*Server
	conn   net.Conn
	person approval.Person
	theirs []string // workspaces in which the person may decide; never none
}

// answer says whether the conversation may go on.
func (t turn) answer(ctx context.Context, r request) bool {
	// A disk that hangs must not hold a connection for ever.
	ctx, cancel := context.WithTimeout(ctx, 3*t.patience())
	defer cancel()
	var err error
	switch r.Op {
	case opPending:
		err = t.pending(ctx, r)
	case opFind:
		err = t.find(ctx, r)
	case opShow:
		err = t.show(ctx, r)
	case opDecide:
		err = t.decide(ctx, r)
	case opStatus:
		err = t.status()
	case opUI:
		err = t.ui()
	default:
		return t.say(t.conn, answer{Error: "not something that this gate can be asked for: is permesso of the same version?", End: true})
	}
	if err == nil {
		return t.say(t.conn, answer{End: true, Language: t.Language(t.person)})
	}
	var ref *approval.Refusal
	switch {
	case errors.Is(err, errGone):
		return false
	case errors.As(err, &ref):
		return t.say(t.conn, refused(ref))
	}
	t.log(err) // what is wrong on the gate's disk is not for everybody's eyes
	return t.say(t.conn, answer{Error: "the gate could not do that; its log says why", End: true})
}

// errGone says that the client does not take the answer.
var errGone = errors.New("the other side does not read")

func (t turn) tell(a answer) error {
	if !t.say(t.conn, a) {
		return errGone
	}
	return nil
}

// wanted are the workspaces asked about, as far as they are the person's own.
// It is never empty by being asked for nothing: that means all of theirs.
func (t turn) wanted(r request) []string {
	if len(r.Workspaces) == 0 {
		return t.theirs
	}
	return slices.DeleteFunc(slices.Clone(r.Workspaces), func(ws string) bool { return !slices.Contains(t.theirs, ws) })
}

func (t turn) pending(ctx context.Context, r request) error {
	workspaces := t.wanted(r)
	if len(workspaces) == 0 {
		return nil
	}
	list, err := t.Viewer.Waiting(ctx, workspaces)
	if err != nil {
		return err
	}
	for _, w := range list {
		if !t.May(w.Pending.SourceGroup, w.Pending, t.person) {
			continue
		}
		if err := t.waiting(w); err != nil {
			return err
		}
	}
	return nil
}

func (t turn) waiting(w approval.StoredPending) error {
	body, err := w.Pending.Encode()
	if err != nil {
		return err
	}
	return t.tell(answer{Workspace: w.Pending.SourceGroup, ID: w.Pending.RequestID, Pending: body, SHA256: w.SHA256})
}

func about(k approval.Key) answer { return answer{Workspace: k.Workspace, ID: k.ID} }

func (t turn) find(ctx context.Context, r request) error {
	workspaces := t.wanted(r)
	if len(workspaces) == 0 {
		return nil
	}
	keys, err := t.Viewer.Find(ctx, workspaces, r.Prefix)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if !t.visible(k) {
			continue
		}
		if err := t.tell(about(k)); err != nil {
			return err
		}
	}
	return nil
}

// visible hides requests for another person.
func (t turn) visible(k approval.Key) bool {
	w, err := t.Viewer.Pending(k)
	return err == nil && (w == nil || t.May(k.Workspace, w.Pending, t.person))
}

// show gives what waits, or the story, or nothing.
func (t turn) show(ctx context.Context, r request) error {
	k := r.key()
	if !slices.Contains(t.theirs, k.Workspace) || !approval.ValidID(k.ID) || !t.visible(k) {
		return nil
	}
	w, err := t.Viewer.Pending(k)
	if err != nil {
		return err
	}
	if w != nil {
		if err := t.waiting(*w); err != nil {
			return err
		}
	}
	rec, err := t.Viewer.Record(ctx, k)
	if err != nil || rec == nil {
		return err
	}
	return t.record(k, rec)
}

func (t turn) record(k approval.Key, rec *approval.Record) (err error) {
	a := about(k)
	if a.Record, err = rec.Encode(); err != nil {
		return err
	}
	if d := t.Viewer.OpenDecision(k, rec.Decision); d != nil {
		if a.Decision, err = d.Encode(); err != nil {
			return err
		}
	}
	return t.tell(a)
}

func (t turn) decide(ctx context.Context, r request) error {
	k := r.key()
	if !approval.ValidID(k.ID) || !slices.Contains(t.theirs, k.Workspace) {
		// The same words wherever they may not decide. Decide itself would ask
		// the disk about a name that is none.
		t.Refused(t.person)
		return &approval.Refusal{Reason: approval.ErrNotAuthorized}
	}
	d, err := t.Decider.Decide(ctx, approval.DecisionInput{
		Key: k, PendingSHA256: r.PendingSHA256, Verdict: r.Verdict, Code: r.Code, Scope: r.Scope,
		Note: r.Note, Override: r.Override, Feedback: r.Feedback, Text: r.Answer,
		By: t.person, Via: Via,
	})
	if err != nil {
		return err
	}
	body, err := d.Encode()
	if err != nil {
		return err
	}
	return t.tell(answer{Workspace: k.Workspace, ID: k.ID, Decision: body})
}

func (t turn) status() error {
	b, err := t.Status(t.theirs)
	if err != nil {
		return err
	}
	return t.tell(answer{Status: b})
}

// ui gives a link. An approver may see all of it.
func (t turn) ui() error {
	if t.Link == nil {
		return &approval.Refusal{Reason: approval.ErrNotApplicable, Hint: "the gate serves no pages"}
	}
	address, life, err := t.Link(t.person)
	if err != nil {
		return &approval.Refusal{Reason: approval.ErrNotApplicable, Hint: err.Error()}
	}
	return t.tell(answer{Link: address, LinkLife: int(life / time.Second)})
}
