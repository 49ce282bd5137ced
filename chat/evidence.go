package chat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// Source says where a line of evidence comes from.
type Source uint8

// The sources.
const (
	fromUnknown Source = iota // unknown, and shown as unknown
	FromProver                // a prover that the operator trusts signed it for these bytes
	FromPlan                  // checked over all calls of a program
)

// Known is one line of evidence, including its label. It is never the agent's
// claim.
type Known struct {
	From Source
	Text string
}

// How much evidence a card shows. The rest is counted.
const (
	maxItems  = 8 // facts, effects, contracts, gaps
	maxValues = 8 // of one of them
	maxClaims = 12
)

// evidence renders in fixed sentences what the gate found in the request, what a
// prover verified, and what is unknown. The short form has one line and leaves out
// what the gate found, because the payload shows it.
func (r renderer) evidence() []Known {
	if r.p.Type == approval.TypeQuestion {
		return nil
	}
	if r.p.Plan != nil {
		return r.planFacts()
	}
	domains := facts.ByDomain(r.p.Facts)
	short := r.p.RecurrenceCount >= shortFrom
	var all []Known
	add := func(from Source, line string) {
		if line != "" {
			all = append(all, Known{from, line})
		}
	}
	add(FromProver, r.verified(domains, true))
	add(fromUnknown, r.unknowns(domains))
	if short && len(all) > 1 {
		all = []Known{{all[0].From, all[0].Text + ". " + all[1].Text}}
	}
	return all
}

// hostFact renders one fact: "mail send recipient: bob@example.com".
func (r renderer) hostFact(h approval.HostFact, most int) string {
	name := r.localName(h.Domain)
	for _, s := range []string{h.Op, h.Name} {
		if s != "" && s != h.Domain {
			name += " " + r.localName(s)
		}
	}
	if h.Currency != "" {
		name += " " + r.plainOrQuoteShort(h.Currency)
	}
	values := nonEmpty(r.values(h.Values, most))
	if h.Omitted > 0 {
		values = append(values, Format(r.Evidence.NotListed, "n", strconv.Itoa(h.Omitted)))
	}
	if len(values) == 0 {
		return name + ": " + r.Evidence.None
	}
	return name + ": " + strings.Join(values, ", ")
}

// verified renders a verified proof only. A contract's text is the prover's, so it
// stands in quotation marks.
func (r renderer) verified(domains []facts.Domain, contracts bool) string {
	p := r.p.Facts.Verified()
	if p == nil {
		return ""
	}
	var items []string
	for _, d := range domains {
		for _, e := range d.Verified {
			items = append(items, r.effect(d.Domain, e))
		}
		if d.Covered && len(d.Unknown)+len(d.Verified) == 0 {
			items = append(items, Format(r.Evidence.Covered, "domain", r.localName(d.Domain)))
		}
	}
	if contracts {
		for _, c := range p.Contracts {
			items = append(items, r.quoteShort(c))
		}
	}
	if len(items) == 0 {
		return ""
	}
	line := Format(r.Evidence.Verified, "prover", r.plainOrQuoteShort(p.Prover), "facts", r.list(items, maxItems, "; "))
	if len(p.Trusted) > 0 {
		line += Format(r.Evidence.Trusting, "names", r.values(p.Trusted, maxValues))
	}
	return line
}

// unknowns names what a proof could not prove, gaps in its contracts, and
// everything that it does not mention. For a program without a proof it says that
// its effects are unknown.
func (r renderer) unknowns(domains []facts.Domain) string {
	var parts []string
	e := r.p.Facts
	if open := r.openPoints(domains); len(open) > 0 {
		parts = append(parts, r.list(open, maxItems, "; "))
	}
	switch {
	case e.Verified() != nil:
		parts = append(parts, r.Evidence.EverythingElse)
	case e.Proof != nil:
		why := e.Proof.Why
		if why.IsZero() {
			why = approval.Because("proof_unsigned")
		}
		parts = append(parts, Format(r.Evidence.OnlyClaimed, "why", r.reason(why)))
	case facts.RunsProgram(e) && r.p.RecurrenceCount < shortFrom:
		parts = append(parts, r.Evidence.Program)
	}
	if len(parts) == 0 {
		return ""
	}
	return Format(r.Evidence.Unknown, "what", strings.Join(parts, "; "))
}

// openPoints lists effects that are not proven, then gaps, the worst first.
func (r renderer) openPoints(domains []facts.Domain) (open []string) {
	for _, d := range domains {
		for _, e := range d.Unknown {
			open = append(open, r.effect(d.Domain, e))
		}
	}
	for _, status := range []string{facts.RequiredGap, facts.SilentGap, facts.RecommendedGap} {
		for _, d := range domains {
			for _, g := range d.Gaps {
				if g.Status == status {
					open = append(open, r.gap(d.Domain, g))
				}
			}
		}
	}
	return open
}

func (r renderer) gap(domain string, c approval.ProofCoverage) string {
	if len(c.Missing) == 0 {
		return r.localName(domain)
	}
	return Format(r.Evidence.Missing, "domain", r.localName(domain), "names", r.values(c.Missing, maxValues))
}

// effect renders one effect: "mail send (recipients: [bob@example.com])".
func (r renderer) effect(domain string, e approval.ProvenEffect) string {
	line := r.localName(domain)
	if e.Op != "" {
		line += " " + r.localName(e.Op)
	}
	fields, err := codec.Fields(e.Args)
	if err != nil || len(fields) == 0 {
		return line
	}
	args := make([]string, len(fields))
	for i, f := range fields {
		args[i] = r.shortName(f.Name) + ": " + r.arg(f.Value)
	}
	return line + " (" + r.list(args, maxValues, "; ") + ")"
}

// arg renders a list of strings as a list, and any other value that is not a
// string as JSON. A string that is valid JSON stands in quotation marks.
func (r renderer) arg(v approval.Raw) string {
	if s, ok := (codec.Field{Value: v}).Text(); ok {
		if json.Valid([]byte(s)) {
			return r.quoteShort(s)
		}
		return r.plainOrQuoteShort(s)
	}
	items, err := codec.Items(v)
	texts := make([]string, 0, len(items))
	for _, it := range items {
		if s, ok := (codec.Field{Value: it}).Text(); ok && !json.Valid([]byte(s)) {
			texts = append(texts, s)
		}
	}
	if err != nil || len(texts) < len(items) || len(items) == 0 {
		return r.shortValue(codec.Field{Value: v})
	}
	return "[" + r.values(texts, maxValues) + "]"
}

// claims renders an unverified proof as the agent's text, in a block of its own.
func (r renderer) claims() []string {
	p := r.p.Facts.Proof
	if p == nil || p.Verified {
		return nil
	}
	own := *r.messages
	own.Evidence.Names, own.Evidence.Statuses = nil, nil // an agent's text is not translated
	r.messages = &own
	var items []string
	for _, e := range p.Effects {
		items = append(items, r.effect(e.Domain, e)+": "+r.statusText(e.Status))
	}
	for _, c := range p.Contracts {
		items = append(items, r.Evidence.Contract+" "+r.quoteShort(c))
	}
	for _, c := range p.Coverage {
		items = append(items, r.gap(c.Domain, c)+": "+r.statusText(c.Status))
	}
	if len(items) == 0 {
		return nil
	}
	if n := len(items) - maxClaims; n > 0 {
		items = append(items[:maxClaims], Format(r.Evidence.More, "n", strconv.Itoa(n)))
	}
	lines := []string{r.Evidence.ClaimHead + ":"}
	for _, s := range items {
		lines = append(lines, withBar(s))
	}
	return lines
}

func (r renderer) statusText(status string) string {
	if s, ok := r.Evidence.Statuses[status]; ok {
		return s
	}
	return r.plainOrQuoteShort(status)
}

// quoteShort clips a text and puts it in quotation marks.
func (r renderer) quoteShort(s string) string { return `"` + r.clippedIn(s, maxValue, inQuote) + `"` }

// localName is the name of a domain, operation or argument in this language.
func (r renderer) localName(s string) string {
	if t, ok := r.Evidence.Names[s]; ok {
		return t
	}
	return r.plainOrQuoteShort(s)
}

// values renders texts so that none can look like two texts, or like a word of
// the gate.
func (r renderer) values(texts []string, most int) string {
	items := make([]string, len(texts))
	for i, s := range texts {
		if items[i] = r.plainOrQuoteShort(s); items[i] == r.Evidence.None {
			items[i] = r.quoteShort(s)
		}
	}
	return r.list(items, most, ", ")
}

func (r renderer) plainOrQuoteShort(s string) string {
	if clip(s, maxValue) == s {
		return r.plainOrQuote(s)
	}
	return r.quoteShort(s)
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

// list joins at most the given number of items and counts the rest.
func (r renderer) list(items []string, most int, comma string) string {
	if n := len(items) - most; n > 0 {
		items = append(slices.Clone(items[:most]), Format(r.Evidence.More, "n", strconv.Itoa(n)))
	}
	return strings.Join(items, comma)
}

// isOwnLabel says whether lines of the gate begin with the word, in any language. A
// field of that name is quoted, so that it cannot look like one. Names of
// several words are always quoted.
func isOwnLabel(word string) bool {
	return slices.ContainsFunc(Languages(), func(language string) bool {
		w := catalog(language)
		return slices.ContainsFunc([]string{w.Evidence.Verified, w.Evidence.Unknown, w.Invoked, w.Body}, func(line string) bool {
			first, _, _ := strings.Cut(line, " ")
			return LowerASCII(strings.TrimSuffix(first, ":")) == word
		})
	})
}
