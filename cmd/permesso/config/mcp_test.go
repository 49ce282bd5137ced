package config_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// A tool in the table of its server is the tool with its full name.
func TestToolOfAnMCPServer(t *testing.T) {
	const keys = `
capability = "network:http"
action_type = "custom:issue"
verb = "open an issue"
summary = "{title}"
target = "github.com"
reversibility = "partial"
territory = "session"
public_sink = true
cost = 2
secrets = "deny"
size = "title"
args = { title = "text", body = { type = "text", optional = true } }
`
	short, err := config.Parse("p.toml", []byte("[mcp.github.tools.create_issue]"+keys))
	require.NoError(t, err)
	long, err := config.Parse("p.toml", []byte(`[tools."mcp.github.create_issue"]`+keys+`handler = { kind = "agent" }`))
	require.NoError(t, err)
	require.Equal(t, long.Tools, short.Tools)
	require.True(t, short.Tools["mcp.github.create_issue"].ByAgent())

	_, err = config.Parse("p.toml", []byte("[mcp.github.tools.create_issue]\nverb = \"x\""))
	require.ErrorContains(t, err, `tool "mcp.github.create_issue" states neither its capability nor its trust`)
	_, err = config.Parse("p.toml", []byte("[workspaces.w]\nadmin = true\n[mcp.github.tools.create_issue]"+keys))
	require.ErrorContains(t, err, `p.toml:3:`, "its place")
}

// The definition of a server is part of every tool that calls it, so that an approval does not outlive it.
func TestToolHasItsMCPServer(t *testing.T) {
	tool := func(server string) approval.Tool {
		c, err := config.Reader{CheckHandler: exec.Check}.Parse("p.toml", []byte(`[tools.t]
trust = false
args = { a = "text" }
handler = { kind = "mcp", server = "s", tool = "do", timeout = "3s", max_output = "1KiB", idempotent = true }
[mcp.s]
`+server))
		require.NoError(t, err, server)
		return c.Tools["t"]
	}
	digests := map[string]bool{}
	for _, server := range []string{
		`argv = ["/x"]`, `argv = ["/x", "{{a}"]`, `argv = ["/y"]`, "argv = [\"/x\"]\nenv = [\"LANG\"]", "argv = [\"/x\"]\ndir = \"/srv\"",
		"argv = [\"/x\"]\nmax_memory = \"1GiB\"", "argv = [\"/x\"]\nmax_processes = 5", `url = "https://x.org/mcp"`, `url = "https://y.org/mcp"`,
		"url = \"https://x.org/mcp\"\nheaders = { A = \"b\" }", "url = \"https://x.org/mcp\"\nsecret_headers = { A = \"/b\" }",
		"url = \"https://x.org/mcp\"\nca_file = \"/b\"", "url = \"https://x.org/mcp\"\nallow_private = [\"10.0.0.1\"]",
	} {
		digest := tool(server).SHA256()
		require.False(t, digests[digest], server)
		digests[digest] = true
	}
	h := tool(`argv = ["/x", "{{a}"]`).Handler
	require.Equal(t, approval.MCP{Server: "s", Tool: "do"}, h.MCP)
	require.Equal(t, []string{"/x", "{{a}"}, h.Argv, "no template")
	require.Equal(t, []any{"3s", 1024, true}, []any{h.Timeout.String(), h.MaxOutput, h.Idempotent})
}

func TestMCPServersAreChecked(t *testing.T) {
	for server, want := range map[string]string{
		"url = \"https://x.org/{a}\"": "p.toml:2:7: url: a placeholder is not allowed in the URL of a server",
		"url = \"ftp://x.org/\"":      "p.toml:2:7: url: ",

		"url = \"https://x.org/mcp\"\nheaders = { Authorization = \"x\" }":        "headers.Authorization: put the secret into a file",
		"url = \"http://x.org/mcp\"\nsecret_headers = { Authorization = \"/x\" }": "secrets require https",
		"argv = [\"/x\"]\nenv = [\"PERMESSO_RUN\"]":                               "is set by the gate",
	} {
		_, err := config.Reader{CheckHandler: exec.Check}.Parse("p.toml", []byte("[mcp.s]\n"+server))
		require.ErrorContains(t, err, want, server)
	}
	c, err := config.Reader{CheckHandler: exec.Check, Ready: func(h approval.Handler) error {
		if h.MCP.Server == "s" {
			return errors.New("/x: no such program")
		}
		return nil
	}}.Parse("p.toml", []byte("[tools.t]\ntrust = false\nhandler = { kind = \"mcp\", server = \"s\", tool = \"do\" }\n[mcp.s]\nargv = [\"/x\"]"))
	require.NoError(t, err)
	require.Contains(t, c.Warnings[0].Message, `tool "t" cannot run on this machine: /x: no such program`)
}
