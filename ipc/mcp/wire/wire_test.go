package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

const patience = 2 * time.Minute

// server is one of the official SDK that knows these versions.
func server(versions ...string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: versions})
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "name?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer.Action}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "more", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.AddTool(&mcp.Tool{Name: "another", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	return s
}

// overPipes connects a server by what would be its standard streams.
func overPipes(t *testing.T, s *mcp.Server) mcp.Transport {
	toServer, fromServer := pipe(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(t.Context(), &mcp.IOTransport{Reader: toServer.r, Writer: fromServer.w})
	}()
	t.Cleanup(func() { <-ended })
	return &mcp.IOTransport{Reader: fromServer.r, Writer: toServer.w}
}

type ends struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func pipe(*testing.T) (a, b ends) {
	a.r, a.w = io.Pipe()
	b.r, b.w = io.Pipe()
	return a, b
}

func overHTTP(t *testing.T, s *mcp.Server, o *mcp.StreamableHTTPOptions, see func(*http.Request)) mcp.Transport {
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, o)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if see != nil {
			see(r)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	return &mcp.StreamableClientTransport{Endpoint: web.URL}
}

func connect(t *testing.T, tr mcp.Transport, o Options) *Conn {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := Connect(ctx, tr, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestBothVersionsOverBothTransports(t *testing.T) {
	for _, tt := range []struct {
		name     string
		versions []string
		prefer   string
		want     string
	}{
		{"both, newest", nil, "", Version20260728},
		{"both, old first", nil, Version20251125, Version20251125},
		{"both, older first", nil, "2025-06-18", "2025-06-18"},
		{"new only", []string{Version20260728}, "", Version20260728},
		{"new only, old first", []string{Version20260728}, Version20251125, Version20260728},
		{"old only", []string{Version20251125}, "", Version20251125},
		{"old only, new first", []string{Version20251125}, Version20260728, Version20251125},
	} {
		for name, over := range map[string]func(*testing.T, *mcp.Server) mcp.Transport{
			"pipes": overPipes,
			"http": func(t *testing.T, s *mcp.Server) mcp.Transport {
				return overHTTP(t, s, &mcp.StreamableHTTPOptions{Stateless: Stateless(tt.want)}, nil)
			},
			"http with JSON": func(t *testing.T, s *mcp.Server) mcp.Transport {
				return overHTTP(t, s, &mcp.StreamableHTTPOptions{JSONResponse: true, Stateless: Stateless(tt.want)}, nil)
			},
		} {
			if tt.name == "new only, old first" && name == "pipes" {
				continue // the SDK's server answers every initialize there, and speaks 2025-11-25
			}
			t.Run(tt.name+" "+name, func(t *testing.T) {
				c := connect(t, over(t, server(tt.versions...)), Options{Prefer: tt.prefer})
				require.Equal(t, tt.want, c.Version())
				require.Contains(t, string(c.Server()), `"capabilities"`)
				result, err := c.Call(t.Context(), "tools/call", approval.Raw(`{"name":"echo","arguments":{"b":1.50,"a":"é"}}`))
				require.NoError(t, err)
				require.Contains(t, string(result), `{\"b\":1.50,\"a\":\"é\"}`)
				require.Equal(t, Stateless(tt.want), strings.Contains(string(result), `"resultType":"complete"`), string(result))

				_, err = c.Call(t.Context(), "no/such", nil)
				own, is := err.(*jsonrpc.Error) //nolint:errorlint // what is promised
				require.True(t, is, "%T %v", err, err)
				if name == "pipes" || Stateless(tt.want) {
					require.Equal(t, int64(jsonrpc.CodeMethodNotFound), own.Code)
				}
				require.NoError(t, c.Close())
				_, err = c.Call(t.Context(), "tools/list", nil)
				require.ErrorContains(t, err, "closed")
			})
		}
	}
}

func TestRequestsAndNotificationsOfAnOldServer(t *testing.T) {
	for name, over := range map[string]func(*testing.T, *mcp.Server) mcp.Transport{
		"pipes": overPipes,
		"http":  func(t *testing.T, s *mcp.Server) mcp.Transport { return overHTTP(t, s, nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			heard := make(chan string, 10)
			c := connect(t, over(t, server(Version20251125)), Options{
				Capabilities: approval.Raw(`{"elicitation":{"form":{}}}`),
				Notification: func(method string, _ approval.Raw) { heard <- method },
				Request: func(_ context.Context, method string, params approval.Raw) (approval.Raw, error) {
					if method != "elicitation/create" || !strings.Contains(string(params), `"name?"`) {
						return nil, fmt.Errorf("%s %s", method, params)
					}
					return approval.Raw(`{"action":"decline"}`), nil
				},
			})
			result, err := c.Call(t.Context(), "tools/call", approval.Raw(`{"name":"ask","arguments":{}}`))
			require.NoError(t, err)
			require.Contains(t, string(result), "decline")
			_, err = c.Call(t.Context(), "tools/call", approval.Raw(`{"name":"more","arguments":{}}`))
			require.NoError(t, err)
			require.Equal(t, "notifications/tools/list_changed", <-heard, "on the stream of its own over HTTP")
		})
	}
}

func TestVersionHeaders(t *testing.T) {
	type seen struct{ http, method, version, mcp, name string }
	for _, version := range []string{Version20251125, Version20260728} {
		t.Run(version, func(t *testing.T) {
			requests := make(chan seen, 20)
			c := connect(t, overHTTP(t, server(version), &mcp.StreamableHTTPOptions{Stateless: Stateless(version)}, func(r *http.Request) {
				h := r.Header
				requests <- seen{r.Method, "", h.Get("Mcp-Protocol-Version"), h.Get("Mcp-Method"), h.Get("Mcp-Name")}
			}), Options{Prefer: version})
			_, err := c.Call(t.Context(), "tools/call", approval.Raw(`{"name":"echo","arguments":{}}`))
			require.NoError(t, err)
			require.NoError(t, c.Notify(t.Context(), "notifications/cancelled", approval.Raw(`{"requestId":77}`)))
			all := map[seen]bool{}
			for len(requests) > 0 {
				all[<-requests] = true
			}
			if Stateless(version) {
				require.Equal(t, map[seen]bool{
					{"POST", "", version, "server/discover", ""}:         true,
					{"POST", "", version, "tools/call", "echo"}:          true,
					{"POST", "", version, "notifications/cancelled", ""}: true,
				}, all)
				return
			}
			if !all[seen{"GET", "", version, "", ""}] {
				require.Equal(t, seen{"GET", "", version, "", ""}, <-requests, "the stream")
			}
			delete(all, seen{"GET", "", version, "", ""})
			require.Equal(t, map[seen]bool{{"POST", "", "", "", ""}: true, {"POST", "", version, "", ""}: true}, all, "all but initialize name the version")
		})
	}
}

// The SDK's server refuses a call whose headers differ from its arguments.
func TestParameterHeaders(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},
		"yes":{"type":"boolean","x-mcp-header":"Yes"},"deep":{"type":"object","properties":{"er":{"type":"string","x-mcp-header":"Deep"}}},"none":{"type":"string"}}}`)
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "t", InputSchema: schema}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	c := connect(t, overHTTP(t, s, &mcp.StreamableHTTPOptions{Stateless: true}, nil), Options{})
	for _, arguments := range []string{
		`{"region":"eu-1","n":5,"yes":true,"deep":{"er":"x"},"none":"y"}`,
		`{"region":" é\r\nMcp-Name: other","n":-1.0}`,
		`{"region":"=?base64?eA==?="}`, `{"region":null}`, `{}`,
	} {
		call := approval.Raw(`{"name":"t","arguments":` + arguments + `}`)
		_, err := c.Call(WithSchema(t.Context(), approval.Raw(schema)), "tools/call", call)
		require.NoError(t, err, arguments)
	}
	_, err := c.Call(t.Context(), "tools/call", approval.Raw(`{"name":"t","arguments":{"region":"eu-1"}}`))
	require.ErrorContains(t, err, "missing Mcp-Param-Region")
}

// scripted is a server of this test, line by line.
type scripted struct {
	in  *bufio.Scanner
	out *io.PipeWriter
}

func script(t *testing.T) (*scripted, mcp.Transport) {
	toServer, fromServer := pipe(t)
	in := bufio.NewScanner(toServer.r)
	in.Buffer(nil, 1<<20)
	t.Cleanup(func() { _ = fromServer.w.Close(); _ = toServer.r.Close() })
	return &scripted{in, fromServer.w}, &mcp.IOTransport{Reader: fromServer.r, Writer: toServer.w}
}

func (s *scripted) read() string {
	s.in.Scan()
	return s.in.Text()
}

func (s *scripted) write(line string) { _, _ = io.WriteString(s.out, line+"\n") }

const discovered = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}}`

func TestResultsKeepTheirBytes(t *testing.T) {
	s, tr := script(t)
	raw := `{ "z":1.50, "a" : [1e400,"\u0041\/"],"_meta":{"b":1,"a":2} }`
	got := make(chan string, 1)
	go func() {
		s.read()
		s.write(discovered)
		got <- s.read()
		s.write(`{"jsonrpc":"2.0","id":99,"result":{"of":"no request"}}`)
		s.write(`{"jsonrpc":"2.0","id":"2","result":{"of":"no request either"}}`)
		s.write(`{"jsonrpc":"2.0","id":2,"result":` + raw + `}`)
		s.write(`{"jsonrpc":"2.0","id":2,"result":{"of":"a second answer"}}`)
		s.read()
		s.write(`{"jsonrpc":"2.0","id":3,"error":{"code":-5,"message":"no","data":{ "b":1.0 }}}`)
	}()
	c := connect(t, tr, Options{Client: approval.Raw(`{"name":"x","version":"2"}`), Capabilities: approval.Raw(`{"extensions":{"a/b":{}}}`)})
	result, err := c.Call(t.Context(), "tools/call", approval.Raw(`{"name":"a","_meta":{"progressToken":7,"`+MetaClient+`":{"name":"other"}},"arguments":{"n":1.50}}`))
	require.NoError(t, err)
	require.Equal(t, raw, string(result))
	require.JSONEq(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":7,`+
		`"io.modelcontextprotocol/clientInfo":{"name":"other"},"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"a/b":{}}}},"arguments":{"n":1.50}}}`, <-got)
	_, err = c.Call(t.Context(), "tools/call", nil)
	var own *jsonrpc.Error
	require.ErrorAs(t, err, &own)
	require.Equal(t, `{ "b":1.0 }`, string(own.Data))
}

func TestSilentServer(t *testing.T) {
	s, tr := script(t)
	lines := make(chan string, 3)
	go func() {
		lines <- s.read()
		lines <- s.read()
		s.write(`{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)
		lines <- s.read()
	}()
	c := connect(t, tr, Options{})
	require.Equal(t, Version20251125, c.Version())
	require.Contains(t, <-lines, "server/discover")
	require.Contains(t, <-lines, `"method":"initialize"`)
	require.Contains(t, <-lines, `"method":"notifications/initialized"`)
}

func TestUnknownVersion(t *testing.T) {
	s, tr := script(t)
	go func() {
		s.read()
		s.write(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1999-01-01","capabilities":{}}}`)
		s.read()
		s.write(`{"jsonrpc":"2.0","id":2,"result":{"supportedVersions":["2099-01-01"],"capabilities":{}}}`)
	}()
	_, err := Connect(t.Context(), tr, Options{Prefer: Version20251125})
	require.ErrorContains(t, err, `"1999-01-01"`)
	require.ErrorContains(t, err, `"2099-01-01"`)
}

func TestCancelAndEnd(t *testing.T) {
	s, tr := script(t)
	lines := make(chan string)
	go func() {
		s.read()
		s.write(discovered)
		for {
			line := s.read()
			if line == "" {
				return
			}
			lines <- line
		}
	}()
	c := connect(t, tr, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := c.Call(ctx, "tools/call", nil)
		ended <- err
	}()
	require.Contains(t, <-lines, "tools/call")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Contains(t, <-lines, `"requestId":2`)

	go func() {
		_, err := c.Call(t.Context(), "tools/call", nil)
		ended <- err
	}()
	require.Contains(t, <-lines, "tools/call")
	_ = s.out.Close()
	require.ErrorIs(t, <-ended, ErrEnded)
	<-c.Done()
	require.ErrorIs(t, c.Err(), ErrEnded)
}

// A server that reads nothing keeps no caller.
func TestCancelOfWhatIsNotRead(t *testing.T) {
	s, tr := script(t)
	go func() {
		s.read()
		s.write(discovered)
	}()
	c := connect(t, tr, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Call(ctx, "tools/call", approval.Raw(`{"a":"`+strings.Repeat("x", 100<<10)+`"}`))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestServerTakesItsRequestBack(t *testing.T) {
	s, tr := script(t)
	begun, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		s.read()
		s.write(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
		s.read()
		s.write(`{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{}}`)
		<-begun
		s.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	}()
	connect(t, tr, Options{Prefer: Version20251125, Request: func(ctx context.Context, _ string, _ approval.Raw) (approval.Raw, error) {
		close(begun)
		<-ctx.Done()
		close(stopped)
		return nil, nil
	}})
	<-stopped
}

// One refused message does not end the session.
func TestRefusedOverHTTP(t *testing.T) {
	c := connect(t, overHTTP(t, server(Version20251125), nil, nil), Options{})
	_, err := c.Call(t.Context(), "no/such", nil)
	require.ErrorContains(t, err, "HTTP 400")
	_, err = c.Call(t.Context(), "tools/list", nil)
	require.NoError(t, err)
}

func TestRedirectToAnotherHost(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("was asked") }))
	defer other.Close()
	web := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer web.Close()
	_, err := Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: web.URL}, Options{})
	require.ErrorContains(t, err, "redirects to another host")
}

func TestLargeBody(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range maxBody>>20 + 1 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}))
	defer web.Close()
	_, err := Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: web.URL}, Options{})
	require.ErrorContains(t, err, "larger than 64 MiB")
}

func TestMembers(t *testing.T) {
	for _, tt := range []struct{ object, name, value, want string }{
		{``, "a", `1`, `{"a":1}`},
		{``, "a", ``, `{}`},
		{`{ }`, "a", `1`, `{"a":1}`},
		{`{"b":1.0, "a":[ 1 ]}`, "b", `2`, `{"b":2,"a":[ 1 ]}`},
		{`{"b":1.0, "a":[ 1 ]}`, "b", ``, `{"a":[ 1 ]}`},
		{`{"b":1.0}`, "é\"", `2`, `{"b":1.0,"é\"":2}`},
	} {
		got, err := With(approval.Raw(tt.object), tt.name, approval.Raw(tt.value))
		require.NoError(t, err)
		require.Equal(t, tt.want, string(got))
	}
	_, err := With(approval.Raw(`[1]`), "a", nil)
	require.Error(t, err)
}
