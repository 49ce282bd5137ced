package receipt

import (
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// IssueReceipt issues the receipt of a claim. d is the person's decision, nil if
// policy allowed the request.
func (s *Signer) IssueReceipt(c *approval.Claim, d *approval.Decision, expires time.Time) (string, error) {
	f := approval.ReceiptFacts{
		Workspace: c.Workspace, RequestID: c.RequestID, RequestSHA256: c.RequestSHA256,
		PendingSHA256: c.PendingSHA256, Tool: c.ToolName, ActionType: c.ActionType, ArgsSHA256: c.ArgsSHA256,
		DecisionType: "auto_approved", Issued: c.ClaimedAt, Expires: expires, Audience: c.Workspace,
	}
	if c.Ruling != nil {
		f.Rule = c.Ruling.Rule
	}
	if d != nil {
		f.DecisionType, f.By, f.Via = "approved", d.DecidedBy, d.Via
	}
	return s.Issue(f)
}
