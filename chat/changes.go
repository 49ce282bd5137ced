package chat

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
)

// Former is a request that another one resubmits, and how it was answered.
type EarlierRequest struct {
	Request  *approval.Pending  // as much of it as is kept
	Decision *approval.Decision // nil: nobody decided about it
}

// How much a card shows of what changed; the rest is counted, and stands in the
// payload as ever.
const (
	maxChanges = 40  // lines
	maxChanged = 300 // characters of one
	nearby     = 2   // lines that are the same, before and behind one that is not
)

// changes compare p with the request that it says it resubmits: only with one of
// the same workspace and client, since another's is none that it can mend. A line
// begins with "- ", "+ " or two blanks as it stands in the earlier request, in this
// one or in both; a remark of ours begins with a letter. Lines of both are as the
// payload shows them, so that no two values look the same.
func (s Style) changes(p *approval.Pending) []string {
	if p.Resubmits == "" || s.Earlier == nil {
		return nil
	}
	w := catalogue(s.Language)
	id := Escape(approval.ShortID(p.Resubmits))
	f := s.Earlier(p)
	switch {
	case f == nil || f.Request == nil:
		return []string{say(w.resubmitsUnknown, "id", id)}
	case f.Request.SourceGroup != p.SourceGroup:
		return []string{say(w.resubmitsElsewhere, "id", id)}
	case f.Request.ClientID != p.ClientID:
		return []string{say(w.resubmitsOthers, "id", id)}
	}
	d := diff{was: s.renderer(f.Request), is: s.renderer(p)}
	lines := d.compare()
	if n := len(lines) - maxChanges; n > 0 {
		lines = append(lines[:maxChanges], say(w.moreChanges, "n", strconv.Itoa(n)))
	}
	return append([]string{say(w.changedSince, "id", id, "answer", s.answered(f))}, lines...)
}

// answered is what the earlier request got for an answer, "" if nothing.
func (s Style) answered(f *EarlierRequest) string {
	if f.Decision == nil {
		return ""
	}
	text := " (" + catalogue(s.Language).status(string(f.Decision.Verdict))
	for _, said := range []string{f.Decision.Feedback, f.Decision.Override, f.Decision.Note} {
		if said != "" {
			return text + ": " + s.renderer(f.Request).cited(said) + ")"
		}
	}
	return text + ")"
}

// diff compares the arguments of two requests, each redacted for itself.
type diff struct{ was, is renderer }

func (d diff) compare() (lines []string) {
	if a, b := d.was.p, d.is.p; a.ToolName != b.ToolName || a.ActionType != b.ActionType {
		lines = append(lines, say(d.is.otherTool, "tool", d.was.tool()))
	}
	old, errOld := approval.Fields(d.was.p.RequestData)
	now, errNow := approval.Fields(d.is.p.RequestData)
	if errOld != nil || errNow != nil {
		return append(lines, d.is.notCompared)
	}
	same := 0
	for _, f := range now {
		i := slices.IndexFunc(old, func(o approval.Field) bool { return o.Name == f.Name })
		switch {
		case i < 0:
			lines = append(lines, signed("+ ", d.is.field(f))...)
		case sameValue(old[i], f):
			same++
		default:
			lines = append(lines, d.changed(old[i], f)...)
		}
	}
	for _, o := range old {
		if !slices.ContainsFunc(now, func(f approval.Field) bool { return f.Name == o.Name }) {
			lines = append(lines, signed("- ", d.was.field(o))...)
		}
	}
	if same > 0 {
		lines = append(lines, say(d.is.sameFields, "n", strconv.Itoa(same)))
	}
	return lines
}

func sameValue(a, b approval.Field) bool {
	s, ok := a.Text()
	t, also := b.Text()
	if ok || also {
		return ok && also && s == t
	}
	return compact(a.Value) == compact(b.Value)
}

// changed is one field that both have, with another value.
func (d diff) changed(old, now approval.Field) []string {
	a, b := d.was.field(old), d.is.field(now)
	if len(a) < 2 || len(b) < 2 || slices.Equal(a, b) {
		if len(a) == 1 && len(b) == 1 {
			return d.pair(a[0], b[0])
		}
		return append(signed("- ", a), signed("+ ", b)...)
	}
	return append([]string{"  " + b[0]}, d.block(a[1:], b[1:])...)
}

// pair are two lines, without the beginning and the end that they share where they
// are too long: what differs must not be what is cut off.
func (d diff) pair(a, b string) []string {
	if utf8.RuneCountInString(a) <= maxChanged && utf8.RuneCountInString(b) <= maxChanged {
		return []string{"- " + a, "+ " + b}
	}
	x, y := []rune(a), []rune(b)
	from := 0
	for from < min(len(x), len(y)) && x[from] == y[from] {
		from++
	}
	end := 0
	for end < min(len(x), len(y))-from && x[len(x)-1-end] == y[len(y)-1-end] {
		end++
	}
	from, end = max(0, from-around), max(0, end-around)
	part := func(sign string, r []rune) string { return sign + d.capped(string(r[from:len(r)-end])) }
	return []string{say(d.is.sameEnds, "n", strconv.Itoa(from), "m", strconv.Itoa(end)), part("- ", x), part("+ ", y)}
}

// around is how many characters stay on each side of what differs.
const around = 20

// capped cuts a line of what is escaped already.
func (d diff) capped(s string) string {
	kept := clip(s, maxChanged)
	if kept == s {
		return s
	}
	return kept + say(d.is.cutValue, "n", strconv.Itoa(utf8.RuneCountInString(s[len(kept):])))
}

// block compares two texts line by line.
func (d diff) block(a, b []string) []string {
	var lines []string
	same := 0 // lines that are the same and not written yet
	flush := func(last bool, at int) {
		before, behind := nearby, nearby
		if len(lines) == 0 {
			before = 0
		}
		if last {
			behind = 0
		}
		for i := range same {
			switch {
			case i < before || i >= same-behind:
				lines = append(lines, "  "+d.capped(b[at-same+i]))
			case i == before:
				lines = append(lines, say(d.is.sameLines, "n", strconv.Itoa(same-before-behind)))
			}
		}
		same = 0
	}
	at := 0 // in b
	for _, s := range steps(a, b) {
		switch s.sign {
		case ' ':
			same++
			at++
		case '-':
			flush(false, at)
			lines = append(lines, "- "+d.capped(a[s.at]))
		case '+':
			flush(false, at)
			lines = append(lines, "+ "+d.capped(b[s.at]))
			at++
		}
	}
	flush(true, at)
	return lines
}

func signed(sign string, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = sign + l
	}
	return out
}

// step is a line that is kept, taken away or added, by its place in a or in b.
type step struct {
	sign byte
	at   int
}

// maxTable bounds the work of a comparison: larger texts are one replacement,
// between what they begin and end with.
const maxTable = 250_000

// steps lead from a to b: a longest common subsequence is kept.
func steps(a, b []string) (all []step) {
	from := 0
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	end := 0
	for end < min(len(a), len(b))-from && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	for i := range from {
		all = append(all, step{' ', i})
	}
	x, y := a[from:len(a)-end], b[from:len(b)-end]
	table := common(x, y)
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case table != nil && i < len(x) && j < len(y) && x[i] == y[j]:
			all = append(all, step{' ', from + j})
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && (table == nil || table[i+1][j] >= table[i][j+1]):
			all = append(all, step{'-', from + i})
			i++
		default:
			all = append(all, step{'+', from + j})
			j++
		}
	}
	for k := range end {
		all = append(all, step{' ', len(b) - end + k})
	}
	return all
}

// common is the length of the longest common subsequence of each two ends; nil
// where that is too much work.
func common(x, y []string) [][]int {
	if (len(x)+1)*(len(y)+1) > maxTable {
		return nil
	}
	table := make([][]int, len(x)+1)
	for i := range table {
		table[i] = make([]int, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	return table
}
