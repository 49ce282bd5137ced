// Package demo runs a daemon and a sandboxed agent in a temporary folder.
package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	terminalchat "github.com/permesso-dev/permesso/chat/terminal"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

const demoWorkspace = "demo"

// demoRequest is one request of the demo's agent.
type demoRequest struct {
	tool    string
	comment string          // printed before the request
	call    string          // the agent's command line
	args    string          // as the client encodes them; the receipt must match
	other   string          // arguments that the receipt must not match
	want    approval.Status // "" if a person decides
}

func demoRequests() []demoRequest {
	return []demoRequest{
		{
			tool: "greet", comment: "A greeting. A rule allows it.", call: "permesso request greet --arg name=world --wait",
			args: `{"name":"world"}`, other: `{"name":"moon"}`, want: approval.StatusAutoApproved,
		},
		{
			tool: "post_note", comment: "A note for the notice board. It asks you.",
			call: "permesso request post_note --arg text='Meeting at 5' --rationale='They should know.' --wait",
			args: `{"text":"Meeting at 5"}`, other: `{"text":"Meeting at 6"}`,
		},
		{
			tool: "wipe_board", comment: "Wiping the board. A rule denies it.", call: "permesso request wipe_board --wait",
			args: `{}`, other: `{"all":true}`, want: approval.StatusAutoRejected,
		},
	}
}

// agentScript is the agent's shell script. It ignores how a request ends: the host
// verifies the outcomes from its own records.
func agentScript() string {
	var b strings.Builder
	for i, e := range demoRequests() {
		fmt.Fprintf(&b, "echo %s\necho %s\n%s\n", sandbox.ShellWord(fmt.Sprintf("# %d. %s", i+1, e.comment)), sandbox.ShellWord("$ "+e.call), e.call)
	}
	return b.String() + "exit 0\n"
}

//go:embed demo.toml
var demoFile string

// demoConfig has harmless tools: the board is a file in dir.
func demoConfig(dir string) (string, error) {
	board, err := jsontext.AppendQuote(nil, filepath.Join(dir, "board.txt")) // JSON's strings are TOML's
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(demoFile, "@BOARD@", string(board)), nil
}

// demoSession is a running demo.
type demoSession struct {
	*console.Console // with the temporary home and its configuration
	h                *home.Home
	out              *screen
	dir              string
	bin              string
	unattended       bool
}

// Run runs the demo and removes everything at its end.
func Run(ctx context.Context, a *console.Console) (err error) {
	dir, err := os.MkdirTemp("", "permesso-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Clean up also when the terminal is closed or the output's reader is gone.
	ctx, unhook := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGPIPE)
	defer unhook()
	s, err := prepareDemo(a, dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := s.startGate(ctx, cancel)
	if err != nil {
		return err
	}
	err = s.run(ctx, cancel)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = console.Fail(console.ExitError, "", "demo interrupted: %v", cause) // the words alone: the demo says what was interrupted
	}
	return errors.Join(err, stop())
}

// prepareDemo prepares a home as init does.
func prepareDemo(a *console.Console, dir string) (*demoSession, error) {
	bin, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := demoConfig(dir)
	if err != nil {
		return nil, err
	}
	inner := &console.Console{
		In: a.In, Out: a.Out, Err: a.Err, Env: a.Env, Version: a.Version,
		ConfigFlag: filepath.Join(dir, "permesso.toml"), HomeFlag: filepath.Join(dir, "home"),
	}
	if err := os.WriteFile(inner.ConfigFlag, []byte(text), 0o600); err != nil {
		return nil, err
	}
	h, err := home.Load(inner)
	if err != nil {
		return nil, err
	}
	if err := h.Prepare(); err != nil {
		return nil, err
	}
	if _, err := h.MakeKeys(); err != nil {
		return nil, err
	}
	out := &screen{to: a.Out, color: a.Colors()}
	return &demoSession{Console: inner, h: h, out: out, dir: dir, bin: bin, unattended: !console.IsTerminal(a.In)}, nil
}

// startGate starts a daemon without a terminal and waits until it is ready. If the daemon
// ends early, the demo is cancelled.
func (s *demoSession) startGate(ctx context.Context, cancel context.CancelCauseFunc) (stop func() error, err error) {
	quiet := *s.Console
	quiet.In = nil
	stop = daemon.Background(context.WithoutCancel(ctx), &quiet, func() { cancel(errors.New("the daemon has stopped")) })
	for {
		served, err := s.h.Served()
		if err == nil && !served {
			err = home.Sleep(ctx, 20*time.Millisecond)
		}
		switch {
		case err != nil:
			return nil, errors.Join(err, stop())
		case served:
			return stop, nil
		}
	}
}

// run runs the agent and an approver.
func (s *demoSession) run(ctx context.Context, cancel context.CancelCauseFunc) error {
	if err := sandbox.WriteFilter(s.h.Layout); err != nil {
		return err
	}
	box := sandbox.Find(ctx, s.bin, s.dir, s.h.Layout, sandbox.Mounts(s.h.Layout, demoWorkspace))
	s.printIntro(box)
	k, err := s.h.LoadKeys()
	if err != nil {
		return err
	}
	answers, stopAnswers := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.answer(answers, k); err != nil {
			cancel(err) // without an approver the agent would wait forever
		}
	})
	err = box.Run(ctx, &prefixer{to: s.out, prefix: "agent │ "}, agentScript())
	stopAnswers()
	wg.Wait()
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return s.verify(ctx, k)
}

func (s *demoSession) printIntro(box sandbox.Sandbox) {
	s.out.line(bold, "An agent submits requests, you decide, and the daemon runs exactly what you approve.")
	s.out.line(plain, "")
	s.out.line(plain, "The daemon runs on the host, with its home in "+s.dir+", until the demo ends.")
	if box.Bwrap != "" {
		s.out.line(plain, "The agent runs in bubblewrap. It sees only two of the daemon's folders:")
		for _, m := range box.Mounts {
			access := "to write  "
			if m.ReadOnly {
				access = "to read   "
			}
			s.out.line(plain, "  "+access+m.Target)
		}
	} else {
		s.out.line(warn, "!! THE AGENT IS NOT SANDBOXED: "+box.Why+".")
		s.out.line(warn, "!! It runs as your user and could approve its own requests. Never do this with a real agent.")
	}
	if s.unattended {
		s.out.line(warn, "!! NO APPROVER: standard input is not a terminal, so the demo types the answer itself.")
	}
	s.out.line(plain, "")
}

// answer runs the terminal channel of serve. The demo decides by the daemon's files, as
// permesso approve does.
func (s *demoSession) answer(ctx context.Context, k *home.Keys) error {
	decider := s.h.Decider(k)
	c := &terminalchat.Channel{
		Out: s.out, Viewer: s.h.Viewer(k),
		Interceptor: &chat.Interceptor{
			Decider: decider, Viewer: s.h.Viewer(k), Zone: time.Local, Redact: home.NewRedaction(), CanDecide: decider.CanDecide,
		},
		Person: home.Operator(), Workspaces: []string{demoWorkspace},
		Style: s.h.Style(), Color: s.out.color,
		Interval: 100 * time.Millisecond,
		Log:      func(err error) { s.out.line(bad, "terminal: "+chat.Escape(err.Error())) },
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if s.unattended {
		wg.Go(func() { s.typeAnswer(ctx, c, "approve", "typed by the demo itself") })
	} else {
		c.In = s.In
		c.Ended = func() { wg.Go(func() { s.typeAnswer(ctx, c, "deny", "end of input") }) }
	}
	s.out.share(c)
	defer s.out.share(nil)
	return c.Run(ctx)
}

// typeAnswer answers in place of a person, after the channel has shown the request.
func (s *demoSession) typeAnswer(ctx context.Context, c *terminalchat.Channel, verb, why string) {
	for {
		if err := home.Sleep(ctx, 300*time.Millisecond); err != nil {
			return
		}
		list, err := c.Viewer.Waiting(ctx, c.Workspaces)
		if err != nil || len(list) == 0 || !s.out.contains("approve "+list[0].Pending.ShortID) {
			continue
		}
		line := verb + " " + list[0].Pending.ShortID
		s.out.line(warn, "> "+line+"        ("+why+")")
		r := c.Interceptor.Handle(ctx, chat.Message{
			From: c.Person, Via: "terminal", Text: line, Workspaces: c.Workspaces, Language: c.Style.Language,
		})
		s.out.line(good, r.Text)
		return
	}
}

// verify checks, from the daemon's records and the board, that every request
// ended as announced.
func (s *demoSession) verify(ctx context.Context, k *home.Keys) error {
	records, err := s.records(ctx, k)
	if err != nil {
		return err
	}
	s.out.line(plain, "")
	s.out.line(bold, "What the host verifies afterwards, with the public key alone:")
	for _, e := range demoRequests() {
		rec := records[e.tool]
		if rec == nil {
			return fmt.Errorf("no record of %s", e.tool)
		}
		if err := s.checkOutcome(e, rec); err != nil {
			return fmt.Errorf("%s: %w", e.tool, err)
		}
	}
	if err := s.checkBoard(records["post_note"].Status == approval.StatusApproved); err != nil {
		return err
	}
	s.out.line(plain, "")
	s.out.line(plain, "Demo complete; everything is removed. Next: permesso init")
	return s.out.err
}

// records returns the one record of each tool.
func (s *demoSession) records(ctx context.Context, k *home.Keys) (map[string]*approval.Record, error) {
	ids, _, err := s.h.Store.List(ctx, approval.DocRecord, demoWorkspace)
	if err != nil {
		return nil, err
	}
	records := map[string]*approval.Record{}
	for _, id := range ids {
		key := approval.Key{Workspace: demoWorkspace, ID: id}
		st, err := s.h.Viewer(k).Story(ctx, key)
		if err != nil {
			return nil, err
		}
		if st.Pending == nil { // a rule decided
			st.Pending = read.Requested(key, st.Record)
		}
		tool := st.Pending.ToolName
		if records[tool] != nil {
			return nil, fmt.Errorf("two records of %s", tool)
		}
		records[tool] = st.Record
	}
	return records, nil
}

// checkOutcome compares one record with the expected status, and its receipt with
// the agent's arguments.
func (s *demoSession) checkOutcome(e demoRequest, rec *approval.Record) error {
	switch {
	case e.want != "" && rec.Status != e.want:
		return fmt.Errorf("status %s, expected %s", rec.Status, e.want)
	case rec.Status == approval.StatusExpired:
		return errors.New("no decision before the timeout")
	case rec.Status == approval.StatusFailed, rec.Status == approval.StatusInterrupted, rec.Status == approval.StatusMalformed:
		return fmt.Errorf("ended %s", rec.Status)
	}
	file := filepath.Join(s.h.Layout.Responses(demoWorkspace), rec.RequestID+".json")
	public := filepath.Join(s.h.Layout.Keys(), "signing.pub")
	ran := rec.Status == approval.StatusApproved || rec.Status == approval.StatusAutoApproved
	facts, err := s.VerifyReceipt(file, console.ReceiptCheck{Tool: e.tool, Args: e.args, Key: public}, console.Receipts{})
	switch {
	case ran && err != nil:
		return fmt.Errorf("receipt: %w", err)
	case !ran && err == nil:
		return errors.New("has a receipt, though it did not run")
	case !ran:
		s.out.line(plain, fmt.Sprintf("  ✓ %s: %s; no receipt, so nothing ran", e.tool, rec.Status))
		return nil
	}
	if _, err = s.VerifyReceipt(file, console.ReceiptCheck{Tool: e.tool, Args: e.other, Key: public}, console.Receipts{}); err == nil {
		return fmt.Errorf("receipt verifies for the wrong arguments %s", e.other)
	}
	s.out.line(good, fmt.Sprintf("  ✓ %s: receipt valid for %s, %s", e.tool, e.args, console.DecidedBy(facts)))
	s.out.line(good, fmt.Sprintf("    for %s it is refused: %v", e.other, err))
	return nil
}

// checkBoard checks the one file that the demo changes.
func (s *demoSession) checkBoard(approved bool) error {
	b, err := os.ReadFile(filepath.Join(s.dir, "board.txt"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	want, says := "", "  ✓ the notice board is empty, as it was"
	if approved {
		want, says = "Meeting at 5\n", "  ✓ the notice board says, once: Meeting at 5"
	}
	if string(b) != want {
		return fmt.Errorf("the notice board holds %q, not %q", b, want)
	}
	s.out.line(good, says)
	return nil
}

// Styles of a line: parameters of an SGR sequence.
const (
	plain = 0
	bold  = 1
	dim   = 2
	bad   = 31
	good  = 32
	warn  = 33
)

// screen is shared by agent, channel and demo. Each writes complete lines.
type screen struct {
	above atomic.Pointer[terminalchat.Channel] // writes above the line that is being typed
	mu    sync.Mutex
	to    io.Writer
	color bool
	shown strings.Builder
	err   error // first error
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.Write(b)
	n, err := s.to.Write(b)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

func (s *screen) contains(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.shown.String(), text)
}

func (s *screen) line(style int, text string) {
	if s.color && style != plain && text != "" {
		text = "\x1b[" + strconv.Itoa(style) + "m" + text + "\x1b[0m"
	}
	to := io.Writer(s)
	if c := s.above.Load(); c != nil {
		to = c
	}
	_, _ = io.WriteString(to, text+"\n")
}

// share makes lines appear above the line that is typed in a channel; nil: no more.
func (s *screen) share(c *terminalchat.Channel) { s.above.Store(c) }

// prefixer puts a prefix before every line.
type prefixer struct {
	to     *screen
	prefix string

	mu   sync.Mutex // standard output and standard error are copied at the same time
	rest string
}

func (p *prefixer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest += string(b)
	for {
		line, rest, complete := strings.Cut(p.rest, "\n")
		if !complete {
			return len(b), nil
		}
		p.rest = rest
		style := plain
		switch {
		case strings.HasPrefix(line, "# "):
			style = bold
			p.to.line(dim, p.prefix)
		case strings.HasPrefix(line, "permesso: "):
			style = dim
		}
		p.to.line(style, p.prefix+line)
	}
}
