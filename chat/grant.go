package chat

import (
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
)

// grantMessages are the pieces of the one sentence that says what a grant allows.
type grantMessages struct {
	Tool, Target, Path, Again, Command, Action, AnyExec string
	Session, Always, Until                              string
}

// Offer is the sentence of what code 2 or 6 would remember: "Always: x_post to
// x.com/ricardo in personal, 90 days". It is "" if the scope is not offered.
func (s Style) Offer(p *approval.Pending, scope approval.Scope) string {
	o, ok := p.Offer(scope)
	if !ok {
		return ""
	}
	r := s.renderer(p)
	if scope == approval.Session {
		return Format(r.Grants.Session, "what", r.grantTerms(o.Terms))
	}
	return Format(r.Grants.Always, "what", r.grantTerms(o.Terms), "days", strconv.Itoa(o.Hours/24))
}

// Grant is the sentence of a grant, with its end.
func (s Style) Grant(g *grant.Grant) string {
	r := s.renderer(&approval.Pending{})
	r.anySecret = true
	what := r.grantTerms(g.Terms)
	if g.SessionID != "" {
		return Format(r.Grants.Session, "what", what)
	}
	return Format(r.Grants.Until, "what", what, "until", g.ExpiresAt.UTC().Format(time.DateOnly))
}

// grantTerms names all that the terms of a grant name.
func (r renderer) grantTerms(t approval.Terms) string {
	form := map[string]string{
		grant.Tool: r.Grants.Tool, grant.Target: r.Grants.Target, grant.Again: r.Grants.Again,
		grant.Command: r.Grants.Command, grant.Action: r.Grants.Action,
	}[t.Form]
	switch {
	case t.Form == grant.Target && t.TargetKind == "path_glob":
		form = r.Grants.Path
	case t.Form == grant.Action && t.ActionType == "exec_cmd":
		form = r.Grants.AnyExec
	}
	shown := t.Target
	if t.TargetKind == "host" {
		shown = strings.TrimPrefix(shown, "https://")
	}
	tool := t.Tool
	if tool == "" {
		tool = t.ActionType
	}
	return Format(form, "tool", r.text(tool), "target", r.text(shown), "words", r.text(facts.JoinWords(t.Words)),
		"workspace", r.text(t.Workspace))
}
