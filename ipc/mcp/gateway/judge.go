package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	own "github.com/permesso-dev/permesso/ipc/mcp"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// Gate is the Judge that asks the gate. A call is a request with execution "agent" for the tool mcp.SERVER.TOOL: judged,
// typed and tainting like any other. The gateway executes what was approved, once.
type Gate struct {
	Waiter  *own.Waiter
	Session string

	ends own.Ends
}

// Judge implements Judge.
func (g *Gate) Judge(ctx context.Context, c Call) (Verdict, error) {
	r := approval.Request{
		ToolName: c.Tool, RequestData: c.Arguments, Execution: approval.ExecutionAgent, SessionID: g.Session, Metadata: own.Trace(c.Meta),
	}
	text, err := changeText(c.Changes)
	if err == nil {
		r.RequestData, err = with(c.Arguments, facts.DefinitionChange, text)
	}
	if err != nil {
		return Verdict{}, err
	}
	// With the changes: what was asked without showing them is not what is asked now.
	action, err := json.Marshal([]any{"proxy", c.Server, c.Name, c.Definition, c.Changes, c.Arguments})
	if err != nil {
		return Verdict{}, err
	}
	waiting := own.Call{Action: action, Request: r, Run: true, Rounds: c.Stateless, State: c.State}
	if c.Progress != nil {
		waiting.Progress = func(_ context.Context, _ float64, text string) { c.Progress(text) }
	}
	asking, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrTakenBack) {
			cancel(own.ErrCancelled)
			return
		}
		cancel(context.Cause(ctx))
	})()
	answer, err := g.Waiter.Do(asking, waiting)
	if err != nil {
		return Verdict{}, err
	}
	if !answer.Run {
		reply, err := answer.Reply()
		if err == nil {
			g.ends.Sending(answer)
		}
		return Verdict{Result: reply}, err
	}
	return Verdict{Done: func(result approval.Raw, err error) (approval.Raw, error) { return g.done(answer, result, err) }}, nil
}

// done keeps how an executed call ended, and says by which request it was approved. An error of the server goes on as one;
// what is kept for a client that has not received it is a tool's error.
func (g *Gate) done(a *own.Answer, result approval.Raw, failed error) (approval.Raw, error) {
	refused, err := refusedBy(a, failed), failed
	if err != nil {
		text := "request " + approval.ShortID(a.ID) + " was approved, "
		if a.Ended.Decision.Auto {
			text = "policy allowed the call (request " + approval.ShortID(a.ID) + "), "
		}
		why := strings.TrimPrefix(err.Error(), "jsonrpc2: ")
		why = strings.ReplaceAll(why, context.Canceled.Error(), "the call was cancelled, or its client has gone")
		switch {
		case errors.Is(err, ErrNotCalled):
			text += "but: " + why
		case isAnswer(err):
			text += "and the server answered with an error: " + why
		default:
			text += "and the server was called; the outcome is unknown (" + why + "): check before you call it again"
		}
		result, err = json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": true}, json.Deterministic(true))
	}
	if err == nil {
		var noted approval.Raw
		if noted, err = a.Annotate(result); err == nil {
			result = noted
		}
	}
	if kept := a.Finish(result); kept != nil || result == nil {
		if errors.Is(failed, ErrNotCalled) {
			_ = a.NotBegun() // if that fails, too, the same call is told that its end is not known
		}
		return result, nil
	}
	g.ends.Sending(a)
	if refused != nil {
		return nil, refused
	}
	return result, nil
}

func isAnswer(err error) bool {
	_, is := errors.AsType[*jsonrpc.Error](err)
	return is
}

// refusedBy is the server's own error of a call with what it says of its approval, or nil.
func refusedBy(a *own.Answer, err error) error {
	of, is := errors.AsType[*jsonrpc.Error](err)
	if !is || errors.Is(err, ErrNotCalled) {
		return nil
	}
	data := approval.Raw(of.Data)
	if len(data) == 0 {
		data = approval.Raw(`{}`)
	}
	if data, err = a.Annotate(data); err != nil {
		return nil // there is no place for it
	}
	return &jsonrpc.Error{Code: of.Code, Message: of.Message, Data: []byte(data)}
}

// Watch returns a writer of whole lines for the client, which notes the results that the client has received.
func (g *Gate) Watch(to io.Writer) io.Writer { return &watch{to, g} }

type watch struct {
	io.Writer
	gate *Gate
}

func (w *watch) Write(line []byte) (int, error) {
	n, err := w.Writer.Write(line)
	if err != nil || !bytes.Contains(line, []byte(own.MetaPrefix)) {
		return n, err
	}
	var m struct {
		Result approval.Raw `json:"result"`
		Error  struct {
			Data approval.Raw `json:"data"`
		} `json:"error"`
	}
	if json.Unmarshal(line, &m) == nil {
		if len(m.Result) == 0 {
			m.Result = m.Error.Data
		}
		w.gate.ends.Sent(m.Result)
	}
	return n, nil
}

// changeText is how definitions have changed: the lines that are gone, and those that are new.
func changeText(changes []Change) (string, error) {
	var out strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&out, "%s:\n", c.Of)
		var sides [2][]string
		for i, text := range []string{c.Old, c.New} {
			v := jsontext.Value(text)
			if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
				return "", fmt.Errorf("a definition cannot be read: %w", err)
			}
			sides[i] = strings.Split(string(v), "\n")
		}
		for _, e := range facts.Edits(sides[0], sides[1]) {
			switch e.Sign {
			case '-':
				fmt.Fprintf(&out, "- %s\n", sides[0][e.At])
			case '+':
				fmt.Fprintf(&out, "+ %s\n", sides[1][e.At])
			}
		}
	}
	return out.String(), nil
}

// with puts an argument before the others, which must not be among them. An empty text is none.
func with(args approval.Raw, name, text string) (approval.Raw, error) {
	_, has, err := wire.Member(args, name)
	switch {
	case err != nil:
		return nil, err
	case has:
		return nil, fmt.Errorf("the call has an argument %s, which permesso adds itself: leave it out", name)
	}
	if text == "" {
		return args, nil
	}
	rest := bytes.TrimLeft(args[1:], " \t\r\n")
	if rest[0] != '}' {
		rest = append([]byte{','}, rest...)
	}
	return append([]byte(`{"`+name+`":`+string(quote(text))), rest...), nil
}
