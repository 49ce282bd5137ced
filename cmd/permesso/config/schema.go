package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

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
