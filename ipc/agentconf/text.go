package agentconf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval/codec"
)

const (
	maxText  = 64 << 20 // bytes; Claude Code keeps more than settings in its file
	maxDepth = 100
)

// Text is a text of settings: JSON, with or without comments and commas behind a last member, or TOML.
type Text struct {
	Bytes []byte
	Root  *Value

	comments bool
	plain    []byte       // of JSON: without comments
	lines    []expression // of TOML
}

// Value is one value, and its place in the text in bytes. Both are 0 for a table of TOML that is written in parts.
type Value struct {
	Start, End int
	Kind       byte   // '{', '[', '"', or 0 for any other
	String     string // of kind '"'
	Members    []Member
	Items      []*Value
}

// Member is one member of an object or a table.
type Member struct {
	Name       string
	Start, End int // its name, or all of a dotted one; both 0 if it is part of the name of a table
	*Value
}

// Parse reads a text. Empty settings are an empty object.
func Parse(text []byte, toml bool) (*Text, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("it is longer than %d MiB", maxText>>20)
	}
	t := &Text{Bytes: text}
	if toml {
		return t, t.parseTOML()
	}
	return t, t.parseJSON()
}

// Get is the member of a name, nil if there is none.
func (v *Value) Get(name string) *Member {
	if v == nil {
		return nil
	}
	i := slices.IndexFunc(v.Members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &v.Members[i]
}

// At is the value below these names, nil if there is none.
func (v *Value) At(names ...string) *Value {
	for _, name := range names {
		m := v.Get(name)
		if m == nil {
			return nil
		}
		v = m.Value
	}
	return v
}

// Texts are the items of a list of texts.
func (v *Value) Texts() (all []string, ok bool) {
	if v.Kind != '[' {
		return nil, false
	}
	for _, item := range v.Items {
		if item.Kind != '"' {
			return nil, false
		}
		all = append(all, item.String)
	}
	return all, true
}

// Raw are the bytes of a value.
func (t *Text) Raw(v *Value) string { return string(t.Bytes[v.Start:v.End]) }

// loneBreak is a carriage return alone, or a line separator of Unicode.
var loneBreak = regexp.MustCompile("\r(?:[^\n]|$)|[\u2028\u2029]")

var mark = []byte("\xef\xbb\xbf") // the byte order mark

// blank replaces what is not JSON by as many spaces, so that each byte keeps its place: a byte order mark, comments, and
// the comma behind a last member.
func blank(text []byte) (out []byte, comments bool) {
	out = slices.Clone(text)
	erase := func(from, to int) {
		for i := from; i < to; i++ {
			out[i] = ' '
		}
	}
	if bytes.HasPrefix(out, mark) {
		erase(0, len(mark))
	}
	comma := -1 // the last one with nothing behind it
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
			comma = -1
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			end := bytes.IndexByte(out[i:], '\n')
			if out[i+1] == '*' {
				if end = bytes.Index(out[i+2:], []byte("*/")); end < 0 {
					return out, comments // it does not end: no JSON
				}
				end += 4
			} else if end < 0 {
				end = len(out) - i
			}
			erase(i, i+end)
			i, comments = i+end-1, true
		case c == ',':
			comma = i
		case c == '}' || c == ']':
			if comma >= 0 {
				erase(comma, comma+1)
				comments = true
			}
			comma = -1
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			comma = -1
		}
	}
	return out, comments
}

func (t *Text) parseJSON() error {
	plain, comments := blank(t.Bytes)
	t.plain, t.comments = plain, comments
	if comments && loneBreak.Match(t.Bytes) {
		return errors.New("a line ends by a character that some programs take for the end of a comment, and others do not: save it with plain line ends")
	}
	if len(bytes.TrimSpace(plain)) == 0 {
		t.Root = &Value{Kind: '{'}
		return nil
	}
	if err := codec.CheckDepth(plain, maxDepth); err != nil {
		return err
	}
	d := jsontext.NewDecoder(bytes.NewReader(plain))
	v, err := readJSON(d)
	if err == nil {
		if _, end := d.ReadToken(); !errors.Is(end, io.EOF) {
			err = errors.New("there is more behind the object")
		}
	}
	if err == nil && v.Kind != '{' {
		err = errors.New("it is not an object")
	}
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	t.Root = v
	return nil
}

func readJSON(d *jsontext.Decoder) (*Value, error) {
	kind := d.PeekKind()
	if kind != '{' && kind != '[' {
		raw, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		v := &Value{End: int(d.InputOffset())}
		v.Start = v.End - len(raw)
		if kind == '"' {
			text, err := jsontext.AppendUnquote(nil, raw)
			if err != nil {
				return nil, err
			}
			v.Kind, v.String = '"', string(text)
		}
		return v, nil
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	v := &Value{Start: int(d.InputOffset()) - 1, Kind: byte(kind)}
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		var m Member
		if kind == '{' {
			name, err := readJSON(d)
			if err != nil {
				return nil, err
			}
			m.Name, m.Start, m.End = name.String, name.Start, name.End
		}
		item, err := readJSON(d)
		if err != nil {
			return nil, err
		}
		if m.Value = item; kind == '{' {
			v.Members = append(v.Members, m)
		} else {
			v.Items = append(v.Items, item)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	v.End = int(d.InputOffset())
	return v, nil
}

// Same reports whether two texts mean the same: equal bytes, or JSON without comments in another layout.
func Same(x, y []byte, toml bool) bool {
	if bytes.Equal(x, y) {
		return true
	}
	plain := func(text []byte) []byte {
		t, err := Parse(text, false)
		if err != nil || t.comments || bytes.HasPrefix(text, mark) {
			return nil
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return []byte("{}")
		}
		out := jsontext.Value(slices.Clone(text))
		if out.Compact() != nil {
			return nil
		}
		return out
	}
	a, b := plain(x), plain(y)
	return !toml && a != nil && bytes.Equal(a, b)
}

// Edit replaces the bytes from Start to End.
type Edit struct {
	Start, End int
	By         string
}

// Apply makes edits, which do not overlap.
func (t *Text) Apply(edits []Edit) []byte {
	slices.SortStableFunc(edits, func(x, y Edit) int { return x.Start - y.Start })
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, t.Bytes[at:e.Start]...), e.By...)
		at = e.End
	}
	return append(out, t.Bytes[at:]...)
}

// Behind is the place behind the comma that follows a place, or false if something else follows.
func (t *Text) Behind(at int) (int, bool) {
	at = t.skip(at, blanks)
	return at + 1, bytes.HasPrefix(t.Bytes[at:], []byte(","))
}

const blanks = " \t\r\n"

// skip is the place behind the characters of a set that follow a place.
func (t *Text) skip(at int, set string) int {
	return len(t.Bytes) - len(bytes.TrimLeft(t.Bytes[at:], set))
}

// Newline is how the lines of the text end.
func (t *Text) Newline() string {
	if bytes.Contains(t.Bytes, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// Quote is a text as a string of JSON, which is one of TOML, too.
func Quote(text string) string { return string(codec.Quote(text)) }

// QuoteAll are the items of a list.
func QuoteAll(texts []string) string {
	all := make([]string, len(texts))
	for i, x := range texts {
		all[i] = Quote(x)
	}
	return strings.Join(all, ", ")
}

// space is the white space before a place.
func (t *Text) space(end int) string {
	return string(t.Bytes[len(bytes.TrimRight(t.Bytes[:end], blanks)):end])
}

// indent is the white space at the beginning of the line of a place.
func (t *Text) indent(at int) string {
	line := t.Bytes[bytes.LastIndexByte(t.Bytes[:at], '\n')+1 : at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// Field is one member of what is put in: a text, a list of texts, a number, a truth value, or fields.
type Field struct {
	Name  string
	Value any
}

// render writes a value over lines that begin with indent; "" as unit: on one line.
func render(v any, nl, indent, unit string) string {
	switch v := v.(type) {
	case string:
		return Quote(v)
	case []string:
		return "[" + QuoteAll(v) + "]"
	case []Field:
		lines := make([]string, len(v))
		for i, f := range v {
			lines[i] = Quote(f.Name) + ": " + render(f.Value, nl, indent+unit, unit)
		}
		if unit == "" {
			return "{" + strings.Join(lines, ", ") + "}"
		}
		return "{" + nl + indent + unit + strings.Join(lines, ","+nl+indent+unit) + nl + indent + "}"
	}
	return fmt.Sprint(v)
}

// Insert puts a member behind the others below these names of JSON, and makes the objects that are missing. Names end with
// that of the member.
func (t *Text) Insert(names []string, fields []Field) ([]byte, error) {
	if len(bytes.TrimSpace(t.plain)) == 0 {
		return append(append(slices.Clone(t.Bytes), render(nested(names, fields), "\n", "", "  ")...), '\n'), nil
	}
	unit := "  "
	if len(t.Root.Members) > 0 {
		if sp := t.space(t.Root.Members[0].Start); strings.Contains(sp, "\n") {
			unit = sp[strings.LastIndexByte(sp, '\n')+1:]
		} else {
			unit = ""
		}
	}
	v := t.Root
	for len(names) > 1 && v.Get(names[0]) != nil {
		v, names = v.Get(names[0]).Value, names[1:]
		if v.Kind != '{' {
			return nil, errors.New("what should hold servers is not an object")
		}
	}
	nl := t.Newline()
	member := func(indent, unit string) string {
		return Quote(names[0]) + ": " + render(nested(names, fields)[0].Value, nl, indent, unit)
	}
	if n := len(v.Members); n > 0 {
		last := v.Members[n-1]
		sp := t.space(last.Start)
		if !strings.Contains(sp, "\n") {
			return t.Apply([]Edit{{last.Value.End, last.Value.End, ", " + member("", "")}}), nil
		}
		return t.Apply([]Edit{{last.Value.End, last.Value.End, "," + sp[strings.IndexAny(sp, "\r\n"):] + member(sp[strings.LastIndexByte(sp, '\n')+1:], unit)}}), nil
	}
	if unit == "" {
		return t.Apply([]Edit{{v.Start + 1, v.Start + 1, member("", "")}}), nil
	}
	base := t.indent(v.Start)
	text := nl + base + unit + member(base+unit, unit)
	if !bytes.Contains(t.Bytes[v.Start:v.End], []byte("\n")) {
		text += nl + base
	}
	return t.Apply([]Edit{{v.Start + 1, v.Start + 1, text}}), nil
}

func nested(names []string, fields []Field) []Field {
	if len(names) == 1 {
		return []Field{{names[0], fields}}
	}
	return []Field{{names[0], nested(names[1:], fields)}}
}

// Cut takes a member of JSON out, and then each object around it that has nothing else; nil: nothing is left.
func (t *Text) Cut(names ...string) []byte {
	around := []*Value{t.Root}
	for _, name := range names[:len(names)-1] {
		around = append(around, around[len(around)-1].At(name))
	}
	for i := len(names) - 1; i >= 0; i-- {
		v, m := around[i], around[i].Get(names[i])
		if len(v.Members) > 1 || len(bytes.TrimSpace(t.Bytes[v.Start+1:m.Start]))+len(bytes.TrimSpace(t.Bytes[m.Value.End:v.End-1])) > 0 {
			return t.Apply(t.Without(v, names[i]))
		}
	}
	return nil
}

// Without are the edits that take a member out of an object of JSON.
func (t *Text) Without(v *Value, name string) []Edit {
	at := slices.IndexFunc(v.Members, func(m Member) bool { return m.Name == name })
	m := v.Members[at]
	from, to := m.Start-len(t.space(m.Start)), m.Value.End
	switch {
	case len(v.Members) == 1:
		return []Edit{{from, to, ""}}
	case at > 0:
		comma := t.comma(v.Members[at-1].Value.End)
		return []Edit{{comma, comma + 1, ""}, {max(from, comma+1), to, ""}}
	}
	comma := t.comma(to)
	return []Edit{{m.Start, to, ""}, {comma, t.skip(comma+1, blanks), ""}}
}

// comma is the place of the first one from a place on, outside of comments.
func (t *Text) comma(from int) int { return from + bytes.IndexByte(t.plain[from:], ',') }
