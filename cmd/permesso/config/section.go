package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// reader turns a tree into a Config and collects the issues.
type reader struct {
	cfg      *Config
	check    func(approval.Handler) error
	ready    func(approval.Handler) error
	resolve  func(string) (string, error)
	servedBy int
	servers  map[string]approval.Handler // of [mcp], by name
	toolAt   map[string]*section         // where a tool is, by name
	issues   []Issue
	top      *section
	rows     []Row // of the table, once an unknown key needs them
}

// section has the decoded keys of one table. Values come only from the table of
// keys: what is not there cannot be read.
type section struct {
	*reader
	node   *node
	path   string
	self   Key // its row, with the rows of its keys
	values map[string]any
	tables map[string]*section
	lists  map[string][]*section
	failed bool // an issue of one of its keys was reported
}

// section decodes n and all tables below it.
func (r *reader) section(n *node, path string, self Key) *section {
	s := &section{reader: r, node: n, path: path, self: self, values: map[string]any{}, tables: map[string]*section{}, lists: map[string][]*section{}}
	if r.top == nil {
		r.top = s
	}
	for _, k := range self.Keys {
		if !k.isName() {
			s.decode(k, n.children[k.Name])
		}
	}
	for _, name := range n.order {
		if k, ok := s.row(name); !ok {
			s.unknown(n.children[name], name)
		} else if k.isName() {
			k.Name, k.Hint, k.named = name, self.Hint, true
			s.decode(k, n.children[name])
		}
	}
	return s
}

// row returns the row of a key.
func (s *section) row(name string) (Key, bool) {
	for _, k := range s.self.Keys {
		if k.Name == name || k.isName() && (len(k.names) == 0 || slices.Contains(k.names, name)) {
			return k, true
		}
	}
	return Key{}, false
}

func (s *section) decode(k Key, n *node) {
	switch {
	case n == nil:
		s.unset(k)
	case len(k.kinds) > 0 && !slices.Contains(k.kinds, n.kind):
		s.mismatch(k, n)
		s.values[k.Name], _ = s.defaultOf(k)
	case n.kind == table && k.Keys != nil:
		s.tables[k.Name] = s.section(n, s.fullKey(k.Name), k)
	case n.kind == array && k.isList():
		for i, item := range n.items {
			if item.kind != table {
				s.fail(item.val, k.Name, k.Hint, "%s must hold tables, not %s", k.Name, item.kind)
				continue
			}
			s.lists[k.Name] = append(s.lists[k.Name], s.section(item, fmt.Sprintf("%s[%d]", s.fullKey(k.Name), i+1), k))
		}
		if len(n.items) == 0 {
			s.recordValue(k.Name, n)
		}
	case k.read != nil:
		s.recordValue(k.Name, n)
		if s.values[k.Name] = k.read(s, k, n); s.values[k.Name] == nil {
			s.values[k.Name], _ = s.defaultOf(k)
		}
	}
}

func (s *section) mismatch(k Key, n *node) {
	switch {
	case k.named && k.kinds[0] == table && secret(k.Name):
		s.inlineSecret(n, k.Name)
	case k.named && k.kinds[0] == table:
		s.fail(n.key, k.Name, k.Hint, "%s in [%s] must be a table, not %s", quote(k.Name), s.path, n.kind)
	default:
		s.fail(n.val, k.Name, k.hintText(), "%s must be %s, not %s", k.Name, k.kinds[0], n.kind)
	}
}

// unset applies the default of a key.
func (s *section) unset(k Key) {
	switch {
	case k.implied != nil:
		s.tables[k.Name] = s.section(k.implied(), s.fullKey(k.Name), k)
	case k.read == nil && !slices.Contains(k.kinds, array):
	default:
		var shown any
		s.values[k.Name], shown = s.defaultOf(k)
		s.cfg.Settings = append(s.cfg.Settings, Setting{s.fullKey(k.Name), shown, 0})
	}
}

// defaultOf returns the default of a key, and how to show it.
func (s *section) defaultOf(k Key) (value, shown any) {
	switch {
	case k.Default == fromTop:
		return s.top.values[k.Name], s.top.values[k.Name]
	case k.Default == "" && len(k.kinds) > 0 && k.kinds[0] == array:
		return nil, []any{}
	case k.Default == "":
		return nil, nil
	}
	n := literal(k.Default)
	return k.read(s, k, n), n.value()
}

func (s *section) fullKey(key string) string {
	if s.path == "" || key == "" {
		return s.path + key
	}
	return s.path + "." + key
}

func (s *section) has(key string) bool { return s.node.children[key] != nil }

func (s *section) fail(at pos, key, hint, format string, args ...any) {
	s.failed = true
	s.issues = append(s.issues, Issue{at.line, at.col, s.fullKey(key), fmt.Sprintf(format, args...), hint})
}

// isRefused reports whether this table or one below it had an issue.
func (s *section) isRefused() bool {
	for _, below := range s.tables {
		if below.isRefused() {
			return true
		}
	}
	return s.failed
}

func (s *section) warn(at pos, key, hint, format string, args ...any) {
	s.cfg.Warnings = append(s.cfg.Warnings, Issue{at.line, at.col, s.fullKey(key), fmt.Sprintf(format, args...), hint})
}

// get returns the value of a key, zero if it has none. A key without a row is a
// mistake in this package.
func get[T any](s *section, key string) T {
	if _, ok := s.row(key); !ok {
		panic("config: no row for key " + s.fullKey(key))
	}
	v, _ := s.values[key].(T)
	return v
}

func (s *section) text(key string) string            { return get[string](s, key) }
func (s *section) flag(key string) bool              { return get[bool](s, key) }
func (s *section) number(key string) int64           { return get[int64](s, key) }
func (s *section) duration(key string) time.Duration { return get[time.Duration](s, key) }
func (s *section) items(key string) []*node          { return get[[]*node](s, key) }

// table returns a table, nil if there is none.
func (s *section) table(key string) *section {
	get[any](s, key)
	return s.tables[key]
}

func (s *section) list(key string) []*section {
	get[any](s, key)
	return s.lists[key]
}

// texts returns the strings of a list.
func (s *section) texts(key string) (all []string) {
	for _, n := range s.items(key) {
		all = append(all, n.text)
	}
	return all
}

// values returns the values of a table by name, nil if it has none.
func values[T any](s *section, key string) map[string]T {
	sub := s.table(key)
	if sub == nil || len(sub.node.order) == 0 {
		return nil
	}
	all := map[string]T{}
	for name := range sub.values {
		if v, ok := sub.values[name].(T); ok {
			all[name] = v
		}
	}
	return all
}

// each visits the tables below key, in the order of the file.
func (s *section) each(key string, visit func(name string, sub *section)) {
	all := s.table(key)
	if all == nil {
		return
	}
	for _, name := range all.node.order {
		if sub := all.tables[name]; sub != nil {
			visit(name, sub)
		}
	}
}

// require reports keys that are missing. what says that the key is needed.
func (s *section) require(at pos, hint, what string, keys ...string) {
	for _, key := range keys {
		if !s.has(key) {
			s.fail(at, key, hint, what, key)
		}
	}
}

// unknown reports a key that is not in the table of keys, and secrets below it.
func (s *section) unknown(n *node, key string) {
	if secret(key) {
		s.inlineSecret(n, key)
		return
	}
	if s.isGone(n, key) {
		return
	}
	var known []string
	for _, k := range s.self.Keys {
		if k.isName() {
			known = append(known, k.names...)
		} else {
			known = append(known, k.Name)
		}
	}
	format, hint := "unknown key %s", s.whereKeyBelongs(key, s.path)
	if s.self.unknown != "" {
		format, hint = s.self.unknown, s.self.unknownHint
	}
	s.fail(n.key, key, didYouMean(key, known, hint), format, quote(key))
	for _, below := range n.order {
		if secret(below) {
			(&section{reader: s.reader, path: s.fullKey(key)}).inlineSecret(n.children[below], below)
		}
	}
}

func (s *section) inlineSecret(n *node, key string) {
	s.fail(n.key, key, fmt.Sprintf("put it into a separate file that only the daemon can read: %s_file = \"/path\"", key),
		"%s: secrets are not allowed in this file", key)
}

// secret reports whether the name of a key stands for a secret.
func secret(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"token", "password", "passwd", "passphrase", "secret", "api_key", "apikey", "private_key"} {
		if key == word || strings.HasSuffix(key, "_"+word) {
			return true
		}
	}
	return false
}

// position returns the position of a dotted key's value, or of the part that exists.
func (s *section) position(key string) pos {
	n := s.node
	for part := range strings.SplitSeq(key, ".") {
		child := n.children[part]
		if child == nil {
			break
		}
		n = child
	}
	if n == s.node {
		return n.key
	}
	return n.val
}
