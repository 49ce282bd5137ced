package config

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

const argsKeyHint = `args = { to = "recipients", body = "text", amount = { type = "amount", currency = "EUR" }, ` +
	`dry_run = { type = "bool", optional = true } }`

// argumentKeys are the keys of an argument that is more than its type.
func argumentKeys() []Key {
	name := must("name of an argument", validArgument, "must name an argument")
	return []Key{
		{Name: "type", Default: `"text"`, Help: strings.Join(facts.ArgTypes(), ", "), valueType: word(facts.ArgTypes()...)},
		{Name: "currency", Example: `"EUR"`, Help: "of an amount: a code, or the argument that names it", Hint: `currency = "EUR"`, valueType: name, instead: true},
		{Name: "writes", Example: `"path"`, Help: "of a text: the path argument whose complete content it becomes", Hint: `writes = "path"`, valueType: name, instead: true},
		{Name: "replaces", Example: `"old"`, Help: "of a text: the text argument in whose place it comes; a card compares them", Hint: `replaces = "old"`, valueType: name, instead: true},
		{Name: "optional", Default: "false", Help: "true: a request may leave it out", valueType: flag(), instead: true},
	}
}

// argumentType is a type, or a table with more.
func argumentType() valueType {
	t := word(facts.ArgTypes()...)
	t.kinds, t.text = []kind{text, table}, "type of the argument, or a table with more"
	return t
}

// args reads the declared arguments of a tool, nil if it has no args.
func (s *section) args() map[string]approval.Argument {
	sub := s.table("args")
	if sub == nil {
		return nil
	}
	all := map[string]approval.Argument{}
	for _, name := range sub.node.order {
		switch more := sub.tables[name]; {
		case !validArgument(name):
			sub.fail(sub.node.children[name].key, "", "", "the name of an argument has 1 to 200 visible ASCII characters")
		case more != nil:
			s.failed = s.failed || more.failed
			all[name] = approval.Argument{
				Type: more.text("type"), Currency: more.text("currency"),
				Writes: more.text("writes"), Replaces: more.text("replaces"), Optional: more.flag("optional"),
			}
		default:
			all[name] = approval.Argument{Type: sub.text(name)}
		}
	}
	s.failed = s.failed || sub.failed
	return all
}

// checkArgs reports arguments that do not fit together, each with the line to write.
func (s *section) checkArgs(t approval.Tool) {
	if s.failed {
		return
	}
	for _, name := range sortedKeys(t.Args) {
		s.checkArgument(t, name)
	}
	for _, template := range facts.Templates(t) {
		for _, name := range template.Names {
			s.checkTemplate(t, template.Key, name)
		}
	}
	args := facts.Arguments(t)
	if _, known := args[t.Size]; t.Size != "" && !known {
		hint := didYouMean(t.Size, sortedKeys(args), "remove it, or write "+argsLine(t, t.Size, approval.Argument{}))
		s.fail(s.position("size"), "size", hint, "size names no argument of the tool")
	}
}

func (s *section) checkTemplate(t approval.Tool, key, name string) {
	a, declared := facts.Arguments(t)[name]
	switch {
	case !declared:
		line := argsLine(t, name, approval.Argument{})
		s.fail(s.position(key), key, line, "{%s} is not an argument of the tool", visible(name))
	case a.Optional:
		a.Optional = false
		s.fail(s.position(key), key, argsLine(t, name, a), "{%s} is optional: a request may leave it out", visible(name))
	}
}

func (s *section) checkArgument(t approval.Tool, name string) {
	a, at := t.Args[name], "args."+name
	fail := func(key, text string, correct approval.Argument) {
		s.fail(s.position(at+"."+key), at+"."+key, argsLine(t, name, correct), "%s", text)
	}
	_, isArg := t.Args[a.Currency]
	right := a
	switch {
	case a.Writes != "" && a.Type != facts.TypeText:
		right.Writes = ""
		fail("writes", "writes belongs to a text", right)
	case a.Writes != "" && t.Args[a.Writes].Type != facts.TypePath:
		right.Writes = cmp.Or(firstOf(t.Args, facts.TypePath), "path")
		fail("writes", "writes must name an argument of the type path", right)
	case a.Replaces != "" && (a.Type != facts.TypeText || a.Writes != ""):
		right.Replaces = ""
		fail("replaces", "replaces belongs to a text that writes nothing", right)
	case a.Replaces != "" && (a.Replaces == name || t.Args[a.Replaces].Type != facts.TypeText):
		right.Replaces = "old"
		fail("replaces", "replaces must name another argument of the type text", right)
	case a.Currency != "" && a.Type != facts.TypeAmount:
		right.Currency = ""
		fail("currency", "currency belongs to an amount", right)
	case a.Currency != "" && !isArg && !isCurrency(a.Currency):
		right.Currency = "EUR"
		fail("currency", "currency must be three capital letters, or name an argument", right)
	case a.Type == facts.TypeProgram && firstOf(t.Args, facts.TypeProgram) != name:
		right.Type = facts.TypeText
		fail("type", "a tool has one program", right)
	}
}

func isCurrency(s string) bool {
	return len(s) == 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// firstOf is the first argument of a type, by name.
func firstOf(args map[string]approval.Argument, argType string) string {
	for _, name := range sortedKeys(args) {
		if args[name].Type == argType {
			return name
		}
	}
	return ""
}

// argsLine is the line that declares a tool's arguments with one of them changed. A path
// that it needs is added.
func argsLine(t approval.Tool, name string, a approval.Argument) string {
	args := maps.Clone(facts.Arguments(t))
	args[name] = a
	if _, known := args[a.Writes]; a.Writes != "" && !known {
		args[a.Writes] = approval.Argument{Type: facts.TypePath}
	}
	if _, known := args[a.Replaces]; a.Replaces != "" && !known {
		args[a.Replaces] = approval.Argument{Type: facts.TypeText}
	}
	var parts []string
	for _, name := range sortedKeys(args) {
		parts = append(parts, tomlKey(name)+" = "+argText(args[name]))
	}
	return "args = { " + strings.Join(parts, ", ") + " }"
}

func argText(a approval.Argument) string {
	kind := strconv.Quote(cmp.Or(a.Type, facts.TypeText))
	more := ""
	if a.Currency != "" {
		more += ", currency = " + strconv.Quote(a.Currency)
	}
	if a.Writes != "" {
		more += ", writes = " + strconv.Quote(a.Writes)
	}
	if a.Replaces != "" {
		more += ", replaces = " + strconv.Quote(a.Replaces)
	}
	if a.Optional {
		more += ", optional = true"
	}
	if more == "" {
		return kind
	}
	return "{ type = " + kind + more + " }"
}

func tomlKey(name string) string {
	if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == "" {
		return name
	}
	return strconv.Quote(name)
}

// isGone reports a key of a tool that earlier versions had, with the line to paste.
func (s *section) isGone(n *node, key string) bool {
	if parent, name := cutLast(s.path); parent != "tools" || name == "" || key != "facts" && key != "program" {
		return false
	}
	s.fail(n.key, key, goneLine(s.node), "%s is now part of args, which declares every argument", key)
	return true
}

// goneLine is what a tool with facts and program writes instead: their arguments with
// types, and the names in its templates as text.
func goneLine(tool *node) string {
	args := map[string]approval.Argument{}
	for _, text := range texts(tool) {
		for _, name := range facts.NamesIn(text) {
			args[name] = approval.Argument{}
		}
	}
	if n := tool.children["facts"]; n != nil {
		for _, fact := range n.order {
			for _, name := range texts(n.children[fact]) {
				args[name] = approval.Argument{Type: goneType(fact, name)}
			}
		}
	}
	for _, name := range texts(tool.children["program"]) {
		args[name] = approval.Argument{Type: facts.TypeProgram}
	}
	for name := range args {
		return argsLine(approval.Tool{Args: args}, name, args[name])
	}
	return argsKeyHint
}

// goneType is the type of an argument that was declared as a fact.
func goneType(fact, name string) string {
	switch {
	case fact == "recipient":
		return facts.TypeRecipients
	case fact == "host" && facts.CanonicalArg(name) == "host" && strings.TrimSuffix(name, "s") != "host":
		return facts.TypeURL
	case slices.Contains(facts.ArgTypes(), fact):
		return fact
	}
	return facts.TypeText
}

// texts lists the strings in a node, at any depth.
func texts(n *node) (all []string) {
	if n == nil {
		return nil
	}
	if n.kind == text {
		all = append(all, n.text)
	}
	for _, item := range n.items {
		all = append(all, texts(item)...)
	}
	for _, name := range n.order {
		all = append(all, texts(n.children[name])...)
	}
	return all
}
