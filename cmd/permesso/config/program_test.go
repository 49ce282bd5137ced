package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
)

const (
	ran  = "handler = { kind = \"command\", argv = [\"/bin/x\"] }\n"
	harm = "public_source = false\nsecret_data = false\npublic_sink = false\ndangerous_writes = "
)

// A read runs before a person sees the program, so it must not write; what undoes it is another tool.
func TestReadsAndUndo(t *testing.T) {
	const other = "[tools.other]\ntrust = false\n"
	for why, c := range map[string]struct{ tool, want string }{
		"a command":             {"capability = \"calendar:read\"\nreads = true\n" + ran, ""},
		"an HTTP request":       {"capability = \"network:http\"\nreads = true\nhandler = { kind = \"http\", method = \"GET\", url = \"https://x.org/\" }", ""},
		"no capability":         {harm + "false\nreads = true\n" + ran, ""},
		"it may write, but no":  {"capability = \"fs:write\"\nreads = false\n" + ran, ""},
		"an inverse":            {"capability = \"fs:write\"\nundo = \"other\"", ""},
		"files":                 {"capability = \"fs:write\"\nreads = true\n" + ran, "p.toml:3:9: a tool with capability fs:write writes, so it cannot be a read\nhint: remove reads = true"},
		"mail":                  {"capability = \"mail:send\"\nreads = true\n" + ran, "a tool with capability mail:send writes"},
		"code":                  {"capability = \"code:exec\"\nreads = true\n" + ran, "a tool with capability code:exec writes"},
		"a channel":             {"capability = \"channel:out\"\nreads = true\n" + ran, "a tool with capability channel:out writes"},
		"stated":                {harm + "true\nreads = true\n" + ran, "a tool with dangerous_writes = true cannot be a read"},
		"nothing runs":          {"capability = \"calendar:read\"\nreads = true", "p.toml:3:9: reads belongs to a tool that the host runs: its handler is command, http or mcp"},
		"the agent runs it":     {"capability = \"calendar:read\"\nreads = true\nhandler = { kind = \"agent\" }", "reads belongs to a tool that the host runs"},
		"not a flag":            {"trust = false\nreads = \"yes\"", "reads must be true or false"},
		"no tool":               {"trust = false\nundo = \"othr\"", "p.toml:3:8: there is no tool \"othr\"\nhint: did you mean \"other\"?"},
		"itself":                {"trust = false\nundo = \"t\"", "p.toml:3:8: tool \"t\" cannot undo itself\nhint: name another tool, or remove it"},
		"a read has no inverse": {"capability = \"calendar:read\"\nreads = true\nundo = \"other\"\n" + ran, "p.toml:4:8: a tool that only reads has nothing to undo\nhint: remove one of them"},
		"no name":               {"trust = false\nundo = \"a b\"", "undo is not the name of a tool"},
	} {
		parsed, err := config.Parse("p.toml", []byte("[tools.t]\n"+c.tool+"\n"+other))
		if c.want != "" {
			require.Contains(t, printed(err), c.want, why)
			continue
		}
		require.NoError(t, err, why)
		tool := parsed.Tools["t"]
		require.Equal(t, strings.Contains(c.tool, "reads = true"), tool.Reads, why)
		require.Equal(t, strings.Contains(c.tool, "undo"), tool.Undo == "other", why)
	}
	_, err := config.Parse("p.toml", []byte("[mcp.s.tools.t]\ntrust = false\nreads = true"))
	require.ErrorContains(t, err, `unknown key "reads"`, "the agent runs it")
}

func TestRulesOfPrograms(t *testing.T) {
	const tools = "[workspaces.w]\n[tools.mail]\ncapability = \"mail:send\"\nargs = { to = \"recipients\" }\n[tools.list]\ncapability = \"calendar:read\"\n"
	parse := func(match, outcome string) (*config.Config, error) {
		return config.Parse("p.toml", []byte(tools+"[[rules]]\nmatch = { "+match+" }\noutcome = \""+outcome+"\""))
	}
	c, err := parse(`program = true, tools = ["mail", "li*"], max_steps = 5, max_calls = 2, args = { to = "bob@example.com" }`, "allow")
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Equal(t, policy.Rule{
		Name: "rule 1", Program: "true", Tools: policy.Names{"mail", "li*"}, MaxSteps: 5, MaxCalls: 2, Args: []policy.Condition{{Field: "to", Is: []string{"bob@example.com"}}}, Outcome: approval.Allow,
	}, c.Rules[0])
	for match, want := range map[string]approval.Property{"": "", ", program = false": "false", ", program = true": "true"} {
		c, err = parse(`tool = "mail"`+match, "ask")
		require.NoError(t, err)
		require.Equal(t, want, c.Rules[0].Program)
	}
	for match, want := range map[string]string{
		`tools = "mail"`:                                              "tools, max_steps and max_calls are of a program: add program = true",
		`tool = "mail", max_steps = 5`:                                "tools, max_steps and max_calls are of a program",
		`program = false, tools = ["mail"]`:                           "tools, max_steps and max_calls are of a program",
		`tool = "mail", max_calls = 5`:                                "tools, max_steps and max_calls are of a program",
		`program = true, max_calls = 0`:                               "max_calls must be 1 to 256",
		`program = true, max_calls = 257`:                             "max_calls must be 1 to 256",
		`program = true, max_steps = 0`:                               "max_steps must be 1 to 256",
		`program = true, max_steps = 257`:                             "max_steps must be 1 to 256",
		`program = "yes"`:                                             "program must be true or false",
		`program = true, tools = []`:                                  "tools is an empty list: it would match nothing",
		`program = true, tools = ["mail*x"]`:                          "tools",
		`program = true, tools = "mail", args = { to = { max = 3 } }`: "max, min and currency are for amounts and numbers; to is declared as recipients",
	} {
		_, err = parse(match, "ask")
		require.ErrorContains(t, err, want, match)
	}
	for match, want := range map[string]string{
		`program = true, tools = ["mial", "mail"], args = { to = "bob@example.com" }`: `there is no tool "mial"`,
		`program = true, tools = ["ma*"], args = { to = "bob@example.com" }`:          "rule lifts nothing: mail:send asks each time, unless a rule names the tool",
		`program = true, tools = ["mail"]`:                                            "mail:send asks each time, unless a rule has a condition on every argument; missing: to",
	} {
		c, err = parse(match, "allow")
		require.NoError(t, err, match)
		require.Len(t, c.Warnings, 1, match)
		require.Contains(t, c.Warnings[0].Message, want, match)
		require.NotContains(t, c.Warnings[0].Message, "never", match)
	}
}

// A deny of programs leaves what the tool does outside of them.
func TestDenyOfProgramsDoesNotCloseATool(t *testing.T) {
	const file = "[workspaces.w]\nadmin = true\n[tools.t]\npublic_source = true\nsecret_data = false\npublic_sink = false\ndangerous_writes = false\n[[rules]]\nmatch = { tool = \"t\"PROGRAM }\noutcome = \"deny\""
	_, err := config.Parse("p.toml", []byte(strings.Replace(file, "PROGRAM", "", 1)))
	require.NoError(t, err)
	_, err = config.Parse("p.toml", []byte(strings.Replace(file, "PROGRAM", ", program = true", 1)))
	require.ErrorContains(t, err, "may read public sources")
}
