package mcp

import (
	"context"
	"errors"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/permesso-dev/permesso/approval"
)

// Elicitation lets the agent's client show its user that a request waits. It approves nothing: the client is the agent's,
// and may answer by itself. So an approval is only offered a page of the gate, where the approver decides as everywhere. A
// question may be answered in a form, and the answer is marked so.

const (
	pageInput   = "page"
	answerInput = "answer"
	inClient    = "the agent's client"
	noLonger    = "answered in " + inClient
)

// offer is what a client may show about a request.
type offer struct {
	name   string // pageInput or answerInput
	params *mcp.ElicitParams
}

// offered is what the client of a call may be offered, nil if nothing.
func (s *Server) offered(c *call, r approval.Request) func(id string) *offer {
	caps := c.req.ClientCapabilities()
	if !s.Notify || caps == nil || caps.Elicitation == nil {
		return nil
	}
	can := caps.Elicitation
	switch {
	case r.Type == approval.TypeQuestion && (can.Form != nil || can.URL == nil):
		return func(string) *offer { return &offer{answerInput, questionForm(r)} }
	case can.URL != nil && s.Page != nil:
		return func(id string) *offer {
			return &offer{pageInput, &mcp.ElicitParams{
				Mode: "url", URL: s.Page(id), ElicitationID: id,
				Message: "Request " + approval.ShortID(id) + " waits for a person, who decides on this page of the approval gate, or where else it was asked.",
			}}
		}
	}
	return nil
}

func questionForm(r approval.Request) *mcp.ElicitParams {
	field := map[string]any{"type": "string", "title": "Answer"}
	if len(r.Options) > 0 {
		field["description"] = "One of: " + strings.Join(r.Options, "; ") + ". Or in other words."
	}
	message := r.Title
	if r.Preview != "" {
		message += "\n\n" + r.Preview
	}
	return &mcp.ElicitParams{
		Mode: "form", Message: message,
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{answerInput: field}, "required": []any{answerInput}},
	}
}

// answerIn is the answer that a form holds, "" if it was not given.
func answerIn(r *mcp.ElicitResult) string {
	if r == nil || r.Action != "accept" {
		return ""
	}
	text, _ := r.Content[answerInput].(string)
	return text
}

// errAnswered is the cause of the end of a wait whose question was answered in a form.
var errAnswered = errors.New(noLonger)

// askShowing asks the gate about a call and waits, while its client shows that.
func (s *Server) askShowing(ctx context.Context, c *call, w Call, of func(id string) *offer) (*result, error) {
	if w.Rounds {
		given, _ := c.req.Params.InputResponses[answerInput].(*mcp.ElicitResult)
		if text := answerIn(given); text != "" && w.State != "" {
			id, err := s.Waiter.TakeUp(w)
			if err != nil {
				return nil, err
			}
			return s.settleAnswered(ctx, id, text)
		}
		w.Waits = func(context.Context, string) bool { return true }
		a, err := s.Waiter.Do(ctx, w)
		if err == nil && a.Offered {
			o := of(a.ID)
			return anotherRound(a, mcp.InputRequestMap{o.name: o.params}), nil
		}
		return s.answer(a, err)
	}
	holding, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answered := make(chan [2]string, 1)
	w.Waits = func(_ context.Context, id string) bool {
		o := of(id)
		go func() {
			r, err := c.req.Session.Elicit(holding, o.params)
			if text := answerIn(r); err == nil && o.name == answerInput && text != "" {
				answered <- [2]string{id, text}
				cancel(errAnswered)
			}
		}()
		return false
	}
	a, err := s.Waiter.Do(holding, w)
	if err != nil && errors.Is(context.Cause(holding), errAnswered) {
		got := <-answered
		return s.settleAnswered(ctx, got[0], got[1])
	}
	return s.answer(a, err)
}

// settleAnswered takes a question back from the gate. If an approver was faster, that answer counts.
func (s *Server) settleAnswered(ctx context.Context, id, text string) (*result, error) {
	a, err := s.Waiter.Cancel(ctx, id, noLonger)
	if err != nil {
		return nil, err
	}
	if a.Ended == nil || a.Ended.Status != approval.StatusCancelled {
		return s.answer(a, nil)
	}
	if err := a.Received(); err != nil {
		return nil, err
	}
	r, err := textResult(text, outcome{ID: id, Status: string(approval.StatusAnswered), Answer: text, AnsweredIn: inClient})
	if err != nil {
		return nil, err
	}
	r.Meta = mcp.Meta{metaRequest: id}
	return r, nil
}
