package chat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// typedValue renders one argument. All its lines but the remarks, which begin with ⚠
// or ·, are behind the label, a bar, or the sign of a difference.
type typedValue struct {
	renderer
	arg   approval.Argument
	name  string // as declared
	label string // the name, rendered
}

// typed displays an argument completely. Each byte of its value can be read back
// from the lines, except for masked tokens. Values that differ have different lines:
//
//	label: value      a short value
//	label:            one value on several lines, each behind a bar
//	label (2):        a list: each element begins behind a bar, and goes on behind ┆
//	⚠ …               before the label: a value of another type, as JSON
func (r renderer) typed(name string, a approval.Argument, v approval.Raw) []Line {
	t := typedValue{renderer: r, arg: a, name: name, label: r.name(name)}
	if kind := t.withheldIn(v); kind != "" {
		return t.inline(LineText, t.maskText(&hidden{Span: Span{Kind: kind}, withheld: true}, ""))
	}
	if lines, ok := t.byType(v); ok {
		return lines
	}
	lines, ok := t.json(v)
	if !ok {
		return append(t.remark(Format(r.Values.Unreadable, "name", t.label)), t.block(LineCode, string(v))...)
	}
	return append(t.remark(Format(r.Values.Mismatch, "name", t.label, "type", Escape(a.Type))), lines...)
}

// withheldIn is the kind of the secret because of which v must not leave this host, ""
// if there is none. In other JSON than a text or a list of texts each text is withheld
// by itself.
func (t typedValue) withheldIn(v approval.Raw) string {
	texts, _, _ := textsOf(v)
	for _, s := range texts {
		if kind := t.withheld(s); kind != "" {
			return kind
		}
	}
	return ""
}

// byType says false if the value is not of the argument's type.
func (t typedValue) byType(v approval.Raw) ([]Line, bool) {
	text, isText := codec.Field{Value: v}.Text()
	switch kind := v.Kind(); t.arg.Type {
	case facts.TypeNumber:
		return t.inline(LineText, Escape(compact(v))), kind == '0'
	case facts.TypeBool:
		return t.inline(LineText, Escape(compact(v))), kind == 't' || kind == 'f'
	case facts.TypeAmount:
		return t.amount(v)
	case facts.TypePath:
		return t.oneOrMore(v, LineStrong, t.whole)
	case facts.TypeTable:
		return t.oneOrMore(v, LineStrong, t.maskedLine)
	case facts.TypeURL:
		return t.urls(v)
	case facts.TypeHost:
		return t.hosts(v)
	case facts.TypeRecipients:
		return t.recipients(v)
	case facts.TypeCommand:
		return t.command(v)
	case facts.TypeDiff:
		return t.patch(text), isText
	case facts.TypeList:
		return t.list(v)
	case facts.TypeJSON:
		return t.json(v)
	case facts.TypeProgram:
		return t.text(LineCode, text), isText
	}
	return t.written(text), isText
}

func (t typedValue) remark(text string) []Line { return []Line{{LineWarn, text}} }

func (t typedValue) inline(kind LineKind, shown string) []Line {
	return []Line{{kind, t.label + ": " + shown}}
}

// head is the label of a value on several lines.
func (t typedValue) head() Line { return Line{LineLabel, t.label + ":"} }

// count is the label of a list.
func (t typedValue) count(n int) Line {
	return Line{LineLabel, t.label + " (" + strconv.Itoa(n) + "):"}
}

// text is on one line unless it has line breaks or the spaces of a layout. What
// could be taken for another value is in quotation marks.
func (t typedValue) text(kind LineKind, s string) []Line {
	switch {
	case strings.ContainsAny(s, "\n\t"), strings.Contains(s, "   "):
		return t.block(kind, s)
	case s == "" || json.Valid([]byte(s)):
		return t.inline(kind, t.quoted(s))
	}
	return t.inline(kind, t.maskedLine(s))
}

// block is a text with its lines.
func (t typedValue) block(kind LineKind, s string) []Line {
	lines := []Line{t.head()}
	for _, l := range t.blockLines(s, t.secrets(s)) {
		lines = append(lines, Line{kind, withBar(l)})
	}
	return lines
}

// whole is a text in one line, never masked. It may be withheld.
func (t typedValue) whole(s string) string {
	if kind := t.withheld(s); kind != "" {
		return t.maskText(&hidden{Span: Span{Kind: kind}, withheld: true}, s)
	}
	if s == "" || s[0] == '"' {
		return Quote(s)
	}
	return Escape(s)
}

// maskedLine is a text in one line.
func (t typedValue) maskedLine(s string) string {
	if s == "" || s[0] == '"' {
		return t.quoted(s)
	}
	return t.oneLine(s, t.secrets(s))
}

// quoted is a text in quotation marks.
func (r renderer) quoted(s string) string {
	return `"` + r.masked(s, r.secrets(s), inQuote)[0] + `"`
}

// blockLines are the lines of s as in Block, without the bars, and with masks.
func (r renderer) blockLines(s string, secrets []hidden) []string {
	return r.masked(s, secrets, inBlock)
}

// oneLine is s as in Escape, with masks.
func (r renderer) oneLine(s string, secrets []hidden) string { return r.masked(s, secrets, inLine)[0] }

// masked escapes s with masks. A block is split at its line breaks.
func (r renderer) masked(s string, secrets []hidden, m mode) []string {
	var lines []string
	at, line := 0, ""
	for piece, secret := range pieces(s, secrets) {
		if secret != nil {
			line += r.maskText(secret, piece)
			at += len(piece)
			continue
		}
		for {
			part, rest, more := piece, "", false
			if m == inBlock {
				part, rest, more = strings.Cut(piece, "\n")
			}
			first := at == 0 || m == inBlock && s[at-1] == '\n'
			at += len(part)
			line += escapePart(part, m, first, at == len(s) || m == inBlock && s[at] == '\n')
			if !more {
				break
			}
			lines, line, piece, at = append(lines, line), "", rest, at+1
		}
	}
	return append(lines, line)
}

// textsOf are the texts of a text or of a list of texts.
func textsOf(v approval.Raw) (all []string, list, ok bool) {
	if s, isText := (codec.Field{Value: v}).Text(); isText {
		return []string{s}, false, true
	}
	items, err := codec.Items(v)
	if err != nil {
		return nil, false, false
	}
	for _, it := range items {
		s, isText := codec.Field{Value: it}.Text()
		if !isText {
			return nil, false, false
		}
		all = append(all, s)
	}
	return all, true, true
}

// oneOrMore displays a text, or a list of texts.
func (t typedValue) oneOrMore(v approval.Raw, kind LineKind, show func(string) string) ([]Line, bool) {
	texts, list, ok := textsOf(v)
	switch {
	case !ok:
		return nil, false
	case !list:
		return t.inline(kind, show(texts[0])), true
	}
	lines := []Line{t.count(len(texts))}
	for _, s := range texts {
		lines = append(lines, Line{kind, withBar(show(s))})
	}
	return lines, true
}

// list displays texts in quotation marks, numbers, and booleans.
func (t typedValue) list(v approval.Raw) ([]Line, bool) {
	items, err := codec.Items(v)
	if err != nil {
		return nil, false
	}
	lines := []Line{t.count(len(items))}
	for _, it := range items {
		shown := Escape(compact(it))
		switch it.Kind() {
		case '"':
			s, _ := codec.Field{Value: it}.Text()
			shown = t.quoted(s)
		case '[', '{':
			return nil, false
		}
		lines = append(lines, Line{LineCode, withBar(shown)})
	}
	return lines, true
}

// amount displays a number or a decimal text, with its currency unless another argument
// says it. A text is in quotation marks.
func (t typedValue) amount(v approval.Raw) ([]Line, bool) {
	text, isText := codec.Field{Value: v}.Text()
	shown := Quote(text)
	if !isText {
		text = compact(v)
		shown = Escape(text)
	}
	a := facts.AmountOf(text)
	if !a.Valid {
		return nil, false
	}
	currency := t.currency()
	if currency == t.arg.Currency { // else another argument, with its own line
		shown = strings.TrimSuffix(shown+" "+currency, " ")
	}
	lines := t.inline(LineStrong, shown)
	for _, f := range []struct {
		is   bool
		text string
	}{
		{t.arg.Currency != "" && currency == "", t.Values.NoCurrency},
		{a.Zero, t.Values.Zero},
		{a.Negative, t.Values.Negative},
		{a.Exponent, t.Values.Exponent},
	} {
		if f.is {
			lines = append(lines, Line{LineWarn, f.text})
		}
	}
	return lines, true
}

// currency is the code, or what the argument that names it says; "" if there is none.
func (t typedValue) currency() string {
	_, declared := t.p.Runs.Args[t.arg.Currency]
	if !declared && facts.IsCurrency(t.arg.Currency) {
		return t.arg.Currency
	}
	fields, err := codec.Fields(t.p.RequestData)
	i := slices.IndexFunc(fields, func(f codec.Field) bool { return f.Name == t.arg.Currency })
	if err != nil || i < 0 {
		return ""
	}
	s, ok := fields[i].Text()
	switch {
	case !ok:
		return t.value(fields[i].Value)
	case facts.IsCurrency(s):
		return s
	}
	return t.quoted(s)
}
