package gate

import (
	"github.com/permesso-dev/permesso/approval"
)

// asked is what every entry about a request says of it, so that the log alone
// can tell its story once the documents are gone. It is the host's view; of an
// agent's own words only names stand there: of an unknown tool, of a session.
type requestInfo struct {
	tool, capability, target, actionType, clientID, sessionID string
}

// fill writes it into an entry. A target that comes from a request in which
// nobody has looked for secrets, or somebody found one, may be that secret: it
// stays out.
func (a requestInfo) fill(e *approval.Entry, r *approval.Ruling) {
	e.Tool, e.Capability = a.tool, a.capability
	if r != nil && r.Rule != notEvaluated && len(r.Secrets) == 0 {
		e.Target = a.target
	}
	e.ClientID, e.SessionID, e.ActionType = a.clientID, a.sessionID, a.actionType
}

// infoFor is what the documents of one look say was asked.
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

// toolLookup finds a tool by its name.
type toolLookup func(name string) (approval.Tool, bool)

func infoFromRequest(find toolLookup, k approval.Key, from approval.Origin, r *approval.Request) requestInfo {
	var tool approval.Tool
	if r.ToolName != "" {
		tool, _ = find(r.ToolName)
	}
	return requestInfo{
		tool: r.ToolName, capability: tool.Capability, target: approval.Expand(tool.Target, r.RequestData),
		actionType: actionType(r, tool), clientID: from.Client(k.Workspace), sessionID: r.SessionID,
	}
}

// infoFromDocuments reads what a claim or a record keeps: the pending where somebody
// was asked, else the request. It was verified as a part of them.
func infoFromDocuments(seal Sealer, find toolLookup, k approval.Key, client string, pending, request approval.Raw) requestInfo {
	if p, err := openPending(seal, k, pending); err == nil {
		return infoFromPending(p)
	}
	if r, err := approval.ParseRequest(request, k.ID); err == nil {
		return infoFromRequest(find, k, approval.Origin{ClientID: client}, r)
	}
	return requestInfo{}
}

// noteRequestEvent notes an event beside the story of a request.
func (g *Gate) noteRequestEvent(s *state, event approval.Event, reason string) {
	g.noteEvent(s.key, event, func(e *approval.Entry) {
		var r *approval.Ruling
		if s.pending != nil {
			r = &s.pending.Ruling
		}
		g.infoFor(s).fill(e, r)
		e.Reason = reason
	})
}

// decider names whoever decided: the name for people, the id for proof.
func setDecider(e *approval.Entry, d *approval.Decision) {
	e.By, e.ByID, e.Via = d.DecidedBy, d.DecidedByID, d.Via
	if e.ByID == e.By {
		e.ByID = "" // the deadline or the agent itself
	}
}
