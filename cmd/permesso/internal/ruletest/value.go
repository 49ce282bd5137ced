package ruletest

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// argument answers for the condition on an argument of a declared type.
func (j judge) argument(declared Argument, condition, value any, given bool) Answer {
	if declared.Type == "recipients" && isEmptyList(condition) {
		return j.noRecipient(value)
	}
	if !given {
		return Unknown
	}
	if m, ok := condition.(map[string]any); ok {
		_, equal := m["equals"]
		_, same := m["json"]
		if equal || same {
			return j.same(m, value) | j.oddSame(declared, value)
		}
	}
	switch declared.Type {
	case "command":
		return j.commands(condition, value)
	case "path":
		return j.listed(condition, value, j.paths)
	case "url":
		return j.listed(condition, value, anyOf(j.url))
	case "host":
		return j.listed(condition, value, anyOf(j.host))
	case "recipients":
		return j.recipients(condition, value)
	case "amount":
		return j.amount(declared, condition, value)
	case "number":
		return j.scalar(value, func(v any) Answer { return j.number(condition, v) })
	case "bool":
		return j.scalar(value, func(v any) Answer { return j.boolean(condition, v) })
	case "list":
		l, ok := value.([]any)
		if !ok && j.narrow {
			return j.listElement(condition, value) | No
		} else if !ok {
			return every(j.listElement(condition, value), Unknown|Yes) | Unknown
		}
		return j.elements(l, func(v any) Answer { return j.listElement(condition, v) })
	case "json":
		return Unknown
	}
	return j.scalar(value, func(v any) Answer { return j.text(condition, v) })
}

// oddSame is what else equals may answer, where a type has its own reading of a text, and of a
// value of another type or a list: a path is read as a path.
func (j judge) oddSame(declared Argument, value any) Answer {
	_, isText := value.(string)
	if isPath := declared.Type == "path"; isPath && j.narrow {
		return No | Yes
	} else if isPath {
		return No | Unknown | Yes
	}
	if !isText && j.narrow {
		return No
	} else if !isText {
		return No | Unknown
	}
	return 0
}

func isEmptyList(v any) bool {
	l, ok := v.([]any)
	return ok && len(l) == 0
}

// scalar answers for a type that has no lists. A list is another type; yet one whose
// elements match is no surprise.
func (j judge) scalar(value any, of func(any) Answer) Answer {
	l, ok := value.([]any)
	if !ok {
		return of(value)
	}
	a := j.elements(l, of)
	if j.narrow {
		return a | No
	}
	if a == No {
		return Unknown | No
	}
	return a | Unknown
}

// listed answers for a type whose values are one text or a list of them, and whose condition
// is one pattern or a list. A table can hold one regular expression on each.
func (j judge) listed(condition, value any, of func(patterns []string, value string) Answer) Answer {
	one := func(v any) Answer {
		s, ok := v.(string)
		if !ok {
			return Unknown
		}
		if m, ok := condition.(map[string]any); ok {
			return j.urlMatches(m, s)
		}
		return of(texts(condition), s)
	}
	if l, ok := value.([]any); ok {
		return j.elements(l, one)
	}
	return one(value)
}

// anyOf asks for each pattern.
func anyOf(of func(pattern, value string) Answer) func([]string, string) Answer {
	return func(patterns []string, value string) Answer {
		all := No
		for _, p := range patterns {
			all = some(all, of(p, value))
		}
		return all
	}
}

// same answers for equals and json.
func (j judge) same(m map[string]any, value any) Answer {
	all := Yes
	if want, ok := m["equals"]; ok {
		all = every(all, j.equal(plain(want), value))
	}
	if text, ok := m["json"].(string); ok {
		want, err := decode(text)
		if err != nil {
			return No
		}
		a := j.equal(want, value)
		if s, ok := value.(string); ok && a == Yes && strings.ContainsAny(s, lineBreaks) && !j.narrow {
			a = Yes | No // a line of several is not the same JSON
		}
		all = every(all, a)
	}
	for key := range m {
		if key != "equals" && key != "json" {
			all = every(all, j.text(map[string]any{key: m[key]}, value))
		}
	}
	return all
}

// plain is a TOML value as JSON has it.
func plain(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		return v
	}
	x, err := decode(string(b))
	if err != nil {
		return v
	}
	return x
}

func decode(text string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v)
}

// equal compares JSON values. Where only their spelling differs (1 and 1.0), an allow may
// take them as the same or not.
func (j judge) equal(want, value any) Answer {
	if reflect.DeepEqual(want, value) {
		return Yes
	}
	if reflect.DeepEqual(canonical(want, false), canonical(value, false)) {
		return Yes
	}
	if j.narrow {
		if l, ok := value.([]any); ok && len(l) == 1 && j.equal(want, l[0]) == Yes {
			return No | Yes // "each element counts"
		}
		return No
	}
	if reflect.DeepEqual(canonical(want, true), canonical(value, true)) {
		return Yes
	}
	if s, ok := want.(string); ok {
		return j.equalText(s, value)
	}
	_, wantList := want.([]any)
	_, isList := value.([]any)
	if wantList || isList {
		return No | Unknown | Yes // elements in any order
	}
	if sameKind(want, value) {
		return No
	}
	if s, ok := value.(string); ok && reflect.DeepEqual(canonical(json.Number(strings.TrimSpace(fold(s))), false), canonical(want, false)) {
		return No | Unknown | Yes // the number in a text
	}
	return Unknown | No // another type
}

// equalText answers for a text that is not the same, of a deny.
func (j judge) equalText(want string, value any) Answer {
	switch v := value.(type) {
	case string:
		return wideEquals(want, v)
	case []any:
		all := No
		for _, x := range v {
			all = some(all, j.equal(want, x))
		}
		return all | Unknown
	case json.Number, bool:
		return No | Unknown
	}
	return Unknown
}

func sameKind(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// canonical gives numbers one spelling, and texts theirs of a wide comparison if folded.
func canonical(v any, folded bool) any {
	switch v := v.(type) {
	case string:
		if folded {
			return fold(v)
		}
	case json.Number:
		if r, ok := rational(string(v)); ok {
			return r.RatString()
		}
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = canonical(v[i], folded)
		}
		return all
	case map[string]any:
		all := map[string]any{}
		for k := range v {
			all[k] = canonical(v[k], folded)
		}
		return all
	}
	return v
}

var decimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?$`)

// rational reads a number of JSON. One with a huge exponent is none.
func rational(s string) (*big.Rat, bool) {
	if !decimal.MatchString(s) {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// number answers for a number.
func (j judge) number(condition, value any) Answer {
	n, ok := value.(json.Number)
	if s, isText := value.(string); isText && !j.narrow {
		return every(j.number(condition, json.Number(strings.TrimPrefix(strings.TrimSpace(s), "+"))), Unknown|Yes) | Unknown // another type, or the number in it
	}
	if !ok {
		return Unknown
	}
	r, ok := rational(string(n))
	if !ok {
		return Unknown | No
	}
	all := No
	if bounds, ok := condition.(map[string]any); ok {
		all = j.between(bounds, r)
		if _, hasMin := bounds["min"]; j.narrow && !hasMin && r.Sign() < 0 {
			all = No
		}
	} else {
		for _, want := range list(condition) {
			if w, ok := plain(want).(json.Number); ok {
				x, _ := rational(string(w))
				all = some(all, answer(x.Cmp(r) == 0))
			}
		}
	}
	if strings.ContainsAny(string(n), "eE") {
		if j.narrow {
			return all | No
		}
		return all | Unknown
	}
	return all
}

// between answers for max and min, as texts or whole numbers.
func (j judge) between(bounds map[string]any, r *big.Rat) Answer {
	holds := true
	for key, value := range bounds {
		text, ok := value.(string)
		if !ok {
			n, isNumber := plain(value).(json.Number)
			if !isNumber {
				return Unknown
			}
			text = string(n)
		}
		limit, ok := rational(text)
		switch {
		case !ok:
			return Unknown
		case key == "max":
			holds = holds && r.Cmp(limit) <= 0
		case key == "min":
			holds = holds && r.Cmp(limit) >= 0
		}
	}
	return answer(holds)
}

func (j judge) boolean(condition, value any) Answer {
	if s, ok := value.(string); ok && !j.narrow && strings.EqualFold(strings.TrimSpace(s), fmt.Sprint(condition)) {
		return Unknown | Yes
	}
	if _, ok := value.(bool); !ok {
		return Unknown
	}
	return answer(condition == value)
}

// listElement answers for an element of a list, or a member: as text or number.
func (j judge) listElement(condition, value any) Answer {
	bounds, isTable := condition.(map[string]any)
	_, hasMax := bounds["max"]
	_, hasMin := bounds["min"]
	if isTable && (hasMax || hasMin) {
		if s, isText := value.(string); isText && j.narrow {
			return j.number(bounds, json.Number(s)) | No // as text, or as number
		}
		return j.number(bounds, value)
	}
	if !isTable {
		all := No
		for _, c := range list(condition) {
			all = some(all, j.plainElement(c, value))
		}
		return all
	}
	return j.text(condition, value)
}

// plainElement compares with a text or number. A number for a text, or the reverse, may
// count as another type, or as the text that it is.
func (j judge) plainElement(want, value any) Answer {
	if s, ok := want.(string); ok {
		return j.text(s, value)
	}
	if b, ok := want.(bool); ok {
		return j.boolean(b, value)
	}
	return j.number(want, value)
}

// amount answers for an amount of money.
func (j judge) amount(declared Argument, condition, value any) Answer {
	bounds, ok := condition.(map[string]any)
	if !ok {
		return Unknown
	}
	limits := map[string]any{}
	for _, key := range []string{"max", "min"} {
		if v, ok := bounds[key]; ok {
			limits[key] = v
		}
	}
	all := j.scalar(value, func(v any) Answer { return j.figure(limits, v) })
	if c := j.currency(declared, bounds); c != No || !all.Has(Unknown) {
		return every(all, c)
	}
	return No | Unknown
}

// thousands is an amount that some read as thousands.
var thousands = regexp.MustCompile(`^\d{1,3}\.\d{3}$`)

func (j judge) figure(limits map[string]any, value any) Answer {
	text, isText := value.(string)
	if n, ok := value.(json.Number); ok {
		text = string(n)
	} else if !isText {
		return Unknown
	}
	trimmed := strings.TrimPrefix(strings.TrimSpace(text), "+")
	r, ok := rational(trimmed)
	if !ok {
		return Unknown
	}
	a := j.between(limits, r)
	_, hasMin := limits["min"]
	if j.narrow && !hasMin && r.Sign() < 0 {
		a = No
	}
	switch odd := trimmed != text || strings.ContainsAny(text, "eE"); {
	case (odd || thousands.MatchString(text)) && j.narrow:
		return No
	case odd:
		return a | Unknown
	}
	return a
}

func (j judge) currency(declared Argument, bounds map[string]any) Answer {
	want, stated := bounds["currency"].(string)
	_, named := j.q.Declared[declared.Currency]
	switch {
	case !stated && named && j.narrow:
		return No
	case !stated && named:
		return Unknown | Yes
	case !stated:
		return Yes
	case declared.Currency == "":
		return Unknown
	case !named:
		return answer(want == declared.Currency || !j.narrow && strings.EqualFold(want, declared.Currency))
	}
	value, given := j.q.Args[declared.Currency]
	is, ok := value.(string)
	if !given || !ok {
		return Unknown
	}
	if j.narrow {
		return answer(is == want)
	}
	return answer(fold(is) == fold(want))
}

const lineBreaks = "\n\r\v\f\u0085\u2028\u2029"

// text answers for a text.
func (j judge) text(condition, value any) Answer {
	s, ok := value.(string)
	if n, isNumber := value.(json.Number); isNumber {
		if j.narrow {
			return No
		}
		return j.text(condition, string(n)) | Unknown
	}
	if !ok {
		return Unknown
	}
	m, ok := condition.(map[string]any)
	if !ok {
		all := No
		for _, want := range texts(condition) {
			all = some(all, j.equal(want, s))
		}
		return all
	}
	all := Yes
	for key, want := range m {
		one := No
		for _, x := range texts(want) {
			one = some(one, j.textKey(key, x, s))
		}
		all = every(all, one)
	}
	return all
}

func (j judge) textKey(key, want, s string) Answer {
	switch key {
	case "equals":
		return j.equal(want, s)
	case "contains":
		if j.narrow {
			return answer(strings.Contains(s, want) && !strings.ContainsAny(s, lineBreaks))
		}
		return wideContains(want, s)
	case "matches":
		if j.narrow {
			return answer(want == "(?s).*" || whole(want, s) && !strings.ContainsAny(s, lineBreaks))
		}
		return wideMatches(want, s)
	}
	return Unknown
}

func whole(pattern, s string) bool {
	re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	return err == nil && re.MatchString(s)
}

// fold removes what a wide comparison does not see.
func fold(s string) string {
	s = norm.NFKC.String(s)
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case unicode.In(r, unicode.Cf, unicode.Cc, unicode.Variation_Selector), strings.ContainsRune("\u034f\u115f\u1160\u2800\u3164", r):
			continue
		default:
			r = smallest(r)
		}
		if r != ' ' || !strings.HasSuffix(b.String(), " ") {
			b.WriteRune(r)
		}
	}
	return strings.TrimSpace(b.String())
}

// smallest is one rune for all that differ in case only.
func smallest(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return unicode.ToLower(least)
}

func linesOf(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(lineBreaks, r) })
}

// wideEquals compares a whole text, or one of its lines.
func wideEquals(want, s string) Answer {
	if fold(want) == fold(s) {
		return Yes
	}
	for _, line := range linesOf(s) {
		if fold(want) == fold(line) {
			return Yes
		}
	}
	if squeezed(want) == squeezed(s) {
		return No | Yes // only a blank more or less
	}
	return No
}

func wideContains(want, s string) Answer {
	if strings.Contains(fold(s), fold(want)) {
		return Yes
	}
	if strings.Contains(squeezed(s), squeezed(want)) {
		return No | Yes
	}
	return No
}

func squeezed(s string) string { return strings.ReplaceAll(fold(s), " ", "") }

// wideMatches holds for the whole text, the text without blanks around it, or a line.
func wideMatches(pattern, s string) Answer {
	tries := append([]string{s, strings.TrimSpace(s), fold(s)}, linesOf(s)...)
	for _, line := range linesOf(s) {
		tries = append(tries, strings.TrimSpace(line), fold(line))
	}
	maybe := No
	for _, x := range tries {
		if whole("(?i:"+pattern+")", x) {
			return Yes
		}
		if whole("(?is:"+pattern+")", x) || whole("(?is:"+pattern+")", squeezed(x)) {
			maybe = No | Yes
		}
	}
	return maybe
}
