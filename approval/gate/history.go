package gate

import (
	"context"
	"errors"

	"github.com/permesso-dev/permesso/approval"
)

// completed marks an entry that was not written when the event happened.
const completed = "completed from the record after a crash"

// History derives the audit entries that the log must hold from the documents.
type History struct {
	Store Store
	Seal  sealer
	Words Words                                   // nil: the technical form of reasons
	Tool  func(name string) (approval.Tool, bool) // looks a tool up by name
}

// RecordEntries returns the audit entries of a record: of its claim, if there was
// one, and of its outcome.
func (h *History) RecordEntries(rec *approval.Record) []approval.Entry {
	k := approval.Key{Workspace: rec.Workspace, ID: rec.RequestID}
	d, _ := approval.OpenDecision(h.Seal, k, rec.Decision)
	about := infoFromDocuments(h.Seal, h.Tool, k, rec.ClientID, rec.Pending, rec.Request)
	var all []approval.Entry
	end := approval.Entry{
		Time: rec.EndedAt, Event: eventOf[rec.Status], Workspace: k.Workspace, RequestID: k.ID, Detail: completed,
	}
	about.fill(&end, rec.Ruling)
	if t, ok := h.Tool(about.tool); end.Event == approval.EventExecuted && (!ok || !t.Runs()) {
		end.Event = approval.EventReleased
	}
	if r, err := approval.ParseResponse(rec.Response); err == nil && r.Error != nil {
		end.Reason = *r.Error
	}
	if rec.Ruling != nil {
		end.Rule = rec.Ruling.Rule
	}
	if d != nil {
		setDecider(&end, d)
	}
	if rec.Receipt != "" {
		r := run{key: k, decision: d, info: about, claim: &approval.Claim{ToolName: about.tool, Receipt: rec.Receipt, Ruling: rec.Ruling}}
		e := r.entry(rec.StartedAt, h.Words)
		e.Detail = completed
		all = append(all, e)
		end.ReceiptSHA256 = e.ReceiptSHA256
	}
	return append(all, end)
}

// ClaimEntries returns the audit entries of claims without a record.
func (h *History) ClaimEntries(k approval.Key) ([]approval.Entry, error) {
	var all []approval.Entry
	for _, doc := range []approval.Doc{approval.DocClaim, approval.DocAgain} {
		b, err := h.Store.Read(context.Background(), doc, k)
		if errors.Is(err, approval.ErrMissing) {
			continue
		}
		if err != nil {
			return nil, err
		}
		body, err := h.Seal.Open(doc, k, b)
		if err != nil {
			return nil, err
		}
		c, err := approval.ParseClaim(body, k)
		if err != nil {
			return nil, err
		}
		d, _ := approval.OpenDecision(h.Seal, k, c.Decision)
		r := run{key: k, claim: c, decision: d, info: infoFromDocuments(h.Seal, h.Tool, k, c.ClientID, c.Pending, c.Request)}
		e := r.entry(c.ClaimedAt, h.Words)
		e.Detail = completed
		all = append(all, e)
	}
	return all, nil
}
