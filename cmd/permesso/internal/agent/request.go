package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/mcp"
)

// program is one run of the program.
type program struct{ *console.Console }

// endpoint is how an agent reaches the daemon: its two folders, or HTTP.
type endpoint struct {
	requests, responses string
	folders             bool // set by flags
	timeout             time.Duration

	mu      sync.Mutex
	waiting bool // within runs: a call that it leaves behind says nothing more
}

// agentGate is client.Files or *client.REST.
type agentGate interface {
	mcp.Gate
	// Find lists requests by the beginning of their id, in lower case.
	Find(ctx context.Context, typed string) (ids []string, err error)
}

func (w *endpoint) flags(a program, c *cobra.Command, timeout string) {
	c.Flags().Var((*console.Duration)(&w.timeout), "timeout", timeout)
	c.Flags().StringVar(&w.requests, "requests", cmp.Or(a.Env("PERMESSO_REQUESTS"), client.DefaultRequests), "`folder` to write requests to")
	c.Flags().StringVar(&w.responses, "responses", cmp.Or(a.Env("PERMESSO_RESPONSES"), client.DefaultResponses), "`folder` to read responses from")
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, pos []string) error {
		w.folders = cmd.Flags().Changed("requests") || cmd.Flags().Changed("responses")
		return run(cmd, pos)
	}
}

// connect returns a client for the endpoint that the flags or the environment name.
func (w *endpoint) connect(a program) (agentGate, error) {
	silent := func(tried string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.waiting {
			return
		}
		fmt.Fprintf(a.Err, "permesso: nothing answers yet: %s\n", console.OneLine(tried))
	}
	if url := a.Env("PERMESSO_URL"); url != "" && !w.folders {
		r := &client.REST{URL: url, Key: a.Env("PERMESSO_KEY"), Silent: silent}
		return r, withExitCode(r.Check())
	}
	return client.Files{Requests: w.requests, Responses: w.responses, Silent: silent}, nil
}

// maxNamed is how many requests an error names.
const maxNamed = 5

// grace is how long after --timeout a call that hangs in the file system or in the network is
// left behind.
const grace = 500 * time.Millisecond

// within runs a call to a gate. After --timeout the error has its exit code, says what was
// tried, and has hint.
func within[T any](ctx context.Context, w *endpoint, what, hint string, do func(context.Context) (T, error)) (T, error) {
	w.setWaiting(true)
	defer w.setWaiting(false)
	if w.timeout <= 0 {
		return do(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := do(ctx)
		done <- result{v, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		select {
		case r = <-done:
		case <-time.After(grace):
			r.err = &client.Silence{Tried: "the folder or the server does not answer", Err: ctx.Err()}
		}
	}
	if r.err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return r.v, r.err
	}
	if s, ok := errors.AsType[*client.Silence](r.err); ok {
		what += ": " + console.OneLine(s.Tried)
	}
	return r.v, console.Fail(console.ExitTimeout, hint, "timeout %s", what)
}

func (w *endpoint) setWaiting(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = on
}

// submitted names a request by its id, or by the beginning of one that the gate knows.
func (w *endpoint) submitted(ctx context.Context, g agentGate, typed string) (s client.Submitted, err error) {
	id := strings.TrimPrefix(strings.ToLower(strings.TrimSpace(typed)), "appr_")
	switch {
	case approval.ValidID(id):
		return client.Submitted{ID: id}, nil
	case !approval.MaybeID(id) || len(id) < 4:
		return s, console.Fail(console.ExitUsage, "give at least 4 digits of the id that permesso request printed", "ID %q is not the beginning of a request's id", typed)
	}
	ids, err := within(ctx, w, "looking for "+typed, "", func(ctx context.Context) ([]string, error) { return g.Find(ctx, id) })
	switch {
	case err != nil:
		return s, withExitCode(err)
	case len(ids) == 1:
		return client.Submitted{ID: ids[0]}, nil
	case len(ids) > 1:
		return s, console.Fail(console.ExitRefused, "give more digits", "%q matches %d requests: %s", typed, len(ids), strings.Join(ids[:min(len(ids), maxNamed)], ", "))
	}
	hint := "check that this key made the request"
	if _, folders := g.(client.Files); folders {
		hint = "a pending request is in neither folder: give the complete id, which permesso request printed"
	}
	return s, console.Fail(console.ExitRefused, hint, "%s: no request found whose id begins so", typed)
}

// withExitCode adds the exit code and a hint to a client's error.
func withExitCode(err error) error {
	for _, no := range []struct {
		is   error
		code int
		hint string
	}{
		{client.ErrKey, console.ExitError, "set PERMESSO_KEY; on the host, permesso key create WORKSPACE creates a key"},
		{client.ErrInvalid, console.ExitNotRun, "permesso request --help"},
		{client.ErrNotFound, console.ExitRefused, "check that this key made the request"},
		{client.ErrNotPending, console.ExitRefused, "permesso wait shows the outcome"},
		{client.ErrNoGate, console.ExitError, "check PERMESSO_URL"},
		{client.ErrUnreachable, console.ExitError, "check PERMESSO_URL, and that permesso serve runs there"},
		{client.ErrNoFolder, console.ExitError, "mount it into the sandbox: permesso mounts WORKSPACE prints the mounts; or name it: --requests DIR"},
		{client.ErrIDConflict, console.ExitNotRun, "submit it again with a new id"},
	} {
		if r, ok := errors.AsType[*client.Refused](err); ok && r.Status == http.StatusUnauthorized {
			no.hint = "the gate does not know the key in PERMESSO_KEY, or it was revoked; on the host, permesso key create WORKSPACE creates a key"
		}
		if errors.Is(err, no.is) {
			return console.Wrap(no.code, err, no.hint)
		}
	}
	return err
}

// Request is the command that submits a request.
func Request(c *console.Console) *cobra.Command { return program{c}.request() }

func (a program) request() *cobra.Command {
	var r approval.Request
	var w endpoint
	var args []string
	var data, metadata string
	var wait bool
	var expires time.Duration
	c := &cobra.Command{
		Use:   "request [TOOL]",
		Short: "Submit a request for approval",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			if len(pos) == 1 {
				r.ToolName = pos[0]
			}
			r.ExpiresInSec = int64(expires / time.Second)
			if metadata != "" {
				r.Metadata = approval.Raw(metadata)
			}
			if err := a.compose(&r, args, data); err != nil {
				return err
			}
			g, err := w.connect(a)
			if err != nil {
				return err
			}
			began := time.Now()
			asked, err := a.submit(cmd.Context(), g, &w, r)
			if err != nil {
				return err
			}
			if !wait {
				over := submittedRequest{RequestID: asked.ID}
				if asked.RequestSHA256 != "" {
					over.RequestSHA256 = &asked.RequestSHA256
				}
				return a.Print(over, asked.ID)
			}
			fmt.Fprintf(a.Err, "permesso: submitted request %s\n", asked.ID)
			if w.timeout > 0 { // for both
				w.timeout = max(w.timeout-time.Since(began), time.Millisecond)
			}
			return a.await(cmd.Context(), g, asked, &w)
		},
	}
	fl := c.Flags()
	fl.StringArrayVarP(&args, "arg", "a", nil, "`name=text` or name:=JSON, one argument; may be repeated")
	fl.StringVarP(&data, "data", "d", "", "all arguments as a JSON `object`, @FILE, or - for standard input")
	fl.BoolVarP(&wait, "wait", "w", false, "wait for the response and print it")
	fl.StringVar(&r.RequestID, "id", "", "request `id`: 16 to 64 hex digits or a UUID, lower-case (default random); over HTTP the Idempotency-Key")
	fl.StringVar(&r.Title, "title", "", "title, one line of `text`")
	fl.StringVar(&r.Preview, "preview", "", "preview `text` of the result")
	fl.StringVar(&r.Rationale, "rationale", "", "reason for the request, as `text`")
	fl.StringVar(&r.SessionID, "session", "", "session `id`")
	fl.StringVar(&r.ActionType, "action-type", "", "exec_cmd, http_request, write_file, send_message or custom:`NAME`")
	fl.Var((*console.Duration)(&expires), "expires", "expire the request after this long (default: the workspace's approval_timeout)")
	fl.StringArrayVar(&r.Options, "option", nil, "answer `text` to choose from; may be repeated")
	fl.StringVar(&metadata, "metadata", "", "JSON `object` of up to 4 KiB that comes back in the response")
	fl.StringVar(&r.Resubmits, "resubmits", "", "`id` of the request that this one replaces")
	fl.BoolFunc("question", "ask an approver a question", func(string) error { r.Type = approval.TypeQuestion; return nil })
	w.flags(a, c, "stop waiting after this long; the request stays pending (0: no limit)")
	return c
}

// submit submits a request, for at most the time of --timeout.
func (a program) submit(ctx context.Context, g agentGate, w *endpoint, r approval.Request) (client.Submitted, error) {
	asked, err := within(ctx, w, "submitting "+r.RequestID, "it may have been accepted: submit it again with --id "+r.RequestID, func(ctx context.Context) (client.Submitted, error) {
		return g.Ask(ctx, r)
	})
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return asked, console.Wrap(console.ExitError, err, "nothing was submitted: free space in the folder of requests, or tell the operator that its disk is full")
	}
	if _, folders := g.(client.Files); folders && err != nil && console.HintFor(err) == "" {
		return asked, console.Wrap(console.ExitError, err, "mount the folder into the sandbox, as permesso mounts WORKSPACE prints it; or name it: --requests DIR --responses DIR")
	}
	return asked, withExitCode(err)
}

// submittedRequest is what request --json prints without --wait.
type submittedRequest struct {
	RequestID     string  `json:"request_id"`
	RequestSHA256 *string `json:"request_sha256"` // null over HTTP, where the daemon writes the request
}

// compose completes a request and checks it as the daemon will.
func (a program) compose(r *approval.Request, args []string, data string) (err error) {
	if r.ToolName == "" && r.ActionType == "" && r.Program == "" && r.Type != approval.TypeQuestion {
		return console.Fail(console.ExitUsage, "permesso request --help", "request needs TOOL, --action-type or --question")
	}
	if len(r.Metadata) > 0 && !r.Metadata.IsValid() {
		return console.Fail(console.ExitUsage, `write --metadata '{"run":7}'`, "--metadata: not valid JSON")
	}
	r.RequestID = cmp.Or(r.RequestID, client.NewID())
	if r.RequestData, err = a.arguments(args, data); err != nil {
		return err
	}
	b, err := r.Encode()
	if err != nil {
		return console.Wrap(console.ExitUsage, err, "permesso request --help")
	}
	if _, err := approval.ParseRequest(b, r.RequestID); err != nil {
		return console.Wrap(console.ExitUsage, err, "permesso request --help")
	}
	return nil
}

// arguments joins --data and --arg into one object. Values that are JSON stay verbatim.
func (a program) arguments(args []string, data string) (approval.Raw, error) {
	object := []byte(data)
	var err error
	switch {
	case data == "-":
		object, err = io.ReadAll(a.In)
	case strings.HasPrefix(data, "@"):
		object, err = os.ReadFile(data[1:])
	}
	if err != nil {
		return nil, err
	}
	object = bytes.TrimSpace(object)
	if len(object) == 0 {
		object = []byte("{}")
	}
	fields, err := codec.Fields(object)
	if err != nil {
		return nil, console.Fail(console.ExitUsage, `write --data '{"text":"hello"}'`, "--data: %w", err)
	}
	for _, arg := range args {
		f, err := argument(arg)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(fields, func(have codec.Field) bool { return have.Name == f.Name }) {
			return nil, console.Fail(console.ExitUsage, "give it once, in --data or with --arg", "--arg %s: argument given twice", f.Name)
		}
		fields = append(fields, f)
	}
	if len(args) == 0 {
		return object, nil // verbatim: the receipt covers these bytes
	}
	return codec.Object(fields), nil
}

func argument(arg string) (codec.Field, error) {
	if !utf8.ValidString(arg) {
		return codec.Field{}, console.Fail(console.ExitUsage, "the text must be UTF-8", "--arg %q: not UTF-8", arg)
	}
	name, value, ok := strings.Cut(arg, "=")
	if !ok || name == "" || name == ":" {
		return codec.Field{}, console.Fail(console.ExitUsage, "write --arg name=text, or --arg name:=JSON", "--arg %q: not name=value", arg)
	}
	if raw, ok := strings.CutSuffix(name, ":"); ok {
		v := jsontext.Value(value)
		if !v.IsValid() {
			return codec.Field{}, console.Fail(console.ExitUsage, ":= needs JSON; for text write "+raw+"=…", "--arg %s: not valid JSON", raw)
		}
		return codec.Field{Name: raw, Value: v}, nil
	}
	return codec.Field{Name: name, Value: codec.Quote(value)}, nil
}

// Wait is the command that waits for a response.
func Wait(c *console.Console) *cobra.Command { return program{c}.wait() }

func (a program) wait() *cobra.Command {
	var w endpoint
	c := &cobra.Command{
		Use: "wait ID", Short: "Wait for a response and print it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			g, err := w.connect(a)
			if err != nil {
				return err
			}
			s, err := w.submitted(cmd.Context(), g, pos[0])
			if err != nil {
				return err
			}
			return a.await(cmd.Context(), g, s, &w)
		},
	}
	w.flags(a, c, "stop waiting after this long (0: no limit)")
	return c
}

func (a program) await(ctx context.Context, g agentGate, s client.Submitted, w *endpoint) error {
	resp, err := within(ctx, w, "waiting for the response to "+s.ID, "permesso wait "+s.ID, func(ctx context.Context) (*approval.Response, error) {
		return g.Await(ctx, s)
	})
	if err != nil {
		return withExitCode(err)
	}
	if a.JSON {
		raw, err := resp.Encode()
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "%s\n", raw)
	} else {
		a.PrintResponse(resp)
	}
	return Ended(resp)
}

// Ended returns the exit code of a response as an error, nil if it succeeded.
func Ended(r *approval.Response) error {
	switch r.Status {
	case approval.StatusApproved, approval.StatusAutoApproved, approval.StatusAnswered:
		return nil
	case approval.StatusFailed, approval.StatusInterrupted:
		return &console.Error{Code: console.ExitFailed, Err: errors.New("")}
	}
	return &console.Error{Code: console.ExitNotRun, Err: errors.New("")}
}
