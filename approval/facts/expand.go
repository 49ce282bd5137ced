package facts

import (
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// NoField stands in an expanded template where data lacks this field.
func NoField(name string) string { return "(no " + name + ")" }

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

// Parts splits a template at its {fields}, of which only the names are filled in. nil:
// there is no field.
func Parts(template string) []approval.Part {
	if len(NamesIn(template)) == 0 {
		return nil
	}
	parts := parseText(template)
	for i := range parts {
		if parts[i].Arg != "" {
			parts[i].Text = ""
		}
	}
	return parts
}

func asIs(s string) string { return s }

func expand(template string, data approval.Raw, quote func(string) string) string {
	if !strings.Contains(template, "{") {
		return template
	}
	fields, _ := codec.Fields(data) // on an error there are none
	parts := parseText(template)
	for i, p := range parts {
		if p.Arg != "" {
			parts[i].Text = expandField(fields, p.Arg, quote)
		}
	}
	return Join(parts)
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
	return NoField(name)
}
