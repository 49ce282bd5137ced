package agentconf

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// expression is a header of a table, or a key with its value.
type expression struct {
	names      []string // all of them, from the root on
	header     bool
	start, end int // its lines
}

// parseTOML reads the text twice: once by the rules, once for the places.
func (t *Text) parseTOML() error {
	plain := t.Bytes
	if bytes.HasPrefix(plain, mark) {
		plain = append([]byte("   "), plain[len(mark):]...)
	}
	var all map[string]any
	if err := toml.Unmarshal(plain, &all); err != nil {
		return fmt.Errorf("not TOML: %w", err)
	}
	t.Root = &Value{Kind: '{'}
	var p unstable.Parser
	p.Reset(plain)
	table, names := t.Root, []string(nil)
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			keys, start, end := keysOf(e)
			names = keys
			if table = t.Root; e.Kind == unstable.ArrayTable {
				table = &Value{Kind: '{'} // a list of tables holds no servers
			} else {
				for _, k := range keys {
					table = table.child(k)
				}
			}
			t.lines = append(t.lines, expression{names, true, t.lineStart(start), t.lineEnd(end)})
		case unstable.KeyValue:
			_, start, _ := keysOf(e)
			path, end := t.member(table, e)
			t.lines = append(t.lines, expression{slices.Concat(names, path), false, t.lineStart(start), t.lineEnd(end)})
		}
	}
	return p.Error()
}

func (v *Value) child(name string) *Value {
	if m := v.Get(name); m != nil {
		return m.Value
	}
	child := &Value{Kind: '{'}
	v.Members = append(v.Members, Member{Name: name, Value: child})
	return child
}

func keysOf(e *unstable.Node) (names []string, start, end int) {
	for it := e.Key(); it.Next(); {
		k := it.Node()
		if names == nil {
			start = int(k.Raw.Offset)
		}
		names, end = append(names, string(k.Data)), int(k.Raw.Offset+k.Raw.Length)
	}
	return names, start, end
}

// member adds a key with its value to a table, and returns its names and its end.
func (t *Text) member(table *Value, e *unstable.Node) (names []string, end int) {
	names, start, end := keysOf(e)
	for _, k := range names[:len(names)-1] {
		table = table.child(k)
	}
	v := t.value(e.Value(), t.skip(end, " \t="))
	if stop := int(e.Raw.Offset + e.Raw.Length); e.Raw.Length > 0 {
		v.End = stop
	}
	table.Members = append(table.Members, Member{Name: names[len(names)-1], Start: start, End: end, Value: v})
	return names, v.End
}

// value is that of a node, which begins at a place.
func (t *Text) value(n *unstable.Node, at int) *Value {
	v := &Value{Start: at, End: at + int(n.Raw.Length)}
	if n.Raw.Length > 0 {
		v.Start, v.End = int(n.Raw.Offset), int(n.Raw.Offset+n.Raw.Length)
	}
	switch n.Kind {
	case unstable.String:
		v.Kind, v.String = '"', string(n.Data)
	case unstable.Array:
		v.Kind = '['
		for it := n.Children(); it.Next(); {
			if it.Node().Kind != unstable.Comment {
				v.Items = append(v.Items, t.value(it.Node(), at))
			}
		}
	case unstable.InlineTable:
		v.Kind = '{'
		for it := n.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				t.member(v, it.Node())
			}
		}
	}
	return v
}

func (t *Text) lineStart(at int) int { return bytes.LastIndexByte(t.Bytes[:at], '\n') + 1 }

func (t *Text) lineEnd(at int) int {
	if i := bytes.IndexByte(t.Bytes[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(t.Bytes)
}

// InsertTable puts a table behind all of a text of TOML.
func (t *Text) InsertTable(names []string, fields []Field) ([]byte, error) {
	if m := t.Root.Get(names[0]); m != nil && m.End > 0 && m.Kind == '{' {
		return nil, fmt.Errorf("%s is written on one line: write its members as tables, [%s.NAME]", names[0], names[0])
	}
	nl := t.Newline()
	var out strings.Builder
	out.Write(t.Bytes)
	if len(t.Bytes) > 0 {
		if t.Bytes[len(t.Bytes)-1] != '\n' {
			out.WriteString(nl)
		}
		out.WriteString(nl)
	}
	out.WriteString("[" + strings.Join(names, ".") + "]" + nl)
	for _, f := range fields {
		out.WriteString(f.Name + " = " + render(f.Value, nl, "", "") + nl)
	}
	return []byte(out.String()), nil
}

// CutTable takes all lines of a table out of a text of TOML, and the empty line before it; nil: nothing is left.
func (t *Text) CutTable(names ...string) ([]byte, error) {
	var edits []Edit
	for _, e := range t.lines {
		switch {
		case len(e.names) < len(names) && !e.header && slices.Equal(e.names, names[:len(e.names)]):
			return nil, errors.New(strings.Join(e.names, ".") + " is written on one line: take it out by hand")
		case len(e.names) < len(names) || !slices.Equal(e.names[:len(names)], names):
			continue
		}
		start := e.start
		if before := t.Bytes[:start]; e.header {
			for _, empty := range []string{"\r\n", "\n"} {
				if rest, ok := bytes.CutSuffix(before, []byte(empty)); ok && (len(rest) == 0 || rest[len(rest)-1] == '\n') {
					start -= len(empty)
					break
				}
			}
		}
		edits = append(edits, Edit{start, e.end, ""})
	}
	out := t.Apply(edits)
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, nil
	}
	return out, nil
}
