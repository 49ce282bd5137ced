package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/mcp/mcptest"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

func TestMain(m *testing.M) {
	mcptest.ServeIfAsked()
	os.Exit(m.Run())
}

// testProcess is a server as mcptest.Files describes it.
func testProcess(t *testing.T, how string, env ...string) Process {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, how), nil, 0o600))
	return Process{Command: mcptest.Argv(dir), Env: env}
}

func TestProcess(t *testing.T) {
	t.Setenv("PERMESSO_HOME", "/secret")
	t.Setenv("LC_TEST", "c")
	t.Setenv("SECRET_TOKEN", "s3cret")
	t.Setenv("GIVEN", "g")
	p := testProcess(t, "plain", "GIVEN", "SET=v")
	stderr := make(chan string, 10)
	p.Stderr = func(line string) { stderr <- line }
	same(t, `{"command":["`+strings.Join(p.Command, `","`)+`"],"environment":["GIVEN","SET"]}`, string(p.Identity()))
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		r := newRig(t, p.Connect, nil)
		s := r.client(version, nil)
		result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "env", Arguments: map[string]any{}})
		env := strings.Split(textOf(t, result, err), "\n")
		require.Contains(t, env, "LC_TEST=c")
		require.Contains(t, env, "GIVEN=g")
		require.Contains(t, env, "SET=v")
		require.Contains(t, env, "PATH="+os.Getenv("PATH"))
		require.NotContains(t, strings.Join(env, "\n"), "PERMESSO_")
		require.NotContains(t, strings.Join(env, "\n"), "SECRET_TOKEN")

		_, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "die", Arguments: map[string]any{}})
		require.ErrorContains(t, err, "the server ended; the outcome is not known")
		result, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{}})
		require.Equal(t, "{}", textOf(t, result, err), "it was started again")
		require.Equal(t, "last words, with ", <-stderr)
		require.Contains(t, strings.Join(r.judge.ended(), "\n"), "error: the server ended")
	}
	_, err := testProcess(t, "plain", "permesso_home=x").environment(nil)
	require.ErrorContains(t, err, "never given to a server")
	_, err = testProcess(t, "plain", "=x").environment(nil)
	require.ErrorContains(t, err, "has no name")
}

// What a server writes between its messages ends nothing.
func TestNoisyProcess(t *testing.T) {
	p := testProcess(t, "noisy")
	lines := make(chan string, 10)
	p.Stderr = func(line string) { lines <- line }
	s := newRig(t, p.Connect, nil).client(wire.Version20251125, nil)
	large := strings.Repeat("y", 300_000)
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"s": large}})
	require.Equal(t, `{"s":"`+large+`"}`, textOf(t, result, err))
	got := []string{<-lines, <-lines, <-lines}
	require.Contains(t, got, `Listening\u{0007} on standard streams`)
	require.Contains(t, got, strings.Repeat("x", maxStderrLine))
	require.Contains(t, got, `noisy \u{001B}[31mserver`)
}

// A server that does not end is killed, with what it has started.
func TestStubbornProcess(t *testing.T) {
	p := testProcess(t, "stubborn")
	tr, err := p.Connect(t.Context())
	require.NoError(t, err)
	c, err := wire.Connect(t.Context(), tr, wire.Options{})
	require.NoError(t, err)
	require.NoError(t, c.Close()) // or it would never return
}

func TestServerThatCannotStart(t *testing.T) {
	r := newRig(t, Process{Command: []string{"/no/such/program"}}.Connect, nil)
	require.Contains(t, r.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}`), "MCP server srv cannot be started")
	r = newRig(t, script(t, func(s *scripted) {
		for s.in.Scan() { // it reads, and says nothing
		}
	}), func(o *Options) { o.StartTimeout = 20 * time.Millisecond })
	require.Contains(t, r.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}`), "deadline exceeded")
}

func TestServerThatAlwaysDies(t *testing.T) {
	var starts atomic.Int64
	r := newRig(t, script(t, func(s *scripted) {
		starts.Add(1)
		s.each(wire.Version20251125, func(l line) string {
			if l.Method == "resources/list" {
				return "end"
			}
			return ""
		})
	}), nil)
	r.initialize()
	for i := range maxStarts {
		conn := r.g.conns.now()
		lines := r.request("resources/list", `{}`)
		if i > 0 { // in either order
			lines += r.read()
			require.Contains(t, lines, toolsChanged)
			conn = r.g.conns.conn
		}
		require.Contains(t, lines, "the server ended; the outcome is not known")
		<-conn.Done()
	}
	require.Contains(t, r.request("resources/list", `{}`), "the server ended 5 times within 1m0s; it is started again by a request after ")
	require.Equal(t, int64(maxStarts), starts.Load())
}

func TestFloods(t *testing.T) {
	for name, flood := range map[string]struct {
		list string
		want string
	}{
		"tools":   {`{"tools":[` + strings.TrimSuffix(strings.Repeat(`{"name":"a"},`, maxTools+1), ",") + `]}`, "more than 10000 tools"},
		"pages":   {`{"tools":[{"name":"a"}],"nextCursor":"again"}`, "longer than 1000 pages"},
		"message": {`{"tools":["` + strings.Repeat("x", maxLine) + `"]}`, "the outcome is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, script(t, func(s *scripted) {
				s.each(wire.Version20251125, func(l line) string { return flood.list })
			}), nil)
			r.initialize()
			if name == "pages" {
				require.Contains(t, r.request("tools/call", `{"name":"a"}`), flood.want)
			} else {
				require.Contains(t, r.request("tools/list", `{}`), flood.want)
			}
			require.Empty(t, r.judge.seen())
		})
	}
}

// While the client does not read, the server cannot write: nothing piles up.
func TestNotificationsWait(t *testing.T) {
	const many = 200_000
	var written atomic.Int64
	started := make(chan bool)
	r := newRig(t, script(t, func(s *scripted) {
		s.each(wire.Version20251125, func(l line) string {
			if l.Method == "prompts/list" {
				go func() {
					close(started)
					for i := range many {
						s.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"n":%d,"data":"%s"}}`, i, strings.Repeat("x", 1000)))
						written.Add(1)
					}
				}()
				return `{}`
			}
			return `{}`
		})
	}), nil)
	r.initialize()
	r.write(`{"jsonrpc":"2.0","id":"f","method":"prompts/list"}`)
	<-started
	for n := int64(-1); n != written.Load(); runtime.Gosched() { // until it stands
		n = written.Load()
		time.Sleep(50 * time.Millisecond)
	}
	require.Less(t, written.Load(), int64(1000))
}

func method(l line) string {
	var p struct{ M string }
	_ = json.Unmarshal(l.Params, &p)
	return p.M
}

func TestSamplingAndRoots(t *testing.T) {
	serve := func(got chan line) connecting {
		return script(t, func(s *scripted) {
			n := 100
			s.each(wire.Version20251125, func(l line) string {
				switch l.Method {
				case "tools/list":
					return echoTool
				case "prompts/list":
					n++
					s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, n, method(l), `{"x":1.0}`))
				case "":
					got <- l
				}
				return `{}`
			})
		})
	}
	got := make(chan line, 10)
	r := newRig(t, serve(got), nil)
	r.initialize()
	for _, method := range []string{"sampling/createMessage", "roots/list", "no/such"} {
		require.Contains(t, r.request("prompts/list", `{"m":"`+method+`"}`), `"result"`)
		l := <-got
		require.Contains(t, string(l.Error), "-32601", method)
		require.Equal(t, method != "no/such", strings.Contains(string(l.Error), "configuration does not allow it"))
	}
	r = newRig(t, serve(got), func(o *Options) { o.Sampling, o.Roots = true, true })
	r.initialize()
	for _, method := range []string{"sampling/createMessage", "roots/list"} {
		r.last++
		r.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"prompts/list","params":{"m":"%s"}}`, r.last, method))
		for range 2 {
			if l := r.read(); strings.Contains(l, method) {
				require.Contains(t, l, `"params":{"x":1.0}`)
				id := l[strings.Index(l, `"id":`)+5 : strings.Index(l, `,"method"`)]
				r.write(`{"jsonrpc":"2.0","id":` + id + `,"result":{"roots":[ ]}}`)
			}
		}
		same(t, `{"roots":[]}`, string((<-got).Result))
	}
}

func TestCapabilitiesThatTheServerSees(t *testing.T) {
	got := make(chan string, 10)
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		r := newRig(t, script(t, func(s *scripted) {
			for s.in.Scan() {
				got <- s.in.Text()
			}
		}), nil)
		r.write(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{"sampling":{},"roots":{"listChanged":true},"elicitation":{"url":{}},"experimental":{"a":1.0}},"clientInfo":{"name":"raw","version":"1"}}}`)
		require.Contains(t, <-got, `{"elicitation":{"url":{}},"experimental":{"a":1.0}}`)
	}
}

// A client of 2026-07-28 says in a request whether it wants log messages; an older server is told once.
func TestLogMessages(t *testing.T) {
	levels := make(chan string, 10)
	r := newRig(t, script(t, func(s *scripted) {
		s.each(wire.Version20251125, func(l line) string {
			if l.Method == "logging/setLevel" {
				levels <- string(l.Params)
				return `{}`
			}
			if len(l.ID) > 0 {
				s.write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"d"}}`)
			}
			return `{}`
		})
	}), nil)
	require.Contains(t, r.request("resources/list", `{`+newMeta+`}`), `"result"`)
	withLevel := strings.Replace(newMeta, "{", `{"io.modelcontextprotocol/logLevel":"info",`, 1)
	for range 2 {
		require.Contains(t, r.request("resources/list", `{`+withLevel+`}`), "notifications/message")
		require.Contains(t, r.read(), `"result"`)
	}
	require.Len(t, levels, 1)
	same(t, `{"level":"info"}`, <-levels)

	r = newRig(t, script(t, func(s *scripted) {
		s.each(wire.Version20260728, func(l line) string {
			levels <- string(l.Params)
			return `{}`
		})
	}), nil)
	r.initialize()
	require.Contains(t, r.request("logging/setLevel", `{"level":"debug"}`), `"result":{}`)
	require.Contains(t, r.request("ping", `{}`), `"result":{}`)
	r.request("resources/list", `{}`)
	for l := ""; !strings.Contains(l, `"io.modelcontextprotocol/logLevel":"debug"`); l = <-levels { // after subscriptions/listen
		require.NotContains(t, l, "none")
	}
}

func TestURLs(t *testing.T) {
	g := &Gateway{}
	caps := approval.Raw(`{"elicitation":{}}`)
	for _, tt := range []struct{ url, want string }{
		{"https://example.org/login?x=1", "[The server asks to open a page at example.org] m"},
		{"https://example.org@evil.example/", "[The server asks to open a page at evil.example] m"},
		{"https://аpple.com/", "[The server asks to open a page at xn--pple-43d.com, which is shown as аpple.com and mixes alphabets] m"},
		{"https://xn--pple-43d.com/", "[The server asks to open a page at xn--pple-43d.com, which is shown as аpple.com and mixes alphabets] m"},
		{"https://bücher.example/", "[The server asks to open a page at xn--bcher-kva.example, which is shown as bücher.example] m"},
		{"http://127.0.0.1:8080/", "[The server asks to open a page at 127.0.0.1, an address without a name] m"},
		{"javascript:alert(1)", ""},
		{"file:///etc/passwd", ""},
		{"https://", ""},
		{"https://a\u200bb.example/", ""},
		{"//example.org", ""},
		{"", ""},
	} {
		for _, mode := range []string{`"mode":"url",`, ``, `"mode":"form",`} {
			params := approval.Raw(`{` + mode + `"message":"m","url":` + string(quote(tt.url)) + `,"elicitationId":"e"}`)
			got, err := g.screen("elicitation/create", params, caps)
			if tt.want == "" {
				require.Error(t, err, tt.url)
				continue
			}
			require.NoError(t, err, tt.url)
			require.Equal(t, `{`+mode+`"message":`+string(quote(tt.want))+`,"url":`+string(quote(tt.url))+`,"elicitationId":"e"}`, string(got))
		}
	}
	_, err := g.screen("elicitation/create", approval.Raw(`{"mode":"page"}`), caps)
	require.ErrorContains(t, err, "is not known here")
	_, err = g.screen("elicitation/create", approval.Raw(`{"message":"m"}`), approval.Raw(`{}`))
	require.ErrorContains(t, err, "the client has no elicitation")

	for _, stateless := range []bool{false, true} {
		err := g.errorFor(&session{stateless: stateless}, &wireError{Code: codeURLRequired, Message: "m", Data: []byte(`{"elicitations":[{"mode":"url","url":"https://evil.example/","message":"m"}]}`)})
		b := fmt.Sprintf("%s %s", rpcError(err).Message, rpcError(err).Data)
		require.Contains(t, b, "evil.example")
		require.Equal(t, !stateless, rpcError(err).Code == codeURLRequired)
	}
	err = g.errorFor(&session{}, &wireError{Code: codeURLRequired, Data: []byte(`{"elicitations":[{"mode":"url","url":"javascript:x"}]}`)})
	require.ErrorContains(t, err, "must be one of http or https")
}

func TestRemote(t *testing.T) {
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server() }, nil)
	stateless := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server(wire.Version20260728) }, &mcp.StreamableHTTPOptions{Stateless: true})
	for _, of := range []http.Handler{h, stateless} {
		web := httptest.NewServer(of)
		t.Cleanup(web.Close)
		connect, err := Remote(web.URL, nil, nil)
		require.NoError(t, err)
		for _, version := range []string{wire.Version20251125, wire.Version20260728} {
			r := newRig(t, connect, nil)
			s := r.client(version, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
			}})
			result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"n": 1}})
			require.Equal(t, `echo {"n":1}`, textOf(t, result, err))
			result, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask", Arguments: map[string]any{}})
			require.Equal(t, "accept Ada, state mine", textOf(t, result, err))
		}
	}
	for _, bad := range []string{"ftp://a", "a", "https://u:p@a/", "https://"} {
		_, err := Remote(bad, nil, nil)
		require.Error(t, err, bad)
	}
	id, err := RemoteIdentity("https://mcp.example.org:8443/path?x")
	require.NoError(t, err)
	same(t, `{"origin":"https://mcp.example.org:8443"}`, string(id))
}

func TestSchemas(t *testing.T) {
	deep := strings.Repeat(`{"properties":{"a":`, 40) + `{}` + strings.Repeat(`}}`, 40)
	bomb := `{"$ref":"#/$defs/d0","$defs":{`
	for i := range 40 {
		bomb += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	bomb += `"d40":{"type":"string"}}}`
	refs := `{"type":"string","allOf":[` + strings.TrimSuffix(strings.Repeat(`{"$ref":"#/$defs/x"},`, 20_000), ",") + `],"$defs":{"x":{}}}`
	asked := false
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer web.Close()
	file := t.TempDir() + "/schema.json"
	require.NoError(t, os.WriteFile(file, []byte(`{"type":"string"}`), 0o600))
	for name, tt := range map[string]struct {
		schema, arguments, fault string
	}{
		"fits":            {`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`, `{"a":1}`, ""},
		"missing":         {`{"type":"object","required":["a"]}`, `{}`, "missing property 'a'"},
		"wrong":           {`{"properties":{"a":{"type":"integer"}}}`, `{"a":"1"}`, "got string, want integer"},
		"unknown":         {`{"additionalProperties":false}`, `{"a":"1"}`, "additional properties 'a' not allowed"},
		"reference":       {`{"properties":{"a":{"$ref":"#/$defs/x~1y"}},"$defs":{"x/y":{"type":"string"}}}`, `{"a":1}`, "want string"},
		"draft 7":         {`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/x"}},"definitions":{"x":{"type":"string"}}}`, `{"a":1}`, "want string"},
		"none":            {``, `{}`, ""},
		"no schema":       {`7`, `{}`, ""},
		"wrong schema":    {`{"type":"thing"}`, `{}`, ""},
		"deep":            {deep, `{}`, ""},
		"exponential":     {bomb, `{}`, ""},
		"wide":            {refs, `{}`, ""},
		"huge":            {`{"type":"string","description":"` + strings.Repeat("x", maxSchema) + `"}`, `{}`, ""},
		"circular":        {`{"type":"string","properties":{"a":{"$ref":"#"}}}`, `{}`, ""},
		"circular too":    {`{"type":"string","$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, `{}`, ""},
		"remote":          {`{"type":"string","properties":{"a":{"$ref":"` + web.URL + `/x"}}}`, `{}`, ""},
		"remote $schema":  {`{"$schema":"` + web.URL + `/x","type":"string"}`, `{}`, ""},
		"a file":          {`{"$ref":"file://` + file + `"}`, `{}`, ""},
		"by id":           {`{"type":"string","$defs":{"a":{"$id":"` + web.URL + `/a","$ref":"b"}}}`, `{}`, ""},
		"dynamic":         {`{"type":"string","$dynamicRef":"#a"}`, `{}`, ""},
		"number":          {`{"type":"string","minimum":1e999999999}`, `{}`, ""},
		"number argument": {`{"properties":{"a":{"multipleOf":3}}}`, `{"a":1e999999999}`, ""},
		"much":            {`{"properties":{"a":{"items":{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{"type":"string"},`, 4000), ",") + `]}}}}`, `{"a":[` + strings.TrimSuffix(strings.Repeat(`1,`, 10_000), ",") + `]}`, ""},
	} {
		var s schemas
		err := s.check(approval.Raw(tt.schema), approval.Raw(tt.arguments))
		if tt.fault == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, tt.fault, name)
		}
	}
	require.False(t, asked)
}

// A result of ten megabytes costs no more than its bytes.
func TestLargeResults(t *testing.T) {
	large := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 10<<20) + `"}]}`
	r := newRig(t, script(t, func(s *scripted) {
		s.each(wire.Version20251125, func(l line) string {
			if l.Method == "tools/list" {
				return echoTool
			}
			return large
		})
	}), nil)
	r.initialize()
	same(t, `{"jsonrpc":"2.0","id":2,"result":`+large+`}`, r.request("tools/call", `{"name":"echo"}`))
}

// A client that ends its output ends the server.
func TestEndOfTheClient(t *testing.T) {
	in, to := io.Pipe()
	r := newRig(t, testProcess(t, "plain").Connect, nil)
	_ = in.Close()
	_ = to.Close()
	r.initialize()
	conn := r.g.conns.now()
	require.NoError(t, r.to.Close())
	<-conn.Done()
	require.NoError(t, <-r.served)
	r.served <- nil
}

// A server that never lists its tools does not hold a call for ever.
func TestServerThatListsNothing(t *testing.T) {
	r := newRig(t, script(t, func(s *scripted) {
		s.each(wire.Version20251125, func(line) string { return "" })
	}), func(o *Options) { o.StartTimeout = time.Second })
	r.initialize()
	require.Contains(t, r.request("tools/call", `{"name":"echo"}`), "the server's list of tools: no answer within 1s")
	require.Empty(t, r.judge.seen())
}
