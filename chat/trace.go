package chat

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

const (
	maxPeriod  = 16 // calls of one iteration of a loop
	maxBlocks  = 6  // in the order of the calls; more are sorted by form if that makes them fewer
	maxApart   = 5  // calls that stand apart if their long texts have nothing in common
	maxDiffer  = 3  // exceptions of one argument
	maxDomains = 4  // of recipients of several calls
	minCommon  = 40 // bytes that texts have in common, so that they are shown once
)

// partMark stands in a text for the part of it that differs from call to call.
const partMark = string(maskBegin) + "…" + string(maskEnd)

// trace is every call of a plan, with every argument. Calls of the same form are one block: an argument that is the same in
// all of them stands there once, any other with its values in the order of the calls.
type trace struct {
	renderer
	steps []renderer
	slots [][]slot // of each step
}

// slot is an argument of a step: known, or the result of another step.
type slot struct {
	name  string
	value approval.Raw        // of a known one
	ref   *approval.ResultRef // of any other
}

func (s slot) key() string {
	if s.ref != nil {
		return strconv.Itoa(s.ref.Step) + " " + s.ref.At
	}
	return string(s.value)
}

func (r renderer) newTrace() trace {
	t := trace{renderer: r, steps: r.steps()}
	for i := range t.steps {
		s := &r.p.Plan.Steps[i]
		var all []slot
		for _, f := range codec.FirstFields(s.Data) {
			all = append(all, slot{name: f.Name, value: f.Value})
		}
		for k := range s.Opaque {
			all = append(all, slot{name: s.Opaque[k].Arg, ref: &s.Opaque[k]})
		}
		t.slots = append(t.slots, all)
	}
	return t
}

func (r renderer) trace() []Line {
	t := r.newTrace()
	if len(t.steps) == 0 {
		return []Line{{LineText, upperFirst(r.Program.NoCalls)}}
	}
	var lines []Line
	if of := r.p.Plan.Continues; of != "" {
		lines = append(lines, Line{LineText, Format(r.Program.Continues, "id", Escape(of))})
	}
	blocks, head := t.blocks()
	lines = append(lines, Line{LineLabel, head})
	for _, at := range blocks {
		lines = append(lines, t.block(at)...)
	}
	return lines
}

// blocks are the steps by their indices: loops folded, else all of the same form together.
func (t trace) blocks() (all [][]int, head string) {
	shapes := make([]string, len(t.steps))
	for i := range shapes {
		shapes[i] = t.shape(i)
	}
	for at := 0; at < len(shapes); {
		period, times := repeats(shapes[at:])
		for k := range period {
			var block []int
			for n := range times {
				block = append(block, at+n*period+k)
			}
			all = append(all, t.apart(block)...)
		}
		at += period * times
	}
	byShape, order := map[string][]int{}, []string(nil)
	for i, s := range shapes {
		if byShape[s] == nil {
			order = append(order, s)
		}
		byShape[s] = append(byShape[s], i)
	}
	var sorted [][]int
	for _, s := range order {
		sorted = append(sorted, t.apart(byShape[s])...)
	}
	if len(all) > maxBlocks && len(sorted) < len(all) {
		return sorted, t.Program.ByTool
	}
	return all, t.Program.Trace
}

// shape is all of a step but the values of its arguments.
func (t trace) shape(i int) string {
	s := &t.p.Plan.Steps[i]
	parts := []string{s.Tool, s.ToolSHA256, strconv.FormatBool(s.Try), s.Of, strconv.FormatBool(s.Failed != "")}
	fields, err := codec.Fields(s.Data)
	if err != nil {
		parts = append(parts, "step", strconv.Itoa(i)) // it stands alone
	}
	for _, f := range fields {
		parts = append(parts, "arg "+f.Name)
	}
	for _, o := range s.Opaque {
		parts = append(parts, "ref "+o.Arg)
	}
	for i := range parts {
		parts[i] = strconv.Quote(parts[i])
	}
	return strings.Join(parts, " ")
}

// repeats finds the loop that a trace begins with: how many calls each iteration has, and how many there are.
func repeats(shapes []string) (period, times int) {
	period, times = 1, 1
	for d := 1; d <= min(maxPeriod, len(shapes)/2); d++ {
		n := 1
		for (n+1)*d <= len(shapes) && slices.Equal(shapes[:d], shapes[n*d:(n+1)*d]) {
			n++
		}
		if n > times {
			period, times = d, n
		}
	}
	return period, times
}

// apart divides a short block into its steps if they differ in a command, or in long texts that have nothing in common.
func (t trace) apart(block []int) [][]int {
	if len(block) == 1 || len(block) > maxApart {
		return [][]int{block}
	}
	for j := range t.slots[block[0]] {
		texts, ok := t.texts(block, j)
		if !ok || len(distinct(texts)) == 1 {
			continue
		}
		_, _, common := t.common(block, j)
		isCommand := t.steps[block[0]].p.Runs.Args[t.slots[block[0]][j].name].Type == facts.TypeCommand
		if isCommand || !common && slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "\n") || clip(s, maxInline) != s }) {
			var all [][]int
			for _, i := range block {
				all = append(all, []int{i})
			}
			return all
		}
	}
	return [][]int{block}
}

// column is one argument of all steps of a block.
func (t trace) column(block []int, j int) (all []slot) {
	for _, i := range block {
		all = append(all, t.slots[i][j])
	}
	return all
}

// texts are the values of an argument that is a text in all steps of a block.
func (t trace) texts(block []int, j int) (all []string, ok bool) {
	for _, s := range t.column(block, j) {
		text, isText := codec.Field{Value: s.value}.Text()
		if !isText {
			return nil, false
		}
		all = append(all, text)
	}
	return all, true
}

// block displays calls of one form.
func (t trace) block(block []int) []Line {
	c := t.steps[block[0]]
	lines := []Line{{LineStrong, t.head(block)}}
	lines = append(lines, t.past(block)...)
	if fields, err := codec.Fields(c.p.RequestData); err != nil || len(block) == 1 && len(fields) > 0 {
		lines = append(lines, c.allRuns()...)
	}
	var differ, common []Line
	for j, s := range t.slots[block[0]] {
		switch {
		case len(block) > 1:
			d, l := t.folded(block, j)
			differ, common = append(differ, d...), append(common, l...)
		case s.ref != nil:
			common = append(common, t.value(block[0], s)...)
		}
	}
	return slices.Concat(lines, differ, common)
}

func (t trace) head(block []int) string {
	s := &t.p.Plan.Steps[block[0]]
	head := Format(one(len(block), t.Program.Step, t.Program.Steps), "steps", stepNumbers(block), "tool", Escape(s.Tool))
	if s.Try {
		head += t.Program.Try
	}
	return head
}

// stepNumbers writes "1, 3 … 99" if all are as far apart.
func stepNumbers(block []int) string {
	last, even := len(block)-1, true
	for k := range block[1:] {
		even = even && block[k+1]-block[k] == block[1]-block[0]
	}
	if even && last > 2 && block[1] > block[0]+1 {
		return strconv.Itoa(block[0]+1) + ", " + strconv.Itoa(block[1]+1) + " … " + strconv.Itoa(block[last]+1)
	}
	numbers := make([]int, len(block))
	for k, i := range block {
		numbers[k] = i + 1
	}
	return ranges(numbers)
}

// past says what is known of steps that have run.
func (t trace) past(block []int) (lines []Line) {
	of := t.p.Plan.Steps[block[0]].Of
	if of == "" {
		return nil
	}
	form, results, failed := t.Program.HasRunIn, []string(nil), []string(nil)
	if of == t.p.RequestID {
		form = t.Program.HasRun
	}
	for _, i := range block {
		s := &t.p.Plan.Steps[i]
		results = append(results, Escape(head(s.ResultSHA256, maxDigest)))
		failed = append(failed, nonEmpty(s.Failed)...)
	}
	line := Format(form, "id", Escape(approval.ShortID(of))) + Format(t.Program.Results, "digests", strings.Join(results, ", "))
	lines = append(lines, Line{LineText, "· " + line})
	if len(failed) > 0 {
		lines = append(lines, Line{LineWarn, Format(t.Program.Failed, "why", t.values(failed, maxValues))})
	}
	return lines
}

// maxDigest is how many digits are shown of the digest of a result that no person can compare.
const maxDigest = 16

// value displays an argument of one step.
func (t trace) value(i int, s slot) []Line {
	c := t.steps[i]
	if s.ref != nil {
		return []Line{{LineStrong, c.name(s.name) + ": " + t.ref(s.ref, i, false)}}
	}
	f := codec.Field{Name: s.name, Value: s.value}
	a := c.argument(f)
	a.Replaces = "" // what it replaces stands by itself
	return c.typed(s.name, a, s.value)
}

// ref names a result that is not known yet. relative counts the steps back to it.
func (t trace) ref(ref *approval.ResultRef, i int, relative bool) string {
	step := Format(t.Program.OfStep, "n", strconv.Itoa(ref.Step))
	if relative {
		step = one(i+1-ref.Step, t.Program.OfLast, t.Program.OfEarlier)
	}
	form := t.Program.Result
	if ref.At != "" {
		form = t.Program.ResultPart
	}
	return string(maskBegin) + Format(form, "step", step, "part", t.quoted(ref.At)) + string(maskEnd)
}

// folded displays an argument of several steps. differ are the few steps where it has another value.
func (t trace) folded(block []int, j int) (differ, common []Line) {
	column := t.column(block, j)
	count, most := map[string]int{}, 0
	for _, s := range column {
		count[s.key()]++
		most = max(most, count[s.key()])
	}
	usual := slices.IndexFunc(column, func(s slot) bool { return count[s.key()] == most })
	others := len(block) - most
	switch {
	case others > min(maxDiffer, len(block)/3) && t.isRelative(block, column):
		s := column[0]
		return nil, []Line{{LineStrong, t.name(s.name) + ": " + t.ref(s.ref, block[0], true)}}
	case others > min(maxDiffer, len(block)/3):
		return nil, t.inTurn(block, j)
	}
	for k, s := range column {
		if s.key() != column[usual].key() {
			line := Format(t.Program.Differs, "step", strconv.Itoa(block[k]+1), "name", t.name(s.name))
			differ = append(differ, Line{LineWarn, line})
			differ = append(differ, t.value(block[k], s)...)
		}
	}
	return differ, t.value(block[usual], column[usual])
}

// isRelative reports whether an argument is, in each step, the same part of the result of a step that is as far back.
func (t trace) isRelative(block []int, column []slot) bool {
	for k, s := range column {
		if s.ref == nil || s.ref.At != column[0].ref.At || block[k]-s.ref.Step != block[0]-column[0].ref.Step {
			return false
		}
	}
	return true
}

// inTurn displays the values of an argument in the order of the steps: what long texts have in common once.
func (t trace) inTurn(block []int, j int) []Line {
	column := t.column(block, j)
	c, name := t.steps[block[0]], t.name(column[0].name)
	switch a := c.p.Runs.Args[column[0].name]; {
	case column[0].ref != nil:
	case a.Type == facts.TypeRecipients:
		return append(t.list(block, column, name), t.domains(block, j)...)
	case a.Type == facts.TypeAmount && facts.IsCurrency(a.Currency):
		name += " " + a.Currency
		fallthrough
	case slices.Contains([]string{facts.TypeAmount, facts.TypeURL, facts.TypeHost, facts.TypeCommand}, a.Type):
		return append(t.list(block, column, name), t.remarks(block, column)...)
	}
	begin, end, ok := t.common(block, j)
	if !ok {
		return t.list(block, column, name)
	}
	texts, _ := t.texts(block, j)
	for k, s := range texts {
		column[k].value = codec.Quote(s[len(begin) : len(s)-len(end)])
	}
	lines := []Line{{LineLabel, Format(t.Program.SameBut, "name", name, "part", partMark)}}
	part := hidden{Span: Span{len(begin), len(begin) + 1, ""}, instead: partMark}
	for _, l := range t.blockLines(begin+"x"+end, []hidden{part}) {
		lines = append(lines, Line{LineCode, withBar(l)})
	}
	return append(lines, t.list(block, column, partMark)...)
}

// list is the values of an argument in one line. Each is JSON, or a text in quotation marks, or a result.
func (t trace) list(block []int, column []slot, name string) []Line {
	shown := make([]string, len(column))
	for k, s := range column {
		text, isText := codec.Field{Value: s.value}.Text()
		switch {
		case s.ref != nil:
			shown[k] = t.ref(s.ref, block[k], false)
		case isText:
			shown[k] = t.quoted(text)
		default:
			shown[k] = t.renderer.value(s.value)
		}
	}
	return []Line{{LineCode, Format(t.Program.InTurn, "name", name) + ": " + strings.Join(shown, ", ")}}
}

// remarks are what is unusual about the values of an argument, each remark once.
func (t trace) remarks(block []int, column []slot) (lines []Line) {
	var all []string
	for k, s := range column {
		for _, l := range t.value(block[k], s) {
			if l.Kind == LineWarn {
				all = append(all, l.Text)
			}
		}
	}
	for _, s := range t.few(all) {
		lines = append(lines, Line{LineWarn, s})
	}
	return lines
}

// domains are the recipients of all steps by their domains.
func (t trace) domains(block []int, j int) (lines []Line) {
	var texts []string
	for _, s := range t.column(block, j) {
		some, _, _ := textsOf(s.value)
		texts = append(texts, some...)
	}
	v := typedValue{renderer: t.steps[block[0]]}
	if slices.ContainsFunc(texts, func(s string) bool { return t.withheld(s) != "" }) {
		return nil
	}
	groups := v.groups(recipientsIn(texts))
	for _, g := range groups[:min(len(groups), maxDomains)] {
		lines = append(lines, v.groupLine(g))
	}
	if more := len(groups) - maxDomains; more > 0 {
		lines = append(lines, Line{LineText, "· " + Format(t.Evidence.More, "n", strconv.Itoa(more))})
	}
	return lines
}

// common is how the texts of an argument begin and end, if that is most of them: whole words, and no secret in any.
func (t trace) common(block []int, j int) (begin, end string, ok bool) {
	texts, ok := t.texts(block, j)
	c, column := t.steps[block[0]], t.column(block, j)
	if !ok {
		return "", "", false
	}
	switch c.argument(codec.Field{Name: column[0].name, Value: column[0].value}).Type {
	case "", facts.TypeText, facts.TypeDiff, facts.TypeProgram, facts.TypeJSON:
	default:
		return "", "", false
	}
	from, behind := len(texts[0]), len(texts[0])
	shortest, sum := len(texts[0]), 0
	for _, s := range texts {
		if len(t.secrets(s)) > 0 || !utf8.ValidString(s) {
			return "", "", false
		}
		a, _ := facts.SameEnds([]byte(texts[0]), []byte(s))
		b := 0
		for b < min(len(texts[0]), len(s)) && texts[0][len(texts[0])-1-b] == s[len(s)-1-b] {
			b++
		}
		from, behind, shortest, sum = min(from, a), min(behind, b), min(shortest, len(s)), sum+len(s)
	}
	isWord := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r) || r == utf8.RuneError
	}
	begin = strings.TrimRightFunc(texts[0][:min(from, shortest)], isWord)
	end = strings.TrimLeftFunc(texts[0][len(texts[0])-min(behind, shortest-len(begin)):], isWord)
	return begin, end, len(begin)+len(end) >= minCommon && 2*(len(begin)+len(end)) >= sum/len(texts)
}

// traceLines are the calls of a plan one by one, to be compared with those of another.
func (r renderer) traceLines() (lines []string) {
	t := r.newTrace()
	for i, c := range t.steps {
		tool := Escape(c.p.ToolName)
		if len(t.slots[i]) == 0 {
			lines = append(lines, tool)
		}
		for _, s := range t.slots[i] {
			for _, l := range t.value(i, s) {
				lines = append(lines, tool+": "+l.Text)
			}
		}
	}
	return lines
}
