package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

const restConfig = `listen = ["127.0.0.1:0", "unix:%[1]s/rest.sock"]
[approvers.ann]
telegram = 1
[approvers.bob]
telegram = 2
[workspaces.personal]
approvers = ["ann", "bob"]
approval_timeout = "10m"
[tools.say]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/echo", "said"] }
[tools.free]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/sh", "-c", "echo x >>%[1]s/ran"] }
[[rules]]
match = { tool = "free" }
outcome = "allow"
`

// restClient calls the HTTP API of a daemon with one key.
type restClient struct {
	*rig
	base, key string
}

// newRestRig is a home whose daemon listens on a free port and on a
// socket.
func newRestRig(t *testing.T) *rig {
	t.Helper()
	h := newRig(t, "personal", "")
	require.NoError(t, os.WriteFile(h.config, fmt.Appendf(nil, restConfig, h.dir), 0o600))
	return h
}

var listenPattern = regexp.MustCompile(`"path":"(127\.0\.0\.1:\d+)"`)

// apiURL waits until the daemon serves, and returns its URL.
func (d *daemonProcess) apiURL() string {
	d.t.Helper()
	d.awaitLog(`"serving"`)
	d.awaitLog("HTTP API listening")
	d.awaitLog(`/rest.sock","`)
	found := listenPattern.FindStringSubmatch(d.logged())
	require.NotNil(d.t, found, "%s", d.logged())
	return "http://" + found[1]
}

// newKey creates a key with the real program.
func (h *rig) newKey(args ...string) string {
	h.t.Helper()
	code, out, errs := h.run("", append([]string{"key", "create", "personal"}, args...)...)
	require.Zero(h.t, code, "%s", errs)
	return strings.TrimSpace(out)
}

func (c *restClient) do(method, path, body string, headers ...string) (status int, answer map[string]any) {
	c.t.Helper()
	r, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	require.NoError(c.t, err)
	r.Header.Set("Authorization", "Bearer "+c.key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{Timeout: testTimeout}).Do(r)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		require.NoError(c.t, json.Unmarshal(b, &answer), "%s", b)
	} else {
		answer = map[string]any{"text": string(b)}
	}
	return resp.StatusCode, answer
}

// TestRestEndToEnd submits and decides through the HTTP API of the real program.
func TestRestEndToEnd(t *testing.T) {
	t.Parallel()
	h := newRestRig(t)
	d := h.serve()
	base := d.apiURL()
	agent := &restClient{h, base, h.newKey()}
	ann := &restClient{h, base, h.newKey("--scope", "decide,read", "--owner", "ann")}
	watch := &restClient{h, base, h.newKey("--scope", "read")}

	status, a := agent.do("POST", "/v1/approvals", `{"tool_name":"say","session_id":"s1"}`)
	require.Equal(t, 201, status, "%v", a)
	id, _ := a["approval_id"].(string)
	status, a = ann.do("GET", "/v1/approvals?status=pending", "")
	require.Equal(t, 200, status)
	require.Len(t, a["items"], 1)
	events := ann.follow("0")
	status, a = ann.do("POST", "/v1/approvals/"+id+"/decision", `{"code":"6"}`)
	require.Equal(t, 200, status, "%v", a)
	_, a = agent.do("GET", "/v1/approvals/"+id+"?wait=60", "")
	require.Equal(t, "approved", a["status"], "%v", a)
	require.Equal(t, map[string]any{"output": "said\n"}, a["result"])
	receipt, _ := a["receipt"].(string)
	require.Equal(t, []string{"approved", "executed"}, []string{<-events, <-events})

	// The "always" grant is listed, used and revoked.
	_, a = agent.do("POST", "/v1/approvals", `{"tool_name":"say","session_id":"s2"}`)
	require.Equal(t, true, a["auto"], "%v", a)
	second, _ := a["approval_id"].(string)
	require.Equal(t, strings.TrimPrefix(id, "appr_"), a["allow_rule_applied"])
	require.Equal(t, "6", a["decision"].(map[string]any)["code"])
	require.Equal(t, []string{"auto_approved", "executed"}, []string{<-events, <-events})
	_, a = agent.do("GET", "/v1/approvals/"+second+"?wait=60", "")
	require.Equal(t, "auto_approved", a["outcome"], "%v", a)
	_, a = agent.do("GET", "/v1/allow-rules", "")
	rule := a["items"].([]any)[0].(map[string]any)
	require.InDelta(t, 1, rule["uses"], 0)
	status, _ = agent.do("DELETE", "/v1/allow-rules/"+rule["id"].(string), "")
	require.Equal(t, 204, status)
	_, a = agent.do("POST", "/v1/approvals", `{"tool_name":"say"}`)
	require.Equal(t, "pending", a["status"])

	body, err := json.Marshal(map[string]any{"receipt": receipt, "tool_name": "say"})
	require.NoError(t, err)
	status, _ = agent.do("POST", "/v1/receipts/redeem", string(body))
	require.Equal(t, 200, status)
	status, _ = agent.do("POST", "/v1/receipts/redeem", string(body))
	require.Equal(t, 409, status)
	status, a = agent.do("POST", "/v1/inbox/email-reply", `{"subject":"","body":"1"}`)
	require.Equal(t, 403, status, "%v", a)
	mail := &restClient{h, base, h.newKey("--scope", "inbound", "--owner", "ann")}
	status, a = mail.do("POST", "/v1/inbox/email-reply", `{"subject":"","body":"1"}`)
	require.Equal(t, 404, status)
	require.Equal(t, "email is not configured", a["detail"])

	status, a = watch.do("GET", "/metrics", "")
	require.Equal(t, 200, status)
	require.Contains(t, a["text"], `permesso_waiting{workspace="personal"} 1`)
	require.Contains(t, a["text"], `permesso_requests_total{workspace="personal",status="approved"} 1`)
	_, a = ann.do("GET", "/v1/approvals?limit=1&status=approved", "")
	require.Len(t, a["items"], 1)
	next, _ := a["next"].(string)
	require.NotEmpty(t, next)
	_, a = ann.do("GET", "/v1/approvals?limit=5&status=approved&before="+next, "")
	require.Len(t, a["items"], 1)
	require.Equal(t, id, a["items"].([]any)[0].(map[string]any)["approval_id"])

	// A key that another process revoked is refused at once.
	code, out, errs := h.run("", "key", "revoke", apikey.New(agent.key).ID)
	require.Zero(t, code, "%s", errs)
	require.Equal(t, "revoked\nrequests of this key that still wait: 1; permesso pending lists them\n", out)
	status, a = agent.do("GET", "/v1/approvals/"+id, "")
	require.Equal(t, 401, status)
	require.Equal(t, "Invalid API key", a["detail"])

	// The audit log names the caller, and no log contains a key.
	d.stop()
	require.NotContains(t, d.logged(), agent.key)
	asked := 0
	require.NoError(t, audit.Entries(ipc.OS(), h.layout.Audit(), func(e event.Entry) error {
		if e.ClientID == apikey.New(agent.key).ClientID() && e.RequestID != "" {
			asked++
		}
		return nil
	}))
	require.Equal(t, 6, asked)
}

// follow returns the names of the events after the entry last.
func (c *restClient) follow(last string) <-chan string {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", c.base+"/v1/events", nil)
	require.NoError(c.t, err)
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Last-Event-ID", last)
	resp, err := http.DefaultClient.Do(r) //nolint:bodyclose // cancelled below
	require.NoError(c.t, err)
	require.Equal(c.t, 200, resp.StatusCode)
	c.t.Cleanup(cancel)
	words := make(chan string, 100)
	go func() {
		in := bufio.NewScanner(resp.Body)
		for in.Scan() {
			if word, ok := strings.CutPrefix(in.Text(), "event: "); ok {
				words <- word
			}
		}
	}()
	return words
}

// TestRestAfterAKill sends a request, kills the daemon before the response, and
// sends it again.
func TestRestAfterAKill(t *testing.T) {
	t.Parallel()
	h := newRestRig(t)
	d := h.serve()
	agent := &restClient{h, d.apiURL(), h.newKey()}
	const body = `{"tool_name":"free"}`
	for n := range 10 {
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			c, err := net.Dial("tcp", strings.TrimPrefix(agent.base, "http://"))
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = fmt.Fprintf(c, "POST /v1/approvals HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nIdempotency-Key: n%d\r\nContent-Length: %d\r\n\r\n%s",
				strings.TrimPrefix(agent.base, "http://"), agent.key, n, len(body), body)
			_, _ = io.ReadAll(io.LimitReader(c, 1))
		}()
		time.Sleep(time.Duration(n) * time.Millisecond) // kill at different moments
		d.kill()
		<-sent
		d = h.serve()
		agent.base = d.apiURL()
		status, a := agent.do("POST", "/v1/approvals", body, "Idempotency-Key", fmt.Sprint("n", n))
		require.Contains(t, []int{200, 201}, status, "%v", a)
		_, a = agent.do("GET", "/v1/approvals/"+a["approval_id"].(string)+"?wait=60", "")
		require.Contains(t, []any{"auto_approved", "interrupted"}, a["outcome"], "%v", a)
		ran, err := os.ReadFile(filepath.Join(h.dir, "ran"))
		if err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
		require.LessOrEqual(t, len(bytes.Fields(ran)), n+1, "a request ran twice")
	}
}

// TestRestSocket uses the Unix socket, also after a kill.
func TestRestSocket(t *testing.T) {
	t.Parallel()
	h := newRestRig(t)
	d := h.serve()
	d.apiURL()
	key := h.newKey()
	get := func() int {
		c, err := net.Dial("unix", filepath.Join(h.dir, "rest.sock"))
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "GET /v1/approvals HTTP/1.1\r\nHost: permesso\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", key)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, 200, get())
	d.kill()
	d = h.serve()
	d.apiURL()
	require.Equal(t, 200, get())
	d.stop()
}

// TestRestAddressInUse starts daemons whose address is in use. If the configuration
// names the address, the daemon exits with an error. With the default address it
// runs without the HTTP API.
func TestRestAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	h := newRig(t, "default", fmt.Sprintf("listen = %q\n", l.Addr()))
	d := h.serve()
	require.Error(t, d.awaitExit())
	require.Contains(t, d.logged(), "address already in use\nhint: set listen to another address, or to \"\" to turn it off")

	const disabled = "HTTP API disabled: address already in use: 127.0.0.1:8765"
	plain := newRig(t, "default", "")
	for {
		standard, err := net.Listen("tcp", "127.0.0.1:8765")
		if err == nil {
			defer standard.Close()
		} // on error another process has the port, which serves the test as well
		d = plain.serve()
		await(t, d.log, func() bool {
			return strings.Contains(d.logged(), disabled) || strings.Contains(d.logged(), "HTTP API listening")
		})
		if strings.Contains(d.logged(), disabled) {
			break
		}
		require.Error(t, err, "the daemon got a port that the test holds")
		d.stop()
	}
	d.awaitLog(`"serving"`)
	off := newRig(t, "default", `listen = ""`)
	quiet := off.serve()
	awaitFile(t, off.layout.Pendings("default"))
	quiet.awaitLog(`"serving"`)
	quiet.stop()
	require.NotContains(t, quiet.logged(), "HTTP API listening")
	d.stop()
}
