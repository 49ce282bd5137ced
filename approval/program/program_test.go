package program

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// hostTools are those of most tests.
func hostTools() map[string]map[string]approval.Argument {
	return map[string]map[string]approval.Argument{
		"send_email":   {"to": {Type: facts.TypeRecipients}, "body": {}, "subject": {Type: facts.TypeText, Optional: true}},
		"write_file":   {"path": {Type: facts.TypePath}, "content": {Type: facts.TypeText}},
		"copy":         {"from": {Type: facts.TypePath}, "dest": {Type: facts.TypePath}},
		"pay":          {"to": {}, "amount": {Type: facts.TypeAmount, Currency: "currency"}, "currency": {}},
		"fetch":        {"url": {Type: facts.TypeURL}},
		"store":        {"value": {Type: facts.TypeJSON, Optional: true}, "n": {Type: facts.TypeNumber, Optional: true}, "tags": {Type: facts.TypeList, Optional: true}},
		"mcp.files.ls": {"path": {Type: facts.TypePath, Optional: true}},
	}
}

// evaluated is what a program did.
type evaluated struct {
	ev    approval.Evaluation
	calls []approval.Call
	err   error
}

// run evaluates the body of a main. Results are answers by the number of the step; the others are not known.
func run(t *testing.T, source string, answers map[int]approval.Answer) (r evaluated) {
	t.Helper()
	r.ev, r.err = Evaluate(t.Context(), approval.ProgramJob{Source: source, Tools: hostTools()}, func(c approval.Call) (approval.Answer, error) {
		r.calls = append(r.calls, c)
		return answers[len(r.calls)], nil
	})
	return r
}

// lines are calls as texts.
func lines(t *testing.T, calls []approval.Call) (texts []string) {
	t.Helper()
	for _, c := range calls {
		b, err := codec.Encode(&c)
		require.NoError(t, err)
		texts = append(texts, string(b))
	}
	return texts
}

func TestMailToBob(t *testing.T) {
	r := run(t, `
guarantee(
    tools.send_email.only(to = ["bob@example.com"]),
    at_most(tools.pay, 3, sum_of("amount", 100, "EUR")),
    none(tools.write_file), unique(tools.send_email, "to"), only_under("path", "~/Sandbox"),
)

def main():
    page = tools.fetch(url = "https://example.com/")
    tools.send_email(to = "Bob@example.com".lower(), body = page["items"][0]["a/b"], subject = None)
`, nil)
	require.NoError(t, r.err)
	require.Equal(t, []string{
		`{"tool":"fetch","data":{"url":"https://example.com/"},"opaque":[],"line":9}`,
		`{"tool":"send_email","data":{"to":"bob@example.com"},"opaque":[{"arg":"body","step":1,"at":"/items/0/a~1b"}],"line":10}`,
	}, lines(t, r.calls))
	require.Nil(t, r.ev.Needs)
	require.Len(t, r.ev.Guarantees, 6)
	for _, g := range r.ev.Guarantees {
		assert.Equal(t, approval.GuaranteeProved, g.State, g.Kind)
	}
}

// looks are looks at a result that is not known.
var looks = []string{
	`if x: pass`, `x == "a"`, `"a" == x`, `x != None`, `x == x["a"]`, `x in ["a"]`, `["a", 1].index(x)`, `[x] == ["a"]`, `(1, x) == (1, 2)`, `["a"] == [x]`,
	`{1: "a"} == {1: x}`, `["a"] in [[x]]`, `[x] in [["a"]]`, `["a"].index(x)`, `["a", "b"].remove(x)`, `x not in ("a", "b")`, `"a" != x`,
	`{"a": x} == {"a": 1}`, `x < 1`, `sorted([x, "b"])`, `max(x, 1)`, `len(x)`, `[i for i in x]`, `for i in x: pass`, `list(x)`, `str(x)`, `repr(x)`,
	`"%s" % x`, `"%s" % [x]`, `"%s%s" % (1, x)`, `"{}".format(x)`, `"a" + x`, `x + "a"`, `[1] + x`, `x * 2`, `-x`, `not x`, `x and 1`, `x or 1`,
	`1 if x else 2`, `{x: 1}`, `{1: 2}.get(x)`, `x in {}`, `"a" in x`, `x[x]`, `x[-1]`, `x[1:]`, `x.name`, `getattr(x, "a", None)`, `hasattr(x, "a")`,
	`dir(x)`, `type(x)`, `bool(x)`, `int(x)`, `hash(x)`, `any([x])`, `all([x])`, `"a".join([x])`, `json.encode(x)`, `json.encode({"a": [x]})`,
	`json.decode(x)`, `re.match("a", x)`, `math.floor(x)`, `f(**x)`, `f(*x)`, `x()`, `dict(x)`, `set([x])`, `range(x)`, `a, b = x`, `fail(x)`,
	`tools[x]`, `zip(x, x)`, `x["a"]["b"] == 1`, `tools.store(value = [x])`, `tools.store(value = x)`, `tools.send_email(to = x, body = "b")`,
	`tools.store(n = x)`, `[][x]`, `"a".startswith(x)`, `enumerate(x)`, `x | x`, `x += 1`, `x["a"] = 1`, `x.a = 1`, `guarantee(x)`,
	`guarantee(tools.send_email.only(to = [x]))`, `guarantee(at_most(tools.pay, x))`, `try_(tools.send_email, to = x, body = "b")`,
	`try_(tools.fetch, url = "https://a.example").ok`, `try_(tools.fetch, url = "https://a.example").error`, `if try_(tools.fetch, url = "https://a.example"): pass`,
	`[t for t in ["a"] if t == x]`, `[1, x].remove(2)`, `sorted([1, 2], key = lambda i: x)`,
}

func TestLooksEndTheEvaluation(t *testing.T) {
	for _, look := range looks {
		r := run(t, `
def f(*args, **kwargs):
    return 1

def main():
    x = tools.fetch(url = "https://example.com/")
    `+look+`
    tools.send_email(to = "after@example.com", body = "never")
`, nil)
		require.NoError(t, r.err, look)
		require.NotNil(t, r.ev.Needs, look)
		assert.Equal(t, 7, r.ev.Needs.Line, look)
		for _, c := range r.calls {
			assert.NotEqual(t, "send_email", c.Tool, look)
		}
	}
}

// TestRefusedPrograms has the ways around the predecessor's proofs among them: effects while a module loads, replaced
// functions, names behind which is something else, and calls by reflection.
func TestRefusedPrograms(t *testing.T) {
	const body = "\ndef main():\n    pass\n"
	for source, want := range map[string]string{
		"tools.send_email(to = 'a@example.com', body = 'b')" + body:             "line 1: tools can be called only within main",
		"x = [tools.fetch(url = 'https://a.example') for i in range(2)]" + body: "line 1: tools can be called only within main",
		"def f():\n  tools.fetch(url = 'https://a.example')\nf()" + body:        "line 2: tools can be called only within main",
		"def f(x = tools.fetch(url = 'https://a.example')):\n  pass" + body:     "line 1: tools can be called only within main",
		"x = getattr(tools, 'fetch')(url = 'https://a.example')" + body:         "line 1: tools can be called only within main",
		"x = try_(tools.fetch, url = 'https://a.example')" + body:               "line 1: tools can be called only within main",
		"def main():\n  tools.fetch(url = 'https://a.example')\nmain()":         "line 2: tools can be called only within main",
		"tools = 1" + body:                                  "line 1: tools is predeclared; choose another name",
		"True = False" + body:                               "line 1: True is predeclared",
		"def tools(): pass" + body:                          "line 1: tools is predeclared",
		"[tools, x] = 1, 2" + body:                          "line 1: tools is predeclared",
		"def f(guarantee): pass" + body:                     "line 1: guarantee is predeclared",
		"def f(*none): pass" + body:                         "line 1: none is predeclared",
		"f = lambda only = 1: 2" + body:                     "line 1: only is predeclared",
		"def f():\n  for (at_most, b) in []: pass" + body:   "line 2: at_most is predeclared",
		"x = [1 for json in []]" + body:                     "line 1: json is predeclared",
		"tools.send_email = tools.fetch" + body:             "line 1: can't assign to .send_email field of tools",
		"tools['send_email'] = 1" + body:                    "line 1: tools value does not support item assignment",
		"tools.send_email.only = len" + body:                "line 1: can't assign to .only field of tool",
		"json.encode = len" + body:                          "line 1: can't assign to .encode field of module",
		"load('a.star', 'b')" + body:                        "line 1: load is not available",
		"import os" + body:                                  "line 1: got import",
		"x = __import__('os')" + body:                       "line 1: undefined: __import__",
		"x = open('/etc/passwd')" + body:                    "line 1: undefined: open",
		"x = time.now()" + body:                             "line 1: module has no .now field or method",
		"x = tools.fetch.__class__" + body:                  "line 1: tool has no .__class__ field or method",
		"def main():\n  while True: pass":                   "line 2: this Starlark dialect does not support while loops",
		"def main():\n  main()":                             "line 2: function main called recursively",
		"f = lambda g: g(g)\ndef main():\n  f(f)":           "line 1: function lambda called recursively",
		"x = 1\nx = 2" + body:                               "line 2: cannot reassign global x",
		"x = []\ndef main():\n  x.append(1)":                "line 3: append: cannot append to frozen list",
		"def f(x = []):\n  x.append(1)\ndef main():\n  f()": "line 2: append: cannot append to frozen list",
		"x = 1":                              "the program must define main",
		"main = 1":                           "the program must define main",
		"def main(x): pass":                  "the program must define main",
		"def main(*args): pass":              "the program must define main",
		"":                                   "the program must define main",
		"def main():\n  t\u043e\u043els = 1": `line 2: names must be ASCII: t\u043e\u043els is not`,
		"def main():\n  f(\u00e9 = 1)":       `line 2: names must be ASCII: \u00e9 is not`,
		"def main():\n  x.\u00e9":            `line 2: names must be ASCII: \u00e9 is not`,
		"def main():\n  # \u202efoo":         "line 2: the program has the character U+202E; in a string, write it with \\",
		"def main():\r\n  pass":              "line 1: the line ends with CR LF",
		"\xff" + body:                        "the program is not UTF-8",
		strings.Repeat("#", 65<<10) + body:   "the program is larger than 64 KiB",
		"x = " + strings.Repeat("(", 50_000): "line 1: excessive nesting",
		"x = a" + strings.Repeat(".a", 30_000) + body:                                                "line 1: nested too deeply",
		"def main():\n  tools.send_mail(to = 'a')":                                                   "line 2: there is no tool send_mail; did you mean send_email?",
		"def main():\n  tools['\\x1b[2J']()":                                                         `line 2: there is no tool \u001b[2J`,
		"def main():\n  tools[1]()":                                                                  "line 2: tools[…] takes the name of a tool",
		"def main():\n  tools.fetch('https://a.example')":                                            "line 2: tools.fetch takes its arguments by name: tools.fetch(to = …)",
		"def main():\n  tools.fetch(uri = 'https://a.example')":                                      "line 2: tools.fetch has no argument uri; did you mean url?",
		"def main():\n  tools.fetch()":                                                               "line 2: tools.fetch needs the argument url (url)",
		"def main():\n  tools.fetch(url = None)":                                                     "line 2: tools.fetch needs the argument url (url)",
		"def main():\n  tools.fetch(url = 'x')":                                                      `line 2: argument url of tools.fetch must be of type url, not "x"`,
		"def main():\n  tools.fetch(url = 'https://a.example', **{'url': 1})":                        "line 2: argument url is given twice",
		"def main():\n  tools.store(value = lambda: 1)":                                              "line 2: argument value: a value of type function cannot be written as JSON",
		"def main():\n  tools.store(value = {1: 2})":                                                 "line 2: argument value: a key must be a string, not int",
		"def main():\n  tools.store(value = float('nan'))":                                           "line 2: argument value: a number is not finite",
		"def main():\n  tools.store(value = '\u00e9'[:1])":                                           "line 2: argument value: a string is not UTF-8",
		"def main():\n  x = []\n  x.append(x)\n  tools.store(value = x)":                             "line 4: argument value: nested deeper than 24 levels",
		"def main():\n  x = ['a'*9]\n  for i in range(20):\n    x = x + x\n  tools.store(value = x)": "line 5: argument value: too large",
		"def main():\n  tools.store(value = tools)":                                                  "line 2: argument value: a value of type tools cannot be written as JSON",
		"def main():\n  tools.store(value = try_(tools.fetch, url = 'https://a.example'))":           "line 2: argument value: a value of type outcome cannot be written",
		"def main():\n  for i in range(257):\n    tools.store()":                                     "line 3: a program can call tools at most 256 times",
		"def main():\n  for i in range(9):\n    tools.store(value = 'a' * 65536)":                    "line 3: argument value: too large",
		"def main():\n  try_(lambda: 1)":                                                             "line 2: try_ takes a tool and its arguments",
		"def main():\n  fail('a\\nb')":                                                               `line 2: fail: a\u000ab`,
		"def main():\n  list(range(1 << 60))":                                                        "the program needs too much memory",
		"def main():\n  return [][0]":                                                                "line 2: index 0 out of range: empty list",
		"guarantee(1)" + body:                                                                        "line 1: guarantee takes none(…)",
		"guarantee(none())" + body:                                                                   "line 1: none takes tools",
		"guarantee(none('send_email'))" + body:                                                       "line 1: none takes tools",
		"guarantee(at_most(tools.pay))" + body:                                                       "line 1: at_most takes a tool, how often",
		"guarantee(at_most(tools.pay, -1))" + body:                                                   "line 1: at_most takes a tool, how often",
		"guarantee(at_most(tools.pay, 1, sum_of('to', 1)))" + body:                                   "line 1: argument to of tools.pay is no amount",
		"guarantee(at_most(tools.pay, 1, sum_of('amount', '1e9')))" + body:                           `line 1: sum_of: "1e9" is no sum`,
		"guarantee(at_most(tools.pay, 1, sum_of('amount', 1, 'euro')))" + body:                       `line 1: sum_of: "euro" is no currency such as EUR`,
		"guarantee(tools.pay.only(too = ['a']))" + body:                                              "line 1: tools.pay has no argument too",
		"guarantee(tools.pay.only())" + body:                                                         "line 1: only takes values by name",
		"guarantee(unique(tools.pay, 'x'))" + body:                                                   "line 1: tools.pay has no argument x",
		"guarantee(only_under('path'))" + body:                                                       "line 1: only_under takes an argument and folders",
		"guarantee(only_under('folder', '/a'))" + body:                                               "line 1: only_under: no tool has an argument folder",
		"guarantee(only_under('path', '~/..'))" + body:                                               `line 1: only_under: a folder must be without .., not "~/.."`,
		"[guarantee(none(tools.pay)) for i in range(65)]" + body:                                     "line 1: a program can guarantee at most 64 things",
		"x = json.decode('[' * 33)" + body:                                                           "line 1: json.decode: nested deeper than 32 levels",
		"x = json.decode('{\"a\":1,\"a\":2}')" + body:                                                `line 1: json.decode: duplicate key "a"`,
		"x = json.decode('9' * 400)" + body:                                                          "line 1: json.decode: a number is too long",
		"x = re.match('(', '')" + body:                                                               "line 1: re.match: error parsing regexp",
		"x = re.match('a)|(b', '')" + body:                                                           "line 1: re.match: error parsing regexp",
		"x = re.findall('', 'a' * 20000)" + body:                                                     "line 1: re.findall: more than 10000 matches",
		"x = re.sub('a', 'b' * 1000, 'a' * 9000)" + body:                                             "line 1: re.sub: the result is too long",
		"x = re.search('a' * 2000, 'a')" + body:                                                      "line 1: re.search: the pattern is longer than 1024 bytes",
	} {
		r := run(t, source, nil)
		require.ErrorContains(t, r.err, want, source)
		fault, ok := errors.AsType[*approval.ProgramError](r.err)
		require.True(t, ok, source)
		assert.LessOrEqual(t, utf8.RuneCountInString(fault.Text), 6*maxShown)
		assert.LessOrEqual(t, len(r.calls), approval.MaxSteps)
	}
}

// values are what a main writes with store, and what comes out.
func TestValues(t *testing.T) {
	for value, want := range map[string]string{
		`{"b": 1, "a": [True, None, 1.5, "é\n", (1, -0.0)]}`: `{"b":1,"a":[true,null,1.5,"é\n",[1,-0]]}`,
		`1 << 300`: "2037035976334486086268445688409378161051468393665936250636140449354381299763336706183397376",
		`10.0`:     `10`,
		`json.decode('{"b": [1, 2.50, null], "a": {}}')`: `{"b":[1,2.5,null],"a":{}}`,
		`json.encode({"b": 1, "a": "<"})`:                `"{\"b\":1,\"a\":\"<\"}"`,
		`re.match("(a)(b)?", "ac")`:                      `["a","a",null]`,
		`re.match("b", "ab")`:                            `null`,
		`re.search("b(.)", "abc")`:                       `["bc","c"]`,
		`re.findall("a", "aba") + re.findall("a(.)", "abac") + re.findall("(a)(.)", "ab")`: `["a","a","b","c",["a","b"]]`,
		`re.sub("(a)(b)", "\\2\\1$1\\\\", "ab-ab")`:                                        `"ba$1\\-ba$1\\"`,
		`re.split(",+", "a,,b")`:                                                           `["a","b"]`,
		`str(time.parse_duration("90m"))`:                                                  `"1h30m0s"`,
		`(time.hour * 2).minutes`:                                                          `120`,
		`math.floor(2.5)`:                                                                  `2`,
		`sorted(set(["b", "a"]))`:                                                          `["a","b"]`,
		`"%s {}".format(1) % "a"`:                                                          `"a 1"`,
		`print("ignored") == None`:                                                         `true`,
		`sorted(dir(tools))[-1]`:                                                           `"write_file"`,
		`"x" in tools`:                                                                     `false`,
		`hasattr(tools, "pay")`:                                                            `true`,
		`{"a": 1} == {"a": 1.0}`:                                                           `true`,
	} {
		r := run(t, "def main():\n    tools.store(value = "+value+")\n", nil)
		require.NoError(t, r.err, value)
		if want == "null" {
			want = ""
		} else {
			want = `"value":` + want
		}
		assert.Equal(t, "{"+want+"}", string(r.calls[0].Data), value)
	}
}

func TestReflectiveCallsAreRecorded(t *testing.T) {
	r := run(t, `
send = {"f": tools.send_email}
def main():
    for name in ["send_email", "mcp.files.ls"]:
        f = getattr(tools, name)
        if f == tools.send_email:
            f(**{"to": "a@example.com", "body": "1"})
    [f(path = "/") for f in [tools["mcp.files.ls"]]]
    send["f"](to = "b@example.com", body = "2")
    (lambda f: f(to = "c@example.com", body = "3"))(tools.send_email)
    sorted([1], key = lambda i: tools.send_email(to = "d@example.com", body = "4") and 1)
`, map[int]approval.Answer{5: {Known: true, Result: approval.Raw("1")}})
	require.NoError(t, r.err)
	require.Equal(t, []string{
		`{"tool":"send_email","data":{"body":"1","to":"a@example.com"},"opaque":[],"line":7}`,
		`{"tool":"mcp.files.ls","data":{"path":"/"},"opaque":[],"line":8}`,
		`{"tool":"send_email","data":{"body":"2","to":"b@example.com"},"opaque":[],"line":9}`,
		`{"tool":"send_email","data":{"body":"3","to":"c@example.com"},"opaque":[],"line":10}`,
		`{"tool":"send_email","data":{"body":"4","to":"d@example.com"},"opaque":[],"line":11}`,
	}, lines(t, r.calls))
}

func TestKnownResults(t *testing.T) {
	const source = `
def main():
    feed = tools.fetch(url = "https://example.com/")
    for item in feed["items"]:
        if item["new"]:
            tools.send_email(to = item["to"], body = str(item))
    tools.store(value = feed)
`
	result := `{"items":[{"to":"a@example.com","new":true},{"to":"b@example.com","new":false}],"def main()":"tools.pay()"}`
	r := run(t, source, map[int]approval.Answer{1: {Known: true, Result: approval.Raw(result)}})
	require.NoError(t, r.err)
	require.Len(t, r.calls, 3)
	require.JSONEq(t, `{"to":"a@example.com","body":"{\"to\": \"a@example.com\", \"new\": True}"}`, string(r.calls[1].Data))
	require.Equal(t, `{"value":`+result+`}`, string(r.calls[2].Data))

	r = run(t, source, nil)
	require.NoError(t, r.err)
	require.Equal(t, &approval.Needs{Step: 1, Line: 4}, r.ev.Needs)

	r = run(t, "def main():\n  x = tools.fetch(url = 'https://example.com/')\n  x['a'] = 1", map[int]approval.Answer{1: {Known: true, Result: approval.Raw(`{}`)}})
	require.ErrorContains(t, r.err, "line 3: cannot insert into frozen hash table")
}

func TestTry(t *testing.T) {
	const source = `
def main():
    r = try_(tools.fetch, url = "https://example.com/")
    tools.send_email(to = "a@example.com", body = r.value or "none")
    if not r.ok:
        tools.send_email(to = "b@example.com", body = r.error)
`
	r := run(t, source, map[int]approval.Answer{1: {Known: true, Failed: "timeout"}})
	require.NoError(t, r.err)
	require.Equal(t, []string{
		`{"tool":"fetch","data":{"url":"https://example.com/"},"opaque":[],"line":3,"try":true}`,
		`{"tool":"send_email","data":{"body":"none","to":"a@example.com"},"opaque":[],"line":4}`,
		`{"tool":"send_email","data":{"body":"timeout","to":"b@example.com"},"opaque":[],"line":6}`,
	}, lines(t, r.calls))

	r = run(t, strings.Replace(source, ` or "none"`, "", 1), nil)
	require.NoError(t, r.err)
	require.Equal(t, &approval.Needs{Step: 1, Line: 5}, r.ev.Needs)
	require.Equal(t, []approval.ResultRef{{Arg: "body", Step: 1}}, r.calls[1].Opaque)

	r = run(t, "def main():\n  tools.fetch(url = 'https://example.com/')\n", map[int]approval.Answer{1: {Failed: "time\nout"}})
	require.EqualError(t, r.err, `line 2: step 1 failed: time\u000aout`)
}

func TestErrorsOfCalls(t *testing.T) {
	stopped := errors.New("stopped")
	calls := 0
	_, err := Evaluate(t.Context(), approval.ProgramJob{Tools: hostTools(), Source: `
def main():
    for i in range(3):
        tools.store(n = i)
`}, func(approval.Call) (approval.Answer, error) {
		calls++
		return approval.Answer{}, stopped
	})
	require.ErrorIs(t, err, stopped)
	require.Equal(t, 1, calls)

	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = Evaluate(ctx, approval.ProgramJob{Tools: hostTools(), Source: `
def main():
    tools.store()
    for i in range(1 << 60):
        pass
`}, func(approval.Call) (approval.Answer, error) {
		cancel(stopped)
		return approval.Answer{}, nil
	})
	require.ErrorIs(t, err, stopped)
}

func TestSameProgramSameCalls(t *testing.T) {
	const source = `
def main():
    d = {}
    for w in ["q%d" % (i * 7919 % 101) for i in range(101)]:
        d[w] = {w: hash(w), "s": list(set([w, "a", "b"])), "f": hash(w) / 3}
    for k in d:
        tools.store(value = d[k], tags = dir(d))
    tools.store(value = d)
`
	first := run(t, source, nil)
	require.NoError(t, first.err)
	require.Len(t, first.calls, 102)
	for range 5 {
		require.Equal(t, lines(t, first.calls), lines(t, run(t, source, nil).calls))
	}
}

// grows matches what makes values grow faster than steps are counted: for that, the process of an evaluation has limits.
var grows = regexp.MustCompile(`[*+%]|<<|\d{4}|str|repr|format|join|replace|sub|hash`)

// FuzzEvaluate looks for a program that ends in a panic, or that makes a call that its job does not permit.
func FuzzEvaluate(f *testing.F) {
	for _, look := range looks {
		f.Add("def main():\n    x = tools.fetch(url = 'https://a.example')\n    " + look + "\n")
	}
	f.Fuzz(func(t *testing.T, source string) {
		if grows.MatchString(source) {
			_, _ = compile(source, (&evaluator{}).predeclared())
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := client{job: approval.ProgramJob{Source: source, Tools: hostTools()}}
		_, err := Evaluate(ctx, c.job, func(call approval.Call) (approval.Answer, error) {
			require.NoError(t, c.checkCall(&call))
			c.steps, c.known = append(c.steps, approval.Step{}), append(c.known, false)
			return approval.Answer{}, nil
		})
		if fault, ok := errors.AsType[*approval.ProgramError](err); ok {
			require.NotContains(t, fault.Text, "\n")
		}
	})
}

func BenchmarkEvaluateHundredCalls(b *testing.B) {
	job := approval.ProgramJob{Tools: hostTools(), Source: `
guarantee(at_most(tools.send_email, 100), unique(tools.send_email, "to"), tools.send_email.only(body = ["hello"]))
def main():
    for i in range(100):
        tools.send_email(to = "a%d@example.com" % i, body = "hello")
`}
	for b.Loop() {
		ev, err := Evaluate(b.Context(), job, func(approval.Call) (approval.Answer, error) { return approval.Answer{}, nil })
		require.NoError(b, err)
		require.Nil(b, ev.Needs)
	}
}
