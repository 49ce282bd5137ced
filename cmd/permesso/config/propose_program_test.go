package config_test

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
)

const programTools = `[workspaces.w]
[tools.mail]
capability = "mail:send"
args = { to = "recipients", body = "text", cc = { type = "recipients", optional = true } }
[tools.save]
capability = "fs:write"
args = { path = "path", text = { type = "text", writes = "path" } }
[tools.get]
capability = "network:http"
args = { url = "url", n = "number" }
[tools.pay]
capability = "channel:out"
args = { sum = { type = "amount", currency = "in" }, in = "text", flag = "bool" }
[tools.note]
capability = "channel:out"
args = { text = "text" }
[tools.now]
capability = "time:read"
`

// programCall is a tool, and its arguments.
type programCall struct{ tool, data string }

// programSteps are the steps of a program, as a plan has them.
func programSteps(c *config.Config, calls ...programCall) (steps []approval.Step) {
	for _, call := range calls {
		t := c.Tools[call.tool]
		s := approval.Step{Call: approval.Call{Tool: call.tool, Data: approval.Raw(call.data)}, Declared: facts.Arguments(t), Capability: t.Capability, Ruling: approval.Ruling{Outcome: approval.Ask}}
		if t.Capability == "time:read" {
			s.Ruling.Outcome = approval.Allow
		}
		steps = append(steps, s)
	}
	return steps
}

// judgeProgram is the outcome of a program with the proposed rules.
func judgeProgram(t *testing.T, tools, rules string, steps []approval.Step, client string) approval.Outcome {
	t.Helper()
	c, err := config.Parse("p.toml", []byte(tools+rules))
	require.NoError(t, err, rules)
	require.Empty(t, c.Warnings, rules)
	e := &policy.Engine{Resolve: func(name string) (string, error) { return path.Clean(name), nil }}
	require.NoError(t, e.Load(c.PolicyConfig()))
	p := &approval.ProgramFacts{SHA256: "5e", Whole: true, Calls: map[string]int{}}
	var all []approval.Facts
	for i := range steps {
		s := &steps[i]
		p.Tools = append(p.Tools, s.Tool)
		if s.Done() {
			continue
		}
		p.Steps++
		p.Calls[s.Tool]++
		tool := c.Tools[s.Tool]
		all = append(all, approval.Facts{
			RequestID: approval.Key{ID: "aaaaaaaaaaaaaaaa"}.StepKey(i + 1).ID, Workspace: "w", Autonomy: "supervised", ClientID: client, Tool: s.Tool, KnownTool: true,
			Capability: tool.Capability, Trust: tool.Trust, Declared: s.Declared, Args: s.Data, Program: p, Now: time.Unix(1e9, 0),
		})
	}
	run, _ := e.JudgeProgram(all)
	return run.Outcome
}

// The proposed rules allow the program, and another that goes no further in what counts.
func TestProposedRulesOfAProgram(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(programTools))
	require.NoError(t, err)
	calls := []programCall{
		{"now", `{}`},
		{"mail", `{"to":"bob@example.com","body":"hi\nBob"}`},
		{"mail", `{"to":["ann@example.com","bob@example.com"],"body":"x"}`},
		{"mail", `{"to":"bob@example.com","body":"x","cc":"cid@example.com"}`},
		{"save", `{"path":"/srv/a[1].txt","text":"a"}`},
		{"get", `{"url":"https://api.example.com/v1?x=1","n":3}`},
		{"get", `{"url":"http://api.example.com:8080/","n":7}`},
		{"pay", `{"sum":"3.50","in":"EUR","flag":true}`},
		{"pay", `{"sum":"12.25","in":"EUR","flag":true}`},
		{"pay", `{"sum":"1","in":"EUR","flag":false}`},
	}
	steps := programSteps(c, calls...)
	rules := config.ProposeProgram(steps, "w", "ws:w")
	const head = `match = { program = true, tools = ["get", "mail", "now", "pay", "save"], tool = `
	const tail = `, workspace = "w", client = "ws:w", max_steps = 10, max_calls = `
	require.Equal(t, strings.Join([]string{
		"# any text is allowed in body",
		"[[rules]]",
		head + `"mail"` + tail + `3, args = { body = { matches = "(?s).*" }, to = ["bob@example.com", "ann@example.com"] }, other_args = false }`,
		`outcome = "allow"`,
		"# any text is allowed in body",
		"[[rules]]",
		head + `"mail"` + tail + `3, args = { body = { matches = "(?s).*" }, cc = ["cid@example.com"], to = ["bob@example.com"] }, other_args = false }`,
		`outcome = "allow"`,
		"# any text is allowed in text",
		"[[rules]]",
		head + `"save"` + tail + `1, args = { path = ['/srv/a\[1\].txt'], text = { matches = "(?s).*" } }, other_args = false }`,
		`outcome = "allow"`,
		"[[rules]]",
		head + `"get"` + tail + `2, args = { n = { max = "7", min = "3" }, url = ["https://api.example.com", "http://api.example.com:8080"] }, other_args = false }`,
		`outcome = "allow"`,
		"[[rules]]",
		head + `"pay"` + tail + `3, args = { flag = true, in = "EUR", sum = { max = "12.25", currency = "EUR" } }, other_args = false }`,
		`outcome = "allow"`,
		"[[rules]]",
		head + `"pay"` + tail + `3, args = { flag = false, in = "EUR", sum = { max = "1", currency = "EUR" } }, other_args = false }`,
		`outcome = "allow"`,
	}, "\n"), rules)
	require.Equal(t, approval.Allow, judgeProgram(t, programTools, rules, steps, "ws:w"))
	require.Equal(t, approval.Ask, judgeProgram(t, programTools, "", steps, "ws:w"))

	for why, tc := range map[string]struct {
		calls  []programCall
		client string
		want   approval.Outcome
	}{
		"other texts":       {[]programCall{{"mail", `{"to":"ann@example.com","body":"another"}`}}, "ws:w", approval.Allow},
		"less":              {[]programCall{{"pay", `{"sum":"2","in":"EUR","flag":true}`}}, "ws:w", approval.Allow},
		"another path":      {[]programCall{{"get", `{"url":"https://api.example.com/v2","n":5}`}}, "ws:w", approval.Allow},
		"another recipient": {[]programCall{{"mail", `{"to":"eve@example.com","body":"x"}`}}, "ws:w", approval.Ask},
		"one more argument": {[]programCall{{"mail", `{"to":"ann@example.com","body":"x","cc":"eve@example.com"}`}}, "ws:w", approval.Ask},
		"another file":      {[]programCall{{"save", `{"path":"/srv/a1.txt","text":"a"}`}}, "ws:w", approval.Ask},
		"another host":      {[]programCall{{"get", `{"url":"http://api.example.com/","n":5}`}}, "ws:w", approval.Ask},
		"a number above":    {[]programCall{{"get", `{"url":"https://api.example.com/","n":8}`}}, "ws:w", approval.Ask},
		"more":              {[]programCall{{"pay", `{"sum":"12.26","in":"EUR","flag":true}`}}, "ws:w", approval.Ask},
		"another currency":  {[]programCall{{"pay", `{"sum":"1","in":"USD","flag":true}`}}, "ws:w", approval.Ask},
		"another tool":      {[]programCall{{"mail", `{"to":"ann@example.com","body":"x"}`}, {"note", `{"text":"x"}`}}, "ws:w", approval.Ask},
		"another client":    {[]programCall{{"mail", `{"to":"ann@example.com","body":"x"}`}}, "other", approval.Ask},
		"more steps":        {append([]programCall{{"now", `{}`}}, calls...), "ws:w", approval.Ask},
	} {
		require.Equal(t, tc.want, judgeProgram(t, programTools, rules, programSteps(c, tc.calls...), tc.client), why)
	}
}

// The proposed rules allow no tool more often than the program called it, and no other payee.
func TestProposedRulesBoundCallsAndPayees(t *testing.T) {
	tools := strings.Replace(programTools, `in = "text"`, `in = "text", to = "text"`, 1)
	c, err := config.Parse("p.toml", []byte(tools))
	require.NoError(t, err)
	pay := func(to, sum string) programCall {
		return programCall{"pay", `{"sum":"` + sum + `","in":"EUR","flag":true,"to":"` + to + `"}`}
	}
	mail, save := programCall{"mail", `{"to":"bob@example.com","body":"hi"}`}, programCall{"save", `{"path":"/srv/a.txt","text":"a"}`}
	steps := programSteps(c, mail, save, pay("ann", "20"))
	rules := config.ProposeProgram(steps, "w", "ws:w")
	require.Equal(t, 3, strings.Count(rules, "max_steps = 3, max_calls = 1, "))
	for why, tc := range map[string]struct {
		calls []programCall
		want  approval.Outcome
	}{
		"the same":       {[]programCall{mail, save, pay("ann", "20")}, approval.Allow},
		"one payment":    {[]programCall{pay("ann", "3")}, approval.Allow},
		"two payments":   {[]programCall{mail, pay("ann", "20"), pay("ann", "20")}, approval.Ask},
		"three payments": {[]programCall{pay("ann", "20"), pay("ann", "20"), pay("ann", "20")}, approval.Ask},
		"three mails":    {[]programCall{mail, mail, mail}, approval.Ask},
		"another payee":  {[]programCall{mail, save, pay("eve", "20")}, approval.Ask},
	} {
		require.Equal(t, tc.want, judgeProgram(t, tools, rules, programSteps(c, tc.calls...), "ws:w"), why)
	}

	rules = config.ProposeProgram(programSteps(c, pay("ann", "20"), pay("bob", "5")), "w", "ws:w")
	require.Equal(t, approval.Allow, judgeProgram(t, tools, rules, programSteps(c, pay("bob", "5"), pay("ann", "19")), "ws:w"))
	require.Equal(t, approval.Ask, judgeProgram(t, tools, rules, programSteps(c, pay("bob", "20")), "ws:w"), "as much as to another payee")
}

// What has run needs no rule, and what is not known has none.
func TestProposedRulesOfKnownSteps(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(programTools))
	require.NoError(t, err)
	steps := programSteps(c, programCall{"now", `{}`})
	require.Empty(t, config.ProposeProgram(steps, "w", "ws:w"))
	steps = programSteps(c, programCall{"get", `{"url":"https://x.org","n":1}`}, programCall{"mail", `{"to":"bob@example.com"}`}, programCall{"note", `{"text":"x"}`})
	steps[0].Of, steps[1].Opaque = "aaaaaaaaaaaaaaaa", []approval.ResultRef{{Arg: "body", Step: 1}}
	require.Equal(t, `# no rule allows step 2, mail: not all of its arguments are known before it runs
# any text is allowed in text
[[rules]]
match = { program = true, tools = ["get", "mail", "note"], tool = "note", workspace = "w", client = "ws:w", max_steps = 2, max_calls = 1, args = { text = { matches = "(?s).*" } }, other_args = false }
outcome = "allow"`, config.ProposeProgram(steps, "w", "ws:w"))
}

// A value that no pattern can name is named as it is.
func TestProposedRulesOfOddValues(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(programTools))
	require.NoError(t, err)
	steps := programSteps(c, programCall{"save", `{"path":"a.txt","text":"x"}`}, programCall{"get", `{"url":"https://u@x.org/","n":1e3}`}, programCall{"pay", `{"sum":"1","flag":true}`}, programCall{"save", `{"path":null,"text":1}`})
	rules := config.ProposeProgram(steps, "w", "ws:w")
	for _, want := range []string{
		`path = { equals = "a.txt" }`, `n = { json = "1e3" }, url = { equals = "https://u@x.org/" }`, `flag = true, sum = { equals = "1" }`, `path = { json = "null" }, text = 1`,
	} {
		require.Contains(t, rules, want)
	}
}
