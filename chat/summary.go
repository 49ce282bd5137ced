package chat

import (
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// summaryText is the operator's summary with each value in the short form of its type, else
// the target, which an agent may choose; "" if there is neither. Texts are cut at n
// characters: what runs stands below in full.
func (r renderer) summaryText(n int) string {
	switch {
	case len(r.p.SummaryParts) == 0 && r.p.Summary == "" && r.p.Target != "":
		return r.plainOrQuoteShort(r.p.Target)
	case len(r.p.SummaryParts) == 0:
		return r.clipped(r.p.Summary, n)
	case len(r.p.RequestData) == 0: // refused at once: not kept
		return ""
	}
	fields, _ := codec.Fields(r.p.RequestData) // on an error there are none
	var text strings.Builder
	for _, part := range r.p.SummaryParts {
		if part.Arg == "" {
			text.WriteString(r.operatorText(part.Text))
			continue
		}
		text.WriteString(r.fieldInShort(fields, part.Arg, n))
	}
	return text.String()
}

// operatorText is a piece of a template, with its spaces.
func (r renderer) operatorText(s string) string {
	if r.arrow != "" {
		s = strings.ReplaceAll(s, " -> ", r.arrow)
	}
	return escapePart(s, inLine, false, false)
}

func (r renderer) fieldInShort(fields []codec.Field, name string, n int) string {
	for _, f := range fields {
		if f.Name == name {
			return r.inShort(f, n)
		}
	}
	return "(no " + name + ")"
}

// inShort is a value in a few words: how many people, an amount with its currency, a host
// alone.
func (r renderer) inShort(f codec.Field, n int) string {
	t := typedValue{renderer: r, arg: r.argument(f), name: f.Name}
	if kind := t.withheldIn(f.Value); kind != "" {
		return t.maskText(&hidden{Span: Span{Kind: kind}, withheld: true}, "")
	}
	texts, list, ok := textsOf(f.Value)
	switch t.arg.Type {
	case facts.TypeRecipients:
		if all := recipientsIn(texts); ok && len(all) == 1 && all[0].Bare() {
			return t.whole(all[0].Text)
		} else if ok {
			return t.people(len(all), t.groups(all))
		}
	case facts.TypeAmount:
		text, isText := f.Text()
		if !isText {
			text = compact(f.Value)
		}
		if facts.AmountOf(text).Valid {
			return strings.TrimSuffix(text+" "+t.currency(), " ")
		}
	case facts.TypeURL, facts.TypeHost, facts.TypePath, facts.TypeTable:
		if ok && len(texts) > 0 {
			return t.firstOf(texts, n)
		}
	case facts.TypeCommand:
		if ok && list {
			return r.argv(f.Value)
		}
	}
	if s, isText := f.Text(); isText {
		return `"` + r.clippedIn(s, n, inQuote) + `"`
	}
	return r.shortValue(f)
}

// firstOf names the first place, and counts the others.
func (t typedValue) firstOf(texts []string, n int) string {
	first := texts[0]
	switch place := facts.PlaceOf(first); {
	case t.arg.Type == facts.TypeURL && !place.Odd:
		first = place.Host
	case t.arg.Type == facts.TypeHost:
		if place = facts.HostPlace(first); place.Written != "" {
			first = place.Host
		}
	}
	kept := clip(first, n)
	shown := t.whole(kept) + t.cutMark(first[len(kept):])
	switch {
	case t.arg.Type == facts.TypePath && strings.ContainsAny(first, " \""):
		shown = Quote(kept) + t.cutMark(first[len(kept):])
	case t.arg.Type == facts.TypeTable && len(t.secrets(first)) > 0:
		shown = t.clipped(first, n)
	}
	if more := len(texts) - 1; more > 0 {
		shown += ", " + Format(t.Evidence.More, "n", strconv.Itoa(more))
	}
	return shown
}

func recipientsIn(texts []string) (all []facts.Recipient) {
	for _, s := range texts {
		some, _ := facts.Recipients(s)
		all = append(all, some...)
	}
	return all
}

// Headline is what p would do and where, the verb first, and the workspace, in one line, for
// the subject of a mail and for notifications: the object begins within the first 40
// characters. It is cut.
func (s Style) Headline(p *approval.Pending) string {
	r := s.renderer(p)
	r.anySecret = true // a subject is nothing that a person consents to
	r.arrow = r.SubjectTo
	object, from := clip(r.brief(), maxValue), " · "+r.text(p.SourceGroup)
	switch {
	case p.Type == approval.TypeQuestion:
		return object + from
	case p.Plan != nil:
		return object + "?" + from
	case p.ToolName == "":
		return r.wants() + " " + object + from
	}
	verb, native := r.verb()
	form := r.Subject
	if !native {
		form = r.SubjectOther
	}
	if short := clip(verb, maxSubjectVerb); short != verb {
		verb = short + "…"
	}
	return upperFirst(Format(form, "verb", verb, "object", object)) + from
}

// maxSubjectVerb is how many characters of a verb precede the object.
const maxSubjectVerb = 24

// HeadlineOf is a headline, and before it what became of the request.
func (s Style) HeadlineOf(status, headline string) string {
	return upperFirst(catalog(s.Language).status(status)) + ": " + headline
}

// Action is what p would do, in one line: its verb and its object.
func (s Style) Action(p *approval.Pending) string {
	r := s.renderer(p)
	r.anySecret = true // as in Line
	return r.actAndBrief()
}

// Labels are the verb and the target of each request, for its button. The verb is cut, so that the target is seen.
// Where several have the same, their object stands in place of the target.
func (s Style) Labels(all []*approval.Pending) []string {
	var labels []string
	count := map[string]int{}
	for _, p := range all {
		label := s.label(p, false)
		labels = append(labels, label)
		count[label]++
	}
	for i, label := range labels {
		if count[label] > 1 {
			labels[i] = s.label(all[i], true)
		}
	}
	return labels
}

func (s Style) label(p *approval.Pending, object bool) string {
	r := s.renderer(p)
	r.anySecret = true // as in Line
	if p.Type == approval.TypeQuestion {
		return "? " + r.brief()
	}
	verb, _ := r.verb()
	if kept := clip(verb, maxLabelVerb); kept != verb {
		verb = kept + "…"
	}
	if object || p.Target == "" {
		return verb + " · " + r.brief()
	}
	return verb + " · " + r.target()
}

// maxLabelVerb is how many characters of a verb a label has.
const maxLabelVerb = 16
