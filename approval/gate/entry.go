package gate

import (
	"cmp"
	"context"
	"errors"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// requestInfo is what every audit entry says about a request, so that the log is
// readable when the documents are gone. The values come from the configuration. Only
// names come from the agent: the name of an unknown tool, the session.
type requestInfo struct {
	tool, capability, target, actionType, clientID, sessionID string
}

// fill writes the info into an entry. It leaves the target out if the request was not
// scanned for secrets or a secret was found: the target may be that secret.
func (a requestInfo) fill(e *event.Entry, r *approval.Ruling) {
	e.Tool, e.Capability = a.tool, a.capability
	if r != nil && r.Rule != NotEvaluated && len(r.Secrets) == 0 {
		e.Target = a.target
	}
	e.ClientID, e.SessionID, e.ActionType = a.clientID, a.sessionID, a.actionType
}

// fillEnd writes what a record and its decision say into the entry of an outcome.
func (a requestInfo) fillEnd(e *event.Entry, rec *approval.Record, d *approval.Decision) {
	a.fill(e, rec.Ruling)
	if rec.Ruling != nil {
		e.Rule = rec.Ruling.Rule
	}
	if d != nil {
		setDecider(e, d)
	}
	if rec.Receipt != "" {
		e.ReceiptSHA256 = approval.Digest([]byte(rec.Receipt))
	}
}

func (g *Gate) infoFor(s *state) requestInfo {
	switch {
	case s.pending != nil:
		return infoFromPending(s.pending)
	case s.request != nil:
		return infoFromRequest(g.Settings.Tool, s.key, s.origin(), s.request)
	case s.claim != nil:
		return g.infoFromDocuments(s.key, s.claim.ClientID, s.claim.Pending, s.claim.Request)
	case s.record != nil:
		return g.infoFromDocuments(s.key, s.record.ClientID, s.record.Pending, s.record.Request)
	}
	return requestInfo{}
}

func infoFromPending(p *approval.Pending) requestInfo {
	return requestInfo{p.ToolName, p.Capability, p.Target, p.ActionType, p.ClientID, p.SessionID}
}

func (g *Gate) infoFromDocuments(k approval.Key, client string, pending, request approval.Raw) requestInfo {
	return infoFromDocuments(g.Seal, g.Settings.Tool, k, client, pending, request)
}

type toolLookup func(name string) (approval.Tool, bool)

func infoFromRequest(find toolLookup, k approval.Key, from submit.Origin, r *approval.Request) requestInfo {
	var tool approval.Tool
	if r.ToolName != "" {
		tool, _ = find(r.ToolName)
	}
	return requestInfo{
		tool: r.ToolName, capability: tool.Capability, target: facts.Expand(tool.Target, r.RequestData),
		actionType: actionType(r, tool), clientID: from.Client(k.Workspace), sessionID: r.SessionID,
	}
}

// infoFromDocuments reads the pending or the request that a claim or record holds.
// Their MAC covers it.
func infoFromDocuments(seal sealer, find toolLookup, k approval.Key, client string, pending, request approval.Raw) requestInfo {
	if p, err := approval.OpenPending(seal, k, pending); err == nil {
		return infoFromPending(p)
	}
	if r, err := approval.ParseRequest(request, k.ID); err == nil {
		return infoFromRequest(find, k, submit.Origin{ClientID: client}, r)
	}
	return requestInfo{}
}

// noteRequestEvent writes an audit entry that is not the request's claim or outcome.
func (g *Gate) noteRequestEvent(s *state, kind event.Kind, reason string) {
	g.noteEvent(s.key, kind, func(e *event.Entry) {
		var r *approval.Ruling
		if s.pending != nil {
			r = &s.pending.Ruling
		}
		g.infoFor(s).fill(e, r)
		e.Reason = reason
	})
}

// setDecider writes the decider into an entry: the name for readers, the id as proof.
func setDecider(e *event.Entry, d *approval.Decision) {
	e.By, e.ByID, e.Via = d.DecidedBy, d.DecidedByID, d.Via
	if e.ByID == e.By {
		e.ByID = "" // the deadline or the agent
	}
}

// completed marks an entry that was not written when the event happened.
const completed = "completed from the record after a crash"

// History derives the audit entries that the log must hold from the documents.
type History struct {
	Store store.Store
	Seal  sealer
	Words Words                                   // nil: the technical form of reasons
	Tool  func(name string) (approval.Tool, bool) // looks a tool up by name
}

// RecordEntries returns the audit entries of a record: of its claim, if there was
// one, and of its outcome.
func (h *History) RecordEntries(rec *approval.Record) []event.Entry {
	k := approval.Key{Workspace: rec.Workspace, ID: rec.RequestID}
	d, _ := approval.OpenDecision(h.Seal, k, rec.Decision)
	about := infoFromDocuments(h.Seal, h.Tool, k, rec.ClientID, rec.Pending, rec.Request)
	var all []event.Entry
	end := event.Entry{
		Time: rec.EndedAt, Event: eventOf[rec.Status], Workspace: k.Workspace, RequestID: k.ID, Detail: completed,
	}
	about.fillEnd(&end, rec, d)
	if t, ok := h.Tool(about.tool); end.Event == event.Executed && (!ok || !t.Runs()) {
		end.Event = event.Released
	}
	if r, err := approval.ParseResponse(rec.Response); err == nil && r.Error != nil {
		end.Reason = cmp.Or(unfitCode(rec.Ruling), *r.Error)
	}
	if rec.Receipt != "" {
		r := run{key: k, decision: d, info: about, claim: &approval.Claim{ToolName: about.tool, Receipt: rec.Receipt, Ruling: rec.Ruling}}
		e := r.entry(rec.StartedAt, h.Words)
		e.Detail = completed
		all = append(all, e)
	}
	return append(all, end)
}

// ClaimEntries returns the audit entries of claims without a record.
func (h *History) ClaimEntries(k approval.Key) ([]event.Entry, error) {
	var all []event.Entry
	for _, doc := range []approval.Doc{approval.DocClaim, approval.DocAgain} {
		b, err := h.Store.Read(context.Background(), doc, k)
		if errors.Is(err, store.ErrMissing) {
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
