package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// fullConfig is a file with comments and unusual spacing.
const fullConfig = `# mine
gate = "main"   # odd   spacing	stays

[workspaces.one]   # the first
autonomy = "full"
limits = { pending = 3 }

# about two
[workspaces.two]
approvers = [
  "ann",
  # [workspaces.three]
]

# about people
[approvers.ann]
local = 1000

[tools.t]
handler = { kind = "command", argv = ["/bin/true", """
[workspaces.one]
"""] }
trust = false
`

func TestAddWorkspace(t *testing.T) {
	for _, row := range []struct {
		why, before string
		w           config.NewWorkspace
		added       string
	}{
		{"only a name", fullConfig, config.NewWorkspace{Name: "three"}, "\n[workspaces.three]\n"},
		{
			"everything", fullConfig,
			config.NewWorkspace{Name: "three", Autonomy: "readonly", Approvers: []string{"ann"}, Timeout: 90 * time.Minute, AgentUIDs: []uint{7, 8}},
			"\n[workspaces.three]\nautonomy = \"readonly\"\napprovers = [\"ann\"]\napproval_timeout = \"1h30m\"\nagent_uid = [7, 8]\n",
		},
		{"no newline at the end", strings.TrimSuffix(fullConfig, "\n"), config.NewWorkspace{Name: "three"}, "\n\n[workspaces.three]\n"},
		{"the implicit default workspace stays", "gate = \"g\"\n", config.NewWorkspace{Name: "three"}, "\n[workspaces.default]\n\n[workspaces.three]\n"},
		{"to an empty file", "", config.NewWorkspace{Name: "three"}, "\n[workspaces.default]\n\n[workspaces.three]\n"},
		{"dotted keys", "[workspaces]\none.autonomy = \"full\"\n", config.NewWorkspace{Name: "three"}, "\n[workspaces.three]\n"},
		{"Windows line ends", "gate = \"g\"\r\n[workspaces.one]\r\n", config.NewWorkspace{Name: "three"}, "\n[workspaces.three]\n"},
	} {
		t.Run(row.why, func(t *testing.T) {
			after, err := config.Reader{}.AddWorkspace("p.toml", []byte(row.before), row.w)
			require.NoError(t, err)
			require.Equal(t, row.before+row.added, string(after))
			c, err := config.Parse("p.toml", after)
			require.NoError(t, err)
			require.Contains(t, c.Workspaces, "three")

			back, err := config.Reader{}.RemoveWorkspace("p.toml", after, "three")
			require.NoError(t, err)
			want := row.before + strings.TrimSuffix(row.added, "\n[workspaces.three]\n"+sectionOf(row.added))
			require.Equal(t, want, string(back), "removing it restores the file")
		})
	}
}

func sectionOf(added string) string {
	_, section, _ := strings.Cut(added, "[workspaces.three]\n")
	return section
}

func TestAddWorkspaceRefuses(t *testing.T) {
	for _, row := range []struct {
		why, before, says string
		w                 config.NewWorkspace
	}{
		{"an unknown autonomy", fullConfig, "autonomy must be", config.NewWorkspace{Name: "three", Autonomy: "ful"}},
		{"an undefined approver", fullConfig, `approver "bob" is not defined`, config.NewWorkspace{Name: "three", Approvers: []string{"bob"}}},
		{"an agent that is an approver", fullConfig, "could approve itself", config.NewWorkspace{Name: "three", AgentUIDs: []uint{1000}}},
		{"an existing workspace", fullConfig, "not valid TOML", config.NewWorkspace{Name: "one"}},
		{"an invalid name", fullConfig, "a name is", config.NewWorkspace{Name: "Three"}},
		{"a name that adds another table", fullConfig, "other settings would change", config.NewWorkspace{Name: "x]\n[approvers.y"}},
		{"a name with a dot", fullConfig, "", config.NewWorkspace{Name: "one.limits"}},
		{"an inline table cannot be extended", "workspaces = { one = {} }\n", "not valid TOML", config.NewWorkspace{Name: "three"}},
		{"an invalid file", "gaet = 1\n", "unknown key", config.NewWorkspace{Name: "three"}},
		{"a timeout that is too short", fullConfig, "approval_timeout must be", config.NewWorkspace{Name: "three", Timeout: time.Millisecond}},
	} {
		t.Run(row.why, func(t *testing.T) {
			after, err := config.Reader{}.AddWorkspace("p.toml", []byte(row.before), row.w)
			require.Contains(t, printed(err), row.says)
			require.Nil(t, after)
		})
	}
}

func TestRemoveWorkspace(t *testing.T) {
	for _, row := range []struct{ why, before, ws, gone string }{
		{"with the blank line before it; comments stay", fullConfig, "one", "\n[workspaces.one]   # the first\nautonomy = \"full\"\nlimits = { pending = 3 }\n"},
		{"a header in an array is no header", fullConfig, "two", "[workspaces.two]\napprovers = [\n  \"ann\",\n  # [workspaces.three]\n]\n"},
		{"with the tables below it", "[workspaces.a]\n[workspaces.b]\n[workspaces.b.limits]\npending = 1\n[workspaces.b.telegram]\nchat_id = 1\n", "b", "[workspaces.b]\n[workspaces.b.limits]\npending = 1\n[workspaces.b.telegram]\nchat_id = 1\n"},
		{"in two places", "[workspaces.b]\n[workspaces.a]\n[workspaces.b.limits]\npending = 1\n", "b", ""},
		{"quoted, and with blanks", "[workspaces.a]\n[ workspaces . \"b\" ]\nautonomy = \"full\"\n", "b", "[ workspaces . \"b\" ]\nautonomy = \"full\"\n"},
		{"a string that looks like a section", "[workspaces.a]\n[workspaces.b]\nautonomy = \"\"\"full\"\"\"\n# tail\n[tools.t]\nhandler = { kind = \"command\", argv = [\"/bin/true\", '''\n# x\n[workspaces.b]\n'''] }\ntrust = false\n", "b", "[workspaces.b]\nautonomy = \"\"\"full\"\"\"\n"},
	} {
		t.Run(row.why, func(t *testing.T) {
			after, err := config.Reader{}.RemoveWorkspace("p.toml", []byte(row.before), row.ws)
			require.NoError(t, err)
			want := "[workspaces.a]\n"
			if row.gone != "" {
				require.Equal(t, 1, strings.Count(row.before, row.gone))
				want = strings.Replace(row.before, row.gone, "", 1)
			}
			require.Equal(t, want, string(after))
		})
	}
}

func TestRemoveWorkspaceRefuses(t *testing.T) {
	for _, row := range []struct{ why, before, ws, says string }{
		{"dotted keys", "[workspaces]\na.autonomy = \"full\"\nb.autonomy = \"full\"\n", "b", "p.toml:3:1: workspace \"b\" is not a separate section here\nhint: remove it by hand"},
		{"an inline table", "workspaces = { a = {}, b = {} }\n", "b", "p.toml:1:24: workspace \"b\" is not a separate section here\nhint: remove it by hand"},
		{
			"partly a section", "[workspaces]\nb.limits.pending = 1\n[workspaces.a]\n[workspaces.b.telegram]\nchat_id = 1\n", "b",
			"hint: remove it by hand: lines 4 to 5, and other lines",
		},
		{"an unknown workspace", fullConfig, "four", "not a separate section"},
		{"the only workspace: the default one would replace it", "[workspaces.b]\n", "b", "not a separate section"},
	} {
		t.Run(row.why, func(t *testing.T) {
			after, err := config.Reader{}.RemoveWorkspace("p.toml", []byte(row.before), row.ws)
			require.Contains(t, printed(err), row.says)
			require.Nil(t, after)
		})
	}
}

func TestStartExample(t *testing.T) {
	c, err := config.Parse("p", []byte(config.ExampleOptions{Workspace: "research", Autonomy: "readonly", Approver: "zoe", UID: "1234"}.Example()))
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Len(t, c.Workspaces, 1)
	require.Equal(t, "readonly", c.Workspaces["research"].Autonomy)
	require.Equal(t, []string{"zoe"}, c.Workspaces["research"].Approvers)
	require.Equal(t, "1234", c.Approvers["zoe"].IDs["local"])
	require.EqualValues(t, []string{"research"}, c.Rules[0].Workspace)
	require.Equal(t, config.Example(), config.ExampleOptions{Workspace: "default", Autonomy: "supervised"}.Example())
}
