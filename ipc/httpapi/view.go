package httpapi

import (
	"errors"

	"github.com/danielgtaylor/huma/v2"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/ipc/service"
)

// The four statuses.
const (
	pending  = "pending"
	approved = "approved"
	denied   = "denied"
	expired  = "expired"
)

// Values of execution.
const (
	running     = "running"
	done        = "done"
	failed      = "failed"
	interrupted = "interrupted"
	none        = "none"
)

// Choice is a decision.
type Choice struct {
	Code     *string `json:"code" nullable:"true" doc:"1 to 6; null if none was used."`
	Note     *string `json:"note" doc:"A note of the approver: code 4."`
	Override *string `json:"override" doc:"What to do instead: code 5. Nothing ran."`
	By       *string `json:"by" doc:"The person who decided; null if a rule did."`
	Via      *string `json:"via" doc:"The channel: telegram, email, terminal, cli, rest …"`
}

// choice is a Choice that may be null.
type choice struct{ *Choice }

// Schema implements huma.SchemaProvider.
func (choice) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "The decision; null before there is one.",
		OneOf:       []*huma.Schema{r.Schema(typeOf[Choice](), true, "Choice"), {Type: "null"}},
	}
}

// MarshalJSON implements json.Marshaler.
func (c choice) MarshalJSON() ([]byte, error) { return marshal(c.Choice) }

// UnmarshalJSON implements json.Unmarshaler.
func (c *choice) UnmarshalJSON(b []byte) error { return codec.Decode(b, &c.Choice) }

// Approval is a request as a client sees it.
type Approval struct {
	ApprovalID       string            `json:"approval_id" pattern:"^appr_([0-9a-f]{16,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$" example:"appr_5f0c7be3a1d24b6c9e8f00112233aabb"`
	Status           string            `json:"status" enum:"pending,approved,denied,expired"`
	Outcome          *string           `json:"outcome" enum:"approved,auto_approved,denied,auto_rejected,expired,cancelled,request_more,overridden,answered,failed,interrupted,malformed" doc:"The exact end; null before the end."`
	Execution        *string           `json:"execution" enum:"running,done,failed,interrupted,none,agent" doc:"Result of the action; null while the request is pending. agent: the client itself executes it, and the gate has run nothing."`
	Auto             bool              `json:"auto" doc:"No person was asked."`
	ExpiresAt        *int64            `json:"expires_at" doc:"Unix seconds; null if no person was asked."`
	Approvers        []string          `json:"approvers" nullable:"false" doc:"The names of those who may decide, while it is pending."`
	Decision         choice            `json:"decision"`
	SessionID        *string           `json:"session_id"`
	ActionType       *string           `json:"action_type"`
	ToolName         *string           `json:"tool_name"`
	PendingSHA256    *string           `json:"pending_sha256" doc:"Digest of the pending, to send with a decision: it then counts only for exactly this pending. Null once it is started or ended."`
	Result           Anything          `json:"result"`
	Error            *string           `json:"error"`
	Feedback         *string           `json:"feedback" doc:"The approver's reason for a denial, or question."`
	RequiredResponse *string           `json:"required_response"`
	Receipt          *string           `json:"receipt" doc:"The signed note of an approval."`
	Metadata         Anything          `json:"metadata" doc:"The request's, unchanged."`
	Log              *approval.LogHead `json:"log,omitempty" doc:"The newest checkpoint of the audit log when the request had ended."`
	AllowRuleApplied *string           `json:"allow_rule_applied" doc:"The id of the grant that allowed it; null if none did."`
}

const idPrefix = "appr_"

// View is a request in the form of the API.
func (s *Server) View(k approval.Key, st read.Story) (*Approval, error) {
	a := newApproval(k)
	switch {
	case st.Record != nil:
		rec := st.Record
		a.setOrigin(k, st.Pending, rec.Request, rec.Ruling)
		a.setEnd(rec.Status)
		resp, err := approval.ParseResponse(rec.Response)
		if err != nil {
			return nil, errors.New("the record holds no response")
		}
		if o := rec.Outline; o != nil {
			a.SessionID, a.ActionType, a.ToolName = nonEmpty(o.SessionID), nonEmpty(o.ActionType), nonEmpty(o.ToolName)
			a.Metadata = anything(resp.Metadata)
		}
		a.Result, a.Error, a.Receipt, a.Log = anything(resp.Result), resp.Error, resp.Receipt, resp.Log
		a.Feedback, a.RequiredResponse = resp.Feedback, resp.RequiredResponse
		if resp.Execution != "" {
			a.Execution = &resp.Execution
		}
		if d := resp.Decision; !d.Auto {
			a.Decision.Choice = &Choice{d.Code, d.Note, d.Override, d.By, d.Via}
		}
		s.setGrantCode(a, k.Workspace)
	case st.Claim != nil:
		c := st.Claim
		a.setOrigin(k, st.Pending, c.Request, c.Ruling)
		a.ActionType, a.ToolName = nonEmpty(c.ActionType), nonEmpty(c.ToolName)
		a.Status, a.Execution, a.Receipt = approved, new(running), nonEmpty(c.Receipt)
		a.setDecision(st.Decision)
		s.setGrantCode(a, k.Workspace)
	default:
		a.setPending(st.Pending)
		a.PendingSHA256 = nonEmpty(st.SHA256)
		if info, ok := s.Settings.WorkspaceInfo(k.Workspace); ok && info.Approvers != nil {
			a.Approvers = info.Approvers
		}
	}
	return a, nil
}

// fromPending is a request that waits for a decision.
func fromPending(w approval.StoredPending) *Approval {
	a := newApproval(w.Key())
	a.setPending(w.Pending)
	a.PendingSHA256 = nonEmpty(w.SHA256)
	return a
}

func newApproval(k approval.Key) *Approval {
	return &Approval{ApprovalID: idPrefix + k.ID, Status: pending, Approvers: []string{}, Result: anything(nil), Metadata: anything(nil)}
}

func (a *Approval) setPending(p *approval.Pending) {
	a.ExpiresAt = new(p.ExpiresAt.Unix())
	a.SessionID, a.ActionType, a.ToolName = nonEmpty(p.SessionID), nonEmpty(p.ActionType), nonEmpty(p.ToolName)
	a.Metadata = anything(p.Metadata)
}

// setOrigin sets what was asked, from the pending or, if no person was asked, the request.
func (a *Approval) setOrigin(k approval.Key, p *approval.Pending, request approval.Raw, r *approval.Ruling) {
	if p != nil {
		a.setPending(p)
		return
	}
	a.Auto = true
	if q, err := approval.ParseHostRequest(request, k.ID); err == nil {
		a.SessionID, a.ActionType, a.ToolName = nonEmpty(q.SessionID), nonEmpty(q.ActionType), nonEmpty(q.ToolName)
		a.Metadata = anything(q.Metadata)
		if q.Program != "" {
			a.ActionType = new(approval.ActionProgram)
		}
	}
	if r != nil {
		a.AllowRuleApplied = nonEmpty(r.Grant)
	}
}

// setEnd sets how a request ended.
func (a *Approval) setEnd(st approval.Status) {
	status, execution := outcome(st)
	a.Status, a.Execution, a.Outcome = status, new(execution), new(string(st))
}

// setGrantCode sets the code of the decision that created the grant.
func (s *Server) setGrantCode(a *Approval, workspace string) {
	if a.AllowRuleApplied == nil || s.Grants == nil || a.Decision.Choice != nil {
		return
	}
	for _, c := range s.Grants.GrantsIn(workspace) {
		if c.ID != *a.AllowRuleApplied {
			continue
		}
		code := "6"
		if kindOf(&c.Grant) == kindSession {
			code = "2"
		}
		a.Decision.Choice = &Choice{Code: &code}
	}
}

func (a *Approval) setDecision(d *approval.Decision) {
	if d != nil {
		a.Decision.Choice = new(choiceOf(d))
	}
}

func choiceOf(d *approval.Decision) Choice {
	return Choice{nonEmpty(d.Code), nonEmpty(d.Note), nonEmpty(d.Override), nonEmpty(d.DecidedBy), nonEmpty(d.Via)}
}

// outcome maps an exact status to the four statuses. An unknown status is denied.
func outcome(st approval.Status) (status, execution string) {
	switch st {
	case approval.StatusApproved, approval.StatusAutoApproved:
		return approved, done
	case approval.StatusFailed:
		return approved, failed
	case approval.StatusInterrupted:
		return approved, interrupted
	case approval.StatusOverridden, approval.StatusAnswered:
		return approved, none
	case approval.StatusExpired:
		return expired, none
	case approval.StatusDenied, approval.StatusAutoRejected, approval.StatusCancelled, approval.StatusRequestMore, approval.StatusMalformed:
	}
	return denied, none
}

// clientOf is the client that holds a key.
func (s *Server) clientOf(k *apikey.Key) *service.Client {
	return &service.Client{
		Workspace: k.Workspace, ID: k.ClientID(), Owner: k.Owner, Secret: k.Hash, All: !k.Can(apikey.MayRequest),
		StillValid: func() bool { return s.stillValid(k) },
	}
}

// nonEmpty is nil for the zero value.
func nonEmpty[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
