package chat

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// Reasons renders reasons about p, one text each. p may be an empty pending.
func (s Style) Reasons(p *approval.Pending, reasons []approval.Reason) []string {
	return s.renderer(p).reasonTexts(reasons)
}

func (r renderer) reasonTexts(reasons []approval.Reason) []string {
	texts := make([]string, len(reasons))
	for i, x := range reasons {
		texts[i] = r.reason(x)
	}
	return texts
}

// Words renders reasons in one line and in English, for agents, programs and the audit
// log.
type Words struct{}

// Reasons joins the sentences of reasons.
func (Words) Reasons(reasons []approval.Reason) string {
	return strings.Join(Style{}.Reasons(&approval.Pending{}, reasons), "; ")
}

// reason renders a reason by its code's sentence. A filled-in value stands in quotation
// marks unless it is a plain word. An unknown code appears in the technical form.
func (r renderer) reason(x approval.Reason) string { return r.reasonIn(x, maxNested) }

// maxNested is how deeply sentences of reasons nest: a rule, its gap, why a proof is a
// claim.
const maxNested = 3

func (r renderer) reasonIn(x approval.Reason, nested int) string {
	form, known := r.messages.Reasons[x.Code]
	if !known || nested == 0 {
		return r.text(x.String())
	}
	var pairs []string
	form = chooseParts(form, x.Args)
	for _, m := range placeholder.FindAllString(form, -1) {
		name := m[1 : len(m)-1]
		pairs = append(pairs, name, r.reasonPart(name, x, nested))
	}
	if said := Format(form, pairs...); said != "" {
		return said
	}
	return r.text(x.String()) // a reason never disappears
}

// chooseParts removes each part in double brackets that names a value which is not
// there.
func chooseParts(form string, args map[string]string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(form, "[[")
		part, after, closed := strings.Cut(rest, "]]")
		b.WriteString(before)
		if !found || !closed {
			return b.String()
		}
		if !slices.ContainsFunc(placeholder.FindAllString(part, -1), func(m string) bool { return args[m[1:len(m)-1]] == "" }) {
			b.WriteString(part)
		}
		form = after
	}
}

func (r renderer) reasonPart(name string, x approval.Reason, nested int) string {
	s := x.Args[name]
	switch name {
	case "note", "gap", "source", "why": // codes themselves
		return r.reasonIn(approval.Reason{Code: s, Args: x.Args}, nested-1)
	case "words", "clause", "clauses", "problem", "detail", "text": // the operator's, or the gate's own
		return r.text(s)
	case "strangers":
		return r.whatWasRead(r.Strangers, s, x.Args["strangers_in"], x.Args["strangers_n"])
	case "secrets":
		said := r.whatWasRead(r.Secrets, s, x.Args["secrets_in"], x.Args["secrets_n"])
		if s != "" && said == r.reasonPart("strangers", x, nested) {
			said = r.Secrets["same"]
		}
		return said
	case "where":
		return r.places(s)
	case "asks":
		return cmp.Or(r.Grants.Asks[x.Args["rule"]], Format(r.Grants.Asks["rule"], "rule", r.plainOrQuote(x.Args["rule"])))
	case "kind":
		if x.Code == "secret" || x.Code == "secret_deny" {
			return r.secretKind(s)
		}
	case "value": // an earlier version stored a text as it was
		if text, isText := (codec.Field{Value: approval.Raw(s)}).Text(); isText {
			return r.quote(text)
		}
	case "error": // it may contain a key that the agent chose
		return r.plainOrQuoteShort(s)
	}
	return r.plainOrQuote(s)
}

// whatWasRead names what tainted the agent. by is the capability of what read it, or
// "tool" and a name; empty: unknown. n is how often it read, if more than once.
func (r renderer) whatWasRead(forms map[string]string, by, place, n string) string {
	form, args := forms[by], map[string]string{"place": place}
	switch {
	case by == "":
		form = forms["unknown"]
	case form == "":
		form = forms["tool"]
	}
	if n != "" {
		form += r.Strangers["first"]
	}
	tool := r.plainOrQuote(strings.TrimPrefix(by, "tool "))
	return Format(chooseParts(form, args), "place", r.plainOrQuote(place), "tool", tool, "n", r.plainOrQuote(n))
}

// places says where a secret is. A name that is one is not repeated.
func (r renderer) places(where string) string {
	parts := strings.Split(where, " + ")
	for i, p := range parts {
		parts[i] = r.plainOrQuote(p)
		if strings.Contains(p, approval.RedactedName) {
			parts[i] = r.SecretName
		}
	}
	return strings.Join(parts, " + ")
}

// plainOrQuote quotes s unless it is one word without punctuation of the gate.
func (r renderer) plainOrQuote(s string) string {
	t := r.text(s)
	if s == "" || strings.ContainsAny(t, " []()|\"\\␠;,") {
		return r.quote(s)
	}
	return t
}

// outcomeReasons returns the reasons for the ruling's own outcome, those that no grant
// lifts first, so that a card always shows them. A reason to allow does not explain an
// ask.
func outcomeReasons(r approval.Ruling) []approval.Reason {
	var cardFits, rest []approval.Reason
	for _, x := range r.Reasons {
		switch o, ok := x.Outcome(); {
		case !ok:
			rest = append(rest, x)
		case o == r.Outcome:
			cardFits = append(cardFits, x)
		}
	}
	if cardFits = append(cardFits, rest...); len(cardFits) == 0 {
		return r.Reasons
	}
	slices.SortStableFunc(cardFits, func(a, b approval.Reason) int { return cmp.Compare(a.Rank(), b.Rank()) })
	return cardFits
}

func (r renderer) joinReasons(reasons []approval.Reason) string {
	return strings.Join(r.reasonTexts(reasons), "; ")
}

// why says why a person is asked, which codes are not possible, and what "always" would
// have allowed.
func (r renderer) why() []string {
	if r.p.Type == approval.TypeQuestion { // nothing writes
		ruling := r.p.Ruling
		ruling.Reasons = slices.DeleteFunc(slices.Clone(ruling.Reasons), func(x approval.Reason) bool { return x.Code == "dangerous_writes" })
		return r.reasonTexts(outcomeReasons(ruling))
	}
	lines := r.stepReasons()
	if len(lines) == 0 {
		lines = r.reasonTexts(outcomeReasons(r.p.Ruling))
	}
	change := slices.DeleteFunc(slices.Clone(r.p.Ruling.Change), func(c approval.Reason) bool { return c.Code == "raise_autonomy" })
	if len(change) > 0 {
		lines = append(lines, r.ToChange+": "+r.joinReasons(change))
	}
	return slices.Concat(lines, r.impossibleCodes(), r.history(), r.longSource())
}

// impossibleCodes says why 2 and 6 are not possible for this request. The menu
// itself never changes.
func (r renderer) impossibleCodes() (lines []string) {
	two, six := r.whyNot(approval.Session), r.whyNot(approval.Always)
	session, always := r.codeNames()
	if !r.Buttons && two == six && two != "" {
		return []string{Format(r.BothImpossible, "why", two)}
	}
	for _, no := range [][2]string{{session, two}, {always, six}} {
		if no[1] != "" {
			lines = append(lines, Format(r.CodeImpossible, "code", no[0], "why", no[1]))
		}
	}
	return lines
}

// codeNames are the codes 2 and 6, or the names that stand for them.
func (r renderer) codeNames() (session, always string) {
	if r.Buttons {
		return buttonName(r.Grants.Session), buttonName(r.Grants.Always)
	}
	return "2", "6"
}

// buttonName is how the sentence of a button begins, in quotation marks.
func buttonName(sentence string) string {
	name, _, _ := strings.Cut(sentence, ":")
	return `"` + name + `"`
}

// history says how many of the last requests "always" would have allowed.
func (r renderer) history() []string {
	o, ok := r.p.Offer(approval.Always)
	if !ok || o.Of == 0 {
		return nil
	}
	_, always := r.codeNames()
	if o.Would == 0 {
		return []string{Format(r.AllowsNone, "code", always, "of", strconv.Itoa(o.Of))}
	}
	return []string{Format(r.WouldHaveAllowed, "code", always, "n", strconv.Itoa(o.Would), "of", strconv.Itoa(o.Of))}
}
