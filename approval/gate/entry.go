package gate

import (
	"github.com/permesso-dev/permesso/approval"
)

// asked is what every entry about a request says of it, so that the log alone
// can tell its story once the documents are gone. It is the host's view; of an
// agent's own words only names stand there: of an unknown tool, of a session.
type asked struct {
	tool, capability, target, actionType, clientID, sessionID string
}

// fill writes it into an entry. A target that comes from a request in which
// nobody has looked for secrets, or somebody found one, may be that secret: it
// stays out.
func (a asked) fill(e *approval.Entry, r *approval.Ruling) {
	e.Tool, e.Capability = a.tool, a.capability
	if r != nil && r.Rule != unjudged && len(r.Secrets) == 0 {
		e.Target = a.target
	}
	e.ClientID, e.SessionID, e.ActionType = a.clientID, a.sessionID, a.actionType
}

// askedBy is what the documents of one look say was asked.
func (g *Gate) askedBy(s *state) asked {
	switch {
	case s.pending != nil:
		return askedInPending(s.pending)
	case s.request != nil:
		return askedInRequest(g.Settings.Tool, s.key, s.origin(), s.request)
	case s.claim != nil:
		return g.askedInStory(s.key, s.claim.ClientID, s.claim.Pending, s.claim.Request)
	case s.record != nil:
		return g.askedInStory(s.key, s.record.ClientID, s.record.Pending, s.record.Request)
	}
	return asked{}
}

func askedInPending(p *approval.Pending) asked {
	return asked{p.ToolName, p.Capability, p.Target, p.ActionType, p.ClientID, p.SessionID}
}

func (g *Gate) askedInStory(k approval.Key, client string, pending, request approval.Raw) asked {
	return askedInStory(g.Seal, g.Settings.Tool, k, client, pending, request)
}

// toolFinder finds a tool by its name.
type toolFinder func(name string) (approval.Tool, bool)

func askedInRequest(find toolFinder, k approval.Key, from approval.Origin, r *approval.Request) asked {
	var tool approval.Tool
	if r.ToolName != "" {
		tool, _ = find(r.ToolName)
	}
	return asked{
		tool: r.ToolName, capability: tool.Capability, target: approval.Expand(tool.Target, r.RequestData),
		actionType: actionType(r, tool), clientID: from.Client(k.Workspace), sessionID: r.SessionID,
	}
}

// askedInStory reads what a claim or a record keeps: the pending where somebody
// was asked, else the request. It was verified as a part of them.
func askedInStory(seal Sealer, find toolFinder, k approval.Key, client string, pending, request approval.Raw) asked {
	if p, err := openedPending(seal, k, pending); err == nil {
		return askedInPending(p)
	}
	if r, err := approval.ParseRequest(request, k.ID); err == nil {
		return askedInRequest(find, k, approval.Origin{ClientID: client}, r)
	}
	return asked{}
}

// noteAbout notes an event beside the story of a request.
func (g *Gate) noteAbout(s *state, event approval.Event, reason string) {
	g.note(s.key, event, func(e *approval.Entry) {
		var r *approval.Ruling
		if s.pending != nil {
			r = &s.pending.Ruling
		}
		g.askedBy(s).fill(e, r)
		e.Reason = reason
	})
}

// decider names whoever decided: the name for people, the id for proof.
func decider(e *approval.Entry, d *approval.Decision) {
	e.By, e.ByID, e.Via = d.DecidedBy, d.DecidedByID, d.Via
	if e.ByID == e.By {
		e.ByID = "" // the deadline or the agent itself
	}
}
