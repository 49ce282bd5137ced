package httpapi_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// clientRequest is a request of an earlier public gate's client.
func clientRequest(action, session, preview string) map[string]any {
	return map[string]any{
		"session_id": session, "action_type": action, "title": "Run command", "preview": preview,
		"channel": "telegram", "target": map[string]any{"tg_chat_id": "123"}, "expires_in_sec": 600,
	}
}

const clientCommand = "rm -rf ./build && npm run build"

// submits submits a request and returns its response.
func (h *rig) submits(request map[string]any) answer {
	h.t.Helper()
	a := h.do("agent", "POST", "/v1/approvals", request)
	require.Equal(h.t, http.StatusCreated, a.StatusCode, "%s", a.body)
	return a
}

// decidesPending requires that a request is pending, and has ann decide.
func (h *rig) decidesPending(request map[string]any, with string) {
	h.t.Helper()
	a := h.submits(request)
	require.Equal(h.t, "pending", a.json["status"], "%s", a.body)
	require.Equal(h.t, false, a.json["auto"])
	d := h.do("ann", "POST", path(a.json["approval_id"].(string), "/decision"), code(with))
	require.Equal(h.t, http.StatusOK, d.StatusCode, "%s", d.body)
}

// threeMore requires that three further requests are approved by what a code remembered.
func (h *rig) threeMore(request map[string]any, with string) {
	h.t.Helper()
	for range 3 {
		a := h.submits(request)
		require.Equal(h.t, "approved", a.json["status"], "%s", a.body)
		require.Equal(h.t, true, a.json["auto"])
		require.Equal(h.t, with, a.json["decision"].(map[string]any)["code"])
	}
}

func (h *rig) pends(request map[string]any) {
	h.t.Helper()
	require.Equal(h.t, "pending", h.submits(request).json["status"])
}

// What an earlier gate's client was promised holds: for the session, or until the rule is
// deleted. The grant holds from the response to the decision.
func TestRememberedActions(t *testing.T) {
	for _, action := range []string{"http_request", "write_file", "send_message", "custom:x"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			h := newRig(t)
			same := func(session, preview string) map[string]any { return clientRequest(action, session, preview) }
			h.decidesPending(same("s1", "one"), "2")
			h.threeMore(same("s1", "two"), "2")
			h.pends(same("s2", "one"))
			h.pends(clientRequest("custom:other", "s1", "one"))

			h.decidesPending(same("s3", "one"), "6")
			h.threeMore(same("s4", "another"), "6")
			h.pends(clientRequest("custom:other", "s4", "one"))
			rules := h.do("agent", "GET", "/v1/allow-rules", nil).json["items"].([]any)
			require.Len(t, rules, 1)
			id := rules[0].(map[string]any)["id"].(string)
			require.Equal(t, http.StatusNoContent, h.do("agent", "DELETE", "/v1/allow-rules/"+id, nil).StatusCode)
			h.pends(same("s4", "another"))
			h.threeMore(same("s1", "the session's grant is another"), "2")
		})
	}
}

// Metadata comes back in every answer, and a receipt for a part is verified.
func TestMetadataAndArgsSubset(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	r := clientRequest("send_message", "s1", "hello")
	r["metadata"] = map[string]any{"trace": "7"}
	r["request_data"], r["args_subset"] = map[string]any{"to": []any{"ann", "bob"}}, []any{"to"}
	a := h.submits(r)
	require.Equal(t, r["metadata"], a.json["metadata"])
	id := a.json["approval_id"].(string)
	require.Equal(t, http.StatusOK, h.do("ann", "POST", path(id, "/decision"), code("1")).StatusCode)
	a = h.do("agent", "GET", path(id)+"?wait=30", nil)
	require.Equal(t, r["metadata"], a.json["metadata"])
	require.Equal(t, "approved", a.json["outcome"])
	verify := func(used string) map[string]any {
		v := h.do("agent", "POST", "/v1/receipts/verify", map[string]any{
			"receipt": a.json["receipt"], "request_data": r["request_data"], "args_subset": map[string]any{"to": []any{used}},
		})
		require.Equal(t, http.StatusOK, v.StatusCode, "%s", v.body)
		require.Equal(t, `["to"]`, v.json["args_subset"])
		return v.json
	}
	require.Equal(t, true, verify("bob")["valid"])
	require.Equal(t, false, verify("eve")["valid"])
	for name, bad := range map[string]any{"metadata": []any{}, "args_subset": []any{"cc"}} {
		other := clientRequest("send_message", "s1", "hello")
		other[name] = bad
		e := h.do("agent", "POST", "/v1/approvals", other)
		require.Equal(t, http.StatusUnprocessableEntity, e.StatusCode)
		require.Contains(t, e.json["detail"], name)
	}
}

// A grant for exec_cmd covers the same request, unless the workspace says otherwise.
func TestRememberedCommands(t *testing.T) {
	inData := func(session, command string) map[string]any {
		r := clientRequest("exec_cmd", session, "see below")
		r["request_data"] = map[string]any{"command": command}
		return r
	}
	inPreview := func(session, command string) map[string]any { return clientRequest("exec_cmd", session, command) }
	for name, tt := range map[string]struct {
		request func(session, command string) map[string]any
		command string
	}{"preview": {inPreview, clientCommand}, "request_data": {inData, "mkdir -p build"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newRig(t)
			h.decidesPending(tt.request("s1", tt.command), "2")
			h.threeMore(tt.request("s1", tt.command), "2")
			h.pends(tt.request("s1", tt.command+" -v"))
			h.pends(tt.request("s2", tt.command))
			h.decidesPending(tt.request("s2", tt.command), "6")
			h.threeMore(tt.request("s3", tt.command), "6")
			h.pends(tt.request("s3", tt.command+" -v"))
		})
	}
	t.Run("any", func(t *testing.T) {
		t.Parallel()
		h := newRig(t, func(h *rig) {
			ws := h.ws[home]
			ws.RememberExec = true
			h.ws[home] = ws
		})
		h.decidesPending(inPreview("s1", clientCommand), "2")
		h.threeMore(inPreview("s1", "another"), "2")
		h.pends(inPreview("s2", clientCommand))
		h.decidesPending(inPreview("s2", clientCommand), "6")
		h.threeMore(inData("s3", "sh -c anything"), "6")
	})
}

// A title and a preview beside request_data are no command: only request_data is compared.
func TestPreviewBesideACommand(t *testing.T) {
	h := newRig(t)
	opens := clientRequest("exec_cmd", "s1", "harmless")
	opens["request_data"] = map[string]any{"command": "sh -c anything"}
	id := h.submits(opens).json["approval_id"].(string)
	require.Equal(t, http.StatusUnprocessableEntity, h.do("ann", "POST", path(id, "/decision"), code("6")).StatusCode)
}

// A grant holds as soon as the decision is acknowledged, also while the request that it was
// given for still runs.
func TestGrantHoldsWhileTheFirstRuns(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	h := newRig(t)
	var once sync.Once
	h.Executor.Do = func(approval.Job) approval.Effect {
		once.Do(func() { close(started); <-release })
		return approval.Effect{Result: approval.Raw(`{"done":true}`)}
	}
	call := map[string]any{"tool_name": "run", "request_data": map[string]any{"text": "hi"}}
	h.decidesPending(call, "6")
	h.threeMore(call, "6")
	<-started
	h.threeMore(call, "6")
	close(release)
}

// Code 1 remembers nothing, whatever the tool's territory, and 2 and 6 remember what they
// say.
func TestOnceRemembersNothing(t *testing.T) {
	for _, territory := range []string{"", "none", "session", "permanent"} {
		for _, with := range []string{"1", "2", "6"} {
			t.Run(fmt.Sprintf("%s %s", territory, with), func(t *testing.T) {
				t.Parallel()
				h := newRig(t, func(h *rig) { h.territory = territory })
				call := map[string]any{"tool_name": "run", "session_id": "s1"}
				if with == "1" {
					h.decidesPending(call, with)
					require.Empty(t, h.GrantsIn(home))
					h.pends(call)
					return
				}
				id := h.submits(call).json["approval_id"].(string)
				d := h.do("ann", "POST", path(id, "/decision"), code(with))
				require.Equal(t, http.StatusOK, d.StatusCode, "%s", d.body)
				h.threeMore(call, with)
			})
		}
	}
}
