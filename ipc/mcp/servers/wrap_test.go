package servers

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var gateway = Wrapper{Program: "/opt/my tools/permesso", Args: []string{"--workspace", "site"}}

// wrapping is settings before and after, and the servers that are left, with their reasons.
type wrapping struct {
	agent, before, after string
	left                 []Left
}

const by = `"mcp", "proxy", "--server", `

var wrappings = []wrapping{
	{"claude-code", `{
  "numStartups": 7,
  "mcpServers": {
    "fs": {
      "type": "stdio",
      "command": "npx",
      "args": [
        "-y",
        "x"
      ],
      "env": {
        "TOKEN": "s"
      },
      "timeout": 5000
    },
    "bare": {"command": "bare"},
    "empty": {"command": "\u0065mpty", "args": [ ]},
    "r": {
      "type": "http",
      "url": "https://example.org/mcp"
    },
    "alias": {"type": "streamable-http", "url": "http://127.0.0.1:8080/mcp", "timeout": 9},
    "secret": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer s"}},
    "old": {"type": "sse", "url": "https://example.org/mcp"},
    "key": {"type": "http", "url": "https://example.org/mcp?key=s"},
    "path": {"type": "http", "url": "https://example.org/s/0123456789abcdef0123/mcp"},
    "expanded": {"type": "http", "url": "https://${HOST}/mcp"},
    "both": {"command": "x", "url": "https://example.org/mcp"},
    "neither": {"type": "sdk", "name": "x"},
    "number": {"command": "x", "args": [1]},
    "ours": {"command": "/opt/my tools/permesso", "args": ["mcp", "--hold", "1m"]},
    "theirs": {"command": "/tmp/permesso", "args": ["mcp"]},
    "hidden": {"command": "/opt/my tools/permesso", "args": ["mcp", "--home", "/tmp/x", "proxy", "--", "x"]},
    "shown": {"command": "/opt/my tools/permesso", "args": ["mcp", "proxy", "--server", "shown", "--workspace", "site", "--", "x"], "url": "https://example.org/mcp"},
    "moves": {"command": "x", "env": {"A": "b", "PERMESSO_URL": "http://127.0.0.1:1"}},
    "odd": {"command": "x", "env": {"A=B": "b"}},
    "file": {"command": "x", "envFile": ".env"},
    "no": 7
  },
  "projects": {
    "/p": {
      "mcpServers": {
        "local": {"type": "stdio", "command": "l", "args": ["--", "--url", "a"], "env": {}}
      }
    }
  }
}`, `{
  "numStartups": 7,
  "mcpServers": {
    "fs": {
      "type": "stdio",
      "command": "/opt/my tools/permesso",
      "args": [` + by + `"fs", "--env", "TOKEN", "--hold", "1s", "--workspace", "site", "--", "npx",
        "-y",
        "x"
      ],
      "env": {
        "TOKEN": "s"
      },
      "timeout": 5000
    },
    "bare": {"command": "/opt/my tools/permesso", "args": [ ` + by + `"bare", "--hold", "9m56s", "--workspace", "site", "--", "bare"]},
    "empty": {"command": "/opt/my tools/permesso", "args": [` + by + `"empty", "--hold", "9m56s", "--workspace", "site", "--", "\u0065mpty" ]},
    "r": {
      "type": "stdio",
      "command": "/opt/my tools/permesso", "args": [` + by + `"r", "--hold", "9m56s", "--workspace", "site", "--url", "https://example.org/mcp"]
    },
    "alias": {"type": "stdio", "command": "/opt/my tools/permesso", "args": [` + by + `"alias", "--hold", "9m56s", "--workspace", "site", "--url", "http://127.0.0.1:8080/mcp"], "timeout": 9},
    "secret": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer s"}},
    "old": {"type": "sse", "url": "https://example.org/mcp"},
    "key": {"type": "http", "url": "https://example.org/mcp?key=s"},
    "path": {"type": "http", "url": "https://example.org/s/0123456789abcdef0123/mcp"},
    "expanded": {"type": "http", "url": "https://${HOST}/mcp"},
    "both": {"command": "x", "url": "https://example.org/mcp"},
    "neither": {"type": "sdk", "name": "x"},
    "number": {"command": "x", "args": [1]},
    "ours": {"command": "/opt/my tools/permesso", "args": ["mcp", "--hold", "1m"]},
    "theirs": {"command": "/tmp/permesso", "args": ["mcp"]},
    "hidden": {"command": "/opt/my tools/permesso", "args": ["mcp", "--home", "/tmp/x", "proxy", "--", "x"]},
    "shown": {"command": "/opt/my tools/permesso", "args": ["mcp", "proxy", "--server", "shown", "--workspace", "site", "--", "x"], "url": "https://example.org/mcp"},
    "moves": {"command": "x", "env": {"A": "b", "PERMESSO_URL": "http://127.0.0.1:1"}},
    "odd": {"command": "x", "env": {"A=B": "b"}},
    "file": {"command": "x", "envFile": ".env"},
    "no": 7
  },
  "projects": {
    "/p": {
      "mcpServers": {
        "local": {"type": "stdio", "command": "/opt/my tools/permesso", "args": [` + by + `"local", "--hold", "9m56s", "--workspace", "site", "--", "l","--", "--url", "a"], "env": {}}
      }
    }
  }
}`, []Left{
		{"secret", "it has headers: the gateway would not have what is there"},
		{"old", "the gateway does not speak its protocol"},
		{"key", "its address may hold a secret"},
		{"path", "its address may hold a secret"},
		{"expanded", "its address is not one of http or https"},
		{"both", "it has two of a command and addresses"},
		{"neither", "it has no command and no address that is a text"},
		{"number", "it has no command and no address that is a text"},
		{"theirs", "it is /tmp/permesso: see that this is the gate's program"},
		{"hidden", "it is a gateway with other options: see which gate it asks"},
		{"shown", "it has two of a command and addresses"},
		{"moves", "its variable PERMESSO_URL would tell the gateway where the gate is"},
		{"odd", "it has a variable without a plain name"},
		{"file", "the gateway would not give it the variables of that file"},
		{"no", "it is not an object"},
	}},
	{
		"codex", `# mine
model = "gpt-5"
[mcp_servers.fs]
command = 'npx' # by npm
args = [
  "-y", # yes
  "x",
]
startup_timeout_sec = 20.5
enabled = false

[mcp_servers.fs.env]
A = "B"

[mcp_servers."a.b"]
  command = "bare"
  cwd = "/x"
  env_vars = ["B", { name = "C", source = "local" }]
[mcp_servers.r]
url = "https://example.org/mcp"
tool_timeout_sec = 9
[mcp_servers.token]
url = "https://example.org/mcp"
bearer_token_env_var = "T"
[mcp_servers]
inline = { command = "i", env = { A = "b" } }
far = { url = "https://example.org/mcp" }
dotted.command = "d"
`, `# mine
model = "gpt-5"
[mcp_servers.fs]
command = "/opt/my tools/permesso" # by npm
args = [` + by + `"fs", "--env", "A", "--hold", "4m50s", "--workspace", "site", "--", 'npx',
  "-y", # yes
  "x",
]
startup_timeout_sec = 20.5
enabled = false

[mcp_servers.fs.env]
A = "B"

[mcp_servers."a.b"]
  command = "/opt/my tools/permesso"
args = [ ` + by + `"a.b", "--env", "B", "--env", "C", "--hold", "4m50s", "--workspace", "site", "--", "bare"]
  cwd = "/x"
  env_vars = ["B", { name = "C", source = "local" }]
[mcp_servers.r]
command = "/opt/my tools/permesso"
args = [` + by + `"r", "--hold", "4s", "--workspace", "site", "--url", "https://example.org/mcp"]
tool_timeout_sec = 9
[mcp_servers.token]
url = "https://example.org/mcp"
bearer_token_env_var = "T"
[mcp_servers]
inline = { command = "/opt/my tools/permesso", args = [ ` + by + `"inline", "--env", "A", "--hold", "4m50s", "--workspace", "site", "--", "i"], env = { A = "b" } }
far = { command = "/opt/my tools/permesso", args = [` + by + `"far", "--hold", "4m50s", "--workspace", "site", "--url", "https://example.org/mcp"] }
dotted.command = "/opt/my tools/permesso"
dotted.args = [ ` + by + `"dotted", "--hold", "4m50s", "--workspace", "site", "--", "d"]
`, []Left{{"token", "it has bearer_token_env_var: the gateway would not have what is there"}},
	},
	{
		"gemini", `{"mcpServers": {"a": {"httpUrl": "https://example.org/mcp", "trust": true}, "b": {"url": "https://example.org/mcp", "type": "http"}, "c": {"url": "https://example.org/sse"}, "d": {"url": "https://example.org/a", "httpUrl": "https://example.org/b"}}}`,
		`{"mcpServers": {"a": {"command": "/opt/my tools/permesso", "args": [` + by + `"a", "--hold", "9m50s", "--workspace", "site", "--url", "https://example.org/mcp"], "trust": true}, ` +
			`"b": {"command": "/opt/my tools/permesso", "args": [` + by + `"b", "--hold", "9m50s", "--workspace", "site", "--url", "https://example.org/mcp"], "type": "stdio"}, "c": {"url": "https://example.org/sse"}, "d": {"url": "https://example.org/a", "httpUrl": "https://example.org/b"}}}`,
		[]Left{{"c", "it speaks the older protocol over server-sent events"}, {"d", "it has two of a command and addresses"}},
	},
	{"cursor", "\xef\xbb\xbf{\"mcpServers\": {\"fs\": {\"command\": \"npx\", \"args\": [\"-y\"], \"disabled\": true}}}", "\xef\xbb\xbf{\"mcpServers\": {\"fs\": {\"command\": \"/opt/my tools/permesso\", \"args\": [" + by + "\"fs\", \"--workspace\", \"site\", \"--\", \"npx\",\"-y\"], \"disabled\": true}}}", nil},
	{
		"vscode", "{\r\n\t// servers of the team\r\n\t\"servers\": {\r\n\t\t\"fs\": { // files\r\n\t\t\t\"command\": \"npx\", /* npm */\r\n\t\t\t\"args\": [ // many\r\n\t\t\t\t\"-y\",\r\n\t\t\t\t\"${input:dir}\",\r\n\t\t\t],\r\n\t\t},\r\n\t\t\"box\": {\"command\": \"x\", \"sandboxEnabled\": true},\r\n\t\t\"off\": {\"command\": \"x\", \"sandboxEnabled\": false},\r\n\t},\r\n}\r\n",
		"{\r\n\t// servers of the team\r\n\t\"servers\": {\r\n\t\t\"fs\": { // files\r\n\t\t\t\"command\": \"/opt/my tools/permesso\", /* npm */\r\n\t\t\t\"args\": [" + by + "\"fs\", \"--workspace\", \"site\", \"--\", \"npx\", // many\r\n\t\t\t\t\"-y\",\r\n\t\t\t\t\"${input:dir}\",\r\n\t\t\t],\r\n\t\t},\r\n\t\t\"box\": {\"command\": \"x\", \"sandboxEnabled\": true},\r\n\t\t\"off\": {\"command\": \"/opt/my tools/permesso\", \"args\": [ " + by + "\"off\", \"--workspace\", \"site\", \"--\", \"x\"], \"sandboxEnabled\": false},\r\n\t},\r\n}\r\n",
		[]Left{{"box", "it runs in a sandbox of the agent, which does not reach the gate"}},
	},
	{
		"opencode", `{"mcp": {"a": {"type": "local", "command": ["bun", "x"], "environment": {"A": "b"}, "enabled": false}, "r": {"type": "remote", "url": "https://example.org/mcp", "enabled": true}, "o": {"enabled": true}}}`,
		`{"mcp": {"a": {"type": "local", "command": ["/opt/my tools/permesso", ` + by + `"a", "--env", "A", "--workspace", "site", "--","bun", "x"], "environment": {"A": "b"}, "enabled": false}, ` +
			`"r": {"type": "local", "command": ["/opt/my tools/permesso", ` + by + `"r", "--workspace", "site", "--url", "https://example.org/mcp"], "enabled": true}, "o": {"enabled": true}}}`,
		[]Left{{"o", "it has no command and no address that is a text"}},
	},
	{"opencode", `{"mcp": {"servers": {"a": {"type": "local", "command": ["bun"]}}}}`, `{"mcp": {"servers": {"a": {"type": "local", "command": ["/opt/my tools/permesso", ` + by + `"a", "--workspace", "site", "--","bun"]}}}}`, nil},
	{"cursor", "", "", nil},
	{"codex", "model = \"x\"", "model = \"x\"", nil},
}

// The gateway stands before each server, and is taken away byte for byte, with and without the settings of before.
func TestWrap(t *testing.T) {
	for _, x := range wrappings {
		a := named(t, x.agent)
		after, left, err := a.Wrap([]byte(x.before), nil, gateway)
		require.NoError(t, err, x.agent)
		require.Equal(t, x.after, string(after))
		require.Equal(t, x.left, left)
		again, _, err := a.Wrap(after, []byte(x.before), gateway)
		require.NoError(t, err)
		require.Equal(t, x.after, string(again), "a second time changes nothing")
		back, err := a.Unwrap(after, []byte(x.before))
		require.NoError(t, err)
		require.Equal(t, x.before, string(back))
		require.Equal(t, x.before != x.after, a.Unwraps([]byte(x.before), after))
		require.False(t, a.Unwraps([]byte(x.before+" "), append(after, '#')))

		other := Wrapper{Program: "/usr/bin/permesso"}
		anew, _, err := a.Wrap(after, []byte(x.before), other)
		require.NoError(t, err)
		fresh, _, err := a.Wrap([]byte(x.before), nil, other)
		require.NoError(t, err)
		require.Equal(t, strings.Count(string(fresh), "/usr/bin/permesso"), strings.Count(string(anew), "/usr/bin/permesso"), "another program of ours takes the place")

		back, err = a.Unwrap(after, nil)
		require.NoError(t, err)
		spelled := strings.NewReplacer(`"httpUrl": "https://example.org/mcp"`, `"url": "https://example.org/mcp"`, `"streamable-http"`, `"http"`)
		require.Equal(t, spelled.Replace(x.before), string(back), "only the spelling of a remote server is not known")
	}
}

// An agent that writes its file anew, and changes nothing, does not stand in the way.
func TestUnwrapAfterAnotherLayout(t *testing.T) {
	a := named(t, "claude-code")
	const before = `{"mcpServers":{"a":{"command":"a"},"b":{"type":"http","url":"https://example.org/mcp"},"c":{"command":"c","args":["d"]}}}`
	after, _, err := a.Wrap([]byte(before), nil, gateway)
	require.NoError(t, err)
	laid := strings.NewReplacer("[ ", "[", ",", ",\n  ", "[", "[\n  ", "]", "\n]", ":{", ": {\n").Replace(string(after))
	same, _, err := a.Wrap([]byte(laid), []byte(before), gateway)
	require.NoError(t, err)
	require.Equal(t, laid, string(same), "it is wrapped already")
	require.True(t, a.Unwraps([]byte(before), []byte(laid)))
	require.False(t, a.Unwraps([]byte(before), []byte(strings.Replace(laid, `"d"`, `"e"`, 1))))
	require.False(t, a.Unwraps([]byte(before), []byte(strings.Replace(laid, `example.org`, `example.com`, 1))))
	more, err := a.Unwrap([]byte(strings.Replace(laid, `"mcpServers"`, `"n":1,"mcpServers"`, 1)), []byte(before))
	require.NoError(t, err)
	require.NotContains(t, string(more), "proxy")
	require.Contains(t, string(more), `"n":1`)

	const comment = "{\"servers\": {\"a\": {\"command\": \"a\"}}} // mine"
	vscode := named(t, "vscode")
	after, _, err = vscode.Wrap([]byte(comment), nil, gateway)
	require.NoError(t, err)
	require.False(t, vscode.Unwraps([]byte(comment), []byte(strings.Replace(string(after), "mine", "ours", 1))), "a comment is a change, too")
}

// A line that was changed by hand is not guessed at.
func TestUnwrapRefuses(t *testing.T) {
	for _, entry := range []string{
		`{"command":"/x/permesso","args":["mcp","proxy"]}`,
		`{"command":"/x/permesso","args":["mcp","proxy","--server","s"]}`,
		`{"command":"/x/permesso","args":["mcp","proxy","--server","s","--"]}`,
		`{"command":"/x/permesso","args":["mcp","proxy","--hold","1m","--","x"]}`,
		`{"args":["mcp","proxy","--server","s","--url","https://example.org/mcp"],"command":"/x/permesso"}`,
	} {
		_, err := named(t, "cursor").Unwrap([]byte(`{"mcpServers":{"a":`+entry+`}}`), nil)
		require.ErrorContains(t, err, `server "a": the line of the gateway was changed`, entry)
	}
	for _, agent := range []string{"cursor", "codex"} {
		_, _, err := named(t, agent).Wrap([]byte("{"), nil, gateway)
		require.Error(t, err)
		_, err = named(t, agent).Unwrap([]byte("{"), nil)
		require.Error(t, err)
	}
}

// comesAndGoes puts our server and the gateway into settings, if they are valid, and takes them out again: no trace is left.
func comesAndGoes(t *testing.T, a Agent, text string) (valid bool) {
	before, err := a.Unwrap([]byte(text), nil)
	if err != nil {
		return false
	}
	with, without := a.Wrapped(before)
	require.Empty(t, with, text)
	if own, err := a.Remove(before); err == nil && bytes.Equal(own, before) {
		if with, err := a.Add(before, ours); err == nil {
			require.True(t, a.Restores(before, with), "%q, %q", before, with)
			again, err := a.Add(with, ours)
			require.NoError(t, err)
			require.Equal(t, string(with), string(again))
		}
	}
	after, left, err := a.Wrap(before, nil, gateway)
	require.NoError(t, err, text)
	with, open := a.Wrapped(after)
	require.Len(t, without, len(with)+len(open))
	for _, name := range open {
		require.True(t, slices.ContainsFunc(left, func(l Left) bool { return l.Name == name }), "%s is not gated, and not named: %q", name, text)
	}
	again, _, err := a.Wrap(after, before, gateway)
	require.NoError(t, err)
	require.Equal(t, string(after), string(again))
	back, err := a.Unwrap(after, before)
	require.NoError(t, err)
	require.Equal(t, string(before), string(back))
	return true
}

func FuzzWrap(f *testing.F) {
	for _, x := range wrappings {
		i := slices.Index(Agents(), x.agent)
		f.Add(i, x.before)
		f.Add(i, x.after)
	}
	f.Fuzz(func(t *testing.T, agent int, text string) {
		comesAndGoes(t, agents[uint(agent)%uint(len(agents))], text)
	})
}

var token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|//[^\n]*|/\*.*?\*/|\s+|[0-9A-Za-z_]+|.`)

// Settings with tokens in other places, which are still valid surprisingly often.
func TestWrapMutations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tokens := strings.Fields("[ ]\n, , /*,*/ #c\n \"--\" \"--url\" \"args\" \"url\" {} [] \"\"")
	for _, x := range wrappings {
		tokens = append(tokens, token.FindAllString(x.before, -1)...)
	}
	valid := 0
	for range 4000 {
		x := wrappings[r.IntN(len(wrappings)-2)] // the last two have no server
		text := token.FindAllString([]string{x.before, x.after}[r.IntN(2)], -1)
		for range 1 + r.IntN(3) {
			at := r.IntN(len(text))
			switch r.IntN(4) {
			case 0:
				text = slices.Delete(text, at, at+1)
			case 1:
				text = slices.Insert(text, at, tokens[r.IntN(len(tokens))])
			case 2:
				text[at] = tokens[r.IntN(len(tokens))]
			default:
				other := r.IntN(len(text))
				text[at], text[other] = text[other], text[at]
			}
		}
		if comesAndGoes(t, named(t, x.agent), strings.Join(text, "")) {
			valid++
		}
	}
	require.Greater(t, valid, 200)
}
