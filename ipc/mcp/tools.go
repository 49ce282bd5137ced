package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// tool is one tool of the server.
type tool struct {
	name, title, does string
	input, output     string // JSON Schemas
	readOnly          bool
	run               func(ctx context.Context, s *Server, c *call, a asks) (*result, error)
}

// prose are the arguments with which an agent explains itself. They do not belong to what a call does.
const prose = `"title":{"type":"string","maxLength":300,"description":"What it is about, for the person: one line."},` +
	`"rationale":{"type":"string","maxLength":8192,"description":"Why you need it, for the person."},` +
	`"expires_in_sec":{"type":"integer","minimum":1,"description":"How long a person may take. The gate has a default."}`

const anID = `"request_id":{"type":"string","description":"As another tool has returned it."}`

// outcomeSchema describes outcome.
const outcomeSchema = `{"type":"object","properties":{
"request_id":{"type":"string"},
"status":{"type":"string","description":"pending; or how it ended: approved, auto_approved, answered, denied, auto_rejected, expired, cancelled, request_more, overridden, failed, interrupted, malformed"},
"approved":{"type":"boolean","description":"Only true permits what was asked."},
"result":{"description":"Of the host tool, or of the program."},
"error":{"type":"string"},
"by":{"type":"string","description":"Who has decided."},
"note":{"type":"string","description":"The person's, for you."},
"instead":{"type":"string","description":"What the person wants instead. Nothing has run."},
"question":{"type":"string","description":"The person's reason, or question to you."},
"answer":{"type":"string","description":"To your question."},
"answered_in":{"type":"string","description":"The agent's client: no approver of the gate has answered."},
"receipt":{"type":"string","description":"Signed proof of the approval."}
},"required":["request_id","status","approved"]}`

func object(required, properties string) string {
	return `{"type":"object","properties":{` + properties + `},"required":[` + required + `],"additionalProperties":false}`
}

// tools are all tools, sorted by name.
func tools() []tool {
	return []tool{
		{
			name: "ask_user", title: "Ask a person a question", does: "Asks a person a question and waits for the answer. It approves nothing.",
			input: object(`"question"`, `"question":{"type":"string","maxLength":300,"description":"One question."},`+
				`"details":{"type":"string","maxLength":8192,"description":"What the person has to know for it."},`+
				`"options":{"type":"array","items":{"type":"string","maxLength":200},"maxItems":8,"description":"Answers to choose from. A person may write another one."}`),
			output: outcomeSchema, run: askUser,
		},
		{
			name: "cancel_request", title: "Cancel a request", does: "Cancels a request that waits for a person.",
			input:  object(`"request_id"`, anID+`,"reason":{"type":"string","maxLength":300,"description":"Shown to the person as yours."}`),
			output: outcomeSchema, run: cancelRequest,
		},
		{
			name: "execute_approved", title: "Execute a host tool after approval",
			does:  "Asks for the approval of one call of a tool of the host, waits for it, and returns the result. The host executes exactly these arguments, or nothing.",
			input: object(`"tool","arguments"`, `"tool":{"type":"string","maxLength":64,"description":"The name of the host's tool."},"arguments":{"type":"object"},`+prose), output: outcomeSchema, run: execute,
		},
		{
			name: "list_pending", title: "List requests", does: "Lists your requests that wait for a person, and those whose end you have not yet received.",
			input:  `{"type":"object","additionalProperties":false}`,
			output: `{"type":"object","properties":{"requests":{"type":"array","items":` + outcomeSchema + `}},"required":["requests"]}`, readOnly: true, run: listPending,
		},
		{
			name: "permission_prompt", title: "Ask for permission to use a tool", does: "Answers Claude Code's --permission-prompt-tool: a person or a rule decides about one call of a tool.",
			input: object(`"tool_name","input"`, `"tool_name":{"type":"string"},"input":{"type":"object"},"tool_use_id":{"type":"string"}`), run: permissionPrompt,
		},
		{
			name: "request_approval", title: "Ask for an approval",
			does: "Asks for the approval of something that you do yourself, and returns at once with the number of the request. wait_for_approval waits for the decision. Do it only if approved is true.",
			input: object(`"action","arguments"`, `"action":{"type":"string","maxLength":71,"description":"exec_cmd, http_request, write_file, send_message or custom:NAME."},`+
				`"arguments":{"type":"object","description":"All that matters of it. The person sees each of them."},`+prose), output: outcomeSchema, run: requestApproval,
		},
		{
			name: "run_program", title: "Run a program after approval",
			does: "Asks for the approval of a program that calls tools of the host, waits for it, and returns the outcome of each call. The person sees all calls before one runs. " +
				"If result.main is needs, the program looks at a result that it has by now: call again with the same program and continues, the request_id of this call.",
			input: object(`"program"`, `"program":{"type":"string","maxLength":65536,"description":"In Starlark, a small Python without while, recursion, imports and try: def main(): …, which calls tools.NAME(argument = value). guarantee(at_most(tools.NAME, 3)) at the top promises what the person wants to know."},`+
				`"continues":{"type":"string","description":"The request_id of the part before."},`+prose), output: outcomeSchema, run: runProgram,
		},
		{
			name: "wait_for_approval", title: "Wait for a request", does: "Waits until a request has ended.",
			input: object(`"request_id"`, anID), output: outcomeSchema, readOnly: true, run: waitForApproval,
		},
	}
}

// asks are the arguments of all tools. A client knows by the schema of a tool which ones it has.
type asks struct {
	Tool      string       `json:"tool"`
	Action    string       `json:"action"`
	Arguments approval.Raw `json:"arguments"`
	Title     string       `json:"title"`
	Rationale string       `json:"rationale"`
	Expires   *int64       `json:"expires_in_sec"`
	Question  string       `json:"question"`
	Details   string       `json:"details"`
	Options   []string     `json:"options"`
	ID        string       `json:"request_id"`
	Reason    string       `json:"reason"`
	Program   string       `json:"program"`
	Continues string       `json:"continues"`

	// Of permission_prompt.
	ToolName string       `json:"tool_name"`
	Input    approval.Raw `json:"input"`
	UseID    string       `json:"tool_use_id"`
}

// request is what a tool asks, with the prose of the agent.
func (s *Server) request(c *call, a asks) (approval.Request, error) {
	r := approval.Request{
		ToolName: a.Tool, ActionType: a.Action, RequestData: a.Arguments, Program: a.Program, Continues: plainID(a.Continues),
		Title: a.Title, Rationale: a.Rationale, SessionID: s.Session, Metadata: c.metadata(),
	}
	if a.Expires != nil {
		if r.ExpiresInSec = *a.Expires; r.ExpiresInSec < 1 {
			return r, errors.New("expires_in_sec must be at least 1, or left out")
		}
	}
	return r, nil
}

// action is what makes two calls the same.
func action(parts ...any) (approval.Raw, error) {
	return marshal(parts)
}

func execute(ctx context.Context, s *Server, c *call, a asks) (*result, error) {
	act, err := action("execute_approved", a.Tool, a.Arguments)
	if err != nil {
		return nil, err
	}
	r, err := s.request(c, a)
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, c, Call{Action: act, Request: r})
}

func requestApproval(ctx context.Context, s *Server, c *call, a asks) (*result, error) {
	act, err := action("request_approval", a.Action, a.Arguments)
	if err != nil {
		return nil, err
	}
	r, err := s.request(c, a)
	if err != nil {
		return nil, err
	}
	answer, err := s.Waiter.Submit(ctx, Call{Action: act, Request: r})
	if err != nil {
		return nil, err
	}
	return s.pendingOr(answer)
}

func runProgram(ctx context.Context, s *Server, c *call, a asks) (*result, error) {
	act, err := action("run_program", a.Program, plainID(a.Continues))
	if err != nil {
		return nil, err
	}
	r, err := s.request(c, a)
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, c, Call{Action: act, Request: r})
}

func waitForApproval(ctx context.Context, s *Server, c *call, a asks) (*result, error) {
	act, err := action("wait_for_approval", a.ID)
	if err != nil {
		return nil, err
	}
	answer, err := s.Waiter.Follow(ctx, c.waiting(Call{Action: act}), plainID(a.ID))
	return s.answer(answer, err)
}

func cancelRequest(ctx context.Context, s *Server, c *call, a asks) (*result, error) {
	answer, err := s.Waiter.Cancel(ctx, plainID(a.ID), a.Reason)
	if err != nil {
		return nil, err
	}
	r, err := s.pendingOr(answer)
	if err != nil {
		return nil, err
	}
	r.IsError = answer.Ended == nil || answer.Ended.Status != approval.StatusCancelled
	return r, nil
}

func listPending(ctx context.Context, s *Server, _ *call, _ asks) (*result, error) {
	list, err := s.Waiter.Pending(ctx)
	if err != nil {
		return nil, err
	}
	all := struct {
		Requests []outcome `json:"requests"`
	}{Requests: []outcome{}}
	var lines []string
	for _, answer := range list {
		o := outcomeOf(answer)
		all.Requests = append(all.Requests, o)
		lines = append(lines, o.ID+": "+cmp.Or(answer.Text, o.Status))
	}
	return textResult(cmp.Or(strings.Join(lines, "\n"), "Nothing waits."), all)
}

func askUser(ctx context.Context, s *Server, c *call, a asks) (*result, error) {
	act, err := action("ask_user", a.Question, a.Details, a.Options)
	if err != nil {
		return nil, err
	}
	r := approval.Request{Type: approval.TypeQuestion, Title: a.Question, Preview: a.Details, Options: a.Options, SessionID: s.Session, Metadata: c.metadata()}
	return s.ask(ctx, c, Call{Action: act, Request: r})
}

// verdict is the answer in the form of Claude Code's --permission-prompt-tool.
type verdict struct {
	Behavior string       `json:"behavior"`
	Input    approval.Raw `json:"updatedInput,omitzero"`
	Message  string       `json:"message,omitzero"`
}

func permissionPrompt(ctx context.Context, s *Server, c *call, a asks) (*result, error) {
	say := func(v verdict) (*result, error) {
		text, err := codec.Encode(v)
		if err != nil {
			return nil, err
		}
		return &result{CallToolResult: mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}}, nil
	}
	deny := func(why string) (*result, error) { return say(verdict{Behavior: "deny", Message: why}) }
	if s.Permit == nil {
		return deny("this server answers no permission prompts")
	}
	client := ""
	if info := c.req.ClientInfo(); info != nil {
		client = info.Name
	}
	r, err := s.Permit(client, a.ToolName, a.Input)
	if err != nil {
		return deny(err.Error())
	}
	r.Metadata = c.metadata()
	act, err := action("permission_prompt", a.ToolName, a.Input)
	if err != nil {
		return nil, err
	}
	w := c.waiting(Call{Action: act, Request: r, Sole: true})
	w.Tasks = false // its result would be of another form, and for more than one caller
	answer, err := s.Waiter.Do(ctx, w)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return deny(err.Error())
	case answer.Ended == nil && answer.State != "":
		return s.notYet(answer)
	case answer.Ended == nil:
		return deny(answer.Text + again)
	}
	v := verdict{Behavior: "allow", Input: a.Input}
	if why := refusal(answer); why != "" {
		v = verdict{Behavior: "deny", Message: why}
	} else if answer.Ended.Execution != approval.ExecutionAgent {
		v = verdict{Behavior: "deny", Message: fmt.Sprintf("request %s was approved for the host to run, not for the agent", approval.ShortID(answer.ID))}
	}
	out, err := say(v)
	if err != nil {
		return nil, err
	}
	out.Meta = meta(answer)
	return out, nil
}
