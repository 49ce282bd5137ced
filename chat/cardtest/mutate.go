package cardtest

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
)

func (r request) clone() request {
	r.data = r.data.clone()
	return r
}

// stringsOf lists the strings of a value.
func stringsOf(v *value) (all []*value) {
	v.walk(func(x *value) {
		if x.kind == 's' {
			all = append(all, x)
		}
	})
	return all
}

// lookalikes are texts that a card could show alike.
var lookalikes = [][2]string{
	{"\n", `\n`},
	{"\t", `\t`},
	{"\t", "    "},
	{"\u202e", `\u{202E}`},
	{"    ", "␠{4}"},
	{"    ", "\t"},
	{" ", "\u00a0"},
	{"\n", "\n│ "},
	{"\n", "\r\n"},
	{"\n", "\u2028"},
	{"a", "а"},
	{"", "\u200b"},
	{"", " "},
	{"", "\n"},
	{"", "\u0301"},
	{`"`, `\"`},
	{`\`, `\\`},
	{"  ", " "},
	{" ", "·"},
	{"\n", " "},
	{"<", "&lt;"},
	{"", "<b>"},
	{"‹", `\u{2039}`},
	{"\n", "⏎"},
	{"", `"`},
	{"", "›"},
	{"\n", "\n  "},
	{"\n", "\n+ "},
	{", ", `", "`},
	{"", "\ufeff"},
}

// mutant is a request that differs from r in something that is hard to show.
func (g generator) mutant(r request) request {
	m := r.clone()
	for try := 0; ; try++ {
		if g.change(&m) || try > 20 {
			break
		}
	}
	return m.write(g)
}

// change changes one thing, and reports whether it could.
func (g generator) change(r *request) bool {
	all := stringsOf(r.data)
	switch g.IntN(15) {
	case 0:
		return g.operator(r)
	case 1:
		return g.rename(r)
	case 2:
		return g.retype(r.data)
	case 3:
		return g.swapMembers(r.data)
	case 4:
		return g.secretSwap(all)
	case 14:
		return g.copyText(r, all)
	case 5:
		return g.regroup(r.data) || g.omit(r)
	}
	if len(all) == 0 {
		return false
	}
	x := pick(g, all...)
	switch g.IntN(6) {
	case 0, 1:
		x.text = g.oneCharacter(x.text)
	case 2:
		return g.moveByte(all)
	case 3:
		return g.toProse(r, x)
	default:
		return g.lookalike(x)
	}
	return true
}

// oneCharacter replaces, inserts or removes one character.
func (g generator) oneCharacter(s string) string {
	runes := []rune(s)
	at := g.IntN(len(runes) + 1)
	insert := pick(g, 'x', 'Q', '7', ' ', '/', '=', 'а', '\n', ';')
	switch {
	case at == len(runes) || g.IntN(4) == 0:
		return string(slices.Insert(runes, at, insert))
	case g.IntN(4) == 0:
		return string(slices.Delete(runes, at, at+1))
	}
	runes[at] = insert
	return string(runes)
}

// moveByte moves the last character of a string to the beginning of the next.
func (g generator) moveByte(all []*value) bool {
	if len(all) < 2 {
		return false
	}
	i := g.IntN(len(all) - 1)
	c, size := utf8.DecodeLastRuneInString(all[i].text)
	if size == 0 {
		return false
	}
	all[i].text = all[i].text[:len(all[i].text)-size]
	all[i+1].text = string(c) + all[i+1].text
	return true
}

// toProse moves the end of a value into the agent's text.
func (g generator) toProse(r *request, x *value) bool {
	runes := []rune(x.text)
	at := g.IntN(len(runes) + 1)
	r.prose.Rationale = string(runes[at:])
	x.text = string(runes[:at])
	return at < len(runes)
}

func (g generator) lookalike(x *value) bool {
	pair := pick(g, lookalikes...)
	from, to := pair[0], pair[1]
	if from != "" && g.IntN(2) == 0 {
		from, to = to, from
	}
	n := strings.Count(x.text, from)
	if n == 0 {
		return false
	}
	at := g.IntN(n)
	parts := strings.SplitAfterN(x.text, from, at+2)
	if from == "" || len(parts) < at+1 {
		runes := []rune(x.text)
		k := g.IntN(len(runes) + 1)
		x.text = string(runes[:k]) + to + string(runes[k:])
		return true
	}
	parts[at] = strings.TrimSuffix(parts[at], from) + to
	x.text = strings.Join(parts, "")
	return true
}

// operator changes the operator's part of the invocation.
func (g generator) operator(r *request) bool {
	h := &r.tool.Handler
	h.Argv = slices.Clone(h.Argv)
	switch {
	case h.Kind == approval.HandlerCommand && g.IntN(2) == 0:
		h.Argv[1] = pick(g, "-r", "-f", "", "-rf ", "x y", `"x"`)
	case h.Kind == approval.HandlerCommand:
		h.Dir = pick(g, "", "/srv/data", "/srv/data ", "/srv/other")
	case h.Kind == approval.HandlerMCP && len(h.Argv) > 0 && g.IntN(2) == 0:
		h.Argv[1] = pick(g, "stdio", "", "std io", "http")
	case h.Kind == approval.HandlerMCP:
		h.MCP = approval.MCP{Server: pick(g, "github", "jira-1"), Tool: pick(g, "create_issue", "create_issue ", "delete")}
	case h.Kind == approval.HandlerHTTP:
		h.HTTP.Method = pick(g, "POST", "PUT", "DELETE")
	default:
		return false
	}
	return true
}

// rename renames a member.
func (g generator) rename(r *request) bool {
	var objects []*value
	r.data.walk(func(x *value) {
		if x.kind == 'o' && len(x.names) > 0 && (x != r.data || r.tool.Name == "") {
			objects = append(objects, x)
		}
	})
	if len(objects) == 0 {
		return false
	}
	x := pick(g, objects...)
	i := g.IntN(len(x.names))
	name := pick(g, g.oneCharacter(x.names[i]), pick(g, names...), g.line())
	if x.get(name) != nil {
		return false
	}
	x.names[i] = name
	return true
}

// retype changes the type of a value, and not its text.
func (g generator) retype(data *value) bool {
	var all []*value
	data.walk(func(x *value) {
		if all = append(all, x); slices.Contains([]string{"5", "true"}, x.text) {
			all = append(all, x, x, x) // these have the same text as a number or a boolean
		}
	})
	x := pick(g, all...)
	switch {
	case x == data:
		return false
	case x.kind == 's' && g.IntN(3) == 0:
		*x = *list(str(x.text))
	case x.kind == 's':
		v, err := parse([]byte(x.text))
		if err != nil {
			return false
		}
		*x = *v
	default:
		*x = *str(x.json(nil))
	}
	return true
}

// swapMembers swaps the values of two members, or of two elements of a list.
func (g generator) swapMembers(data *value) bool {
	var all []*value
	data.walk(func(x *value) {
		if len(x.items) > 1 {
			all = append(all, x)
		}
	})
	if len(all) == 0 {
		return false
	}
	x := pick(g, all...)
	i, j := g.IntN(len(x.items)), g.IntN(len(x.items))
	x.items[i], x.items[j] = x.items[j], x.items[i]
	return i != j
}

// secretSwap puts a secret, or what a card shows of one, into a string.
func (g generator) secretSwap(all []*value) bool {
	if len(all) == 0 {
		return false
	}
	x := pick(g, all...)
	for _, word := range strings.Fields(x.text) {
		if len(word) >= 20 {
			x.text = strings.Replace(x.text, word, pick(g, "ghp_"+g.letters(36), "‹github-pat, 40 characters›", word+word), 1)
			return true
		}
	}
	x.text += "ghp_" + g.letters(36)
	return true
}

// regroup joins or splits the strings of a list.
func (g generator) regroup(data *value) bool {
	var lists []*value
	data.walk(func(x *value) {
		if x.kind == 'l' && len(x.items) > 1 && x.items[0].kind == 's' && x.items[1].kind == 's' {
			lists = append(lists, x)
		}
	})
	if len(lists) == 0 {
		return false
	}
	x := pick(g, lists...)
	x.items = slices.Insert(x.items[2:], 0, str(x.items[0].text+pick(g, ", ", "\n", " ", `", "`, ",", "; ", "")+x.items[1].text))
	return true
}

// omit leaves an optional argument out, or gives null.
func (g generator) omit(r *request) bool {
	i := g.IntN(len(r.data.names) + 1)
	if i == len(r.data.names) || !r.tool.Args[r.data.names[i]].Optional && r.tool.Name != "" {
		return false
	}
	if g.IntN(2) == 0 {
		*r.data.items[i] = value{kind: 'z'}
		return true
	}
	r.data.names, r.data.items = slices.Delete(r.data.names, i, i+1), slices.Delete(r.data.items, i, i+1)
	return true
}

// copyText gives a value, or a name, the text of another value: it may be masked in one of them only.
func (g generator) copyText(r *request, all []*value) bool {
	if len(all) == 0 {
		return false
	}
	from := pick(g, all...)
	if g.IntN(2) == 0 {
		to := pick(g, all...)
		to.text = from.text
		return to != from
	}
	x := r.data
	if r.tool.Name != "" {
		r.data.walk(func(v *value) {
			if v.kind == 'o' && v != r.data && len(v.names) > 0 {
				x = v
			}
		})
	}
	if x == r.data && r.tool.Name != "" || len(x.names) == 0 || x.get(from.text) != nil {
		return false
	}
	x.names[g.IntN(len(x.names))] = from.text
	return true
}
