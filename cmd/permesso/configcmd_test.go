package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The command also looks at this machine: programs, and links in the paths of rules.
func TestConfigCheckWarns(t *testing.T) {
	dir := realDir(t)
	file, link := filepath.Join(dir, "permesso.toml"), filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("/usr", link))
	require.NoError(t, os.WriteFile(file, []byte(`[workspaces.w]
[tools.save]
capability = "fs:write"
args = { path = "path" }
handler = { kind = "command", argv = ["`+dir+`/save"] }
[tools.run]
capability = "code:exec"
args = { command = "command" }
[[rules]]
match = { tool = "save", args = { path = "`+link+`/**" } }
outcome = "allow"
[[rules]]
match = { tool = "run", args = { command = "bash ..." } }
outcome = "allow"
`), 0o600))
	code, out, errs := runCommand("config", "check", file)
	require.Zero(t, code, errs)
	require.Contains(t, out, "ok ")
	require.Contains(t, errs, "warning: "+file+":5:1: tool \"save\" cannot run on this machine: program ")
	require.Contains(t, errs, "warning: "+file+":10:42: \""+link+"/**\" never matches: "+link+" leads to /usr, ")
	require.Contains(t, errs, "hint: write \"/usr/**\"")
	require.Contains(t, errs, "warning: "+file+":13:44: \"bash ...\" lets the agent choose what runs")
}
