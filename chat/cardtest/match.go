package cardtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// reader looks on a page for what would run.
type reader struct {
	page
	rules []rule
	data  *value
	args  map[string]approval.Argument
	wrong string // what a mask covered that it must not cover
}

// place is a glyph of a page.
type place struct {
	line, at int
	prefix   string // before the further lines of what begins here
}

// field says where in a request a text stands.
type field struct {
	name   string // of the member that holds it
	nested bool
	typ    string // the argument's type; "": text
	arg    approval.Argument
	text   string
	before string // in a list: the element before it
	part   bool   // text is a line of all
	all    string
}

// text reads a text until stop, or until the end of the line where stop is 0, and returns the place
// behind it.
func (r *reader) text(p place, f field, stop rune) (place, bool) {
	want := []rune(f.text)
	for {
		line := r.page[p.line]
		switch {
		case len(want) == 0 && p.at == len(line):
			return p, stop == 0
		case len(want) == 0:
			return p, line[p.at].r == stop && !line[p.at].escaped
		case p.at == len(line):
			next, ok := r.nextLine(p)
			if want[0] != '\n' || !ok {
				return p, false
			}
			p, want = next, want[1:]
			continue
		}
		n, ok := r.glyph(line[p.at], want, f)
		if !ok || stop != 0 && line[p.at].r == stop && !line[p.at].escaped {
			return p, false
		}
		p.at, want = p.at+1, want[n:]
	}
}

// glyph reports how many characters of a text a glyph shows.
func (r *reader) glyph(g glyph, want []rune, f field) (n int, ok bool) {
	if g.masked == 0 {
		return 1, g.ref == "" && g.r == want[0]
	}
	if g.masked > len(want) {
		return 0, false
	}
	token := string(want[:g.masked])
	if why := r.mayMask(token, f, len([]rune(f.text))-len(want)); why != "" {
		r.wrong = fmt.Sprintf("a mask covers %q: %s", token, why)
		return 0, false
	}
	return g.masked, true
}

// mayMask returns why a token that begins at that character of a text must not be masked, or "".
func (r *reader) mayMask(token string, f field, at int) string {
	switch {
	case !bounded.MatchString(token):
		return "no bounded token"
	case slices.Contains([]string{"", "text", "json", "list", "table", "command", "program", "diff"}, f.typ):
	default:
		return "part of a " + f.typ
	}
	before := string([]rune(f.text)[:at])
	line := before[strings.LastIndexByte(before, '\n')+1:]
	switch head := strings.TrimRight(line, "ab/"); {
	case (f.typ == "command" || f.typ == "program") && !namesSecret(before) && !namesSecret(f.before+" "+before):
		return "not named a secret"
	case f.typ == "diff" && (head == "--- " || head == "+++ " || line == "" || !strings.ContainsAny(line[:1], "+- ")):
		return "the name of a file"
	}
	if !f.part {
		f.all = f.text
	}
	if !isSecret(r.rules, token, f.name, f.all) {
		return "no secret"
	}
	return ""
}

var secretWords = strings.Fields("token secret passw passphrase apikey accesskey secretkey credential authorization cookie")

// namesSecret says whether what precedes a word names it a secret.
func namesSecret(before string) bool {
	before = strings.TrimRight(strings.ToLower(before), `"'`)
	fields := strings.Fields(before)
	if len(fields) == 0 {
		return false
	}
	last := fields[len(fields)-1]
	if last == "=" && len(fields) > 1 { // as in a program: name = "value"
		last = fields[len(fields)-2] + last
	}
	scheme := slices.Contains([]string{"bearer", "basic", "token"}, strings.Trim(last, `"':=`))
	option := strings.HasPrefix(last, "-") && strings.HasSuffix(before, " ")
	named := strings.ContainsAny(last[len(last)-1:], ":=")
	return scheme || (option || named) && slices.ContainsFunc(secretWords, func(w string) bool {
		return strings.Contains(strings.NewReplacer("-", "", "_", "").Replace(last), w)
	})
}

func (r *reader) nextLine(p place) (place, bool) {
	p.line++
	if p.line == len(r.page) {
		return p, false
	}
	p.at = after(r.page[p.line], p.prefix)
	return p, p.at >= 0
}

// quoted reads a text between quotation marks.
func (r *reader) quoted(p place, f field) (place, bool) {
	if !r.is(p, '"') {
		return p, false
	}
	p.at++
	p, ok := r.text(p, f, '"')
	p.at++
	return p, ok
}

func (r *reader) is(p place, c rune) bool {
	line := r.page[p.line]
	return p.at < len(line) && line[p.at] == glyph{r: c}
}

func (r *reader) atEnd(p place) bool { return p.at >= len(r.page[p.line]) }

// json reads a JSON value, on one line or on several.
func (r *reader) json(p place, v *value, f field) (place, bool) {
	p, ok := r.blanks(p)
	if !ok {
		return p, false
	}
	switch v.kind {
	case argument:
		return r.reference(p, v.text)
	case 's':
		f.text = v.text
		return r.quoted(p, f)
	case 'l', 'o':
		return r.inside(p, v, f)
	}
	want := v.text
	if v.kind == 'z' {
		want = "null"
	}
	for _, c := range want {
		if !r.is(p, c) {
			return p, false
		}
		p.at++
	}
	return p, true
}

// reference reads the mention of an argument whose value stands elsewhere, or its value.
func (r *reader) reference(p place, name string) (place, bool) {
	if line := r.page[p.line]; p.at < len(line) && line[p.at].ref == name {
		p.at++
		return p, true
	}
	x := r.data.get(name)
	if x == nil {
		return p, false
	}
	return r.json(p, x, field{name: name})
}

func (r *reader) inside(p place, v *value, f field) (place, bool) {
	open, closing := '[', ']'
	if v.kind == 'o' {
		open, closing = '{', '}'
	}
	p, ok := r.sign(p, open)
	for i, x := range v.items {
		if ok && i > 0 {
			p, ok = r.sign(p, ',')
		}
		if ok && v.kind == 'o' {
			f.name, f.nested = v.names[i], true
			if p, ok = r.json(p, str(v.names[i]), field{typ: "name"}); ok {
				p, ok = r.sign(p, ':')
			}
		}
		if ok {
			p, ok = r.json(p, x, f)
		}
	}
	if !ok {
		return p, false
	}
	return r.sign(p, closing)
}

func (r *reader) sign(p place, c rune) (place, bool) {
	p, ok := r.blanks(p)
	if !ok || !r.is(p, c) {
		return p, false
	}
	p.at++
	return p, true
}

// blanks passes over spaces and line ends between the signs of JSON.
func (r *reader) blanks(p place) (place, bool) {
	for {
		line := r.page[p.line]
		for p.at < len(line) && line[p.at].r == ' ' {
			p.at++
		}
		if p.at < len(line) {
			return p, true
		}
		next, ok := r.nextLine(p)
		if !ok {
			return p, false
		}
		p = next
	}
}
