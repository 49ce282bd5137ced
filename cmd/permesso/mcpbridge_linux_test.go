package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	osexec "os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// bridge serves by HTTP a program that speaks MCP on standard streams: one process for each session of 2025-11-25, and one
// for all requests of 2026-07-28. It passes messages on as they are, but for the ids and progress tokens of requests, which
// are not unique across the connections of HTTP. It checks no headers.
type bridge struct {
	t     *testing.T
	start func() *osexec.Cmd

	mu    sync.Mutex
	pipes map[string]*pipe // by Mcp-Session-Id; "": those without
}

// newBridge returns the URL.
func newBridge(t *testing.T, start func() *osexec.Cmd) string {
	b := &bridge{t: t, start: start, pipes: map[string]*pipe{}}
	s := httptest.NewServer(b)
	t.Cleanup(func() {
		s.CloseClientConnections()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.pipes {
			p.close()
		}
		s.Close()
	})
	return s.URL + "/mcp"
}

// rpcLine is a message of JSON-RPC.
type rpcLine struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitempty"`
	Method  string         `json:"method,omitempty"`
	Params  jsontext.Value `json:"params,omitempty"`
	Result  jsontext.Value `json:"result,omitempty"`
	Error   jsontext.Value `json:"error,omitempty"`
}

// pipe is a process and the requests that it has not answered.
type pipe struct {
	t  *testing.T
	in io.WriteCloser

	mu    sync.Mutex
	last  int
	calls []*exchange // the newest is the last one
	loose *exchange   // what belongs to no request, such as a GET
	ended chan struct{}
}

// exchange is a request by HTTP that gets messages.
type exchange struct {
	ours      int
	id, token jsontext.Value // as the client wrote them
	out       chan rpcLine
}

func (b *bridge) pipe(session string, create bool) *pipe {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pipes[session]
	if p == nil && create {
		cmd := b.start()
		p = &pipe{t: b.t, loose: &exchange{out: make(chan rpcLine, 1000)}, ended: make(chan struct{})}
		var err error
		p.in, err = cmd.StdinPipe()
		require.NoError(b.t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(b.t, err)
		require.NoError(b.t, cmd.Start())
		go func() {
			defer close(p.ended)
			for lines := bufio.NewReaderSize(out, 64<<20); ; {
				line, err := lines.ReadSlice('\n')
				if err != nil {
					break
				}
				var m rpcLine
				if json.Unmarshal(line, &m) == nil {
					p.received(m)
				}
			}
			_ = cmd.Wait()
		}()
		b.pipes[session] = p
	}
	return p
}

func (p *pipe) close() {
	_ = p.in.Close()
	<-p.ended
}

// received gives a message of the process to the request that it belongs to. What names none, such as a log message or a
// question, goes to the newest one.
func (p *pipe) received(m rpcLine) {
	var named struct {
		Token int `json:"progressToken"`
		Meta  struct {
			Subscription int `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
	}
	ours, _ := strconv.Atoi(string(m.ID))
	if m.Method != "" {
		_ = json.Unmarshal(m.Params, &named)
		ours = max(named.Token, named.Meta.Subscription)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.loose
	for i, e := range p.calls {
		if ours == 0 && m.Method != "notifications/resources/updated" || e.ours == ours {
			to = e
			if m.Method == "" {
				m.ID = e.id
				p.calls = append(p.calls[:i:i], p.calls[i+1:]...)
				break
			}
		}
	}
	switch {
	case named.Token != 0:
		m.Params, _ = wire.With(m.Params, "progressToken", to.token)
	case named.Meta.Subscription != 0:
		meta, _, _ := wire.Member(m.Params, "_meta")
		meta, _ = wire.With(meta, "io.modelcontextprotocol/subscriptionId", to.id)
		m.Params, _ = wire.With(m.Params, "_meta", meta)
	}
	to.out <- m
}

func (p *pipe) send(m rpcLine) {
	line, err := json.Marshal(m)
	require.NoError(p.t, err)
	_, _ = p.in.Write(append(line, '\n')) // of one that has ended, ended tells
}

func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	session := r.Header.Get("Mcp-Session-Id")
	if r.Method != http.MethodPost {
		p := b.pipe(session, false)
		if session == "" || p == nil || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		p.stream(w, r, p.loose, false)
		return
	}
	body, err := io.ReadAll(r.Body)
	var m rpcLine
	if err != nil || json.Unmarshal(body, &m) != nil {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	meta, _, _ := wire.Member(m.Params, "_meta")
	_, stateless, _ := wire.Member(meta, wire.MetaVersion)
	if m.Method == "initialize" && !stateless {
		b.mu.Lock()
		session = fmt.Sprintf("s%d", len(b.pipes))
		b.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", session)
	}
	p := b.pipe(session, session == "" || m.Method == "initialize")
	if p == nil {
		http.NotFound(w, r)
		return
	}
	if m.Method == "" || len(m.ID) == 0 {
		if m.Method == "notifications/cancelled" {
			m.Params = p.cancelled(m.Params)
		}
		p.send(m)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	e := &exchange{id: m.ID, out: make(chan rpcLine, 1000)}
	p.mu.Lock()
	p.last++
	e.ours = p.last
	p.calls = append(p.calls, e)
	p.mu.Unlock()
	m.ID = jsontext.Value(strconv.Itoa(e.ours))
	if token, has, _ := wire.Member(meta, "progressToken"); has {
		e.token = token
		meta, _ = wire.With(meta, "progressToken", m.ID)
		m.Params, _ = wire.With(m.Params, "_meta", meta)
	}
	p.send(m)
	p.stream(w, r, e, session == "")
}

// cancelled names the request by our id.
func (p *pipe) cancelled(params jsontext.Value) jsontext.Value {
	id, _, _ := wire.Member(params, "requestId")
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.calls {
		if bytes.Equal(e.id, id) {
			params, _ = wire.With(params, "requestId", jsontext.Value(strconv.Itoa(e.ours)))
		}
	}
	return params
}

// stream writes what a request gets, until its answer. One whose client goes away is canceled if it has no session.
func (p *pipe) stream(w http.ResponseWriter, r *http.Request, e *exchange, stateless bool) {
	if e == p.loose {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
	}
	for first := e != p.loose; ; first = false {
		var m rpcLine
		select {
		case m = <-e.out:
		case <-p.ended:
			return
		case <-r.Context().Done():
			if stateless {
				p.send(rpcLine{Version: "2.0", Method: "notifications/cancelled", Params: jsontext.Value(`{"requestId":` + strconv.Itoa(e.ours) + `}`)})
			}
			return
		}
		line, err := json.Marshal(m)
		require.NoError(p.t, err)
		if first && m.Method == "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(statusOf(stateless, m.Error))
			_, _ = w.Write(line)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: message\ndata: %s\n\n", line)
		_ = http.NewResponseController(w).Flush()
		if m.Method == "" && e != p.loose {
			return
		}
	}
}

// statusOf is the status by HTTP that 2026-07-28 wants for an error.
func statusOf(stateless bool, rpcError jsontext.Value) int {
	var e struct {
		Code int `json:"code"`
	}
	_ = json.Unmarshal(rpcError, &e)
	switch {
	case !stateless:
		return http.StatusOK
	case e.Code == -32601:
		return http.StatusNotFound
	case e.Code == -32602, e.Code == -32022, e.Code == -32021:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
