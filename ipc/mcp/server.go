package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Server serves one client on standard input and output. Set the fields, then call Run.
type Server struct {
	Waiter  *Waiter
	Version string // of the program
	Session string // to which grants may be bound; "": none
	// Permit is the request for one call of an agent's own tool; nil: permission prompts are denied. client is the name that
	// the agent's client gives itself, "" if none.
	Permit func(client, tool string, input approval.Raw) (approval.Request, error)
	Notify bool                   // the client may show that a request waits: see Elicitation in elicit.go
	Page   func(id string) string // the gate's page for a request; nil: there is none to show
}

const (
	newRevision  = "2026-07-28"
	tasksName    = "io.modelcontextprotocol/tasks"
	maxMessage   = 16 << 20 // bytes
	keepList     = 5 * time.Minute
	instructions = "permesso is an approval gate. execute_approved has the host execute a tool after a person or a rule has approved it, run_program a whole program of such calls; " +
		"request_approval asks about what you do yourself. A person may take long: if a call returns before there is a decision, make the same call again."
)

// peer is who a call comes from.
type peer struct {
	*Server
	ctx  context.Context // its end ends all calls, and cancels no request
	open atomic.Bool     // the client could cancel a call, and has not just gone
	ends Ends
}

type peerKey struct{}

func peerOf(ctx context.Context) *peer { return ctx.Value(peerKey{}).(*peer) }

// Ends are those that a client is about to receive. The zero value has none.
type Ends struct {
	mu sync.Mutex
	of map[string]*Answer // by request
}

// Sending notes that the client is about to receive the end of a request, if there is one.
func (e *Ends) Sending(a *Answer) {
	if a == nil || a.Ended == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil {
		e.of = map[string]*Answer{}
	}
	e.of[a.ID] = a
	a.Sending()
}

// Sent says that the client has received a result.
func (e *Ends) Sent(result approval.Raw) {
	id := requestIn(result)
	e.mu.Lock()
	a := e.of[id]
	delete(e.of, id)
	e.mu.Unlock()
	if a != nil {
		_ = a.Received() // if that fails, it gets it again
	}
}

// newSDK returns the SDK's server, which finds the peer of a call in its context.
func newSDK(version string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "permesso", Title: "permesso approval gate", Version: version}, &mcp.ServerOptions{
		Instructions: instructions, Logger: slog.New(slog.DiscardHandler), SetCacheable: cacheable,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Extensions: map[string]any{tasksName: map[string]any{}}},
	})
	for _, t := range tools() {
		d := &mcp.Tool{
			Name: t.name, Title: t.title, Description: t.does, InputSchema: json.RawMessage(t.input),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.readOnly},
		}
		if t.output != "" {
			d.OutputSchema = json.RawMessage(t.output)
		}
		s.AddTool(d, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return peerOf(ctx).call(ctx, t, req)
		})
	}
	s.AddReceivingMiddleware(taskResults)
	addTasks(s)
	return s
}

// cacheable says how long a client may keep what only another version of this program changes.
func cacheable(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
	c.TTLMs, c.CacheScope = int(keepList.Milliseconds()), "private"
}

// Run serves the client until its input or ctx ends.
func (s *Server) Run(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &peer{Server: s, ctx: ctx}
	p.open.Store(true)
	to := &output{WriteCloser: out}
	t := &mcp.IOTransport{Reader: newInput(in, to), Writer: to, MaxLineLength: -1} // input has a limit
	err := newSDK(s.Version).Run(context.WithValue(ctx, peerKey{}, p), &transport{t, p, to, cancel})
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// transport sees the end of the client before its calls do, and that a result was sent.
type transport struct {
	mcp.Transport
	peer *peer
	out  *output
	end  context.CancelFunc
}

func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	return &connection{Connection: c, t: t}, err
}

type connection struct {
	mcp.Connection
	t *transport

	mu       sync.Mutex
	answers  int           // to be written
	answered chan struct{} // closed when the client has ended and there are none; nil: it has not
}

// lastWords is how long what is under way may take when the client has ended its input.
const lastWords = time.Second

// count changes how many answers are to be written.
func (c *connection) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers += n; c.answers <= 0 && c.answered != nil {
		close(c.answered)
		c.answered = nil
	}
}

// ended ends all calls, but first lets those end that do not wait. The SDK hears of the end after that: it then sends no
// more answers.
func (c *connection) ended() {
	answered := make(chan struct{})
	c.mu.Lock()
	c.answered = answered
	c.mu.Unlock()
	c.count(0)
	select {
	case <-answered:
	case <-time.After(lastWords):
	case <-c.t.peer.ctx.Done():
	}
	c.t.end()
}

func (c *connection) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := next(ctx, c.Connection, c.t.out)
	if err != nil {
		c.t.peer.open.Store(false)
		c.ended()
	} else if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		c.count(1)
	}
	return m, err
}

func (c *connection) Write(ctx context.Context, m jsonrpc.Message) error {
	r, ok := m.(*jsonrpc.Response)
	if ok {
		defer c.count(-1)
	}
	if err := c.Connection.Write(ctx, m); err != nil {
		return err
	}
	if ok && r.Error == nil {
		c.t.peer.ends.Sent(approval.Raw(r.Result))
	}
	return nil
}

// Handler serves many clients by HTTP, each request by itself. of returns the server of the client that has sent one.
func Handler(version string, of func(*http.Request) (*Server, error)) http.Handler {
	sdk := newSDK(version)
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return sdk }, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxMessage, DisableLocalhostProtection: true, // the caller has checked the host
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := of(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		p := &peer{Server: s, ctx: r.Context()}
		out := &watched{ResponseWriter: w}
		h.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), peerKey{}, p)))
		p.ends.mu.Lock()
		defer p.ends.mu.Unlock()
		for _, a := range p.ends.of {
			if r.Context().Err() != nil || out.failed {
				a.NotReceived()
				continue
			}
			_ = a.Received() // if that fails, it gets it again
		}
	})
}

// watched knows whether all was written.
type watched struct {
	http.ResponseWriter
	failed bool
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.failed = w.failed || err != nil
	return n, err
}

func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError implements the interface of http.ResponseController.
func (w *watched) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.failed = w.failed || err != nil
	return err
}

// call is one call of a tool.
type call struct {
	peer *peer
	req  *mcp.CallToolRequest
	made *result // for taskResults
}

type callKey struct{}

// call runs a tool. What it cannot do, a result says.
func (p *peer) call(ctx context.Context, t tool, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	of := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(of))
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Canceled) })()
	defer context.AfterFunc(of, func() { // the client has cancelled the call, or is gone
		if p.open.Load() {
			cancel(ErrCancelled)
			return
		}
		cancel(context.Canceled)
	})()
	c := &call{peer: p, req: req}
	a, err := c.arguments()
	var r *result
	if err == nil {
		r, err = t.run(ctx, p.Server, c, a)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case errors.Is(err, errState):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	case err != nil:
		r = errorResult(err)
	}
	p.ends.Sending(r.answer)
	if made, ok := ctx.Value(callKey{}).(*call); ok {
		made.made = r
	}
	return &r.CallToolResult, nil
}

// arguments reads the arguments of a call.
func (c *call) arguments() (a asks, err error) {
	args := c.req.Params.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := codec.Decode(args, &a); err != nil {
		return a, errors.New("the arguments cannot be read: " + err.Error())
	}
	return a, nil
}

// waiting adds to a call how its client can wait.
func (c *call) waiting(w Call) Call {
	w.Rounds = c.req.ProtocolVersion() >= newRevision
	w.Tasks = w.Rounds && declaresTasks(c.req.Params.GetMeta())
	w.State = c.req.Params.RequestState
	if token := c.req.Params.GetProgressToken(); token != nil {
		w.Progress = func(ctx context.Context, seconds float64, text string) {
			_ = c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: seconds, Message: text})
		}
	}
	return w
}

// ask asks the gate about a call and waits.
func (s *Server) ask(ctx context.Context, c *call, w Call) (*result, error) {
	w = c.waiting(w)
	if of := s.offered(c, w.Request); of != nil {
		return s.askShowing(ctx, c, w, of)
	}
	answer, err := s.Waiter.Do(ctx, w)
	return s.answer(answer, err)
}

func (s *Server) answer(a *Answer, err error) (*result, error) {
	switch {
	case err != nil:
		return nil, err
	case a.Ended == nil:
		return s.notYet(a)
	}
	return s.end(a)
}

// traceparent is the member of a request's metadata, and of a call's _meta, for trace context (W3C).
const traceparent = "traceparent"

// metadata is what goes with a request into the record.
func (c *call) metadata() approval.Raw {
	trace, _ := c.req.Params.GetMeta()[traceparent].(string)
	return traceData(trace)
}

// Trace is the metadata of a request for a call with this _meta.
func Trace(meta approval.Raw) approval.Raw {
	var of struct {
		Parent string `json:"traceparent"`
	}
	if len(meta) == 0 || codec.DecodeOuter(meta, &of) != nil {
		return nil
	}
	return traceData(of.Parent)
}

func traceData(trace string) approval.Raw {
	if trace == "" || len(trace) > 128 || strings.ContainsFunc(trace, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil
	}
	b, err := marshal(map[string]string{traceparent: trace})
	if err != nil {
		return nil
	}
	return b
}
