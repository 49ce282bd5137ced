package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	v2 "github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/client"
)

// The names of what a result says about its approval, in _meta.
const (
	MetaPrefix   = "dev.permesso/"
	metaRequest  = MetaPrefix + "request"
	metaDecision = MetaPrefix + "decision"
	metaReceipt  = MetaPrefix + "receipt"
	metaLog      = MetaPrefix + "log"
	metaNote     = MetaPrefix + "note"
)

// result is what a tool returns.
type result struct {
	mcp.CallToolResult
	answer *Answer // which the client has received with it; nil: none
	task   *Answer // the result is a task; nil: it is not
}

// outcome is how a request stands, for the agent.
type outcome struct {
	ID         string       `json:"request_id"`
	Status     string       `json:"status"`
	Approved   bool         `json:"approved"`
	Result     approval.Raw `json:"result,omitzero"`
	Error      string       `json:"error,omitzero"`
	By         string       `json:"by,omitzero"`
	Note       string       `json:"note,omitzero"`
	Instead    string       `json:"instead,omitzero"`
	Question   string       `json:"question,omitzero"`
	Answer     string       `json:"answer,omitzero"`
	AnsweredIn string       `json:"answered_in,omitzero"`
	Receipt    string       `json:"receipt,omitzero"`
}

func outcomeOf(a *Answer) outcome {
	o := outcome{ID: a.ID, Status: "pending"}
	r := a.Ended
	if r == nil {
		return o
	}
	o.Status, o.Approved = string(r.Status), client.Approved(r) == nil
	if kind := r.Result.Kind(); kind != 0 && kind != 'n' {
		o.Result = r.Result
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	o.Error, o.Question, o.Receipt = text(r.Error), text(r.Feedback), text(r.Receipt)
	o.By, o.Note, o.Instead = text(r.Decision.By), text(r.Decision.Note), text(r.Decision.Override)
	if r.Status == approval.StatusAnswered {
		var to struct {
			Answer string `json:"answer"`
		}
		_ = codec.DecodeOwn(r.Result, &to) // the gate writes nothing else
		o.Answer, o.Result = to.Answer, nil
	}
	if o.Approved && r.Execution == approval.ExecutionAgent {
		o.Approved, o.Error = false, "nothing has run: "+a.Tool+" is a tool that the agent itself executes, not the host. Call that tool itself; that call is judged anew"
	}
	if r.Execution == approval.ExecutionAgent || a.Tool == "" && !a.program {
		o.Result = nil // it is empty
	}
	return o
}

// refusal says why an ended request permits nothing, "" if it does.
func refusal(a *Answer) string {
	err := client.Approved(a.Ended)
	if err == nil {
		return ""
	}
	short := "request " + approval.ShortID(a.ID) + ": "
	switch {
	case errors.Is(err, client.ErrOverridden):
		return short + "nothing has run; the person wants this instead: " + outcomeOf(a).Instead
	case errors.Is(err, client.ErrRequestMore):
		return short + "nothing has run; the person asks: " + outcomeOf(a).Question
	}
	return short + err.Error()
}

// end is the result of a call whose request has ended.
func (s *Server) end(a *Answer) (*result, error) {
	o := outcomeOf(a)
	text := "Approved"
	if o.By != "" {
		text += " by " + o.By
	}
	if o.Approved && o.Note != "" {
		text += ". Note: " + o.Note
	}
	switch {
	case a.Ended.Status == approval.StatusAnswered:
		text = o.Answer
	case refusal(a) != "":
		text = refusal(a)
	case !o.Approved:
		text += ", but " + o.Error
	case a.Tool == "" && !a.program:
		text += ". Nothing has run: do it yourself now, once and as it was asked"
	case o.Result != nil:
		text += ". Result: " + string(o.Result)
	}
	if client.ResultOf(a.Ended).Main == client.MainNeeds && a.program {
		text += ". The program goes on after this: call run_program again with the same program, and continues " + a.ID
	}
	r, err := textResult(text, o)
	if err != nil {
		return nil, err
	}
	r.IsError = !o.Approved && a.Ended.Status != approval.StatusAnswered
	r.Meta, r.answer = meta(a), a
	return r, nil
}

// again is what an agent can do about a request that waits.
const again = "; call again with the same arguments to go on waiting"

// notYet is the result of a call whose request waits.
func (s *Server) notYet(a *Answer) (*result, error) {
	switch {
	case a.Task != "":
		return &result{task: a}, nil
	case a.State != "":

		return anotherRound(a, mcp.InputRequestMap{}), nil
	}
	r, err := waits(a, again)
	if err == nil {
		r.IsError = true
	}
	return r, err
}

// anotherRound is the result of a call that its client is to make again. The SDK would write no content as null.
func anotherRound(a *Answer, inputs mcp.InputRequestMap) *result {
	return &result{CallToolResult: mcp.CallToolResult{Content: []mcp.Content{}, InputRequests: inputs, RequestState: a.State}}
}

// pendingOr is the result of a call that does not wait.
func (s *Server) pendingOr(a *Answer) (*result, error) {
	if a.Ended != nil {
		return s.end(a)
	}
	return waits(a, "; wait_for_approval waits for request_id "+a.ID)
}

// waits says that a request waits, and what the agent can do.
func waits(a *Answer, advice string) (*result, error) {
	r, err := textResult(a.Text+advice, outcomeOf(a))
	if err == nil {
		r.Meta = meta(a)
	}
	return r, err
}

// meta is what other programs may want to know of the approval.
func meta(a *Answer) mcp.Meta {
	m := mcp.Meta{metaRequest: a.ID}
	r := a.Ended
	if r == nil {
		return m
	}
	decision := map[string]any{"status": r.Status, "auto": r.Decision.Auto}
	for name, value := range map[string]*string{"code": r.Decision.Code, "by": r.Decision.By, "via": r.Decision.Via} {
		if value != nil {
			decision[name] = *value
		}
	}
	m[metaDecision] = decision
	if r.Receipt != nil {
		m[metaReceipt] = *r.Receipt
	}
	if r.Decision.Note != nil {
		m[metaNote] = *r.Decision.Note
	}
	if r.Log != nil {
		m[metaLog] = map[string]any{"size": r.Log.Size, "root": r.Log.Root}
	}
	return m
}

func textResult(text string, structured any) (*result, error) {
	b, err := marshal(structured)
	if err != nil {
		return nil, err
	}
	return &result{CallToolResult: mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: json.RawMessage(b),
	}}, nil
}

func errorResult(err error) *result {
	text := strings.TrimSpace(err.Error())
	return &result{CallToolResult: mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: true}}
}

func marshal(v any) (approval.Raw, error) {
	b, err := v2.Marshal(v, v2.Deterministic(true))
	return b, err
}

// plainID is an id without the prefix that it has by HTTP.
func plainID(id string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(id)), "appr_")
}

// Reply is what a client gets for a call that its gateway does not execute: that it waits, why it was refused, or how
// another caller's execution ended.
func (a *Answer) Reply() (approval.Raw, error) {
	switch {
	case a.Ended == nil && a.State != "":
		return marshal(map[string]any{"resultType": "input_required", "requestState": a.State})
	case a.Ended == nil:
		return a.toolError(a.Text + again)
	case refusal(a) != "":
		return a.toolError(refusal(a))
	case a.Lost:
		return a.toolError("request " + approval.ShortID(a.ID) + " was approved, and the call was begun; its end is not known, and it is not made again: check what it has done before you call it again")
	}
	return a.Result, nil
}

func (a *Answer) toolError(text string) (approval.Raw, error) {
	r := errorResult(errors.New(text))
	r.Meta = meta(a)
	b, err := r.MarshalJSON()
	return b, err
}

// Annotate adds to a result what it says of its approval. All else keeps its bytes.
func (a *Answer) Annotate(result approval.Raw) (approval.Raw, error) {
	fields, err := codec.Fields(result)
	if err != nil {
		return nil, err
	}
	m := map[string]approval.Raw{}
	at := slices.IndexFunc(fields, func(f codec.Field) bool { return f.Name == "_meta" })
	if at < 0 {
		at, fields = len(fields), append(fields, codec.Field{Name: "_meta", Value: approval.Raw("{}")})
	}
	before, err := codec.Fields(fields[at].Value)
	if err != nil {
		return nil, err
	}
	for _, f := range before {
		m[f.Name] = f.Value
	}
	for name, value := range meta(a) {
		if m[name], err = marshal(value); err != nil {
			return nil, err
		}
	}
	if fields[at].Value, err = marshal(m); err != nil {
		return nil, err
	}
	if err := a.addNote(fields); err != nil {
		return nil, err
	}
	return codec.Object(fields), nil
}

// addNote puts what the person has written for the agent behind the texts of a result.
func (a *Answer) addNote(fields []codec.Field) error {
	at := slices.IndexFunc(fields, func(f codec.Field) bool { return f.Name == "content" && f.Value.Kind() == '[' })
	if a.Ended == nil || a.Ended.Decision.Note == nil || at < 0 {
		return nil
	}
	text, err := marshal(map[string]string{"type": "text", "text": "Note of the approver: " + *a.Ended.Decision.Note})
	if err != nil {
		return err
	}
	list := bytes.TrimRight(fields[at].Value[:bytes.LastIndexByte(fields[at].Value, ']')], " \t\r\n")
	if list[len(list)-1] != '[' {
		list = append(list[:len(list):len(list)], ',')
	}
	fields[at].Value = append(append(list[:len(list):len(list)], text...), ']')
	return nil
}

// requestIn is the request that a result says it was judged by, "" if it says none.
func requestIn(result approval.Raw) string {
	var of struct {
		Meta struct {
			Request string `json:"dev.permesso/request"`
		} `json:"_meta"`
	}
	if codec.DecodeOuter(result, &of) != nil {
		return ""
	}
	return of.Meta.Request
}
