// Package gateway stands between an agent's client and one server of the Model Context Protocol, and has every call of a
// tool judged before the server sees it.
//
// The client speaks on standard streams, one message to a line; the server is a wire.Conn. Each may speak 2025-11-25 (or
// older) or 2026-07-28. The version of the client's first message is tried first with the server, so that mostly nothing is
// translated; what is translated is in translate.go. Every message goes on with the bytes of its parameters and results,
// but for:
//
//	tools/list              tools with hidden characters, and those named twice, are left out
//	tools/call              goes on, once, if the Judge allows it; see Judge
//	elicitation/create      one with a URL names the URL's host in its message
//	sampling/createMessage  refused to the server, unless Options.Sampling
//	roots/list              refused to the server, unless Options.Roots
//	a result's _meta        loses the members dev.permesso/…: no server may pretend an approval
//
// A server that has ended is started again by the next request. It is not asked again what it was asked before.
package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

const (
	maxLine     = 64 << 20 // larger than any message, in bytes
	maxDepth    = 256      // more than any message nests
	maxRequests = 1024     // of the client, at once

	lastWords = 10 * time.Second // for what is under way when the client ends
)

// Judge decides about calls of tools. It is the only way to a tool of the server.
type Judge interface {
	// Judge returns when the call is decided, or waits in a form that the client can take up: then Verdict.Result is what
	// it has to be told, such as input_required or a task. An error is given to the agent as a tool's error. ctx ends when
	// the client takes the call back, with the cause ErrTakenBack, or when the client is lost, which takes nothing back.
	Judge(ctx context.Context, c Call) (Verdict, error)
}

// ErrTakenBack is the cause of the end of a context: the client has cancelled its request.
var ErrTakenBack = errors.New("the client has cancelled the request")

// Call is one call of a tool, whose arguments fit the tool's inputSchema as far as it can be checked.
type Call struct {
	Server    string       // the name of the server here
	Tool      string       // the gate's name for it: mcp.SERVER.TOOL, or mcp.SERVER.other
	Name      string       // the server's name for it
	Arguments approval.Raw // an object, verbatim; for mcp.SERVER.other with the member "tool"

	Definition string   // digest of the tool's definition, in hex
	Changes    []Change // definitions that differ from the approved ones: who allows the call has shown them to an approver

	// What the client sent beside.
	Meta      approval.Raw         // _meta, such as traceparent; may be empty
	State     string               // the requestState of a Judge's own input_required; "": none
	Stateless bool                 // the client speaks 2026-07-28: it understands input_required
	Progress  func(message string) // tells the client that the call still waits; nil: it does not listen
}

// Change is a definition that is not the approved one.
type Change struct {
	Of       string // "tool" or "server"
	Old, New string // as JSON objects
}

// Verdict is how a call was decided.
type Verdict struct {
	// Result, if it is not empty, is given to the client instead of the server's. In 2026-07-28 it needs no resultType if
	// that is "complete".
	Result approval.Raw
	// Done, for an allowed call, is told how it ended, once, and returns what the client gets, with members of _meta added,
	// to an error in its data. err wraps ErrNotCalled, is an error of the server (*jsonrpc.Error), or says that the outcome
	// is not known. It is told, too, of a call that ended before its client: then nothing is sent, and what it returns is
	// not read.
	Done func(result approval.Raw, err error) (approval.Raw, error)
}

// Options are what a gateway stands before.
type Options struct {
	Server   string       // its name: letters, digits, "_", "-"; see NameOf
	Identity approval.Raw // what is pinned of the server itself; see Process.Identity and RemoteIdentity
	// Connect makes the transport; it starts the server. See Command and Remote.
	Connect func(context.Context) (mcp.Transport, error)
	Judge   Judge
	Pins    *Pins

	Sampling, Roots bool // pass sampling/createMessage, roots/list
	ShowHidden      bool // list tools with hidden characters, which are written as \u{…}

	Note         func(text string) // tells what cannot be told in the protocol
	StartTimeout time.Duration     // for the start of the server, and for its list of tools; 0: a minute
}

// Gateway connects one client with one server.
type Gateway struct {
	o     Options
	ctx   context.Context
	tools catalog
	conns connector

	out     sync.Mutex
	to      io.Writer
	work    sync.WaitGroup
	schemas schemas

	mu       sync.Mutex
	client   *session
	inflight map[string]context.CancelCauseFunc // by the id of the client's request
	asked    map[string]chan reply              // by the id of our request to the client
	lastID   int
	rounds   rounds
	streams  streams
}

// session is what a client says of itself: once in initialize, or in every request of 2026-07-28.
type session struct {
	stateless bool
	version   string
	info      approval.Raw
	caps      approval.Raw // those that the server may know
	level     string       // of log messages, "" : not asked for
}

// New checks the options.
func New(o Options) (*Gateway, error) {
	if !validServer(o.Server) {
		return nil, fmt.Errorf("%.60q is no name for an MCP server: use letters, digits, _ and -, at most %d", o.Server, maxServer)
	}
	if o.Connect == nil || o.Judge == nil || o.Pins == nil {
		return nil, errors.New("a gateway needs a server, a judge and a file for definitions")
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = time.Minute
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	g := &Gateway{o: o, inflight: map[string]context.CancelCauseFunc{}, asked: map[string]chan reply{}}
	g.conns.turn = make(chan struct{}, 1)
	g.tools.turn, g.tools.noted = make(chan struct{}, 1), map[string]bool{}
	g.rounds.waiting = map[string]*round{}
	g.streams = streams{ofServer: map[wire.ID]jsontext.Value{}, local: map[string]*listener{}, uris: map[string]context.CancelFunc{}, acks: map[wire.ID]chan struct{}{}}
	return g, nil
}

// Serve passes messages on until the client ends its output.
func (g *Gateway) Serve(ctx context.Context, from io.Reader, to io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	g.ctx, g.to = ctx, to
	defer func() {
		cancel()
		g.conns.close()
		ended := make(chan struct{})
		go func() {
			g.work.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(lastWords): // a client that does not read
		}
		g.dropRounds()
	}()
	r := bufio.NewReaderSize(from, 64<<10)
	type read struct {
		line []byte
		err  error
	}
	lines := make(chan read)
	go func() {
		for {
			line, err := codec.ReadLine(r, maxLine)
			select {
			case lines <- read{line, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case l := <-lines:
			if len(bytes.TrimSpace(l.line)) > 0 {
				g.receive(ctx, l.line)
			}
			if errors.Is(l.err, io.EOF) {
				return nil
			}
			if l.err != nil {
				return l.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// message is one line of the client.
type message struct {
	Version string         `json:"jsonrpc"`
	ID      approval.Raw   `json:"id"`
	Method  *string        `json:"method"`
	Params  approval.Raw   `json:"params"`
	Result  approval.Raw   `json:"result"`
	Error   *jsonrpc.Error `json:"error"`
}

// receive handles a line. One that two readers could read differently, as with a name twice, is refused.
func (g *Gateway) receive(ctx context.Context, line []byte) {
	var m message
	err := codec.CheckDepth(line, maxDepth)
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil || m.Version != "2.0" {
		g.respond(approval.Raw("null"), nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "not a message of JSON-RPC 2.0, or one that is not strict JSON"})
		return
	}
	id := m.ID.Kind()
	switch {
	case m.Method == nil:
		g.replied(m)
	case len(m.ID) == 0:
		g.notified(ctx, *m.Method, m.Params)
	case id != '"' && id != '0':
		g.respond(approval.Raw("null"), nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "an id must be a string or a number"})
	default:
		g.requested(ctx, m)
	}
}

// requested answers a request in the background.
func (g *Gateway) requested(ctx context.Context, m message) {
	id := string(m.ID)
	ctx, cancel := context.WithCancelCause(ctx)
	g.mu.Lock()
	_, twice := g.inflight[id]
	full := len(g.inflight) >= maxRequests
	if !twice && !full {
		g.inflight[id] = cancel
	}
	g.mu.Unlock()
	if twice || full {
		cancel(nil)
		why := fmt.Sprintf("more than %d requests at once", maxRequests)
		if twice {
			why = "the id is that of a request that has no answer yet"
		}
		g.respond(m.ID, nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: why})
		return
	}
	g.work.Go(func() {
		result, err := g.answer(ctx, m)
		g.mu.Lock()
		delete(g.inflight, id)
		g.mu.Unlock()
		if ctx.Err() == nil { // one that was taken back has no answer
			g.respond(m.ID, result, err)
		}
		cancel(nil)
	})
}

// notified passes a notification on.
func (g *Gateway) notified(ctx context.Context, method string, params approval.Raw) {
	switch method {
	case "notifications/cancelled":
		var of struct {
			ID approval.Raw `json:"requestId"`
		}
		if json.Unmarshal(params, &of) != nil {
			return
		}
		g.mu.Lock()
		cancel := g.inflight[string(of.ID)]
		g.mu.Unlock()
		if cancel != nil {
			cancel(ErrTakenBack) // the connection tells the server
		}
	case "notifications/initialized": // the connection has said it
		g.work.Go(g.hearChanges)
	case "notifications/roots/list_changed":
		if g.o.Roots {
			g.passNotification(ctx, method, params)
		}
	case "notifications/progress":
		g.passNotification(ctx, method, params)
	default: // such as tools/call without an id, which some servers would execute
		g.note("%s was not passed on: it is no notification of the protocol", show(method))
	}
}

func (g *Gateway) passNotification(ctx context.Context, method string, params approval.Raw) {
	c := g.conns.now()
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if err := c.Notify(ctx, method, params); err != nil {
		g.note("%s was not passed on: %v", show(method), err)
	}
}

const notifyTimeout = 2 * time.Second

// reply is what the client answers.
type reply struct {
	result approval.Raw
	err    error
}

func (g *Gateway) replied(m message) {
	g.mu.Lock()
	answer := g.asked[string(m.ID)]
	delete(g.asked, string(m.ID))
	g.mu.Unlock()
	if answer == nil {
		return
	}
	r := reply{result: m.Result}
	if m.Error != nil {
		r.err = m.Error
	}
	answer <- r
}

// ask sends a request of the server to a client of an old version.
func (g *Gateway) ask(ctx context.Context, method string, params approval.Raw) (approval.Raw, error) {
	answer := make(chan reply, 1)
	g.mu.Lock()
	g.lastID++
	id := fmt.Sprintf(`"permesso-%d"`, g.lastID)
	g.asked[id] = answer
	g.mu.Unlock()
	g.send(codec.Field{Name: "id", Value: approval.Raw(id)}, codec.Field{Name: "method", Value: quote(method)}, codec.Field{Name: "params", Value: params})
	select {
	case r := <-answer:
		return r.result, r.err
	case <-ctx.Done():
		g.mu.Lock()
		delete(g.asked, id)
		g.mu.Unlock()
		g.notify("notifications/cancelled", approval.Raw(`{"requestId":`+id+`}`))
		return nil, ctx.Err()
	}
}

func (g *Gateway) notify(method string, params approval.Raw) {
	g.send(codec.Field{Name: "method", Value: quote(method)}, codec.Field{Name: "params", Value: params})
}

func (g *Gateway) respond(id, result approval.Raw, err error) {
	if err == nil {
		if len(result) == 0 {
			result = approval.Raw(`{}`)
		}
		g.send(codec.Field{Name: "id", Value: id}, codec.Field{Name: "result", Value: result})
		return
	}
	b, bad := json.Marshal(rpcError(err))
	if bad != nil {
		b = []byte(`{"code":-32603,"message":"the error cannot be written"}`)
	}
	g.send(codec.Field{Name: "id", Value: id}, codec.Field{Name: "error", Value: b})
}

func rpcError(err error) *jsonrpc.Error {
	e := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	var own *jsonrpc.Error
	switch {
	case errors.As(err, &own) && own.Code != codeRejected:
		*e = *own
	case errors.Is(err, wire.ErrEnded):
		e.Message = "the server ended; the outcome is not known"
	}
	e.Message = strings.ToValidUTF8(e.Message, "\ufffd")
	return e
}

// send writes one line. A member without a value is left out.
func (g *Gateway) send(members ...codec.Field) {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0"`)
	for _, m := range members {
		value := m.Value
		if len(value) == 0 {
			continue
		}
		if bytes.ContainsAny(value, "\n\r") {
			value = value.Clone()
			if value.Compact() != nil {
				value = approval.Raw("null")
			}
		}
		fmt.Fprintf(&b, `,"%s":`, m.Name)
		b.Write(value)
	}
	b.WriteString("}\n")
	g.out.Lock()
	defer g.out.Unlock()
	if _, err := g.to.Write(b.Bytes()); err != nil {
		g.note("write to the client: %v", err)
	}
}

func quote(s string) approval.Raw { return codec.Quote(s) }

func (g *Gateway) note(format string, args ...any) { g.o.Note(fmt.Sprintf(format, args...)) }
