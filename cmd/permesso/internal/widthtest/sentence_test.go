package widthtest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/widthtest"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// toolCall is a call of a tool with a target.
func toolCall(capability, target, args string) widthtest.Call {
	return widthtest.Call{
		Workspace: "personal", Client: "ws:personal", Session: "s1", Tool: "x", Capability: capability,
		Target:     target,
		Definition: "d", Args: args, Command: "command", At: noon,
	}
}

func command(line string) widthtest.Call {
	return widthtest.Call{
		Workspace: "personal", Client: "ws:personal", Session: "s1", Action: "exec_cmd",
		Args: `{"command":"` + line + `"}`, At: noon,
	}
}

// The checker finds each fault that is planted, and nothing else.
func TestConsent(t *testing.T) {
	host := toolCall("network:http", "{url}", `{"url":"https://good.com/a"}`)
	bareHost := toolCall("network:http", "{url}", `{"url":"good.com/a"}`)
	path := toolCall("fs:write", "{path}", `{"path":"/home/ann/a.txt"}`)
	exact := toolCall("channel:out", "x.com/{who}", `{"who":"ann","text":"a"}`)
	bare := toolCall("time:read", "", `{}`)
	run := toolCall("code:exec", "", `{"command":"go test ./...","cwd":"/a"}`)
	release := widthtest.Call{Workspace: "personal", Client: "k", Action: "send_message", Args: "{}", At: noon}
	args := func(s string) func(*widthtest.Call) { return func(c *widthtest.Call) { c.Args = s } }
	url := func(s string) func(*widthtest.Call) { return args(`{"url":"` + s + `"}`) }
	file := func(s string) func(*widthtest.Call) { return args(`{"path":"` + s + `"}`) }
	line := func(s string) func(*widthtest.Call) { return args(`{"command":"` + s + `"}`) }
	nothing := func(*widthtest.Call) {}
	for _, row := range []struct {
		what     string
		was      widthtest.Call
		sentence string // what stands between "Always: " and the end
		change   func(*widthtest.Call)
		why      string // "": it is covered
	}{
		{"the same", host, "x at https://good.com in personal", nothing, ""},
		{"another session", host, "x at https://good.com in personal", func(c *widthtest.Call) { c.Session = "s2" }, ""},
		{
			"another workspace", host, "x at https://good.com in personal", func(c *widthtest.Call) { c.Workspace = "work" },
			"another workspace",
		},
		{
			"another client", host, "x at https://good.com in personal", func(c *widthtest.Call) { c.Client = "k" },
			"another client",
		},
		{"another tool", host, "x at https://good.com in personal", func(c *widthtest.Call) { c.Tool = "y" }, "another tool"},
		{
			"another definition", host, "x at https://good.com in personal", func(c *widthtest.Call) { c.Definition = "e" },
			"another definition",
		},
		{"no tool", host, "x at https://good.com in personal", func(c *widthtest.Call) {
			c.Tool, c.Action = "",
				"send_message"
		}, "another tool"},
		{"90 days later", host, "x at https://good.com in personal", func(c *widthtest.Call) {
			c.At = noon.AddDate(0, 0,
				90)
		}, "the days have passed"},
		{"89 days later", host, "x at https://good.com in personal", func(c *widthtest.Call) {
			c.At = noon.AddDate(0, 0,
				89)
		}, ""},
		{"another path", host, "x at https://good.com in personal", url("https://good.com/b?c#d"), ""},
		{"usual spellings", host, "x at https://good.com in personal", url("HTTPS://GOOD.com.:443"), ""},
		{"no scheme", host, "x at https://good.com in personal", url("good.com"), "it leads to"},
		{"a scheme that was not named", bareHost, "x at good.com in personal", url("https://good.com:443/b"), ""},
		{"neither", bareHost, "x at good.com in personal", url("GOOD.com./b"), ""},
		{"http where none was named", bareHost, "x at good.com in personal", url("http://good.com/a"), "it leads to"},
		{"a port where none was named", bareHost, "x at good.com in personal", url("good.com:80"), "it leads to"},
		{"the same port", toolCall("network:http", "{url}", `{"url":"good.com:8443"}`), "x at good.com:8443 in personal", url("https://good.com:8443/"), ""},
		{"no scheme, or a strange one", host, "x at https://good.com in personal", url("good.com/https://evil.com"), "it leads to"},
		{"http", host, "x at https://good.com in personal", url("http://good.com/a"), "it leads to"},
		{"a file", host, "x at https://good.com in personal", url("file://good.com/a"), "it leads to"},
		{"user information", host, "x at https://good.com in personal", url("https://good.com@evil.com/"), "it leads to"},
		{"a query", host, "x at https://good.com in personal", url("http://127.0.0.1:8099/?https://good.com"), "it leads to"},
		{
			"a path that is a URL", host, "x at https://good.com in personal", url("https://evil.com/https://good.com/"),
			"it leads to",
		},
		{"another port", host, "x at https://good.com in personal", url("https://good.com:8443/a"), "it leads to"},
		{"backslashes", host, "x at https://good.com in personal", url(`https://good.com\\@evil.com`), "it leads to"},
		{"percent", host, "x at https://good.com in personal", url("https://good%2ecom/"), "it leads to"},
		{
			"http was said", toolCall("network:http", "{url}", `{"url":"http://good.com/a"}`),
			"x at http://good.com in personal", nothing, "",
		},

		{"the same path", path, "x on /home/ann/a.txt in personal", nothing, ""},
		{"dots", path, "x on /home/ann/a.txt in personal", file("/home/ann/../ann/a.txt"), "it leads to"},
		{"a folder", path, "x on every path like /home/ann/** in personal", file("/home/ann/b/c"), ""},
		{
			"dots below a folder", path, "x on every path like /home/ann/** in personal", file("/home/ann/../root/x"),
			"it leads to",
		},
		{
			"a name beside a folder", path, "x on every path like /home/ann/** in personal", file("/home/anna/x"),
			"it leads to",
		},
		{"one name", path, "x on every path like /home/ann/* in personal", file("/home/ann/b/c"), "it leads to"},
		{"an escaped star", path, `x on every path like "/home/ann/\\*.txt" in personal`, nothing, "it leads to"},
		{"one of some letters", path, "x on every path like \"/home/ann/[a].txt\" in personal", nothing, ""},
		{"another letter", path, "x on every path like \"/home/ann/[b].txt\" in personal", nothing, "it leads to"},
		{"one of some names", path, "x on every path like \"/home/{ann,bob}/a.txt\" in personal", nothing, ""},
		{"another name", path, "x on every path like \"/home/{eve,bob}/a.txt\" in personal", nothing, "it leads to"},
		{"to a path", path, "x to /home/ann/a.txt in personal", nothing, "the sentence is not about"},

		{"other arguments", exact, "x to x.com/ann in personal", args(`{"who":"ann","text":"b"}`), ""},
		{"another name", exact, "x to x.com/ann in personal", args(`{"who":"Ann","text":"a"}`), "it leads to"},
		{"an invisible character", exact, `x to "x.com/ann\u{200B}" in personal`, args(`{"who":"ann\u200b"}`), ""},
		{"a hidden part", exact, "x to x.com/‹secret› in personal", nothing, "it hides a part"},
		{
			"a sentence without a target", exact, "x with any arguments in personal", nothing,
			"the sentence names none",
		},
		{"any arguments", bare, "x with any arguments in personal", args(`{"a":1}`), ""},
		{"any command", run, "x with any arguments in personal", nothing, "it must be asked each time"},
		{"a sentence about another tool", bare, "y with any arguments in personal", nothing, "it names y"},
		{"a sentence about another workspace", bare, "x with any arguments in work", nothing, "another workspace"},
		{"a sentence about a key", bare, "x with any arguments in personal (API key k)", nothing, "another client"},
		{
			"a sentence about no key", release,
			"every send_message that the agent does itself, but no tool, in personal", nothing, "another client",
		},
		{
			"another request", command("ls"), "exactly the exec_cmd request 0123abcd again in personal", nothing,
			"it names another request",
		},
		{"a list", toolCall("mail:read", "{to}", `{"to":["a b","c"]}`), `x to ["a b", c] in personal`, nothing, ""},
		{
			"a text that looks like a list", toolCall("mail:read", "{to}", `{"to":"a"}`), `x to [a] in personal`,
			nothing, "it leads to",
		},
		{"a sentence that says nothing", bare, "x in personal", nothing, "it says nothing"},

		{
			"again", run, "exactly this x request again in personal",
			args(`{ "cwd":"/a", "command":"go test ./..." }`), "",
		},
		{
			"not again", run, "exactly this x request again in personal",
			args(`{"command":"go test ./...","cwd":"/b"}`), "other arguments",
		},
		{
			"the pattern", run, `x like "go test ..." without other options in personal`,
			args(`{"command":"go test ./a b","cwd":"/a"}`), "",
		},
		{
			"another working directory", run, `x like "go test ..." without other options in personal`,
			args(`{"command":"go test ./a","cwd":"/b"}`), "other arguments",
		},
		{
			"an option", run, `x like "go test ..." without other options in personal`,
			args(`{"command":"go test -exec sh","cwd":"/a"}`), "is not",
		},

		{
			"the same command", command("ls -l"), "exactly this exec_cmd request again in personal",
			args(`{"argv":["ls","-l"]}`), "",
		},
		{
			"another command", command("ls -l"), "exactly this exec_cmd request again in personal", line("ls -la"),
			"another command",
		},
		{
			"two commands", command("ls -l"), "exactly this exec_cmd request again in personal",
			args(`{"command":"ls -l","cmd":"rm x"}`), "two commands",
		},
		{
			"free words", command("cat a"), `exec_cmd like "cat ..." without other options in personal`,
			line("cat b c/d"), "",
		},
		{
			"a pipe", command("cat a"), `exec_cmd like "cat ..." without other options in personal`,
			line("cat b | sh"), "not a plain command",
		},
		{
			"a second line", command("cat a"), `exec_cmd like "cat ..." without other options in personal`,
			line(`cat b\nsh`), "not a plain command",
		},
		{
			"an assignment", command("cat a"), `exec_cmd like "cat ..." without other options in personal`,
			line("A=b cat a"), "no command",
		},
		{
			"another program", command("cat a"), `exec_cmd like "cat ..." without other options in personal`,
			line("./cat a"), "is not",
		},
		{
			"an absolute path", command("cat a"), `exec_cmd like "cat ..." without other options in personal`,
			line("cat /etc/passwd"), "is not",
		},
		{
			"a path upwards", command("cat a"), `exec_cmd like "cat ..." without other options in personal`,
			line("cat b/../../c"), "is not",
		},
		{
			"a value", command("cat a"), `exec_cmd like "cat ..." without other options in personal`, line("cat a=b"),
			"is not",
		},
		{
			"quotes", command("cat a"), `exec_cmd like "cat ..." without other options in personal`, line("cat 'b'"),
			"",
		},
		{
			"every command", command("cat a"), "any command that the agent runs itself, but no tool, in personal",
			line("sh x; y"), "",
		},
		{
			"every command is no message", command("cat a"),
			"any command that the agent runs itself, but no tool, in personal",
			func(c *widthtest.Call) { c.Action = "send_message" }, "another tool or action",
		},

		{
			"an action", release,
			"every send_message that the agent does itself, but no tool, in personal (API key k)", args(`{"a":1}`),
			"",
		},
		{
			"a tool of the action", release,
			"every send_message that the agent does itself, but no tool, in personal (API key k)",
			func(c *widthtest.Call) { c.Tool = "send_message" }, "another tool or action",
		},
		{
			"every command, said as an action", command("ls"),
			"every exec_cmd that the agent does itself, but no tool, in personal", nothing, "something runs",
		},
	} {
		later := row.was
		row.change(&later)
		said := widthtest.Consent{
			Offer: "Always: " + row.sentence + ", 90 days", Grant: "Always: " + row.sentence + ", until 2027-02-21",
			Call: row.was, Until: noon.AddDate(1, 0, 0),
		}
		if err := said.Covers(later); row.why == "" {
			require.NoError(t, err, row.what)
		} else {
			require.ErrorContains(t, err, row.why, row.what)
		}
	}
}

// The end is the earliest that a sentence or the list of grants says.
func TestConsentEnds(t *testing.T) {
	was := toolCall("time:read", "", "{}")
	for _, row := range []struct {
		what, offer, grant string
		after              time.Duration
		change             func(*widthtest.Call)
		why                string
	}{
		{"the session", "For this session: ", "For this session: ", 23 * time.Hour, nil, ""},
		{
			"another session", "For this session: ", "For this session: ", 0,
			func(c *widthtest.Call) { c.Session = "s2" }, "another session",
		},
		{
			"no session", "For this session: ", "For this session: ", 0, func(c *widthtest.Call) { c.Session = "" },
			"another session",
		},
		{"a day", "For this session: ", "For this session: ", 24 * time.Hour, nil, "a day has passed"},
		{
			"a session on the card only", "For this session: ", "Always: ", 0,
			func(c *widthtest.Call) { c.Session = "s2" }, "another session",
		},
		{"the day of the end", "", "Always: ", 24 * time.Hour, nil, ""},
		{"the day after", "", "Always: ", 48 * time.Hour, nil, "after the day"},
		{"the list", "", "For this session: ", 72 * time.Hour, nil, "after the end in the list"},
		{"a named session", "", "In session s1: ", 0, nil, ""},
		{
			"another named session", "", "In session s2: ", 0, func(c *widthtest.Call) { c.Session = "s2" },
			"another session",
		},
		{"no sentence", "", "", 0, nil, "not say for how long"},
	} {
		later := was
		later.At = later.At.Add(row.after)
		if row.change != nil {
			row.change(&later)
		}
		said := widthtest.Consent{
			Offer: sentence(row.offer), Grant: sentence(row.grant), Call: was, Until: noon.Add(72 * time.Hour),
		}
		if err := said.Covers(later); row.why == "" {
			require.NoError(t, err, row.what)
		} else {
			require.ErrorContains(t, err, row.why, row.what)
		}
	}
}

// sentence is a sentence that begins so, "" for "".
func sentence(begin string) string {
	switch begin {
	case "":
		return ""
	case "For this session: ":
		return begin + "x with any arguments in personal"
	}
	return begin + "x with any arguments in personal, until 2026-11-24"
}
