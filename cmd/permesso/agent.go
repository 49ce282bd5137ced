package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
)

// endpoint is how an agent reaches the daemon: its two folders, or HTTP.
type endpoint struct {
	requests, responses string
	folders             bool // set by flags
}

func (w *endpoint) flags(a *app, c *cobra.Command) {
	c.Flags().StringVar(&w.requests, "requests", cmp.Or(a.Env("PERMESSO_REQUESTS"), client.DefaultRequests), "`folder` to write requests to")
	c.Flags().StringVar(&w.responses, "responses", cmp.Or(a.Env("PERMESSO_RESPONSES"), client.DefaultResponses), "`folder` to read responses from")
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, pos []string) error {
		w.folders = cmd.Flags().Changed("requests") || cmd.Flags().Changed("responses")
		return run(cmd, pos)
	}
}

// connect returns a client for the endpoint that the flags or the environment name.
func (w *endpoint) connect(a *app) (client.Client, error) {
	if url := a.Env("PERMESSO_URL"); url != "" && !w.folders {
		r := &client.REST{URL: url, Key: a.Env("PERMESSO_KEY")}
		return r, withExitCode(r.Check())
	}
	return client.Files{Requests: w.requests, Responses: w.responses}, nil
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
		if errors.Is(err, no.is) {
			return console.Wrap(no.code, err, no.hint)
		}
	}
	return err
}

func (a *app) requestCmd() *cobra.Command {
	var r approval.Request
	var w endpoint
	var args []string
	var data string
	var wait bool
	var timeout, expires time.Duration
	c := &cobra.Command{
		Use:   "request [TOOL]",
		Short: "Submit a request for approval",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			if len(pos) == 1 {
				r.ToolName = pos[0]
			}
			r.ExpiresInSec = int64(expires / time.Second)
			if err := a.compose(&r, args, data); err != nil {
				return err
			}
			g, err := w.connect(a)
			if err != nil {
				return err
			}
			asked, err := g.Ask(cmd.Context(), r)
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				return console.Wrap(console.ExitError, err, "nothing was submitted: free space in the folder of requests, or tell the operator that its disk is full")
			}
			if _, folders := g.(client.Files); folders && err != nil {
				return console.Wrap(console.ExitError, err, "mount the folder into the sandbox; permesso mounts WORKSPACE prints the mounts")
			}
			if err != nil {
				return withExitCode(err)
			}
			if !wait {
				over := submittedRequest{RequestID: asked.ID}
				if asked.RequestSHA256 != "" {
					over.RequestSHA256 = &asked.RequestSHA256
				}
				return a.Print(over, asked.ID)
			}
			fmt.Fprintf(a.Err, "permesso: submitted request %s\n", asked.ID)
			return a.await(cmd.Context(), g, asked, timeout)
		},
	}
	fl := c.Flags()
	fl.StringArrayVarP(&args, "arg", "a", nil, "`name=text` or name:=JSON, one argument; may be repeated")
	fl.StringVarP(&data, "data", "d", "", "all arguments as a JSON `object`, @FILE, or - for standard input")
	fl.BoolVarP(&wait, "wait", "w", false, "wait for the response and print it")
	fl.DurationVar(&timeout, "timeout", 0, "stop waiting after this long; the request stays pending (0: no limit)")
	fl.StringVar(&r.RequestID, "id", "", "request `id`: 16 to 64 hex digits or a UUID, lower-case (default random); over HTTP the Idempotency-Key")
	fl.StringVar(&r.Title, "title", "", "title, one line of `text`")
	fl.StringVar(&r.Preview, "preview", "", "preview `text` of the result")
	fl.StringVar(&r.Rationale, "rationale", "", "reason for the request, as `text`")
	fl.StringVar(&r.SessionID, "session", "", "session `id`")
	fl.StringVar(&r.ActionType, "action-type", "", "exec_cmd, http_request, write_file, send_message or custom:`NAME`")
	fl.DurationVar(&expires, "expires", 0, "expire the request after this long (default: the workspace's approval_timeout)")
	fl.StringArrayVar(&r.Options, "option", nil, "answer `text` to choose from; may be repeated")
	fl.StringVar(&r.Resubmits, "resubmits", "", "`id` of the request that this one replaces")
	fl.BoolFunc("question", "ask an approver a question", func(string) error { r.Type = approval.TypeQuestion; return nil })
	w.flags(a, c)
	return c
}

// submittedRequest is what request --json prints without --wait.
type submittedRequest struct {
	RequestID     string  `json:"request_id"`
	RequestSHA256 *string `json:"request_sha256"` // null over HTTP, where the daemon writes the request
}

// compose completes a request and checks it as the daemon will.
func (a *app) compose(r *approval.Request, args []string, data string) (err error) {
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
func (a *app) arguments(args []string, data string) (approval.Raw, error) {
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
	members := make([]string, 0, len(fields))
	for _, f := range fields {
		name, err := jsontext.AppendQuote(nil, f.Name)
		if err != nil {
			return nil, err
		}
		members = append(members, string(name)+":"+string(f.Value))
	}
	return approval.Raw("{" + strings.Join(members, ",") + "}"), nil
}

func argument(arg string) (codec.Field, error) {
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
	q, err := jsontext.AppendQuote(nil, value)
	if err != nil {
		return codec.Field{}, console.Fail(console.ExitUsage, "the text must be UTF-8", "--arg %s: %w", name, err)
	}
	return codec.Field{Name: name, Value: q}, nil
}

func (a *app) waitCmd() *cobra.Command {
	var w endpoint
	var timeout time.Duration
	c := &cobra.Command{
		Use: "wait ID", Short: "Wait for a response and print it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			g, err := w.connect(a)
			if err != nil {
				return err
			}
			return a.await(cmd.Context(), g, client.Submitted{ID: pos[0]}, timeout)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 0, "stop waiting after this long (0: no limit)")
	w.flags(a, c)
	return c
}

func (a *app) cancelCmd() *cobra.Command {
	var w endpoint
	var host bool
	c := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a pending request", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			if host {
				return a.cancelWaiting(cmd.Context(), pos[0])
			}
			g, err := w.connect(a)
			if err != nil {
				return err
			}
			return withExitCode(g.Cancel(cmd.Context(), client.Submitted{ID: pos[0]}))
		},
	}
	w.flags(a, c)
	c.Flags().BoolVar(&host, "operator", false, "cancel as the operator of the host")
	return c
}

func (a *app) await(ctx context.Context, g client.Client, asked client.Submitted, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	resp, err := g.Await(ctx, asked)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return console.Fail(console.ExitTimeout, "permesso wait "+asked.ID, "timeout waiting for the response to %s", asked.ID)
	case err != nil:
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
	return ended(resp)
}

// ended returns the exit code of a response as an error, nil if it succeeded.
func ended(r *approval.Response) error {
	switch r.Status {
	case approval.StatusApproved, approval.StatusAutoApproved, approval.StatusAnswered:
		return nil
	case approval.StatusFailed, approval.StatusInterrupted:
		return &console.Error{Code: console.ExitFailed, Err: errors.New("")}
	}
	return &console.Error{Code: console.ExitNotRun, Err: errors.New("")}
}
