package control

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

const explainedTools = `
[tools.save]
capability = "fs:write"
target = "{path}"
args = { path = "path" }
[tools.wipe]
capability = "fs:write"
dangerous_writes = true
args = { path = "path" }
[tools.run]
capability = "code:exec"
args = { command = "command" }
[tools.post]
capability = "channel:out"
target = "x.com/ann"
args = { text = "text" }
[tools.never]
capability = "fs:write"
args = { path = "path" }
[[rules]]
match = { tool = "never" }
outcome = "deny"
`

// Only changes that lead to a milder ruling are listed, and all of them that a person can
// make.
func TestChanges(t *testing.T) {
	const saving, posting = `{"tool_name":"save","request_data":{"path":"/srv/a"}}`, `{"tool_name":"post","request_data":{"text":"hi"}}`
	saveRule := "rule [[rules]] match = { tool = \"save\", workspace = \"w\", args = { path = { equals = \"/srv/a\" } }, other_args = false } outcome = \"allow\" reason = \"as request r.json\": allow"
	postRule := strings.NewReplacer("save", "post", `path = { equals = "/srv/a" }`, `text = "hi"`).Replace(saveRule)
	despite := strings.Replace(postRule, `reason =`, `despite = ["trifecta"] reason =`, 1)
	for _, row := range []struct {
		why, workspace, request string
		taints                  []string
		now                     approval.Outcome
		want                    []string
	}{
		{
			"the table asks", `autonomy = "supervised"`, strings.Replace(saving, "{", `{"session_id":"s1",`, 1), nil, approval.Ask,
			[]string{`autonomy autonomy = "full" in [workspaces.w]: allow`, saveRule, "grant permesso approve ID --session: allow", "grant permesso approve ID --always: allow"},
		},
		{
			"the table denies", `autonomy = "readonly"`, saving, nil, approval.Deny,
			[]string{`autonomy autonomy = "supervised" in [workspaces.w]: ask`, `autonomy autonomy = "full" in [workspaces.w]: allow`},
		},
		{
			"a session has less", "autonomy = \"full\"\nfolder = false\nbinds_sessions = true\nsessions = { s1 = \"readonly\" }", strings.Replace(saving, "{", `{"session_id":"s1",`, 1), nil, approval.Deny,
			[]string{`autonomy autonomy = "supervised" in [workspaces.w] sessions of "s1": ask`, `autonomy autonomy = "full" in [workspaces.w] sessions of "s1": allow`},
		},
		{
			"a person has less", "autonomy = \"full\"\napprovers = [\"ann\"]\nprincipal = \"ann\"", saving, nil, approval.Ask,
			[]string{`autonomy autonomy = "full" in [approvers.ann]: allow`, saveRule, "grant permesso approve ID --always: allow"},
		},
		{
			"a person and the workspace have less", "approvers = [\"ann\"]\nprincipal = \"ann\"\nautonomy = \"readonly\"", saving, nil, approval.Deny,
			[]string{`autonomy autonomy = "supervised" in [workspaces.w]: ask`, `autonomy autonomy = "full" in [approvers.ann] and [workspaces.w]: allow`},
		},
		{"no autonomy lifts a stated danger", `autonomy = "full"`, strings.Replace(saving, "save", "wipe", 1), nil, approval.Ask, []string{strings.Replace(saveRule, "save", "wipe", 1), "grant permesso approve ID --always: allow"}},
		{"nor where the table asks, too", `autonomy = "supervised"`, strings.Replace(saving, "save", "wipe", 1), nil, approval.Ask, []string{strings.Replace(saveRule, "save", "wipe", 1), "grant permesso approve ID --always: allow"}},
		{"a command asks at each level", `autonomy = "supervised"`, `{"tool_name":"run","request_data":{"command":"bash x"}}`, nil, approval.Ask, []string{strings.NewReplacer("save", "run", `path = { equals = "/srv/a" }`, `command = { equals = "bash x" }`).Replace(saveRule)}},
		{"the trifecta", `autonomy = "full"`, posting, []string{"corruption", "secret"}, approval.Ask, []string{despite, "taints permesso session clear w: allow"}},
		{"the trifecta, and the table", `autonomy = "supervised"`, posting, []string{"corruption", "secret"}, approval.Ask, []string{despite}},
		{"the trifecta of a workspace with secrets", "autonomy = \"full\"\ncontains_secrets = true", posting, []string{"corruption"}, approval.Ask, []string{despite, "taints permesso session clear w: allow"}},
		{"a secret, which is not shown", `autonomy = "full"`, `{"tool_name":"post","request_data":{"text":"ghp_` + `aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY1z2A"}}`, nil, approval.Ask, []string{`despite a rule for post with despite = ["secrets"] and a condition on every argument: allow`}},
		{"a rule denies", `autonomy = "supervised"`, strings.Replace(saving, "save", "never", 1), nil, approval.Deny, nil},
		{"a question", `autonomy = "supervised"`, `{"type":"question","title":"Which?","options":["a","b"]}`, nil, approval.Ask, nil},
		{"an unknown tool", `autonomy = "supervised"`, strings.Replace(saving, "save", "zap", 1), nil, approval.Deny, nil},
		{"what is allowed", `autonomy = "full"`, saving, nil, approval.Allow, nil},
	} {
		t.Run(row.why, func(t *testing.T) {
			cfg, err := config.Parse("permesso.toml", []byte("[approvers.ann]\nlocal = 1000\nautonomy = \"supervised\"\n[workspaces.w]\n"+row.workspace+explainedTools))
			require.NoError(t, err)
			h := home.New(cfg, t.TempDir())
			m, err := h.NewMemory(nil, zerolog.Nop())
			require.NoError(t, err)
			r, err := approval.ParseDraft([]byte(row.request))
			require.NoError(t, err)
			m.Learn(event.Entry{Event: event.AutoApproved, Workspace: "w", SessionID: r.SessionID, Time: time.Now(), Taints: row.taints})
			f, now := gate.Judge(home.SettingsOf(cfg), "w", r, time.Now(), m.Judge, nil)
			require.Equal(t, row.now, now.Outcome)
			var got []string
			for _, c := range Changes(h, m, f, now, "r.json") {
				got = append(got, c.What+" "+strings.ReplaceAll(c.How, "\n", " ")+": "+c.Outcome.String())
			}
			require.Equal(t, row.want, got)
		})
	}
}
