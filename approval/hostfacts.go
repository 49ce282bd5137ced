package approval

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// How much of a request's arguments becomes facts. What is beyond is counted, and
// stands in request_data as ever.
const (
	maxFactValues = 100
	maxFactValue  = 500 // bytes
)

// The facts that a tool's description can give of its arguments.
const (
	factRecipient = "recipient"
	factPath      = "path"
	factHost      = "host"
	factAmount    = "amount"
	factTable     = "table"
)

// FactNames lists what an argument of a tool can be declared as.
func FactNames() []string { return []string{factRecipient, factPath, factHost, factAmount, factTable} }

// domainOf is the domain of a fact that the operator declared. A recipient is one
// of mail unless the tool's capability is another channel.
func domainOf(fact, capability string) string {
	switch fact {
	case factPath:
		return DomainFile
	case factHost:
		return DomainHost
	case factAmount:
		return DomainMoney
	case factTable:
		return DomainDatabase
	}
	if family, _, ok := strings.Cut(capability, ":"); ok && family == "channel" {
		return family
	}
	return DomainMail
}

func hostFacts(t Tool, r *Request) []HostFact {
	fields, err := Fields(r.RequestData)
	if err != nil {
		fields = nil
	}
	_, op, _ := strings.Cut(t.Capability, ":")
	var facts []HostFact
	if f, ok := targetFact(t, op, r.RequestData); ok {
		facts = append(facts, f)
	}
	if f, ok := handlerFact(t, op); ok && !slices.ContainsFunc(facts, func(h HostFact) bool { return h.Name == f.Name && slices.Equal(h.Values, f.Values) }) {
		facts = append(facts, f)
	}
	for _, name := range FactNames() {
		if f, ok := declaredFact(name, t.Facts[name], fields); ok {
			f.Domain, f.Op = domainOf(name, t.Capability), op
			facts = append(facts, f)
		}
	}
	facts = append(facts, programFacts(t, fields)...)
	if t.Capability == "code:exec" || t.Name == "" && r.ToolName == "" && r.ActionType == "exec_cmd" {
		facts = append(facts, commandFacts(fields)...)
	}
	if r.Type == TypeQuestion {
		return facts
	}
	return append(facts, HostFact{Domain: DomainDigest, Name: "args_sha256", Values: []string{Digest(r.RequestData)}, From: FromDigest})
}

// targetFact is what the tool's own template leads to.
func targetFact(t Tool, op string, data Raw) (HostFact, bool) {
	c, has := CapabilityNamed(t.Capability)
	if t.Target == "" || has && c.TargetKind == "none" {
		return HostFact{}, false
	}
	f := HostFact{Op: op, Name: "target", From: FromTemplate}
	f.Domain, _, _ = strings.Cut(t.Capability, ":")
	switch {
	case c.TargetKind == "path_glob":
		f.Domain, f.Name = DomainFile, factPath
	case c.TargetKind == "host":
		f.Domain, f.Name = DomainHost, factHost
	case !has:
		f.Domain = "target"
	case f.Domain == "code":
		f.Domain = "target" // where the code runs, not what it is
	}
	if !complete(t.Target, data) {
		f.Left = 1
		return f, true
	}
	f.add([]string{Expand(t.Target, data)}, 0)
	return f, true
}

// handlerFact is the one host that a tool of kind http calls: no argument can
// change it, and no redirect leads to another.
func handlerFact(t Tool, op string) (HostFact, bool) {
	host, ok := HostIn(t.Handler.HTTP.URL)
	if t.Handler.Kind != HandlerHTTP || !ok {
		return HostFact{}, false
	}
	return HostFact{Domain: DomainHost, Op: op, Name: factHost, Values: []string{host}, From: FromTemplate}, true
}

// complete says whether every field of a template is there.
func complete(template string, data Raw) bool {
	fields, err := Fields(data)
	if err != nil {
		return !strings.Contains(template, "{")
	}
	for {
		_, rest, found := strings.Cut(template, "{")
		if !found {
			return true
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !plainName(name) {
			template = rest
			continue
		}
		if !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name && f.Value.Kind() != 'n' }) {
			return false
		}
		template = after
	}
}

// declaredFact collects the values of every field that the operator says is this.
// Where none of them is there, the fact is not there either: nothing is known. A
// field that the operator did not name and that means the same by its name, or is
// one of them in other letters, is counted: the handler may read it.
func declaredFact(name string, of []string, fields []Field) (HostFact, bool) {
	f, found := HostFact{Name: name, From: FromArgument}, false
	for _, field := range fields {
		switch {
		case len(of) == 0 || field.Value.Kind() == 'n':
		case slices.Contains(of, field.Name):
			found = true
			f.add(flatten(field.Value))
		case CanonicalArg(field.Name) == name || slices.ContainsFunc(of, func(s string) bool { return strings.EqualFold(s, field.Name) }):
			found = true
			f.Left++
		}
	}
	return f, found
}

// add takes values in, as far as there is room.
func (f *HostFact) add(values []string, left int) {
	f.Left += left
	for _, v := range values {
		ok := true
		if f.Name == factHost {
			v, ok = HostIn(v)
		}
		if !ok || len(f.Values) >= maxFactValues || len(v) > maxFactValue || !utf8.ValidString(v) {
			f.Left++
			continue
		}
		f.Values = append(f.Values, v)
	}
}

// flatten lists the values in v: strings as they are, numbers and booleans as they
// are written, and those of lists. What is an object, or null, is only counted. It
// reads v once, however deep it is: its size is up to an agent.
func flatten(v Raw) (values []string, left int) {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		switch d.PeekKind() {
		case '{':
			left++
			if d.SkipValue() != nil {
				return values, left
			}
		case '[', ']':
			if _, err := d.ReadToken(); err != nil {
				return values, left + 1
			}
		case '"', '0', 't', 'f':
			tok, err := d.ReadToken()
			if err != nil {
				return values, left + 1
			}
			values = append(values, tok.String())
		case 'n':
			left++
			if _, err := d.ReadToken(); err != nil {
				return values, left
			}
		default: // the end, or what is no JSON
			if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
				left++
			}
			return values, left
		}
	}
}

// programFacts is the digest of the program that the request brings along, where
// the operator says which argument it is.
func programFacts(t Tool, fields []Field) []HostFact {
	if t.Program == "" {
		return nil
	}
	f := HostFact{Domain: DomainProgram, Name: "program_sha256", From: FromArgument}
	if text, ok := programText(t, fields); ok {
		f.Values = []string{Digest([]byte(text))}
	} else {
		f.Left = 1
	}
	return []HostFact{f}
}

// programText is the program, where no other field could be taken for it.
func programText(t Tool, fields []Field) (text string, ok bool) {
	for _, f := range fields {
		switch {
		case f.Name == t.Program:
			text, ok = f.Text()
		case strings.EqualFold(f.Name, t.Program):
			return "", false
		}
	}
	return text, ok
}

// commandFacts reads a command line that is a list of words. What a shell would
// make of a line, nobody can read off it: that is left open, and so is which of two
// lines would run.
func commandFacts(fields []Field) []HostFact {
	var words []string
	lines, whole := 0, true
	for _, f := range fields {
		switch f.Name {
		case "argv", "command", "cmd":
			lines++
			list, left := flatten(f.Value)
			whole = whole && left == 0 && f.Value.Kind() == '[' && len(list) > 0
			words = list
		}
	}
	program := HostFact{Domain: DomainCommand, Name: "program", From: FromCommand}
	if lines != 1 || !whole {
		program.Left = 1
		return []HostFact{program}
	}
	program.add(words[:1], 0)
	paths := HostFact{Domain: DomainCommand, Name: factPath, From: FromCommand}
	paths.add(pathsAmong(words[1:]), 0)
	if len(paths.Values) == 0 && paths.Left == 0 {
		return []HostFact{program}
	}
	return []HostFact{program, paths}
}

// pathsAmong are the words that look like a path, or have one behind a = sign.
func pathsAmong(words []string) (paths []string) {
	for _, w := range words {
		if strings.HasPrefix(w, "-") {
			_, value, found := strings.Cut(w, "=")
			if !found {
				continue
			}
			w = value
		}
		if w == "." || w == ".." || strings.HasPrefix(w, "~") || strings.Contains(w, "/") && !strings.Contains(w, "://") {
			paths = append(paths, w)
		}
	}
	return paths
}

// HostIn is the host that a URL or an authority leads to: lower case, without the
// final dot, with its port where that is not the web's own. It gives up on whatever
// two readers could read differently: names and passwords before an @, a
// backslash, blanks, percent signs, and letters that are not ASCII.
func HostIn(s string) (host string, ok bool) {
	scheme, rest, found := strings.Cut(s, "://")
	switch {
	case !found && strings.HasPrefix(s, "/"):
		return "", false
	case !found:
		rest = s
	case scheme == "" || !only(scheme, "+-."):
		return "", false
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	name, port, ok := splitAuthority(strings.ToLower(rest))
	switch {
	case !ok || len(port) > 5 || strings.ContainsFunc(port, func(r rune) bool { return r < '0' || r > '9' }):
		return "", false
	case port == "" || port == "80" || port == "443":
		return name, true
	}
	return name + ":" + port, true
}

// splitAuthority parts name and port; an address of IPv6 stands in brackets.
func splitAuthority(s string) (name, port string, ok bool) {
	if rest, bracketed := strings.CutPrefix(s, "["); bracketed {
		inside, behind, closed := strings.Cut(rest, "]")
		port, colon := strings.CutPrefix(behind, ":")
		strange := func(r rune) bool { return !strings.ContainsRune("0123456789abcdef:.", r) }
		return "[" + inside + "]", port, closed && inside != "" && (colon || behind == "") && !strings.ContainsFunc(inside, strange)
	}
	name, port, _ = strings.Cut(s, ":")
	name = strings.TrimSuffix(name, ".")
	return name, port, name != "" && only(name, "-._")
}

// only says whether s consists of ASCII letters, digits and these.
func only(s, others string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(others, r)
	})
}
