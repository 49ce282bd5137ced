package ruletest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/ruletest"
)

// random makes rules and requests.
type random struct {
	*rand.Rand
	folder string // of links
}

func pick[T any](r random, all ...T) T { return all[r.IntN(len(all))] }

func (r random) oneIn(n int) bool { return r.IntN(n) == 0 }

// pair is a rule, and a request that it may match.
type pair struct {
	kind       string // the type of the argument that it is about
	rule       ruletest.Rule
	others     []ruletest.Rule // about the same argument
	capability string          // of the tool; "": none
	declared   map[string]ruletest.Argument
	request    request
	odd        bool // in another spelling than people write
}

// kinds are what the conditions of the generated rules are about.
var kinds = []string{
	"command", "path", "url", "host", "recipients", "amount", "number", "text", "table", "bool", "list", "json", "equals", "when", "target",
}

// makers make a condition, and a value that it probably matches.
var makers = map[string]func(random) (condition, value any){
	"command": random.command, "path": random.path, "url": random.url, "host": random.host, "recipients": random.recipients,
	"amount": random.amount, "number": random.number, "text": random.text, "table": random.text, "bool": random.boolean,
	"list": random.list, "json": random.member, "equals": random.equals,
}

// pair makes one. Half of the requests are those that the rule's author has in mind, the
// others differ in spelling or in meaning.
func (r random) pair(kind, outcome string) pair {
	p := pair{kind: kind, declared: map[string]ruletest.Argument{}, request: request{
		args: map[string]any{}, tool: "t", session: pick(r, "s1", "s2"), now: noon,
	}}
	match := map[string]any{"tool": pick[any](r, "t", "t", "t", "t*", []any{"x", "t"})}
	args := map[string]any{}
	name, argType := "a", kind
	switch kind {
	case "when":
		r.when(match)
		p.request.now = noon.Add(time.Duration(r.IntN(24*60*14)) * time.Minute).Truncate(15 * time.Minute)
	case "target":
		argType, p.capability = "text", pick(r, "", "fs:read", "network:http")
		match["target"], p.request.args["a"] = r.target()
		switch p.capability {
		case "fs:read":
			argType = "path"
			match["target"], p.request.args["a"] = r.path()
		case "network:http":
			argType = pick(r, "url", "host")
			match["target"], p.request.args["a"] = makers[argType](r)
		}
		if _, isTable := match["target"].(map[string]any); isTable {
			match["target"] = "good.example"
		}
		if l, isList := p.request.args["a"].([]any); isList {
			p.request.args["a"] = l[0]
		}
	case "equals":
		argType = pick(r, "text", "json", "list", "number", "path", "command")
	}
	if maker := makers[kind]; maker != nil {
		var condition, value any
		condition, value = maker(r)
		if kind == "json" {
			name = pick(r, "a.x", "a.x", "a.y.x")
			value = r.nested(strings.Split(name, ".")[1:], value)
		}
		args[name] = condition
		p.request.args["a"], p.odd = r.changed(argType, value)
		if r.oneIn(30) {
			delete(p.request.args, "a")
		}
	} else if _, given := p.request.args["a"]; !given {
		argType, p.request.args["a"] = "text", "b"
	}
	p.declared["a"] = ruletest.Argument{Type: argType}
	if kind == "amount" {
		r.currency(&p, args)
	}
	r.more(&p, outcome, match, args)
	if len(args) > 0 {
		match["args"] = args
	}
	p.rule = ruletest.Rule{Outcome: outcome, Match: match}
	r.addRules(&p, args)
	return p
}

// addRules adds other rules about the same argument: the strictest one counts.
func (r random) addRules(p *pair, args map[string]any) {
	maker := makers[p.kind]
	if maker == nil || p.kind == "equals" {
		return
	}
	for r.oneIn(3) {
		condition, _ := maker(r)
		for name, first := range args {
			if name[0] != 'a' {
				continue
			}
			if m, ok := first.(map[string]any); ok && m["currency"] != nil {
				condition.(map[string]any)["currency"] = m["currency"]
			}
			p.others = append(p.others, ruletest.Rule{Outcome: pick(r, "allow", "deny", "ask"), Match: map[string]any{
				"tool": "t", "args": map[string]any{name: condition},
			}})
		}
	}
}

// more adds another argument, a condition on it, and other keys.
func (r random) more(p *pair, outcome string, match, args map[string]any) {
	if r.oneIn(4) {
		p.declared["b"] = ruletest.Argument{Type: "text"}
		p.request.args["b"] = pick[any](r, "b", "c", "B", nil, json.Number("1"))
		if r.oneIn(2) {
			args["b"] = "b"
		}
	}
	if len(args) > 0 && r.oneIn(8) {
		match["other_args"] = outcome != "allow" || r.oneIn(2)
	}
	if r.oneIn(10) {
		match["session"] = pick[any](r, "s1", "s*", []any{"s2", "s3"})
	}
	if r.oneIn(15) {
		match["program"] = r.oneIn(2)
	}
	if r.oneIn(15) {
		r.when(match)
	}
}

// changed is a value in another spelling, of another type, or another one.
func (r random) changed(argType string, v any) (changed any, odd bool) {
	switch r.IntN(12) {
	case 0, 1, 2, 3, 4, 5, 6:
		return v, false
	case 7:
		return r.wrong(), true
	}
	for range 1 + r.IntN(2) {
		all := respell(argType, v, "")
		v = all[r.IntN(len(all))]
	}
	return v, true
}

func (r random) wrong() any {
	return pick[any](r, nil, true, json.Number("3"), "x", []any{}, []any{"x"}, map[string]any{"x": "y"}, json.Number("-1e5"), "", []any{nil})
}

// toml is the configuration of a pair: a tool that asks for an allow, else one that everything allows.
func (p pair) toml() string {
	tool := allowsByItself
	other := `{ outcome = "allow", match = { tool = "t" } }`
	if p.rule.Outcome == "allow" {
		tool, other = asksByItself, ""
	}
	target, autonomy := "", "full"
	if p.kind == "target" {
		target = `, target = "{a}"`
	}
	if p.capability != "" {
		tool = fmt.Sprintf("capability = %q", p.capability)
	}
	if p.capability != "" && p.rule.Outcome == "allow" {
		autonomy = "supervised"
	}
	args := map[string]any{}
	for name, a := range p.declared {
		declared := map[string]any{"type": a.Type, "optional": p.kind != "target"}
		if a.Currency != "" {
			declared["currency"] = a.Currency
		}
		args[name] = declared
	}
	rules := ""
	for _, x := range append([]ruletest.Rule{p.rule}, p.others...) {
		rules += fmt.Sprintf("{ outcome = %q, match = %s },\n", x.Outcome, tomlOf(x.Match))
	}
	return fmt.Sprintf("workspaces = { personal = { autonomy = %q } }\ntools = { t = { %s%s, args = %s, handler = { kind = \"none\" } } }\nrules = [\n%s%s\n]\n",
		autonomy, tool, target, tomlOf(args), rules, other)
}

// tomlOf is an inline value.
func tomlOf(v any) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, tomlOf(name)+" = "+tomlOf(v[name]))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []any:
		for _, x := range v {
			parts = append(parts, tomlOf(x))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return strings.ReplaceAll(string(b), "\x7f", `\u007f`)
	}
	return fmt.Sprint(v)
}

// oneOrMore is a pattern, or a list of some.
func (r random) oneOrMore(of func() string) (condition any, all []string) {
	for range 1 + r.IntN(3)/2*r.IntN(3) {
		all = append(all, of())
	}
	if len(all) == 1 && !r.oneIn(4) {
		return all[0], all
	}
	var list []any
	for _, s := range all {
		list = append(list, s)
	}
	return list, all
}

// valueOrList is a value, or a list with it.
func (r random) valueOrList(of func() string) any {
	if !r.oneIn(5) {
		return of()
	}
	var list []any
	for range 1 + r.IntN(3) {
		list = append(list, of())
	}
	return list
}

var (
	programs  = []string{"git status", "git push", "git", "go test", "rm", "npm run", "ls", "docker ps"}
	freeWords = []string{"a.txt", "./...", "src/b.go", "v1.2", "HEAD^", "a_b", "x@2"}
	options   = []string{"-v", "-f", "--force", "-rf", "-n", "--dry-run"}
)

func (r random) command() (condition, value any) {
	condition, patterns := r.oneOrMore(r.commandPattern)
	line := r.commandLike(pick(r, patterns...))
	for r.oneIn(4) {
		line += pick(r, " && ", "; ", " | ", " || ", "\n", " ;", " & ", " > ", " |& ", " < ", " >> ", " 2>&1 ") + r.commandLike(pick(r, append(patterns, programs...)...))
	}
	if r.oneIn(5) {
		var words []any
		for w := range strings.FieldsSeq(r.commandLike(pick(r, patterns...))) {
			words = append(words, w)
		}
		return condition, words
	}
	return condition, line
}

func (r random) commandPattern() string {
	p := pick(r, programs...)
	for range r.IntN(3) {
		p += " " + pick(r, "...", "*", "main", "-v", "--force", "-rf", "[-v -n *]", "[--dry-run --name *]", "a.txt")
	}
	return p
}

// commandLike is a command that a pattern is meant for, or nearly.
func (r random) commandLike(pattern string) string {
	var words []string
	inside := false
	for w := range strings.FieldsSeq(pattern) {
		opens, closes := strings.HasPrefix(w, "["), strings.HasSuffix(w, "]")
		w = strings.Trim(w, "[]")
		switch {
		case inside || opens:
			if w == "*" && len(words) > 0 && strings.HasPrefix(words[len(words)-1], "-") {
				words = append(words, pick(r, freeWords...))
			} else if w != "*" && r.oneIn(2) {
				words = append(words, w)
			}
		case w == "...":
			for range r.IntN(3) {
				words = append(words, pick(r, freeWords...))
			}
		case w == "*":
			words = append(words, pick(r, "a", "'a b'", `"x;y"`, "'$(id)'", "main", "a.txt"))
		default:
			words = append(words, w)
		}
		inside = (inside || opens) && !closes
	}
	if r.oneIn(6) {
		words = append(words, pick(r, append(append(options, freeWords...), "/etc", "../x", "$X", "*.go", "sh", "`id`", "x=y", "~", "{a,b}", "#x", "'", "$(id)")...))
	}
	if r.oneIn(8) && len(words) > 1 {
		i := r.IntN(len(words))
		words = slices.Insert(words, i, pick(r, append(options, "--", "x", "-C", "env", "sudo")...))
	}
	return strings.Join(words, " ")
}

func (r random) path() (condition, value any) {
	condition, patterns := r.oneOrMore(func() string {
		return r.folder + pick(r, "/project/**", "/project/**", "/project/*.txt", "/project/sub/*", "/outside/**", "/outside/secret.txt", "/entry/**", "/secrets/**", "/project/out/**",
			"/project/**/.env", "/project/{sub,out}/**", "/project/[a-c].txt", "/project/?.txt", "/*/secret.txt", "/**/b.txt", "/project/.git/hooks/**", "/project/sub", "/nowhere/**")
	})
	return condition, r.valueOrList(func() string {
		start, _, _ := strings.Cut(pick(r, patterns...), "*")
		p := strings.NewReplacer("{sub,out}", "sub", "[a-c]", "a", "?", "a").Replace(start)
		if r.oneIn(3) {
			p = r.folder + pick(r, "/project/", "/outside/", "/entry/", "/secrets/")
		}
		for range r.IntN(4) {
			if !strings.HasSuffix(p, "/") {
				break
			}
			p += pick(r, "a.txt", "b.txt", "sub/", "out/", "../", "./", "inside/", "file", "dangling", "dangling/", "loop", "up/", "chain/", "relative/", "secret.txt", "new.txt", ".env",
				"dir/", "danglingin", "proc/", "cwd/", "insidefile", "nowhere", "project/", "outside/", "/", "new/", "insidefile/", "deep/", "deep/../")
		}
		return p
	})
}

var hosts = []string{"good.example", "a.good.example", "a.b.good.example", "evil.example", "xn--bcher-kva.example", "127.0.0.1", "good.example.evil.example", "::1"}

func (r random) hostPattern() string {
	h := pick(r, "good.example", "*.good.example", "evil.example", "127.0.0.1", "xn--bcher-kva.example", "*.evil.example")
	switch r.IntN(6) {
	case 0:
		return "http://" + h
	case 1:
		return h + ":8443"
	case 2:
		return "https://" + h + pick(r, "", ":8443", ":443")
	}
	return h
}

// hostLike is a host that a pattern is meant for, or another.
func (r random) hostLike(pattern string) (scheme, host string) {
	scheme, h, ok := strings.Cut(pattern, "://")
	if !ok {
		scheme, h = "https", pattern
	}
	if h = strings.Replace(h, "*", pick(r, "a", "a.b"), 1); r.oneIn(4) {
		if h = pick(r, hosts...); strings.Contains(h, "::") {
			h = "[" + h + "]"
		}
	}
	return scheme, h
}

func (r random) url() (condition, value any) {
	if r.oneIn(8) {
		return map[string]any{"matches": `https://good\.example/[a-z/]*`}, pick(r, "https://good.example/", "https://good.example/a/b", "https://good.example/A", "https://good.example:443/")
	}
	condition, patterns := r.oneOrMore(r.hostPattern)
	return condition, r.valueOrList(func() string {
		scheme, h := r.hostLike(pick(r, patterns...))
		if r.oneIn(6) {
			scheme = pick(r, "http", "https", "ftp")
		}
		return scheme + "://" + pick(r, "", "", "", "", "", "", "good.example@", "evil.example@", "user:x@") + h + pick(r, "", "", "/", "/a", ":443", ":80", ":8443/") +
			pick(r, "", "", "?evil.example", "#good.example", "/@good.example", `\@evil.example/`, "/https://evil.example/")
	})
}

func (r random) host() (condition, value any) {
	condition, patterns := r.oneOrMore(r.hostPattern)
	return condition, r.valueOrList(func() string {
		_, h := r.hostLike(pick(r, patterns...))
		if !strings.Contains(h, ":") {
			h += pick(r, "", "", "", ":443", ":80", ":8443")
		}
		return h
	})
}

var addresses = []string{"ann@good.example", "bob@good.example", "eve@evil.example", "ann@a.good.example", "ANN@good.example", "ann+x@good.example", "ricardo", "Ann <ann@good.example>"}

func (r random) recipients() (condition, value any) {
	if r.oneIn(15) {
		return []any{}, pick[any](r, []any{}, []any{"ann@good.example"}, "ann@good.example", "")
	}
	condition, patterns := r.oneOrMore(func() string {
		return pick(r, "ann@good.example", "@good.example", "eve@evil.example", "@evil.example", "ricardo", "Ann@good.example")
	})
	return condition, r.valueOrList(func() string {
		all := []string{r.recipientLike(pick(r, patterns...))}
		for r.oneIn(3) {
			all = append(all, r.recipientLike(pick(r, append(patterns, "ann@good.example")...)))
		}
		return strings.Join(all, pick(r, ",", ", ", ", ", ";"))
	})
}

func (r random) recipientLike(pattern string) string {
	if r.oneIn(4) {
		return pick(r, addresses...)
	}
	if strings.HasPrefix(pattern, "@") {
		return pick(r, "ann", "bob", "x.y") + pattern
	}
	return pattern
}

func (r random) bounds(text bool) (m map[string]any, value json.Number) {
	m = map[string]any{}
	limit := func(n int) any {
		if text {
			return fmt.Sprintf("%d.%02d", n, r.IntN(3)*50)
		}
		return n
	}
	if !r.oneIn(4) {
		m["max"] = limit(10 + r.IntN(10))
	}
	if len(m) == 0 || r.oneIn(3) {
		m["min"] = limit(r.IntN(12))
	}
	return m, json.Number(pick(r, "0", "5", "10", "10.5", "11", "15.50", "19.99", "20", "20.000000000000000000001", "-1", "9.999999999999999999999", "1e1", "100000000000000000000000", "-0"))
}

func (r random) amount() (condition, value any) {
	m, n := r.bounds(r.oneIn(2))
	if r.oneIn(3) {
		return m, string(n)
	}
	return m, n
}

// currency gives an amount one: the tool's, or another argument's.
func (r random) currency(p *pair, args map[string]any) {
	m, _ := args["a"].(map[string]any)
	a := p.declared["a"]
	switch r.IntN(3) {
	case 0:
		a.Currency = "EUR"
	case 1:
		a.Currency = "c"
		p.declared["c"] = ruletest.Argument{Type: "text"}
		if !r.oneIn(5) {
			p.request.args["c"] = pick[any](r, "EUR", "EUR", "EUR", "eur", "USD", json.Number("1"))
		}
	}
	if a.Currency == "c" && r.oneIn(6) || a.Currency == "" && !r.oneIn(10) {
		p.declared["a"] = a
		return
	}
	m["currency"] = pick(r, "EUR", "EUR", "EUR", "USD")
	p.declared["a"] = a
}

func (r random) number() (condition, value any) {
	if r.oneIn(3) {
		return int64(r.IntN(12)), json.Number(pick(r, "5", "5.0", "0", "10", "1e1", "11"))
	}
	m, n := r.bounds(false)
	return m, n
}

var words = []string{"standup", "the password", "build", "a b", "and/or", `c:\x`, "Ticket 12", "ünïcode", "straße"}

func (r random) text() (condition, value any) {
	w := pick(r, words...)
	s := pick(r, w, w, w+" now", "and "+w, strings.ToUpper(w), w+"\nx", "x\n"+w, pick(r, words...))
	switch r.IntN(5) {
	case 0:
		return w, s
	case 1:
		return map[string]any{"equals": w}, s
	case 2:
		return map[string]any{"matches": strings.ReplaceAll(w, `\`, `\\`) + pick(r, "", ".*", "( now)?", "|other")}, s
	case 3:
		return map[string]any{"contains": w, "matches": pick(r, "[a-z /]+", ".*")}, s
	}
	return map[string]any{"contains": w}, s
}

func (r random) boolean() (condition, value any) {
	is := r.oneIn(2)
	return is, is != r.oneIn(4)
}

func (r random) list() (condition, value any) {
	one := r.text
	if r.oneIn(3) {
		one = func() (any, any) { m, n := r.bounds(false); return m, n }
	}
	condition, value = one()
	values := []any{value}
	for r.oneIn(3) {
		if _, v := one(); r.oneIn(2) {
			value = v
		}
		values = append(values, value)
	}
	return condition, values
}

// member makes a condition on a member of JSON, and a value of it.
func (r random) member() (condition, value any) {
	switch r.IntN(4) {
	case 0:
		m, n := r.bounds(false)
		return m, n
	case 1:
		return r.list()
	}
	return r.text()
}

// nested puts a value where the names lead to.
func (r random) nested(names []string, value any) any {
	if len(names) == 0 {
		return value
	}
	name := names[0]
	if r.oneIn(12) {
		name = pick(r, strings.ToUpper(name), "z", name+" ")
	}
	m := map[string]any{name: r.nested(names[1:], value), "other": "v"}
	if r.oneIn(15) {
		m[strings.ToUpper(name)] = "v"
	}
	if r.oneIn(3) {
		return []any{m, map[string]any{name: r.nested(names[1:], pick[any](r, value, "x", json.Number("3")))}}
	}
	return m
}

func (r random) equals() (condition, value any) {
	v := pick[any](r, "a b", "/x/y", "rm -rf x", "git status")
	if r.oneIn(2) {
		text := pick(r, `{"a":1,"b":[true,null,"x y"]}`, `["a b",2]`, `"a b"`, `1.50`, `{"x":{"y":"z"}}`)
		same := pick(r, text, text, strings.Replace(text, "1", "1.0", 1), strings.ToUpper(text), strings.Replace(text, ",", ",\"new\":0,", 1))
		if json.Valid([]byte(strings.ToLower(same))) && same != strings.ToLower(same) {
			same = strings.ToLower(same)
		}
		if !json.Valid([]byte(same)) {
			same = text
		}
		return map[string]any{"json": text}, decoded(same)
	}
	return map[string]any{"equals": v}, pick[any](r, v, v, v, []any{v}, strings.ToUpper(v.(string)), v.(string)+"\nx", strings.ReplaceAll(v.(string), " ", "  "))
}

func (r random) when(match map[string]any) {
	if !r.oneIn(4) {
		match["between"] = fmt.Sprintf("%02d:%02d-%02d:%02d", r.IntN(12), r.IntN(4)*15, 12+r.IntN(12), r.IntN(4)*15)
		if r.oneIn(3) {
			match["between"] = fmt.Sprintf("%02d:00-%02d:30", 12+r.IntN(12), r.IntN(12))
		}
	}
	if _, ok := match["between"]; !ok || r.oneIn(2) {
		match["weekdays"] = pick(r, []any{"mon-fri"}, []any{"sat", "sun"}, []any{"mon", "wed-thu"}, []any{"sun"})
	}
	if r.oneIn(2) {
		match["time_zone"] = pick(r, "America/New_York", "Asia/Kolkata", "UTC", "Pacific/Auckland")
	}
}

func (r random) target() (pattern any, value any) {
	return pick[any](r, "x/*", "x/**", "x/a", []any{"y", "x/a*"}, "**/b"), pick[any](r, "x/a", "x/b", "x/a/b", "y", "X/A", "x/ab", "z")
}
