package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// mcpServerConfig has a tool that counts its runs, and one that a rule allows.
const mcpServerConfig = `listen = "127.0.0.1:0"
ui = false
[approvers.ann]
local = 4000000
[workspaces.default]
approvers = ["ann"]
approval_timeout = "1h"
limits = { ask_per_minute = 1000, per_minute = 1000 }
[tools.post]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
args = { text = "text" }
handler = { kind = "command", argv = ["/bin/sh", "-c", "cat >>%[1]s/ran; echo >>%[1]s/ran; echo posted"] }
[tools.free]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "free"] }
[[rules]]
match = { tool = "free" }
outcome = "allow"
`

// mcpResult is what a client gets from a tool.
type mcpResult struct {
	Text  string
	Error bool
	Data  map[string]any // structuredContent
	Meta  map[string]any
}

// mcpCaller is a client of our server, in any of the SDKs.
type mcpCaller interface {
	tools() []string
	call(tool string, args map[string]any) (mcpResult, error)
}

// goCaller is the official SDK for Go.
type goCaller struct {
	t       testing.TB
	session *mcp.ClientSession
}

func (c *goCaller) tools() (names []string) {
	list, err := c.session.ListTools(c.t.Context(), nil)
	require.NoError(c.t, err)
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func (c *goCaller) call(tool string, args map[string]any) (mcpResult, error) {
	r, err := c.session.CallTool(c.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return mcpResult{}, err
	}
	out := mcpResult{Error: r.IsError, Meta: r.Meta}
	for _, content := range r.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			out.Text += text.Text
		}
	}
	out.Data, _ = r.StructuredContent.(map[string]any)
	return out, nil
}

// nodeCaller is one of the official SDKs for TypeScript.
type nodeCaller struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Scanner
}

// nodeAnswer is a line of the driver.
type nodeAnswer struct {
	Ready, Failed, Text string
	Tools               []string
	Error               bool
	Data, Meta          map[string]any
}

func (c *nodeCaller) exchange(line any) (a nodeAnswer) {
	if line != nil {
		b, err := json.Marshal(line)
		require.NoError(c.t, err)
		_, err = c.in.Write(append(b, '\n'))
		require.NoError(c.t, err)
	}
	require.True(c.t, c.out.Scan(), "the driver has ended")
	require.NoError(c.t, json.Unmarshal(c.out.Bytes(), &a), c.out.Text())
	return a
}

func (c *nodeCaller) tools() []string { return c.exchange(map[string]any{"op": "tools"}).Tools }

func (c *nodeCaller) call(tool string, args map[string]any) (mcpResult, error) {
	a := c.exchange(map[string]any{"op": "call", "tool": tool, "args": args})
	if a.Failed != "" {
		return mcpResult{}, errors.New(a.Failed)
	}
	return mcpResult{a.Text, a.Error, a.Data, a.Meta}, nil
}

// connectNode starts a client that speaks the version, with the server that plan names.
func (h *rig) connectNode(version string, plan map[string]any) *nodeCaller {
	h.t.Helper()
	requireVersion(h.t, "node", "nodejs", 20, 0)
	modules, err := botapi.Install(h.t.Context(), "mcp-clients", os.DirFS("../../testdata/mcp/clients"))
	require.NoError(h.t, err, "hint: this needs npm and a reachable registry")
	plan["modules"], plan["version"] = modules, version
	text, err := json.Marshal(plan)
	require.NoError(h.t, err)
	cmd := osexec.Command("node", "--unhandled-rejections=strict", "../../testdata/mcp/clients/drive.mjs")
	cmd.Env = slices.Concat(h.command("mcp").Env, []string{"PLAN=" + string(text)})
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	require.NoError(h.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(h.t, err)
	require.NoError(h.t, cmd.Start())
	h.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
		if h.t.Failed() {
			h.t.Log(errs.String())
		}
	})
	c := &nodeCaller{h.t, in, bufio.NewScanner(out)}
	c.out.Buffer(nil, 64<<20)
	require.Equal(h.t, "permesso", c.exchange(nil).Ready)
	return c
}

// mcpCommand is our server for a client that starts it.
func (h *rig) mcpCommand(args ...string) *osexec.Cmd {
	return h.command(append([]string{"mcp"}, args...)...)
}

func (h *rig) connectMCP(version string, transport mcp.Transport) *goCaller {
	h.t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(h.t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = session.Close() })
	require.Equal(h.t, version, session.InitializeResult().ProtocolVersion)
	return &goCaller{h.t, session}
}

// bearer sends a key with each request.
type bearer struct {
	key   string
	mu    sync.Mutex
	conns []net.Conn
	web   http.Transport
}

func newBearer(key string) *bearer {
	b := &bearer{key: strings.TrimSpace(key)}
	b.web.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.conns = append(b.conns, c)
		return c, err
	}
	return b
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return b.web.RoundTrip(r)
}

// kill ends all connections, as the kernel does for a client that is killed.
func (b *bearer) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		_ = c.Close()
	}
}

func newMCPRig(t *testing.T) *rig {
	t.Helper()
	h := newRig(t, "default", "")
	require.NoError(t, os.WriteFile(h.config, fmt.Appendf(nil, mcpServerConfig, h.dir), 0o600))
	return h
}

// ran are the inputs with which the tool post has run.
func (h *rig) ran() []string {
	b, err := os.ReadFile(filepath.Join(h.dir, "ran"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(h.t, err)
	return strings.Fields(strings.ReplaceAll(string(b), " ", ""))
}

// whileAsked makes a call, decides about the request that it makes, and returns what the call returns.
func (h *rig) whileAsked(c mcpCaller, tool string, args map[string]any, decide func(id string)) mcpResult {
	h.t.Helper()
	type end struct {
		r   mcpResult
		err error
	}
	ended := make(chan end, 1)
	go func() {
		r, err := c.call(tool, args)
		ended <- end{r, err}
	}()
	decide(h.awaitUndecided())
	e := <-ended
	require.NoError(h.t, e.err)
	return e.r
}

// awaitUndecided returns the request that waits for a decision, once there is exactly one. The file of one that has ended
// may still be there when its caller has the answer.
func (h *rig) awaitUndecided() (id string) {
	h.t.Helper()
	dir := h.layout.Pendings("default")
	await(h.t, dir, func() bool {
		names, err := filepath.Glob(filepath.Join(dir, "*.json"))
		require.NoError(h.t, err)
		open := 0
		for _, name := range names {
			base := filepath.Base(name)
			_, decided := os.Stat(filepath.Join(h.layout.Decisions("default"), base))
			_, ended := os.Stat(filepath.Join(h.layout.Responses("default"), base)) // after that: it is there before a decision is removed
			if decided != nil && ended != nil {
				id = strings.TrimSuffix(base, ".json")
				open++
			}
		}
		return open == 1
	})
	return id
}

// mcpProgram runs a program in two parts, and one that cannot be read.
func mcpProgram(t *testing.T, h *rig, c mcpCaller) {
	t.Helper()
	before := len(h.ran())
	args := map[string]any{"program": `
def main():
    if tools.post(text = "first")["output"] == "posted\n":
        tools.post(text = "second")
`, "rationale": "for the test"}
	for i, main := range []string{"needs", "returned"} {
		r := h.whileAsked(c, "run_program", args, func(id string) { h.mustRun("approve", id) })
		require.False(t, r.Error, r.Text)
		require.Equal(t, true, r.Data["approved"])
		result := r.Data["result"].(map[string]any)
		require.Equal(t, main, result["main"])
		require.Len(t, result["steps"], i+1)
		require.Equal(t, i == 0, strings.Contains(r.Text, "run_program again with the same program, and continues "+r.Data["request_id"].(string)), r.Text)
		args["continues"] = r.Data["request_id"]
	}
	require.Equal(t, []string{`{"text":"first"}`, `{"text":"second"}`}, h.ran()[before:])

	r, err := c.call("run_program", map[string]any{"program": "def main(:"})
	require.NoError(t, err)
	require.True(t, r.Error)
	require.Contains(t, r.Text, "line 1: got ':', want ')'")
	r = h.whileAsked(c, "run_program", map[string]any{"program": "def main():\n    tools.post(text = 'no')\n"}, func(id string) { h.mustRun("deny", id, "not today") })
	require.True(t, r.Error)
	require.Equal(t, "not today", r.Data["question"])
	require.NotContains(t, r.Data, "result")
}

// mcpScenario uses each tool, and ends requests in each way.
func mcpScenario(t *testing.T, h *rig, c mcpCaller) {
	t.Helper()
	require.Equal(t, []string{"ask_user", "cancel_request", "execute_approved", "list_pending", "permission_prompt", "request_approval", "run_program", "wait_for_approval"}, c.tools())
	post := func(text string) map[string]any {
		return map[string]any{"tool": "post", "arguments": map[string]any{"text": text}, "rationale": "for the test"}
	}
	before := len(h.ran())

	r := h.whileAsked(c, "execute_approved", post("approve"), func(id string) {
		_, card, _ := h.run("", "show", id)
		require.Contains(t, card, "for the test")
		h.mustRun("approve", id)
	})
	require.False(t, r.Error, r.Text)
	require.Equal(t, true, r.Data["approved"])
	require.Equal(t, "approved", r.Data["status"])
	require.Equal(t, map[string]any{"output": "posted\n"}, r.Data["result"])
	require.NotEmpty(t, r.Data["receipt"])
	require.Equal(t, r.Data["request_id"], r.Meta["dev.permesso/request"])
	require.Equal(t, r.Data["receipt"], r.Meta["dev.permesso/receipt"])
	require.Equal(t, "approved", r.Meta["dev.permesso/decision"].(map[string]any)["status"])
	require.Equal(t, []string{`{"text":"approve"}`}, h.ran()[before:])

	r, err := c.call("execute_approved", map[string]any{"tool": "free", "arguments": map[string]any{}})
	require.NoError(t, err)
	require.Equal(t, "auto_approved", r.Data["status"], "policy allows it: no one is asked")
	require.Equal(t, true, r.Meta["dev.permesso/decision"].(map[string]any)["auto"])

	r = h.whileAsked(c, "execute_approved", post("note"), func(id string) { h.mustRun("approve", id, "--note", "be brief") })
	require.Equal(t, "be brief", r.Data["note"])
	require.Contains(t, r.Text, "be brief")
	require.Len(t, h.ran(), before+2)

	for _, row := range []struct {
		decide         []string
		status, member string
		text           string
	}{
		{[]string{"deny", "ID", "not", "now"}, "denied", "question", "not now"},
		{[]string{"change", "ID", "say it in Italian"}, "overridden", "instead", "say it in Italian"},
		{[]string{"ask", "ID", "--yes", "Who will read it?"}, "request_more", "question", "Who will read it?"},
	} {
		r := h.whileAsked(c, "execute_approved", post(row.status), func(id string) {
			row.decide[1] = id
			h.mustRun(row.decide...)
		})
		require.True(t, r.Error, row.status)
		require.Equal(t, row.status, r.Data["status"])
		require.Equal(t, false, r.Data["approved"])
		require.Equal(t, row.text, r.Data[row.member])
		require.Contains(t, r.Text, row.text)
	}
	r, err = c.call("execute_approved", map[string]any{"tool": "post", "arguments": map[string]any{"text": "late"}, "expires_in_sec": 1})
	require.NoError(t, err)
	require.Equal(t, "expired", r.Data["status"])
	require.True(t, r.Error)
	r, err = c.call("execute_approved", map[string]any{"tool": "none", "arguments": map[string]any{}})
	require.NoError(t, err)
	require.Equal(t, "auto_rejected", r.Data["status"])
	require.Len(t, h.ran(), before+2, "nothing of this has run")

	// What the agent does itself.
	release := map[string]any{"action": "send_message", "arguments": map[string]any{"to": "bob@example.org"}, "title": "A mail"}
	r, err = c.call("request_approval", release)
	require.NoError(t, err)
	require.False(t, r.Error)
	require.Equal(t, "pending", r.Data["status"])
	id := h.awaitUndecided()
	require.Equal(t, id, r.Data["request_id"])
	r, err = c.call("request_approval", release)
	require.NoError(t, err)
	require.Equal(t, id, r.Data["request_id"], "the same call joins it")
	r, err = c.call("list_pending", map[string]any{})
	require.NoError(t, err)
	require.Len(t, r.Data["requests"], 1)
	require.Contains(t, r.Text, id)
	r = h.whileAsked(c, "wait_for_approval", map[string]any{"request_id": id}, func(id string) { h.mustRun("approve", id) })
	require.Equal(t, true, r.Data["approved"])
	require.NotEmpty(t, r.Data["receipt"])
	r, err = c.call("list_pending", map[string]any{})
	require.NoError(t, err)
	require.Empty(t, r.Data["requests"])

	r, err = c.call("request_approval", release)
	require.NoError(t, err)
	require.NotEqual(t, id, r.Data["request_id"], "a call after the result is a new one")
	id = h.awaitUndecided()
	r, err = c.call("cancel_request", map[string]any{"request_id": id, "reason": "not needed"})
	require.NoError(t, err)
	require.False(t, r.Error, r.Text)
	require.Equal(t, "cancelled", r.Data["status"])
	r, err = c.call("wait_for_approval", map[string]any{"request_id": strings.Repeat("0", 32)})
	require.NoError(t, err)
	require.True(t, r.Error)
	require.Contains(t, r.Text, "no such request")

	r = h.whileAsked(c, "ask_user", map[string]any{"question": "Which color?", "options": []any{"red", "blue"}}, func(id string) {
		h.mustRun("answer", id, "2")
	})
	require.Equal(t, "answered", r.Data["status"], r.Text)
	require.Equal(t, "blue", r.Data["answer"])
	require.Equal(t, false, r.Data["approved"], "an answer approves nothing")

	// Claude Code's permission prompt.
	for _, row := range []struct {
		decide []string
		want   string
	}{
		{[]string{"approve", "ID"}, `{"behavior":"allow","updatedInput":{"command":"make test","n":7}}`},
		{[]string{"deny", "ID", "no"}, ""},
	} {
		input := json.RawMessage(`{"command":"make test","n":7}`)
		r := h.whileAsked(c, "permission_prompt", map[string]any{"tool_name": "Bash", "input": input, "tool_use_id": "t1"}, func(id string) {
			row.decide[1] = id
			h.mustRun(row.decide...)
		})
		require.False(t, r.Error)
		if row.want != "" {
			requireBytes(t, row.want, r.Text)
			continue
		}
		require.Contains(t, r.Text, `{"behavior":"deny","message":"request `)
	}
	pendings := h.layout.Pendings("default")
	await(t, pendings, func() bool {
		left, err := os.ReadDir(pendings)
		require.NoError(t, err)
		return len(left) == 0
	})

	mcpProgram(t, h, c)
}

// Each tool of the server, and each end of a request, with the official clients in both revisions, on stdio and by HTTP.
func TestMCP(t *testing.T) {
	t.Parallel()
	h := newMCPRig(t)
	d := h.serve()
	d.awaitLog(`"serving"`)
	found := listenPattern.FindStringSubmatch(d.logged())
	require.NotNil(t, found)
	url := "http://" + found[1] + "/mcp"
	newKey := func() string {
		code, key, errs := h.run("", "key", "create", "default")
		require.Zero(t, code, errs)
		return strings.TrimSpace(key)
	}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for name, connect := range map[string]func(h *rig, client string) mcpCaller{
			"go, stdio": func(h *rig, client string) mcpCaller {
				return h.connectMCP(version, &mcp.CommandTransport{Command: h.mcpCommand("--name", client)})
			},
			"go, HTTP": func(h *rig, _ string) mcpCaller {
				return h.connectMCP(version, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: newBearer(newKey())}, DisableStandaloneSSE: true})
			},
			"typescript, stdio": func(h *rig, client string) mcpCaller {
				return h.connectNode(version, map[string]any{"command": h.mcpCommand("--name", client).Args})
			},
			"typescript, HTTP": func(h *rig, _ string) mcpCaller {
				return h.connectNode(version, map[string]any{"url": url, "key": newKey()})
			},
		} {
			if t.Failed() {
				return // what is left pending confuses the next
			}
			name += ", " + version
			t.Run(name, func(t *testing.T) {
				own := *h
				own.t = t
				mcpScenario(t, &own, connect(&own, name))
			})
		}
	}
}

// By HTTP a client of 2026-07-28 is offered the request's page, where the configuration says so. What it accepts approves
// nothing. The older revision has no way to ask a client by HTTP without a session.
func TestMCPElicitationByHTTP(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		version, config string
		offered         bool
	}{{"2026-07-28", "", false}, {"2026-07-28", `elicitation = "notify"`, true}, {"2025-11-25", `elicitation = "notify"`, false}} {
		t.Run(row.version+" "+row.config, func(t *testing.T) {
			t.Parallel()
			h := newMCPRig(t)
			text := row.config + "\n" + strings.Replace(fmt.Sprintf(mcpServerConfig, h.dir), "ui = false", `ui = "127.0.0.1:0"`, 1)
			require.NoError(t, os.WriteFile(h.config, []byte(text), 0o600))
			d := h.serve()
			d.awaitLog(`"serving"`)
			_, key, _ := h.run("", "key", "create", "default")
			shown := make(chan string, 10)
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					shown <- r.Params.URL
					return &mcp.ElicitResult{Action: "accept"}, nil
				},
			})
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: "http://" + addressOf(t, d, "HTTP API listening") + "/mcp", HTTPClient: &http.Client{Transport: newBearer(key)}, DisableStandaloneSSE: true,
			}, &mcp.ClientSessionOptions{ProtocolVersion: row.version})
			require.NoError(t, err)
			t.Cleanup(func() { _ = session.Close() })
			r := h.whileAsked(&goCaller{t, session}, "execute_approved", map[string]any{"tool": "post", "arguments": map[string]any{"text": "x"}}, func(id string) {
				if row.offered {
					select {
					case page := <-shown:
						require.Equal(t, "http://"+addressOf(t, d, "web UI listening")+"/r/default/"+id, page)
					case <-time.After(testTimeout):
						require.Fail(t, "nothing is offered")
					}
				}
				h.requireUndecided(id)
				require.Empty(t, h.ran())
				h.mustRun("approve", id)
			})
			require.Equal(t, "approved", r.Data["status"], r.Text)
			require.Len(t, h.ran(), 1)
			require.Empty(t, shown)
		})
	}
}

// addressOf is where the daemon listens, by its log.
func addressOf(t *testing.T, d *daemonProcess, message string) string {
	t.Helper()
	found := regexp.MustCompile(`"path":"(127\.0\.0\.1:\d+)".*"message":"` + message).FindStringSubmatch(d.logged())
	require.NotNil(t, found, d.logged())
	return found[1]
}

// A call whose gate, whose client, or both are killed while it waits: made again, it gets its answer. It is asked once and
// runs once, also if it was decided while no one waited.
func TestMCPAfterKills(t *testing.T) {
	t.Parallel()
	for _, byHTTP := range []bool{false, true} {
		for _, row := range []struct {
			gate, client, early bool
		}{{true, false, false}, {false, true, false}, {true, true, false}, {false, true, true}, {true, true, true}} {
			t.Run(fmt.Sprintf("http %v, gate %v, client %v, decided before %v", byHTTP, row.gate, row.client, row.early), func(t *testing.T) {
				t.Parallel()
				h := newMCPRig(t)
				d := h.serve()
				d.awaitLog(`"serving"`)
				_, key, _ := h.run("", "key", "create", "default")
				connect := func() (c *goCaller, kill func()) {
					if byHTTP {
						found := listenPattern.FindStringSubmatch(d.logged())
						require.NotNil(t, found)
						web := newBearer(key)
						return h.connectMCP("2026-07-28", &mcp.StreamableClientTransport{
							Endpoint: "http://" + found[1] + "/mcp", HTTPClient: &http.Client{Transport: web}, DisableStandaloneSSE: true,
						}), web.kill
					}
					cmd := h.mcpCommand()
					return h.connectMCP("2025-11-25", &mcp.CommandTransport{Command: cmd}), func() { _ = cmd.Process.Kill() }
				}
				args := map[string]any{"tool": "post", "arguments": map[string]any{"text": "once"}}
				type end struct {
					r   mcpResult
					err error
				}
				call := func(c *goCaller) chan end {
					ended := make(chan end, 1)
					go func() {
						r, err := c.call("execute_approved", args)
						ended <- end{r, err}
					}()
					return ended
				}
				c, kill := connect()
				waits := call(c)
				id := h.awaitUndecided()
				if row.client {
					kill()
				}
				if row.early {
					h.mustRun("approve", id, "--wait")
				}
				if row.gate {
					d.kill()
					d = h.serve()
					d.awaitLog(`"serving"`)
				}
				if row.client || byHTTP {
					c, _ = connect()
					waits = call(c)
				}
				if !row.early {
					require.Equal(t, id, h.awaitUndecided(), "it is not asked again")
					h.mustRun("approve", id)
				}
				e := <-waits
				require.NoError(t, e.err)
				require.Equal(t, "approved", e.r.Data["status"], e.r.Text)
				require.Equal(t, id, e.r.Data["request_id"])
				require.Equal(t, []string{`{"text":"once"}`}, h.ran())
				call(c)
				require.NotEqual(t, id, h.awaitUndecided(), "the next one is a call of its own")
			})
		}
	}
}
