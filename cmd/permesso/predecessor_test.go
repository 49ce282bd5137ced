package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/ipc/client"
)

const postTool = `
[tools.x_post]
capability = "channel:out"
verb = "post"
summary = "{text} -> x.com/ricardo"
target = "x.com/ricardo"
args = { text = "text" }
handler = { kind = "command", argv = ["/bin/echo", "posted"] }
`

// pythonAgent is a running testdata/files/agent.py.
type pythonAgent struct {
	t    *testing.T
	id   string
	cmd  *osexec.Cmd
	said *bufio.Reader
}

func (h *rig) pythonAgent(t *testing.T, ws string, args ...string) *pythonAgent {
	t.Helper()
	cmd := osexec.Command("python3", append([]string{"../../testdata/files/agent.py", h.layout.Requests(ws), h.layout.Responses(ws)}, args...)...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	a := &pythonAgent{t: t, cmd: cmd, said: bufio.NewReader(out)}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := a.said.ReadString('\n')
	require.NoError(t, err)
	a.id = strings.TrimSpace(line)
	return a
}

// end waits for the line that the agent prints at its end.
func (a *pythonAgent) end() string {
	a.t.Helper()
	said, err := io.ReadAll(a.said)
	require.NoError(a.t, err)
	require.NoError(a.t, a.cmd.Wait())
	return strings.TrimSpace(string(said))
}

// An earlier gate's agent and host program, over files, with nothing changed but the folders.
func TestPredecessorOverFiles(t *testing.T) {
	t.Parallel()
	requireVersion(t, "python3", "python3", 3, 9)
	h := newRig(t, "personal", `
[approvers.ricardo]
telegram = 1
[workspaces.personal]
approvers = ["ricardo"]
[workspaces.hasty]
approvers = ["ricardo"]
approval_timeout = "1s"
`+postTool)
	d := h.serve()
	d.awaitLog(`"serving"`)
	for _, form := range []string{"hex", "uuid"} {
		t.Run(form, func(t *testing.T) { h.filesFlows(t, form) })
	}
	t.Run("a pending of a host program", func(t *testing.T) { h.hostProgram(t) })
	t.Run("a decision without a MAC", func(t *testing.T) {
		a := h.pythonAgent(t, "personal", "uuid", "service:x_post", "personal", "Meeting at 5")
		h.awaitPending("personal", a.id)
		slot := filepath.Join(h.layout.Decisions("personal"), a.id+".json")
		require.NoError(t, os.WriteFile(slot, fmt.Appendf(nil, `{"request_id": %q, "approved": true, "decided_by": "ricardo", "decided_at": "2026-02-24T12:01:30Z"}`, a.id), 0o600))
		d.awaitLog("permesso decide --stdin")
		code, _, errs := h.run("", "deny", a.id)
		require.Zero(t, code, errs)
		require.Equal(t, "error: Denied by user", a.end())
	})
	t.Run("a malformed name", func(t *testing.T) {
		name := "Request-of-Ricardo_7"
		require.NoError(t, os.WriteFile(filepath.Join(h.agent.Requests, name+".json"), []byte(`{"type":"service:x_post","request_id":"`+name+`","text":"x"}`), 0o600))
		awaitFile(t, filepath.Join(h.agent.Responses, name+".json"))
		b, err := os.ReadFile(filepath.Join(h.agent.Responses, name+".json"))
		require.NoError(t, err)
		require.Contains(t, string(b), `"status":"malformed"`)
	})
	d.stop()
}

func (h *rig) filesFlows(t *testing.T, form string) {
	ask := func(ws, kind, group string) *pythonAgent {
		return h.pythonAgent(t, ws, form, kind, group, "Meeting at 5")
	}
	for range 4 { // one, and three further requests: "approve" remembers nothing
		a := ask("personal", "service:x_post", "personal")
		h.awaitPending("personal", a.id)
		_, card, _ := h.run("", "show", a.id)
		require.Contains(t, card, `"Meeting at 5" -> x.com/ricardo`)
		code, _, errs := h.run("", "approve", a.id)
		require.Zero(t, code, errs)
		require.Equal(t, `result: {"output": "posted\n"}`, a.end())
		code, _, errs = h.run("", "approve", a.id)
		require.NotZero(t, code)
		require.Contains(t, errs, "already decided")
	}
	denied := ask("personal", "service:x_post", "personal")
	h.awaitPending("personal", denied.id)
	code, _, errs := h.run("", "deny", denied.id)
	require.Zero(t, code, errs)
	require.Equal(t, "error: Denied by user", denied.end())
	require.Equal(t, "error: Approval expired (no response within timeout)", ask("hasty", "service:x_post", "hasty").end())
	require.Contains(t, ask("personal", "service:x_post", "hasty").end(), "source_group names another workspace")
	require.Contains(t, ask("personal", "service:x_pots", "personal").end(), "error: ")
}

// hostProgram puts a pending into the folder that only the gate and host programs may write.
func (h *rig) hostProgram(t *testing.T) {
	put := func(id, group string) {
		file := filepath.Join(h.layout.Pendings("personal"), id+".json")
		text := fmt.Sprintf(`{ "request_id": %q, "short_id": %q, "tool_name": "x_post", "source_group": %q,
  "chat_jid": "telegram:123", "request_data": {"text": "Meeting at 5"}, "timestamp": "2026-02-24T12:00:00Z", "notification_sent": true }`, id, id[:8], group)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	for range 4 {
		id := client.NewID()
		put(id, "personal")
		file := filepath.Join(h.layout.Pendings("personal"), id+".json")
		await(t, file, func() bool {
			b, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(b), `"mac":"`)
		})
		code, out, errs := h.run("", "pending")
		require.Zero(t, code, errs)
		require.Contains(t, out, id[:8])
		code, _, errs = h.run("", "approve", id)
		require.Zero(t, code, errs)
		r := h.response(id)
		require.Equal(t, approval.StatusApproved, r.Status)
		require.JSONEq(t, `{"output":"posted\n"}`, string(r.Result))
	}
	id := client.NewID()
	put(id, "hasty")
	require.Contains(t, *h.response(id).Error, "source_group names another workspace")
}

// predecessorConfig has the ids of the client's examples.
const predecessorConfig = `listen = ["127.0.0.1:0", "unix:%[1]s/rest.sock"]
[channels.telegram]
server_url = %[2]q
token_file = "%[1]s/telegram.token"
[approvers.ann]
telegram = 123456789
[workspaces.personal]
approvers = ["ann"]
channels = ["telegram"]
limits = { ask_per_minute = 1000, per_minute = 1000, pending = 100 }
[workspaces.any]
approvers = ["ann"]
channels = ["telegram"]
remember_exec_cmd = "any"
`

// predecessorRig is a daemon with an earlier gate's client and its approver.
type predecessorRig struct {
	*rig
	t     *testing.T
	api   *botapi.Server
	agent *restClient
	ann   *restClient
	wrong *restClient
}

const annChat = 123456789

func newPredecessorRig(t *testing.T, ws string) *predecessorRig {
	t.Helper()
	api := botapi.Start(t)
	api.AddUser(botapi.User{ID: annChat, FirstName: "Ann"})
	api.Say(annChat, annChat, "/start")
	h := newRig(t, ws, "")
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "telegram.token"), []byte(botapi.Token+"\n"), 0o600))
	require.NoError(t, os.WriteFile(h.config, fmt.Appendf(nil, predecessorConfig, h.dir, api.URL), 0o600))
	d := h.serve()
	base := d.apiURL()
	key := func(args ...string) *restClient {
		code, out, errs := h.run("", append([]string{"key", "create", ws}, args...)...)
		require.Zero(t, code, errs)
		return &restClient{h, base, strings.TrimSpace(out)}
	}
	return &predecessorRig{h, t, api, key(), key("--scope", "decide,read", "--owner", "ann"), &restClient{h, base, "permesso_wrong"}}
}

// clientBody is the body of the client's example with another action, session and preview.
func clientBody(action, session, preview string) string {
	return fmt.Sprintf(`{ "session_id": %q, "action_type": %q, "title": "Run command", "preview": %q,
  "channel": "telegram", "target": { "tg_chat_id": "123456789" }, "expires_in_sec": 600 }`, session, action, preview)
}

const clientPreview = "rm -rf ./build && npm run build"

func (p *predecessorRig) asks(body string) (id string) {
	p.t.Helper()
	status, a := p.agent.do("POST", "/v1/approvals", body)
	require.Equal(p.t, 201, status, "%v", a)
	id, _ = a["approval_id"].(string)
	require.Regexp(p.t, "^appr_", id)
	require.Equal(p.t, "pending", a["status"])
	require.Equal(p.t, false, a["auto"])
	require.Greater(p.t, a["expires_at"], 1.7e9)
	status, a = p.agent.do("GET", "/v1/approvals/"+id, "")
	require.Equal(p.t, 200, status)
	require.Equal(p.t, "pending", a["status"])
	require.Greater(p.t, a["expires_at"], 1.7e9)
	return id
}

func (p *predecessorRig) decides(body, code string) {
	p.t.Helper()
	id := p.asks(body)
	status, a := p.ann.do("POST", "/v1/approvals/"+id+"/decision", `{"code":"`+code+`"}`)
	require.Equal(p.t, 200, status, "%v", a)
	_, a = p.agent.do("GET", "/v1/approvals/"+id+"?wait=60", "")
	require.Equal(p.t, "approved", a["status"], "%v", a)
	require.Equal(p.t, code, a["decision"].(map[string]any)["code"])
}

func (p *predecessorRig) threeMore(body, code string) {
	p.t.Helper()
	for range 3 {
		status, a := p.agent.do("POST", "/v1/approvals", body)
		require.Equal(p.t, 201, status, "%v", a)
		require.Equal(p.t, "approved", a["status"], "%v", a)
		require.Equal(p.t, true, a["auto"])
		require.Equal(p.t, code, a["decision"].(map[string]any)["code"])
	}
}

// The flows of an earlier gate's client, over HTTP, with nothing changed but address and key.
func TestPredecessorOverREST(t *testing.T) {
	t.Parallel()
	p := newPredecessorRig(t, "personal")
	p.replies() // while the chat has a card for each request
	p.decides(clientBody("exec_cmd", "sess_123", clientPreview), "2")
	p.threeMore(clientBody("exec_cmd", "sess_123", clientPreview), "2")
	p.asks(clientBody("exec_cmd", "sess_123", "npm test"))
	p.asks(clientBody("exec_cmd", "sess_456", clientPreview))
	for _, action := range []string{"http_request", "write_file", "send_message", "custom:x"} {
		p.decides(clientBody(action, "sess_1", "one"), "2")
		p.threeMore(clientBody(action, "sess_1", "two"), "2")
		p.asks(clientBody(action, "sess_2", "two"))
		p.decides(clientBody(action, "sess_3", "one"), "6")
		p.threeMore(clientBody(action, "sess_4", "two"), "6")
		_, rules := p.agent.do("GET", "/v1/allow-rules", "")
		for _, x := range rules["items"].([]any) {
			status, _ := p.agent.do("DELETE", "/v1/allow-rules/"+x.(map[string]any)["id"].(string), "")
			require.Equal(t, 204, status)
		}
		p.asks(clientBody(action, "sess_4", "two"))
	}
	p.errors()
	p.signed()
}

// replies are those with a text, in the chat. tg_chat_id may be a number.
func (p *predecessorRig) replies() {
	p.t.Helper()
	number := strings.Replace(clientBody("exec_cmd", "sess_7", "make"), `"123456789"`, "123456789", 1)
	for reply, want := range map[string]map[string]any{
		"4 add logs": {"code": "4", "note": "add logs", "override": nil},
		"5 npm test": {"code": "5", "note": nil, "override": "npm test"},
	} {
		id := p.asks(number)
		card := (&botRig{p.rig, p.api}).cardOf(annChat, strings.TrimPrefix(id, "appr_"))
		p.api.Reply(annChat, annChat, card.ID, reply)
		_, a := p.agent.do("GET", "/v1/approvals/"+id+"?wait=20", "")
		require.Equal(p.t, "approved", a["status"], "%v", a)
		require.Equal(p.t, "sess_7", a["session_id"])
		require.Equal(p.t, "exec_cmd", a["action_type"])
		require.Subset(p.t, a["decision"], want)
		status, a := p.ann.do("POST", "/v1/approvals/"+id+"/decision", `{"code":"1"}`)
		require.Equal(p.t, 409, status, "%v", a)
	}
}

// errors are the answers that are errors.
func (p *predecessorRig) errors() {
	p.t.Helper()
	status, _ := p.wrong.do("POST", "/v1/approvals", clientBody("exec_cmd", "s", "x"))
	require.Equal(p.t, 401, status)
	for _, id := range []string{"appr_0123456789abcdef", "appr_x", "appr_", "x", "appr_0123456789ABCDEF", "appr_..%2F..%2Fkeys", "0123456789abcdef", "appr_%00", strings.Repeat("a", 300)} {
		for method, path := range map[string]string{"GET": "", "DELETE": "", "POST": "/decision"} {
			c, body := p.agent, ""
			if method == "POST" {
				c, body = p.ann, `{"code":"1"}`
			}
			status, a := c.do(method, "/v1/approvals/"+id+path, body)
			require.Equal(p.t, 404, status, "%s %s: %v", method, id, a)
		}
		status, a := p.agent.do("GET", "/v1/approvals/"+id+"?wait=1", "")
		require.Equal(p.t, 404, status, "wait for %s: %v", id, a)
	}
	for body, member := range map[string]string{
		`{"action_type":7}`: "action_type", `{"action_type":"exec_cmd","expires_in_sec":"x"}`: "expires_in_sec",
		`{"action_type":"exec_cmd","target":{"tg_chat_id":{}}}`: "tg_chat_id", `{"action_type":"rm"}`: "action_type",
	} {
		status, a := p.agent.do("POST", "/v1/approvals", body)
		require.Equal(p.t, 422, status, "%s: %v", body, a)
		require.Contains(p.t, a["detail"], member)
	}
	id := p.asks(strings.Replace(clientBody("exec_cmd", "sess_7", "make"), "600", "1", 1))
	_, a := p.agent.do("GET", "/v1/approvals/"+id+"?wait=60", "")
	require.Equal(p.t, "expired", a["status"])
	status, a = p.ann.do("POST", "/v1/approvals/"+id+"/decision", `{"code":"1"}`)
	require.Equal(p.t, 410, status, "%v", a)
}

// signed requires that client_id is the client's own digest of its key.
func (p *predecessorRig) signed() {
	p.t.Helper()
	code, out, errs := p.run("", "key", "list", "--json")
	require.Zero(p.t, code, errs)
	require.Contains(p.t, out, `"client_id":"`+approval.Digest([]byte(p.agent.key))[:12]+`"`)
	require.Equal(p.t, approval.Digest([]byte(p.agent.key))[:12], apikey.New(p.agent.key).ClientID())
	var any json.RawMessage
	require.NoError(p.t, json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &any))
}

// In a workspace whose approvers may remember every command, code 2 does.
func TestPredecessorRemembersAnyCommand(t *testing.T) {
	t.Parallel()
	p := newPredecessorRig(t, "any")
	p.decides(clientBody("exec_cmd", "sess_123", clientPreview), "2")
	p.threeMore(clientBody("exec_cmd", "sess_123", "another"), "2")
	p.asks(clientBody("exec_cmd", "sess_456", clientPreview))
}

// Downloads to nine paths are the same action: the card gets shorter, and each form of it
// has the path.
func TestNineDownloads(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", `
[approvers.ann]
telegram = 1
[workspaces.default]
approvers = ["ann"]
[tools.download]
capability = "fs:write"
verb = "download"
summary = "{url}"
target = "{path}"
args = { url = "url", path = "path" }
handler = { kind = "command", argv = ["/bin/echo", "{url}", "{path}"] }
`)
	h.serve().awaitLog(`"serving"`)
	for n := range 9 {
		path := fmt.Sprintf("/srv/films/%d.mkv", n)
		id := h.ask(`{"tool_name":"download","request_data":{"url":"https://example.org/x","path":"` + path + `"}}`)
		h.awaitPending("default", id)
		code, card, errs := h.run("", "show", id)
		require.Zero(t, code, errs)
		head, _, _ := strings.Cut(card, "runs:")
		require.Contains(t, head, "class: fs:write:"+path, "%s", card)
		question := "🔐 May I download?\n"
		if n >= 8 {
			question = "🔐 Download "
		} else if n >= 3 {
			question = "🔐 May I download? ("
		}
		require.Contains(t, card, question, "after %d approvals", n)
		code, _, errs = h.run("", "approve", id)
		require.Zero(t, code, errs)
		h.response(id)
	}
}

// A receipt without a tool may cover a part of the approved arguments, if the request names
// the lists and a person has seen it.
func TestReceiptForAPart(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "[approvers.ann]\ntelegram = 1\n[workspaces.default]\napprovers = [\"ann\"]\n")
	h.serve().awaitLog(`"serving"`)
	const approvedArgs = `{"to":["ann","bob"],"text":"hi"}`
	receiptFor := func(more string) string {
		id := h.ask(`{"action_type":"send_message","request_data":` + approvedArgs + more + `}`)
		h.awaitPending("default", id)
		_, card, _ := h.run("", "show", id)
		require.Equal(t, more != "", strings.Contains(card, "⚠ the receipt is valid for any part of to"), card)
		code, _, errs := h.run("", "approve", id)
		require.Zero(t, code, errs)
		file := filepath.Join(h.dir, "receipt")
		require.NoError(t, os.WriteFile(file, []byte(*h.response(id).Receipt), 0o600))
		return file
	}
	file := receiptFor(`,"args_subset":["to"]`)
	verify := func(args ...string) (int, string) {
		code, _, errs := h.run("", append([]string{"receipt", "verify", file}, args...)...)
		return code, errs
	}
	code, errs := verify("--args", approvedArgs)
	require.Zero(t, code, errs)
	code, errs = verify("--args", approvedArgs, "--args-subset", `{"to":["bob"],"text":"hi"}`)
	require.Zero(t, code, errs)
	for why, args := range map[string][]string{
		"a part alone":       {"--args", `{"to":["bob"],"text":"hi"}`},
		"another recipient":  {"--args", approvedArgs, "--args-subset", `{"to":["eve"],"text":"hi"}`},
		"another text":       {"--args", approvedArgs, "--args-subset", `{"to":["bob"],"text":"ho"}`},
		"not the approved":   {"--args", `{"to":["bob","eve"],"text":"hi"}`, "--args-subset", `{"to":["bob"],"text":"hi"}`},
		"nothing to compare": {"--args-subset", `{"to":["bob"],"text":"hi"}`},
	} {
		code, errs := verify(args...)
		require.NotZero(t, code, why)
		require.NotEmpty(t, errs)
	}
	file = receiptFor("")
	code, errs = verify("--args", approvedArgs, "--args-subset", `{"to":["bob"],"text":"hi"}`)
	require.NotZero(t, code)
	require.Contains(t, errs, "it covers only the approved arguments")
}
