package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Setting is one key with its value in effect: that of the file, or the default.
type Setting struct {
	Key   string `json:"key"`   // as a dotted path; rules[1] is the first of [[rules]]
	Value any    `json:"value"` // string, int64, bool, []any; nil: not set, without a default
	Line  int    `json:"line"`  // in the file; 0: not set there
}

// Text formats the value as TOML.
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

// String formats the setting as one line, and marks a default.
func (s Setting) String() string {
	switch {
	case s.Value == nil:
		return "# " + s.Key + " is not set"
	case s.Line == 0:
		return s.Key + " = " + s.Text() + "  # default"
	}
	return s.Key + " = " + s.Text()
}

// redacted replaces a value that may be a secret. Secrets belong into separate
// files, so this is a second protection.
const redacted = "(not shown)"

// recordValue records a key that the file sets.
func (s *section) recordValue(key string, n *node) {
	v := n.value()
	if secret(key) {
		v = redacted
	}
	s.cfg.Settings = append(s.cfg.Settings, Setting{s.fullKey(key), v, n.key.line})
}

// showDefault replaces the default of a key that depends on other keys.
func (s *section) showDefault(key string, v any) {
	for i := range s.cfg.Settings {
		if s.cfg.Settings[i].Key == s.fullKey(key) {
			s.cfg.Settings[i].Value = v
		}
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

// changes returns the keys whose values differ between c and next.
func (c *Config) changes(next *Config) (keys []string) {
	values := map[string]string{}
	for _, s := range c.Settings {
		values[s.Key] = s.Text()
	}
	for _, s := range next.Settings {
		if old, known := values[s.Key]; !known || old != s.Text() {
			keys = append(keys, s.Key)
		}
		delete(values, s.Key)
	}
	return append(keys, sortedKeys(values)...)
}

// differsOnly reports whether next differs only in keys with one of these beginnings.
func (c *Config) differsOnly(next *Config, beginnings ...string) bool {
	return !slices.ContainsFunc(c.changes(next), func(key string) bool {
		return !slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(key, b) })
	})
}

// RestartNeeded returns the keys whose change from c to next takes effect only after
// a restart.
func (c *Config) RestartNeeded(next *Config) []string {
	return slices.DeleteFunc(c.changes(next), func(key string) bool {
		return !slices.ContainsFunc(Rows(), func(r Row) bool { return r.Restart && r.Path == key })
	})
}
