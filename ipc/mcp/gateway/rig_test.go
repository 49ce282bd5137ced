package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

const patience = 2 * time.Minute

// fakeJudge allows what its function does not decide.
type fakeJudge struct {
	decide func(context.Context, Call) (Verdict, error)

	mu    sync.Mutex
	calls []Call
	ends  []string
}

func (j *fakeJudge) Judge(ctx context.Context, c Call) (Verdict, error) {
	j.mu.Lock()
	j.calls = append(j.calls, c)
	decide := j.decide
	j.mu.Unlock()
	v := Verdict{}
	if decide != nil {
		var err error
		if v, err = decide(ctx, c); err != nil || len(v.Result) > 0 {
			return v, err
		}
	}
	v.Done = func(result approval.Raw, err error) (approval.Raw, error) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if err != nil {
			j.ends = append(j.ends, "error: "+err.Error())
			return nil, err
		}
		j.ends = append(j.ends, string(result))
		return result, nil
	}
	return v, nil
}

func (j *fakeJudge) seen() []Call {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.calls)
}

func (j *fakeJudge) ended() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.ends)
}

// rig is a gateway with both of its ends.
type rig struct {
	t      *testing.T
	g      *Gateway
	judge  *fakeJudge
	notes  chan string
	to     io.WriteCloser
	from   io.ReadCloser
	served chan error
	err    error // of Serve

	lines *bufio.Scanner
	last  int
}

type connecting = func(context.Context) (mcp.Transport, error)

func newRig(t *testing.T, connect connecting, change func(*Options)) *rig {
	r := &rig{t: t, judge: &fakeJudge{}, notes: make(chan string, 1000), served: make(chan error, 1)}
	pins, err := OpenPins(t.TempDir(), "srv")
	require.NoError(t, err)
	o := Options{
		Server: "srv", Identity: approval.Raw(`{"command":["srv"]}`), Connect: connect, Judge: r.judge, Pins: pins,
		Note: func(text string) {
			select {
			case r.notes <- text:
			default:
			}
		},
	}
	if change != nil {
		change(&o)
	}
	r.g, err = New(o)
	require.NoError(t, err)
	in, to := io.Pipe()
	from, out := io.Pipe()
	r.to, r.from = to, from
	var client io.Writer = out
	if gate, ok := o.Judge.(*Gate); ok {
		client = gate.Watch(out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		r.served <- r.g.Serve(ctx, in, client)
		_ = out.Close()
	}()
	t.Cleanup(func() {
		_ = to.Close()
		_ = from.Close()
		cancel()
		r.err = <-r.served
	})
	return r
}

// same compares bytes: an equal value is not enough.
func same(t *testing.T, want, got string, why ...any) {
	t.Helper()
	require.Equal(t, want, got, why...)
}

// client is one of the official SDK.
func (r *rig) client(version string, o *mcp.ClientOptions) *mcp.ClientSession {
	c := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "3"}, o)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	s, err := c.Connect(ctx, &mcp.IOTransport{Reader: r.from, Writer: r.to}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = s.Close() })
	require.Equal(r.t, version, s.InitializeResult().ProtocolVersion)
	return s
}

// write and read are the client's lines.
func (r *rig) write(line string) {
	_, err := io.WriteString(r.to, line+"\n")
	require.NoError(r.t, err)
}

func (r *rig) read() string {
	if r.lines == nil {
		r.lines = bufio.NewScanner(r.from)
		r.lines.Buffer(nil, 64<<20)
	}
	require.True(r.t, r.lines.Scan(), "no more lines")
	r.judge.seen() // what the judge has read was before
	return r.lines.Text()
}

const newMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}}}}`

// request sends one and returns the next line.
func (r *rig) request(method, params string) string {
	r.last++
	r.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}`, r.last, method, params))
	return r.read()
}

func (r *rig) initialize() string {
	answer := r.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"sampling":{},"roots":{}},"clientInfo":{"name":"raw","version":"1"}}`)
	r.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return answer
}

// sdk starts a server of the official SDK for every connection.
func sdk(t *testing.T, s *mcp.Server) connecting {
	return func(context.Context) (mcp.Transport, error) {
		toServer, fromServer := newPipe(), newPipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.Run(context.Background(), &mcp.IOTransport{Reader: toServer.r, Writer: fromServer.w})
			_ = fromServer.w.Close()
		}()
		t.Cleanup(func() {
			_ = toServer.w.Close()
			<-ended
		})
		return &mcp.IOTransport{Reader: fromServer.r, Writer: toServer.w}, nil
	}
}

type ends struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newPipe() (e ends) {
	e.r, e.w = io.Pipe()
	return e
}

// scripted is a server of a test, line by line.
type scripted struct {
	in  *bufio.Scanner
	out *io.PipeWriter
}

// script runs serve for every connection. serve returns when the server ends.
func script(t *testing.T, serve func(s *scripted)) connecting {
	return func(context.Context) (mcp.Transport, error) {
		toServer, fromServer := newPipe(), newPipe()
		s := &scripted{bufio.NewScanner(toServer.r), fromServer.w}
		s.in.Buffer(nil, 64<<20)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			serve(s)
			_ = fromServer.w.Close()
			_ = toServer.r.Close()
		}()
		t.Cleanup(func() {
			_ = toServer.w.Close()
			_ = fromServer.r.Close()
			<-ended
		})
		return &mcp.IOTransport{Reader: fromServer.r, Writer: toServer.w, MaxLineLength: maxLine}, nil
	}
}

type line struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// each answers every request with the result that answer gives, and initialize or server/discover with the version's; ""
// is no answer.
func (s *scripted) each(version string, answer func(l line) (result string)) {
	for s.in.Scan() {
		var l line
		if json.Unmarshal(s.in.Bytes(), &l) != nil {
			return
		}
		result := ""
		switch {
		case l.Method == "initialize" && !wire.Stateless(version):
			result = `{"protocolVersion":"` + version + `","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"serverInfo":{"name":"scripted","version":"1"}}`
		case l.Method == "server/discover" && wire.Stateless(version):
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"extensions":{"x/y":{}}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}}`
		case l.Method == "initialize" || l.Method == "server/discover":
			s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, l.ID))
			continue
		default:
			if result = answer(l); result == "end" {
				return
			}
		}
		if result != "" && len(l.ID) > 0 {
			s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, l.ID, result))
		}
	}
}

func (s *scripted) write(text string) { _, _ = io.WriteString(s.out, text+"\n") }

const echoTool = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`

// server is one of the official SDK with a tool of each kind.
func server(versions ...string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{
		SupportedProtocolVersions: versions,
		SubscribeHandler:          func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"paris"}}}, nil
		},
	})
	if len(versions) == 1 && wire.Stateless(versions[0]) {
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
				if method == "initialize" { // which the SDK's servers always answer
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "only 2026-07-28"}
				}
				return next(ctx, method, r)
			}
		})
	}
	add := func(name string, call func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
		s.AddTool(&mcp.Tool{Name: name, Description: "does " + name, InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}, call)
	}
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	add("echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("echo " + string(r.Params.Arguments)), nil
	})
	add("fail", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("it failed")
	})
	add("ask", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		form := &mcp.ElicitParams{Message: "name?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)}
		if wire.Stateless(r.ProtocolVersion()) {
			if answer, ok := r.Params.InputResponses["who"].(*mcp.ElicitResult); ok {
				return text(fmt.Sprintf("%s %v, state %s", answer.Action, answer.Content["name"], r.Params.RequestState)), nil
			}
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"who": form}, RequestState: "mine"}, nil
		}
		answer, err := r.Session.Elicit(ctx, form)
		if err != nil {
			return nil, err
		}
		return text(fmt.Sprintf("%s %v, state mine", answer.Action, answer.Content["name"])), nil
	})
	add("progress", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Message: "half"})
		return text("done"), err
	})
	add("wait", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	add("more", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		add("another", nil)
		return text("added"), nil
	})
	add("touch", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("touched"), s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "file:///r"})
	})
	s.AddResource(&mcp.Resource{URI: "file:///r", Name: "r"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "file:///r", Text: "content"}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "p"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "prompt"}}}}, nil
	})
	return s
}

func textOf(t *testing.T, r *mcp.CallToolResult, err error) string {
	require.NoError(t, err)
	var all []string
	for _, c := range r.Content {
		text, ok := c.(*mcp.TextContent)
		require.True(t, ok)
		all = append(all, text.Text)
	}
	return strings.Join(all, "\n")
}

type wireError = jsonrpc.Error
