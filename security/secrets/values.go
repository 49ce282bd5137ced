package secrets

import (
	"cmp"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// cardLeaves are the texts of a request that a card shows.
func cardLeaves(p *approval.Pending) []leaf {
	leaves := walk("request_data", p.RequestData)
	release := map[string]approval.Argument{}
	if p.ToolName == "" {
		release = facts.ReleaseArgs(p.ActionType)
	}
	for i := range leaves {
		l := &leaves[i]
		l.mask = modeOf(l, argType(p, release, l.top))
	}
	fixPlaces(leaves)
	add := func(name, text string, mask maskMode, prose bool) {
		if text != "" {
			l := newLeaf(name, "", text)
			l.mask, l.prose = mask, prose
			leaves = append(leaves, l)
		}
	}
	for i, element := range p.Runs.Argv {
		add("argv", operatorText(element), modeIf(i > 0), false)
	}
	for _, h := range p.Runs.Headers {
		add("header", h.Value, maskText, false)
	}
	add("url", operatorText(p.Runs.URL), maskNever, false)
	add("body", operatorText(p.Runs.Body), maskText, false)
	add("target", p.Target, maskNever, false)
	add("summary", p.Summary, maskText, true)
	add("title", p.Agent.Title, maskText, true)
	add("preview", p.Agent.Preview, maskText, true)
	add("rationale", p.Agent.Rationale, maskText, true)
	for _, o := range p.Options {
		add("options", o, maskText, true)
	}
	return leaves
}

// operatorText is what the operator wrote of a part of the invocation.
func operatorText(parts []approval.Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Arg == "" {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func modeIf(maskable bool) maskMode {
	if maskable {
		return maskArg
	}
	return maskNever
}

// argType is the type of a member of request_data, as declared or as requests without
// a tool usually have it. Any other that has the name of a command is one.
func argType(p *approval.Pending, release map[string]approval.Argument, name string) string {
	a, known := p.Runs.Args[name]
	for _, amount := range p.Runs.Args {
		if known && amount.Currency == name {
			return facts.TypeAmount // a part of the amount
		}
	}
	if !known {
		a, known = release[name]
	}
	switch {
	case known:
		return cmp.Or(a.Type, facts.TypeText)
	case name == "command" || name == "cmd" || name == "argv":
		return facts.TypeCommand
	}
	return facts.TypeJSON
}

func modeOf(l *leaf, argType string) maskMode {
	if l.key || l.number {
		return maskNever
	}
	switch argType {
	case facts.TypeText, facts.TypeJSON, facts.TypeList, facts.TypeTable, facts.TypeDiff, facts.TypeProgram:
		return maskText
	case facts.TypeCommand:
		return commandMode(l)
	}
	return maskNever
}

// fixPlaces sees to it that no element of an argv is masked that names a program, a file that
// is written, or a host.
func fixPlaces(leaves []leaf) {
	argvs := map[string][]*leaf{} // by member
	for i := range leaves {
		if l := &leaves[i]; l.mask == maskArg || l.mask == maskNever && l.isProgram() {
			argvs[l.top] = append(argvs[l.top], l)
		}
	}
	for _, argv := range argvs {
		texts := make([]string, len(argv))
		for i, l := range argv {
			texts[i] = l.shown
		}
		places := facts.ParseArgv(texts).Commands[0].Places()
		for _, l := range argv {
			if slices.ContainsFunc(places, func(w facts.Word) bool { return w.Text == l.shown }) {
				l.mask = maskNever
			}
		}
	}
}

// isProgram says whether l is the first element of a list that is a member.
func (l *leaf) isProgram() bool { return !l.key && l.depth == 2 && l.first }

// commandMode: a string is a line for a shell, a list is an argv whose first element is
// the program.
func commandMode(l *leaf) maskMode {
	switch {
	case l.depth == 1:
		return maskLine
	case l.depth == 2 && l.first:
		return maskNever
	}
	return maskArg
}

// fixedTexts joins the values that are never masked.
func fixedTexts(leaves []leaf) string {
	var b strings.Builder
	for _, l := range leaves {
		if l.mask == maskNever || l.mask == maskLine || l.mask == maskArg {
			b.WriteString(l.shown + "\n")
		}
	}
	return b.String()
}

// allowed drops the tokens that stand where a command may not be masked.
func allowed(l *leaf, all []token) []token {
	var words [][2]int
	switch {
	case l.mask == maskText || len(all) == 0:
		return all
	case l.mask == maskLine:
		words = arguments(l.shown)
	case !strings.ContainsAny(l.shown, operators):
		words = [][2]int{{0, len(l.shown)}}
	}
	return slices.DeleteFunc(all, func(t token) bool {
		return !slices.ContainsFunc(words, func(w [2]int) bool {
			return w[0] <= t.Start && t.End <= w[1]
		})
	})
}

// operators have a meaning for a shell.
const operators = ";|&<>()$`\\{}!*?[]#\n"

// arguments are the words of the simple commands in a line that are neither a place nor an
// assignment nor a script, and in which nothing has a meaning for a shell.
func arguments(line string) (words [][2]int) {
	shell, err := facts.ParseCommand(line)
	if err != nil || shell.Unread {
		return nil
	}
	scripts := map[int]bool{} // commands with a word that is a script
	for _, c := range shell.Commands {
		if c.How == facts.Script {
			scripts[c.In] = true
		}
	}
	for i, c := range shell.Commands {
		if scripts[i] || len(c.Words) == 0 {
			continue
		}
		places := c.Places()
		for _, w := range c.Words[1:] {
			if slices.Contains(places, w) {
				continue
			}
			if w.Fixed && w.End > w.Start && !strings.ContainsAny(line[w.Start:w.End], operators) {
				words = append(words, [2]int{w.Start, w.End})
			}
		}
	}
	return words
}
