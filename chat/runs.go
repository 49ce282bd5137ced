package chat

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// maxInline is how long a value may be, in characters, to stand inside the invocation.
const maxInline = 80

// invocation renders what would run. A short value stands where it is used. Any other is
// named there, as ‹name›, and follows below. So each value stands once.
type invocation struct {
	renderer
	inline map[string]bool // the arguments that stand where they are used
}

// runs is everything that would run, from the pending alone: the finished invocation,
// then the arguments by their types. withheld are the kinds of the secrets because of which
// a part of it is not shown.
func (r renderer) runs() (lines []Line, withheld []string) {
	r.held = &withheld
	lines = r.allRuns()
	return lines, withheld
}

func (r renderer) allRuns() []Line {
	if r.p.Plan != nil {
		return r.trace()
	}
	fields, err := codec.Fields(r.p.RequestData)
	if err != nil {
		return []Line{{LineWarn, Format(r.Unreadable, "raw", r.text(string(r.p.RequestData)))}}
	}
	v := invocation{r, map[string]bool{}}
	lines := v.handler(len(fields) > 0)
	for _, f := range fields {
		if !v.inline[f.Name] && !v.isReplaced(f, fields) {
			typed := r.typed(f.Name, r.argument(f), f.Value)
			if !r.step { // a program may have more of them than its warnings
				typed = slices.DeleteFunc(typed, r.isLifted(f))
			}
			lines = append(lines, typed...)
		}
	}
	if len(lines) == 0 && r.p.Type != approval.TypeQuestion {
		return []Line{{LineText, r.NoDetails}}
	}
	return lines
}

// isLifted tells the lines that stand with the warnings: what a command line does that is
// serious.
func (r renderer) isLifted(f codec.Field) func(Line) bool {
	isCommand := r.argument(f).Type == facts.TypeCommand
	return func(l Line) bool { return isCommand && l.Kind == LineWarn && strings.HasPrefix(l.Text, "⚠ ") }
}

// lifted are the warnings about values: those lines, and how many recipients are outsiders
// unless the summary says so.
func (r renderer) lifted() (lines []string) {
	people := map[string][]approval.Raw{}
	var names, links []string
	for _, c := range r.calls() {
		fields, _ := codec.Fields(c.p.RequestData) // on an error there are none
		for _, f := range fields {
			switch a := c.argument(f); a.Type {
			case facts.TypeCommand:
				for _, l := range c.typed(f.Name, a, f.Value) {
					if c.isLifted(f)(l) {
						lines = append(lines, l.Text)
					}
				}
			case facts.TypeRecipients:
				if !r.isSummed(f) {
					names, people[f.Name] = append(names, f.Name), append(people[f.Name], f.Value)
				}
			}
		}
		links = append(links, c.links()...)
	}
	for _, name := range distinct(names) {
		lines = append(lines, nonEmpty(r.outsiders(name, people[name]))...)
	}
	return r.few(append(lines, links...))
}

// links says which paths lead to another place on this machine.
func (r renderer) links() (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(r.p.Ruling.Links)) {
		message := r.Values.LeadsTo
		if r.p.Ruling.Links[name] == "" {
			message = r.Values.LeadsNowhere
		}
		lines = append(lines, Format(message, "path", r.word(name), "leads", r.word(r.p.Ruling.Links[name])))
	}
	return lines
}

// isSummed reports whether the summary says how many recipients are outsiders.
func (r renderer) isSummed(f codec.Field) bool {
	return slices.ContainsFunc(r.p.SummaryParts, func(p approval.Part) bool { return p.Arg == f.Name })
}

// outsiders says how many recipients in the values of an argument are outsiders, "" if none is.
func (r renderer) outsiders(name string, values []approval.Raw) string {
	t := typedValue{renderer: r, name: name}
	var all []facts.Recipient
	for _, v := range values {
		texts, _, _ := textsOf(v)
		for _, one := range recipientsIn(texts) {
			if r.p.Plan == nil || !slices.Contains(all, one) { // several steps may have the same
				all = append(all, one)
			}
		}
	}
	groups := t.groups(all)
	if !slices.ContainsFunc(groups, func(g group) bool { return g.outside }) {
		return ""
	}
	return "⚠ " + r.name(name) + ": " + t.people(len(all), groups)
}

// argument is the type of a field. What the tool does not declare is shown as it is.
func (r renderer) argument(f codec.Field) approval.Argument {
	args := r.p.Runs.Args
	if r.p.ToolName == "" {
		args = facts.ReleaseArgs(r.p.ActionType)
	}
	if a, declared := args[f.Name]; declared {
		return a
	}
	// A text that looks like JSON is shown as the JSON string that it is.
	s, ok := f.Text()
	if ok && !strings.HasPrefix(s, "{") && !strings.HasPrefix(s, "[") && !json.Valid([]byte(s)) {
		return approval.Argument{Type: facts.TypeText}
	}
	return approval.Argument{Type: facts.TypeJSON}
}

// handler is the invocation itself, no line for a request that runs nothing here.
func (v invocation) handler(hasArgs bool) (lines []Line) {
	x := v.p.Runs
	input := v.Stdin
	switch x.Kind {
	case approval.HandlerCommand:
		lines = v.command(v.Invoked)
	case approval.HandlerHTTP:
		input = v.Body
		lines = append(lines, Line{LineCode, Format(v.Invoked, "what", Escape(x.Method)+" "+v.join(x.URL))})
		lines = append(lines, v.headers()...)
		if len(x.Body) > 0 {
			lines = append(lines, Line{LineCode, Format(input, "what", v.template(x.Body))})
		}
	case approval.HandlerMCP:
		input = v.Body
		lines = append(lines, Line{LineCode, Format(v.Calls, "tool", Escape(x.Tool), "server", Escape(x.Server))})
		lines = append(lines, v.command(v.ServerRuns)...)
		if len(x.URL) > 0 {
			lines = append(lines, Line{LineCode, Format(v.ServerAt, "what", v.join(x.URL))})
		}
		lines = append(lines, v.headers()...)
	case approval.HandlerAgent:
		by := v.ByAgent
		if approval.ByGateway(v.p.ToolName) {
			by = v.ByGateway
		}
		lines = append(lines, Line{LineText, by})
	}
	if x.WithArgs && hasArgs {
		lines = append(lines, Line{LineText, Format(input, "what", v.AsJSON)})
	}
	return lines
}

// command is a command line and its folder, no line if there is none. first has its program.
func (v invocation) command(first string) (lines []Line) {
	x := v.p.Runs
	for i, element := range x.Argv {
		if i == 0 {
			lines = append(lines, Line{LineCode, Format(first, "what", v.join(element))})
			continue
		}
		lines = append(lines, Line{LineCode, withBar(v.join(element))})
	}
	if x.Dir != "" {
		lines = append(lines, Line{LineText, Format(v.Dir, "dir", Escape(x.Dir))})
	}
	return lines
}

func (v invocation) headers() (lines []Line) {
	for _, h := range v.p.Runs.Headers {
		lines = append(lines, Line{LineCode, withBar(v.header(h))})
	}
	return lines
}

func (v invocation) header(h approval.Header) string {
	name := Escape(h.Name) + ": "
	if h.File == "" {
		return name + Escape(h.Value)
	}
	content := hidden{
		Span:    Span{len(h.Value), len(h.Value) + len(h.File), ""},
		instead: Format(v.FileContent, "file", Escape(h.File)),
	}
	return name + v.oneLine(h.Value+h.File, []hidden{content})
}

// join is one element of an argv, or a URL, on one line. A value that alone stands there
// as it is needs no line of its own.
func (v invocation) join(parts []approval.Part) string {
	names := 0
	for _, p := range parts {
		if p.Arg != "" {
			names++
		}
	}
	var text strings.Builder
	var covered []hidden
	for _, p := range parts {
		start := text.Len()
		switch {
		case p.Arg == "":
		case v.stands(p):
			v.inline[p.Arg] = v.inline[p.Arg] || names == 1 && v.isVerbatim(p)
			for _, h := range v.inlineSecrets(p) {
				h.Start, h.End = h.Start+start, h.End+start
				covered = append(covered, h)
			}
		default:
			p.Text = v.reference(p.Arg)
			covered = append(covered, hidden{Span: Span{start, start + len(p.Text), ""}, instead: p.Text})
		}
		text.WriteString(p.Text)
	}
	return v.masked(text.String(), covered, inLine)[0]
}

// template is a JSON body in which all values are named.
func (v invocation) template(parts []approval.Part) string {
	var text strings.Builder
	for _, p := range parts {
		if p.Arg != "" {
			text.WriteString(v.reference(p.Arg))
			continue
		}
		text.WriteString(escape(p.Text, inJSON))
	}
	return text.String()
}

func (v invocation) reference(name string) string {
	return string(maskBegin) + Escape(name) + string(maskEnd)
}

// stands reports whether a value stands where it is used: it is short, on one line, and
// of a type that has only one form.
func (v invocation) stands(p approval.Part) bool {
	switch v.p.Runs.Args[p.Arg].Type {
	case "", facts.TypeText, facts.TypePath, facts.TypeTable, facts.TypeNumber, facts.TypeBool:
	default:
		return false
	}
	return clip(p.Text, maxInline) == p.Text && !strings.Contains(p.Text, "\n")
}

// isVerbatim reports whether a value stands in the invocation as it is: a URL may have
// another form of it.
func (v invocation) isVerbatim(p approval.Part) bool {
	f, ok := v.field(p.Arg)
	s, isText := f.Text()
	return ok && (!isText || s == p.Text)
}

func (v invocation) field(name string) (codec.Field, bool) {
	fields, _ := codec.Fields(v.p.RequestData)
	for _, f := range fields {
		if f.Name == name {
			return f, true
		}
	}
	return codec.Field{}, false
}

// inlineSecrets are the secrets in a value that stands where it is used. A path is never
// masked.
func (v invocation) inlineSecrets(p approval.Part) []hidden {
	verbatim := v.isVerbatim(p)
	if verbatim && v.p.Runs.Args[p.Arg].Type != facts.TypePath {
		return v.secrets(p.Text)
	}
	value := p.Text
	if f, ok := v.field(p.Arg); ok && !verbatim {
		value, _ = f.Text()
	}
	if kind := v.withheld(value); kind != "" {
		return []hidden{{Span: Span{0, len(p.Text), kind}, withheld: true}}
	}
	return nil
}
