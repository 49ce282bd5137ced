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
	types := argTypes{p.Runs.Args, nil}
	if p.ToolName == "" {
		types.release = facts.ReleaseArgs(p.ActionType)
	}
	places := runPlaces(p.Runs)
	for i := range leaves {
		l := &leaves[i]
		if l.mask = modeOf(l, types.of(l.top)); places[l.top] {
			l.mask = maskNever
		}
	}
	fixPlaces(leaves)
	add := func(name, text string, mask maskMode, prose bool) {
		if text != "" {
			l := newLeaf(name, text)
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
	for _, l := range walk("metadata", p.Metadata) {
		l.mask, l.prose = maskText, true
		leaves = append(leaves, l)
	}
	return append(leaves, nameLeaves(p.ToolName, p.ActionType, p.SessionID)...)
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

// argTypes are the types of the members of request_data, as declared or as requests without a tool
// usually have them.
type argTypes struct{ declared, release map[string]approval.Argument }

// of is the type of a member. One without a type that has the name of a command is one.
func (t argTypes) of(name string) string {
	a, known := t.declared[name]
	for _, amount := range t.declared {
		if known && amount.Currency == name {
			return facts.TypeAmount // a part of the amount
		}
	}
	if !known {
		a, known = t.release[name]
	}
	switch {
	case known:
		return cmp.Or(a.Type, facts.TypeText)
	case name == "command" || name == "cmd" || name == "argv":
		return facts.TypeCommand
	}
	return facts.TypeJSON
}

// isPlaceType says whether values of this type name who or what a request goes to.
func isPlaceType(argType string) bool {
	switch argType {
	case facts.TypeRecipients, facts.TypeHost, facts.TypeURL, facts.TypePath, facts.TypeAmount:
		return true
	}
	return false
}

func modeOf(l *leaf, argType string) maskMode {
	if l.key || l.number {
		return maskNever
	}
	switch argType {
	case facts.TypeJSON:
		if l.isPlace() {
			return maskNever
		}
		return maskText
	case facts.TypeText, facts.TypeList, facts.TypeTable:
		return maskText
	case facts.TypeDiff:
		return maskDiff
	case facts.TypeProgram:
		return maskNamed
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
		for i, l := range argv {
			if i > 0 {
				l.before = texts[i-1]
			}
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
		if l.mask != maskText {
			b.WriteString(l.shown + "\n")
		}
	}
	return b.String()
}
