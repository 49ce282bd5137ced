package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Setting is one key as it holds: what the file says, or the default.
type Setting struct {
	Key   string `json:"key"`   // as a dotted path; rules[1] is the first of [[rules]]
	Value any    `json:"value"` // string, int64, bool, []any; nil: not set, and there is no default
	Line  int    `json:"line"`  // where the file says it; 0: it does not
}

// Text is the value as a file would say it.
func (s Setting) Text() string {
	switch v := s.Value.(type) {
	case nil:
		return ""
	case string:
		return strconv.Quote(v)
	case []any:
		items := make([]string, 0, len(v))
		for _, item := range v {
			items = append(items, Setting{Value: item}.Text())
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}

// String is the setting as one line, with where it comes from.
func (s Setting) String() string {
	switch {
	case s.Value == nil:
		return "# " + s.Key + " is not set"
	case s.Line == 0:
		return s.Key + " = " + s.Text() + "  # default"
	}
	return s.Key + " = " + s.Text()
}

// hidden stands where a value may be a secret. Secrets are kept in files of
// their own, so this is a second bolt.
const redacted = "(not shown)"

// stated notes what the file says of a key.
func (s *section) recordValue(key string, n *node) {
	if n.kind == table || n.kind == array && len(n.items) > 0 && n.items[0].kind == table {
		return // its keys are settings by themselves
	}
	v := n.value()
	if secret(key) {
		v = redacted
	}
	s.cfg.Settings = append(s.cfg.Settings, Setting{s.fullKey(key), v, n.key.line})
}

// unset notes a key that the file does not mention.
func (s *section) recordUnset(key string, want kind) {
	if want == table {
		return
	}
	v := Setting{Key: s.fullKey(key)}
	if want == array {
		v.Value = []any{}
	}
	s.cfg.Settings = append(s.cfg.Settings, v)
}

// otherwise notes the default of the key that was just asked for, where the file
// does not mention it.
func (s *section) setDefault(key string, def any) {
	if i := len(s.cfg.Settings) - 1; i >= 0 && s.cfg.Settings[i].Key == s.fullKey(key) && s.cfg.Settings[i].Line == 0 {
		s.cfg.Settings[i].Value = def
	}
}

func (n *node) value() any {
	switch n.kind {
	case integer:
		if v, err := strconv.ParseInt(n.text, 0, 64); err == nil {
			return v
		}
	case boolean:
		return n.text == "true"
	case array:
		items := make([]any, 0, len(n.items))
		for _, item := range n.items {
			items = append(items, item.value())
		}
		return items
	}
	return n.text
}
