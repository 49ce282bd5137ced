package cardtest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// piece is a part of what would run: text of the operator, or the text of an argument, whose
// name is arg.
type piece struct{ text, arg string }

// effect is what an approval of a request would start.
type effect struct {
	argv    [][]piece
	dir     string
	tool    string // of an MCP call, as its server
	server  string
	method  string
	url     []piece
	headers []string // "Name: value"; a secret's value is its file
	body    *value   // nil: none
	refs    *value   // body, with the arguments that the template names in place of their values
	stdin   *value   // request_data, where the handler gets it or nothing runs; else nil
}

// argument is the kind of a value that stands for an argument of that name.
const argument = 'a'

var placeholder = regexp.MustCompile(`\{\{|\{([A-Za-z0-9_]+)\}`)

// substitute puts the texts of arguments into a template.
func substitute(template string, data *value, write func(string) string) (out []piece, ok bool) {
	at := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(template, -1) {
		out = append(out, piece{text: template[at:m[0]]})
		at = m[1]
		if m[2] < 0 {
			out = append(out, piece{text: "{"})
			continue
		}
		name := template[m[2]:m[3]]
		x := data.get(name)
		if x == nil || strings.IndexByte("snb", x.kind) < 0 {
			return nil, false
		}
		out = append(out, piece{write(x.text), name})
	}
	return append(out, piece{text: template[at:]}), true
}

func textOf(pieces []piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.text)
	}
	return b.String()
}

const unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"

// percent encodes every byte but letters, digits and -._~.
func percent(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte(unreserved, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// effectOf returns what would run. ok is false if the request cannot be filled into the handler.
func effectOf(t approval.Tool, data *value) (e effect, ok bool) {
	same := func(s string) string { return s }
	h := t.Handler
	switch h.Kind {
	case approval.HandlerCommand:
		e.dir, e.stdin = h.Dir, data
		for _, element := range h.Argv {
			pieces, ok := substitute(element, data, same)
			if !ok {
				return e, false
			}
			e.argv = append(e.argv, pieces)
		}
		return e, true
	case approval.HandlerHTTP:
		return httpEffect(h.HTTP, data)
	case approval.HandlerMCP:
		e.tool, e.server, e.dir, e.headers = h.MCP.Tool, h.MCP.Server, h.Dir, headersOf(h.HTTP)
		for _, element := range h.Argv {
			e.argv = append(e.argv, []piece{{text: element}})
		}
		if h.HTTP.URL != "" {
			e.url = []piece{{text: h.HTTP.URL}}
		}
	}
	e.stdin = data
	return e, true
}

func headersOf(h approval.HTTP) (all []string) {
	for _, m := range []map[string]string{h.Headers, h.SecretHeaders} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			all = append(all, name+": "+m[name])
		}
	}
	return all
}

func httpEffect(h approval.HTTP, data *value) (e effect, ok bool) {
	e.method = h.Method
	if e.url, ok = substitute(h.URL, data, percent); !ok {
		return e, false
	}
	e.headers = headersOf(h)
	if h.BodyArgs {
		e.stdin = data
		return e, true
	}
	if h.Body == "" {
		return e, true
	}
	full := placeholder.ReplaceAllStringFunc(h.Body, func(m string) string {
		if x := data.get(strings.Trim(m, "{}")); x != nil {
			return x.json(nil)
		}
		return m
	})
	refs := placeholder.ReplaceAllStringFunc(h.Body, func(m string) string { return `{"argument":"` + strings.Trim(m, "{}") + `"}` })
	var err, err2 error
	e.body, err = parse([]byte(full))
	e.refs, err2 = parse([]byte(refs))
	if err != nil || err2 != nil {
		return e, false
	}
	e.refs.walk(func(x *value) {
		if len(x.names) == 1 && x.names[0] == "argument" {
			*x = value{kind: argument, text: x.items[0].text}
		}
	})
	return e, true
}

// key is the same for two effects only if they are the same.
func (e effect) key() string {
	all := []string{e.tool, e.server, e.dir, e.method, textOf(e.url), strings.Join(e.headers, "\x00")}
	for _, x := range e.argv {
		all = append(all, textOf(x))
	}
	key := fmt.Sprintf("%q", all)
	for _, v := range []*value{e.body, e.stdin} {
		if v != nil {
			key += v.key()
		}
		key += ";"
	}
	return key
}
