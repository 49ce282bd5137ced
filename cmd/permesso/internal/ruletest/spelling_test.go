package ruletest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
)

// spellings are other requests that lead to the same place as one that a deny matches, or
// that hide where they lead to.
func (b *block) spellings(q request) (all []request) {
	rules := strings.Join(b.rules, "\n")
	if strings.Contains(rules, "json =") {
		return append(q.respelledJSON(), q.respelledWhole()...)
	}
	for _, name := range slices.Sorted(maps.Keys(q.args)) {
		kind := b.declared()[name].Type
		switch {
		case strings.Contains(b.lines["tool"], "secrets ="):
			kind = "secret"
		case strings.Contains(rules, "target =") && kind == "text":
			kind = "part" // of a target
		case strings.Contains(rules, "args =") && !strings.Contains(rules, name+" =") && !strings.Contains(rules, name+"."):
			continue // no rule depends on it
		case strings.Contains(b.lines["args"], fmt.Sprintf("currency = %q", name)):
			kind = "part"
		}
		inTarget := strings.Contains(b.lines["tool"], "{"+name+"}")
		for _, v := range respell(kind, q.args[name], rules) {
			if _, isText := v.(string); isText || !inTarget {
				all = append(all, q.with(name, v))
			}
		}
		if !strings.Contains(rules, "other_args = false") && kind != "part" && kind != "secret" {
			all = append(all, q.without(name))
		}
	}
	return append(all, q.respelledWhole()...)
}

// respelledWhole are spellings of the request's JSON, and requests with other prose.
func (q request) respelledWhole() []request {
	spaced, escaped, prose, both := q, q, q, q
	data := q.requestData()
	spaced.data = " {\n" + strings.TrimPrefix(data, "{") + " \n"
	escaped.data = escapedJSON(data)
	prose.prose, both.prose = true, true
	both.data = "\t" + escaped.data + "\r\n"
	return []request{spaced, escaped, prose, both}
}

// respelledJSON writes the same JSON with its members in another order, other numbers and
// blanks.
func (q request) respelledJSON() (all []request) {
	for _, number := range []string{"", ".0", "e0", "E+0", ".000"} {
		for _, gap := range []string{"", " ", "\n\t"} {
			other := q
			other.data = encoded(q.args, number, gap)
			all = append(all, other)
		}
	}
	return all
}

func encoded(v any, number, gap string) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Backward(slices.Sorted(maps.Keys(v))) {
			parts = append(parts, encoded(name, number, gap)+gap+":"+gap+encoded(v[name], number, gap))
		}
		return "{" + gap + strings.Join(parts, gap+","+gap) + gap + "}"
	case []any:
		for _, x := range v {
			parts = append(parts, encoded(x, number, gap))
		}
		return "[" + gap + strings.Join(parts, gap+","+gap) + gap + "]"
	case json.Number:
		if strings.Trim(string(v), "-0123456789") == "" {
			return string(v) + number
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// escapedJSON writes each letter inside of texts as \u0061.
func escapedJSON(data string) string {
	var b strings.Builder
	inside, escape := false, false
	for _, r := range data {
		switch {
		case escape:
			escape = false
		case r == '\\':
			escape = true
		case r == '"':
			inside = !inside
		case inside && r < 0x80 && unicode.IsLetter(r):
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// respell gives other values that mean the same, or cannot be read.
func respell(kind string, value any, rules string) []any {
	var all []any
	add := func(values ...any) { all = append(all, values...) }
	if kind == "json" {
		for _, v := range respelledLeaves(value) {
			add(v)
		}
		text, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		if _, ok := value.(string); !ok {
			add(string(text))
		}
		return append(all, nil, []any{value}, map[string]any{"x": value}, json.Number("7"))
	}
	if l, ok := value.([]any); ok {
		add(respellList(kind, l, rules)...)
	} else if s, ok := value.(string); ok {
		for _, other := range respellText(kind, s, rules) {
			if add(other); kind != "command" && kind != "part" {
				add([]any{other})
			}
		}
		if kind != "command" && kind != "part" {
			add([]any{value})
		}
		if kind == "url" || kind == "host" || kind == "path" || kind == "recipients" || kind == "table" {
			add([]any{harmless[kind], value}, []any{value, harmless[kind]})
		}
	}
	if n, ok := value.(json.Number); ok {
		for _, s := range []string{string(n) + ".0", string(n) + "e0", string(n) + "E+0"} {
			if strings.Contains(string(n), ".") {
				s = string(n) + strings.TrimLeft(strings.TrimPrefix(s, string(n)), ".")
			}
			if json.Valid([]byte(s)) {
				add(json.Number(s))
			}
		}
		add(string(n), " "+string(n), string(n)+" EUR", []any{n}, []any{value, json.Number("0")})
	}
	if v, ok := value.(bool); ok {
		add(fmt.Sprint(v), strings.ToUpper(fmt.Sprint(v)), json.Number("1"), json.Number("0"), "yes", "on", []any{v})
	}
	if kind != "number" && kind != "amount" && kind != "part" && kind != "list" && kind != "secret" {
		add(json.Number("7777"))
	}
	if kind == "part" || kind == "secret" {
		return all
	}
	return append(all, nil, map[string]any{"value": value}, []any{[]any{value}})
}

// harmless is a value that no deny of the table matches.
var harmless = map[string]string{
	"url": "https://harmless.example/", "host": "harmless.example", "path": "/harmless", "recipients": "harmless@harmless.example",
	"table": "harmless", "list": "harmless",
}

func respellList(kind string, l []any, rules string) (all []any) {
	if len(l) == 0 {
		return nil
	}
	if kind == "command" {
		for _, wrapped := range [][]any{
			{"sudo"}, {"env", "X=1"}, {"nice"}, {"xargs"}, {"busybox"}, {"find", ".", "-exec"}, {"nohup"}, {"setsid"}, {"timeout", "5"},
		} {
			all = append(all, slices.Concat(wrapped, l))
		}
		program := fmt.Sprint(l[0])
		return append(all, slices.Concat([]any{"/bin/" + path.Base(program)}, l[1:]),
			slices.Concat([]any{strings.ToUpper(program)}, l[1:]), []any{"sh", "-c", quotedLine(l)}, []any{"bash", "-lc", "true; " + quotedLine(l)})
	}
	for i := range l {
		s, ok := l[i].(string)
		if !ok {
			continue
		}
		for _, other := range respellText(kind, s, rules) {
			changed := slices.Clone(l)
			changed[i] = other
			all = append(all, changed)
		}
	}
	reversed := slices.Clone(l)
	slices.Reverse(reversed)
	return append(all, reversed, slices.Concat(l, []any{harmless[kind]}), slices.Concat([]any{harmless[kind]}, l), slices.Concat(l, l))
}

func quotedLine(l []any) string {
	var words []string
	for _, w := range l {
		words = append(words, "'"+strings.ReplaceAll(fmt.Sprint(w), "'", `'\''`)+"'")
	}
	return strings.Join(words, " ")
}

// respelledLeaves changes each text inside of a JSON value.
func respelledLeaves(v any) (all []any) {
	switch v := v.(type) {
	case string:
		for _, s := range respellText("text", v, "") {
			all = append(all, s)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			for _, leaf := range append(respelledLeaves(v[name]), []any{v[name]}) {
				m := maps.Clone(v)
				m[name] = leaf
				all = append(all, m)
			}
		}
	case []any:
		for i := range v {
			for _, leaf := range respelledLeaves(v[i]) {
				l := slices.Clone(v)
				l[i] = leaf
				all = append(all, l)
			}
		}
	}
	return all
}

func respellText(kind, s, rules string) []string {
	switch kind {
	case "secret":
		encoded := base64.StdEncoding.EncodeToString([]byte(s))
		return []string{" " + s, s + " ", "first\n" + s, s + "\nlast", strings.ReplaceAll(s, " ", "\u00a0"), s[:len(s)-9] + "\u200b" + s[len(s)-9:], "\ufeff" + s, encoded, "see " + encoded}
	case "part":
		return slices.DeleteFunc(respellPlain(s), func(s string) bool { return strings.Contains(s, "\n") || strings.TrimSpace(s) != s })
	case "command":
		return respellCommand(s)
	case "path":
		return respellPath(s)
	case "url":
		return respellURL(s, rules)
	case "host":
		return respellHost(s, rules)
	case "recipients":
		return respellRecipients(s)
	case "amount", "number":
		return []string{" " + s, s + " ", s + "\n", "+" + s, s + "e0", s + " EUR", "€" + s, "0" + s, s + ".", strings.ReplaceAll(s, ".", ","), wider(s)}
	}
	return respellPlain(s)
}

// respellPlain changes what the eye does not see, or does not mind.
func respellPlain(s string) []string {
	all := []string{
		strings.ToUpper(s), strings.ToLower(s), " " + s, s + " ", "\t" + s + "\u00a0", s + "\n", "first\n" + s, s + "\nlast", "first\r\n" + s + "\r\nlast",
		strings.ReplaceAll(s, " ", "\u00a0"), strings.ReplaceAll(s, " ", "  "), strings.ReplaceAll(s, " ", "\u2003"), wider(s), "\ufeff" + s,
	}
	for _, invisible := range []string{"\u200b", "\u00ad", "\u2060", "\u200d", "\u202e", "\U000e0061"} {
		r := []rune(s)
		all = append(all, string(r[:len(r)/2])+invisible+string(r[len(r)/2:]))
	}
	return all
}

// wider writes ASCII in its full width.
func wider(s string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r - 0x21 + 0xff01
		}
		return r
	}, s)
}

// respellCommand quotes a program, and runs the line inside of others. After $( comes a blank: two
// parentheses begin an arithmetic expression, which runs nothing.
func respellCommand(line string) []string {
	program, rest, _ := strings.Cut(strings.Join(strings.Fields(strings.ReplaceAll(line, "\\\n", "")), " "), " ")
	all := []string{
		"true && " + line, line + "; true", "true\n" + line, "true | " + line, line + " | cat", line + " &", "(" + line + ")", "{ " + line + "; }",
		"if " + line + "; then true; fi", "for x in 1; do " + line + "; done", "while " + line + "; do true; done", "! " + line,
		"echo $( " + line + ")", `echo "$( ` + line + `)"`, "cat <(" + line + ")",
		"f() { " + line + "; }; f", "X=1 " + line, line + " > /dev/null", "\t" + line, "  " + line + "  ", line + " # safe",
		"case x in x) " + line + ";; esac", "time " + line, "echo a || " + line,
		strings.ReplaceAll(line, " ", "\t"), strings.Replace(line, " ", " \\\n", 1), line + " $(", "eval '" + strings.ReplaceAll(line, "'", `'\''`) + "'",
		"sh -c '" + strings.ReplaceAll(line, "'", `'\''`) + "'", "bash -c '" + strings.ReplaceAll(line, "'", `'\''`) + "'",
		"sudo sh -ec '" + strings.ReplaceAll(line, "'", `'\''`) + "'", "echo '" + strings.ReplaceAll(line, "'", `'\''`) + "' | sh",
		"bash <<< '" + strings.ReplaceAll(line, "'", `'\''`) + "'", "sh <<EOF\n" + line + "\nEOF", "alias x='" + program + "'; x " + rest,
		"su - ann -c '" + strings.ReplaceAll(line, "'", `'\''`) + "'", "X=" + program + "; $X " + rest, `"$(echo ` + program + `)" ` + rest,
	}
	if !strings.Contains(line, "`") {
		all = append(all, "echo `"+line+"`")
	}
	if !strings.Contains(line, "'") { // another quotation mark would finish it
		all = append(all, "unfinished '"+line)
	}
	if strings.ContainsAny(program, "'\"\\$;&|({!=`") || strings.Contains(line, "\n") || program == "" {
		return all
	}
	base := path.Base(program)
	for _, wrapper := range []string{
		"sudo ", "sudo -u root ", "env ", "env X=1 ", "env -i ", "xargs ", "echo a | xargs -n1 ", "nice ", "nice -n 5 ", "nohup ", "timeout 5 ", "command ", "exec ", "busybox ",
		"setsid ", "stdbuf -o0 ", "doas ", "find . -exec ", "find . -name x -execdir ", "builtin ", "watch ", "ionice -c 3 ", "time -p ", "sudo env A=1 nice xargs ",
	} {
		end := ""
		if strings.HasPrefix(wrapper, "find") {
			end = ` {} \;`
		}
		all = append(all, wrapper+line+end)
	}
	for _, spelled := range []string{
		"'" + program + "'", `"` + program + `"`, `\` + program, program[:1] + `\` + program[1:], program[:1] + "''" + program[1:], program[:1] + `""` + program[1:],
		"/bin/" + base, "/usr/bin/../bin/" + base, "./" + base, strings.ToUpper(program), "$'" + program + "'", program[:1] + "\\\n" + program[1:],
		"/b?n/" + base, "/bin/" + base[:1] + "*", "${X:-" + program + "}", "{" + program + ",}", "~/bin/" + base, `$'\x` + fmt.Sprintf("%02x", base[0]) + `'` + base[1:],
	} {
		all = append(all, strings.TrimSpace(spelled+" "+rest))
	}
	return all
}

func respellPath(p string) []string {
	if !strings.HasPrefix(p, "/") {
		return []string{" " + p, "./" + p, p + "\n"}
	}
	up := strings.Repeat("../", 12)
	return []string{
		"/" + p, path.Dir(p) + "/./" + path.Base(p), path.Dir(p) + "//" + path.Base(p), path.Dir(p) + "/x/../" + path.Base(p), "/proc/self/root" + p,
		"/./proc/self/root" + p, "file://" + p, "file://localhost" + p, "FILE://" + p, "file:" + p, strings.ToUpper(p), strings.ToLower(p), percent(p), "file://" + percent(p),
		up + p[1:], "." + p, "~" + p, "~root" + p, strings.ReplaceAll(p, "/", `\`), p + "\n", p + "\x00", " " + p, "/dev/fd/../../self/root" + p, "/proc/thread-self/root" + p,
		"/proc/1/root" + p, "/tmp/.." + p, "$HOME" + p, p[1:], "\t" + p,
	}
}

// percent encodes each second letter.
func percent(s string) string {
	var b strings.Builder
	for i, c := range []byte(s) {
		if i%2 == 1 && c != '/' {
			fmt.Fprintf(&b, "%%%02x", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// respellURL keeps scheme and port where a rule names one.
func respellURL(s, rules string) []string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || strings.HasSuffix(u.Hostname(), ".") {
		return []string{" " + s, strings.ToUpper(s), s + " ", "\t" + s}
	}
	scheme, rest := u.Scheme, u.RequestURI()
	host, port := u.Hostname(), ""
	if u.Port() != "" {
		port = ":" + u.Port()
	}
	var all []string
	for _, h := range []string{
		strings.ToUpper(host), host + ".", percentHost(host), wider(host), strings.ReplaceAll(host, ".", "\u3002"), "[" + host + "]", host[:1] + "\t" + host[1:],
		host[:1] + "\u200b" + host[1:], host[:1] + "\u00ad" + host[1:], "user@" + host, "user:pass@" + host, "a@b@" + host, "good.example%40" + host + "@" + host,
	} {
		all = append(all, scheme+"://"+h+port+rest)
	}
	all = append(all, scheme+":"+host+port+rest, scheme+":/"+host+port+rest, scheme+":///"+host+port+rest, scheme+`:\\`+host+port+rest, scheme+`:/\`+host+port+rest,
		strings.ToUpper(scheme)+"://"+host+port+rest, " "+s, s+" ", "\n"+s, "\x01"+s, s+"#x", scheme+"://"+host+port+"?x", scheme+"://"+host+port+`\@good.example/`,
		scheme+"://"+host+port+"/@good.example/", "<"+s+">")
	if !strings.Contains(rules, "://") && !strings.Contains(rules, ":8443") {
		all = append(all, "http://"+host+rest, "https://"+host+":8443"+rest, "https://"+host+":443"+rest, "ftp://"+host+"/", "ws://"+host+"/", "//"+host+rest, host+rest, host, host+":443")
	}
	return all
}

func percentHost(h string) string { return fmt.Sprintf("%%%02x", h[0]) + h[1:] }

func respellHost(s, rules string) []string {
	if strings.Contains(s, "/") || strings.HasSuffix(s, ".") || s == "" {
		return []string{" " + s, s + " ", "\t" + s}
	}
	all := []string{
		strings.ToUpper(s), percentHost(s), wider(s), " " + s, s + " ", s[:1] + "\t" + s[1:], s[:1] + "\u200b" + s[1:], "user@" + s, "https://" + s, "https://" + s + "/x", s + "/", "//" + s,
		strings.ReplaceAll(s, ".", "\uff0e"),
	}
	if !strings.Contains(s, ":") && !strings.Contains(rules, ":8443") {
		all = append(all, s+".", "["+s+"]", s+":8443", s+":443", s+":")
	}
	return all
}

func respellRecipients(s string) []string {
	local, domain, ok := strings.Cut(s, "@")
	if !ok || strings.ContainsAny(s, `,<"`) {
		return []string{" " + s, strings.ToUpper(s), s + ", harmless@harmless.example", "harmless@harmless.example, " + s, s + ",", s + ";"}
	}
	return []string{
		strings.ToUpper(s), local + "@" + strings.ToUpper(domain), " " + s + " ", "<" + s + ">", "Ann <" + s + ">", `"Ann, B." <` + s + ">", s + ", harmless@harmless.example",
		"harmless@harmless.example," + s, s + ",", s + ";harmless@harmless.example", local + "+x@" + domain, s + " (Ann)", local + "(x)@" + domain, "Team: " + s + ";",
		s + ".", `"` + local + `"@` + domain, local + "@ " + domain, "=?utf-8?q?Ann?= <" + s + ">", "harmless@harmless.example <" + s + ">", "\t" + s, wider(s), local + "\u200b@" + domain,
		"mailto:" + s, "<@relay.example:" + s + ">",
	}
}
