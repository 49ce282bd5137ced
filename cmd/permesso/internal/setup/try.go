package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/client"
)

// prompter asks questions on a terminal.
type prompter struct {
	in  io.Reader
	out io.Writer
}

// ask asks the four questions, and repeats a question after an invalid answer.
func (p *prompter) ask(ctx context.Context, b *Options) error {
	fmt.Fprintln(p.out, "Four questions. Press Enter for the answer in brackets. Nothing is written before the last one.")
	for _, q := range []struct {
		text  string
		value *string
		check func(string) error
	}{
		{"\n1. Name of the first workspace? A workspace is for one agent.", &b.Workspace, checkName},
		{"\n2. Who approves? A login name of this machine, or NAME:UID.", &b.TypedApprover, func(s string) error { _, _, err := approverUID(s); return err }},
		{"\n3. How much may the agent do without asking?" + explain(autonomies()), &b.Autonomy, func(s string) error { return oneOf(s, Levels()) }},
		{
			"\n4. How does the agent run? In a sandbox: " + strings.Join(Sandboxes()[:4], ", ") + "; or none.",
			&b.Sandbox, func(s string) error { return oneOf(s, Sandboxes()) },
		},
	} {
		if err := p.question(ctx, q.text, q.value, q.check); err != nil {
			return err
		}
	}
	fmt.Fprintln(p.out)
	return nil
}

func explain(cs []choice) string {
	var b strings.Builder
	for _, c := range cs {
		fmt.Fprintf(&b, "\n     %-11s %s", c.word, c.means)
	}
	return b.String()
}

func (p *prompter) question(ctx context.Context, text string, value *string, check func(string) error) error {
	fmt.Fprintln(p.out, text)
	for {
		fmt.Fprintf(p.out, "   [%s] ", *value)
		line, err := p.line(ctx)
		if err != nil {
			return err
		}
		if line == "" {
			line = *value
		}
		err = check(line)
		if err == nil {
			*value = line
			return nil
		}
		fmt.Fprintf(p.out, "   %v\n", err)
		if hint := console.HintFor(err); hint != "" {
			fmt.Fprintf(p.out, "   hint: %s\n", hint)
		}
	}
}

// line reads exactly one line, byte by byte: the input after it belongs to the
// next reader.
func (p *prompter) line(ctx context.Context) (string, error) {
	line, err := readLine(ctx, p.in, readOne)
	switch {
	case err == nil:
		return strings.TrimSpace(line), nil
	case ctx.Err() != nil:
		err = console.Fail(console.ExitError, "", "interrupted; nothing was written")
	default:
		err = console.Fail(console.ExitError, "permesso init --yes asks no questions", "end of input; nothing was written")
	}
	fmt.Fprintln(p.out)
	return "", err
}

// readLine reads a line, or until ctx ends; then the read ends with the process.
func readLine(ctx context.Context, in io.Reader, read func(io.Reader) (string, error)) (string, error) {
	var line string
	done := make(chan error, 1)
	go func() {
		var err error
		line, err = read(in)
		done <- err
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case err := <-done:
		return line, err
	}
}

func readOne(in io.Reader) (string, error) {
	const longest = 1000
	var line []byte
	b := make([]byte, 1)
	for {
		n, err := in.Read(b)
		switch {
		case n == 1 && b[0] == '\n':
			return string(line), nil
		case n == 1 && len(line) < longest:
			line = append(line, b[0])
		}
		if err != nil {
			return "", err
		}
	}
}

// offerTrial ends init with a request that runs, if the person accepts.
func offerTrial(ctx context.Context, a *console.Console, p *prompter, h *home.Home, ws string) error {
	if served, err := h.Served(); err != nil || served {
		return err // a running daemon needs no trial
	}
	fmt.Fprint(a.Out, "\nTry it now with a temporary daemon? [Y/n] ")
	line, err := p.line(ctx)
	if err != nil || strings.HasPrefix(strings.ToLower(line), "n") {
		return nil //nolint:nilerr // init is complete
	}
	fmt.Fprintln(a.Out, "\nThe agent requests the tool hello. Answer 1 to approve, 3 to deny.")
	resp, err := tryRequest(ctx, a, h, ws)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Out, "\nThe agent reads:")
	a.PrintResponse(resp)
	fmt.Fprintln(a.Out, "\nDone; the temporary daemon has stopped. To start the daemon: permesso serve")
	return nil
}

// trialTimeout is the timeout of the trial's request.
const trialTimeout = 3 * time.Minute

// tryRequest runs a daemon until one request of our own has its response.
func tryRequest(ctx context.Context, a *console.Console, h *home.Home, ws string) (*approval.Response, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var log bytes.Buffer
	served := make(chan error, 1)
	go func() {
		served <- daemon.Serve(ctx, a, "", zerolog.SyncWriter(&log))
		stop() // without a daemon there is no response
	}()
	files := client.Files{Requests: h.Layout.Requests(ws), Responses: h.Layout.Responses(ws)}
	r := approval.Request{
		RequestID: client.NewID(), ToolName: firstTool, RequestData: approval.Raw(`{"name":"you"}`),
		ExpiresInSec: int64(trialTimeout / time.Second),
	}
	asked, err := files.Ask(ctx, r)
	var resp *approval.Response
	if err == nil {
		resp, err = files.Await(ctx, asked)
	}
	stop()
	if gateErr := <-served; gateErr != nil {
		return nil, fmt.Errorf("daemon: %w\n%s", gateErr, chat.Escape(log.String()))
	}
	if errors.Is(err, context.Canceled) {
		return nil, console.Fail(console.ExitError, "it stays pending until its timeout, or until permesso serve runs", "interrupted before request %s had its response", approval.ShortID(r.RequestID))
	}
	return resp, err
}
