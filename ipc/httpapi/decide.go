package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/permesso-dev/permesso/approval"
)

// Verdict is an approver's decision as an API client sends it.
type Verdict struct {
	Code          string `json:"code,omitempty" enum:"1,2,3,4,5,6" doc:"1 allow once, 2 allow for this session, 3 deny, 4 allow once with a note, 5 override: do something else, 6 always allow this type of action. Omit it with answer or feedback."`
	Note          string `json:"note,omitempty" maxLength:"8192" doc:"For the agent: only with code 4, which requires it."`
	Override      string `json:"override,omitempty" maxLength:"8192" doc:"What the agent should do instead: required by code 5."`
	Reason        string `json:"reason,omitempty" maxLength:"8192" doc:"Reason of a denial: code 3."`
	Answer        string `json:"answer,omitempty" maxLength:"8192" doc:"To a question, without a code."`
	Feedback      string `json:"feedback,omitempty" maxLength:"8192" doc:"What the approver needs to know, without a code. This ends the request."`
	PendingSHA256 string `json:"pending_sha256,omitempty" pattern:"^[0-9a-f]{64}$" doc:"Digest of the pending that the approver was shown: the decision is refused for any other."`
}

type decideIn struct {
	OneIn
	Body Verdict
}

// Decided is a valid decision.
type Decided struct {
	ApprovalID string     `json:"approval_id"`
	Status     string     `json:"status" enum:"approved,denied" doc:"The future status. Until the gate has applied the decision the approval is pending."`
	Decision   Choice     `json:"decision"`
	RunBefore  *time.Time `json:"run_before" doc:"An approval not started by then expires."`
}

type decideOut struct{ Body Decided }

func (s *Server) decisions(api huma.API) {
	register(api, op("decide-approval", http.MethodPost, "/v1/approvals/{id}/decision", "Decide a request",
		"The decision is that of the key's owner, who must be an approver of the workspace. It answers once the decision is durable. The first decision wins: later ones get 409, or 410 after expiry.",
		[]string{approval.MayDecide}, http.StatusNotFound, http.StatusConflict, http.StatusGone), s.decide)
}

func (s *Server) decide(ctx context.Context, k *approval.APIKey, in *decideIn) (*decideOut, error) {
	if k.Can(approval.MayRequest) {
		return nil, problem(http.StatusForbidden, "a key with the scope request cannot decide")
	}
	// Such a key may see its whole workspace, so Decide reports a missing request.
	key := approval.Key{Workspace: k.Workspace, ID: bareID(in.ID)}
	a, p := in.Body.input()
	if p != nil {
		return nil, p
	}
	a.Key, a.Via = key, "rest"
	a.By = approval.Person{Channel: "key", ID: k.ID, Name: k.Owner}
	if c := CallerFrom(ctx); c != nil {
		a.By, a.Via = c.Person, c.Via
	}
	// A caller that sends no more still waits for the answer.
	d, err := s.Decider.Decide(context.WithoutCancel(ctx), a)
	if err != nil {
		return nil, s.decideProblem(ctx, key, err)
	}
	out := &decideOut{Decided{
		ApprovalID: idPrefix + key.ID, Status: denied,
		Decision: choiceOf(d),
	}}
	switch d.Verdict {
	case approval.Approved:
		out.Body.Status, out.Body.RunBefore = approved, new(d.RunBefore.UTC())
	case approval.Overridden, approval.Answered:
		out.Body.Status = approved
	case approval.Denied, approval.RequestMore, approval.Cancelled, approval.Expired:
	}
	return out, nil
}

// input is the verdict as the gate takes it. A verdict that is not exactly one of the
// valid forms is refused.
func (v *Verdict) input() (approval.DecisionInput, *Problem) {
	a := approval.DecisionInput{PendingSHA256: v.PendingSHA256, Code: v.Code, Note: v.Note, Override: v.Override, Text: v.Answer}
	given := 0
	for _, text := range []string{v.Note, v.Override, v.Reason, v.Answer, v.Feedback} {
		if text != "" {
			given++
		}
	}
	needs := func(text string) bool { return text != "" && given == 1 }
	ok := false
	switch v.Code {
	case "1":
		a.Verdict, a.Scope, ok = approval.Approved, approval.Once, given == 0
	case "2":
		a.Verdict, a.Scope, ok = approval.Approved, approval.Session, given == 0
	case "3":
		a.Verdict, a.Feedback, ok = approval.Denied, v.Reason, given == 0 || needs(v.Reason)
	case "4":
		a.Verdict, a.Scope, ok = approval.Approved, approval.Once, needs(v.Note)
	case "5":
		a.Verdict, ok = approval.Overridden, needs(v.Override)
	case "6":
		a.Verdict, a.Scope, ok = approval.Approved, approval.Always, given == 0
	case "":
		a.Verdict, ok = approval.Answered, needs(v.Answer)
		if needs(v.Feedback) {
			a.Verdict, a.Feedback, ok = approval.RequestMore, v.Feedback, true
		}
	}
	switch {
	case ok:
		return a, nil
	case given == 0 && (v.Code == "4" || v.Code == "5"):
		return approval.DecisionInput{}, problem(http.StatusUnprocessableEntity, "payload required: note for code 4, override for code 5")
	case given == 0:
		return approval.DecisionInput{}, problem(http.StatusUnprocessableEntity, "empty reply: give a code, an answer or feedback")
	}
	return approval.DecisionInput{}, problem(http.StatusUnprocessableEntity, "invalid code: exactly one text, and only with the code that it belongs to")
}

// decideProblem says why nothing was decided. Only a key that may see the request learns
// that it has ended.
func (s *Server) decideProblem(ctx context.Context, k approval.Key, err error) error {
	ref, refused := errors.AsType[*approval.Refusal](err)
	if !refused {
		return s.internalError("decide request failed: "+k.String(), err)
	}
	switch {
	case errors.Is(ref, approval.ErrNotAuthorized), errors.Is(ref, approval.ErrUnknown):
		return problem(http.StatusNotFound, detailNotFound)
	case errors.Is(ref, approval.ErrNotApplicable):
		return problem(http.StatusUnprocessableEntity, ref.Error())
	}
	st, err := s.Viewer.Story(ctx, k)
	if err == nil && (st.Record != nil && st.Record.Status == approval.StatusExpired ||
		st.Record == nil && st.Pending != nil && !s.Now().Before(st.Pending.ExpiresAt)) {
		return problem(http.StatusGone, detailExpired)
	}
	return problem(http.StatusConflict, detailNotPending)
}
