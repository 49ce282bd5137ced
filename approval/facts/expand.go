package facts

import (
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Expand replaces each {field} of template by that field of data: a string as
// is, anything else as its JSON text, a missing field as "(no field)". Braces
// without a plain name stay.
func Expand(template string, data approval.Raw) string { return expand(template, data, asIs) }

// ExpandQuoted is Expand with strings in quotation marks, which separate the
// agent's text from the operator's. Quotation marks and backslashes of the agent
// get a backslash.
func ExpandQuoted(template string, data approval.Raw) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	return expand(template, data, func(s string) string { return `"` + escape.Replace(s) + `"` })
}

func asIs(s string) string { return s }

func expand(template string, data approval.Raw, quote func(string) string) string {
	if !strings.Contains(template, "{") {
		return template
	}
	fields, err := codec.Fields(data)
	if err != nil {
		fields = nil
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !plainName(name) {
			b.WriteByte('{')
			template = rest
			continue
		}
		b.WriteString(expandField(fields, name, quote))
		template = after
	}
}

func expandField(fields []codec.Field, name string, quote func(string) string) string {
	for _, f := range fields {
		if f.Name != name {
			continue
		}
		if s, ok := f.Text(); ok {
			return quote(s)
		}
		return string(f.Value)
	}
	return "(no " + name + ")"
}

func plainName(s string) bool {
	for _, r := range s {
		if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return s != ""
}
