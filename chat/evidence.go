package chat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// Source says where something that is known comes from.
type Source uint8

// The sources. The zero value is nobody: then it is not known.
const (
	FromUnknown Source = iota // it is unknown, and named as that
	FromHost                  // the gate read it out of the bytes that would run
	FromProver                // a prover of the operator's signed it, for these bytes
)

// Known is one line of what is known of a request besides its arguments, label
// and all. None of it is said by the agent.
type Known struct {
	From Source
	Text string
}

// What a card shows of evidence; the rest is counted.
const (
	maxSaid   = 8 // facts, effects, contracts, gaps
	maxValues = 8 // of one of them
	maxClaims = 12
)

// evidence says in fixed sentences what the gate found in the request, what a
// prover verified, and what nobody knows. The short form says it in one line, and
// leaves out what the gate found: it stands in the payload.
func (r renderer) evidence() []Known {
	if r.p.Type == approval.TypeQuestion {
		return nil
	}
	domains := r.p.Facts.ByDomain()
	short := r.p.RecurrenceCount >= shortFrom
	var all []Known
	add := func(from Source, line string) {
		if line != "" {
			all = append(all, Known{from, line})
		}
	}
	if !short {
		add(FromHost, r.hostFacts(domains, maxValues))
	}
	add(FromProver, r.verified(domains, true))
	add(FromUnknown, r.unknowns(domains))
	if short && len(all) > 1 {
		all = []Known{{all[0].From, all[0].Text + ". " + all[1].Text}}
	}
	return all
}

// hostFacts leaves out what every card says anyway, the target of the meta line,
// and digests, which tell nobody anything.
func (r renderer) hostFacts(domains []approval.DomainEvidence, most int) string {
	var said []string
	for _, d := range domains {
		for _, h := range d.Host {
			if !r.onMetaLine(h) && !strings.HasSuffix(h.Name, "_sha256") {
				said = append(said, r.hostFact(h, most))
			}
		}
	}
	if len(said) == 0 {
		return ""
	}
	return say(r.known.host, "facts", r.list(said, maxSaid, "; "))
}

func (r renderer) onMetaLine(h approval.HostFact) bool {
	return h.From == approval.FromTemplate && h.Left == 0 && len(h.Values) == 1 && h.Values[0] == r.p.Target
}

// hostFact is "mail send recipient: bob@example.com".
func (r renderer) hostFact(h approval.HostFact, most int) string {
	name := r.named(h.Domain)
	for _, s := range []string{h.Op, h.Name} {
		if s != "" && s != h.Domain {
			name += " " + r.named(s)
		}
	}
	values := nonEmpty(r.values(h.Values, most))
	if h.Left > 0 {
		values = append(values, say(r.known.left, "n", strconv.Itoa(h.Left)))
	}
	if len(values) == 0 {
		return name + ": " + r.known.none
	}
	return name + ": " + strings.Join(values, ", ")
}

// verified is what a prover vouches for; a proof that is only a claim has no
// place here. What a contract says is the prover's word for it, so it stands in
// quotation marks.
func (r renderer) verified(domains []approval.DomainEvidence, contracts bool) string {
	p := r.p.Facts.Verified()
	if p == nil {
		return ""
	}
	var said []string
	for _, d := range domains {
		for _, e := range d.Verified {
			said = append(said, r.effect(d.Domain, e))
		}
		if d.Covered && len(d.Unknown)+len(d.Verified) == 0 {
			said = append(said, say(r.known.covered, "domain", r.named(d.Domain)))
		}
	}
	if contracts {
		for _, c := range p.Contracts {
			said = append(said, r.cited(c))
		}
	}
	if len(said) == 0 {
		return ""
	}
	line := say(r.known.verified, "prover", r.plainOrCited(p.Prover), "facts", r.list(said, maxSaid, "; "))
	if len(p.Trusted) > 0 {
		line += say(r.known.trusting, "names", r.values(p.Trusted, maxValues))
	}
	return line
}

// unknowns names what is open: what a proof could not prove, where its contracts do
// not reach, and all that it does not speak of, since silence is no safety; of a
// program without a proof, what it does at all.
func (r renderer) unknowns(domains []approval.DomainEvidence) string {
	var parts []string
	e := r.p.Facts
	if open := r.open(domains); len(open) > 0 {
		parts = append(parts, r.list(open, maxSaid, "; "))
	}
	switch {
	case e.Verified() != nil:
		parts = append(parts, r.known.rest)
	case e.Proof != nil:
		why := e.Proof.Why
		if why == "" {
			why = r.known.notSigned
		}
		parts = append(parts, say(r.known.onlyClaim, "why", r.reason(why)))
	case e.RunsProgram() && r.p.RecurrenceCount < shortFrom:
		parts = append(parts, r.known.program)
	}
	if len(parts) == 0 {
		return ""
	}
	return say(r.known.unknown, "what", strings.Join(parts, "; "))
}

// open lists what could not be proven, then the gaps, the worst first.
func (r renderer) open(domains []approval.DomainEvidence) (open []string) {
	for _, d := range domains {
		for _, e := range d.Unknown {
			open = append(open, r.effect(d.Domain, e))
		}
	}
	for _, status := range []string{approval.RequiredGap, approval.SilentGap, approval.RecommendedGap} {
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
		return r.named(domain)
	}
	return say(r.known.missing, "domain", r.named(domain), "names", r.values(c.Missing, maxValues))
}

// effect is "mail send (recipients: [bob@example.com])".
func (r renderer) effect(domain string, e approval.ProvenEffect) string {
	line := r.named(domain)
	if e.Op != "" {
		line += " " + r.named(e.Op)
	}
	fields, err := approval.Fields(e.Args)
	if err != nil || len(fields) == 0 {
		return line
	}
	args := make([]string, len(fields))
	for i, f := range fields {
		args[i] = r.shortName(f.Name) + ": " + r.arg(f.Value)
	}
	return line + " (" + r.list(args, maxValues, "; ") + ")"
}

// arg writes a list of texts as a list, and what is neither text nor such a list
// as the JSON that it is. A text that would read as JSON stands in quotation marks.
func (r renderer) arg(v approval.Raw) string {
	if s, ok := (approval.Field{Value: v}).Text(); ok {
		if json.Valid([]byte(s)) {
			return r.cited(s)
		}
		return r.plainOrCited(s)
	}
	items, err := approval.Items(v)
	texts := make([]string, 0, len(items))
	for _, it := range items {
		if s, ok := (approval.Field{Value: it}).Text(); ok && !json.Valid([]byte(s)) {
			texts = append(texts, s)
		}
	}
	if err != nil || len(texts) < len(items) || len(items) == 0 {
		return r.shortValue(approval.Field{Value: v})
	}
	return "[" + r.values(texts, maxValues) + "]"
}

// claims are what a proof says that nobody verified: the agent's words, in a block
// of their own.
func (r renderer) claims() []string {
	p := r.p.Facts.Proof
	if p == nil || p.Verified {
		return nil
	}
	own := *r.words
	own.known.names, own.known.statuses = nil, nil // what an agent says is not translated
	r.words = &own
	var said []string
	for _, e := range p.Effects {
		said = append(said, r.effect(e.Domain, e)+": "+r.standing(e.Status))
	}
	for _, c := range p.Contracts {
		said = append(said, r.known.contract+" "+r.cited(c))
	}
	for _, c := range p.Coverage {
		said = append(said, r.gap(c.Domain, c)+": "+r.standing(c.Status))
	}
	if len(said) == 0 {
		return nil
	}
	if n := len(said) - maxClaims; n > 0 {
		said = append(said[:maxClaims], say(r.known.more, "n", strconv.Itoa(n)))
	}
	lines := []string{r.known.claim + ":"}
	for _, s := range said {
		lines = append(lines, barred(s))
	}
	return lines
}

func (r renderer) standing(status string) string {
	if s, ok := r.known.statuses[status]; ok {
		return s
	}
	return r.plainOrCited(status)
}

// cited is a text of somebody else's, cut, always in quotation marks.
func (r renderer) cited(s string) string { return `"` + r.clippedIn(s, maxValue, inQuote) + `"` }

// named is the name of a domain, or of what is done or found in one.
func (r renderer) named(s string) string {
	if t, ok := r.known.names[s]; ok {
		return t
	}
	return r.plainOrCited(s)
}

// values writes texts that stand between words of ours, so that none can look
// like two, or like a word of ours.
func (r renderer) values(texts []string, most int) string {
	said := make([]string, len(texts))
	for i, s := range texts {
		if said[i] = r.plainOrCited(s); said[i] == r.known.none {
			said[i] = r.cited(s)
		}
	}
	return r.list(said, most, ", ")
}

func (r renderer) plainOrCited(s string) string {
	if clip(s, maxValue) == s {
		return r.plainOrQuoted(s)
	}
	return r.cited(s)
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

// list joins what was said, and counts what is too much.
func (r renderer) list(said []string, most int, comma string) string {
	if n := len(said) - most; n > 0 {
		said = append(slices.Clone(said[:most]), say(r.known.more, "n", strconv.Itoa(n)))
	}
	return strings.Join(said, comma)
}

// ourLabels are the words that lines about evidence begin with, in every language:
// a field of that name would look like one. Names of several words stand in
// quotation marks anyway.
var ourLabels = sync.OnceValue(func() map[string]bool {
	labels := map[string]bool{}
	for _, w := range []*words{english(), italian()} {
		for _, line := range []string{w.known.verified, w.known.unknown} {
			first, _, _ := strings.Cut(line, " ")
			labels[lower(strings.TrimSuffix(first, ":"))] = true
		}
	}
	return labels
})
