package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// The pages show rules and limits as the configuration has them, without defaults, and rules
// only to people of workspaces in which they can match.
func TestUIShowsRulesAndLimitsAsWritten(t *testing.T) {
	cfg, err := config.Parse("c.toml", []byte(`
[workspaces.work]
ask_above = { "mail:send" = "10/1h" }
budget_day = { soft = 5 }
[workspaces.home]
[tools.post]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
action_type = "custom:post"
[[rules]]
match = { workspace = "home" }
outcome = "deny"
[[rules]]
name = "posts"
match = { tool = "post", args = { path = "/data/**", n = 3 } }
outcome = "ask"
reason = "new"
`))
	require.NoError(t, err)
	s := &server{Home: &home.Home{Config: cfg}}
	rules := s.uiRules([]string{"work"})
	require.Len(t, rules, 1)
	require.Equal(t, "posts", rules[0].Name)
	require.ElementsMatch(t, []string{`tool = "post"`, `args.path = "/data/**"`, "args.n = 3"}, rules[0].Match)
	require.Len(t, s.uiRules([]string{"work", "home"}), 2)
	require.Equal(t, []string{`ask_above.mail:send = "10/1h"`}, written(cfg, "workspaces.work.", "ask_above."))
	require.Equal(t, []string{"budget_day.soft = 5"}, written(cfg, "workspaces.work.", "budget_day."))
	require.Empty(t, written(cfg, "workspaces.home.", "ask_above."))
}
