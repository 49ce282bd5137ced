package main

import (
	"net"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
)

// With a socket that systemd holds, the first request starts the daemon, and waits for it.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", exampleConfig)
	h.plain = true
	first := h.serve() // makes the home
	first.awaitLog(`"serving"`)
	code, key, errs := h.run("", "key", "create", "default", "--scope", "request,read")
	require.Zero(t, code, errs)
	first.stop()
	socket := filepath.Join(h.dir, "s")
	writeFile(t, h.config, "listen = \"unix:"+socket+"\"\nui = false\n"+exampleConfig, 0o600)

	serve := h.command("serve")
	activate := func(at string) *daemonProcess {
		cmd := osexec.Command("systemd-socket-activate", append([]string{"--listen=" + at, "--setenv=PATH", "--setenv=HOME"}, serve.Args...)...)
		cmd.Dir, cmd.Env = serve.Dir, serve.Env
		return h.start(cmd)
	}
	d := activate(socket)
	d.awaitLog("Listening on " + socket)
	g := &client.REST{URL: "unix://" + socket, Key: printedKey.FindString(key)}
	asked, err := g.Ask(t.Context(), approval.Request{ToolName: "look", RequestData: approval.Raw(`{"name":"you"}`)})
	require.NoError(t, err)
	resp, err := g.Await(t.Context(), asked)
	require.NoError(t, err)
	require.Equal(t, approval.StatusAutoApproved, resp.Status)
	d.stop()

	// A socket that the configuration does not name would let its clients wait forever.
	other := filepath.Join(h.dir, "other")
	d = activate(other)
	d.awaitLog("Listening on " + other)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", other) // starts it
	require.NoError(t, err)
	defer c.Close()
	require.Error(t, d.wait())
	require.Equal(t, console.ExitError, d.cmd.ProcessState.ExitCode())
	d.awaitLog("systemd listens on " + other + ", which the configuration's listen does not name")
}
