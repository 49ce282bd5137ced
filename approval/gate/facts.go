package gate

import (
	"cmp"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// FactsOf returns a request as policy sees it. Everything that carries authority
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
	channel, sender := GrantHolder(ws)
	return approval.Facts{
		RequestID: r.RequestID, Workspace: workspace, Autonomy: autonomy(ws, r.SessionID),
		Tool: r.ToolName, KnownTool: known, ActionType: actionType(r, tool),
		Capability: tool.Capability, Target: approval.Expand(tool.Target, r.RequestData), Trust: tool.Trust,
		SessionID: r.SessionID, ClientID: from.Client(workspace), Principal: ws.Principal, Channel: channel, Sender: sender,
		Cost: tool.Cost, Args: r.RequestData,
		Agent:    approval.Prose{Title: r.Title, Preview: r.Preview, Rationale: r.Rationale},
		Question: r.Type == approval.TypeQuestion, Evidence: approval.EvidenceOf(tool, r, settings.Provers()), Now: now,
	}
}

// GrantHolder returns who a grant belongs to: the workspace's principal or, without one,
// the workspace.
func GrantHolder(ws approval.Workspace) (channel, sender string) {
	if ws.Principal != "" {
		return "principal", ws.Principal
	}
	return "workspace", ws.Name
}

// autonomy is the workspace's level. A session may only lower it.
func autonomy(ws approval.Workspace, session string) string {
	if own, ok := ws.Sessions[session]; ok {
		return approval.LowerLevel(own, ws.Autonomy)
	}
	return ws.Autonomy
}
