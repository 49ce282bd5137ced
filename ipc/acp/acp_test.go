package acp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/client"
)

// gate answers as its approver decides: true, false, or not at all.
type gate struct {
	mu        sync.Mutex
	asked     []approval.Request
	cancelled int
	answer    chan bool
}

func (g *gate) Ask(_ context.Context, r approval.Request) (client.Submitted, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b, err := r.Encode(); err != nil {
		return client.Submitted{}, err
	} else if _, err := approval.ParseRequest(b, r.RequestID); err != nil {
		return client.Submitted{}, err // as the gate would
	}
	g.asked = append(g.asked, r)
	return client.Submitted{ID: r.RequestID}, nil
}

func (g *gate) Await(ctx context.Context, _ client.Submitted) (*approval.Response, error) {
	select {
	case yes := <-g.answer:
		r := &approval.Response{Status: approval.StatusDenied}
		if yes {
			r.Status, r.Execution = approval.StatusApproved, approval.ExecutionAgent
		}
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (g *gate) Cancel(context.Context, client.Submitted) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancelled++
	return nil
}

// wires are an editor and an agent with the proxy between them.
type wires struct {
	t              *testing.T
	gate           *gate
	editor, agent  io.WriteCloser
	toEditor, toUs *bufio.Reader // what the editor and the agent get
	ended          chan error
	notes          *strings.Builder
}

func connect(t *testing.T) *wires {
	t.Helper()
	fromEditor, editor := io.Pipe()
	fromAgent, agent := io.Pipe()
	editorGets, toEditor := io.Pipe()
	agentGets, toAgent := io.Pipe()
	w := &wires{t: t, gate: &gate{answer: make(chan bool)}, editor: editor, agent: agent, toEditor: bufio.NewReader(editorGets), toUs: bufio.NewReader(agentGets), ended: make(chan error, 1), notes: &strings.Builder{}}
	p := &Proxy{Gate: w.gate, Note: func(text string) { fmt.Fprintln(w.notes, text) }}
	go func() { w.ended <- p.Run(t.Context(), fromEditor, toEditor, fromAgent, toAgent) }()
	return w
}

func (w *wires) write(to io.Writer, line string) {
	w.t.Helper()
	_, err := io.WriteString(to, line)
	require.NoError(w.t, err)
}

func (w *wires) read(from *bufio.Reader) string {
	w.t.Helper()
	line, err := from.ReadString('\n')
	require.NoError(w.t, err)
	return line
}

// gets requires the next line byte for byte.
func (w *wires) gets(from *bufio.Reader, want string) {
	w.t.Helper()
	require.Equal(w.t, want, w.read(from))
}

func (w *wires) end() {
	w.t.Helper()
	require.NoError(w.t, w.agent.Close())
	require.NoError(w.t, <-w.ended)
	require.NoError(w.t, w.editor.Close())
}

const permission = `{"jsonrpc":"2.0","id":%s,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c1","kind":"execute","title":"rm -rf build"},"options":[%s]}}` + "\n"

func options(kinds ...string) string {
	for i, k := range kinds {
		kinds[i] = `{"optionId":"o-` + k + `","name":"x","kind":"` + k + `"}`
	}
	return strings.Join(kinds, ",")
}

// Everything but what is judged passes byte for byte, in both directions, with odd white space and unknown members.
func TestPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t)
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}` + "\n",
			` {"id" : "x" , "result":{"stopReason":"end_turn","n":12345678901234567890.50}}` + "\r\n",
			`{"method":"session/update","params":{"sessionId":"s1","update":{"x":"` + strings.Repeat("é", 100_000) + `"}}}` + "\n",
			"\n", `{"method":"_vendor/extension"}` + "\n", `{"id":3,"method":"fs/read_text_file","params":{"path":"/p"}}` + "\n",
		} {
			w.write(w.editor, line)
			w.gets(w.toUs, line)
			w.write(w.agent, line)
			w.gets(w.toEditor, line)
		}
		w.end()
		require.Empty(t, w.gate.asked)
	})
}

// The decision becomes the option of its kind; allow_always is never one.
func TestPermission(t *testing.T) {
	for _, row := range []struct {
		offered string
		yes     bool
		want    string
	}{
		{options("allow_once", "allow_always", "reject_once", "reject_always"), true, `{"outcome":"selected","optionId":"o-allow_once"}`},
		{options("reject_always", "allow_always", "reject_once", "allow_once"), false, `{"outcome":"selected","optionId":"o-reject_once"}`},
		{options("allow_always", "reject_once"), true, `{"outcome":"cancelled"}`},
		{options("allow_once", "reject_always"), false, `{"outcome":"selected","optionId":"o-reject_always"}`},
		{options("allow_once", "allow_always"), false, `{"outcome":"cancelled"}`},
		{options("ALLOW_ONCE", "allow", ""), true, `{"outcome":"cancelled"}`},
		{"", true, `{"outcome":"cancelled"}`},
	} {
		for _, id := range []string{"7", `"a\"b"`, "null"} {
			synctest.Test(t, func(t *testing.T) {
				w := connect(t)
				w.write(w.agent, fmt.Sprintf(permission, id, row.offered))
				w.gate.answer <- row.yes
				w.gets(w.toUs, `{"jsonrpc":"2.0","id":`+id+`,"result":{"outcome":`+row.want+"}}\n")
				require.Equal(t, "acp-execute", w.gate.asked[0].ToolName)
				require.True(t, bytes.Equal([]byte(`{"toolCallId":"c1","kind":"execute","title":"rm -rf build"}`), w.gate.asked[0].RequestData))
				require.Equal(t, "s1", w.gate.asked[0].SessionID)
				w.end()
			})
		}
	}
}

// Writes, terminals and modes go on unchanged if they are approved, and else are an error of the side that asked.
func TestJudged(t *testing.T) {
	for _, row := range []struct {
		line   string
		editor bool
		tool   string
	}{
		{`{"jsonrpc":"2.0","id":4,"method":"fs/write_text_file","params":{"sessionId":"s1","path":"/p/x","content":"é"}}` + "\n", false, "fs-write_text_file"},
		{`{"jsonrpc":"2.0", "id":5,"method":"terminal/create","params":{"sessionId":"s1","command":"make"}}` + "\n", false, "terminal-create"},
		{`{"jsonrpc":"2.0","id":6,"method":"session/set_mode","params":{"sessionId":"s1","modeId":"bypassPermissions"}}` + "\n", true, "session-set_mode"},
		{`{"jsonrpc":"2.0","id":6,"method":"session/set_config_option","params":{"sessionId":"s1","configId":"mode","value":"yolo"}}` + "\n", true, "session-set_config_option"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := connect(t)
			from, on, back := w.agent, w.toEditor, w.toUs
			if row.editor {
				from, on, back = w.editor, w.toUs, w.toEditor
			}
			w.write(from, row.line)
			w.gate.answer <- true
			w.gets(on, row.line)
			w.write(from, row.line)
			w.gate.answer <- false
			require.Contains(t, w.read(back), `,"error":{"code":-32000,"message":"request `)
			require.Equal(t, row.tool, w.gate.asked[0].ToolName)
			require.NotEqual(t, w.gate.asked[0].RequestID, w.gate.asked[1].RequestID, "asked each time")
			w.end()
		})
	}
}

// While a person thinks, other messages pass; a cancelled turn and an end of the proxy are no yes.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t)
		w.write(w.agent, fmt.Sprintf(permission, "1", options("allow_once", "reject_once")))
		w.write(w.agent, fmt.Sprintf(strings.Replace(permission, "s1", "s2", 1), "2", options("allow_once", "reject_once")))
		time.Sleep(24 * time.Hour)
		const update = `{"method":"session/update","params":{}}` + "\n"
		w.write(w.agent, update)
		w.gets(w.toEditor, update)
		const cancel = `{"method":"session/cancel","params":{"sessionId":"s1"}}` + "\n"
		w.write(w.editor, cancel)
		w.gets(w.toUs, cancel)
		w.gets(w.toUs, `{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"cancelled"}}}`+"\n")
		require.Equal(t, 1, w.gate.cancelled)
		go func() { _, _ = io.Copy(io.Discard, w.toUs) }()
		w.end()
		require.Equal(t, 2, w.gate.cancelled)
	})
}

// An agent may take its question back. Another version of the protocol ends the connection.
func TestTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t)
		w.write(w.agent, fmt.Sprintf(permission, "1", options("allow_once", "reject_once")))
		synctest.Wait()
		const other = `{"method":"$/cancel_request","params":{"requestId":2}}` + "\n"
		w.write(w.agent, other)
		w.gets(w.toEditor, other)
		w.write(w.agent, `{"method":"$/cancel_request","params":{"requestId":1}}`+"\n")
		w.gets(w.toUs, `{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"cancelled"}}}`+"\n")
		w.end()
	})
	for version, same := range map[string]bool{"1": true, "2": false, `"1"`: false, "1.5": false, "null": false} {
		synctest.Test(t, func(t *testing.T) {
			w := connect(t)
			const initialize = `{"id":0,"method":"initialize","params":{"protocolVersion":2}}` + "\n"
			w.write(w.editor, initialize)
			w.gets(w.toUs, initialize)
			answer := `{"id":0,"result":{"protocolVersion":` + version + "}}\n"
			w.write(w.agent, answer)
			if same {
				w.gets(w.toEditor, answer)
				w.end()
				return
			}
			require.ErrorIs(t, <-w.ended, ErrVersion, version)
			require.NoError(t, w.editor.Close())
		})
	}
}

// A message that two readers could take for different ones reaches no one.
func TestAmbiguous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t)
		for _, line := range []string{
			`{"id":1,"method":"fs/write_text_file","method":"session/update","params":{}}`, `{"method":"x","params":{"a":1,"a":2}}`, "[" + strings.TrimSpace(fmt.Sprintf(permission, "1", "")) + "]",
			`{"method":"fs/write_text_file"`, "hello", `{"method":7}`, strings.Repeat("[", 1000), "{\"method\":\"\xff\"}",
		} {
			w.write(w.agent, line+"\n")
		}
		const last = `{"method":"session/update"}` + "\n"
		w.write(w.agent, last)
		w.gets(w.toEditor, last)
		w.end()
		require.Equal(t, 8, strings.Count(w.notes.String(), "a message was not passed on: "))
		require.Empty(t, w.gate.asked)
	})
}
