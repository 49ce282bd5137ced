package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/chat/cardtest"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/security/policy"
)

// proposedRule is the rule of the lines that config proposes, as the operator's file gives it.
func proposedRule(t *testing.T, p *approval.Pending) (lines string, judge func(args string) approval.Outcome) {
	t.Helper()
	lines, err := config.Propose(p)
	require.NoError(t, err)
	cfg, err := config.Parse("permesso.toml", []byte("[workspaces.personal]\n"+lines+"\n"))
	require.NoError(t, err, lines)
	require.Len(t, cfg.Rules, 1)
	alone, err := cfg.RulesOf(lines)
	require.NoError(t, err)
	require.Len(t, alone, 1)
	alone[0].Name = cfg.Rules[0].Name
	require.Equal(t, cfg.Rules, alone)
	e := &policy.Engine{}
	require.NoError(t, e.Load(policy.Config{Rules: cfg.Rules}))
	return lines, func(args string) approval.Outcome {
		return e.Judge(approval.Facts{
			Workspace: p.SourceGroup, Autonomy: "supervised", Tool: p.ToolName, KnownTool: true, Capability: p.Capability,
			Args: approval.Raw(args), Now: time.Now(),
		}).Outcome
	}
}

// othersThan are requests that differ from one in one argument: another value, none, or one more.
func othersThan(t *testing.T, data approval.Raw) (all []string) {
	t.Helper()
	fields, err := codec.Fields(data)
	require.NoError(t, err)
	with := func(i int, value string) {
		members := []string{}
		for j, f := range fields {
			name, err := json.Marshal(f.Name)
			require.NoError(t, err)
			switch {
			case j != i:
				members = append(members, string(name)+":"+string(f.Value))
			case value != "":
				members = append(members, string(name)+":"+value)
			}
		}
		all = append(all, "{"+strings.Join(members, ",")+"}")
	}
	for i, f := range fields {
		with(i, "")
		for _, value := range []string{`"x"`, `""`, `7`, `null`, `true`, `[]`, `["x"]`, `{}`} {
			if value != string(f.Value) {
				with(i, value)
			}
		}
		if text, ok := f.Text(); ok {
			for _, other := range []string{text + " ", text + "\n", " " + text, strings.ToUpper(text) + "X", text + "/../x"} {
				b, err := json.Marshal(other)
				require.NoError(t, err)
				with(i, string(b))
			}
		}
	}
	added := strings.TrimSuffix(strings.TrimSpace(string(data)), "}")
	if len(fields) > 0 {
		added += ","
	}
	return append(all, added+`"zz":1}`)
}

// A proposed rule is valid configuration. It allows the request that it comes from, and none
// that differs in one argument.
func TestProposedRules(t *testing.T) {
	t.Parallel()
	check := func(p *approval.Pending) {
		t.Helper()
		lines, judge := proposedRule(t, p)
		require.Equal(t, approval.Allow, judge(string(p.RequestData)), lines)
		for _, other := range othersThan(t, p.RequestData) {
			require.Equal(t, approval.Ask, judge(other), "%s\n%s", lines, other)
		}
	}
	for _, k := range cardtest.Kinds() {
		if k.Pending.ToolName != "" {
			check(k.Pending)
		}
	}
	values := []string{
		`1.5`, `-7`, `-0`, `1e3`, `12345678901234567890`, `false`, `null`, `{}`, `[]`, `[1,"a"]`, `[null]`,
		`{"a":{"b":[1.50]}}`, `["a","b \"c\""]`, `["\u0041"]`, `{"\u0041":"\n"}`,
	}
	for _, text := range []string{
		"", " ", ".", "..", "/", "a//b", "/data/../x", "/data/[a]*", "*", "{a,b}", "?", `\`, `C:\new`, `"`, `"""`,
		"'''", "'", `'"`, `"'\`, "a\nb",
		"a\r\nb", "\x00", "\x7f", "\u202ex", "é\u00a0", "\U0001f512", `"]` + "\n[[rules]]\nmatch = {}", "# x",
		`\u0041`, "${a}", "{{a}}",
		"https://example.org//x?y=1#z", "rm -rf -- *", strings.Repeat("x\n", 3000),
	} {
		b, err := json.Marshal(text)
		require.NoError(t, err)
		values = append(values, string(b))
	}
	for i, value := range values {
		for _, capability := range []string{"fs:write", "code:exec"} {
			check(&approval.Pending{
				RequestID: fmt.Sprintf("%016x", i), ShortID: fmt.Sprintf("%08x", i), ToolName: "keep", SourceGroup: "personal",
				Capability: capability, RequestData: approval.Raw(`{"a":` + value + `, "x y\"=": "z"}`),
			})
		}
	}
	check(&approval.Pending{
		ToolName: "keep", SourceGroup: "personal", Capability: "code:exec", RequestData: approval.Raw(`{}`),
	})
}

const ruleConfig = `[workspaces.default]
[tools.post]
capability = "channel:out"
public_sink = true
target = "{board}"
handler = { kind = "command", argv = ["/bin/echo", "{text}"] }
args = { board = "text", text = "text", cc = { type = "text", optional = true } }
[tools.inbox]
capability = "mail:read"
handler = { kind = "command", argv = ["/bin/echo", "mail"] }
[tools.strict]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "strict"] }
[tools.gentle]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "gentle"] }
[[rules]]
match = { tool = "strict" }
outcome = "always_ask"
[[rules]]
match = { tool = "gentle" }
outcome = "ask"
`

// rule add prints the lines, what they would have allowed, and they allow the same request,
// but none that differs. Where no rule helps, it says so.
func TestRuleAdd(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", ruleConfig)
	d := h.serve()
	post := func(args string) string { return h.ask(`{"tool_name":"post","request_data":` + args + `}`) }
	same := `{"board":"team","text":"Hi *all*,\n\"see\" you"}`
	for _, args := range []string{same, `{"board":"team","text":"Hi"}`, same} {
		h.awaitPending("default", post(args))
	}
	id := post(same)
	h.awaitPending("default", id)
	code, out, errs := h.run("", "rule", "add", "--from", id)
	require.Equal(t, console.ExitOK, code, errs)
	require.Equal(t, `# It would have allowed 2 of the last 3 requests that were asked.
[[rules]]
match = { tool = "post", workspace = "default", args = { board = "team", `+
		`text = { equals = "Hi *all*,\n\"see\" you" } }, other_args = false }
outcome = "allow"
reason = "as request `+id[:8]+`"
`, out)
	h.replaceConfig(ruleConfig + out)
	d.awaitTimes(logReloaded, 1)
	require.Equal(t, approval.StatusAutoApproved, h.response(post(same)).Status)
	for _, args := range []string{
		`{"board":"team","text":"Hi *all*,\n\"see\" you!"}`, `{"board":"staff","text":"Hi *all*,\n\"see\" you"}`,
		`{"board":"team","text":"Hi *all*,\n\"see\" you","cc":"x"}`,
	} {
		h.awaitPending("default", post(args))
	}

	// A rule does not help where another one asks, whatever a grant allows.
	once := h.ask(`{"tool_name":"gentle"}`)
	h.awaitPending("default", once)
	code, _, errs = h.run("", "approve", once, "--always")
	require.Equal(t, console.ExitOK, code, errs)
	h.response(once)
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"gentle"}`)).Status)
	code, _, errs = h.run("", "rule", "add", "--from", once)
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, errs, "No rule can allow this request:\nrule \"rule 2\" asks\n")

	pem := `key -----BEGIN RSA PRIVATE KEY-----\n` + strings.Repeat(`MIIEpAIBAAKCAQEA7qJ2\n`, 20) + `-----END RSA PRIVATE KEY-----`
	for _, row := range [][2]string{
		{`{"tool_name":"post","request_data":{"board":"t","text":"` + pem + `"}}`, "it holds a secret"},
		{`{"tool_name":"post","request_data":{"board":"t","text":"ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"}}`, "it holds a secret"},
		{`{"tool_name":"strict"}`, "No rule can allow this request:\nrule \"rule 1\" asks\n"},
		{`{"action_type":"exec_cmd","request_data":{"command":"id"}}`, "it names no tool: a grant may allow it again"},
		{`{"type":"question","title":"Which?"}`, "an answer applies to one question only"},
	} {
		request, why := row[0], row[1]
		id := h.ask(request)
		h.awaitPending("default", id)
		code, out, errs := h.run("", "rule", "add", "--from", id)
		require.Equal(t, console.ExitRefused, code, request)
		require.Empty(t, out, request)
		require.Contains(t, errs, "No rule can allow this request:", request)
		require.Contains(t, errs, why, request)
		require.NotRegexp(t, "ghp_A1b2|MIIEpAI", errs, request)
	}
}

// A rule for what only the trifecta asks about says so, and lifts it.
func TestRuleDespiteTrifecta(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", ruleConfig)
	d := h.serve()
	read := h.ask(`{"tool_name":"inbox"}`)
	h.awaitPending("default", read)
	code, _, errs := h.run("", "approve", read)
	require.Equal(t, console.ExitOK, code, errs)
	require.Equal(t, approval.StatusApproved, h.response(read).Status)
	body := `{"tool_name":"post","request_data":{"board":"team","text":"Hi"}}`
	id := h.ask(body)
	h.awaitPending("default", id)
	code, out, errs := h.run("", "rule", "add", "--from", id)
	require.Equal(t, console.ExitOK, code, errs)
	require.Contains(t, out, "\ndespite = [\"trifecta\"]\n")
	require.Contains(t, out, "# It holds even after the agent has read what strangers wrote and what is private.\n")
	code, _, errs = h.run("", "session", "clear", "default")
	require.Equal(t, console.ExitOK, code, errs)
	code, later, errs := h.run("", "rule", "add", "--from", id)
	require.Equal(t, console.ExitOK, code, errs)
	require.Equal(t, out, later, "the rule is for what was asked, whenever it is proposed")
	plain := h.ask(body)
	h.awaitPending("default", plain)
	code, later, errs = h.run("", "rule", "add", "--from", plain)
	require.Equal(t, console.ExitOK, code, errs)
	require.NotContains(t, later, "despite")
	require.Contains(t, later, "# It would have allowed 0 of the last 2 requests", "the trifecta asked about the first")
	read = h.ask(`{"tool_name":"inbox"}`)
	h.awaitPending("default", read)
	code, _, errs = h.run("", "approve", read)
	require.Equal(t, console.ExitOK, code, errs)
	require.Equal(t, approval.StatusApproved, h.response(read).Status)
	h.replaceConfig(ruleConfig + out)
	d.awaitTimes(logReloaded, 1)
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(body)).Status)
	h.awaitPending("default", h.ask(strings.Replace(body, "team", "press", 1)))
}
