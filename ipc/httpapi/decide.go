package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/decide"
)

// Verdict is an approver's decision as an API client sends it.
type Verdict struct {
	Code          string `json:"code,omitempty" enum:"1,2,3,4,5,6,7" doc:"1 allow once, 2 allow for this session, 3 deny, 4 allow once with a note, 5 override: do something else, 6 always allow this tool with this target, or exactly this request again. Omit it with answer or feedback."`
	Note          string `json:"note,omitempty" maxLength:"8192" doc:"For the agent: only with code 4, which requires it."`
	Override      string `json:"override,omitempty" maxLength:"8192" doc:"What the agent should do instead: required by code 5."`
	Reason        string `json:"reason,omitempty" maxLength:"8192" doc:"Reason of a denial: code 3."`
	Answer        string `json:"answer,omitempty" maxLength:"8192" doc:"To a question, without a code."`
	Feedback      string `json:"feedback,omitempty" maxLength:"8192" doc:"What the approver needs to know, without a code. This ends the request."`
	PendingSHA256 string `json:"pending_sha256,omitempty" pattern:"^[0-9a-f]{64}$" doc:"Digest of the pending that the approver was shown: the decision is refused for any other. Without it the decision is about the pending as it is now."`
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

func (s *Server) decisions(api huma.API) {
	register(api, op("decide-approval", http.MethodPost, "/v1/approvals/{id}/decision", "Decide a request",
		"The decision is that of the key's owner, who must be an approver of the workspace. It answers once the decision is durable. The first decision wins: later ones get 409, or 410 after expiry. 409 also says that the pending changed since it was shown.",
		[]string{apikey.MayDecide}, http.StatusNotFound, http.StatusConflict, http.StatusGone), s.decide)
}

func (s *Server) decide(ctx context.Context, k *apikey.Key, in *decideIn) (*Decided, error) {
	if k.Can(apikey.MayRequest) {
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
	out := &Decided{ApprovalID: idPrefix + key.ID, Status: denied, Decision: choiceOf(d)}
	switch d.Verdict {
	case approval.Approved:
		out.Status, out.RunBefore = approved, new(d.RunBefore.UTC())
	case approval.Overridden, approval.Answered:
		out.Status = approved
	case approval.Denied, approval.RequestMore, approval.Cancelled, approval.Expired:
	}
	return out, nil
}

// input is the verdict as the gate takes it. A verdict that is not exactly one of the
// valid forms is refused.
func (v *Verdict) input() (decide.Input, *Problem) {
	given := 0
	for _, text := range []string{v.Note, v.Override, v.Reason, v.Answer, v.Feedback} {
		if text != "" {
			given++
		}
	}
	a := decide.ByCode(v.Code, cmp.Or(v.Note, v.Override, v.Reason))
	switch {
	case v.Code != "":
	case v.Answer != "":
		a.Verdict, a.Text = approval.Answered, v.Answer
	case v.Feedback != "":
		a.Verdict, a.Feedback = approval.RequestMore, v.Feedback
	}
	a.PendingSHA256 = v.PendingSHA256
	needsText := slices.Contains([]string{"", "4", "5", approval.CodeEdit}, v.Code)
	taken := a.Note == v.Note && a.Override == v.Override && a.Text == v.Answer && a.Feedback == cmp.Or(v.Reason, v.Feedback)
	ok := a.Verdict != "" && taken && given <= 1 && (given == 1 || !needsText)
	switch {
	case ok:
		return a, nil
	case given == 0 && slices.Contains([]string{"4", "5", approval.CodeEdit}, v.Code):
		return decide.Input{}, problem(http.StatusUnprocessableEntity, "payload required: note for code 4, override for codes 5 and 7")
	case given == 0:
		return decide.Input{}, problem(http.StatusUnprocessableEntity, "empty reply: give a code, an answer or feedback")
	}
	return decide.Input{}, problem(http.StatusUnprocessableEntity, "invalid code: exactly one text, and only with the code that it belongs to")
}

// decideProblem says why nothing was decided. Only a key that may see the request learns
// that it has ended.
func (s *Server) decideProblem(ctx context.Context, k approval.Key, err error) error {
	ref, refused := errors.AsType[*decide.Refusal](err)
	if !refused {
		return s.internalError("decide request failed: "+k.String(), err)
	}
	switch {
	case errors.Is(ref, decide.ErrNotAuthorized), errors.Is(ref, decide.ErrUnknown):
		return problem(http.StatusNotFound, detailNotFound)
	case errors.Is(ref, decide.ErrNotApplicable):
		return problem(http.StatusUnprocessableEntity, ref.Error())
	case errors.Is(ref, decide.ErrChanged):
		return problem(http.StatusConflict, detailChanged)
	}
	st, err := s.Viewer.Story(ctx, k)
	if err == nil && (st.Record != nil && st.Record.Status == approval.StatusExpired ||
		st.Record == nil && st.Pending != nil && !s.Now().Before(st.Pending.ExpiresAt)) {
		return problem(http.StatusGone, detailExpired)
	}
	return problem(http.StatusConflict, detailNotPending)
}
