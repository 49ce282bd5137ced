package chat

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// EarlierRequest is a request that another one resubmits, and its decision.
type EarlierRequest struct {
	Request  *approval.Pending  `json:"request"`  // as much of it as is kept
	Decision *approval.Decision `json:"decision"` // nil: not decided
}

// How much a card shows of what changed. The rest is counted. The payload is
// complete in any case.
const (
	maxChanges    = 40  // lines
	maxChangeLine = 300 // characters of one line
	contextLines  = 2   // unchanged lines shown before and after a changed one
)

// changes compares p with the request that it resubmits, if that belongs to the
// same workspace and client. A line begins with "- " if it is only in the earlier
// request, with "+ " if it is only in p, with two spaces if it is in both. A
// remark of the gate begins with a letter. Lines have the form of the payload, so
// no two values look the same.
func (s Style) changes(p *approval.Pending) []string {
	if p.Resubmits == "" || s.Earlier == nil {
		return nil
	}
	w := catalog(s.Language)
	id := Escape(approval.ShortID(p.Resubmits))
	f := s.Earlier(p)
	switch {
	case f == nil || f.Request == nil:
		return []string{Format(w.ResubmitsUnknown, "id", id)}
	case f.Request.SourceGroup != p.SourceGroup:
		return []string{Format(w.ResubmitsElsewhere, "id", id)}
	case f.Request.ClientID != p.ClientID:
		return []string{Format(w.ResubmitsOthers, "id", id)}
	}
	d := diff{before: s.renderer(f.Request), after: s.renderer(p)}
	lines := d.compare()
	if n := len(lines) - maxChanges; n > 0 {
		lines = append(lines[:maxChanges], Format(w.MoreChanges, "n", strconv.Itoa(n)))
	}
	return append([]string{Format(w.ChangedSince, "id", id, "answer", s.earlierVerdict(f))}, lines...)
}

// earlierVerdict says how the earlier request was decided, "" if it was not.
func (s Style) earlierVerdict(f *EarlierRequest) string {
	if f.Decision == nil {
		return ""
	}
	text := " (" + catalog(s.Language).status(string(f.Decision.Verdict))
	for _, words := range []string{f.Decision.Feedback, f.Decision.Override, f.Decision.Note} {
		if words != "" {
			return text + ": " + s.renderer(f.Request).quoteShort(words) + ")"
		}
	}
	return text + ")"
}

// diff compares the arguments of two requests. Each is redacted by itself.
type diff struct{ before, after renderer }

func (d diff) compare() (lines []string) {
	if a, b := d.before.p, d.after.p; a.ToolName != b.ToolName || a.ActionType != b.ActionType {
		lines = append(lines, Format(d.after.OtherTool, "tool", d.before.tool()))
	}
	if d.before.p.Plan != nil && d.after.p.Plan != nil {
		return append(lines, d.programs()...)
	}
	old, errOld := codec.Fields(d.before.p.RequestData)
	now, errNow := codec.Fields(d.after.p.RequestData)
	if errOld != nil || errNow != nil {
		return append(lines, d.after.NotCompared)
	}
	same := 0
	for _, f := range now {
		i := slices.IndexFunc(old, func(o codec.Field) bool { return o.Name == f.Name })
		switch {
		case i < 0:
			lines = append(lines, prefixLines("+ ", d.after.field(f))...)
		case sameValue(old[i], f):
			same++
		default:
			lines = append(lines, d.changed(old[i], f)...)
		}
	}
	for _, o := range old {
		if !slices.ContainsFunc(now, func(f codec.Field) bool { return f.Name == o.Name }) {
			lines = append(lines, prefixLines("- ", d.before.field(o))...)
		}
	}
	if same > 0 {
		lines = append(lines, Format(d.after.SameFields, "n", strconv.Itoa(same)))
	}
	return lines
}

// programs compares the sources and the calls of two programs.
func (d diff) programs() (lines []string) {
	source := func(r renderer) []string {
		s := r.p.Plan.Source
		return r.blockLines(s, r.secrets(s))
	}
	w := &d.after.Program
	if d.before.p.Plan.Source == d.after.p.Plan.Source {
		lines = append(lines, w.SameSource)
	} else {
		lines = append(append(lines, w.SourceChanged), d.lineDiff(source(d.before), source(d.after))...)
	}
	return append(append(lines, w.TraceChanged), d.lineDiff(d.before.traceLines(), d.after.traceLines())...)
}

// field is one argument as the card shows it.
func (r renderer) field(f codec.Field) (texts []string) {
	for _, l := range r.typed(f.Name, r.argument(f), f.Value) {
		texts = append(texts, l.Text)
	}
	return texts
}

func sameValue(a, b codec.Field) bool {
	s, ok := a.Text()
	t, also := b.Text()
	if ok || also {
		return ok && also && s == t
	}
	return compact(a.Value) == compact(b.Value)
}

// changed renders a field that both requests have with different values.
func (d diff) changed(old, now codec.Field) []string {
	a, b := d.before.field(old), d.after.field(now)
	if len(a) < 2 || len(b) < 2 || slices.Equal(a, b) {
		if len(a) == 1 && len(b) == 1 {
			return d.pair(a[0], b[0])
		}
		return append(prefixLines("- ", a), prefixLines("+ ", b)...)
	}
	return append([]string{"  " + b[0]}, d.lineDiff(a[1:], b[1:])...)
}

// pair renders two lines. If they are too long, it drops their common beginning and
// end, so that the difference is never cut off.
func (d diff) pair(a, b string) []string {
	if utf8.RuneCountInString(a) <= maxChangeLine && utf8.RuneCountInString(b) <= maxChangeLine {
		return []string{"- " + a, "+ " + b}
	}
	x, y := []rune(a), []rune(b)
	from, end := facts.SameEnds(x, y)
	from, end = max(0, from-contextChars), max(0, end-contextChars)
	part := func(sign string, r []rune) string { return sign + d.clipLine(string(r[from:len(r)-end])) }
	return []string{Format(d.after.SameEnds, "n", strconv.Itoa(from), "m", strconv.Itoa(end)), part("- ", x), part("+ ", y)}
}

// contextChars is how many characters stay on each side of a difference.
const contextChars = 20

// clipLine cuts a line that is already escaped.
func (d diff) clipLine(s string) string {
	kept := clip(s, maxChangeLine)
	return kept + d.after.cutMark(s[len(kept):])
}

// lineDiff compares two texts line by line.
func (d diff) lineDiff(a, b []string) []string {
	var lines []string
	same := 0 // unchanged lines not written yet
	flush := func(last bool, at int) {
		before, behind := contextLines, contextLines
		if len(lines) == 0 {
			before = 0
		}
		if last {
			behind = 0
		}
		for i := range same {
			switch {
			case i < before || i >= same-behind:
				lines = append(lines, "  "+d.clipLine(b[at-same+i]))
			case i == before:
				lines = append(lines, Format(d.after.SameLines, "n", strconv.Itoa(same-before-behind)))
			}
		}
		same = 0
	}
	at := 0 // in b
	for _, s := range facts.Edits(a, b) {
		switch s.Sign {
		case ' ':
			same++
			at++
		case '-':
			flush(false, at)
			lines = append(lines, "- "+d.clipLine(a[s.At]))
		case '+':
			flush(false, at)
			lines = append(lines, "+ "+d.clipLine(b[s.At]))
			at++
		}
	}
	flush(true, at)
	return lines
}

func prefixLines(sign string, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = sign + l
	}
	return out
}
