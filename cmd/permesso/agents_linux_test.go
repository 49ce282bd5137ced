package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/client"
)

// The agents of agent_uid reach their two folders, without a container, and no other user
// does: also after a reload, and after the mode of HOME was set anew, as systemd does.
func TestAgentsReachTheirFolders(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	if !v.root {
		v.logNeedsRoot()
		return
	}
	d := v.startServing()
	ask := func(uid int, ws string) string {
		cmd := v.commandAs(uid, []string{"PERMESSO_REQUESTS=" + v.layout.Requests(ws), "PERMESSO_RESPONSES=" + v.layout.Responses(ws)},
			"request", "say", "--id", client.NewID())
		b, err := cmd.CombinedOutput()
		require.Equal(t, err != nil, strings.Contains(string(b), "permission denied"), "%s", b)
		return string(b)
	}
	const denied = "permission denied"
	require.NotContains(t, ask(uidAgent, "annes"), denied)
	require.NotContains(t, ask(40005, "annes"), denied)
	require.Contains(t, ask(uidAgent, "bobs"), denied)
	require.Contains(t, ask(uidStranger, "annes"), denied)
	for _, path := range []string{v.layout.Home, v.layout.IPC(), v.layout.Workspace("annes"), v.layout.Keys(), v.layout.Audit(), v.layout.Lock(), v.layout.Socket()} {
		cmd := v.commandAs(uidAgent, nil)
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `ls "$0" >/dev/null && [ -d "$0" ] || cat "$0"`, path}
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "the agent reads %s", path)
		require.Contains(t, string(out), "ermission denied", path)
	}

	code, out, errs := v.run("", "doctor", "--json")
	require.NotContains(t, out, "cannot reach", errs)
	require.NotContains(t, out, "sandbox probe", "%d", code)
	require.Contains(t, out, "attempts none succeeded")

	text := fmt.Sprintf(multiUserConfig, v.socket, v.ann)
	v.configure(strings.Replace(text, "agent_uid = [40003, 40005]", "agent_uid = 40005", 1))
	d.awaitLog("configuration reloaded")
	require.Contains(t, ask(uidAgent, "annes"), denied)
	require.NotContains(t, ask(40005, "annes"), denied)
	d.stop()

	require.NoError(t, os.Chmod(v.layout.Home, 0o700))
	require.Contains(t, ask(40005, "annes"), denied)
	_, out, _ = v.run("", "doctor", "--json")
	require.Contains(t, out, "UID 40005 (agent_uid) cannot reach its requests and responses: "+v.layout.Home)
	require.Contains(t, out, "sandbox probe as UID 40005 (agent_uid) failed")
	require.NoError(t, os.Chmod(filepath.Dir(v.layout.Home), 0o700))
	d = v.startServing()
	d.awaitLog("UID 40005 (agent_uid) cannot reach its requests and responses: " + filepath.Dir(v.layout.Home))
	require.NoError(t, os.Chmod(filepath.Dir(v.layout.Home), 0o755))
	require.NotContains(t, ask(40005, "annes"), denied)
	d.stop()
}
