package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/client"
)

// folders are the two folders that an agent sees.
type folders struct{ requests, responses string }

func (f *folders) flags(a *app, c *cobra.Command) {
	from := func(name, def string) string {
		if v := a.Env(name); v != "" {
			return v
		}
		return def
	}
	c.Flags().StringVar(&f.requests, "requests", from("PERMESSO_REQUESTS", client.DefaultRequests), "`folder` to write requests to")
	c.Flags().StringVar(&f.responses, "responses", from("PERMESSO_RESPONSES", client.DefaultResponses), "`folder` to read responses from")
}

func (f *folders) client() client.Files {
	return client.Files{Requests: f.requests, Responses: f.responses}
}

// wish is a request as it is written; only what is set appears in it.
type wish struct {
	RequestID    string   `json:"request_id"`
	Type         string   `json:"type,omitzero"`
	ToolName     string   `json:"tool_name,omitzero"`
	ActionType   string   `json:"action_type,omitzero"`
	SessionID    string   `json:"session_id,omitzero"`
	Title        string   `json:"title,omitzero"`
	Preview      string   `json:"preview,omitzero"`
	Rationale    string   `json:"rationale,omitzero"`
	ExpiresInSec int64    `json:"expires_in_sec,omitzero"`
	Options      []string `json:"options,omitzero"`
	Resubmits    string   `json:"resubmits,omitzero"`
}

func (a *app) requestCmd() *cobra.Command {
	var w wish
	var f folders
	var args []string
	var data string
	var wait bool
	var timeout, expires time.Duration
	c := &cobra.Command{
		Use:   "request [TOOL]",
		Short: "Ask the gate to do something",
		Long: "Ask the gate to do something.\n\nWithout a TOOL, --action-type asks for a receipt alone (nothing runs on the host),\n" +
			"and --question asks a person something.",
		Example: "  permesso request x_post --arg text='Meeting at 5' --wait\n" +
			"  permesso request pay --data @order.json --arg amount:=12.50\n" +
			"  permesso request --question --title 'Which branch?' --option main --option next --wait",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			if len(pos) == 1 {
				w.ToolName = pos[0]
			}
			w.ExpiresInSec = int64(expires / time.Second)
			id, b, err := a.compose(w, args, data)
			if err != nil {
				return err
			}
			if err := f.client().Submit(id, b); err != nil {
				return &exit{codeError, err, "inside the sandbox the folder must be mounted: permesso mounts WORKSPACE prints how"}
			}
			if !wait {
				return a.print(map[string]string{"request_id": id, "request_sha256": approval.Digest(b)}, id)
			}
			fmt.Fprintf(a.Err, "permesso: asked, request %s\n", id)
			return a.await(cmd.Context(), f.client(), id, b, timeout)
		},
	}
	fl := c.Flags()
	fl.StringArrayVarP(&args, "arg", "a", nil, "`name=text` or name:=JSON, one argument; may be repeated")
	fl.StringVarP(&data, "data", "d", "", "all arguments as a JSON `object`, @FILE, or - for standard input")
	fl.BoolVarP(&wait, "wait", "w", false, "wait for the response and print it")
	fl.DurationVar(&timeout, "timeout", 0, "stop waiting after this long; the request stays (0: never)")
	fl.StringVar(&w.RequestID, "id", "", "request `id`, 16 to 64 lower-case hex digits (default random)")
	fl.StringVar(&w.Title, "title", "", "one line of `text` on what it is about")
	fl.StringVar(&w.Preview, "preview", "", "what it will look like, as `text`")
	fl.StringVar(&w.Rationale, "rationale", "", "why you want it, as `text`")
	fl.StringVar(&w.SessionID, "session", "", "session `id`")
	fl.StringVar(&w.ActionType, "action-type", "", "exec_cmd, http_request, write_file, send_message or custom:`NAME`")
	fl.DurationVar(&expires, "expires", 0, "how long to ask (default: the workspace's time-out)")
	fl.StringArrayVar(&w.Options, "option", nil, "an answer to choose from, as `text`; may be repeated")
	fl.StringVar(&w.Resubmits, "resubmits", "", "the `id` of the request that this one mends")
	fl.BoolFunc("question", "ask a person something", func(string) error { w.Type = approval.TypeQuestion; return nil })
	f.flags(a, c)
	return c
}

// compose makes the request's bytes, and refuses at once what the gate would.
func (a *app) compose(w wish, args []string, data string) (string, []byte, error) {
	if w.RequestID == "" {
		w.RequestID = client.NewID()
	}
	object, err := a.arguments(args, data)
	if err != nil {
		return "", nil, err
	}
	b, err := json.Marshal(w)
	if err != nil {
		return "", nil, err
	}
	// By hand: an encoder would take blanks out of what is to stay verbatim.
	b = slices.Concat(b[:len(b)-1], []byte(`,"request_data":`), object, []byte("}"))
	if _, err := approval.ParseRequest(b, w.RequestID); err != nil {
		return "", nil, &exit{codeUsage, err, "permesso request --help"}
	}
	return w.RequestID, b, nil
}

// arguments joins --data and --arg into one object, verbatim where it was JSON.
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
	fields, err := approval.Fields(object)
	if err != nil {
		return nil, fail(codeUsage, `for example --data '{"text":"hello"}'`, "--data: %w", err)
	}
	for _, arg := range args {
		f, err := argument(arg)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(fields, func(have approval.Field) bool { return have.Name == f.Name }) {
			return nil, fail(codeUsage, "give it once, in --data or as --arg", "--arg %s: there is one of that name already", f.Name)
		}
		fields = append(fields, f)
	}
	if len(args) == 0 {
		return object, nil // verbatim: whoever holds the file can check the receipt with it
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := jsontext.AppendQuote(nil, f.Name)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(f.Value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func argument(arg string) (approval.Field, error) {
	name, value, ok := strings.Cut(arg, "=")
	if !ok || name == "" || name == ":" {
		return approval.Field{}, fail(codeUsage, "write --arg name=text or --arg name:=JSON", "--arg %q: no name and value", arg)
	}
	if raw, ok := strings.CutSuffix(name, ":"); ok {
		v := jsontext.Value(value)
		if !v.IsValid() {
			return approval.Field{}, fail(codeUsage, "after := comes JSON; for text write "+raw+"=…", "--arg %s: not valid JSON", raw)
		}
		return approval.Field{Name: raw, Value: v}, nil
	}
	q, err := jsontext.AppendQuote(nil, value)
	if err != nil {
		return approval.Field{}, fail(codeUsage, "text must be UTF-8", "--arg %s: %w", name, err)
	}
	return approval.Field{Name: name, Value: q}, nil
}

func (a *app) waitCmd() *cobra.Command {
	var f folders
	var timeout time.Duration
	c := &cobra.Command{
		Use: "wait ID", Short: "Wait for the response to a request", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			return a.await(cmd.Context(), f.client(), pos[0], nil, timeout)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 0, "stop waiting after this long (0: never)")
	f.flags(a, c)
	return c
}

func (a *app) cancelCmd() *cobra.Command {
	var f folders
	c := &cobra.Command{
		Use: "cancel ID", Short: "Drop a request that nobody has decided yet", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error { return f.client().Cancel(pos[0]) },
	}
	f.flags(a, c)
	return c
}

func (a *app) await(ctx context.Context, c client.Files, id string, request []byte, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	resp, raw, err := c.Wait(ctx, id, request)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fail(codeWaiting, "permesso wait "+id, "no response to %s yet", id)
	case err != nil && resp == nil:
		return err
	case err != nil:
		return fail(codeNotRun, "ask again under a fresh id", "%w", err)
	}
	if a.json {
		fmt.Fprintf(a.Out, "%s\n", raw)
	} else {
		a.printResponse(resp)
	}
	return ended(resp)
}

// printResponse says how it ended, for people; agents take --json.
func (a *app) printResponse(r *approval.Response) {
	by := "policy"
	if r.Decision.By != nil {
		by = *r.Decision.By
	}
	fmt.Fprintf(a.Out, "%s (%s)\n", r.Status, by)
	for _, line := range []struct {
		name string
		text *string
	}{{"error", r.Error}, {"note", r.Decision.Note}, {"change", r.Decision.Override}, {"feedback", r.Feedback}} {
		if line.text != nil {
			fmt.Fprintf(a.Out, "%s: %s\n", line.name, *line.text)
		}
	}
	if r.Result.Kind() == '{' {
		fmt.Fprintf(a.Out, "result: %s\n", r.Result)
	}
}

// ended gives a response its exit code.
func ended(r *approval.Response) error {
	switch r.Status {
	case approval.StatusApproved, approval.StatusAutoApproved, approval.StatusAnswered:
		return nil
	case approval.StatusFailed, approval.StatusInterrupted:
		return &exit{code: codeFailed, err: errors.New("")}
	}
	return &exit{code: codeNotRun, err: errors.New("")}
}

// print writes v as JSON, or text for people.
func (a *app) print(v any, text string) error {
	if !a.json {
		fmt.Fprintln(a.Out, text)
		return nil
	}
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", b)
	return err
}
