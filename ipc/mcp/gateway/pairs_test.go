package gateway

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// Every client with every server: all that the protocol has.
func TestEveryPair(t *testing.T) {
	for _, client := range []string{wire.Version20251125, wire.Version20260728} {
		for _, of := range []string{wire.Version20251125, wire.Version20260728} {
			t.Run("client "+client+", server "+of, func(t *testing.T) { testPair(t, client, of) })
		}
	}
}

func testPair(t *testing.T, client, of string) {
	r := newRig(t, sdk(t, server(of)), nil)
	lists, updates, progress := make(chan bool, 10), make(chan string, 10), make(chan string, 10)
	elicit := func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		require.Equal(t, "name?", q.Params.Message)
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
	}
	s := r.client(client, &mcp.ClientOptions{
		ElicitationHandler:          elicit,
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { lists <- true },
		ResourceUpdatedHandler:      func(_ context.Context, q *mcp.ResourceUpdatedNotificationRequest) { updates <- q.Params.URI },
		ProgressNotificationHandler: func(_ context.Context, q *mcp.ProgressNotificationClientRequest) { progress <- q.Params.Message },
	})
	require.Equal(t, "test", s.InitializeResult().ServerInfo.Name)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	call := func(name string, arguments any) string {
		result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
		return textOf(t, result, err)
	}

	tools, err := s.ListTools(ctx, nil)
	require.NoError(t, err)
	require.Len(t, tools.Tools, 7)
	require.Equal(t, `echo {"n":1}`, call("echo", map[string]any{"n": 1}))
	_, err = s.CallTool(ctx, &mcp.CallToolParams{Name: "fail", Arguments: map[string]any{}})
	require.ErrorContains(t, err, "it failed")
	require.Equal(t, "accept Ada, state mine", call("ask", map[string]any{}))
	require.Contains(t, call("echo", map[string]any{"n": "one"}), "The arguments do not fit the tool's inputSchema")

	params := &mcp.CallToolParams{Name: "progress", Arguments: map[string]any{}}
	params.SetProgressToken("tok")
	_, err = s.CallTool(ctx, params)
	require.NoError(t, err)
	require.Equal(t, "half", <-progress)

	resources, err := s.ListResources(ctx, nil)
	require.NoError(t, err)
	require.Len(t, resources.Resources, 1)
	read, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///r"})
	require.NoError(t, err)
	require.Equal(t, "content", read.Contents[0].Text)
	prompt, err := s.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p"})
	require.NoError(t, err)
	require.Len(t, prompt.Messages, 1)
	complete, err := s.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "p"}, Argument: mcp.CompleteParamsArgument{Name: "city", Value: "p"}})
	require.NoError(t, err)
	require.Equal(t, []string{"paris"}, complete.Completion.Values)
	if !wire.Stateless(client) {
		require.NoError(t, s.Ping(ctx, nil))
	}

	require.Equal(t, "added", call("more", map[string]any{}))
	<-lists // before other streams: when one of those ends, the SDK's server forgets this one

	require.NoError(t, s.Subscribe(ctx, &mcp.SubscribeParams{URI: "file:///r"}))
	require.Eventually(t, func() bool { // the SDK's client of 2026-07-28 does not wait until it listens
		call("touch", map[string]any{})
		return len(updates) > 0
	}, patience, 10e6)
	require.Equal(t, "file:///r", <-updates)
	require.NoError(t, s.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: "file:///r"}))

	stopped, stop := context.WithCancel(ctx)
	r.judge.decide = func(context.Context, Call) (Verdict, error) { stop(); return Verdict{}, nil }
	_, err = s.CallTool(stopped, &mcp.CallToolParams{Name: "wait", Arguments: map[string]any{}})
	require.ErrorIs(t, err, context.Canceled)

	for _, c := range r.judge.seen() {
		require.Equal(t, "mcp.srv."+c.Name, c.Tool)
		require.Equal(t, wire.Stateless(client), c.Stateless)
		require.Empty(t, c.State)
	}
}
