package config

import (
	"bytes"
	"cmp"
	"errors"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// kind is the TOML type of a value, as error messages name it.
type kind string

const (
	table    kind = "a table"
	array    kind = "an array"
	text     kind = "a string"
	integer  kind = "a whole number"
	float    kind = "a decimal number"
	boolean  kind = "true or false"
	dateTime kind = "a date or time"
)

// pos is a position in the file, both from 1, columns in bytes.
type pos struct{ line, col int }

// node is a value with its position. The library's decoder stops at the first bad
// value and does not keep positions, but some issues show only later: an undefined
// approver.
type node struct {
	kind     kind
	key      pos    // of its key; of an array's item: its own
	val      pos    // of its value
	text     string // content of a string; a number or boolean as written
	children map[string]*node
	order    []string // keys of children, in the order of the file
	items    []*node

	from, to    int // bytes of a scalar; of a key with its value that stands on lines of its own
	header, end int // lines of a table with a header: of the header, and of the last key
}

func newTable(at pos) *node {
	return &node{kind: table, key: at, val: at, children: map[string]*node{}}
}

func (n *node) set(key string, child *node) {
	if _, ok := n.children[key]; !ok {
		n.order = append(n.order, key)
	}
	n.children[key] = child
}

// at returns the node below a path of keys, nil if there is none.
func (n *node) at(path ...string) *node {
	for _, key := range path {
		if n == nil {
			return nil
		}
		n = n.children[key]
	}
	return n
}

// written returns a key that stands on lines of its own below the header of n, nil if
// there is none.
func (n *node) written(key string) *node {
	if n == nil || n.header == 0 {
		return nil
	}
	if below := n.children[key]; below != nil && below.to > 0 {
		return below
	}
	return nil
}

// parseTree reads a TOML document. The library's decoder validates it, also for
// duplicate keys. Its parser then gives the positions.
func parseTree(data []byte) (*node, *Issue) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, &Issue{Line: 1, Col: 1, Message: "the file starts with a byte order mark", Hint: "save it as UTF-8 without one"}
	}
	if err := toml.Unmarshal(data, &map[string]any{}); err != nil {
		return nil, syntaxIssue(err)
	}
	b := &builder{root: newTable(pos{1, 1}), lines: lineStarts(data)}
	b.parser.Reset(data)
	b.open = b.root
	for b.parser.NextExpression() {
		b.expression(b.parser.Expression())
	}
	if b.unplaced || b.parser.Error() != nil {
		return nil, &Issue{Line: 1, Col: 1, Message: "not valid TOML"}
	}
	return b.root, nil
}

// syntaxIssue takes the position and the one-line message. It does not use the
// error's String, which quotes the lines around it.
func syntaxIssue(err error) *Issue {
	de, ok := errors.AsType[*toml.DecodeError](err)
	if !ok {
		return &Issue{Line: 1, Col: 1, Message: "not valid TOML"}
	}
	p := &Issue{Key: strings.Join(de.Key(), "."), Message: "not valid TOML: " + visible(strings.ReplaceAll(de.Error(), "toml: ", ""))}
	p.Line, p.Col = de.Position()
	return p
}

func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, c := range data {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// builder builds the tree of a valid document.
type builder struct {
	parser   unstable.Parser
	lines    []int
	root     *node
	open     *node // the current table
	unplaced bool  // a key does not fit into the tree, although the decoder accepted it
}

func (b *builder) at(r unstable.Range) pos {
	off := int(r.Offset)
	line := sort.SearchInts(b.lines, off+1)
	return pos{line, off - b.lines[line-1] + 1}
}

func (b *builder) expression(e *unstable.Node) {
	switch e.Kind {
	case unstable.Table:
		parent, name, at := b.descend(b.root, e.Key())
		b.open = b.childTable(parent, name, at)
		if len(b.open.order) == 0 {
			b.open.key, b.open.val = at, at
		}
		b.open.header, b.open.end = at.line, at.line
	case unstable.ArrayTable:
		parent, name, at := b.descend(b.root, e.Key())
		list := parent.children[name]
		if list == nil {
			list = &node{kind: array, key: at, val: at}
			parent.set(name, list)
		}
		b.unplaced = b.unplaced || list.kind != array
		b.open = newTable(at)
		list.items = append(list.items, b.open)
	case unstable.KeyValue:
		n := b.keyValue(b.open, e)
		n.setRange(e.Raw)
		b.open.end = b.at(unstable.Range{Offset: uint32(n.to)}).line
	}
}

func (n *node) setRange(r unstable.Range) { n.from, n.to = int(r.Offset), int(r.Offset+r.Length) }

// descend returns the table that has the last part of a dotted key.
func (b *builder) descend(from *node, key unstable.Iterator) (parent *node, name string, at pos) {
	for key.Next() {
		if parent != nil {
			from = b.childTable(parent, name, at)
		}
		parent, name, at = from, string(key.Node().Data), b.at(key.Node().Raw)
	}
	return parent, name, at
}

// childTable returns parent's table called name, and creates a missing one. Of an
// array of tables it returns the last one.
func (b *builder) childTable(parent *node, name string, at pos) *node {
	child := parent.children[name]
	switch {
	case child == nil:
		child = newTable(at)
		parent.set(name, child)
	case child.kind == array && len(child.items) > 0:
		child = child.items[len(child.items)-1]
	}
	if child.kind != table {
		b.unplaced = true
		return newTable(at)
	}
	return child
}

func (b *builder) keyValue(into *node, e *unstable.Node) *node {
	parent, name, at := b.descend(into, e.Key())
	v := b.value(e.Value(), at)
	v.key = at
	parent.set(name, v)
	return v
}

func (b *builder) value(v *unstable.Node, at pos) *node {
	if v.Raw.Length > 0 { // arrays have no position
		at = b.at(v.Raw)
	}
	n := &node{key: at, val: at}
	n.setRange(v.Raw)
	switch v.Kind {
	case unstable.InlineTable:
		n = newTable(at)
		for it := v.Children(); it.Next(); {
			b.keyValue(n, it.Node())
		}
	case unstable.Array:
		n.kind = array
		for it := v.Children(); it.Next(); {
			n.items = append(n.items, b.value(it.Node(), at))
		}
	default:
		n.kind, n.text = cmp.Or(scalarKinds[v.Kind], dateTime), string(v.Data)
	}
	return n
}

// scalarKinds are the kinds of single values; the others are dates and times.
var scalarKinds = map[unstable.Kind]kind{
	unstable.String: text, unstable.Integer: integer, unstable.Float: float, unstable.Bool: boolean,
}
