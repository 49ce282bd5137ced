package gate

import (
	"cmp"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// FactsOf is a request as policy sees it: everything that carries authority
// comes from the settings.
func FactsOf(settings Settings, workspace string, r *approval.Request, now time.Time) approval.Facts {
	return factsFrom(settings, workspace, approval.Origin{}, r, now)
}

func factsFrom(settings Settings, workspace string, from approval.Origin, r *approval.Request, now time.Time) approval.Facts {
	ws, _ := settings.Workspace(workspace)
	ws.Principal = cmp.Or(ws.Principal, from.Principal)
	tool, known := approval.Tool{}, false
	if r.ToolName != "" {
		tool, known = settings.Tool(r.ToolName)
	}
	channel, sender := Bearer(ws)
	return approval.Facts{
		RequestID: r.RequestID, Workspace: workspace, Autonomy: autonomy(ws, r.SessionID),
		Tool: r.ToolName, KnownTool: known, ActionType: actionType(r, tool),
		Capability: tool.Capability, Target: approval.Expand(tool.Target, r.RequestData), Trust: tool.Trust,
		SessionID: r.SessionID, ClientID: from.Client(workspace), Principal: ws.Principal, Channel: channel, Sender: sender,
		Bound: ws.BindsSessions, Cost: tool.Cost, Args: r.RequestData,
		Agent:    approval.Prose{Title: r.Title, Preview: r.Preview, Rationale: r.Rationale},
		Question: r.Type == approval.TypeQuestion, Evidence: approval.EvidenceOf(tool, r, provers(settings)), Now: now,
	}
}

// provers are those that the settings name; without any, every proof is a claim.
func provers(settings Settings) approval.Provers {
	if b, ok := settings.(ProverSource); ok {
		return b.Provers()
	}
	return nil
}

// Bearer is whom a grant made here is bound to: the human that the workspace
// works for or, where it names none, the workspace itself.
func Bearer(ws approval.Workspace) (channel, sender string) {
	if ws.Principal != "" {
		return "principal", ws.Principal
	}
	return "workspace", ws.Name
}

// autonomy is the workspace's; a session may only be lowered.
func autonomy(ws approval.Workspace, session string) string {
	if own, ok := ws.Sessions[session]; ok {
		return approval.LowerLevel(own, ws.Autonomy)
	}
	return ws.Autonomy
}
