package main

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/client"
)

// Handlers that take too much end as failed, with their limit named, whatever the request
// says. The gate and another workspace's handlers go on. Each bomb is bounded by itself,
// too: 512 processes, 250 MiB.
func TestHandlersThatTakeTooMuch(t *testing.T) {
	t.Parallel()
	const limits = `timeout = "60s", max_output = "1KiB", max_memory = "96MiB", max_processes = 60`
	h := newRig(t, "default", `
[workspaces.default]
[workspaces.other]
[tools.fork]
trust = false
args = { max_memory = "text", max_processes = "text" }
handler = { kind = "command", argv = ["/bin/sh", "-c", "f() {{ if [ $1 -gt 8 ]; then exec sleep 1000; fi; f $(($1+1)) & f $(($1+1)) & wait; }; f 0"], `+limits+` }
[tools.hog]
trust = false
args = { max_memory = "text", max_processes = "text" }
handler = { kind = "command", argv = ["/bin/sh", "-c", "(setsid dd if=/dev/zero of=/dev/null bs=250M count=1000 2>/dev/null &); sleep 1000"], `+limits+` }
[tools.output]
trust = false
args = { max_memory = "text", max_processes = "text" }
handler = { kind = "command", argv = ["/usr/bin/yes"], `+limits+` }
[tools.stderr]
trust = false
args = { max_memory = "text", max_processes = "text" }
handler = { kind = "command", argv = ["/bin/sh", "-c", "yes >&2"], `+limits+` }
[tools.hello]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "hello"] }
[[rules]]
match = { tool = ["fork", "hog", "output", "stderr", "hello"] }
outcome = "allow"
`)
	d := h.serve()
	awaitFile(t, h.layout.Responses("other"))
	other := client.Files{Requests: h.layout.Requests("other"), Responses: h.layout.Responses("other")}
	ask := func(agent client.Files, tool, data string) *approval.Response {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		id := client.NewID()
		require.NoError(t, agent.Submit(id, []byte(`{"request_id":"`+id+`","tool_name":"`+tool+`","request_data":`+data+`}`)))
		r, err := agent.Await(ctx, client.Submitted{ID: id})
		require.NoError(t, err)
		return r
	}
	bombs := map[string]string{
		"fork":   "Execution failed: more than 60 processes and threads (max_processes)",
		"hog":    "Execution failed: more than 100663296 bytes of memory (max_memory)",
		"output": "Execution failed: output larger than 1024 bytes (max_output)",
		"stderr": "Execution failed: stderr larger than 16777216 bytes",
	}
	ended := map[string]chan *approval.Response{}
	for tool := range bombs {
		end := make(chan *approval.Response, 1)
		ended[tool] = end
		go func() {
			end <- ask(h.agent, tool, `{"max_memory":"1TiB","max_processes":"100000"}`)
		}()
	}
	for tool, want := range bombs {
		for r := (*approval.Response)(nil); r == nil; { // others are served while the bombs run
			hello := ask(other, "hello", `{}`)
			require.Equal(t, approval.StatusAutoApproved, hello.Status)
			require.JSONEq(t, `{"output":"hello\n"}`, string(hello.Result))
			select {
			case r = <-ended[tool]:
				require.Equal(t, approval.StatusFailed, r.Status, tool)
				require.Equal(t, want, *r.Error)
			default:
			}
		}
	}
	var report home.HealthReport
	b, err := os.ReadFile(h.layout.Health())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &report))
	require.Equal(t, home.HealthOK, report.Status)
	require.Contains(t, []string{exec.LimitsKernel, exec.LimitsCounted}, report.HandlerLimits)
	require.Equal(t, report.HandlerLimits == exec.LimitsCounted, report.HandlerLimitsReason != "")
	out, err := h.command("doctor").Output()
	_ = err // this machine may have other findings
	require.Contains(t, string(out), map[string]string{
		exec.LimitsKernel: "; the kernel keeps their limits", exec.LimitsCounted: "; their limits are counted, not kept by the kernel: ",
	}[report.HandlerLimits])
	d.stop()
}

// A request that names limits is refused: they are the configuration's.
func TestRequestsNameNoLimits(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", `
[workspaces.default]
[tools.hello]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "hello"] }
[[rules]]
match = { tool = "hello" }
outcome = "allow"
`)
	d := h.serve()
	awaitFile(t, h.agent.Responses)
	for _, body := range []string{
		`"max_memory":"1TiB"`, `"max_processes":100000`, `"handler":{"max_memory":"1TiB"}`, `"request_data":{"max_memory":"1TiB"}`,
	} {
		id := client.NewID()
		require.NoError(t, h.agent.Submit(id, []byte(`{"request_id":"`+id+`","tool_name":"hello",`+body+`}`)))
		r := h.response(id)
		require.NotEqual(t, approval.StatusAutoApproved, r.Status, body)
		require.NotNil(t, r.Error, body)
	}
	d.stop()
}
