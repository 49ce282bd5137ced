package cardtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf16"
)

// value is a JSON value. An object's names are in names, in order; its values in items.
type value struct {
	kind  byte   // s string, n number, b bool, z null, l list, o object
	text  string // of a string: decoded; of a number: as written
	items []*value
	names []string
}

func str(s string) *value               { return &value{kind: 's', text: s} }
func num(s string) *value               { return &value{kind: 'n', text: s} }
func list(items ...*value) *value       { return &value{kind: 'l', items: items} }
func object() *value                    { return &value{kind: 'o'} }
func boolean(b bool) *value             { return &value{kind: 'b', text: fmt.Sprint(b)} }
func (v *value) set(n string, x *value) { v.names, v.items = append(v.names, n), append(v.items, x) }

func (v *value) get(name string) *value {
	if i := slices.Index(v.names, name); i >= 0 {
		return v.items[i]
	}
	return nil
}

func (v *value) clone() *value {
	c := *v
	c.names, c.items = slices.Clone(v.names), slices.Clone(v.items)
	for i, x := range c.items {
		c.items[i] = x.clone()
	}
	return &c
}

// walk calls f for v and all that is inside it.
func (v *value) walk(f func(x *value)) {
	f(v)
	for _, x := range v.items {
		x.walk(f)
	}
}

// parse reads JSON with the decoder of the standard library: the gate uses another one.
func parse(b []byte) (*value, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return parseNext(d)
}

func parseNext(d *json.Decoder) (*value, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := tok.(type) {
	case json.Delim:
		return parseInside(d, t)
	case string:
		return str(t), nil
	case json.Number:
		return num(t.String()), nil
	case bool:
		return boolean(t), nil
	}
	return &value{kind: 'z'}, nil
}

func parseInside(d *json.Decoder, open json.Delim) (*value, error) {
	v := list()
	if open == '{' {
		v = object()
	}
	for d.More() {
		if open == '{' {
			tok, err := d.Token()
			if err != nil {
				return nil, err
			}
			v.names = append(v.names, tok.(string))
		}
		x, err := parseNext(d)
		if err != nil {
			return nil, err
		}
		v.items = append(v.items, x)
	}
	_, err := d.Token()
	return v, err
}

// key is the same for two values only if they are the same JSON value, whatever the order of
// members and the spelling of strings. Numbers count as written.
func (v *value) key() string {
	switch v.kind {
	case 's':
		return fmt.Sprintf("%q", v.text)
	case 'l':
		return "[" + strings.Join(keysOf(v.items), ",") + "]"
	case 'o':
		all := keysOf(v.items)
		for i, n := range v.names {
			all[i] = fmt.Sprintf("%q:", n) + all[i]
		}
		slices.Sort(all)
		return "{" + strings.Join(all, ",") + "}"
	case 'z':
		return "null"
	}
	return v.text
}

func keysOf(all []*value) []string {
	keys := make([]string, len(all))
	for i, x := range all {
		keys[i] = x.key()
	}
	return keys
}

// json is v as an agent may write it. With odd set, characters are escaped at random.
func (v *value) json(odd *rand.Rand) string {
	switch v.kind {
	case 's':
		return quoted(v.text, odd)
	case 'z':
		return "null"
	case 'l', 'o':
	default:
		return v.text
	}
	parts := make([]string, len(v.items))
	for i, x := range v.items {
		parts[i] = x.json(odd)
		if v.kind == 'o' {
			parts[i] = quoted(v.names[i], odd) + ":" + parts[i]
		}
	}
	if v.kind == 'o' {
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func quoted(s string, odd *rand.Rand) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ' || odd != nil && odd.IntN(40) == 0:
			for _, u := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}
