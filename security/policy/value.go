package policy

import (
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// request is what conditions are evaluated against: a request, and what its paths lead to.
// What is read of its values is kept, because a hundred rules may ask for it.
type request struct {
	*approval.Facts
	args     arguments
	links    links
	target   text
	declared map[string]approval.Argument
	values   []*value // by condition.slot; value fills it
	running  bool     // the use of a grant for its program has been counted
	program  string   // the grant for its program that allows it; "": none
	evidence *evidenceIndex
}

// isOpaque says whether an argument is there, with a value that is not known yet.
func (q *request) isOpaque(argument string) bool { return slices.Contains(q.Opaque, argument) }

// value is the value of an argument, or the values of a member of one.
type value struct {
	elements []element
	missing  bool // a member is not there
	shell    *shellLine
	alone    [1]element // most values have one element with one text: these need no memory of their own
	text     [1]text
}

// element is one of the values of a member, or the value of an argument.
type element struct {
	raw    approval.Raw
	is     approval.Argument // how it is read
	isNull bool
	isText bool
	texts  []text
	number []text // its text if it is a number alone
}

// text is one text in all forms that patterns are compared with. Each is made once, when it
// is needed.
type text struct {
	as          string
	folded      *string
	marked      bool   // broken and hidden are known
	broken      bool   // it has a line break
	hidden      bool   // it has invisible characters
	lower       string // in lower case; "": it is not in ASCII
	path        *namedPath
	lines       []string // as written and folded, the whole first
	recipients  []recipientRead
	unquoted    []recipientRead // in other spellings
	authorities []authority
	looked      bool
	host        string       // as all programs read it; "": they may read another one
	place       *facts.Place // of host
	url         *facts.Place // of the text as a URL
	oddRead     bool         // odd is known
	odd         bool         // programs may read different hosts in it
	named       []wideName
	number      *number
}

func (e *Engine) request(f *approval.Facts) *request {
	q := &request{Facts: f, args: arguments{data: f.Args}, target: text{as: f.Target}, declared: f.Declared}
	if f.Tool == "" {
		q.declared = facts.ReleaseArgs(f.ActionType)
	}
	q.links = e.linksOf(q)
	return q
}

// value finds what a condition is about, none if that is not there.
func (q *request) value(c *condition) *value {
	if q.values[c.slot] == nil {
		q.values[c.slot] = q.find(c)
	}
	return q.values[c.slot]
}

// none is the value of what is not there.
var none = &value{}

func (q *request) find(c *condition) *value {
	a, ok := q.args.named(c.path[0])
	if !ok {
		return none
	}
	v := &value{}
	if len(c.path) == 1 {
		v.alone[0].is = q.declared[c.Field]
		v.elements = v.alone[:]
		v.read(&v.alone[0], a.Value)
		return v
	}
	if _, dotted := q.args.named(c.Field); dotted {
		return none
	}
	var raw []approval.Raw
	raw, v.missing = members(a.Value, c.path[1:])
	if v.elements = v.alone[:]; len(raw) != 1 {
		v.elements = make([]element, len(raw))
	}
	for i := range raw {
		v.read(&v.elements[i], raw[i])
	}
	return v
}

// read fills an element, whose type is known if its argument is declared.
func (v *value) read(x *element, raw approval.Raw) {
	x.raw, x.isNull = raw, raw.Kind() == 'n'
	if x.is == (approval.Argument{}) {
		x.is = memberType(raw) // as it stands there
	}
	var all []string
	if all, x.isText = textsOf(raw); len(all) == 1 && len(v.elements) == 1 {
		x.texts = v.text[:]
	} else {
		x.texts = make([]text, len(all))
	}
	for i, s := range all {
		x.texts[i].as = s
	}
}

// numbers are the texts of an element, or the number that it is.
func (x *element) numbers() ([]text, bool) {
	if x.isText {
		return x.texts, true
	}
	if x.number == nil && x.raw.Kind() == '0' {
		x.number = []text{{as: string(x.raw)}}
	}
	return x.number, x.number != nil
}

func (t *text) fold() string {
	if t.folded == nil {
		s := fold(t.as)
		t.folded = &s
	}
	return *t.folded
}

// forms are the text and its lines, as written and folded, each once.
func (t *text) forms() []string {
	if t.lines != nil {
		return t.lines
	}
	add := func(s string) {
		if !slices.Contains(t.lines, s) {
			t.lines = append(t.lines, s)
		}
	}
	add(t.as)
	add(strings.TrimSpace(t.as))
	add(t.fold())
	if t.isBroken() {
		for _, line := range lineBreak.Split(t.as, -1) {
			add(line)
			add(strings.TrimSpace(line))
			add(fold(line))
		}
	}
	return t.lines
}

func (t *text) mark() {
	if !t.marked {
		t.marked, t.broken, t.hidden = true, hasLineBreak(t.as), strings.ContainsFunc(t.as, isInvisible)
		if isASCII(t.as) {
			t.lower = strings.ToLower(t.as)
		}
	}
}

// mayHave says whether one of its forms may have a part that is in ASCII and in lower case.
func (t *text) mayHave(part string) bool {
	t.mark()
	return t.lower == "" || strings.Contains(t.lower, part) || strings.Contains(t.fold(), part)
}

// isBroken says whether some program takes a part of it for a line.
func (t *text) isBroken() bool { t.mark(); return t.broken }

// isHidden says whether it has invisible characters.
func (t *text) isHidden() bool { t.mark(); return t.hidden }
