// Package wire is one connection to a server of the Model Context Protocol, as its client, message by message: parameters
// and results are bytes and stay the server's own. Of both versions it does what belongs to the connection:
//
//	2026-07-28          server/discover; every request gets _meta with version, client and capabilities
//	2025-11-25, older   initialize and notifications/initialized; over HTTP the version's header and the GET stream on
//	                    which a server speaks without being asked; ping is answered
//
// Everything else is the caller's. The transports are those of the official SDK, whose own client decodes and encodes
// results anew.
//
// Source: modelcontextprotocol.io, specification 2026-07-28 and 2025-11-25.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/permesso-dev/permesso/approval"
)

// Versions of the protocol: the first without initialize, and the last with it.
const (
	Version20260728 = "2026-07-28"
	Version20251125 = "2025-11-25"
)

// Stateless tells whether a version knows no initialize.
func Stateless(version string) bool { return version >= Version20260728 }

const (
	discoverTimeout = 3 * time.Second // an old server may be silent about what it does not know
	cancelTimeout   = 5 * time.Second
	maxRequests     = 64 // of a server, at once
)

// Options are what the server is told of its client, and who hears the server.
type Options struct {
	Client       approval.Raw // clientInfo; empty: {"name":"permesso"}
	Capabilities approval.Raw // clientCapabilities; empty: none
	Prefer       string       // the version that is tried first; "": the newest

	// Notification is called in the order of arrival, one at a time: while it runs nothing is read, so it must not call
	// the server.
	Notification func(method string, params approval.Raw)
	// Request answers a server of an old version; nil: every request is refused. Its error is sent as it is if it is a
	// *jsonrpc.Error. ctx ends with the connection, and when the server takes the request back.
	Request func(ctx context.Context, method string, params approval.Raw) (approval.Raw, error)
}

// Conn is one connection. Its methods may be called at the same time.
type Conn struct {
	o       Options
	conn    mcp.Connection
	version atomic.Value // string; "" until it is agreed
	server  approval.Raw
	http    bool

	mu       sync.Mutex
	last     ID
	calls    map[jsonrpc.ID]chan *jsonrpc.Response
	requests map[jsonrpc.ID]context.CancelFunc // of the server
	err      error

	ctx  context.Context // ends with the connection
	end  context.CancelFunc
	slot chan struct{}
}

// ErrEnded says that the connection ended before the answer came: what the server did is not known.
var ErrEnded = errors.New("the server ended the connection")

// Connect agrees on a version with the server behind t. ctx bounds that only. A transport for HTTP may be connected twice.
func Connect(ctx context.Context, t mcp.Transport, o Options) (*Conn, error) {
	if len(o.Client) == 0 {
		o.Client = approval.Raw(`{"name":"permesso","version":"1"}`)
	}
	if len(o.Capabilities) == 0 {
		o.Capabilities = approval.Raw(`{}`)
	}
	old := Version20251125
	ways := []func(context.Context, *Conn) error{discoverFor(discoverTimeout), initialize(old), discoverFor(0)}
	if o.Prefer != "" && !Stateless(o.Prefer) {
		ways = []func(context.Context, *Conn) error{initialize(o.Prefer), discoverFor(0)}
	}
	var c *Conn
	var errs []error
	for _, way := range ways {
		if c == nil {
			var err error
			if c, err = open(ctx, t, o); err != nil {
				return nil, errors.Join(append(errs, err)...)
			}
		}
		err := way(ctx, c)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
		if _, http := t.(*mcp.StreamableClientTransport); http {
			_ = c.Close() // an answer that is no JSON-RPC may have ended it
			c = nil
		}
	}
	if c != nil {
		_ = c.Close()
	}
	return nil, errors.Join(errs...)
}

func open(ctx context.Context, t mcp.Transport, o Options) (*Conn, error) {
	c := &Conn{
		o: o, calls: map[jsonrpc.ID]chan *jsonrpc.Response{}, requests: map[jsonrpc.ID]context.CancelFunc{},
		slot: make(chan struct{}, maxRequests),
	}
	c.version.Store("")
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	conn, err := c.throughHTTP(t).Connect(ctx)
	if err != nil {
		c.end()
		return nil, err
	}
	c.conn = conn
	go c.read()
	return c, nil
}

// discoverFor asks a server without initialize which versions it knows, and waits that long, 0: as long as ctx.
func discoverFor(wait time.Duration) func(context.Context, *Conn) error {
	return func(ctx context.Context, c *Conn) error {
		if wait > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, wait)
			defer cancel()
		}
		params, err := c.withMeta(Version20260728, nil)
		if err != nil {
			return err
		}
		result, _, err := c.exchange(ctx, "server/discover", params, func(ID) {})
		if err != nil {
			return fmt.Errorf("server/discover: %w", err)
		}
		var found struct {
			Versions []string `json:"supportedVersions"`
		}
		if err := json.Unmarshal(result, &found); err != nil {
			return fmt.Errorf("server/discover: %w", err)
		}
		for _, v := range mcp.SupportedProtocolVersions() { // newest first
			if Stateless(v) && slices.Contains(found.Versions, v) {
				c.server = result
				c.version.Store(v)
				return nil
			}
		}
		return fmt.Errorf("server/discover: the server knows only versions %.200q", found.Versions)
	}
}

func initialize(version string) func(context.Context, *Conn) error {
	return func(ctx context.Context, c *Conn) error {
		params, err := json.Marshal(struct {
			Version      string       `json:"protocolVersion"`
			Capabilities approval.Raw `json:"capabilities"`
			Client       approval.Raw `json:"clientInfo"`
		}{version, c.o.Capabilities, c.o.Client})
		if err != nil {
			return err
		}
		result, _, err := c.exchange(ctx, "initialize", params, func(ID) {})
		if err != nil {
			return fmt.Errorf("initialize: %w", err)
		}
		var agreed struct {
			Version string `json:"protocolVersion"`
		}
		if err := json.Unmarshal(result, &agreed); err != nil {
			return fmt.Errorf("initialize: %w", err)
		}
		if Stateless(agreed.Version) || !slices.Contains(mcp.SupportedProtocolVersions(), agreed.Version) {
			return fmt.Errorf("initialize: the server wants version %.40q, which is not known here", agreed.Version)
		}
		c.server = result
		c.version.Store(agreed.Version)
		if err := c.Notify(ctx, "notifications/initialized", nil); err != nil {
			return err
		}
		c.listen()
		return nil
	}
}

// Version is the version that both sides speak.
func (c *Conn) Version() string {
	v, _ := c.version.Load().(string)
	return v
}

// Server is the result of server/discover, or of initialize.
func (c *Conn) Server() approval.Raw { return c.server }

// ID is the number of a request on its connection.
type ID = int64

// Call sends a request and returns the bytes of its result, whatever the resultType. An error of the server is a
// *jsonrpc.Error. If ctx ends first, the server is told that the request is cancelled.
func (c *Conn) Call(ctx context.Context, method string, params approval.Raw) (approval.Raw, error) {
	return c.CallAs(ctx, method, params, func(ID) {})
}

// CallAs is Call for a request by whose id the server names it later, as subscriptions/listen. began is told the id before
// the request is sent.
func (c *Conn) CallAs(ctx context.Context, method string, params approval.Raw, began func(ID)) (approval.Raw, error) {
	if Stateless(c.Version()) {
		var err error
		if params, err = c.withMeta(c.Version(), params); err != nil {
			return nil, err
		}
		if c.http && method == "tools/call" {
			ctx = withHeaders(ctx, params)
		}
	}
	result, written, err := c.exchange(ctx, method, params, began)
	if ctx.Err() != nil && err != nil && written != nil {
		go c.cancel(written)
	}
	return result, err
}

// sent is a request; done ends when it is written, or cannot be.
type sent struct {
	id   jsonrpc.ID
	done chan struct{}
	err  error
}

// exchange sends a request and waits for its answer. It returns what was sent if ctx ended before.
func (c *Conn) exchange(ctx context.Context, method string, params approval.Raw, began func(ID)) (approval.Raw, *sent, error) {
	answer := make(chan *jsonrpc.Response, 1)
	c.mu.Lock()
	if err := c.err; err != nil {
		c.mu.Unlock()
		return nil, nil, err
	}
	c.last++
	number := c.last
	id, err := jsonrpc.MakeID(float64(number))
	c.calls[id] = answer
	c.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.calls, id)
	}()
	began(number)
	s := &sent{id: id, done: make(chan struct{})}
	stream, stop := context.WithCancel(ctx) // on which the answer comes over HTTP
	defer stop()
	// A server that does not read keeps the writer waiting, but not the caller.
	go func() {
		defer close(s.done)
		s.err = c.conn.Write(stream, &jsonrpc.Request{ID: id, Method: method, Params: []byte(params)})
	}()
	written := s.done
	for {
		select {
		case r := <-answer:
			return approval.Raw(r.Result), nil, serverError(r.Error)
		case <-written:
			if s.err != nil && ctx.Err() == nil {
				return nil, nil, c.notSent(serverError(s.err))
			}
			written = nil
		case <-ctx.Done():
			return nil, s, ctx.Err()
		case <-c.ctx.Done():
			select {
			case r := <-answer: // it came first
				return approval.Raw(r.Result), nil, serverError(r.Error)
			default:
				return nil, nil, c.Err()
			}
		}
	}
}

// notSentError is one of the transport, before an answer.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

func (c *Conn) notSent(err error) error {
	if _, own := err.(*jsonrpc.Error); own { //nolint:errorlint // serverError has unwrapped it
		return err
	}
	if !c.http { // streams of a server that has ended
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return &notSentError{err}
}

// rejected is the SDK's code for what it could not send.
const rejected = -32005

// serverError is the server's own error out of one of the transport, else that one.
func serverError(err error) error {
	var own *jsonrpc.Error
	if errors.As(err, &own) && own.Code != rejected {
		return own
	}
	return err
}

func (c *Conn) cancel(s *sent) {
	ctx, stop := context.WithTimeout(c.ctx, cancelTimeout)
	defer stop()
	select {
	case <-s.done: // or it could overtake the request
	case <-ctx.Done():
		return
	}
	params, err := json.Marshal(struct {
		ID any `json:"requestId"`
	}{s.id.Raw()})
	if err == nil {
		_ = c.Notify(ctx, "notifications/cancelled", params)
	}
}

// Notify sends a notification.
func (c *Conn) Notify(ctx context.Context, method string, params approval.Raw) error {
	if Stateless(c.Version()) {
		var err error
		if params, err = c.withMeta(c.Version(), params); err != nil { // the headers are made of it
			return err
		}
	}
	written := make(chan error, 1)
	go func() { written <- c.conn.Write(ctx, &jsonrpc.Request{Method: method, Params: []byte(params)}) }()
	select {
	case err := <-written:
		return serverError(err)
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return c.Err()
	}
}

// Done ends with the connection.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Err says why the connection ended; it wraps ErrEnded unless Close was called. It is nil before.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection, and a server that its transport has started.
func (c *Conn) Close() error {
	c.fail(errors.New("the connection to the server is closed"))
	return c.conn.Close()
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.end()
}

func (c *Conn) read() {
	for {
		m, err := c.conn.Read(c.ctx)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = ErrEnded
			} else {
				err = fmt.Errorf("%w: %w", ErrEnded, err)
			}
			c.fail(err)
			_ = c.conn.Close()
			return
		}
		switch m := m.(type) {
		case *jsonrpc.Response:
			c.mu.Lock()
			answer := c.calls[m.ID]
			delete(c.calls, m.ID) // a second answer has no reader
			c.mu.Unlock()
			if answer != nil {
				answer <- m
			}
		case *jsonrpc.Request:
			switch {
			case m.IsCall():
				c.request(m)
			case m.Method == "notifications/cancelled" && c.takenBack(m.Params):
			case c.o.Notification != nil:
				c.o.Notification(m.Method, approval.Raw(m.Params))
			}
		}
	}
}

// request answers one of the server, in the background.
func (c *Conn) request(m *jsonrpc.Request) {
	refuse := func(code int64, why string) {
		go c.respond(m.ID, nil, &jsonrpc.Error{Code: code, Message: why})
	}
	switch {
	case m.Method == "ping":
		go c.respond(m.ID, approval.Raw(`{}`), nil)
		return
	case c.o.Request == nil || Stateless(c.Version()):
		refuse(jsonrpc.CodeMethodNotFound, "requests of a server are not answered here")
		return
	}
	select {
	case c.slot <- struct{}{}:
	default:
		refuse(jsonrpc.CodeInternalError, fmt.Sprintf("more than %d requests at once", maxRequests))
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	c.requests[m.ID] = cancel
	c.mu.Unlock()
	go func() {
		defer func() {
			cancel()
			c.mu.Lock()
			delete(c.requests, m.ID)
			c.mu.Unlock()
			<-c.slot
		}()
		result, err := c.o.Request(ctx, m.Method, approval.Raw(m.Params))
		if ctx.Err() == nil { // one that was taken back has no answer
			c.respond(m.ID, result, err)
		}
	}()
}

func (c *Conn) respond(id jsonrpc.ID, result approval.Raw, err error) {
	r := &jsonrpc.Response{ID: id}
	var own *jsonrpc.Error
	switch {
	case errors.As(err, &own):
		r.Error = own
	case err != nil:
		r.Error = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	case len(result) == 0:
		r.Result = []byte(`{}`)
	default:
		r.Result = []byte(result)
	}
	_ = c.conn.Write(c.ctx, r) // the reader sees a connection that has ended
}

// takenBack ends the request that the server has cancelled, if it is one of its own.
func (c *Conn) takenBack(params []byte) bool {
	var of struct {
		ID any `json:"requestId"`
	}
	if json.Unmarshal(params, &of) != nil {
		return false
	}
	id, err := jsonrpc.MakeID(of.ID)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cancel := c.requests[id]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}
