package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/security/policy"
)

// Propose returns the [[rules]] lines that allow a request of a tool: its tool in its
// workspace, with exactly these arguments. despite is what the rule lifts besides the table.
func Propose(p *approval.Pending, despite ...string) (string, error) {
	fields, err := codec.Fields(p.RequestData)
	if err != nil {
		return "", fmt.Errorf("read the request's arguments: %w", err)
	}
	match := []string{"tool = " + quoteTOML(p.ToolName), "workspace = " + quoteTOML(p.SourceGroup)}
	var args []string
	for _, f := range fields {
		args = append(args, keyTOML(f.Name)+" = "+conditionOn(f, p.Runs.Args[f.Name].Type))
	}
	if len(args) > 0 {
		match = append(match, "args = { "+strings.Join(args, ", ")+" }")
	}
	lines := []string{
		"[[rules]]", "match = { " + strings.Join(append(match, "other_args = false"), ", ") + " }", `outcome = "allow"`,
	}
	if len(despite) > 0 {
		lines = append(lines, "despite = "+quotedList(despite))
	}
	return strings.Join(append(lines, "reason = "+quoteTOML("as request "+p.ShortID)), "\n"), nil
}

// NewRule is a rule for a tool, a workspace, or both.
type NewRule struct{ Tool, Workspace, Outcome, Reason string }

// Lines formats it as TOML.
func (r NewRule) Lines() string {
	match := lines([]entry{{"tool", written(r.Tool)}, {"workspace", written(r.Workspace)}})
	all := []string{"[[rules]]", "match = { " + strings.Join(match, ", ") + " }", "outcome = " + quoteTOML(r.Outcome)}
	if r.Reason != "" {
		all = append(all, "reason = "+quoteTOML(r.Reason))
	}
	return strings.Join(all, "\n")
}

// Values that a condition names without equals or json.
var (
	plainText   = pattern(`^[\pL\pN@_+-][\pL\pN@_+ .,:/-]*$`)
	plainNumber = pattern(`^(0|-?[1-9][0-9]{0,17})$`)
)

// conditionOn returns the condition that only the value of this argument meets. A text alone
// would be a pattern, if the argument's type has patterns.
func conditionOn(f codec.Field, kind string) string {
	text, isText := f.Text()
	switch value := f.Value.Kind(); {
	case isText && (kind == "" || kind == facts.TypeText) && plainText().MatchString(text):
		return quoteTOML(text)
	case isText:
		return "{ equals = " + quoteTOML(text) + " }"
	case value == 't', value == 'f', value == '0' && plainNumber().MatchString(string(f.Value)):
		return string(f.Value)
	case value == '[':
		if list, ok := sameList(f.Value); ok {
			return "{ equals = " + list + " }"
		}
	}
	v := f.Value.Clone()
	_ = v.Compact() // valid: it was parsed
	return "{ json = " + quoteTOML(string(v)) + " }"
}

// sameList returns a list of texts that a condition compares byte by byte.
func sameList(v approval.Raw) (list string, ok bool) {
	var all []string
	if json.Unmarshal(v, &all) != nil {
		return "", false
	}
	b, err := json.Marshal(all)
	v = v.Clone()
	if err != nil || v.Compact() != nil || string(v) != string(b) {
		return "", false // null, or escapes that TOML does not keep
	}
	items := make([]string, len(all))
	for i, text := range all {
		items[i] = quoteTOML(text)
	}
	return "[" + strings.Join(items, ", ") + "]", true
}

var bareKey = pattern(`^[A-Za-z0-9_-]+$`)

func keyTOML(name string) string {
	if bareKey().MatchString(name) {
		return name
	}
	return quoteTOML(name)
}

// quoteTOML quotes a text. What one cannot see is escaped.
func quoteTOML(text string) string {
	if strings.ContainsAny(text, `"\`) && !strings.Contains(text, "'") && printable(text) {
		return "'" + text + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"', r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// HasRules reports whether rules of this configuration match the same requests as those of these
// lines, with the same outcomes.
func (c *Config) HasRules(lines string) bool {
	rules, err := c.RulesOf(lines)
	return err == nil && len(rules) > 0 && !slices.ContainsFunc(rules, func(r policy.Rule) bool {
		return !slices.ContainsFunc(c.Rules, func(has policy.Rule) bool {
			has.Name, has.Reason = r.Name, r.Reason
			return reflect.DeepEqual(has, r)
		})
	})
}

// RulesOf reads the lines of rules as those of the configuration. They have no names.
func (c *Config) RulesOf(lines string) ([]policy.Rule, error) {
	r := &reader{cfg: &Config{Tools: c.Tools, Workspaces: c.Workspaces, Approvers: c.Approvers}}
	keys := permessoKeys().Keys
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == "rules" })
	if err := r.parse("rule", []byte(lines), func(root *node) {
		r.section(root, "", Key{Keys: keys[i : i+1]}).rules()
	}); err != nil {
		return nil, err
	}
	for i := range r.cfg.Rules {
		r.cfg.Rules[i].Name = ""
	}
	return r.cfg.Rules, nil
}
