package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// MCPDialer speaks the Model Context Protocol, in every version that servers know. ctx bounds the beginning only.
type MCPDialer interface {
	// Pipes connects to a server through its standard input and output, which Close closes.
	Pipes(ctx context.Context, stdin io.WriteCloser, stdout io.ReadCloser) (MCPConn, error)
	// HTTP connects to a server at a URL.
	HTTP(ctx context.Context, url string, client *http.Client) (MCPConn, error)
}

// MCPConn is one connection to an MCP server. Its methods may be called at the same time.
type MCPConn interface {
	// Call sends a request and returns the bytes of its result. What the server refuses is an *MCPError. If ctx ends
	// first, the server is told that the request is cancelled.
	Call(ctx context.Context, method string, params approval.Raw) (approval.Raw, error)
	// Done is closed when the connection has ended.
	Done() <-chan struct{}
	Close() error
}

// MCPError is the answer of an MCP server that refuses a request.
type MCPError struct {
	Code    int64  `json:"code"`
	Message string `json:"message"`
}

func (e *MCPError) Error() string { return fmt.Sprintf("error %d: %s", e.Code, e.Message) }

const (
	startTimeout = 30 * time.Second // to start a server, and to agree on a version
	writeTimeout = 30 * time.Second // for a server to read what it is sent
	exitGrace    = time.Second      // for a server to end by itself when its input ends
	minRestart   = 100 * time.Millisecond
	maxRestart   = 30 * time.Second
	goneGrace    = killGrace + drainGrace + 2*exitGrace
)

// notSentError is why nothing of a message left the daemon.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// mcpServers are the servers that were started, by name. The zero value is ready to use.
type mcpServers struct {
	mu      sync.Mutex
	servers map[string]*mcpServer
	running sync.WaitGroup
	closed  bool
}

// mcpServer is a server from its start to its end.
type mcpServer struct {
	handler    approval.Handler // any tool's
	definition string
	stop       context.CancelFunc
	ready      chan struct{} // closed when conn or err is set
	conn       MCPConn
	err        error
	last       error         // of the server before it, nil if that began
	gone       chan struct{} // closed when nothing of it is left. Then these are set:
	ended      time.Time
	why        string // how its process ended, with the end of its stderr

	// Under the lock of mcpServers:
	failures int // how often it was started again without an answer since
	calls    int
	retired  bool // it is another one by now: it ends with its last call
}

// definition is the same for the tools of one server.
func definition(h approval.Handler) string {
	h.MCP.Tool, h.Timeout, h.MaxOutput, h.Idempotent = "", 0, 0, false
	return approval.Tool{Handler: h}.SHA256()
}

// mcpServer returns the server of a handler, which it starts if it does not run, or not as it is defined now. Call release
// after the last use.
func (r *Runner) mcpServer(ctx context.Context, h approval.Handler) (s *mcpServer, release func(), err error) {
	all := &r.servers
	all.mu.Lock()
	if all.closed {
		all.mu.Unlock()
		return nil, nil, errStopping
	}
	s = all.servers[h.MCP.Server]
	if s == nil || s.isGone() || s.definition != definition(h) {
		s = r.startServer(s, h)
	}
	s.calls++
	all.mu.Unlock()
	release = sync.OnceFunc(func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		s.calls--
		s.endIfUnused()
	})
	select {
	case <-s.ready:
	case <-ctx.Done():
		release()
		return nil, nil, cmp.Or(s.last, ctx.Err())
	}
	if s.err != nil {
		release()
		return nil, nil, s.err
	}
	return s, release, nil
}

var errStopping = errors.New("the daemon is stopping")

func (s *mcpServer) isGone() bool {
	return isClosed(s.gone) || isClosed(s.ready) && (s.err != nil || isClosed(s.conn.Done()))
}

// endIfUnused ends a server that is another one by now.
func (s *mcpServer) endIfUnused() {
	if s.retired && s.calls == 0 {
		s.stop()
	}
}

// startServer starts the successor of before, which may be nil, in the background. The lock is held.
func (r *Runner) startServer(before *mcpServer, h approval.Handler) *mcpServer {
	ctx, stop := context.WithCancel(r.lifetime())
	s := &mcpServer{handler: h, definition: definition(h), stop: stop, ready: make(chan struct{}), gone: make(chan struct{})}
	if before != nil {
		before.retired = true
		before.endIfUnused()
		if before.definition == s.definition { // it has ended, or could not start
			s.last = before.err
		}
	}
	if r.servers.servers == nil {
		r.servers.servers = map[string]*mcpServer{}
	}
	r.servers.servers[h.MCP.Server] = s
	r.servers.running.Go(func() {
		defer stop()
		restartAt := time.Now()
		if before != nil && before.definition == s.definition {
			<-before.gone
			restartAt = r.restartAt(before, s)
		}
		r.serve(ctx, s, restartAt)
		s.ended = time.Now()
		close(s.gone)
	})
	return s
}

// restartAt is when a server may start that comes after before, which is gone.
func (r *Runner) restartAt(before, s *mcpServer) time.Time {
	r.servers.mu.Lock()
	defer r.servers.mu.Unlock()
	s.failures = before.failures + 1
	return before.ended.Add(min(minRestart<<min(before.failures, 10), maxRestart))
}

// serve connects to a server, and waits for its end.
func (r *Runner) serve(ctx context.Context, s *mcpServer, at time.Time) {
	fail := func(err error) {
		s.err = fmt.Errorf("MCP server %s: %w", s.handler.MCP.Server, err)
		close(s.ready)
	}
	select {
	case <-time.After(time.Until(at)):
	case <-ctx.Done():
		fail(errStopping)
		return
	}
	if s.handler.HTTP.URL != "" {
		r.serveHTTP(ctx, s, fail)
	} else {
		r.serveCommand(ctx, s, fail)
	}
}

func (r *Runner) serveHTTP(ctx context.Context, s *mcpServer, fail func(error)) {
	h := s.handler.HTTP
	client, err := mcpClient(ctx, h)
	if err != nil {
		fail(err)
		return
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	conn, err := r.MCP.HTTP(starting, h.URL, client)
	cancel()
	if err != nil {
		fail(err)
		return
	}
	s.conn = conn
	close(s.ready)
	select {
	case <-conn.Done():
	case <-ctx.Done():
	}
	_ = conn.Close()
}

func (r *Runner) serveCommand(ctx context.Context, s *mcpServer, fail func(error)) {
	h := s.handler
	mark := newMark()
	env, err := withHostVariables([]string{envMark + "=" + mark}, h.Env)
	var path, dir string
	var temp bool
	if err == nil {
		path, err = lookPath(h.Argv[0], env)
	}
	if err == nil {
		dir, temp, err = r.workDir(h)
	}
	if err != nil {
		fail(err)
		return
	}
	if temp {
		defer r.removeAll(dir)
	}
	p, err := r.Supervisor.start(spec{
		path: path, argv: h.Argv, env: env, mark: mark, dir: dir, temp: temp, piped: true, memory: memoryOf(h), tasks: tasksOf(h),
	})
	if err != nil {
		fail(err)
		return
	}
	said := &tail{endless: true}
	stderr := collect(p.stderr, said)
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	conn, err := r.MCP.Pipes(starting, &mcpInput{p.stdin}, p.stdout)
	cancel()
	var end exit
	ended := false
	if err == nil {
		s.conn = conn
		close(s.ready)
		select {
		case <-conn.Done():
		case <-ctx.Done():
		case end = <-p.exited:
			ended = true
		}
		_ = conn.Close() // ends its input
	}
	_ = p.stdin.Close()
	if !ended {
		end = endServer(p, err == nil)
	}
	_ = p.stdout.Close()
	stderr.finish()
	s.why = serverEnd(h, end, said.String())
	if err != nil {
		if s.why != "" {
			err = fmt.Errorf("%w: %s", err, s.why)
		}
		fail(err)
	}
	r.Log.Info().Str("server", h.MCP.Server).Str("status", end.status).Msg("MCP server ended")
}

// endServer waits until a server has ended that may have seen the end of its input, and kills it.
func endServer(p *process, wait bool) exit {
	if wait {
		select {
		case e := <-p.exited:
			return e
		case <-time.After(exitGrace):
		}
	}
	p.kill()
	select {
	case e := <-p.exited:
		return e
	case <-time.After(killGrace):
		return exit{lost: true}
	}
}

// serverEnd says how a server ended, "" if there is nothing to say.
func serverEnd(h approval.Handler, e exit, stderr string) string {
	var parts []string
	switch {
	case e.notStarted != "":
		parts = append(parts, e.notStarted)
	case e.over == overMemory:
		parts = append(parts, fmt.Sprintf("more than %d bytes of memory (max_memory)", memoryOf(h)))
	case e.over == overTasks:
		parts = append(parts, fmt.Sprintf("more than %d processes and threads (max_processes)", tasksOf(h)))
	case e.status != "":
		parts = append(parts, e.status)
	}
	if stderr != "" {
		parts = append(parts, stderr)
	}
	return strings.Join(parts, ": ")
}

// mcpInput is the standard input of a server. One that does not read does not hold up the daemon.
type mcpInput struct{ *os.File }

// Write returns a notSentError if the server cannot have seen any of b.
func (w *mcpInput) Write(b []byte) (int, error) {
	_ = w.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := w.File.Write(b)
	if err != nil && n <= 0 {
		err = &notSentError{err}
	}
	return n, err
}

// mcpClient sends messages to a server by HTTP, with the headers of its definition, to its host only.
func mcpClient(ctx context.Context, h approval.HTTP) (*http.Client, error) {
	u, err := url.Parse(h.URL)
	if err != nil {
		return nil, errors.New("url: not valid")
	}
	transport, err := newTransport(ctx, h, u.Hostname())
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport:     &mcpTransport{h, transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("a redirect is not followed") },
	}, nil
}

type mcpTransport struct {
	http approval.HTTP
	next *http.Transport
}

// RoundTrip returns a notSentError if no connection was made.
func (t *mcpTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	connected := false
	r = r.Clone(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	}))
	r.Header.Set("User-Agent", "permesso")
	for name, value := range t.http.Headers {
		if r.Header.Get(name) == "" { // those of the protocol are its own
			r.Header.Set(name, value)
		}
	}
	for name, value := range t.http.SecretHeaders {
		secret, _, err := readSecret(value)
		if err != nil {
			return nil, &notSentError{fmt.Errorf("secret header %s: %w", name, err)}
		}
		r.Header.Set(name, secret)
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil && !connected {
		err = &notSentError{err}
	}
	return resp, err
}

// Use ends the MCP servers that none of the tools has any more, as they are defined, each after its last call.
func (r *Runner) Use(tools map[string]approval.Tool) {
	used := map[string]bool{}
	for _, t := range tools {
		if t.Handler.Kind == approval.HandlerMCP {
			used[definition(t.Handler)] = true
		}
	}
	r.servers.mu.Lock()
	defer r.servers.mu.Unlock()
	for name, s := range r.servers.servers {
		if !used[s.definition] {
			s.retired = true
			s.endIfUnused()
			delete(r.servers.servers, name)
		}
	}
}

// closeServers refuses further calls, and waits until every server has ended. Their contexts have ended.
func (r *Runner) closeServers() {
	r.servers.mu.Lock()
	r.servers.closed = true
	r.servers.mu.Unlock()
	r.servers.running.Wait()
}
