package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/client"
)

// quick is a gate whose policy decides at once.
type quick struct{ *gate }

func (q quick) Ask(ctx context.Context, r approval.Request) (client.Submitted, error) {
	s, err := q.gate.Ask(ctx, r)
	if err == nil {
		q.end(s.ID, approval.StatusAutoApproved)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ends[s.ID].Decision = approval.ResponseDecision{Auto: true}
	}
	return s, err
}

// serve connects the official client with a server.
func serve(t *testing.T, w *Waiter, version string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return serveOn(t, &Server{Waiter: w, Version: "1"}, version, o)
}

func serveOn(t *testing.T, serving *Server, version string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serving.Run(t.Context(), fromClient, toClient) }()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	s, err := c.Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = s.Close()
		require.NoError(t, <-ended)
	})
	return s
}

// lines sends lines to a server, and returns each that it answers. It is for what the SDK's client cannot see or send.
func lines(t *testing.T, serving *Server) func(line string) (answer string) {
	t.Helper()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serving.Run(t.Context(), fromClient, toClient) }()
	t.Cleanup(func() {
		require.NoError(t, toServer.Close())
		require.NoError(t, <-ended)
	})
	answers := bufio.NewReader(fromServer)
	return func(line string) string {
		_, err := io.WriteString(toServer, line+"\n")
		require.NoError(t, err)
		answer, err := answers.ReadString('\n')
		require.NoError(t, err)
		return answer
	}
}

// posts sends the same by HTTP.
func posts(t *testing.T, serving *Server) func(line string) (answer string) {
	t.Helper()
	s := httptest.NewServer(Handler("1", func(*http.Request) (*Server, error) { return serving, nil }))
	t.Cleanup(s.Close)
	return func(line string) string {
		var m struct {
			Method string `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(line))
		require.NoError(t, err)
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": newRevision, "Mcp-Method": m.Method, "Mcp-Name": m.Params.Name,
		} {
			r.Header.Set(name, value)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return string(b)
	}
}

// message is one of the client of 2026-07-28.
func message(method, params string) string {
	if params != "" {
		params += ","
	}
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + newRevision +
		`","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
}

// What a client may keep, it keeps for itself. A round has no content.
func TestResultsOnTheWire(t *testing.T) {
	for name, by := range map[string]func(*testing.T, *Server) func(string) string{"stdio": lines, "http": posts} {
		t.Run(name, func(t *testing.T) {
			w := newWaiter(t, newGate())
			w.Hold = time.Second
			send := by(t, &Server{Waiter: w, Version: "1"})
			for _, method := range []string{"server/discover", "tools/list"} {
				require.Contains(t, send(message(method, "")), `"ttlMs":300000,"cacheScope":"private"`)
			}
			round := send(message("tools/call", `"name":"execute_approved","arguments":{"tool":"x","arguments":{}}`))
			require.Contains(t, round, `"resultType":"input_required"`)
			require.NotContains(t, round, "null")
		})
	}
}

// What is no message has an answer, and ends nothing.
func TestLinesThatAreNoMessages(t *testing.T) {
	send := lines(t, &Server{Waiter: newWaiter(t, newGate()), Version: "1"})
	for line, code := range map[string]string{
		"garbage": "-32700", `{"jsonrpc":"2.0","id":1,`: "-32700", `{"jsonrpc":"2.0"} {}`: "-32700", "\x00\xff": "-32700",
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`: "-32700",
		`{"no":"message"}`: "-32600", `42`: "-32600", `[]`: "-32600", `{"jsonrpc":"1.0","id":1,"method":"ping"}`: "-32600",
	} {
		require.Contains(t, send(line), `{"jsonrpc":"2.0","id":null,"error":{"code":`+code+`,`, "%.50s", line)
	}
	require.Contains(t, send("\r\n \t\n"+message("tools/list", "")+"\r"), `"execute_approved"`)
}

// The methods for tasks are for clients that declare them, and the result of a task is received with it.
func TestMethodsForTasks(t *testing.T) {
	g := newGate()
	w := newWaiter(t, g)
	send := lines(t, &Server{Waiter: w, Version: "1"})
	declared := func(method, params string) string {
		return strings.Replace(message(method, params), `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"`+tasksName+`":{}}}`, 1)
	}
	ask := `"name":"execute_approved","arguments":{"tool":"x","arguments":{}}`
	handle := func(answer string) string {
		_, rest, ok := strings.Cut(answer, `"taskId":"`)
		require.True(t, ok, answer)
		id, _, _ := strings.Cut(rest, `"`)
		return id
	}
	task := handle(send(declared("tools/call", ask)))
	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		require.Contains(t, send(message(method, `"taskId":"`+task+`"`)), `"code":-32021`, method)
		require.Contains(t, send(declared(method, `"taskId":"`+task+`x"`)), `"code":-32602`, method)
	}
	require.Contains(t, send(declared("tasks/update", `"taskId":"`+task+`"`)), `"resultType":"complete"`)
	g.end(g.ids()[0], approval.StatusApproved)
	require.Contains(t, send(declared("tasks/get", `"taskId":"`+task+`"`)), `"status":"completed"`)
	next := handle(send(declared("tools/call", ask)))
	require.NotEqual(t, task, next, "the result was received")
	require.Equal(t, 2, g.requests())
	require.Contains(t, send(declared("tasks/cancel", `"taskId":"`+next+`"`)), `"resultType":"complete"`)
	cancelled := send(declared("tasks/get", `"taskId":"`+next+`"`))
	require.Contains(t, cancelled, `"status":"cancelled"`)
	require.NotContains(t, cancelled, `"completed"`)
	require.NotEqual(t, next, handle(send(declared("tools/call", ask))), "that was received, too")
}

// A call after a result is a new one, however fast it comes.
func TestNextCallIsNew(t *testing.T) {
	g := newGate()
	w := newWaiter(t, g)
	w.Gate = quick{g}
	s := serve(t, w, "2026-07-28", nil)
	for n := range 300 {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "execute_approved", Arguments: map[string]any{"tool": "x", "arguments": map[string]any{}}})
		require.NoError(t, err)
		require.False(t, r.IsError)
		require.Equal(t, n+1, g.requests())
	}
}

// The SDK's client takes up both rounds by itself, and hears how it stands.
func TestRoundsOfTheSDK(t *testing.T) {
	g := newGate()
	w := newWaiter(t, g)
	w.Hold = time.Second
	s := serve(t, w, "2026-07-28", nil)
	params := &mcp.CallToolParams{Name: "execute_approved", Arguments: map[string]any{"tool": "x", "arguments": map[string]any{}}}
	r, err := s.CallTool(t.Context(), params)
	require.NoError(t, err, "it gives up after three rounds: there are two")
	require.True(t, r.IsError)
	require.Contains(t, r.Content[0].(*mcp.TextContent).Text, "call again with the same arguments")
	g.end(g.ids()[0], approval.StatusApproved)
	r, err = s.CallTool(t.Context(), params)
	require.NoError(t, err)
	require.False(t, r.IsError)
	require.Equal(t, 1, g.requests())
}

// What an agent writes wrong is an answer to it, and asks no one.
func TestWrongArguments(t *testing.T) {
	g := newGate()
	w := newWaiter(t, g)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		s := serve(t, w, version, nil)
		for _, row := range []struct {
			tool, want string
			args       map[string]any
		}{
			{"execute_approved", "tool_name, action_type or program is required", map[string]any{"arguments": map[string]any{}}},
			{"execute_approved", "unknown", map[string]any{"tool": "x", "arguments": map[string]any{}, "by": "ann"}},
			{"execute_approved", "tool_name must be", map[string]any{"tool": "x\u202e", "arguments": map[string]any{}}},
			{"request_approval", "action_type must be", map[string]any{"action": "pay", "arguments": map[string]any{}}},
			{"run_program", "action_type or program is required", map[string]any{"program": ""}},
			{"run_program", "continues must be", map[string]any{"program": "def main(): pass", "continues": "../../etc"}},
			{"run_program", "unknown", map[string]any{"program": "def main(): pass", "tools": []string{"x"}}},
			{"wait_for_approval", "no such request", map[string]any{"request_id": "../../etc"}},
			{"cancel_request", "no such request", map[string]any{}},
			{"ask_user", "", map[string]any{"question": ""}},
			{"execute_approved", "expires_in_sec must be at least 1", map[string]any{"tool": "x", "arguments": map[string]any{}, "expires_in_sec": 0}},
			{"request_approval", "expires_in_sec must be at least 1", map[string]any{"action": "exec_cmd", "arguments": map[string]any{}, "expires_in_sec": -1}},
		} {
			r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: row.tool, Arguments: row.args})
			require.NoError(t, err, row.tool)
			require.True(t, r.IsError, row.tool)
			text := r.Content[0].(*mcp.TextContent).Text
			require.Contains(t, text, row.want)
			require.NotContains(t, text, "file does not exist")
		}
		_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "approve"})
		require.ErrorContains(t, err, "unknown tool")
	}
	require.Zero(t, g.requests())
}

// The client may show that a request waits. What it answers approves nothing; a form answers a question, marked so.
func TestElicitation(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			g := newGate()
			w := newWaiter(t, g)
			shown := make(chan *mcp.ElicitParams, 10)
			answer := &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "blue"}}
			o := &mcp.ClientOptions{
				Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}}},
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					shown <- r.Params
					if r.Params.Mode == "url" {
						return &mcp.ElicitResult{Action: "accept"}, nil
					}
					return answer, nil
				},
			}
			serving := &Server{Waiter: w, Version: "1", Notify: true, Page: func(id string) string { return "http://127.0.0.1:1/r/default/" + id }}
			s := serveOn(t, serving, version, o)
			ask := &mcp.CallToolParams{Name: "ask_user", Arguments: map[string]any{"question": "Which?", "options": []any{"red", "blue"}}}
			r, err := s.CallTool(t.Context(), ask)
			require.NoError(t, err)
			data := r.StructuredContent.(map[string]any)
			require.Equal(t, "blue", data["answer"])
			require.Equal(t, "the agent's client", data["answered_in"])
			require.Equal(t, false, data["approved"])
			form := <-shown
			require.Equal(t, "form", form.Mode)
			require.Equal(t, "Which?", form.Message)
			require.Len(t, g.cancelled, 1, "the gate no longer asks")

			answer = &mcp.ElicitResult{Action: "decline"}
			done := make(chan *mcp.CallToolResult, 1)
			call := func(p *mcp.CallToolParams) {
				r, err := s.CallTool(t.Context(), p)
				if err != nil {
					r = &mcp.CallToolResult{IsError: true}
				}
				done <- r
			}
			go call(ask)
			<-shown
			g.end(g.open(), approval.StatusDenied)
			require.True(t, (<-done).IsError, "who declines the form has not answered: a person has")

			go call(&mcp.CallToolParams{Name: "execute_approved", Arguments: map[string]any{"tool": "x", "arguments": map[string]any{}}})
			page := <-shown
			require.Equal(t, "url", page.Mode)
			require.Equal(t, "http://127.0.0.1:1/r/default/"+g.open(), page.URL)
			require.Empty(t, done, "what the client accepts is no approval")
			g.end(g.open(), approval.StatusApproved)
			require.False(t, (<-done).IsError)

			serving.Notify = false
			go call(ask)
			id := ""
			for id == "" || g.ends[id] != nil { // of the calls before
				id = <-g.asks
			}
			g.end(id, approval.StatusDenied)
			<-done
			require.Empty(t, shown)
		})
	}
}

// open is the request that has not ended, "" if there is none.
func (g *gate) open() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.asked {
		if g.ends[id] == nil {
			return id
		}
	}
	return ""
}

// byAgent is a gate that ends all requests as those for calls that the agent itself executes.
type byAgent struct{ *gate }

func (b byAgent) Await(ctx context.Context, s client.Submitted) (*approval.Response, error) {
	b.end(s.ID, approval.StatusApproved)
	b.mu.Lock()
	b.ends[s.ID].Result = approval.Raw(`{}`)
	if s.Tool != "" {
		b.ends[s.ID].Execution = approval.ExecutionAgent
	}
	b.mu.Unlock()
	return b.gate.Await(ctx, s)
}

// An approval of what has not run on the host does not look like a result.
func TestWhatHasNotRun(t *testing.T) {
	g := newGate()
	w := newWaiter(t, g)
	w.Gate = byAgent{g}
	s := serve(t, w, "2026-07-28", nil)
	call := func(name string, args map[string]any) (*mcp.CallToolResult, map[string]any, string) {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		require.NoError(t, err)
		return r, r.StructuredContent.(map[string]any), r.Content[0].(*mcp.TextContent).Text
	}
	r, data, text := call("execute_approved", map[string]any{"tool": "mcp.mail.send", "arguments": map[string]any{}})
	require.True(t, r.IsError)
	require.Equal(t, false, data["approved"])
	require.NotContains(t, data, "result")
	require.Contains(t, text, "nothing has run: mcp.mail.send is a tool that the agent itself executes, not the host. Call that tool itself")
	require.Contains(t, text, data["error"])

	_, data, _ = call("request_approval", map[string]any{"action": "exec_cmd", "arguments": map[string]any{"cmd": "ls"}})
	r, data, text = call("wait_for_approval", map[string]any{"request_id": data["request_id"]})
	require.False(t, r.IsError)
	require.Equal(t, true, data["approved"])
	require.NotContains(t, data, "result")
	require.Equal(t, "Approved by ann. Nothing has run: do it yourself now, once and as it was asked", text)
}

// patient is a gate whose approver approves what a caller waits for.
type patient struct{ *gate }

func (p patient) Await(ctx context.Context, s client.Submitted) (*approval.Response, error) {
	p.end(s.ID, approval.StatusApproved)
	return p.gate.Await(ctx, s)
}

// A permission prompt has one form, also for a client that knows tasks: a task would give one approval to many callers.
func TestPermissionPromptIsNoTask(t *testing.T) {
	g := newGate()
	w := newWaiter(t, g)
	w.Gate = patient{g}
	named := ""
	serving := &Server{Waiter: w, Version: "1", Permit: func(client, tool string, input approval.Raw) (approval.Request, error) {
		named = client
		return approval.Request{ToolName: tool, RequestData: input, Execution: approval.ExecutionAgent}, nil
	}}
	o := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{Extensions: map[string]any{tasksName: map[string]any{}}}}
	s := serveOn(t, serving, "2026-07-28", o)
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "permission_prompt", Arguments: map[string]any{"tool_name": "Bash", "input": map[string]any{}}})
	require.NoError(t, err)
	require.Len(t, r.Content, 1)
	require.Contains(t, r.Content[0].(*mcp.TextContent).Text, "was approved for the host to run, not for the agent", "it was held until it had ended")
	require.Equal(t, "test", named)
}
