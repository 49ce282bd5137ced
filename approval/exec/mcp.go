package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

const (
	minPoll     = 100 * time.Millisecond
	defaultPoll = time.Second
	maxPoll     = 30 * time.Second
	// maxTaskErrors is how many answers in a row may be errors that say nothing about the task.
	maxTaskErrors = 5
	maxTaskID     = 1 << 10
	cancelTimeout = 5 * time.Second
	// invalidParams is the code of an answer to tasks/get about a task that the server does not know.
	invalidParams = -32602
	// mcpIdempotencyKey is the member of _meta that has the idempotency key.
	mcpIdempotencyKey = "dev.permesso/idempotency-key"
)

// mcpCall is a call of an MCP server's tool and its progress.
type mcpCall struct {
	r    *Runner
	job  approval.Job
	kept bool // the next daemon finds its task
	redactor
}

func (r *Runner) newMCPCall(job approval.Job) *mcpCall {
	c := &mcpCall{r: r, job: job}
	h := job.Tool.Handler
	for _, value := range h.HTTP.SecretHeaders {
		if header, secret, err := readSecret(value); err == nil {
			c.add(strings.TrimSuffix(header, " "+secret), secret)
		}
	}
	for _, name := range h.Env {
		if value := os.Getenv(name); isCredential(name) && len(value) >= minSecret {
			c.add("", value)
		}
	}
	return c
}

// within bounds a run by its handler's timeout and the life of the daemon.
func (r *Runner) within(ctx context.Context, h approval.Handler) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(h))
	stop := context.AfterFunc(r.lifetime(), cancel)
	return ctx, func() { stop(); cancel() }
}

func (r *Runner) mcp(ctx context.Context, job approval.Job) approval.Effect {
	if _, err := fill(job); err != nil {
		return refused(err)
	}
	if r.MCP == nil {
		return refused(errNoMCP)
	}
	if r.lifetime().Err() != nil {
		return unstarted("nothing was sent: %v", errStopping)
	}
	h := job.Tool.Handler
	ctx, cancel := r.within(ctx, h)
	defer cancel()
	c := r.newMCPCall(job)
	s, release, err := r.mcpServer(ctx, h)
	if err != nil {
		why := c.reason(ctx, err)
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // it waited to start the server again
			why += ": " + c.describe(err)
		}
		return unstarted("nothing was sent: %s", why)
	}
	defer release()
	answer, err := s.conn.Call(ctx, "tools/call", c.params())
	if err != nil {
		return c.noAnswer(ctx, s, err)
	}
	r.succeeded(s)
	return c.effectOf(ctx, answer)
}

var errNoMCP = errors.New("this program calls no MCP servers")

// Resume awaits the end of a task of an earlier process: job.Task is what its run kept. It starts nothing, and so needs no
// valid receipt.
func (r *Runner) Resume(ctx context.Context, job approval.Job) approval.Effect {
	unknown := func(why string) approval.Effect {
		return approval.Effect{Unknown: true, Error: "Interrupted: the daemon stopped while a task of an MCP server ran, and its outcome is unknown: " + why + "; check before retrying"}
	}
	id, err := taskOf(job.Task)
	switch {
	case err != nil:
		return unknown(err.Error())
	case r.MCP == nil:
		return unknown(errNoMCP.Error())
	}
	if err := Check(job.Tool.Handler); err != nil {
		return unknown(err.Error())
	}
	ctx, cancel := r.within(ctx, job.Tool.Handler)
	defer cancel()
	c := r.newMCPCall(job)
	c.kept = true
	e, err := c.follow(ctx, id, minPoll)
	if err != nil {
		return unknown(err.Error())
	}
	return e
}

// Leave leaves the tasks that were kept to the next daemon. Call it before the wait for what runs, which may take long.
func (r *Runner) Leave() {
	r.lifetime()
	r.leave()
}

// params are those of tools/call: the arguments are the request's bytes.
func (c *mcpCall) params() approval.Raw {
	params := []codec.Field{{Name: "name", Value: codec.Quote(c.job.Tool.Handler.MCP.Tool)}, {Name: "arguments", Value: c.job.Args}}
	if c.job.Key != "" {
		meta := codec.Object([]codec.Field{{Name: mcpIdempotencyKey, Value: codec.Quote(c.job.Key)}})
		params = append(params, codec.Field{Name: "_meta", Value: meta})
	}
	return codec.Object(params)
}

// noAnswer is the effect of a call without a result.
func (c *mcpCall) noAnswer(ctx context.Context, s *mcpServer, err error) approval.Effect {
	var own *MCPError
	var notSent *notSentError
	switch {
	case errors.As(err, &own):
		c.r.succeeded(s)
		return failed("%s", c.reason(ctx, err))
	case errors.As(err, &notSent) && ctx.Err() == nil:
		return unstarted("nothing was sent: %s", c.reason(ctx, err))
	case ctx.Err() != nil:
		return failed("%s after the call was sent, and the server was told to cancel it; outcome unknown: check before you ask again", c.reason(ctx, err))
	}
	why := c.reason(ctx, err)
	if isClosed(s.conn.Done()) {
		select {
		case <-s.gone:
			if s.why != "" {
				why += ": " + c.sanitize(s.why)
			}
		case <-time.After(goneGrace):
		case <-ctx.Done():
		}
	}
	return failed("outcome unknown: %s after the call was sent; check before you ask again", why)
}

// reason describes err, or the end of ctx.
func (c *mcpCall) reason(ctx context.Context, err error) string {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Sprintf("timed out after %s", timeoutOf(c.job.Tool.Handler))
	case ctx.Err() != nil:
		return "cancelled"
	}
	return c.describe(err)
}

// describe describes err without a URL and without secrets.
func (c *mcpCall) describe(err error) string {
	var private *facts.PrivateError
	var notSent *notSentError
	var at *url.Error
	switch {
	case errors.As(err, &private):
		return private.Error()
	case errors.As(err, &notSent):
		err = notSent.error
	case errors.As(err, &at):
		err = at.Err
	}
	return c.sanitize(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// toolResult is an answer to tools/call or to tasks/get.
type toolResult struct {
	ResultType        string       `json:"resultType"`
	Content           approval.Raw `json:"content"`
	StructuredContent approval.Raw `json:"structuredContent"`
	IsError           bool         `json:"isError"`

	TaskID         string       `json:"taskId"`
	Status         string       `json:"status"`
	StatusMessage  string       `json:"statusMessage"`
	PollIntervalMs *float64     `json:"pollIntervalMs"`
	Result         approval.Raw `json:"result"`
	Error          *MCPError    `json:"error"`
}

func parseResult(b approval.Raw) (a toolResult, err error) {
	a.Content = approval.Raw("[]")
	if !isObject(b) {
		return a, errors.New("the server's answer is not a strict JSON object")
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("the server's answer has not the form of MCP: %w", err)
	}
	return a, nil
}

// effectOf turns an answer to tools/call into an effect. A task is followed to its end.
func (c *mcpCall) effectOf(ctx context.Context, answer approval.Raw) approval.Effect {
	a, err := parseResult(answer)
	switch {
	case err != nil:
		return failed("outcome unknown: %s", c.sanitize(err.Error()))
	case a.ResultType == "task":
		return c.begin(ctx, a)
	}
	return c.result(a)
}

// result turns a result into an effect.
func (c *mcpCall) result(a toolResult) approval.Effect {
	switch {
	case a.ResultType == "input_required":
		return failed("the server asks for input, which no one can give here")
	case a.ResultType != "" && a.ResultType != "complete":
		return failed("outcome unknown: the server answers with resultType %q", c.sanitize(a.ResultType))
	case a.IsError:
		return failed("%s", cmp.Or(c.sanitize(textOf(a.Content)), "the tool reports an error without text"))
	}
	fields := []codec.Field{{Name: "content", Value: a.Content}}
	if len(a.StructuredContent) > 0 {
		fields = append(fields, codec.Field{Name: "structuredContent", Value: a.StructuredContent})
	}
	result := codec.Object(fields)
	if limit := limitOf(c.job.Tool.Handler); len(result) > limit {
		return withheld("is larger than %d bytes (max_output)", limit)
	}
	clean, ok := c.json(result)
	if !ok || !isObject(clean) {
		return withheld("holds a secret of this host that cannot be redacted, or is nested too deeply")
	}
	return approval.Effect{Result: clean}
}

// withheld is the effect of a tool that has run, so that the agent does not ask for it again.
func withheld(format string, args ...any) approval.Effect {
	return approval.Effect{Error: "The tool has run, but its result is not returned: it " + fmt.Sprintf(format, args...) + "; do not repeat the call for it"}
}

// textOf joins the texts of a result's content.
func textOf(content approval.Raw) string {
	var blocks []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &blocks) != nil {
		return ""
	}
	var texts []string
	for _, b := range blocks {
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// task is what is kept of a task.
type task struct {
	Version int    `json:"version"`
	ID      string `json:"task_id"`
}

func taskOf(kept []byte) (id string, err error) {
	var t task
	if err := json.Unmarshal(kept, &t); err != nil || t.Version != approval.Version || t.ID == "" {
		return "", errors.New("what was kept of it cannot be read")
	}
	return t.ID, nil
}

// begin keeps a task, and follows it.
func (c *mcpCall) begin(ctx context.Context, a toolResult) approval.Effect {
	if a.TaskID == "" || len(a.TaskID) > maxTaskID {
		return failed("outcome unknown: the server started a task without a usable ID")
	}
	kept, err := codec.Encode(task{approval.Version, a.TaskID})
	if err == nil && c.job.KeepTask != nil {
		err = c.job.KeepTask(kept)
		c.kept = err == nil
	}
	if err != nil { // only a crash would lose it
		c.r.Log.Error().Str("ws", c.job.Workspace).Str("id", c.job.RequestID).Err(err).Msg("keep task failed")
	}
	e, err := c.follow(ctx, a.TaskID, pollOf(a))
	if err != nil {
		return failed("outcome unknown: %s; check before you ask again", err)
	}
	return e
}

func pollOf(a toolResult) time.Duration {
	if a.PollIntervalMs == nil {
		return defaultPoll
	}
	ms := min(max(*a.PollIntervalMs, 0), float64(maxPoll/time.Millisecond))
	return max(time.Duration(ms*float64(time.Millisecond)), minPoll)
}

// follow asks for a task until it has ended. An error says why its outcome cannot be learned.
func (c *mcpCall) follow(ctx context.Context, id string, wait time.Duration) (approval.Effect, error) {
	params := codec.Object([]codec.Field{{Name: "taskId", Value: codec.Quote(id)}})
	answers, failures := 0, 0
	var last error
	var leave <-chan struct{}
	if c.kept {
		leave = c.r.leaving.Done()
	}
	after := c.r.After
	if after == nil {
		after = time.After
	}
	for {
		select {
		case <-after(wait):
		case <-leave:
			return approval.Effect{Left: true}, nil
		case <-ctx.Done():
			if answers == 0 && last != nil {
				return approval.Effect{}, fmt.Errorf("%s: the server could not be asked for its task: %s", c.reason(ctx, nil), c.describe(last))
			}
			c.cancel(params)
			return failed("%s, and the server was told to cancel its task; outcome unknown: check before you ask again", c.reason(ctx, nil)), nil
		}
		answer, err := c.ask(ctx, "tasks/get", params)
		var own *MCPError
		switch {
		case ctx.Err() != nil:
			last = errors.Join(last, err)
			continue
		case errors.As(err, &own) && own.Code == invalidParams:
			return approval.Effect{}, fmt.Errorf("the server does not know its task any more (%s)", c.sanitize(own.Error()))
		case err != nil:
			if last = err; errors.As(err, &own) {
				failures++
			}
			if failures == maxTaskErrors {
				return approval.Effect{}, fmt.Errorf("the server keeps refusing to tell the status of its task: %s", c.sanitize(err.Error()))
			}
			wait = min(max(2*wait, minPoll), maxPoll)
			continue
		}
		a, err := parseResult(answer)
		if err != nil {
			return approval.Effect{}, errors.New(c.sanitize(err.Error()))
		}
		answers, failures = answers+1, 0
		if e, ended, err := c.taskEnd(a, params); ended || err != nil {
			return e, err
		}
		wait = pollOf(a)
	}
}

// ask sends a request about a task. A server that has ended is started again.
func (c *mcpCall) ask(ctx context.Context, method string, params approval.Raw) (approval.Raw, error) {
	s, release, err := c.r.mcpServer(ctx, c.job.Tool.Handler)
	if err != nil {
		return nil, err
	}
	defer release()
	answer, err := s.conn.Call(ctx, method, params)
	if err == nil {
		c.r.succeeded(s)
	}
	return answer, err
}

// cancel asks the server to end a task. It need not do so.
func (c *mcpCall) cancel(params approval.Raw) {
	ctx, cancel := context.WithTimeout(c.r.lifetime(), cancelTimeout)
	defer cancel()
	if _, err := c.ask(ctx, "tasks/cancel", params); err != nil {
		c.r.Log.Warn().Str("ws", c.job.Workspace).Str("id", c.job.RequestID).Str("error", c.sanitize(err.Error())).Msg("cancel task failed")
	}
}

// taskEnd is the effect of a task that has ended.
func (c *mcpCall) taskEnd(a toolResult, params approval.Raw) (e approval.Effect, ended bool, err error) {
	switch a.Status {
	case "working":
		return e, false, nil
	case "completed":
		result, err := parseResult(a.Result)
		if err != nil {
			return e, false, errors.New(c.sanitize(err.Error()))
		}
		return c.result(result), true, nil
	case "failed":
		why := a.StatusMessage
		if a.Error != nil {
			why = a.Error.Error()
		}
		return failed("the server's task failed: %s", c.sanitize(why)), true, nil
	case "cancelled":
		return failed("the server cancelled its task: %s", cmp.Or(c.sanitize(a.StatusMessage), "it does not say why")), true, nil
	case "input_required":
		c.cancel(params)
		return failed("the server's task asks for input, which no one can give here, and was told to end"), true, nil
	}
	return e, false, fmt.Errorf("the server says that its task is %q", c.sanitize(a.Status))
}

// succeeded resets what delays the next start of a server.
func (r *Runner) succeeded(s *mcpServer) {
	r.servers.mu.Lock()
	defer r.servers.mu.Unlock()
	s.failures = 0
}
