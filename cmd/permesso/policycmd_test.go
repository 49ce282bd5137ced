package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A terminal wraps the lines, so each has all of its capabilities.
func TestPolicyTable(t *testing.T) {
	require.Equal(t, `readonly    allow  llm:local channel:in time:read parse:local
            ask    fs:read mail:read calendar:read
            deny   fs:write code:exec network:http llm:online mail:send channel:out
supervised  allow  llm:local channel:in time:read parse:local
            ask    fs:read fs:write code:exec network:http llm:online mail:read mail:send channel:out calendar:read
full        allow  fs:read fs:write network:http llm:local llm:online mail:read channel:in channel:out time:read parse:local calendar:read
            ask    code:exec mail:send
`, tableText(tableRows()))
}

func TestPolicyRegistry(t *testing.T) {
	require.Equal(t, `code:exec      Runs a program or a command, which may do anything.
               default: always; target: exact; critical: yes
               trust: public_source secret_data public_sink dangerous_writes
time:read      Reads the date and the time.
               default: none; target: none; critical: no
`, registryText([]registered{
		{"code:exec", "Runs a program or a command, which may do anything.", true, "always", "exact", []string{"public_source", "secret_data", "public_sink", "dangerous_writes"}},
		{"time:read", "Reads the date and the time.", false, "none", "none", []string{}},
	}))
	sentences := map[string]bool{}
	for _, r := range registry() {
		require.Regexp(t, `^[A-Z][a-z].*[a-z]\.$`, r.Sentence, r.Capability)
		sentences[r.Sentence] = true
	}
	require.Len(t, sentences, 13, "each capability has its own")
}

// What would change the ruling is tried: a higher autonomy is not suggested where it changes
// nothing.
func TestExplainRequest(t *testing.T) {
	project, dir := realDir(t), t.TempDir()
	file, request := filepath.Join(dir, "permesso.toml"), filepath.Join(dir, "request.json")
	require.NoError(t, os.WriteFile(file, []byte(printedPreset(t, "coding-agent", project)), 0o600))
	for _, row := range []struct{ why, request, want string }{
		{"the table asks", `{"tool_name":"write_file","request_data":{"path":"/etc/x","content":"hi"}}`, `write_file in coding (supervised)
ask by table
      fs:write needs approval at autonomy supervised
would be allowed with autonomy = "full" in [workspaces.coding]
would be allowed with this rule:
      [[rules]]
      match = { tool = "write_file", workspace = "coding", args = { path = { equals = "/etc/x" }, content = "hi" }, other_args = false }
      outcome = "allow"
      reason = "as request request.json"
would be allowed after permesso approve ID --always
`},
		{"a rule denies", `{"tool_name":"write_file","request_data":{"path":"` + project + `/.git/config","content":"hi"}}`, `write_file in coding (supervised)
deny by rule 5
      fs:write needs approval at autonomy supervised
      rule "rule 5" denies it: git, an agent, a shell or ssh would run or obey it
      rule "rule 4" allows it
no single change of autonomy, rules, grants or taints allows it
`},
		{"nothing to change", `{"tool_name":"read_file","request_data":{"path":"` + project + `/main.go"}}`, `read_file in coding (supervised)
allow by rule 1
      fs:read needs approval at autonomy supervised
      rule "rule 1" allows it
`},
	} {
		require.NoError(t, os.WriteFile(request, []byte(row.request), 0o600))
		code, out, errs := runCommand("policy", "explain", request, "--config", file, "--home", dir)
		require.Zero(t, code, errs)
		require.Equal(t, row.want, out, row.why)
	}
}
