package policy

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// Condition is what a rule requires of one argument. RULES.md says what each part means
// for each type of argument. All parts that are set must hold.
type Condition struct {
	Field    string       // a member of request_data, or a member of a member: "issue.title"
	Is       []string     // patterns by the argument's type, of which one must match; not nil and empty: no value at all
	Equals   approval.Raw // this JSON value; of a text, however it is escaped
	Contains string       // a part of a text
	Matches  string       // a regular expression for a whole text
	Max, Min string       // bounds of an amount or a number, decimal
	Currency string       // of an amount
	Optional bool         // an allow also matches a request without the argument
}

// Check refuses an invalid condition.
func (c Condition) Check() error {
	_, err := c.compile()
	return err
}

// CheckType says why an argument of this type can never meet the condition.
func (c Condition) CheckType(a approval.Argument) error {
	compiled, err := c.compile()
	if err != nil {
		return err
	}
	kind := a.Type
	bounds := c.Max != "" || c.Min != "" || c.Currency != ""
	text := c.Contains != "" || c.Matches != ""
	switch {
	case len(compiled.path) > 1 && kind != facts.TypeJSON:
		return fmt.Errorf("%s is declared as %s, which has no members", compiled.path[0], typeName(kind))
	case len(compiled.path) > 1:
		for i := range compiled.is {
			if err := compiled.is[i].fits(facts.TypeText); err != nil {
				return err
			}
		}
		return nil
	case c.Currency != "" && facts.IsCurrency(a.Currency) && a.Currency != c.Currency:
		return fmt.Errorf("the amounts of %s are in %s, so none is in %s", c.Field, a.Currency, c.Currency)
	case bounds && !slices.Contains([]string{facts.TypeAmount, facts.TypeNumber, facts.TypeList}, kind):
		return fmt.Errorf("max, min and currency are for amounts and numbers; %s is declared as %s", c.Field, typeName(kind))
	case c.Currency != "" && kind != facts.TypeAmount:
		return fmt.Errorf("currency is for amounts; %s is declared as %s", c.Field, typeName(kind))
	case kind == facts.TypeAmount && c.Currency == "" && bounds && a.Currency != "" && !facts.IsCurrency(a.Currency):
		return fmt.Errorf("the agent chooses the currency of %s: add currency", c.Field)
	case text && !readAsText(kind) && kind != facts.TypeURL && kind != facts.TypeList:
		return fmt.Errorf("contains and matches are for texts; %s is declared as %s", c.Field, typeName(kind))
	case c.Is != nil && slices.Contains([]string{facts.TypeAmount, facts.TypeNumber, facts.TypeBool, facts.TypeJSON}, kind):
		return fmt.Errorf("%s is declared as %s: write %s", c.Field, typeName(kind), insteadOfText(kind))
	}
	for i := range compiled.is {
		if err := compiled.is[i].fits(kind); err != nil {
			return fmt.Errorf("%s is declared as %s: %w", c.Field, typeName(kind), err)
		}
	}
	return nil
}

func insteadOfText(kind string) string {
	switch kind {
	case facts.TypeAmount:
		return `{ max = "20.00" }`
	case facts.TypeNumber:
		return "a number, or { max = 20 }"
	case facts.TypeBool:
		return "true or false"
	}
	return `{ json = '...' }, or name its members: "NAME.MEMBER"`
}

func typeName(kind string) string {
	if kind == "" {
		return facts.TypeText
	}
	return kind
}

// readAsText says whether values of a type are only text to a rule.
func readAsText(kind string) bool {
	switch kind {
	case "", facts.TypeText, facts.TypeTable, facts.TypeDiff, facts.TypeProgram:
		return true
	}
	return false
}

// condition is a Condition, compiled.
type condition struct {
	Condition
	slot              int      // of Field, among those of a ruleset
	path              []string // the members of Field
	equals            codec.Field
	equalText         string
	equalIsText       bool
	is                []pattern
	max, min          *number
	matches, matchAny *regexp.Regexp // narrow and wide
	needed            string         // a part of every text in ASCII that they match, in lower case
	part              string         // Contains, folded
}

// pattern is one of a condition's patterns, as each type of argument reads it.
type pattern struct {
	text      string
	folded    string
	command   *commandPattern
	place     *placePattern
	path      *pathPattern
	recipient *facts.Recipient
	err       map[string]error // by type: why it is no pattern of this type
}

func (p *pattern) fits(kind string) error {
	if kind == facts.TypeURL {
		kind = facts.TypeHost
	}
	if readAsText(kind) || kind == facts.TypeList {
		kind = facts.TypeText
	}
	return p.err[kind]
}

func newPattern(text string) (p pattern) {
	p.text, p.folded, p.err = text, fold(text), map[string]error{}
	var err error
	if p.command, err = parseCommandPattern(text); err != nil {
		p.err[facts.TypeCommand] = err
	}
	if p.place, err = parsePlace(text); err != nil {
		p.err[facts.TypeHost] = err
	}
	if p.path, err = parsePath(text); err != nil {
		p.err[facts.TypePath] = err
	}
	if strings.ContainsAny(text, "*?") {
		p.err[facts.TypeText] = fmt.Errorf("a text has no patterns: write { contains = %q }, { matches = ... } or { equals = %q }", strings.Trim(text, "*?"), text)
	}
	if r, ok := parseRecipient(text); ok {
		p.recipient = &r
	} else {
		p.err[facts.TypeRecipients] = fmt.Errorf("%q is not an address, and not @DOMAIN", text)
	}
	return p
}

func (c Condition) compile() (*condition, error) {
	x := &condition{Condition: c, path: strings.Split(c.Field, ".")}
	switch {
	case c.Field == "" || slices.Contains(x.path, ""):
		return nil, errors.New("a condition needs the name of an argument")
	case c.Is == nil && c.Equals == nil && c.Contains == "" && c.Matches == "" && c.Max == "" && c.Min == "":
		return nil, fmt.Errorf("the condition on %s needs a value, max or min", c.Field)
	}
	x.part = fold(c.Contains)
	if c.Equals != nil {
		x.equals = codec.Field{Value: compact(c.Equals)}
		x.equalText, x.equalIsText = x.equals.Text()
	}
	for _, text := range c.Is {
		if text == "" {
			return nil, fmt.Errorf("the condition on %s is empty", c.Field)
		}
		x.is = append(x.is, newPattern(text))
	}
	for _, b := range []struct {
		text string
		to   **number
	}{{c.Max, &x.max}, {c.Min, &x.min}} {
		if b.text == "" {
			continue
		}
		if _, ok := parseDecimal(b.text); !ok {
			return nil, fmt.Errorf("the condition on %s: %q is not a decimal number", c.Field, b.text)
		}
		*b.to = newNumber(b.text)
	}
	if x.max != nil && x.min != nil && x.max.cmp(x.min) < 0 {
		return nil, fmt.Errorf("the condition on %s: min is above max", c.Field)
	}
	return x, x.compileMatches()
}

func (c *condition) compileMatches() (err error) {
	if c.Matches == "" {
		return nil
	}
	if _, err = regexp.Compile(c.Matches); err != nil {
		return fmt.Errorf("the condition on %s: %w", c.Field, err)
	}
	if c.matches, err = regexp.Compile(`\A(?:` + c.Matches + `)\z`); err != nil {
		return fmt.Errorf("the condition on %s: %w", c.Field, err)
	}
	c.matchAny, err = regexp.Compile(`(?is)\A(?:` + c.Matches + `)\z`)
	c.needed = neededPart(c.Matches)
	return err
}

// neededPart is the longest text that stands in an expression outside of all operators, in
// lower case. To look for it takes less time than to match. It is in ASCII, where each letter
// has one lower case.
func neededPart(expression string) (longest string) {
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return ""
	}
	parts := []*syntax.Regexp{tree}
	if tree.Op == syntax.OpConcat {
		parts = tree.Sub
	}
	for _, part := range parts {
		text := strings.ToLower(string(part.Rune))
		if part.Op == syntax.OpLiteral && len(text) > len(longest) && isASCII(string(part.Rune)) {
			longest = text
		}
	}
	return longest
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

// reading is how a rule reads what it compares. An allow reads narrowly, a deny and an ask
// read widely.
type reading bool

const (
	narrow reading = false
	wide   reading = true
)

// tally combines the results of several values: all must match an allow, one a deny. Without a
// value nothing matches.
type tally struct {
	how         reading
	n           int
	worst, best matchResult
}

func (t *tally) add(r matchResult) {
	if t.n++; t.n == 1 {
		t.worst, t.best = r, r
	}
	t.worst, t.best = min(t.worst, r), max(t.best, r)
}

func (t *tally) result() matchResult {
	if t.how == narrow {
		return t.worst
	}
	return t.best
}

// match evaluates the condition.
func (c *condition) match(q *request, how reading) matchResult {
	if q.isOpaque(c.Field) { // a member of such an argument is not there
		return unknown
	}
	v := q.value(c)
	switch {
	case c.isEmpty() && (v == none || v.elements[0].isNull || string(compact(v.elements[0].raw)) == "[]"):
		return yes
	case v == none && c.Optional && len(c.path) == 1 && how == narrow:
		return yes
	case v == none:
		return unknown
	case len(v.elements) == 1 && !v.missing:
		return c.matchValue(q, v, &v.elements[0], how)
	}
	all := tally{how: how}
	if v.missing {
		all.add(unknown)
	}
	for i := range v.elements {
		all.add(c.matchValue(q, v, &v.elements[i], how))
	}
	return all.result()
}

// isEmpty says whether the condition is that there is no value.
func (c *condition) isEmpty() bool { return c.Is != nil && len(c.Is) == 0 && len(c.path) == 1 }

// memberType is how a member of a JSON argument is read.
func memberType(v approval.Raw) approval.Argument {
	switch v.Kind() {
	case '0':
		return approval.Argument{Type: facts.TypeNumber}
	case 't', 'f':
		return approval.Argument{Type: facts.TypeBool}
	case '[':
		return approval.Argument{Type: facts.TypeList}
	case '{':
		return approval.Argument{Type: facts.TypeJSON}
	}
	return approval.Argument{Type: facts.TypeText}
}

// members are the values at a path, also through lists. missing says that one is not there.
func members(v approval.Raw, path []string) (values []approval.Raw, missing bool) {
	if len(path) == 0 {
		return []approval.Raw{v}, false
	}
	if items, err := codec.Items(v); err == nil && v.Kind() == '[' {
		for _, item := range items {
			below, none := members(item, path)
			values, missing = append(values, below...), missing || none
		}
		return values, missing
	}
	fields, err := codec.Fields(v)
	if err != nil {
		return nil, true
	}
	for _, f := range fields {
		switch {
		case f.Name == path[0]:
			below, none := members(f.Value, path[1:])
			values, missing = below, missing || none
		case strings.EqualFold(f.Name, path[0]): // some programs read this one
			missing = true
		}
	}
	return values, missing || len(values) == 0
}

// matchValue evaluates the condition on one value. Each part must hold.
func (c *condition) matchValue(q *request, v *value, x *element, how reading) matchResult {
	if x.isNull && (c.Equals == nil || c.equals.Value.Kind() != 'n') {
		return unknown
	}
	worst := yes
	if c.Equals != nil {
		worst = min(worst, c.matchEqual(q, &x.is, x.raw, how))
	}
	if c.max != nil || c.min != nil {
		worst = min(worst, c.matchBounds(q, x, how))
	}
	if c.matches != nil || c.Contains != "" {
		worst = min(worst, c.matchText(x, how))
	}
	if c.Is != nil {
		worst = min(worst, c.matchPatterns(q, v, x, how))
	}
	return worst
}

// matchPatterns evaluates the patterns by the type of the argument.
func (c *condition) matchPatterns(q *request, v *value, x *element, how reading) matchResult {
	kind := x.is.Type
	switch {
	case kind == facts.TypeCommand:
		return c.matchCommand(v, x.raw, how)
	case !x.isText:
		return unknown
	}
	all := tally{how: how}
	for i := range x.texts {
		all.add(c.matchPattern(q, kind, &x.texts[i], how))
	}
	return all.result()
}

// matchPattern compares one text with the patterns.
func (c *condition) matchPattern(q *request, kind string, t *text, how reading) matchResult {
	switch {
	case kind == facts.TypePath:
		return matchPath(c.is, t, q.links, how)
	case kind == facts.TypeURL, kind == facts.TypeHost:
		return matchPlace(c.is, t, kind == facts.TypeURL, how)
	case kind == facts.TypeRecipients:
		return matchRecipients(c.is, t, how)
	case readAsText(kind), kind == facts.TypeList:
		return matchTexts(c.is, t, how)
	}
	return unknown
}

// textsOf lists the texts of a value: one, or the elements of a list. A number or a boolean
// in a list counts as it is written.
func textsOf(v approval.Raw) (texts []string, ok bool) {
	if text, ok := textOf(v); ok {
		return []string{text}, true
	}
	items, err := codec.Items(v)
	if err != nil || v.Kind() != '[' {
		return nil, false
	}
	for _, item := range items {
		text, isText := textOf(item)
		switch kind := item.Kind(); {
		case isText:
		case kind == '0', kind == 't', kind == 'f':
			text = string(item)
		default:
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, true
}

// textOf is the text of a JSON string. Most have no escape, and need no decoder.
func textOf(v approval.Raw) (string, bool) {
	n := len(v)
	if n >= 2 && v[0] == '"' && v[n-1] == '"' &&
		!slices.ContainsFunc(v[1:n-1], func(c byte) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return string(v[1 : n-1]), true
	}
	return codec.Field{Value: v}.Text()
}

// matchEqual compares with one JSON value. Paths are compared as patterns are, so that a
// link cannot lead elsewhere.
func (c *condition) matchEqual(q *request, a *approval.Argument, v approval.Raw, how reading) matchResult {
	as, isText := codec.Field{Value: v}.Text()
	switch {
	case a.Type == facts.TypePath && (isText || v.Kind() == '['):
		return c.matchEqualPaths(q, v, how)
	case c.equalIsText && isText && c.equalText == as, string(compact(v)) == string(c.equals.Value),
		v.Kind() == '0' && c.equals.Value.Kind() == '0' && sameNumber(string(v), string(c.equals.Value)):
		return yes
	case how == narrow:
		return no
	}
	return c.matchEqualWide(v)
}

func (c *condition) matchEqualPaths(q *request, v approval.Raw, how reading) matchResult {
	want, ok := textsOf(c.equals.Value)
	have, also := textsOf(v)
	switch {
	case !ok || !also:
		return unknown
	case how == narrow && len(want) != len(have):
		return no
	}
	all := tally{how: how}
	for i := range have {
		among := want
		if how == narrow {
			among = want[i : i+1]
		}
		var literal []pattern
		for _, w := range among {
			literal = append(literal, pattern{path: newPathPattern(w, true)})
		}
		all.add(matchPath(literal, &text{as: have[i]}, q.links, how))
	}
	return all.result()
}

// matchEqualWide also finds the value in another spelling, and its elements in any order. It
// cannot tell where the types differ.
func (c *condition) matchEqualWide(v approval.Raw) matchResult {
	if !sameTypes(c.equals.Value, v) {
		return unknown
	}
	want, ok := textsOf(listOf(c.equals.Value))
	have, also := textsOf(listOf(v))
	if !ok || !also {
		return yesIf(reflect.DeepEqual(folded(c.equals.Value), folded(v)))
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h string) bool { return equalsWide(fold(w), &text{as: h}) || sameNumber(h, w) }) {
			return no
		}
	}
	return yes
}

// sameTypes says whether two values, or the elements of lists, are of one type.
func sameTypes(a, b approval.Raw) bool {
	types := map[jsontext.Kind]bool{}
	for _, v := range []approval.Raw{a, b} {
		items, _ := codec.Items(listOf(v)) // it is valid
		for _, item := range items {
			kind := item.Kind()
			if kind == 't' {
				kind = 'f'
			}
			types[kind] = true
		}
	}
	return len(types) < 2
}

// folded is a JSON value for comparison without regard to spelling.
func folded(v approval.Raw) any {
	switch v.Kind() {
	case '{':
		m := map[string]any{}
		fields, _ := codec.Fields(v)
		for _, f := range fields {
			m[fold(f.Name)] = folded(f.Value)
		}
		return m
	case '[':
		var list []any
		items, _ := codec.Items(v)
		for _, item := range items {
			list = append(list, folded(item))
		}
		return list
	case '"':
		text, _ := codec.Field{Value: v}.Text()
		return fold(text)
	case '0':
		if n, ok := parseNumber(string(v)); ok {
			return n.RatString()
		}
	}
	return string(v)
}

// listOf is a list, or a list of one value.
func listOf(v approval.Raw) approval.Raw {
	if v.Kind() == '[' {
		return v
	}
	return approval.Raw("[" + string(v) + "]")
}

func sameNumber(a, b string) bool {
	x, ok := parseNumber(a)
	y, also := parseNumber(b)
	return ok && also && x.Cmp(y) == 0
}

// closes says whether the condition allows only listed values of an argument of a type.
func (c Condition) closes(kind string) bool {
	if c.Equals != nil {
		return true
	}
	if c.Is == nil {
		return false
	}
	x, err := c.compile()
	return err == nil && !slices.ContainsFunc(x.is, func(p pattern) bool { return p.fits(kind) != nil || !p.closed(kind) })
}

func (p *pattern) closed(kind string) bool {
	switch kind {
	case facts.TypeCommand:
		return p.command.closed()
	case facts.TypeHost, facts.TypeURL:
		return !p.place.below
	case facts.TypePath:
		return !strings.ContainsAny(p.text, meta)
	case facts.TypeRecipients:
		return !strings.HasPrefix(p.text, "@")
	}
	return true
}
