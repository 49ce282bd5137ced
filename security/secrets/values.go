package secrets

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/permesso-dev/permesso/approval"
)

// cardLeaves are the texts of a request that a card shows.
func cardLeaves(p *approval.Pending) []leaf {
	leaves := walk("request_data", p.RequestData)
	for i := range leaves {
		l := &leaves[i]
		l.mask = modeOf(l, argType(p, l.top))
	}
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

// argType is the declared type of a member of request_data.
func argType(p *approval.Pending, name string) string {
	if a, declared := p.Runs.Args[name]; declared {
		if a.Type == "" {
			return "text"
		}
		return a.Type
	}
	switch name {
	case "command", "cmd", "argv":
		return "command"
	}
	return "json"
}

func modeOf(l *leaf, argType string) maskMode {
	if l.key || l.number {
		return maskNever
	}
	switch argType {
	case "text", "json", "list", "table", "diff", "program":
		return maskText
	case "command":
		return commandMode(l)
	}
	return maskNever
}

// commandMode: a string is a line for a shell, a list is an argv whose first element is
// the program.
func commandMode(l *leaf) maskMode {
	switch l.path {
	case "/" + l.top:
		return maskLine
	case "/" + l.top + "/0":
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
		return t.named || !slices.ContainsFunc(words, func(w [2]int) bool {
			return w[0] <= t.Start && t.End <= w[1]
		})
	})
}

// operators have a meaning for a shell.
const operators = ";|&<>()$`\\{}!*?[]#\n"

// arguments are the words of the simple commands in a line that are neither a program
// nor an assignment, and in which nothing has a meaning for a shell.
func arguments(line string) (words [][2]int) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return nil
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		for _, w := range call.Args[1:] {
			from, to := int(w.Pos().Offset()), int(w.End().Offset())
			if !strings.ContainsAny(line[from:to], operators) {
				words = append(words, [2]int{from, to})
			}
		}
		return true
	})
	return words
}
