package chat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/submit"
)

// grantMessages are the pieces of the one sentence that says what a grant allows.
type grantMessages struct {
	Tool, Target, Host, Path, Glob          string
	Again, SameAs, Command, Action, AnyExec string
	Program, SameProgram                    string
	Client                                  string
	Session, Always, SessionUntil, Until    string
	Hidden, Rule                            string
	Asks                                    map[string]string // what asks, by the ruling's rule
}

// Offer is the sentence of what code 2 or 6 would remember: "Always: x_post to
// x.com/ricardo in personal, 90 days". It is "" if the scope is not offered, or not here:
// no mask hides a part of what a person would allow.
func (s Style) Offer(p *approval.Pending, scope approval.Scope) string {
	return s.renderer(p).offer(scope)
}

// CommandPattern is the command pattern that p offers to remember, "" if it offers none.
func CommandPattern(p *approval.Pending) string {
	if o, ok := p.Offer(approval.Commands); ok {
		return facts.JoinWords(o.Terms.Words)
	}
	return ""
}

// OfferAs is Offer in other forms, for a session and for a number of days.
func (s Style) OfferAs(p *approval.Pending, scope approval.Scope, session, always string) string {
	r := s.renderer(p)
	w := *r.messages
	w.Grants.Session, w.Grants.Always = session, always
	r.messages = &w
	return r.offer(scope)
}

func (r renderer) offer(scope approval.Scope) string {
	o, ok := r.p.Offer(scope)
	if !ok || r.hides(&o.Terms) {
		return ""
	}
	r.Redact = nil // no value of it is masked on the card, but a part of one could look like a secret
	return r.given(&o.Terms, o.Hours)
}

// whyNot says why a scope is not offered here, "" if it is.
func (r renderer) whyNot(scope approval.Scope) string {
	if why := grant.WhyNot(r.p, scope); !why.IsZero() {
		return r.reason(why)
	}
	if o, _ := r.p.Offer(scope); r.hides(&o.Terms) {
		return Format(r.Grants.Hidden, "id", Escape(r.p.ShortID))
	}
	return ""
}

// noRuleLifts are the reasons that a proposed rule leaves: another rule, a secret, a limit.
var noRuleLifts = strings.Fields("rule_ask secret rate_ask rate_ask_bare cost_session_ask cost_day_ask")

// Proposable says whether a rule might allow p: its tool is configured with these arguments,
// and nothing asked that no rule lifts.
func Proposable(p *approval.Pending) bool {
	return p.Type != approval.TypeQuestion && p.ToolSHA256 != "" && !p.Runs.Unlisted && !slices.ContainsFunc(p.Ruling.Reasons, func(x approval.Reason) bool {
		return slices.Contains(noRuleLifts, x.Code)
	})
}

// ProposeRule names the command that proposes a rule for p, on this host, else it is "". A
// rule and what Always gives are the two ways to be asked less.
func (s Style) ProposeRule(p *approval.Pending) string {
	if !s.Local || !Proposable(p) {
		return ""
	}
	return Format(catalog(s.Language).Grants.Rule, "id", Escape(p.ShortID))
}

// hides reports whether a card masks or withholds a value of these terms.
func (r renderer) hides(t *approval.Terms) bool {
	elements, _, _ := textsOf(approval.Raw(t.Target))
	path, _ := literalPath(t.Target)
	values := slices.Concat(elements, t.Words, []string{t.Target, path, t.ActionType, facts.JoinWords(t.Words)})
	return slices.ContainsFunc(values, func(s string) bool { return len(r.secrets(s)) > 0 })
}

// given is the sentence of what an approval gives for so many hours.
func (r renderer) given(t *approval.Terms, hours int) string {
	what := r.grantTerms(t, r.Grants.Again, "")
	if t.SessionID != "" {
		return Format(r.Grants.Session, "what", what)
	}
	return Format(r.Grants.Always, "what", what, "days", strconv.Itoa(hours/24))
}

// Given is the sentence of what an approval of p gave.
func (s Style) Given(p *approval.Pending, g *grant.Grant) string {
	r := s.renderer(p)
	r.anySecret = true
	return r.given(&g.Terms, int(g.ExpiresAt.Sub(g.CreatedAt).Hours()))
}

// Grant is the sentence of a grant, with its end.
func (s Style) Grant(g *grant.Grant) string {
	r := s.renderer(&approval.Pending{})
	r.anySecret = true
	what, until := r.grantTerms(&g.Terms, r.Grants.SameAs, g.ID), g.ExpiresAt.UTC().Format(time.DateOnly)
	if g.SessionID != "" {
		return Format(r.Grants.SessionUntil, "session", r.word(g.SessionID), "what", what, "until", until)
	}
	return Format(r.Grants.Until, "what", what, "until", until)
}

// grantTerms names all that the terms of a grant name. again is the form for the same
// request, which has this id.
func (r renderer) grantTerms(t *approval.Terms, again, id string) string {
	form, target := r.Grants.Target, r.targetList(t.Target)
	path, literal := literalPath(t.Target)
	switch {
	case t.Form == grant.Tool:
		form = r.Grants.Tool
	case t.Form == approval.ActionProgram && again == r.Grants.SameAs:
		form = r.Grants.SameProgram
	case t.Form == approval.ActionProgram:
		form = r.Grants.Program
	case t.Form == grant.Again:
		form = again
	case t.Form == grant.Command:
		form = r.Grants.Command
	case t.Form == grant.Action && t.ActionType == "exec_cmd":
		form = r.Grants.AnyExec
	case t.Form == grant.Action:
		form = r.Grants.Action
	case t.TargetKind == "host":
		form, target = r.Grants.Host, r.word(t.Target)
	case t.TargetKind == "path_glob" && literal:
		form, target = r.Grants.Path, r.pathText(path)
	case t.TargetKind == "path_glob":
		form, target = r.Grants.Glob, r.word(t.Target)
	}
	tool, workspace := t.Tool, r.word(t.Workspace)
	if tool == "" {
		tool = t.ActionType
	}
	if t.ClientID != submit.FolderClient(t.Workspace) {
		workspace = Format(r.Grants.Client, "workspace", workspace, "client", r.word(t.ClientID))
	}
	return Format(form, "tool", r.word(tool), "target", target, "words", oneBlank(r.quote(facts.JoinWords(t.Words))),
		"workspace", workspace, "id", Escape(approval.ShortID(id)))
}

// targetList is a target that is compared as it is. The elements of a list of texts stand in
// brackets, which no other target has outside of quotation marks.
func (r renderer) targetList(target string) string {
	texts, list, ok := textsOf(approval.Raw(target))
	same, err := json.Marshal(texts)
	if !ok || !list || len(texts) == 0 || err != nil || string(same) != target {
		return r.word(target)
	}
	for i, s := range texts {
		texts[i] = r.word(s)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// pathText is a path that a grant names literally: in quotation marks if it looks like a glob.
func (r renderer) pathText(path string) string {
	if strings.ContainsAny(path, "*?{}") {
		return oneBlank(r.quote(path))
	}
	return r.word(path)
}

// literalPath is the one path that a glob matches. literal is false if it may match others.
func literalPath(glob string) (path string, literal bool) {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '\\' && i+1 < len(glob):
			i++
			b.WriteByte(glob[i])
		case strings.IndexByte(`*?[]{}\`, c) >= 0:
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// word is a value in a sentence: one word, or in quotation marks.
func (r renderer) word(s string) string { return oneBlank(r.plainOrQuote(s)) }

// oneBlank counts the spaces of each run: some surfaces show a run as one space.
func oneBlank(escaped string) string {
	return strings.ReplaceAll(escaped, "  ", blanks(2, true))
}
