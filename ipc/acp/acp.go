// Package acp stands between an editor and an agent that speak the Agent Client Protocol, version 1, and asks the gate
// where the agent asks for permission.
//
// The protocol is JSON-RPC, one message to a line, on the agent's standard input and output. Every line goes on byte for
// byte, but for these of the agent:
//
//	session/request_permission  the gate is asked; the editor never sees it. The answer is the option of kind allow_once
//	                            or reject_once, else "cancelled". allow_always is never chosen: a person has said once
//	fs/write_text_file          goes on if the gate approves it, else the agent gets an error
//	terminal/create             the same
//
// and session/set_mode and session/set_config_option of the editor, which may choose a mode in which the agent does not
// ask. What an agent does by itself, without a message, is not gated. If this program ends, the agent gets no answer, and so
// no yes. Two programs that agree on another version of the protocol are separated: its messages are not known here.
//
// Source: agentclientprotocol.com, schema version 1.
package acp

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

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/client"
)

// maxLine is larger than any message, in bytes.
const maxLine = 64 << 20

// maxDepth is more than any message nests.
const maxDepth = 256

// Proxy connects one editor with one agent.
type Proxy struct {
	Gate client.Client
	Note func(text string) // tells what cannot be told in the protocol

	agent, editor sender

	mu      sync.Mutex
	waiting map[*question]bool
	began   approval.Raw // the id of the editor's initialize
}

// question is a message that waits for the gate.
type question struct {
	session string
	id      string // of the message, with the side that sent it
	cancel  context.CancelFunc
}

// sender writes whole lines.
type sender struct {
	mu sync.Mutex
	to io.Writer
}

func (s *sender) send(line []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.to.Write(line)
	return err
}

// Run passes messages on until one of the two ends its output.
func (p *Proxy) Run(ctx context.Context, fromEditor io.Reader, toEditor io.Writer, fromAgent io.Reader, toAgent io.WriteCloser) error {
	p.editor.to, p.agent.to, p.waiting = toEditor, toAgent, map[*question]bool{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var asks sync.WaitGroup
	defer asks.Wait()
	defer cancel() // before that
	editorEnded, agentEnded := make(chan error, 1), make(chan error, 1)
	go func() {
		err := p.pass(ctx, &asks, fromEditor, &p.agent, p.ofEditor)
		_ = toAgent.Close() // as the editor's end
		editorEnded <- err
	}()
	go func() { agentEnded <- p.pass(ctx, &asks, fromAgent, &p.editor, p.ofAgent) }()
	select {
	case err := <-editorEnded:
		if err != nil {
			return err
		}
	case err := <-agentEnded:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	select { // the agent ends when it has read all
	case err := <-agentEnded:
		return err
	case <-time.After(lastWords):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lastWords is how long an agent may speak after the end of the editor.
const lastWords = 10 * time.Second

// message is what this program reads of a line.
type message struct {
	ID     approval.Raw `json:"id"`
	Method string       `json:"method"`
	Params approval.Raw `json:"params"`
	Result approval.Raw `json:"result"`

	from string // editor or agent
}

// pass copies lines. For a message that has to be judged, judge returns what to do in the background; the line waits with
// it, and no other line does.
func (p *Proxy) pass(ctx context.Context, asks *sync.WaitGroup, from io.Reader, to *sender, judge func(message) (func(context.Context, []byte), error)) error {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := codec.ReadLine(r, maxLine)
		if len(line) > 0 {
			do, why := p.sort(line, judge)
			switch {
			case errors.Is(why, ErrVersion):
				return why
			case why != nil:
				p.note(fmt.Errorf("a message was not passed on: %w", why))
			case do != nil:
				asks.Go(func() { do(ctx, line) })
			default:
				if err := to.send(line); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sort is what to do about a line; nil: pass it on. One that two readers could read differently, as with a name twice, is
// not passed on: the other side could take it for a message that has to be judged.
func (p *Proxy) sort(line []byte, judge func(message) (func(context.Context, []byte), error)) (func(context.Context, []byte), error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	if err := codec.CheckDepth(line, maxDepth); err != nil {
		return nil, err
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, err
	}
	return judge(m)
}

// ErrVersion says that the editor and the agent speak another version than this program.
var ErrVersion = errors.New("the agent speaks another version of the Agent Client Protocol than 1, whose messages are not known here")

// drop keeps a line from the other side.
func drop(context.Context, []byte) {}

func (p *Proxy) ofAgent(m message) (func(context.Context, []byte), error) {
	m.from = "agent"
	switch m.Method {
	case "session/request_permission":
		return func(ctx context.Context, _ []byte) { p.permission(ctx, m) }, nil
	case "fs/write_text_file", "terminal/create":
		return func(ctx context.Context, line []byte) { p.judge(ctx, m, line, &p.editor, &p.agent) }, nil
	case "$/cancel_request":
		return p.cancelRequest(m), nil
	case "":
		return nil, p.checkVersion(m)
	}
	return nil, nil
}

func (p *Proxy) ofEditor(m message) (func(context.Context, []byte), error) {
	m.from = "editor"
	switch m.Method {
	case "initialize":
		p.mu.Lock()
		defer p.mu.Unlock()
		p.began = m.ID
	case "session/cancel":
		p.cancel(m)
	case "session/set_mode", "session/set_config_option":
		return func(ctx context.Context, line []byte) { p.judge(ctx, m, line, &p.agent, &p.editor) }, nil
	case "$/cancel_request":
		return p.cancelRequest(m), nil
	}
	return nil, nil
}

// checkVersion looks at the agent's answer to initialize.
func (p *Proxy) checkVersion(m message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began == nil || !bytes.Equal(p.began, m.ID) {
		return nil
	}
	var result struct {
		Version *int `json:"protocolVersion"`
	}
	if m.Result != nil && (json.Unmarshal(m.Result, &result) != nil || result.Version == nil || *result.Version != 1) {
		return ErrVersion
	}
	return nil
}

// cancelRequest ends the question about a message that its sender has taken back. The other side has not seen it.
func (p *Proxy) cancelRequest(m message) func(context.Context, []byte) {
	var of struct {
		ID approval.Raw `json:"requestId"`
	}
	if json.Unmarshal(m.Params, &of) != nil {
		return nil
	}
	if p.end(func(q *question) bool { return q.id == m.from+string(of.ID) }) {
		return drop
	}
	return nil
}

// end ends the questions that are meant, and reports whether there is one.
func (p *Proxy) end(meant func(*question) bool) (found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for q := range p.waiting {
		if meant(q) {
			q.cancel()
			found = true
		}
	}
	return found
}

// judge sends the line on if the gate approves it, and else an error back.
func (p *Proxy) judge(ctx context.Context, m message, line []byte, on, back *sender) {
	err := p.ask(ctx, m, strings.ReplaceAll(m.Method, "/", "-"), m.Params)
	if err == nil {
		p.note(on.send(line))
		return
	}
	type rpcError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	p.reply(back, m, "error", rpcError{-32000, err.Error()})
}

// option is one that the agent offers.
type option struct {
	ID   string `json:"optionId"`
	Kind string `json:"kind"`
}

// permission answers for the editor.
func (p *Proxy) permission(ctx context.Context, m message) {
	var params struct {
		ToolCall approval.Raw `json:"toolCall"`
		Options  []option     `json:"options"`
	}
	err := json.Unmarshal(m.Params, &params)
	if err == nil {
		var call struct {
			Kind string `json:"kind"`
		}
		_ = json.Unmarshal(params.ToolCall, &call) // without a kind it is another one
		err = p.ask(ctx, m, toolOf(call.Kind), params.ToolCall)
	}
	kinds := []string{"allow_once"}
	if err != nil {
		p.note(err)
		kinds = []string{"reject_once", "reject_always"}
	}
	type outcome struct {
		Outcome string `json:"outcome"`
		Option  string `json:"optionId,omitempty"`
	}
	answer := outcome{Outcome: "cancelled"}
	if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		for _, kind := range kinds {
			for _, o := range params.Options {
				if o.Kind == kind && answer.Option == "" {
					answer = outcome{"selected", o.ID}
				}
			}
		}
	}
	p.reply(&p.agent, m, "result", map[string]outcome{"outcome": answer})
}

// toolOf is the tool of a call of this kind.
func toolOf(kind string) string {
	if kind == "" || !approval.ValidToolName("acp-"+kind) {
		kind = "other"
	}
	return "acp-" + kind
}

// ask is nil if the gate approves a message of a session.
func (p *Proxy) ask(ctx context.Context, m message, tool string, data approval.Raw) error {
	var of struct {
		Session string `json:"sessionId"`
	}
	_ = json.Unmarshal(m.Params, &of) // without one, it is of none
	ctx, done := p.begin(ctx, of.Session, m)
	defer done()
	if data.Kind() != '{' {
		return errors.New("the message has no object to judge")
	}
	id := approval.DigestAll([]byte(of.Session), m.ID, m.Params, []byte(client.NewID()))[:32]
	r := approval.Request{
		RequestID: id, ToolName: tool, RequestData: data,
		Execution: approval.ExecutionAgent, SessionID: of.Session[:min(len(of.Session), 128)],
	}
	short := approval.ShortID(r.RequestID)
	asked, err := p.Gate.Ask(ctx, r)
	if err != nil {
		return fmt.Errorf("the gate cannot be asked: %w", err)
	}
	resp, err := p.Gate.Await(ctx, asked)
	if err != nil {
		_ = p.Gate.Cancel(context.WithoutCancel(ctx), asked) // or it could be approved for a call that was not made
		return fmt.Errorf("request %s: %w", short, err)
	}
	if err := client.Approved(resp); err != nil {
		return fmt.Errorf("request %s: %w", short, err)
	}
	if resp.Execution != approval.ExecutionAgent {
		return fmt.Errorf("request %s was approved for the host to run, not for the agent", short)
	}
	return nil
}

// begin is the context of a question, which ends with the turn of its session.
func (p *Proxy) begin(ctx context.Context, session string, m message) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	q := &question{session, m.from + string(m.ID), cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[q] = true
	return ctx, func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, q)
	}
}

// cancel ends the questions of a session: the editor has cancelled its turn.
func (p *Proxy) cancel(m message) {
	var of struct {
		Session string `json:"sessionId"`
	}
	if json.Unmarshal(m.Params, &of) == nil {
		p.end(func(q *question) bool { return q.session == of.Session })
	}
}

// reply answers a request. A notification has no answer.
func (p *Proxy) reply(to *sender, m message, member string, v any) {
	if len(bytes.TrimSpace(m.ID)) == 0 {
		return
	}
	value, err := json.Marshal(v)
	if err != nil {
		p.note(err)
		return
	}
	line := codec.Object([]codec.Field{{Name: "jsonrpc", Value: approval.Raw(`"2.0"`)}, {Name: "id", Value: m.ID}, {Name: member, Value: value}})
	p.note(to.send(append(line, '\n')))
}

func (p *Proxy) note(err error) {
	if err != nil && p.Note != nil {
		p.Note(err.Error())
	}
}
