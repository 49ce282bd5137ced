package chat

import (
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
	FromNobody Source = iota // it is unknown, and named as that
	FromHost                 // the gate read it out of the bytes that would run
	FromProver               // a prover of the operator's signed it, for these bytes
)

// Known is one line of what is known of a request besides its arguments, label
// and all. None of it is said by the agent.
type Known struct {
	From Source
	Text string
}

// covered is the one coverage of a domain that leaves nothing open.
const covered = "covered"

// What a card shows of evidence; the rest is counted.
const (
	maxHostFacts = 8
	maxEffects   = 8
	maxValues    = 8
	maxClaims    = 12
)

// evidence says in fixed sentences what the gate found in the request, what a
// prover verified, and what nobody knows. In the short form it is one line, and
// what the gate found stays out: it stands in the payload. Where nothing is known
// a card has no such lines, as no card claims to know all.
func (r renderer) evidence() []Known {
	if r.p.Type == approval.TypeQuestion {
		return nil
	}
	e := r.p.Facts
	var all []Known
	add := func(from Source, line string) {
		if line != "" {
			all = append(all, Known{from, line})
		}
	}
	short := r.p.RecurrenceCount >= shortFrom
	if !short {
		add(FromHost, r.hostFacts(e.Host))
	}
	if e.Proof != nil {
		add(FromProver, r.verified(e.Proof))
		add(FromNobody, r.unknowns(e.Proof))
	}
	if short && len(all) > 1 {
		all = []Known{{all[0].From, all[0].Text + ". " + all[1].Text}}
	}
	return all
}

func (r renderer) hostFacts(facts []approval.HostFact) string {
	if len(facts) == 0 {
		return ""
	}
	said := make([]string, 0, len(facts))
	for _, f := range facts {
		said = append(said, say(r.known.fact, "domain", r.domain(f.Domain), "name", r.domain(f.Name), "values", r.values(f.Values)))
	}
	return say(r.known.host, "facts", r.list(said, maxHostFacts, "; "))
}

// verified is what a prover vouches for; a proof that is only a claim has no
// place here.
func (r renderer) verified(p *approval.Proof) string {
	if !p.Verified {
		return ""
	}
	var said []string
	for _, e := range p.Effects {
		if e.Status == approval.EffectProven {
			said = append(said, r.effect(e))
		}
	}
	for _, c := range p.Contracts {
		said = append(said, r.cited(c))
	}
	if len(said) == 0 {
		return ""
	}
	line := say(r.known.verified, "prover", r.plainOrQuoted(p.Prover), "facts", r.list(said, maxEffects, "; "))
	if len(p.Trusted) > 0 {
		line += say(r.known.trusting, "names", r.values(p.Trusted))
	}
	return line
}

// unknowns names what a proof leaves open: what it could not prove, what its
// contracts do not reach, and all that it does not speak of.
func (r renderer) unknowns(p *approval.Proof) string {
	if !p.Verified {
		why := p.Why
		if why == "" {
			why = r.known.notSigned
		}
		return say(r.known.unknown, "what", say(r.known.onlyClaim, "why", r.reason(why)))
	}
	var open []string
	for _, e := range p.Effects {
		if e.Status != approval.EffectProven {
			open = append(open, r.effect(e))
		}
	}
	for _, c := range p.Coverage {
		if c.Status != covered || len(c.Missing) > 0 {
			open = append(open, r.gap(c))
		}
	}
	slices.Sort(open)
	open = slices.Compact(open)
	what := r.known.rest
	if len(open) > 0 {
		what = r.list(open, maxEffects, "; ") + "; " + what
	}
	return say(r.known.unknown, "what", what)
}

func (r renderer) gap(c approval.ProofCoverage) string {
	if len(c.Missing) == 0 {
		return r.domain(c.Domain)
	}
	return say(r.known.missing, "domain", r.domain(c.Domain), "names", r.values(c.Missing))
}

// effect is "mail send [bob@example.com]".
func (r renderer) effect(e approval.ProvenEffect) string {
	line := r.domain(e.Domain)
	if e.Op != "" {
		line += " " + r.plainOrQuoted(e.Op)
	}
	if args := r.args(e.Args); args != "" {
		line += " " + args
	}
	return line
}

// args writes a list of texts as a list, and all else as the JSON that it is.
func (r renderer) args(v approval.Raw) string {
	if len(v) == 0 {
		return ""
	}
	items, err := approval.Items(v)
	if err != nil {
		return r.value(v)
	}
	var texts []string
	for _, it := range items {
		s, ok := approval.Field{Value: it}.Text()
		if !ok {
			return r.value(v)
		}
		texts = append(texts, s)
	}
	return "[" + r.values(texts) + "]"
}

// claims are what a proof says that nobody verified: the agent's words, in a block
// of their own.
func (r renderer) claims() []string {
	p := r.p.Facts.Proof
	if p == nil || p.Verified {
		return nil
	}
	var said []string
	for _, e := range p.Effects {
		said = append(said, r.effect(e)+": "+r.standing(e.Status))
	}
	for _, c := range p.Contracts {
		said = append(said, r.known.contract+" "+r.cited(c))
	}
	for _, c := range p.Coverage {
		said = append(said, r.gap(c)+": "+r.standing(c.Status))
	}
	if len(said) == 0 {
		return nil
	}
	lines := []string{r.known.claim + ":"}
	for i, s := range said {
		if i == maxClaims {
			lines = append(lines, barred(say(r.known.more, "n", strconv.Itoa(len(said)-i))))
			break
		}
		lines = append(lines, barred(s))
	}
	return lines
}

func (r renderer) standing(status string) string {
	if s, ok := r.known.statuses[status]; ok {
		return s
	}
	return r.cited(status)
}

// cited is a text of somebody else's, cut, always in quotation marks.
func (r renderer) cited(s string) string { return `"` + r.clippedIn(s, maxValue, inQuote) + `"` }

// domain is the name of a domain, or of what the values of a fact are.
func (r renderer) domain(s string) string {
	if t, ok := r.known.domains[s]; ok {
		return t
	}
	return r.plainOrCited(s)
}

// values writes texts that stand between words of ours, so that none can look
// like two, or like a word of ours.
func (r renderer) values(texts []string) string {
	said := make([]string, len(texts))
	for i, s := range texts {
		said[i] = r.plainOrCited(s)
	}
	return r.list(said, maxValues, ", ")
}

func (r renderer) plainOrCited(s string) string {
	if clip(s, maxValue) == s {
		return r.plainOrQuoted(s)
	}
	return r.cited(s)
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
