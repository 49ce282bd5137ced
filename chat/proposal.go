package chat

import (
	"strconv"

	"github.com/permesso-dev/permesso/approval"
)

// Proposal is a rule that would allow a request, and nothing that differs from it.
type Proposal struct {
	Rule    string            `json:"rule,omitempty"`    // the [[rules]] lines; "": no rule allows it
	Despite []string          `json:"despite,omitempty"` // what the rule lifts besides the table: trifecta
	Would   int               `json:"would"`             // this many would not have been asked
	Of      int               `json:"of"`                // of the client's last requests that were asked
	WhyNot  []approval.Reason `json:"why_not,omitempty"` // without a rule
}

// proposalMessages are the sentences about a proposed rule.
type proposalMessages struct {
	Would, First, Despite, None string
}

// WhyNot says why an approval of p cannot remember a scope here, "" if it can.
func (s Style) WhyNot(p *approval.Pending, scope approval.Scope) string {
	return s.renderer(p).whyNot(scope)
}

// OfferCount says how many of the client's last requests an offer would have allowed, "" if
// the scope is not offered or nothing was asked before.
func (s Style) OfferCount(p *approval.Pending, scope approval.Scope) string {
	o, ok := p.Offer(scope)
	if !ok || o.Of == 0 {
		return ""
	}
	return s.would(o.Would, o.Of)
}

func (s Style) would(n, of int) string {
	return Format(catalog(s.Language).Proposal.Would, "n", strconv.Itoa(n), "of", strconv.Itoa(of))
}

// Proposal says what a proposed rule for p would have allowed, or why there is none.
func (s Style) Proposal(p *approval.Pending, x Proposal) (lines []string) {
	m := catalog(s.Language).Proposal
	switch {
	case x.Rule == "":
		return append([]string{m.None}, s.Reasons(p, x.WhyNot)...)
	case x.Of == 0:
		lines = append(lines, m.First)
	default:
		lines = append(lines, s.would(x.Would, x.Of))
	}
	if len(x.Despite) > 0 {
		lines = append(lines, m.Despite)
	}
	return lines
}
