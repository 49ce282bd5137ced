package cardtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// lacking returns what of an effect a person cannot read on a card, or "". The lines of prose do not count.
func lacking(rules []rule, visible string, t approval.Tool, args map[string]approval.Argument, data *value, prose []string) string {
	if why := invisible(visible); why != "" {
		return why
	}
	e, ok := effectOf(t, data)
	if !ok {
		return ""
	}
	r := &reader{page: read(withoutLines(visible, prose)), rules: rules, data: data, args: args}
	if why := r.lacks(e, args); why != "" {
		if r.wrong != "" {
			why += "; " + r.wrong
		}
		return why
	}
	return ""
}

// withoutLines blanks the lines that are the agent's prose. Masks of two kinds of secrets are read alike, so lines are
// compared as they are written.
func withoutLines(visible string, prose []string) string {
	lines := strings.Split(visible, "\n")
	for i, l := range lines {
		if slices.Contains(prose, l) {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

func (r *reader) lacks(e effect, args map[string]approval.Argument) string {
	inline := map[string]bool{}
	if why := r.invocation(e, inline); why != "" {
		return why
	}
	needed := map[string]bool{} // by name: all of it has to be readable
	if e.stdin != nil {
		for _, n := range e.stdin.names {
			needed[n] = true
		}
	}
	for _, pieces := range append(e.argv, e.url) {
		for _, p := range pieces {
			needed[p.arg] = true
		}
	}
	if e.refs != nil {
		e.refs.walk(func(x *value) {
			if x.kind == argument {
				needed[x.text] = true
			}
		})
	}
	for i, name := range r.data.names {
		if !needed[name] || inline[name] {
			continue
		}
		if !r.member(name, r.data.items[i], args[name]) {
			return fmt.Sprintf("argument %q cannot be read: %s", name, r.data.items[i].json(nil))
		}
	}
	return ""
}

// invocation looks for everything but the arguments, and fills inline with the names of those that stand in it.
func (r *reader) invocation(e effect, inline map[string]bool) string {
	if len(e.argv) > 0 && !r.command(e.argv, inline) {
		return fmt.Sprintf("the command cannot be read: %q", texts(e.argv))
	}
	if e.dir != "" && !r.endsLine([]piece{{text: e.dir}}, nil) {
		return fmt.Sprintf("the working directory cannot be read: %q", e.dir)
	}
	if e.server != "" && (!r.endsLine([]piece{{text: e.server}}, nil) || !r.anywhere(func(p place) bool {
		_, ok := r.pieces(p, []piece{{text: e.tool}}, nil)
		return ok
	})) {
		return fmt.Sprintf("the tool and its server cannot be read: %s, %s", e.tool, e.server)
	}
	if e.method == "" && len(e.url) == 0 {
		return ""
	}
	if !r.endsLine(append([]piece{{text: strings.TrimLeft(e.method+" ", " ")}}, e.url...), inline) {
		return fmt.Sprintf("method and URL cannot be read: %s %s", e.method, textOf(e.url))
	}
	for _, h := range e.headers {
		if !r.header(h) {
			return fmt.Sprintf("the header cannot be read: %q", h)
		}
	}
	if e.refs != nil && !r.anywhere(func(p place) bool {
		p, ok := r.json(p, e.refs, field{})
		return ok && r.atEnd(p)
	}) {
		return fmt.Sprintf("the body cannot be read: %s", e.body.json(nil))
	}
	return ""
}

func texts(argv [][]piece) (all []string) {
	for _, x := range argv {
		all = append(all, textOf(x))
	}
	return all
}

// header looks for a header. A secret one shows its file.
func (r *reader) header(h string) bool {
	if kind, file, ok := strings.Cut(h, "/"); ok && strings.HasSuffix(file, secretFile) {
		return r.endsLine([]piece{{text: kind}, {text: "\x00content of /" + file}}, nil)
	}
	return r.endsLine([]piece{{text: h}}, nil)
}

// secretFile is how the name of a header's file ends.
const secretFile = "token-file"

// places are where on a line something may begin.
func (r *reader) places(line int) []place {
	found := []place{{line: line}}
	glyphs := r.page[line]
	if at := after(glyphs, "│ "); at >= 0 {
		found = append(found, place{line: line, at: at})
	}
	for i, g := range glyphs {
		if g == (glyph{r: ' '}) {
			found = append(found, place{line: line, at: i + 1})
		}
	}
	return found
}

func (r *reader) anywhere(f func(p place) bool) bool {
	for i := range r.page {
		for _, p := range r.places(i) {
			for _, prefix := range prefixes {
				p.prefix = prefix[1]
				if f(p) {
					return true
				}
			}
		}
	}
	return false
}

// command looks for a command, one element a line.
func (r *reader) command(argv [][]piece, inline map[string]bool) bool {
	for i := 0; i+len(argv) <= len(r.page); i++ {
		seen := map[string]bool{}
		k := 0
		for k < len(argv) && r.onLine(i+k, argv[k], seen) {
			k++
		}
		if k == len(argv) {
			for n := range seen {
				inline[n] = true
			}
			return true
		}
	}
	return false
}

func (r *reader) endsLine(pieces []piece, inline map[string]bool) bool {
	for i := range r.page {
		if r.onLine(i, pieces, inline) {
			return true
		}
	}
	return false
}

// onLine reports whether a line ends with these pieces, bare or quoted.
func (r *reader) onLine(line int, pieces []piece, inline map[string]bool) bool {
	for _, p := range r.places(line) {
		seen := map[string]bool{}
		q, ok := r.pieces(p, pieces, seen)
		if (!ok || !r.atEnd(q)) && r.is(p, '"') {
			p.at++
			if q, ok = r.pieces(p, pieces, seen); ok && r.is(q, '"') {
				q.at++
			}
		}
		if ok && r.atEnd(q) {
			for n := range seen {
				inline[n] = true
			}
			return true
		}
	}
	return false
}

// pieces reads the operator's text and the values of arguments, or references to them.
func (r *reader) pieces(p place, all []piece, inline map[string]bool) (place, bool) {
	for _, x := range all {
		line := r.page[p.line]
		name, isFile := strings.CutPrefix(x.text, "\x00")
		if isFile || x.arg != "" && p.at < len(line) && line[p.at].ref == x.arg {
			if p.at >= len(line) || line[p.at].ref != x.arg && line[p.at].ref != name {
				return p, false
			}
			p.at++
			continue
		}
		if !r.span(&p, x) {
			return p, false
		}
		if x.arg != "" {
			inline[x.arg] = true
		}
	}
	return p, true
}

// span reads a piece on one line, and moves the place behind it. The operator's text is never masked.
func (r *reader) span(p *place, x piece) bool {
	f := field{name: x.arg, typ: "operator", text: x.text}
	if x.arg != "" {
		f.typ = r.args[x.arg].Type
	}
	line := r.page[p.line]
	for want := []rune(x.text); len(want) > 0; p.at++ {
		if p.at >= len(line) {
			return false
		}
		n, ok := r.glyph(line[p.at], want, f)
		if !ok {
			return false
		}
		want = want[n:]
	}
	return true
}

// member reports whether the value of an argument can be read below its name.
func (r *reader) member(name string, v *value, arg approval.Argument) bool {
	for i := range r.page {
		at := r.label(i, name)
		if at < 0 {
			continue
		}
		end := i + 1
		for end < len(r.page) && !r.otherLabel(end, name) {
			end++
		}
		if r.within(i, at, end, v, field{name: name, typ: arg.Type, arg: arg}) {
			return true
		}
	}
	for by, x := range r.args {
		if x.Replaces == name && r.removed(by, v, field{name: by, typ: arg.Type, arg: arg}) {
			return true
		}
	}
	return false
}

// removed reports whether a text can be read in the comparison with the argument that replaces it.
func (r *reader) removed(by string, v *value, f field) bool {
	for i := range r.page {
		if r.label(i, by) >= 0 && i+1 < len(r.page) && r.compared(i+1, v, f, "- │ ", "+ │ ") {
			return true
		}
	}
	return false
}

// label returns the place behind a name and its colon at the beginning of a line, or -1. A number in parentheses
// may stand between them.
func (r *reader) label(line int, name string) int {
	for _, quote := range []bool{false, true} {
		p := place{line: line}
		ok := false
		if quote {
			p, ok = r.quoted(p, field{typ: "name", text: name})
		} else {
			p.at = after(r.page[line], name)
			ok = p.at >= 0
		}
		if !ok {
			continue
		}
		if p = r.counted(p); r.is(p, ':') {
			return p.at + 1
		}
	}
	return -1
}

// counted passes over " (12)".
func (r *reader) counted(p place) place {
	q, line := p, r.page[p.line]
	if q.at++; !r.is(p, ' ') || !r.is(q, '(') {
		return p
	}
	for q.at++; q.at < len(line) && line[q.at].r >= '0' && line[q.at].r <= '9'; q.at++ {
	}
	if !r.is(q, ')') {
		return p
	}
	q.at++
	return q
}

func (r *reader) otherLabel(line int, name string) bool {
	return slices.ContainsFunc(r.data.names, func(n string) bool { return n != name && r.label(line, n) >= 0 })
}

// within reports whether a value can be read in a block of lines, the first from a place behind its label.
func (r *reader) within(from, at, end int, v *value, f field) bool {
	first := place{line: from, at: at, prefix: "\x00"}
	if r.is(first, ' ') {
		first.at++
		if r.whole(first, v, f) {
			return true
		}
	}
	for i := from + 1; i < end; i++ {
		for _, prefix := range prefixes {
			if p := (place{i, after(r.page[i], prefix[0]), prefix[1]}); p.at >= 0 && r.whole(p, v, f) {
				return true
			}
		}
		if f.arg.Replaces != "" && r.compared(i, v, f, "+ │ ", "- │ ") {
			return true
		}
		if f.arg.Writes != "" && r.file(i, v, f) {
			return true
		}
	}
	return r.numbered(from, end, v)
}

// whole reports whether the line, or the lines from there, show exactly the value.
func (r *reader) whole(p place, v *value, f field) bool {
	if v.kind == 'l' && p.prefix == "┆ " && r.elements(p, v, f) {
		return true
	}
	if p.prefix == "┆ " {
		return false
	}
	q, ok := r.json(p, v, f)
	if ok && f.arg.Type == "amount" && r.currency(q, f) {
		return true
	}
	if v.kind == 's' && (!ok || !r.atEnd(q)) {
		f.text = v.text
		q, ok = r.text(p, f, 0)
	}
	return ok && r.atEnd(q) && (slices.Contains(split, f.arg.Type) || !r.goesOn(q))
}

// split are the types whose values stand below or above lines about them.
var split = []string{"command", "url", "recipients"}

// currency reads the currency of an amount.
func (r *reader) currency(p place, f field) bool {
	want := str(f.arg.Currency)
	if x := r.data.get(f.arg.Currency); x != nil {
		want = x
	}
	if !r.is(p, ' ') {
		return false
	}
	p.at++
	if q, ok := r.text(p, field{typ: "currency", text: want.text}, 0); ok && r.atEnd(q) {
		return true
	}
	q, ok := r.json(p, want, field{typ: "currency"})
	return ok && r.atEnd(q)
}

// numbered reads the elements of a list, or the parts of a text between its commas, which stand in any order
// behind their numbers.
func (r *reader) numbered(from, end int, v *value) bool {
	for i := 0; v.kind == 'l' && i < len(v.items); i++ {
		if v.items[i].kind != 's' || !r.numberedText(from, end, i+1, v.items[i].text) {
			return false
		}
	}
	if v.kind == 's' {
		parts := strings.Split(v.text, ", ")
		for i := 1; len(parts) > 0; i++ {
			n := 1 // a part may have commas
			for n <= len(parts) && !r.numberedText(from, end, i, strings.Join(parts[:n], ", ")) {
				n++
			}
			if n > len(parts) {
				return false
			}
			parts = parts[n:]
		}
	}
	return v.kind == 's' || v.kind == 'l'
}

func (r *reader) numberedText(from, end, number int, text string) bool {
	for i := from; i < end; i++ {
		p := place{i, numberedBy(r.page[i], number), "\x00"}
		if p.at < 0 {
			continue
		}
		f := field{typ: "name", text: text}
		if q, ok := r.text(p, f, 0); ok && r.atEnd(q) {
			return true
		}
		if q, ok := r.quoted(p, f); ok && r.atEnd(q) {
			return true
		}
	}
	return false
}

// numberedBy returns the place behind "│ 3. ", or behind "│ 1, 3-4. 3 × ", which stands for several elements, if
// number is one of them; else -1.
func numberedBy(line []glyph, number int) int {
	at := after(line, "│ ")
	if at < 0 {
		return -1
	}
	var head strings.Builder
	for _, g := range line[at:] {
		if head.WriteRune(g.r); g.r == '.' {
			break
		}
	}
	count, found := 0, false
	for part := range strings.SplitSeq(strings.TrimSuffix(head.String(), "."), ", ") {
		var first, last int
		if n, _ := fmt.Sscanf(part, "%d-%d", &first, &last); n == 0 {
			return -1
		} else if n == 1 {
			last = first
		}
		count, found = count+last-first+1, found || first <= number && number <= last
	}
	prefix := "│ " + head.String() + " "
	if count > 1 {
		prefix += fmt.Sprintf("%d × ", count)
	}
	if !found {
		return -1
	}
	return after(line, prefix)
}

// goesOn reports whether the next line belongs to the same text.
func (r *reader) goesOn(p place) bool {
	_, more := r.nextLine(p)
	return more
}

// elements reads a list, each element from the beginning of a line.
func (r *reader) elements(p place, v *value, f field) bool {
	for i, x := range v.items {
		if i > 0 {
			for p.line++; p.line < len(r.page) && r.remark(p.line); p.line++ {
			}
			if p.line == len(r.page) {
				return false
			}
			if p.at = after(r.page[p.line], "│ "); p.at < 0 {
				return false
			}
		}
		if i > 0 {
			f.before = v.items[i-1].text
		}
		q, ok := r.json(p, x, f)
		if (!ok || !r.atEnd(q)) && x.kind == 's' {
			f.text = x.text
			q, ok = r.text(p, f, 0)
		}
		if !ok || !r.atEnd(q) {
			return false
		}
		p.line = q.line
	}
	return true
}

// remark reports whether a line is the gate's, about the value around it.
func (r *reader) remark(line int) bool {
	return after(r.page[line], "⚠ ") > 0 || after(r.page[line], "· ") > 0
}

// compared reads a text in a comparison: its own lines, and those that stay, among lines of the other text.
func (r *reader) compared(line int, v *value, f field, own, other string) bool {
	_, ok := r.lines(line, strings.Split(v.text, "\n"), v, f, own, other)
	return ok
}

// lines reads the lines of a comparison up to its end.
func (r *reader) lines(line int, want []string, v *value, f field, own, other string) (end int, ok bool) {
	for ; line < len(r.page); line++ {
		if after(r.page[line], other) >= 0 {
			continue
		}
		at := max(after(r.page[line], own), after(r.page[line], "  │ "))
		if at < 0 {
			break
		}
		if len(want) == 0 {
			return line, false
		}
		f.text, f.part, f.all = want[0], true, v.text
		p, ok := r.text(place{line, at, "\x00"}, f, 0)
		if !ok || !r.atEnd(p) {
			return line, false
		}
		want = want[1:]
	}
	return line, len(want) == 0
}

// file reads a text as what becomes of a file: added lines, and lines that stay, among lines that are removed.
func (r *reader) file(line int, v *value, f field) bool {
	text, broken := strings.CutSuffix(v.text, "\n")
	want := strings.Split(text, "\n")
	if v.text == "" {
		want = nil
	}
	line, ok := r.lines(line, want, v, f, "+ │ ", "- │ ")
	remark := func(s string) bool { return line < len(r.page) && after(r.page[line], s) >= 0 }
	if empty := remark("(the file is then empty)"); v.text == "" || empty {
		return ok && v.text == "" && empty
	}
	return ok && broken != remark("(no line break at the end)")
}
