package facts

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Limits on facts. Values beyond them are counted, and stay in request_data.
const (
	maxFactValues = 100
	maxFactValue  = 500 // bytes
)

// The facts that an argument can give.
const (
	factRecipient = "recipient"
	factPath      = "path"
	factHost      = "host"
	factAmount    = "amount"
	factTable     = "table"
)

// factTypes are the facts that arguments give, each with their types.
var factTypes = [...]struct {
	name  string
	types []string
}{
	{factRecipient, []string{TypeRecipients}},
	{factPath, []string{TypePath}},
	{factHost, []string{TypeHost, TypeURL}},
	{factAmount, []string{TypeAmount}},
	{factTable, []string{TypeTable}},
}

// domainOf is the domain of a declared fact. A recipient belongs to mail unless the
// tool's capability is another channel.
func domainOf(fact, capability string) string {
	switch fact {
	case factPath:
		return File
	case factHost:
		return Host
	case factAmount:
		return Money
	case factTable:
		return Database
	}
	if family, _, ok := strings.Cut(capability, ":"); ok && family == "channel" {
		return family
	}
	return Mail
}

func hostFacts(t approval.Tool, r *approval.Request) []approval.HostFact {
	fields, err := codec.Fields(r.RequestData)
	if err != nil {
		fields = nil
	}
	_, op, _ := strings.Cut(t.Capability, ":")
	var facts []approval.HostFact
	if f, ok := targetFact(t, op, r.RequestData); ok {
		facts = append(facts, f)
	}
	if f, ok := handlerFact(t, op); ok && !slices.ContainsFunc(facts, func(h approval.HostFact) bool { return h.Name == f.Name && slices.Equal(h.Values, f.Values) }) {
		facts = append(facts, f)
	}
	for _, fact := range factTypes {
		for _, of := range sameCurrency(t, argsOf(t, fact.types...), fields) {
			if f, ok := declaredFact(fact.name, of.args, without(fields, of.others)); ok {
				f.Domain, f.Op, f.Currency = domainOf(fact.name, t.Capability), op, of.currency
				facts = append(facts, f)
			}
		}
	}
	facts = append(facts, programFacts(t, fields)...)
	if lines := commandArgs(t, r); len(lines) > 0 {
		facts = append(facts, commandFacts(lines, fields)...)
	}
	if r.Type == approval.TypeQuestion {
		return facts
	}
	return append(facts, approval.HostFact{Domain: Digest, Name: "args_sha256", Values: []string{approval.Digest(r.RequestData)}, From: FromDigest})
}

// ofCurrency are arguments of one type that have the same currency, or none, and those
// that have another.
type ofCurrency struct {
	currency     string
	args, others []string
}

// sameCurrency sorts arguments of one type by their currency.
func sameCurrency(t approval.Tool, args []string, fields []codec.Field) (all []ofCurrency) {
	by := map[string][]string{}
	for _, name := range args {
		currency := currencyOf(t, t.Args[name], fields)
		by[currency] = append(by[currency], name)
	}
	for _, currency := range slices.Sorted(maps.Keys(by)) {
		others := slices.DeleteFunc(slices.Clone(args), func(s string) bool { return slices.Contains(by[currency], s) })
		all = append(all, ofCurrency{currency, by[currency], others})
	}
	return all
}

// currencyOf is the currency of an amount: a code, or the text of the argument that names
// it. It is "" if there is none, or if a field differs from that argument only by letter
// case.
func currencyOf(t approval.Tool, a approval.Argument, fields []codec.Field) (currency string) {
	if _, declared := t.Args[a.Currency]; !declared {
		if IsCurrency(a.Currency) {
			return a.Currency
		}
		return ""
	}
	for _, f := range fields {
		switch {
		case f.Name == a.Currency && isCurrency(f.Value):
			currency, _ = f.Text()
		case strings.EqualFold(f.Name, a.Currency):
			return ""
		}
	}
	return currency
}

// without leaves out the fields of these names.
func without(fields []codec.Field, names []string) []codec.Field {
	if len(names) == 0 {
		return fields
	}
	return slices.DeleteFunc(slices.Clone(fields), func(f codec.Field) bool { return slices.Contains(names, f.Name) })
}

// targetFact is the target that the tool's template gives.
func targetFact(t approval.Tool, op string, data approval.Raw) (approval.HostFact, bool) {
	c, has := CapabilityNamed(t.Capability)
	if t.Target == "" || has && c.TargetKind == "none" {
		return approval.HostFact{}, false
	}
	f := approval.HostFact{Op: op, Name: "target", From: FromTemplate}
	f.Domain, _, _ = strings.Cut(t.Capability, ":")
	switch {
	case c.TargetKind == "path_glob":
		f.Domain, f.Name = File, factPath
	case c.TargetKind == "host":
		f.Domain, f.Name = Host, factHost
	case !has:
		f.Domain = "target"
	case f.Domain == "code":
		f.Domain = "target" // the template says where the code runs, not what it is
	}
	if !complete(t.Target, data) {
		f.Omitted = 1
		return f, true
	}
	add(&f, []string{Expand(t.Target, data)}, 0)
	return f, true
}

// handlerFact is the only host that a tool of kind http calls. Arguments cannot
// change it, and redirects are not followed.
func handlerFact(t approval.Tool, op string) (approval.HostFact, bool) {
	host, ok := HostIn(t.Handler.HTTP.URL)
	if t.Handler.Kind != approval.HandlerHTTP || !ok {
		return approval.HostFact{}, false
	}
	return approval.HostFact{Domain: Host, Op: op, Name: factHost, Values: []string{host}, From: FromTemplate}, true
}

// complete says whether data has every field of a template.
func complete(template string, data approval.Raw) bool {
	fields, _ := codec.Fields(data) // on an error there are none
	return !slices.ContainsFunc(NamesIn(template), func(name string) bool {
		return !slices.ContainsFunc(fields, func(f codec.Field) bool { return f.Name == name && f.Value.Kind() != 'n' })
	})
}

// declaredFact collects the values of the fields that the operator declared as this
// fact. If none is present, there is no fact. An undeclared field with an
// equivalent name, or with another letter case, is counted as omitted: the handler
// may read it.
func declaredFact(name string, of []string, fields []codec.Field) (approval.HostFact, bool) {
	f, found := approval.HostFact{Name: name, From: FromArgument}, false
	for _, field := range fields {
		switch {
		case len(of) == 0 || field.Value.Kind() == 'n':
		case slices.Contains(of, field.Name):
			found = true
			values, left := flatten(field.Value)
			add(&f, values, left)
		case CanonicalArg(field.Name) == name || slices.ContainsFunc(of, func(s string) bool { return strings.EqualFold(s, field.Name) }):
			found = true
			f.Omitted++
		}
	}
	return f, found
}

func add(f *approval.HostFact, values []string, left int) {
	f.Omitted += left
	for _, v := range values {
		ok := true
		if f.Name == factHost {
			v, ok = HostIn(v)
		}
		if !ok || len(f.Values) >= maxFactValues || len(v) > maxFactValue || !utf8.ValidString(v) {
			f.Omitted++
			continue
		}
		f.Values = append(f.Values, v)
	}
}

// flatten lists the values in v: strings, numbers and booleans as written, and the
// elements of lists. Objects and nulls are only counted. It reads v once at any
// depth, because an agent chooses its size.
func flatten(v approval.Raw) (values []string, left int) {
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
		default: // the end, or not JSON
			if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
				left++
			}
			return values, left
		}
	}
}

// argsOf lists the arguments of a tool that have one of these types, sorted.
func argsOf(t approval.Tool, types ...string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(t.Args)) {
		if slices.Contains(types, t.Args[name].Type) {
			names = append(names, name)
		}
	}
	return names
}

// programFacts is the digest of the request's program.
func programFacts(t approval.Tool, fields []codec.Field) []approval.HostFact {
	if len(argsOf(t, TypeProgram)) == 0 {
		return nil
	}
	f := approval.HostFact{Domain: Program, Name: "program_sha256", From: FromArgument}
	if text, ok := programText(t, fields); ok {
		f.Values = []string{approval.Digest([]byte(text))}
	} else {
		f.Omitted = 1
	}
	return []approval.HostFact{f}
}

// programText returns the program. It returns false if there are several, or if another
// field differs only by letter case.
func programText(t approval.Tool, fields []codec.Field) (text string, ok bool) {
	names := argsOf(t, TypeProgram)
	if len(names) != 1 {
		return "", false
	}
	for _, f := range fields {
		switch {
		case f.Name == names[0]:
			text, ok = f.Text()
		case strings.EqualFold(f.Name, names[0]):
			return "", false
		}
	}
	return text, ok
}

// commandArgs lists the arguments that hold a command line: those declared as such. A
// tool that runs code without declaring any, and a release-only exec_cmd, have those
// with a usual name.
func commandArgs(t approval.Tool, r *approval.Request) []string {
	if names := argsOf(t, TypeCommand); len(names) > 0 {
		return names
	}
	if t.Capability == "code:exec" || t.Name == "" && r.ToolName == "" && r.ActionType == actionExec {
		return []string{"argv", "command", "cmd"}
	}
	return nil
}

// commandFacts reads a command line that is a list of words. A line for a shell,
// and two competing lines, give no values.
func commandFacts(names []string, fields []codec.Field) []approval.HostFact {
	var words []string
	lines, complete := 0, true
	for _, f := range fields {
		if !slices.Contains(names, f.Name) {
			continue
		}
		lines++
		list, left := flatten(f.Value)
		complete = complete && left == 0 && f.Value.Kind() == '[' && len(list) > 0
		words = list
	}
	program := approval.HostFact{Domain: Command, Name: "program", From: FromCommand}
	if lines != 1 || !complete {
		program.Omitted = 1
		return []approval.HostFact{program}
	}
	add(&program, words[:1], 0)
	paths := approval.HostFact{Domain: Command, Name: factPath, From: FromCommand}
	add(&paths, pathsAmong(words[1:]), 0)
	if len(paths.Values) == 0 && paths.Omitted == 0 {
		return []approval.HostFact{program}
	}
	return []approval.HostFact{program, paths}
}

// pathsAmong returns the words that look like a path, or that have one after a =
// sign.
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

// HostIn is the host of a URL or an authority: lower case, without the final dot,
// with its port unless that is 80 or 443. It refuses whatever two parsers could
// read differently: user information before an @, backslashes, blanks, percent
// signs, and non-ASCII letters.
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

// Origin is the scheme, host and port of a URL, as https://good.com or http://good.com:8080:
// lower case, without the usual port and the final dot. A host without a scheme has none,
// and keeps its port. It refuses what HostIn refuses, and every other scheme.
func Origin(s string) (origin string, ok bool) {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		scheme, rest = "https", s
	}
	scheme = strings.ToLower(scheme)
	if scheme != "https" && scheme != "http" || strings.ContainsAny(s, "\\ \t\r\n") {
		return "", false
	}
	host, ok := HostIn(scheme + "://" + rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	_, port, split := splitAuthority(strings.ToLower(rest))
	switch {
	case !ok || !split:
		return "", false
	case port == "443" && (scheme == "http" || !found), port == "80" && scheme == "https":
		host += ":" + port // HostIn leaves out both
	}
	if !found {
		return host, true
	}
	return scheme + "://" + host, true
}

// splitAuthority splits name and port. An IPv6 address stands in brackets.
func splitAuthority(s string) (name, port string, ok bool) {
	if rest, bracketed := strings.CutPrefix(s, "["); bracketed {
		inside, suffix, closed := strings.Cut(rest, "]")
		port, colon := strings.CutPrefix(suffix, ":")
		notHex := func(r rune) bool { return !strings.ContainsRune("0123456789abcdef:.", r) }
		return "[" + inside + "]", port, closed && inside != "" && (colon || suffix == "") && !strings.ContainsFunc(inside, notHex)
	}
	name, port, _ = strings.Cut(s, ":")
	name = strings.TrimSuffix(name, ".")
	return name, port, only(name, "-._") && !slices.Contains(strings.Split(name, "."), "")
}

// only says whether s consists of ASCII letters, digits and these.
func only(s, others string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(others, r)
	})
}
