package home

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// earlierVersion is who revokes the grants of version 1.
const earlierVersion = "permesso: of an earlier version"

// revokeFirst revokes the grants of version 1, each once, and audits it. They were wider
// than what the person was told.
func (m *Memory) revokeFirst(now time.Time) error {
	for _, g := range m.first {
		if g.RevokedAt.IsZero() {
			if g.Live(now) {
				m.log.Warn().Str("grant", g.ID).Str("ws", g.Workspace).Str("by", g.By).Str("anew", m.home.giveAnew(g)).
					Msg("grant of an earlier version revoked")
			}
			g.RevokedAt, g.RevokedBy = now.UTC(), earlierVersion
			body, err := g.Encode()
			if err != nil {
				return err
			}
			if err := m.home.sealGrant(m.Keys, g.ID, body, store.Replace); err != nil {
				return err
			}
		}
		if err := m.AuditOnce(event.Entry{
			Event: event.Revoked, Workspace: g.Workspace, Grant: g.ID, By: g.RevokedBy, Reason: g.Reason, Capability: g.Capability,
			Target: g.Target, ActionType: g.ActionType, ClientID: g.ClientID, SessionID: g.SessionID, Detail: g.Kind,
		}); err != nil {
			return err
		}
	}
	m.first = nil
	return nil
}

// sealGrant writes the body of a grant; how permits replacing an older state.
func (h *Home) sealGrant(k *Keys, id string, body []byte, how store.Mode) error {
	at := grant.Key(id)
	return h.Store.Commit(context.Background(), store.Op{Doc: approval.DocGrant, Key: at, Bytes: k.Seal.Seal(approval.DocGrant, at, body), Mode: how})
}

// giveAnew says how to give what a grant of version 1 allowed: commands, separated by a
// semicolon.
func (h *Home) giveAnew(g *grant.First) string {
	var commands []string
	add := func(flags ...string) {
		commands = append(commands, "permesso grant add --workspace "+shellWord(g.Workspace)+" "+strings.Join(flags, " "))
	}
	tools := h.Current().Tools
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		tool := tools[name]
		c, has := facts.CapabilityNamed(tool.Capability)
		targeted := tool.Target != "" && (!has || c.TargetKind != "none")
		switch {
		case has && c.Default == facts.AskAlways:
		case g.Kind == grant.FirstTarget && tool.Capability == g.Capability && targeted:
			add("--tool", name, "--target", shellWord(g.Target))
		case g.Kind == grant.FirstTarget && tool.Capability == g.Capability,
			g.Kind == grant.FirstRule && g.ClientID == submit.FolderClient(g.Workspace) && tool.ActionType == g.ActionType && !targeted:
			add("--tool", name)
		}
	}
	if g.Kind == grant.FirstRule && g.ActionType != "exec_cmd" {
		add("--client", shellWord(g.ClientID), "--action-type", shellWord(g.ActionType))
	}
	if len(commands) == 0 {
		return "an approver gives it with the next request"
	}
	return strings.Join(commands, "; ")
}

// shellWord quotes a text for a POSIX shell.
func shellWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
