package chat

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// Whatever calls a plan has, in whatever order, a reader that knows nothing of how they are folded reads each of them back.
func TestATraceCanBeReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := &approval.Plan{Source: "x", Steps: randomSteps(t)}
		p := example(program("x"))
		p.Plan = plan
		language := rapid.SampledFrom([]string{"en", "en", "it"}).Draw(t, "language")
		card := Style{Language: language}.Card(p)
		if language != "en" {
			return // the reader reads English
		}
		var lines []string
		for _, l := range card.Runs {
			lines = append(lines, l.Text)
		}
		read, err := (&traceReader{lines: lines}).read(len(plan.Steps))
		require.NoError(t, err, strings.Join(lines, "\n"))
		for i := range plan.Steps {
			s := &plan.Steps[i]
			require.Equal(t, s.Tool, read[i].tool, "step %d in\n%s", i+1, strings.Join(lines, "\n"))
			require.Equal(t, s.Try, read[i].try)
			require.Equal(t, argsOf(s), read[i].args, "step %d in\n%s", i+1, strings.Join(lines, "\n"))
		}
	})
}

// argsOf are the arguments of a step as the reader writes them.
func argsOf(s *approval.Step) map[string]string {
	var data map[string]json.RawMessage
	if err := json.Unmarshal(s.Data, &data); err != nil {
		panic(err)
	}
	all := map[string]string{}
	for name, v := range data {
		all[name] = string(v)
		var text string
		if json.Unmarshal(v, &text) == nil {
			all[name] = strconv.Quote(text)
		}
	}
	for _, ref := range s.Opaque {
		all[ref.Arg] = fmt.Sprintf("result %d %q", ref.Step, ref.At)
	}
	return all
}

var traceArgs = map[string]approval.Argument{
	"text": {Type: facts.TypeText}, "path": {Type: facts.TypePath}, "n": {Type: facts.TypeNumber}, "list": {Type: facts.TypeList},
	"to": {Type: facts.TypeRecipients},
}

// randomSteps are calls, some of them in loops, with texts that look like the card's own.
func randomSteps(t *rapid.T) (steps []approval.Step) {
	piece := rapid.SampledFrom([]string{
		"a", "b", " ", "   ", "\n", "\"", "\\", "‹…›", "›", "│ x", ", ", "in turn: ", "step 1: pay", "\u202e", "␠{4}", "\t", "⚠ step 1 differs in n from the others, which follow:", "5", "[1]", "е",
		"the result of step 1",
	})
	text := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 0, 6).Draw(t, "pieces"), "") })
	value := func(name string, i int) any {
		switch name {
		case "n":
			return rapid.IntRange(0, 3).Draw(t, "n")
		case "list":
			return rapid.SliceOfN(text, 0, 3).Draw(t, "list")
		case "to":
			return rapid.SampledFrom([]string{"a@example.org", "b@example.org", "c@example.com"}).Draw(t, "to")
		case "path":
			return "/" + text.Draw(t, "path")
		}
		if i > 0 && rapid.IntRange(0, 4).Draw(t, "opaque") == 0 {
			return approval.ResultRef{Step: rapid.IntRange(1, i).Draw(t, "of"), At: rapid.SampledFrom([]string{"", "/id", "/a b\"‹"}).Draw(t, "at")}
		}
		if rapid.Bool().Draw(t, "long") {
			return "a long text that all of these calls have\nin common, \"‹x› " + text.Draw(t, "text") + "\n\nAnn\n"
		}
		return text.Draw(t, "text")
	}
	for range rapid.IntRange(0, 5).Draw(t, "loops") {
		times := rapid.IntRange(1, 9).Draw(t, "times")
		var body []approval.Step
		for range rapid.IntRange(1, 3).Draw(t, "calls") {
			tool := rapid.SampledFrom([]string{"pay", "send", "fetch"}).Draw(t, "tool")
			names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"text", "path", "n", "list", "to"}), 0, 3, rapid.ID[string]).Draw(t, "names")
			var args []any
			for _, name := range names {
				args = append(args, name, value(name, 0))
			}
			s := call(tool, "", traceArgs, args...)
			s.Try = rapid.Bool().Draw(t, "try")
			body = append(body, s)
		}
		for range times {
			for _, s := range body {
				if names := slices.Sorted(maps.Keys(argsOf(&s))); len(names) > 0 && rapid.IntRange(0, 2).Draw(t, "changes") == 0 {
					s = with(s, rapid.SampledFrom(names).Draw(t, "name"), func(name string) any { return value(name, len(steps)) })
				}
				steps = append(steps, s)
			}
		}
	}
	return steps
}

// with is a step with another value of an argument.
func with(s approval.Step, name string, value func(string) any) approval.Step {
	var data map[string]any
	d := json.NewDecoder(strings.NewReader(string(s.Data)))
	d.UseNumber()
	if err := d.Decode(&data); err != nil {
		panic(err)
	}
	var args []any
	for k, v := range data {
		if k != name {
			args = append(args, k, v)
		}
	}
	changed := call(s.Tool, s.Capability, s.Declared, append(args, name, value(name))...)
	changed.Try = s.Try
	return changed
}

// traceReader reads the calls of a card in English, by its lines alone.
type traceReader struct {
	lines []string
	at    int
}

type readCall struct {
	tool string
	try  bool
	args map[string]string
}

var (
	headLine   = regexp.MustCompile(`^steps? ([0-9, …-]+): ([a-z_]+)(, \d+ times)?(, the program goes on if it fails)?$`)
	differLine = regexp.MustCompile(`^⚠ step (\d+) differs in [a-z]+ from the others, which follow:$`)
	turnLine   = regexp.MustCompile(`^([a-z]+|‹…›), in turn: (.*)$`)
	butLine    = regexp.MustCompile(`^([a-z]+), the same but for ‹…›:$`)
	listLine   = regexp.MustCompile(`^([a-z]+) \((\d+)\):$`)
	blockLine  = regexp.MustCompile(`^([a-z]+):$`)
	valueLine  = regexp.MustCompile(`^([a-z]+): (.*)$`)
	resultText = regexp.MustCompile(`^‹(?:(".*") of )?the result of (step (\d+)|the step before|the step (\d+) steps before)›`)
)

func (r *traceReader) peek() string {
	if r.at == len(r.lines) {
		return ""
	}
	return r.lines[r.at]
}

func (r *traceReader) read(n int) (calls []readCall, err error) {
	calls = make([]readCall, n)
	if n == 0 {
		return calls, nil
	}
	for r.at = 1; r.at < len(r.lines); {
		m := headLine.FindStringSubmatch(r.peek())
		if m == nil {
			return nil, fmt.Errorf("no head of a block: %q", r.peek())
		}
		r.at++
		steps := numbersIn(m[1])
		for _, k := range steps {
			calls[k-1] = readCall{m[2], m[4] != "", map[string]string{}}
		}
		differs := map[string]bool{}
		for r.at < len(r.lines) && !headLine.MatchString(r.peek()) {
			if strings.HasPrefix(r.peek(), "· ") || strings.HasPrefix(r.peek(), "⚠ example.com: ") {
				r.at++
				continue
			}
			of := steps
			if m := differLine.FindStringSubmatch(r.peek()); m != nil {
				k, _ := strconv.Atoi(m[1])
				of = []int{k}
				r.at++
			}
			name, values, err := r.arg(of)
			if err != nil {
				return nil, err
			}
			for i, k := range of {
				if key := fmt.Sprint(k, name); !differs[key] {
					calls[k-1].args[name] = values[i]
					differs[key] = len(of) == 1
				}
			}
		}
	}
	return calls, nil
}

func numbersIn(s string) (all []int) {
	if from, to, ok := strings.Cut(s, " … "); ok {
		first := numbersIn(from)
		last, _ := strconv.Atoi(to)
		for k := first[0]; k <= last; k += first[1] - first[0] {
			all = append(all, k)
		}
		return all
	}
	for part := range strings.SplitSeq(s, ", ") {
		from, to, ranged := strings.Cut(part, "-")
		a, _ := strconv.Atoi(from)
		b := a
		if ranged {
			b, _ = strconv.Atoi(to)
		}
		for ; a <= b; a++ {
			all = append(all, a)
		}
	}
	return all
}

// bars are the lines of a block, from here.
func (r *traceReader) bars() (lines []string) {
	for ; strings.HasPrefix(r.peek(), bar); r.at++ {
		lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(r.peek(), bar), " "))
	}
	return lines
}

// arg reads an argument of these steps: its value in each.
func (r *traceReader) arg(of []int) (name string, values []string, err error) {
	line := r.peek()
	r.at++
	same := func(v string) []string { return slices.Repeat([]string{v}, len(of)) }
	if m := turnLine.FindStringSubmatch(line); m != nil {
		values, err = tokensIn(m[2], of)
		return m[1], values, err
	}
	if m := butLine.FindStringSubmatch(line); m != nil {
		begin, end, _ := strings.Cut(strings.Join(r.bars(), "\n"), "‹…›")
		_, parts, err := r.arg(of)
		if err != nil {
			return "", nil, err
		}
		for i, part := range parts {
			middle, _ := strconv.Unquote(part)
			a, errA := unescape(strings.ReplaceAll(begin, "\n", `\n`))
			b, errB := unescape(strings.ReplaceAll(end, "\n", `\n`))
			if errA != nil || errB != nil {
				return "", nil, fmt.Errorf("not escaped: %q %q", begin, end)
			}
			parts[i] = strconv.Quote(a + middle + b)
		}
		return m[1], parts, nil
	}
	if m := listLine.FindStringSubmatch(line); m != nil {
		var items []string
		for _, l := range r.bars() {
			text, err := unescape(strings.TrimSuffix(strings.TrimPrefix(l, `"`), `"`))
			if err != nil {
				return "", nil, err
			}
			encoded, _ := json.Marshal(text)
			items = append(items, string(encoded))
		}
		return m[1], same("[" + strings.Join(items, ",") + "]"), nil
	}
	if m := blockLine.FindStringSubmatch(line); m != nil {
		text, err := unescape(strings.Join(r.bars(), `\n`))
		return m[1], same(strconv.Quote(text)), err
	}
	m := valueLine.FindStringSubmatch(line)
	switch {
	case m == nil:
		return "", nil, fmt.Errorf("no argument: %q", line)
	case strings.HasPrefix(m[2], `"`) || strings.HasPrefix(m[2], "‹"):
		for _, k := range of {
			one, err := tokensIn(m[2], []int{k})
			if err != nil {
				return "", nil, err
			}
			values = append(values, one[0])
		}
		return m[1], values, nil
	case m[1] == "n":
		return m[1], same(m[2]), nil
	}
	text, err := unescape(m[2])
	return m[1], same(strconv.Quote(text)), err
}

// tokensIn reads the values of these steps from a line.
func tokensIn(s string, of []int) (values []string, err error) {
	for i, k := range of {
		if i > 0 {
			if !strings.HasPrefix(s, ", ") {
				return nil, fmt.Errorf("no comma: %q", s)
			}
			s = s[2:]
		}
		var token, v string
		switch {
		case strings.HasPrefix(s, `"`):
			token = quotedIn(s)
			text, err := unescape(token[1 : len(token)-1])
			if err != nil {
				return nil, err
			}
			v = strconv.Quote(text)
		case strings.HasPrefix(s, "‹"):
			token = s[:strings.Index(s, "›")+len("›")]
			m := resultText.FindStringSubmatch(token)
			if m == nil {
				return nil, fmt.Errorf("no result: %q", s)
			}
			step, at := k-1, ""
			if n := m[3] + m[4]; n != "" {
				step, _ = strconv.Atoi(n)
				if m[4] != "" {
					step = k - step
				}
			}
			if m[1] != "" {
				if at, err = unescape(m[1][1 : len(m[1])-1]); err != nil {
					return nil, err
				}
			}
			v = fmt.Sprintf("result %d %q", step, at)
		case strings.HasPrefix(s, "["):
			end, quoted := 0, false
			for ; quoted || s[end] != ']'; end++ {
				switch s[end] {
				case '\\':
					end++
				case '"':
					quoted = !quoted
				}
			}
			token = s[:end+1]
			runs := regexp.MustCompile(`␠\{(\d+)\}`).ReplaceAllStringFunc(token, func(m string) string {
				n, _ := strconv.Atoi(strings.Trim(m, "␠{}"))
				return strings.Repeat(" ", n)
			})
			v = regexp.MustCompile(`\\u\{([0-9A-F]+)\}`).ReplaceAllStringFunc(runs, func(m string) string {
				n, _ := strconv.ParseInt(strings.Trim(m, `\u{}`), 16, 32)
				return string(rune(n))
			})
		default:
			token = s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
			v = token
		}
		values, s = append(values, v), s[len(token):]
	}
	if s != "" {
		return nil, fmt.Errorf("left: %q", s)
	}
	return values, nil
}

// quotedIn is the text in quotation marks that s begins with.
func quotedIn(s string) string {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i+1]
		}
	}
	return s
}
