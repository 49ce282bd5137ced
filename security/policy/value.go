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
	declared map[string]approval.Argument
	values   []*value // by condition.slot; find fills it
}

// value is the value of an argument, or the values of a member of one.
type value struct {
	argument approval.Argument
	types    []approval.Argument // of each of raw
	raw      []approval.Raw
	missing  bool // a member is not there
	texts    [][]*text
	isText   []bool
	listed   [][]*text // the same, of numbers alone, too
	shell    *shellLine
}

// text is one text in all forms that patterns are compared with. Each is made once, when it
// is needed.
type text struct {
	as          string
	folded      *string
	marked      bool // broken and hidden are known
	broken      bool // it has a line break
	hidden      bool // it has invisible characters
	path        *namedPath
	lines       []string // as written and folded, the whole first
	recipients  []facts.Recipient
	unquoted    []facts.Recipient // in other spellings
	authorities []authority
	looked      bool
	host        string      // as all programs read it; "": they may read another one
	place       facts.Place // of host
	seen        *facts.Place
	spellings   []string
	number      *number
}

func (e *Engine) request(f *approval.Facts) *request {
	q := &request{Facts: f, args: arguments{data: f.Args}, declared: f.Declared}
	if f.Tool == "" {
		q.declared = facts.ReleaseArgs(f.ActionType)
	}
	q.links = e.linksOf(q)
	return q
}

// value finds what a condition is about, none if that is not there.
func (q *request) value(c *condition) *value {
	if c.slot >= len(q.values) {
		q.values = append(q.values, make([]*value, c.slot+1-len(q.values))...)
	}
	if v := q.values[c.slot]; v != nil {
		return v
	}
	v := q.find(c)
	if v != none {
		v.texts, v.isText, v.types = make([][]*text, len(v.raw)), make([]bool, len(v.raw)), make([]approval.Argument, len(v.raw))
		for i, raw := range v.raw {
			if v.types[i] = v.argument; v.argument == (approval.Argument{}) {
				v.types[i] = memberType(raw) // as it stands there
			}
			var all []string
			all, v.isText[i] = textsOf(raw)
			made := make([]text, len(all))
			v.texts[i] = make([]*text, len(all))
			for j, s := range all {
				made[j].as = s
				v.texts[i][j] = &made[j]
			}
		}
	}
	q.values[c.slot] = v
	return v
}

// none is the value of what is not there.
var none = &value{}

func (q *request) find(c *condition) *value {
	a, ok := q.args.named(c.path[0])
	_, dotted := q.args.named(c.Field)
	switch {
	case !ok, len(c.path) > 1 && dotted:
		return none
	case len(c.path) == 1:
		return &value{argument: q.declared[c.Field], raw: []approval.Raw{a.Value}}
	}
	v := &value{}
	v.raw, v.missing = members(a.Value, c.path[1:])
	return v
}

// typeOf is how value i is read.
func (v *value) typeOf(i int) *approval.Argument { return &v.types[i] }

// numbers are the texts of value i, or the number that it is.
func (v *value) numbers(i int) ([]*text, bool) {
	if v.isText[i] {
		return v.texts[i], true
	}
	if v.listed == nil {
		v.listed = make([][]*text, len(v.raw))
	}
	if v.listed[i] == nil && v.raw[i].Kind() == '0' {
		v.listed[i] = []*text{{as: string(v.raw[i])}}
	}
	return v.listed[i], v.listed[i] != nil
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
	}
}

// isBroken says whether some program takes a part of it for a line.
func (t *text) isBroken() bool { t.mark(); return t.broken }

// isHidden says whether it has invisible characters.
func (t *text) isHidden() bool { t.mark(); return t.hidden }
