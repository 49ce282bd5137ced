package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// npmServer is one of the servers of the protocol's own project, from npm; testdata/mcp/package.json has the versions.
func npmServer(t *testing.T, name string, arguments ...string) Process {
	dir, err := botapi.Install(t.Context(), "mcp", os.DirFS("../../../testdata/mcp/servers"))
	require.NoError(t, err, "hint: this needs npm and a reachable registry; run npm ci in testdata/mcp/servers")
	program := filepath.Join(dir, "node_modules/@modelcontextprotocol", name, "dist/index.js")
	return Process{Command: append([]string{"node", program}, arguments...)}
}

// toolCall is one of a tool, with its arguments.
type toolCall struct{ tool, arguments string }

// everyTool compares what the tools of a server answer through a gateway with what they answer directly. fresh makes the
// same conditions for both.
func everyTool(t *testing.T, p Process, calls []toolCall, fresh func()) {
	fresh()
	tr, err := p.Connect(t.Context())
	require.NoError(t, err)
	direct, err := wire.Connect(t.Context(), tr, wire.Options{Prefer: wire.Version20251125})
	require.NoError(t, err)
	list, err := direct.Call(t.Context(), "tools/list", nil)
	require.NoError(t, err)
	requireAllCalled(t, list, calls)
	var want []approval.Raw
	for _, c := range calls {
		result, err := direct.Call(t.Context(), "tools/call", approval.Raw(`{"name":"`+c.tool+`","arguments":`+c.arguments+`}`))
		var refused *jsonrpc.Error
		if errors.As(err, &refused) {
			result, err = json.Marshal(refused)
		}
		require.NoError(t, err, c.tool)
		want = append(want, result)
	}
	require.NoError(t, direct.Close())

	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		fresh()
		r := newRig(t, p.Connect, nil)
		meta := ""
		if wire.Stateless(version) {
			meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		} else {
			r.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`)
			r.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			same(t, string(list), string(r.result("tools/list", `{}`)))
		}
		for i, c := range calls {
			got := r.result("tools/call", `{"name":"`+c.tool+`","arguments":`+c.arguments+meta+`}`)
			expected := want[i]
			if _, is, err := wire.Member(expected, "content"); wire.Stateless(version) && is {
				require.NoError(t, err)
				expected, err = wire.With(expected, "resultType", approval.Raw(`"complete"`))
				require.NoError(t, err)
			}
			same(t, timeless(expected), timeless(got), c.tool+" "+version)
		}
		require.Len(t, r.judge.seen(), len(calls))
	}
}

// result sends a request and reads until its answer.
func (r *rig) result(method, params string) approval.Raw {
	text := r.request(method, params)
	for {
		var l line
		require.NoError(r.t, json.Unmarshal([]byte(text), &l))
		switch {
		case string(l.ID) != fmt.Sprint(r.last):
			text = r.read()
		case len(l.Error) > 0:
			return approval.Raw(l.Error)
		default:
			return approval.Raw(l.Result)
		}
	}
}

var times = regexp.MustCompile(`[A-Z][a-z]{2} [A-Z][a-z]{2} \d{2} 20\d{2} [^\\"]*|20\d{2}-\d{2}-\d{2}T[0-9:.]*Z|\d{1,2}:\d{2}:\d{2} [AP]M`)

// timeless has no times: those of two calls differ.
func timeless(b approval.Raw) string { return times.ReplaceAllString(string(b), "TIME") }

func requireAllCalled(t *testing.T, list approval.Raw, calls []toolCall) {
	var l struct{ Tools []struct{ Name string } }
	require.NoError(t, json.Unmarshal(list, &l))
	for _, tool := range l.Tools {
		require.True(t, slices.ContainsFunc(calls, func(c toolCall) bool { return c.tool == tool.Name }), "no call of %s", tool.Name)
	}
}

func TestEveryToolOfServerEverything(t *testing.T) {
	everyTool(t, npmServer(t, "server-everything", "stdio"), []toolCall{
		{"echo", `{"message":"hé \"<>\" \u2028"}`},
		{"get-annotated-message", `{"messageType":"error","includeImage":true}`},
		{"get-env", `{}`},
		{"get-resource-links", `{"count":4}`},
		{"get-resource-reference", `{"resourceType":"Text","resourceId":2}`},
		{"get-structured-content", `{"location":"Chicago"}`},
		{"get-sum", `{"a":1.5,"b":2}`},
		{"get-tiny-image", `{}`},
		{"gzip-file-as-resource", `{"name":"a.gz","data":"data:text/plain,abc","outputType":"resource"}`},
		{"toggle-simulated-logging", `{}`},
		{"toggle-subscriber-updates", `{}`},
		{"trigger-long-running-operation", `{"duration":0.02,"steps":2}`},
		{"simulate-research-query", `{"topic":"a"}`}, // an error: it wants to be a task
	}, func() {})
}

func TestEveryToolOfServerFilesystem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	in := func(s string) string { return strings.ReplaceAll(s, "DIR", dir) }
	calls := []toolCall{
		{"read_file", `{"path":"DIR/a.txt"}`},
		{"read_text_file", `{"path":"DIR/a.txt","head":1}`},
		{"read_text_file", `{"path":"/etc/passwd"}`},
		{"read_media_file", `{"path":"DIR/a.png"}`},
		{"read_multiple_files", `{"paths":["DIR/a.txt","DIR/none"]}`},
		{"write_file", `{"path":"DIR/b.txt","content":"b\n"}`},
		{"edit_file", `{"path":"DIR/b.txt","edits":[{"oldText":"b","newText":"c"}]}`},
		{"create_directory", `{"path":"DIR/sub"}`},
		{"list_directory", `{"path":"DIR"}`},
		{"list_directory_with_sizes", `{"path":"DIR"}`},
		{"directory_tree", `{"path":"DIR"}`},
		{"move_file", `{"source":"DIR/b.txt","destination":"DIR/sub/b.txt"}`},
		{"search_files", `{"path":"DIR","pattern":"**/*.txt"}`},
		{"get_file_info", `{"path":"DIR/a.txt"}`},
		{"list_allowed_directories", `{}`},
	}
	for i := range calls {
		calls[i].arguments = in(calls[i].arguments)
	}
	everyTool(t, npmServer(t, "server-filesystem", dir), calls, func() {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\ntwo\n"), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.png"), []byte("\x89PNG"), 0o644))
	})

	r := newRig(t, npmServer(t, "server-filesystem", dir).Connect, nil)
	s := r.client(wire.Version20251125, nil)
	write := func(name string) (*mcp.CallToolResult, error) {
		return s.CallTool(t.Context(), &mcp.CallToolParams{Name: "write_file", Arguments: map[string]any{"path": filepath.Join(dir, name), "content": "x"}})
	}
	r.judge.decide = func(context.Context, Call) (Verdict, error) { return Verdict{}, errors.New("Denied by user") }
	result, err := write("denied")
	require.Equal(t, "Denied by user", textOf(t, result, err))
	require.NoFileExists(t, filepath.Join(dir, "denied"))
	r.judge.decide = nil
	result, err = write("allowed")
	require.Contains(t, textOf(t, result, err), "Successfully wrote")
	require.FileExists(t, filepath.Join(dir, "allowed"))
}

// The rest of the protocol through server-everything, for both clients.
func TestServerEverything(t *testing.T) {
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, npmServer(t, "server-everything", "stdio").Connect, nil)
			progress, updates := make(chan float64, 100), make(chan string, 100)
			s := r.client(version, &mcp.ClientOptions{
				Capabilities: &mcp.ClientCapabilities{},
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "decline"}, nil
				},
				ProgressNotificationHandler: func(_ context.Context, q *mcp.ProgressNotificationClientRequest) { progress <- q.Params.Progress },
				ResourceUpdatedHandler:      func(_ context.Context, q *mcp.ResourceUpdatedNotificationRequest) { updates <- q.Params.URI },
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			call := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 0.1, "steps": 2}}
			call.SetProgressToken("p")
			_, err := s.CallTool(ctx, call)
			require.NoError(t, err)
			require.InDelta(t, 1.0, <-progress, 0)

			require.Eventually(t, func() bool { // the tool comes when the server has seen the capability
				result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "trigger-elicitation-request", Arguments: map[string]any{}})
				return err == nil && strings.Contains(fmt.Sprint(textOf(t, result, err)), "declined")
			}, patience, 1e7)

			resources, err := s.ListResources(ctx, nil)
			require.NoError(t, err)
			require.NotEmpty(t, resources.Resources)
			read, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: resources.Resources[0].URI})
			require.NoError(t, err)
			require.NotEmpty(t, read.Contents)
			prompts, err := s.ListPrompts(ctx, nil)
			require.NoError(t, err)
			require.NotEmpty(t, prompts.Prompts)
			_, err = s.GetPrompt(ctx, &mcp.GetPromptParams{Name: "simple-prompt"})
			require.NoError(t, err)

			const uri = "demo://resource/dynamic/text/1"
			require.NoError(t, s.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}))
			require.Eventually(t, func() bool { // the server tells by a clock, which the tool starts and stops
				_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "toggle-subscriber-updates", Arguments: map[string]any{}})
				return err == nil && len(updates) > 0
			}, patience, 1e8)
			require.Equal(t, uri, <-updates)

			stopped, stop := context.WithCancel(ctx)
			r.judge.decide = func(context.Context, Call) (Verdict, error) { stop(); return Verdict{}, nil }
			_, err = s.CallTool(stopped, &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 600}})
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}
