package facts

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Fill is the finished invocation of a tool for this request_data: what an approver is
// shown, and what the executor runs. A Reason says why there is none: an argument that is
// missing, undeclared, of another type, or does not fit into its template.
func Fill(t approval.Tool, data approval.Raw) (approval.Runs, approval.Reason) {
	args := Arguments(t)
	fields, err := codec.Fields(data)
	if err != nil {
		return approval.Runs{}, CheckArgs(args, data)
	}
	if why := checkFields(args, fields); !why.IsZero() {
		return approval.Runs{}, why
	}
	f := filler{fields: make(map[string]codec.Field, len(fields))}
	for _, field := range fields {
		f.fields[field.Name] = field
	}
	runs, why := f.runs(t.Handler)
	if !why.IsZero() {
		return approval.Runs{}, why
	}
	runs.Args = args
	return runs, why
}

func (f filler) runs(h approval.Handler) (r approval.Runs, why approval.Reason) {
	r.Kind = h.Kind
	switch h.Kind {
	case approval.HandlerCommand:
		r.Dir, r.WithArgs = h.Dir, true
		r.Argv, why = f.argv(h.Argv)
		return r, why
	case approval.HandlerHTTP:
		r.Method, r.WithArgs, r.Headers = h.HTTP.Method, h.HTTP.BodyArgs, headers(h.HTTP)
		if r.URL, why = f.url(h.HTTP.URL); !why.IsZero() || h.HTTP.Body == "" {
			return r, why
		}
		r.Body, why = f.body(h.HTTP.Body)
	case approval.HandlerMCP:
		r.Server, r.Tool, r.Dir, r.WithArgs, r.Headers = h.MCP.Server, h.MCP.Tool, h.Dir, true, headers(h.HTTP)
		for _, element := range h.Argv {
			r.Argv = append(r.Argv, []approval.Part{{Text: element}})
		}
		if h.HTTP.URL != "" {
			r.URL = []approval.Part{{Text: h.HTTP.URL}}
		}
	}
	return r, why
}

// headers lists the operator's headers by name.
func headers(h approval.HTTP) (all []approval.Header) {
	for name, value := range h.Headers {
		all = append(all, approval.Header{Name: name, Value: value})
	}
	for name, value := range h.SecretHeaders {
		scheme, file := cutFile(value)
		all = append(all, approval.Header{Name: name, Value: scheme, File: file})
	}
	slices.SortFunc(all, func(a, b approval.Header) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// cutFile splits "Bearer /file" into "Bearer " and "/file".
func cutFile(value string) (scheme, file string) {
	i := max(strings.IndexByte(value, '/'), 0)
	return value[:i], value[i:]
}

// Nearest returns the known word that is most similar to s, or "". A third of the
// word may differ, or two letters of a short one. A part of a word also matches:
// timeout for approval_timeout, warning for warn.
func Nearest(s string, known []string) string {
	const maxLen = 64
	if len(s) > maxLen {
		return ""
	}
	s = strings.ToLower(s)
	best, least := "", max(2, len(s)/3)+1
	for _, k := range known {
		d := levenshtein.Distance(s, strings.ToLower(k), nil)
		if d < least && d < len(k) && d < len(s) {
			best, least = k, d
		}
	}
	for _, k := range known {
		if best == "" && (partOf(s, k) || partOf(k, s)) {
			best = k
		}
	}
	return best
}

func partOf(part, word string) bool {
	return len(part) > 2 && (strings.HasPrefix(word, part) || strings.HasSuffix(word, "_"+part))
}

// UnknownTool is the reason for refusing a tool that is not among the known ones.
func UnknownTool(name string, known []string) approval.Reason {
	return approval.Because("tool_unknown", "tool", name, "near", Nearest(name, known))
}
