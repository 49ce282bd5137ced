package gate

import (
	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/submit"
)

// requestInfo is what every audit entry says about a request, so that the log is
// readable when the documents are gone. The values come from the configuration. Only
// names come from the agent: the name of an unknown tool, the session.
type requestInfo struct {
	tool, capability, target, actionType, clientID, sessionID string

	metadata approval.Raw // for the response; no entry has it
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
		return g.infoFromRequest(s.key, s.origin(), s.request)
	case s.claim != nil:
		return g.infoFromDocuments(s.key, s.claim.ClientID, s.claim.Pending, s.claim.Request)
	case s.record != nil && s.record.Outline != nil:
		o := s.record.Outline
		return requestInfo{tool: o.ToolName, actionType: o.ActionType, clientID: submit.Origin{ClientID: s.record.ClientID}.Client(s.key.Workspace), sessionID: o.SessionID}
	case s.record != nil:
		return g.infoFromDocuments(s.key, s.record.ClientID, s.record.Pending, s.record.Request)
	}
	return requestInfo{}
}

func infoFromPending(p *approval.Pending) requestInfo {
	return requestInfo{p.ToolName, p.Capability, p.Target, p.ActionType, p.ClientID, p.SessionID, p.Metadata}
}

func (g *Gate) infoFromRequest(k approval.Key, from submit.Origin, r *approval.Request) requestInfo {
	var tool approval.Tool
	if r.ToolName != "" {
		tool, _ = g.settings().Tool(r.ToolName)
	}
	return requestInfo{
		tool: r.ToolName, capability: tool.Capability, target: facts.Expand(tool.Target, r.RequestData),
		actionType: actionType(r, tool), clientID: from.Client(k.Workspace), sessionID: r.SessionID, metadata: r.Metadata,
	}
}

// infoFromDocuments reads the pending or the request that a claim or record holds.
// Their MAC covers it.
func (g *Gate) infoFromDocuments(k approval.Key, client string, pending, request approval.Raw) requestInfo {
	if p, err := approval.OpenPending(g.Seal, k, pending); err == nil {
		return infoFromPending(p)
	}
	if r, err := approval.ParseHostRequest(request, k.ID); err == nil {
		return g.infoFromRequest(k, submit.Origin{ClientID: client}, r)
	}
	return requestInfo{}
}

// noteRequestEvent writes an audit entry that is not the request's claim or outcome.
func (g *Gate) noteRequestEvent(s *state, kind event.Kind, reason string) {
	e := g.newEntry(s.key, kind)
	var r *approval.Ruling
	if s.pending != nil {
		r = &s.pending.Ruling
	}
	g.infoFor(s).fill(&e, r)
	e.Reason = reason
	g.Audit.Note(e)
}

// setDecider writes the decider into an entry: the name for readers, the id as proof.
func setDecider(e *event.Entry, d *approval.Decision) {
	e.By, e.ByID, e.Via = d.DecidedBy, d.DecidedByID, d.Via
	if e.ByID == e.By {
		e.ByID = "" // the deadline or the agent
	}
}
