package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The HTTP form refuses pages, other hosts, requests without a key, and headers that say something else than the body.
// A key sees nothing of another one.
func TestMCPAttacksByHTTP(t *testing.T) {
	t.Parallel()
	h := newMCPRig(t)
	d := h.serve()
	d.awaitLog(`"serving"`)
	found := listenPattern.FindStringSubmatch(d.logged())
	require.NotNil(t, found)
	key := func(args ...string) string {
		code, out, errs := h.run("", append([]string{"key", "create", "default"}, args...)...)
		require.Zero(t, code, errs)
		return strings.TrimSpace(out)
	}
	mine, other, reader := key(), key(), key("--scope", "read")

	call := func(method, _, params string) string {
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
		if params != "" {
			params += ","
		}
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + meta + `}}`
	}
	headers := func(method, name string) map[string]string {
		return map[string]string{
			"Authorization": "Bearer " + mine, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
		}
	}
	send := func(method, body string, headers map[string]string) (int, string) {
		r, err := http.NewRequest(method, "http://"+found[1]+"/mcp", strings.NewReader(body))
		require.NoError(t, err)
		for name, value := range headers {
			switch {
			case name == "Host":
				r.Host = value
			case value != "":
				r.Header.Set(name, value)
			}
		}
		resp, err := (&http.Client{Timeout: testTimeout}).Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	ask := call("tools/call", "", `"name":"execute_approved","arguments":{"tool":"post","arguments":{"text":"x"}}`)
	good := func() map[string]string { return headers("tools/call", "execute_approved") }
	for _, row := range []struct {
		why, header, value string
		status             int
	}{
		{"DNS rebinding", "Host", "evil.example", http.StatusForbidden},
		{"a page", "Origin", "http://evil.example", http.StatusForbidden},
		{"a page of this machine", "Origin", "http://" + found[1], http.StatusForbidden},
		{"a page", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		{"no key", "Authorization", "", http.StatusUnauthorized},
		{"no such key", "Authorization", "Bearer x", http.StatusUnauthorized},
		{"a key that may only read", "Authorization", "Bearer " + reader, http.StatusForbidden},
		{"a form", "Content-Type", "application/x-www-form-urlencoded", http.StatusUnsupportedMediaType},
		{"plain text, which a page may send", "Content-Type", "text/plain", http.StatusUnsupportedMediaType},
		{"no method", "Mcp-Method", "", http.StatusBadRequest},
		{"another method", "Mcp-Method", "tools/list", http.StatusBadRequest},
		{"no name", "Mcp-Name", "", http.StatusBadRequest},
		{"another name", "Mcp-Name", "list_pending", http.StatusBadRequest},
		{"another version", "Mcp-Protocol-Version", "2025-11-25", http.StatusBadRequest},
	} {
		with := good()
		with[row.header] = row.value
		status, body := send(http.MethodPost, ask, with)
		require.Equal(t, row.status, status, "%s: %s", row.why, body)
		require.NotContains(t, body, mine)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
		status, _ := send(method, "", good())
		require.Equal(t, http.StatusMethodNotAllowed, status, method)
	}
	for _, body := range []string{"", "{", "[]", "[" + ask + "," + ask + "]", strings.Repeat("[", 100_000), `{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/list"}`} {
		status, answer := send(http.MethodPost, body, good())
		require.True(t, status >= 400 && status < 500 || strings.Contains(answer, `"error"`), "%.40s: %d %.200s", body, status, answer)
	}
	status, _ := send(http.MethodPost, `{"x":"`+strings.Repeat("a", 2<<20)+`"}`, good())
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	asked, err := os.ReadDir(h.layout.Pendings("default"))
	require.NoError(t, err)
	require.Empty(t, asked, "nothing of this has asked")

	// A task is its client's.
	status, body := send(http.MethodPost, ask, good())
	require.Equal(t, http.StatusOK, status, body)
	var made struct {
		Result struct {
			Type string `json:"resultType"`
			ID   string `json:"taskId"`
		} `json:"result"`
	}
	require.NoError(t, json.Unmarshal([]byte(dataOf(body)), &made), body)
	require.Equal(t, "task", made.Result.Type)
	task := made.Result.ID
	id := h.awaitUndecided()
	require.Contains(t, task, id+".")
	get := call("tasks/get", task, fmt.Sprintf(`"taskId":%q`, task))
	with := headers("tasks/get", task)
	_, body = send(http.MethodPost, get, with)
	require.Contains(t, body, `"status":"working"`)
	require.Contains(t, body, "asked: ann")
	for _, row := range []struct{ why, header, value string }{
		{"another key", "Authorization", "Bearer " + other},
		{"another name", "Mcp-Name", id},
		{"no name", "Mcp-Name", ""},
	} {
		with := headers("tasks/get", task)
		with[row.header] = row.value
		_, body = send(http.MethodPost, get, with)
		require.Contains(t, body, `"error"`, row.why)
		require.NotContains(t, body, "working", row.why)
	}
	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		for _, handle := range []string{"", id, id + ".", strings.ToUpper(task), task + "A", task[:len(task)-1], "../" + task} {
			_, body = send(http.MethodPost, call(method, handle, fmt.Sprintf(`"taskId":%q`, handle)), headers(method, handle))
			require.Contains(t, body, `"error"`, "%s %s", method, handle)
		}
	}
	_, body = send(http.MethodPost, call("tasks/cancel", task, fmt.Sprintf(`"taskId":%q`, task)), headers("tasks/cancel", task))
	require.Contains(t, body, `"resultType":"complete"`)
	_, body = send(http.MethodPost, get, with)
	require.Contains(t, body, `"status":"cancelled"`)
	require.Empty(t, h.ran())
}

// dataOf is the last message of a stream of events, or the message itself.
func dataOf(body string) string {
	if i := strings.LastIndex(body, "data: "); i >= 0 {
		body, _, _ = strings.Cut(body[i+len("data: "):], "\n")
	}
	return body
}
