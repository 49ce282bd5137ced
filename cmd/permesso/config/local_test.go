package config_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestLocalIssues(t *testing.T) {
	const ann = "[approvers.ann]\nlocal = 1000\n"
	for _, row := range []struct {
		why, toml string
		servedBy  int
		want      string
	}{
		{
			"an agent that is an approver", ann + "[workspaces.w]\nagent_uid = 1000", 0,
			"p.toml:4:13: agent_uid belongs to approver \"ann\": the agent could approve itself\nhint: run the agent under its own UID or in a container",
		},
		{
			"in a list, and an approver of another workspace", ann + "[workspaces.v]\napprovers = [\"ann\"]\n[workspaces.w]\nagent_uid = [5, 1000]", 0,
			"p.toml:6:17: agent_uid belongs to approver \"ann\": the agent could approve itself\nhint: run the agent under its own UID or in a container",
		},
		{"root as an agent", "[workspaces.w]\nagent_uid = 0", 0, "p.toml:2:13: agent_uid must be 1 to 4294967294\nhint: the number that `id -u NAME` prints, without quotes"},
		{"a name instead of a UID", "[workspaces.w]\nagent_uid = [\"bot\"]", 0, "p.toml:2:14: agent_uid must hold whole numbers from 1 to 4294967294\nhint: the number that `id -u NAME` prints, without quotes"},
		{"a string instead of a UID", "[workspaces.w]\nagent_uid = \"bot\"", 0, "p.toml:2:13: agent_uid must be a whole number, not a string\nhint: the number that `id -u NAME` prints, without quotes"},
		{
			"an agent that is the daemon's user", "[workspaces.w]\nagent_uid = 1234", 1234,
			"p.toml:2:13: agent_uid is the UID of the daemon: the agent could bypass the gate\nhint: run the agent under its own UID or in a container",
		},
		{
			"an approver that is the daemon's user", "[approvers.gate]\nlocal = 990", 990,
			"p.toml:2:9: local is the UID of the daemon and all tools, which cannot be an approver\nhint: use the person's own UID: the number that `id -u NAME` prints, without quotes",
		},
		{
			"an approver that is no user", "[approvers.ann]\nlocal = 65534", 0,
			"p.toml:2:9: local = 65534 is no person: it stands for every UID that is not known here\nhint: use the person's own UID: the number that `id -u NAME` prints, without quotes",
		},
		{"a relative socket", `socket = "p.sock"`, 0, "p.toml:1:10: socket must be an absolute path of at most 107 bytes\nhint: for example \"/run/permesso/permesso.sock\""},
		{"a socket path with ..", `socket = "/run/../p.sock"`, 0, "p.toml:1:10: socket must be an absolute path of at most 107 bytes\nhint: for example \"/run/permesso/permesso.sock\""},
		{"a socket path that is too long", `socket = "/` + strings.Repeat("x", 107) + `"`, 0, "p.toml:1:10: socket must be an absolute path of at most 107 bytes\nhint: for example \"/run/permesso/permesso.sock\""},
		{"a socket in a table", "[workspaces.w]\nsocket = \"/s\"", 0, "p.toml:2:1: unknown key \"socket\"\nhint: it belongs at the top of the file, before the first [table]"},
		{"an agent at the top", "agent_uid = 5", 0, "p.toml:1:1: unknown key \"agent_uid\"\nhint: it belongs in [workspaces.NAME]"},
	} {
		t.Run(row.why, func(t *testing.T) {
			_, err := config.Reader{DaemonUID: row.servedBy}.Parse("p.toml", []byte(row.toml))
			require.Equal(t, row.want, printed(err))
		})
	}
}

// The daemon's user can be an approver if it is a person's. It cannot if it is a
// system user.
func TestDaemonUserAsApprover(t *testing.T) {
	for uid, ok := range map[int]bool{1: false, 999: false, 1000: true, 60000: true, 61184: false, 65533: false, 65536: true} {
		r := config.Reader{DaemonUID: uid}
		_, err := r.Parse("p.toml", []byte("[approvers.me]\nlocal = "+strconv.Itoa(uid)+"\n"))
		require.Equal(t, ok, err == nil, "%d: %v", uid, err)
		_, err = config.Parse("p.toml", []byte("[approvers.me]\nlocal = "+strconv.Itoa(uid)+"\n"))
		require.NoError(t, err, "without ServedBy there is no check")
	}
}
