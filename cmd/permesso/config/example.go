package config

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
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
		k.instead = k.handler == approval.HandlerCommand
		text += k.line()
	}
	return text + prose()["tool_facts"]
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
	fmt.Fprintf(&b, ".TH PERMESSO.TOML 5 %s permesso\n.SH NAME\npermesso.toml \\- configuration of permesso\n", roff(date))
	b.WriteString(prose()["manual"])
	b.WriteString(".SH KEYS\n")
	for _, r := range Rows() {
		text := strings.Trim(r.text+": "+r.Help, ": ")
		if words := strings.TrimPrefix(r.text, "one of "); strings.HasPrefix(r.Help, words) {
			text = r.Help
		}
		fmt.Fprintf(&b, ".TP\n.B %s\n%s.\n", roff(r.Path), roff(text))
		if r.Default != "" {
			b.WriteString("Default: " + roff(strings.Replace(r.Default, fromTop, "that of the same key at the top of the file", 1)) + ".\n")
		}
		if r.Restart {
			b.WriteString("A change takes effect after a restart.\n")
		}
	}
	b.WriteString(".SH EXAMPLE\n.EX\n")
	for line := range strings.Lines(Example()) {
		b.WriteString(roff(line))
	}
	b.WriteString(".EE\n.SH SEE ALSO\n.BR permesso (1),\n.BR permesso\\-config (1)\n")
	return b.String()
}

// roff escapes text. A line must not begin with a control character.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
