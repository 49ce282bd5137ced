package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// odd is a result that no encoder writes so.
const odd = `{ "z":1.50, "content" : [{"type":"text","text":"\u0041\/<"}],"big":1e400,"_meta":{"b":1,"a":2} }`

func TestResultsKeepTheirBytes(t *testing.T) {
	serve := func(version string) connecting {
		return script(t, func(s *scripted) {
			s.each(version, func(l line) string {
				switch l.Method {
				case "tools/list":
					return `{"tools":[ {"name":"echo", "inputSchema" : {"type":"object"} } ], "x":1.0}`
				case "prompts/list":
					s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-7,"message":"<no>","data":{ "b":1.0 }}}`, l.ID))
					return ""
				}
				return odd
			})
		})
	}
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		r := newRig(t, serve(version), nil)
		with := func(params string) string { return params }
		if wire.Stateless(version) {
			with = func(params string) string { return strings.Replace(params, "{", "{"+newMeta+",", 1) }
		} else {
			require.Contains(t, r.initialize(), `"name":"scripted"`)
		}
		for method, params := range map[string]string{
			"tools/call": `{"name":"echo","arguments":{}}`, "resources/list": `{"cursor":"a"}`, "completion/complete": `{"x":1}`, "prompts/get": `{"name":"p"}`,
		} {
			same(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, r.last+1, odd), r.request(method, with(params)), method)
		}
		require.Contains(t, r.request("tools/list", with(`{"x":1}`)), `"result":{"tools":[ {"name":"echo", "inputSchema" : {"type":"object"} } ], "x":1.0}}`)
		require.Contains(t, r.request("prompts/list", with(`{"x":1}`)), `"error":{"code":-7,"message":"<no>","data":{"b":1.0}}}`)
		require.Equal(t, []string{odd}, r.judge.ended())
	}
}

// echoServer counts the calls that reach it, and all that a careless server could take for one.
func echoServer(t *testing.T, version string, calls *atomic.Int64, tools func() string) connecting {
	return script(t, func(s *scripted) {
		s.each(version, func(l line) string {
			switch l.Method {
			case "tools/list":
				return tools()
			case "tools/call":
				calls.Add(1)
				return `{"content":[{"type":"text","text":` + string(quote(string(l.Params))) + `}]}`
			case "notifications/initialized", "notifications/cancelled":
			default:
				if !passing[l.Method] {
					calls.Add(1)
				}
			}
			return `{}`
		})
	})
}

func oneTool() string { return echoTool }

func TestWhatIsNotAllowedDoesNotHappen(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, echoServer(t, wire.Version20251125, &calls, oneTool), nil)
	r.initialize()
	r.judge.decide = func(context.Context, Call) (Verdict, error) { return Verdict{}, errors.New("Denied by user") }
	require.Contains(t, r.request("tools/call", `{"name":"echo","arguments":{}}`), `"result":{"content":[{"type":"text","text":"Denied by user"}],"isError":true}`)
	r.judge.decide = func(context.Context, Call) (Verdict, error) {
		return Verdict{Result: approval.Raw(`{"content":[],"isError":true}`)}, nil
	}
	require.Contains(t, r.request("tools/call", `{"name":"echo","arguments":{}}`), `"result":{"content":[],"isError":true}`)
	for _, bad := range []string{
		`{"name":"echo","name":"echo","arguments":{}}`, `{"name":"echo","arguments":[]}`, `{"arguments":{}}`, `{"name":1}`, `{"name":"none"}`,
		`{"name":"echo","arguments":{"a":1,"a":2}}`, `{"name":"echo","requestState":1}`, `{"name":"echo","requestState":"permesso-round-AAAA"}`,
	} {
		require.Contains(t, r.request("tools/call", bad), `"error"`, bad)
	}
	require.Zero(t, calls.Load())
	require.Len(t, r.judge.seen(), 2)

	// What a careless server would take for a call does not reach it.
	for _, method := range []string{"Tools/Call", "tools/call/", "tools/callX", "tools.call", "their/own", ""} {
		require.Contains(t, r.request(method, `{"name":"echo"}`), `"code":-32601`)
	}
	for _, method := range []string{"tools/call", "notifications/tools/call", "their/own"} {
		r.write(`{"jsonrpc":"2.0","method":"` + method + `","params":{"name":"echo"}}`)
	}
	require.Contains(t, r.request("prompts/list", `{}`), `"result":{}`)
	require.Zero(t, calls.Load())
	r.judge.decide = nil
	require.Contains(t, r.request("tools/call", `{"name":"echo"}`), `{\"name\":\"echo\"}`)
	require.Equal(t, int64(1), calls.Load())
}

// A call that is cancelled while it is judged is not sent, and the Judge learns why.
func TestCancelWhileJudged(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, echoServer(t, wire.Version20251125, &calls, oneTool), nil)
	r.initialize()
	judged, cause := make(chan bool), make(chan error, 1)
	r.judge.decide = func(ctx context.Context, _ Call) (Verdict, error) {
		judged <- true
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return Verdict{}, nil
	}
	r.write(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"echo"}}`)
	<-judged
	r.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
	require.ErrorIs(t, <-cause, ErrTakenBack)
	require.Contains(t, r.request("tools/list", `{}`), `"tools"`, "the cancelled one has no answer")
	require.Zero(t, calls.Load())
	require.Eventually(t, func() bool { return len(r.judge.ended()) == 1 }, patience, time.Millisecond)
	require.Equal(t, "error: "+ErrNotCalled.Error()+": context canceled", r.judge.ended()[0])

	r.write(`{"jsonrpc":"2.0","id":"y","method":"tools/call","params":{"name":"echo"}}`)
	<-judged
	require.NoError(t, r.to.Close())
	require.NotErrorIs(t, <-cause, ErrTakenBack, "a lost client takes nothing back")
}

func TestProgressWhileJudged(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, echoServer(t, wire.Version20251125, &calls, oneTool), nil)
	r.initialize()
	r.judge.decide = func(_ context.Context, c Call) (Verdict, error) {
		if c.Progress != nil {
			c.Progress("waits")
			c.Progress("still")
		}
		return Verdict{}, nil
	}
	require.Contains(t, r.request("tools/call", `{"name":"echo"}`), `"result"`, "who does not listen hears nothing")
	same(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.000001,"message":"waits"}}`,
		r.request("tools/call", `{"name":"echo","_meta":{"progressToken":"t"}}`))
	require.Contains(t, r.read(), `"progress":0.000002,"message":"still"`)
	require.Contains(t, r.read(), `"result"`)
}

// The Judge's own input_required goes to the client, and its state comes back to it, not to the server.
func TestStateOfTheJudge(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, echoServer(t, wire.Version20260728, &calls, oneTool), nil)
	r.judge.decide = func(_ context.Context, c Call) (Verdict, error) {
		if c.State == "" {
			return Verdict{Result: approval.Raw(`{"resultType":"input_required","requestState":"judge-1"}`)}, nil
		}
		require.Equal(t, "judge-1", c.State)
		return Verdict{}, nil
	}
	require.Contains(t, r.request("tools/call", `{"name":"echo",`+newMeta+`}`), `"result":{"resultType":"input_required","requestState":"judge-1"}`)
	got := r.request("tools/call", `{"name":"echo",`+newMeta+`,"requestState":"judge-1","inputResponses":{"a":{}}}`)
	require.Contains(t, got, `"result"`)
	require.NotContains(t, got, "judge-1")
	require.NotContains(t, got, "inputResponses")
	require.Equal(t, int64(1), calls.Load())
	require.Contains(t, r.request("prompts/get", `{"name":"p",`+newMeta+`,"requestState":"judge-1"}`), errState.Error())
}

// A server without a state may get answers that the client brings before it was asked.
func TestAnswersBeforeTheQuestion(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		version string
		passes  bool
	}{{wire.Version20260728, true}, {wire.Version20251125, false}} { // an older server knows no such member
		var calls atomic.Int64
		r := newRig(t, echoServer(t, row.version, &calls, oneTool), nil)
		got := r.request("tools/call", `{"name":"echo",`+newMeta+`,"inputResponses":{"k":{"action":"accept"}}}`)
		require.Contains(t, got, `"result"`)
		require.Equal(t, row.passes, strings.Contains(got, "inputResponses"), got)
	}
}

func TestStatesOfRounds(t *testing.T) {
	var calls atomic.Int64
	serve := script(t, func(s *scripted) {
		s.each(wire.Version20260728, func(l line) string {
			if l.Method == "tools/list" {
				return echoTool
			}
			calls.Add(1)
			if strings.Contains(string(l.Params), "inputResponses") {
				return `{"resultType":"complete","content":[],"got":` + string(quote(string(l.Params))) + `}`
			}
			return `{"resultType":"input_required","requestState":"theirs","inputRequests":{"k":{"method":"elicitation/create","params":{"mode":"form","message":"m"}}}}`
		})
	})
	r := newRig(t, serve, nil)
	ask := func(arguments, state string) string {
		return r.request("tools/call", `{"name":"echo","arguments":`+arguments+`,`+newMeta+state+`}`)
	}
	stateOf := func(answer string) string {
		var l struct{ Result struct{ RequestState string } }
		require.NoError(t, json.Unmarshal([]byte(answer), &l))
		require.True(t, isRound(l.Result.RequestState), answer)
		require.NotContains(t, answer, "theirs")
		return l.Result.RequestState
	}
	again := func(state string) string {
		return `,"inputResponses":{"k":{"action":"accept"}},"requestState":` + string(quote(state))
	}
	state := stateOf(ask(`{"a":1}`, ""))
	before := calls.Load()
	for i := range state {
		for bit := range 7 {
			b := []byte(state)
			b[i] ^= 1 << bit
			if r.judge.decide = nil; isRound(string(b)) {
				require.Contains(t, ask(`{"a":1}`, again(string(b))), errState.Error())
			}
		}
		if i >= len(roundPrefix) {
			require.Contains(t, ask(`{"a":1}`, again(state[:i])), errState.Error())
		}
	}
	require.Contains(t, ask(`{"a":2}`, again(state)), errState.Error(), "other arguments")
	require.Contains(t, r.request("prompts/get", `{"name":"echo","arguments":{"a":1},`+newMeta+again(state)+`}`), errState.Error(), "another method")
	require.Equal(t, before, calls.Load())
	require.Len(t, r.judge.seen(), 1)

	got := ask(`{"a":1}`, again(state))
	require.Contains(t, got, `\"requestState\":\"theirs\"`)
	require.Contains(t, ask(`{"a":1}`, again(state)), errState.Error(), "a second time")
	require.Equal(t, before+1, calls.Load())
	require.Len(t, r.judge.seen(), 1, "asked once")
	require.Len(t, r.judge.ended(), 1)
}

func TestPins(t *testing.T) {
	var calls atomic.Int64
	var description atomic.Value
	description.Store("first")
	lists := make(chan struct{}, 100)
	tools := func() string {
		defer func() { lists <- struct{}{} }()
		return `{"tools":[{"description":"` + description.Load().(string) + `","name":"echo","inputSchema":{"type":"object"}}]}`
	}
	folder := t.TempDir()
	identity := approval.Raw(`{"command":["a"]}`)
	start := func() *rig {
		r := newRig(t, echoServer(t, wire.Version20251125, &calls, tools), func(o *Options) {
			var err error
			o.Pins, err = OpenPins(folder, "srv")
			require.NoError(t, err)
			o.Identity = identity
		})
		r.initialize()
		return r
	}
	changes := func(r *rig) []Change {
		require.Contains(t, r.request("tools/call", `{"name":"echo"}`), `"content"`)
		all := r.judge.seen()
		return all[len(all)-1].Changes
	}
	r := start()
	require.Empty(t, changes(r))
	require.Empty(t, changes(r))
	info, err := os.Stat(filepath.Join(folder, "srv.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	// Between list and call, without a word.
	require.Contains(t, r.request("tools/list", `{}`), "first")
	description.Store("second")
	r.judge.decide = func(context.Context, Call) (Verdict, error) { return Verdict{}, errors.New("no") }
	want := []Change{{
		"tool", `{"description":"first","inputSchema":{"type":"object"},"name":"echo"}`,
		`{"description":"second","inputSchema":{"type":"object"},"name":"echo"}`,
	}}
	require.Equal(t, want, changes(r))
	require.Equal(t, want, changes(r), "what was denied is asked again")
	r.judge.decide = nil
	require.Equal(t, want, changes(r))
	require.Empty(t, changes(r), "approved")

	// What a person is asked by the old definition is taken back.
	description.Store("second and a half")
	var waited atomic.Bool
	r.judge.decide = func(ctx context.Context, c Call) (Verdict, error) {
		if len(c.Changes) == 0 {
			<-ctx.Done()
			waited.Store(errors.Is(context.Cause(ctx), ErrTakenBack))
			return Verdict{}, ctx.Err()
		}
		return Verdict{}, nil
	}
	require.Len(t, changes(r), 1)
	require.True(t, waited.Load())

	// What one allows at once by the old one is not called.
	description.Store("second")
	r.judge.decide = nil
	require.Len(t, changes(r), 1)
	require.Contains(t, r.judge.ended()[len(r.judge.ended())-2], "error: "+ErrNotCalled.Error())

	// While a person thinks.
	before := calls.Load()
	for len(lists) > 0 {
		<-lists
	}
	r.judge.decide = func(context.Context, Call) (Verdict, error) {
		<-lists // of the look beside the judgement
		description.Store("third")
		<-time.After(2 * judgedAtOnce)
		return Verdict{}, nil
	}
	require.Contains(t, r.request("tools/call", `{"name":"echo"}`), "has changed while the call waited")
	require.Equal(t, before, calls.Load())
	require.Contains(t, r.judge.ended()[len(r.judge.ended())-1], "error: "+ErrNotCalled.Error())

	description.Store("second")
	require.Empty(t, changes(start()), "of another process")
	identity = approval.Raw(`{"command":["b"]}`)
	r = start()
	require.Equal(t, []Change{{"server", `{"command":["a"]}`, `{"command":["b"]}`}}, changes(r))
	require.Empty(t, changes(r))
	identity = approval.Raw(`{"command":["a"]}`)
	r = start()
	require.Empty(t, changes(r), "both are approved")

	// Another process of another client pins while this one runs.
	p, err := OpenPins(folder, "srv")
	require.NoError(t, err)
	require.NoError(t, p.pin(approval.Raw(`{"command":["c"]}`), approval.Raw(`{"name":"new"}`), "new"))
	found, err := r.g.o.Pins.changes(identity, approval.Raw(`{"name":"new","description":"other"}`), "new")
	require.NoError(t, err)
	require.Equal(t, []Change{{"tool", `{"name":"new"}`, `{"name":"new","description":"other"}`}}, found, "what was approved of another server of this name is no new tool")
	found, err = r.g.o.Pins.changes(identity, approval.Raw(`{"name":"new"}`), "new")
	require.NoError(t, err)
	require.Empty(t, found)
	for n := range 2 * maxServers {
		require.NoError(t, p.pin(approval.Raw(fmt.Sprintf(`{"n":%d}`, n)), approval.Raw(`{}`), "t"))
	}
	require.LessOrEqual(t, len(p.d.Servers), maxServers)
	found, err = r.g.o.Pins.changes(identity, approval.Raw(`{}`), "t")
	require.NoError(t, err)
	require.Len(t, found, 1, "forgotten is not approved")

	require.NoError(t, os.WriteFile(filepath.Join(folder, "srv.json"), []byte(`{"version":1,"tools":{"ec`), 0o600))
	require.Contains(t, r.request("tools/call", `{"name":"echo"}`), "remove the file to approve them anew")
	_, err = OpenPins(folder, "srv")
	require.ErrorContains(t, err, "remove the file to approve them anew")
}

// The folder of the definitions is made again if it was removed. Where it cannot be, no one is asked.
func TestFolderOfPins(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "definitions")
	p, err := OpenPins(folder, "srv")
	require.NoError(t, err)
	server, tool := approval.Raw(`{}`), approval.Raw(`{"name":"t"}`)
	require.NoError(t, os.RemoveAll(folder))
	found, err := p.changes(server, tool, "t")
	require.NoError(t, err)
	require.Empty(t, found)
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, p.pin(server, tool, "t"))
	require.FileExists(t, filepath.Join(folder, "srv.json"))

	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "srv.json.lock"), 0o700)) // nothing can be written there
	var calls atomic.Int64
	r := newRig(t, echoServer(t, wire.Version20251125, &calls, func() string {
		return `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
	}), func(o *Options) { o.Pins = p })
	r.initialize()
	require.Contains(t, r.request("tools/call", `{"name":"echo"}`), "can be kept in "+folder)
	require.Empty(t, r.judge.seen())
	require.Zero(t, calls.Load())
}

func TestPinsOfManyProcesses(t *testing.T) {
	folder := t.TempDir()
	var all sync.WaitGroup
	for i := range 20 {
		p, err := OpenPins(folder, "srv")
		require.NoError(t, err)
		all.Go(func() {
			if err := p.pin(approval.Raw(`{}`), approval.Raw(`{"n":1}`), fmt.Sprint("tool", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	p, err := OpenPins(folder, "srv")
	require.NoError(t, err)
	for i := range 20 {
		found, err := p.changes(approval.Raw(`{}`), approval.Raw(`{"n":2}`), fmt.Sprint("tool", i))
		require.NoError(t, err)
		require.Len(t, found, 1)
	}
}

func TestHiddenCharacters(t *testing.T) {
	var calls atomic.Int64
	tools := func() string {
		return `{"tools":[{"name":"good","description":"a ⚠️ 👩‍💻\nline","inputSchema":{"type":"object"}},
{"name":"bidi","description":"a\u202eb","inputSchema":{"type":"object"}},{"name":"tag","inputSchema":{"type":"object","properties":{"p":{"description":"\udb40\udc41"}}}},
{"name":"zero\u200bwidth","inputSchema":{"type":"object"}},{"name":"selector","description":"a\ufe01\ufe0f","inputSchema":{"type":"object"}},
{"name":"twice","inputSchema":{}},{"name":"twice","inputSchema":{"type":"object"}}]}`
	}
	r := newRig(t, echoServer(t, wire.Version20251125, &calls, tools), nil)
	r.initialize()
	require.Contains(t, r.request("tools/list", `{}`), `"result":{"tools":[{"name":"good","description":"a ⚠️ 👩‍💻\nline","inputSchema":{"type":"object"}}]}`)
	for _, name := range []string{"bidi", "tag", "selector", `zero\\u{200B}width`, "twice"} {
		require.Contains(t, r.request("tools/call", `{"name":"`+name+`"}`), "The gateway refuses this tool", name)
	}
	require.Contains(t, r.request("tools/call", `{"name":"zero\u200bwidth"}`), "lists no tool")
	require.Contains(t, r.request("tools/call", `{"name":"good"}`), `"content"`)
	require.Equal(t, int64(1), calls.Load())
	require.Equal(t, `tool "bidi" of MCP server srv is left out: its name, description or schema has hidden characters`, <-r.notes)
	require.Len(t, r.notes, 4, "each once")

	r = newRig(t, echoServer(t, wire.Version20251125, &calls, tools), func(o *Options) { o.ShowHidden = true })
	r.initialize()
	list := r.request("tools/list", `{}`)
	require.Contains(t, list, `"description":"a\\u{202E}b"`)
	require.Contains(t, list, `\\u{E0041}`)
	require.Contains(t, list, `"name":"zero\\u{200B}width"`)
	require.Contains(t, r.request("tools/call", `{"name":"zero\\u{200B}width"}`), "zero\u200bwidth", "the server gets its own name")
	c := r.judge.seen()[0]
	require.Equal(t, "mcp.srv.other", c.Tool)
	same(t, "{\"tool\":\"zero\u200bwidth\"}", string(c.Arguments))
}

func TestNamesInTheGate(t *testing.T) {
	g := &Gateway{o: Options{Server: "srv"}}
	for _, tt := range []struct{ name, arguments, tool, want string }{
		{"a_b-c.d", `{"x":1.0}`, "mcp.srv.a_b-c.d", `{"x":1.0}`},
		{"other", `{"x":1.0}`, "mcp.srv.other", `{"x":1.0,"tool":"other"}`},
		{"a b", `{}`, "mcp.srv.other", `{"tool":"a b"}`},
		{"a b", `{"tool":"c"}`, "mcp.srv.other", `{"arguments":{"tool":"c"},"tool":"a b"}`},
		{strings.Repeat("x", 60), `{}`, "mcp.srv.other", `{"tool":"` + strings.Repeat("x", 60) + `"}`},
	} {
		tool, arguments, err := g.inGate(tt.name, approval.Raw(tt.arguments))
		require.NoError(t, err)
		require.Equal(t, tt.tool, tool)
		require.Equal(t, tt.want, string(arguments))
	}
	for want, command := range map[string][]string{
		"server-filesystem": {"npx", "-y", "@modelcontextprotocol/server-filesystem@1.2", "/tmp"},
		"mcp_server_git":    {"python3", "-m", "mcp_server_git"},
		"weather":           {"/opt/weather.py"},
		"tool":              {"uvx", "tool@latest"},
		"server":            {"/opt/..."},
	} {
		require.Equal(t, want, NameOf(command, ""))
	}
	require.Equal(t, "mcp-example-org", NameOf(nil, "https://mcp.example.org:8443/x"))
	require.Equal(t, "git_hub-2", NameAs("git_hub-2"))
	seen := map[string]bool{}
	for _, given := range []string{"a.b", "a-b", "a b", "a/b", "-a-b", "a-b.js", "npx", "", "é", strings.Repeat("a", 200), strings.Repeat("a", 201)} {
		name := NameAs(given)
		require.True(t, validServer(name), name)
		require.False(t, seen[name], "%q is another server's name", given)
		seen[name] = true
	}
	_, err := New(Options{Server: "a.b"})
	require.ErrorContains(t, err, `"a.b" is no name`)
}

func TestOurMetaIsTakenOut(t *testing.T) {
	for _, tt := range []struct{ result, want string }{
		{`{"_meta":{"dev.permesso/receipt":"x","a":1.0},"x":1.0}`, `{"_meta":{"a":1.0},"x":1.0}`},
		{`{"_meta":{"dev.permesso/receipt":"x"},"x":1.0}`, `{"x":1.0}`},
		{`{"_meta":{"\u0064ev.permesso\/receipt":"x","a":1}}`, `{"_meta":{"a":1}}`},
		{`{"\u005fmeta":{"dev.permesso/receipt":"x","a":1}}`, `{"_meta":{"a":1}}`},
		{`{"x": "dev.permesso/receipt"}`, `{"x": "dev.permesso/receipt"}`},
	} {
		got, err := clean(approval.Raw(tt.result))
		require.NoError(t, err)
		require.Equal(t, tt.want, string(got))
	}
	_, err := clean(approval.Raw(`{"_meta":{},"_meta":{"dev.permesso/receipt":"x"}}`))
	require.Error(t, err)
}

func TestVersionsOfTheClient(t *testing.T) {
	var calls atomic.Int64
	start := func() *rig { return newRig(t, echoServer(t, wire.Version20251125, &calls, oneTool), nil) }
	r := start()
	answer := r.request("tools/list", `{}`)
	require.Contains(t, answer, "send initialize first, or, from 2026-07-28 on, _meta")
	require.Contains(t, answer, "-32602")
	require.Contains(t, r.request("initialize", `{`+newMeta+`}`), "-32601")
	require.Contains(t, r.request("ping", `{}`), `"result":{}`)
	require.Contains(t, r.request("tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}}`),
		`"error":{"code":-32022,"message":"Unsupported protocol version","data":{"`)
	require.Contains(t, r.request("tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`), "_meta lacks io.modelcontextprotocol/clientCapabilities")
	require.Contains(t, r.request("server/discover", `{`+newMeta+`}`), `"supportedVersions":["2026-07-28"]`)
	require.Contains(t, r.initialize(), `"protocolVersion":"2025-11-25"`, "who has only discovered may choose")
	require.Contains(t, r.request("tools/list", `{`+newMeta+`}`), "cannot be mixed in")
	require.Contains(t, r.initialize(), "initialize comes first and once")

	r = start()
	require.Contains(t, r.request("tools/list", `{`+newMeta+`}`), `"ttlMs":0,"cacheScope":"private"`)
	require.Contains(t, r.initialize(), "initialize comes first and once")
	for _, removed := range []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"} { // the server has them
		require.Contains(t, r.request(removed, `{"uri":"file:///r","level":"info",`+newMeta+`}`), `"code":-32601`, removed)
	}
	require.Contains(t, r.request("tools/list", `{}`), "_meta lacks io.modelcontextprotocol/protocolVersion")
	for _, bad := range []string{`{`, `[]`, `{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`, `{"jsonrpc":"1.0","id":1,"method":"a"}`, strings.Repeat("[", 5000)} {
		r.write(bad)
		require.Contains(t, r.read(), `"id":null,"error":{"code":-32700`)
	}
	r.write(`{"jsonrpc":"2.0","id":{},"method":"a"}`)
	require.Contains(t, r.read(), "an id must be a string or a number")
}

func TestExpiredRound(t *testing.T) {
	ended := make(chan error, 1)
	g := &Gateway{rounds: rounds{waiting: map[string]*round{}}}
	r := &round{finish: func(_ approval.Raw, err error) (approval.Raw, error) { ended <- err; return nil, err }}
	state, err := g.wait(r)
	require.NoError(t, err)
	r.expiry.Reset(time.Nanosecond)
	require.ErrorContains(t, <-ended, "did not come back")
	require.Empty(t, g.rounds.waiting[state])
}

// An older server asks during a call, and the client of 2026-07-28 answers in rounds. The call stays one.
func TestQuestionsOfAnOlderServer(t *testing.T) {
	var calls atomic.Int64
	answers, cancelled := make(chan string, 10), make(chan string, 10)
	serve := script(t, func(s *scripted) {
		var call line
		left := 0
		s.each(wire.Version20251125, func(l line) string {
			switch l.Method {
			case "tools/list":
				return echoTool
			case "tools/call":
				calls.Add(1)
				call, left = l, 2
				for n := range left {
					s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":"s%d","method":"elicitation/create","params":{"message":"m%d"}}`, n, n))
				}
			case "notifications/cancelled":
				cancelled <- string(l.Params)
			case "":
				answers <- string(l.ID) + string(l.Result)
				s.write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"first","progress":1}}`)
				if left--; left == 0 {
					s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, call.ID))
				}
			}
			return ""
		})
	})
	r := newRig(t, serve, nil)
	type asked struct {
		Result struct {
			RequestState  string
			InputRequests map[string]struct{ Params struct{ Message string } }
		}
	}
	token := "first"
	ask := func(more string) (a asked, text string) {
		meta := strings.Replace(newMeta, "{", `{"progressToken":"`+token+`",`, 1)
		text = r.request("tools/call", `{"name":"echo","arguments":{"a":1},`+meta+more+`}`)
		for strings.Contains(text, "notifications/progress") {
			require.Contains(t, text, `"progressToken":"round `, "the token of a later request")
			text = r.read()
		}
		require.NoError(t, json.Unmarshal([]byte(text), &a))
		return a, text
	}
	a, text := ask("")
	for round := 0; len(a.Result.InputRequests) > 0; round++ {
		require.Less(t, round, 3)
		for key, q := range a.Result.InputRequests { // one answer a round
			require.Regexp(t, "^m[01]$", q.Params.Message)
			token = fmt.Sprintf("round %d", round)
			a, text = ask(`,"requestState":"` + a.Result.RequestState + `","inputResponses":{"` + key + `":{"action":"accept","of":"` + q.Params.Message + `"}}`)
			break
		}
	}
	require.Contains(t, text, `"result":{"content":[],"resultType":"complete"}`)
	got := []string{<-answers, <-answers}
	require.ElementsMatch(t, []string{`"s0"{"action":"accept","of":"m0"}`, `"s1"{"action":"accept","of":"m1"}`}, got)
	require.Equal(t, int64(1), calls.Load())
	require.Len(t, r.judge.seen(), 1)
	require.Len(t, r.judge.ended(), 1)

	token = "first"
	// A client that never comes back: the end of the client ends the call.
	a, _ = ask("")
	require.NotEmpty(t, a.Result.RequestState)
	require.NoError(t, r.to.Close())
	require.NoError(t, <-r.served)
	r.served <- nil
	require.Len(t, r.judge.ended(), 2)
	require.Contains(t, r.judge.ended()[1], "error: ")
}

// What an older server takes back, the client hears of.
func TestServerTakesItsQuestionBack(t *testing.T) {
	answered := make(chan string, 1)
	r := newRig(t, script(t, func(s *scripted) {
		s.each(wire.Version20251125, func(l line) string {
			switch l.Method {
			case "prompts/list":
				s.write(`{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"m"}}`)
			case "resources/list":
				s.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
			case "":
				answered <- string(l.ID)
			}
			return `{}`
		})
	}), nil)
	r.initialize()
	lines := r.request("prompts/list", `{}`) + r.read()
	require.Contains(t, lines, `"id":"permesso-1","method":"elicitation/create","params":{"message":"m"}}`)
	lines = r.request("resources/list", `{}`) + r.read()
	require.Contains(t, lines, `"method":"notifications/cancelled","params":{"requestId":"permesso-1"}}`)
	r.write(`{"jsonrpc":"2.0","id":"permesso-1","result":{}}`)
	r.request("ping", `{}`)
	require.Empty(t, answered)
}
