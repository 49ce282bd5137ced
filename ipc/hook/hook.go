// Package hook asks the gate before a call of an agent that people already run: Claude Code, Codex, Gemini CLI. Such an
// agent starts a program for each call, its hook, gives it the call on standard input, and lets the call through if the
// hook breaks. So
//
//   - a deny is exit 2 with one line on standard error, the form that each of these agents blocks on,
//   - exit 0 is only for a call that the gate has approved, after the whole answer went out in one write,
//   - every other end of the process is exit 2 with a sentence, also a panic of Go's runtime.
//
// What stays open, because the agent does not wait for the hook or does not start it, is in README.md.
//
// A call is a request with execution "agent": judged, typed and tainting like any other. The agent executes it, the gate
// runs nothing. The same call, in two hooks or in a repeated event, is one request.
//
// Source: the agents' programs, as tried; their versions stand in README.md.
package hook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/client"
)

// Exit codes of a hook. No other is ever used: the agents let a call through on exit 1.
const (
	Allow = 0
	Deny  = 2
)

const (
	maxEvent = 16 << 20 // bytes
	// margin is how long before the agent's time-out the hook denies: a late hook denies nothing.
	margin = 5 * time.Second
	notice = 30 * time.Second
)

// Answer is what the process of the hook does at its end.
type Answer struct {
	Out    []byte // in one write, before the exit
	Reason string // one line for standard error, if Exit is Deny
	Exit   int
}

// Hook is one process of an agent's hook.
type Hook struct {
	Agent   Agent
	Gate    client.Client
	Timeout time.Duration // after which the agent goes on without an answer; 0: the agent's default
	Notice  time.Duration // how long a gate may take to notice a request; 0: 30 s, in which a daemon starts again
}

// Run reads one event and asks the gate about its call.
func (h Hook) Run(ctx context.Context, in io.Reader) Answer {
	out, err := h.run(ctx, in)
	if err != nil {
		return Answer{Reason: oneLine(err.Error()), Exit: Deny}
	}
	return Answer{Out: out, Exit: Allow}
}

func (h Hook) run(ctx context.Context, in io.Reader) ([]byte, error) {
	hold := max(cmp.Or(h.Timeout, h.Agent.timeout)-margin, time.Second)
	ctx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	event, err := read(ctx, in)
	if err != nil {
		return nil, err
	}
	c, err := parse(event)
	if err != nil {
		return nil, fmt.Errorf("the event of %s cannot be read: %w", h.Agent.Name, err)
	}
	form, asks := h.Agent.asks[c.Event]
	switch {
	case !asks && h.Agent.informs[c.Event]:
		return nil, nil
	case !asks:
		return nil, fmt.Errorf("event %q of %s is not known: remove this hook from it", c.Event, h.Agent.Name)
	case c.Tool == "":
		return nil, fmt.Errorf("the event of %s names no tool", h.Agent.Name)
	}
	v, err := h.ask(ctx, c, hold)
	if err != nil {
		return nil, err
	}
	return form(v), nil
}

// read is the whole event. An agent that does not close the pipe has no answer.
func read(ctx context.Context, in io.Reader) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(in, maxEvent+1))
		done <- result{b, err}
	}()
	select {
	case <-ctx.Done():
		return nil, errors.New("no complete event came on standard input in time")
	case r := <-done:
		if r.err == nil && len(r.b) > maxEvent {
			r.err = fmt.Errorf("it is larger than %d MiB", maxEvent>>20)
		}
		if r.err != nil {
			return nil, fmt.Errorf("read the event: %w", r.err)
		}
		return r.b, nil
	}
}

// Call is what an agent is about to do.
type Call struct {
	Event     string       `json:"hook_event_name"`
	Session   string       `json:"session_id"`
	Folder    string       `json:"cwd"`
	Tool      string       `json:"tool_name"`
	Input     approval.Raw `json:"tool_input"`
	UseID     string       `json:"tool_use_id"` // "": the agent gives none
	AgentID   string       `json:"agent_id"`    // of a subagent; "": none
	AgentType string       `json:"agent_type"`

	event []byte
}

func parse(event []byte) (Call, error) {
	c := Call{event: event}
	if err := codec.DecodeOuter(event, &c); err != nil {
		return c, err
	}
	return c, nil
}

// id is the same for the same call: two hooks for one call ask once. Without an id of the call it is that of the event.
func (c Call) id(agent string) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(agent), []byte(c.Session), []byte(c.UseID), []byte(c.Tool), c.Input} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	if c.UseID == "" {
		h.Write(c.event)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

const (
	otherTool  = "other-call" // for a name that no tool can have
	maxSession = 128          // bytes; see approval.Request
	maxTitle   = 300
)

// request is the call as the gate judges it.
func (c Call) request(agent string, hold time.Duration) (approval.Request, error) {
	r := approval.Request{
		RequestID: c.id(agent), ToolName: c.Tool, RequestData: c.Input, Execution: approval.ExecutionAgent,
		SessionID: clip(c.Session, maxSession), Title: c.title(agent), ExpiresInSec: max(int64(hold/time.Second), 1),
	}
	switch kind := c.Input.Kind(); {
	case kind == 0 || kind == 'n':
		r.RequestData = approval.Raw("{}")
	case kind != '{':
		r.RequestData = approval.Raw(`{"input":` + string(c.Input) + `}`)
	}
	if !approval.ValidToolName(c.Tool) {
		data, err := codec.Encode(struct {
			Tool  string       `json:"tool"`
			Input approval.Raw `json:"input"`
		}{c.Tool, r.RequestData})
		if err != nil {
			return r, fmt.Errorf("the name of the tool: %w", err)
		}
		r.ToolName, r.RequestData = otherTool, data
	}
	return r, nil
}

// title is the agent's prose: who calls, and where.
func (c Call) title(agent string) string {
	who := agent
	if c.AgentID != "" {
		who += ", subagent " + cmp.Or(c.AgentType, c.AgentID)
	}
	return clip(oneLine(who+" in "+c.Folder), maxTitle)
}

// Verdict is the gate's approval of a call.
type Verdict struct {
	Call   Call
	Reason string // who has approved it, under which number
	Note   string // the approver's, for the agent; "": none
}

// ask returns the approval of a call, or an error that says why there is none.
func (h Hook) ask(ctx context.Context, c Call, hold time.Duration) (Verdict, error) {
	r, err := c.request(h.Agent.Name, hold)
	if err != nil {
		return Verdict{}, err
	}
	short := approval.ShortID(r.RequestID)
	asked, err := h.Gate.Ask(ctx, r)
	if err != nil {
		return Verdict{}, fmt.Errorf("the gate cannot be asked: %w", err)
	}
	resp, err := h.await(ctx, asked)
	if err != nil {
		// The request must not be approved for a call that was denied.
		_ = h.Gate.Cancel(context.WithoutCancel(ctx), asked)
		if silence, ok := errors.AsType[*client.Silence](err); ok {
			return Verdict{}, fmt.Errorf("no answer from the gate: %s", silence.Tried)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return Verdict{}, fmt.Errorf("interrupted before request %s was decided", short)
		}
		if ctx.Err() != nil {
			return Verdict{}, fmt.Errorf("request %s had no decision in time", short)
		}
		return Verdict{}, fmt.Errorf("request %s: %w", short, err)
	}
	if err := client.Approved(resp); err != nil {
		return Verdict{}, fmt.Errorf("request %s: %w", short, err)
	}
	if resp.Execution != approval.ExecutionAgent {
		return Verdict{}, fmt.Errorf("request %s was approved for the host to run, not for the agent", short)
	}
	v := Verdict{Call: c, Reason: "request " + short + ": allowed by a rule"}
	if by := resp.Decision.By; by != nil {
		v.Reason = "request " + short + ": approved by " + oneLine(*by)
	}
	if resp.Decision.Note != nil {
		v.Note = *resp.Decision.Note
	}
	return v, nil
}

// await waits for the end of a request, but only for a while for a gate that does not take it.
func (h Hook) await(ctx context.Context, asked client.Submitted) (*approval.Response, error) {
	first, cancel := context.WithTimeout(ctx, cmp.Or(h.Notice, notice))
	defer cancel()
	resp, err := h.Gate.Await(first, asked)
	if _, silent := errors.AsType[*client.Silence](err); err == nil || silent || first.Err() == nil || ctx.Err() != nil {
		return resp, err
	}
	return h.Gate.Await(ctx, asked)
}

// oneLine keeps a text from being anything else than a line of text to who reads it.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "�")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	return strings.TrimSpace(s)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
