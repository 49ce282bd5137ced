package config

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"github.com/permesso-dev/permesso/approval"
)

//go:embed prose.toml
var proseFile []byte

// prose returns the texts of prose.toml by name.
var prose = sync.OnceValue(func() (texts map[string]string) {
	if err := toml.Unmarshal(proseFile, &texts); err != nil {
		panic(err) // they are part of the program
	}
	return texts
})

// ExampleOptions has settings for a first configuration. Zero fields get the defaults.
type ExampleOptions struct {
	Workspace string
	Autonomy  string
	Approver  string // a name, which needs UID; "": only the local operator
	UID       string
}

// Example returns a commented configuration to start from, with a workspace and a
// tool. Lines that begin with # and no space are optional settings.
func Example() string { return ExampleOptions{}.Example() }

// Example returns the example with these settings. The names must be valid.
func (s ExampleOptions) Example() string {
	top := permessoKeys()
	text := prose()["top"]
	for _, k := range top.Keys {
		if k.read != nil {
			text += k.line()
		}
	}
	text += top.sections("")
	if s.Workspace != "" {
		text = strings.ReplaceAll(text, "[workspaces.default]", "[workspaces."+s.Workspace+"]")
		text = strings.ReplaceAll(text, `workspace = "default"`, "workspace = "+strconv.QuoteToASCII(s.Workspace))
	}
	if s.Autonomy != "" {
		text = strings.Replace(text, `autonomy = "supervised"`, "autonomy = "+strconv.QuoteToASCII(s.Autonomy), 1)
	}
	if s.Approver != "" {
		text = strings.Replace(text, "approvers = []", "approvers = ["+strconv.QuoteToASCII(s.Approver)+"]", 1)
		text = strings.Replace(text, "#[approvers.ann]\n#local = 1000 ", "[approvers."+s.Approver+"]\nlocal = "+s.UID+" ", 1)
		text = strings.Replace(text, `#principal = "ann"`, "#principal = "+strconv.QuoteToASCII(s.Approver), 1)
	}
	return text
}

// sections returns the tables of the example, each with its own header.
func (k Key) sections(path string) (text string) {
	for _, below := range k.Keys {
		if !below.isTable() {
			continue
		}
		at, header := strings.TrimPrefix(path+"."+cmp.Or(below.exampleName, below.Name), "."), "[%s]"
		if below.isList() {
			header = "[[%s]]"
		}
		if (path == "" || path == "channels") && (below.Keys[0].isName() || len(below.kinds) == 0) {
			text += below.sections(at)
			continue
		}
		if !below.shown {
			header = "#" + header
		}
		text += "\n" + prose()[below.prose] + fmt.Sprintf(header, at) + "\n"
		for _, inner := range below.Keys {
			text += inner.line()
		}
		if below.after != nil {
			text += below.after()
		}
	}
	return text
}

// line returns a key with its value, as a comment unless the example sets it.
func (k Key) line() string {
	text := k.Name + " = " + k.example()
	switch {
	case k.instead:
		text = "# " + text
	case !k.shown:
		text = "#" + text
	}
	if k.isTable() {
		text = prose()[k.prose] + text
	}
	if k.Help != "" {
		text = fmt.Sprintf("%-32s # %s", text, k.Help)
	}
	var more []string
	for _, below := range k.Keys {
		if below.instead {
			more = append(more, below.Name+" = "+below.example())
		}
	}
	if len(more) > 0 {
		text += "\n# in " + k.Name + " also: " + strings.Join(more, ", ")
	}
	return text + "\n"
}

// example returns the value of a key in the example.
func (k Key) example() string {
	switch {
	case k.Example != "":
		return k.Example
	case k.Default != "":
		return k.Default
	case k.Keys == nil:
		return "[]"
	}
	var items []string
	for _, below := range k.Keys {
		if !below.instead {
			items = append(items, cmp.Or(below.exampleName, below.Name)+" = "+below.example())
		}
	}
	return "{ " + strings.Join(items, ", ") + " }"
}

// toolExamples are more tools.
func toolExamples() string {
	text := prose()["tool_http"]
	for _, k := range handlerKeys() {
		k.instead = k.handler == approval.HandlerCommand || k.handler == approval.HandlerMCP
		text += k.line()
	}
	return text + prose()["tool_args"]
}

func ruleExamples() string { return prose()["rule_proofs"] }

// Schema returns a JSON schema of permesso.toml, for editors.
func Schema() ([]byte, error) {
	s := permessoKeys().schema()
	s["$schema"], s["title"] = "http://json-schema.org/draft-07/schema#", "permesso.toml"
	return json.MarshalIndent(s, "", "  ")
}

// schema is the schema of the values of a key.
func (k Key) schema() schema {
	s := maps.Clone(k.valueType.schema)
	if k.Keys != nil {
		s = k.tableSchema(s)
	}
	if s == nil {
		s = schema{}
	}
	if k.Help != "" {
		s["description"] = k.Help
	}
	if k.Default != "" && k.Default != fromTop {
		n := literal(k.Default)
		s["default"] = n.value()
	}
	return s
}

// tableSchema is the schema of a table, a list of tables, or a table or other.
func (k Key) tableSchema(other schema) schema {
	properties := map[string]schema{}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	for _, below := range k.Keys {
		switch {
		case !below.isName():
			properties[below.Name] = below.schema()
		case below.names != nil:
			for _, name := range below.names {
				properties[name] = below.schema()
			}
		default:
			s["additionalProperties"] = below.schema()
		}
	}
	switch {
	case k.isList():
		return schema{"type": "array", "items": s}
	case other != nil:
		return schema{"anyOf": []schema{other, s}}
	}
	return s
}

// Manual returns the manual page permesso.toml(5) in roff.
func Manual(date string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH PERMESSO.TOML 5 %s permesso\n.SH NAME\npermesso.toml \\- configuration of permesso\n", date)
	b.WriteString(prose()["manual"])
	b.WriteString(".SH KEYS\n")
	for _, r := range Rows() {
		text := strings.Trim(r.text+": "+r.Help, ": ")
		if words := strings.TrimPrefix(r.text, "one of "); strings.HasPrefix(r.Help, words) {
			text = r.Help
		}
		fmt.Fprintf(&b, ".TP\n.B %s\n%s.\n", Roff(r.Path), Roff(text))
		if r.Default != "" {
			b.WriteString("Default: " + Roff(strings.Replace(r.Default, fromTop, "that of the same key at the top of the file", 1)) + ".\n")
		}
		if example := r.Example; example != "" && example != r.Default {
			b.WriteString("Example: " + Roff(example) + ".\n")
		}
		if r.Restart {
			b.WriteString("A change takes effect after a restart.\n")
		}
	}
	b.WriteString(".SH EXAMPLE\n.EX\n")
	for line := range strings.Lines(Example()) {
		b.WriteString(Roff(line))
	}
	b.WriteString(".EE\n.SH SEE ALSO\n.BR permesso (1),\n.BR permesso\\-config (1)\n")
	return b.String()
}

// Roff escapes text for a manual page. A line must not begin with a control character.
func Roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

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
	rows := Rows()
	return slices.DeleteFunc(c.changes(next), func(key string) bool {
		return !slices.ContainsFunc(rows, func(r Row) bool { return r.Restart && r.Path == key })
	})
}
