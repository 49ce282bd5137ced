package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// A command that waits for the end of a run leaves the home to the next daemon.
func TestApproveWaitAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	began := filepath.Join(dir, "began")
	h := newRig(t, "default", `
[tools.slow]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/sh", "-c", "echo >`+began+`; exec sleep 60"], timeout = "2m" }
`)
	d := h.serve()
	id := h.ask(`{"tool_name":"slow"}`)
	h.awaitPending("default", id)
	type end struct {
		code int
		errs string
	}
	ended := make(chan end, 1)
	go func() {
		code, _, errs := h.run("", "approve", id, "--wait", "--seen", digestOf(h.layout, id))
		ended <- end{code, errs}
	}()
	awaitFile(t, began)
	d.kill()
	e := <-ended
	require.Equal(t, console.ExitError, e.code, e.errs)
	require.Contains(t, e.errs, "the request is approved; its end is unknown: the daemon ended")
	h.serve().awaitLog(`"message":"serving"`)
	require.Contains(t, string(h.response(id).Status), "interrupted")
}
