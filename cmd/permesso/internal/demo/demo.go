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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
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
		err = console.Fail(console.ExitError, "", "demo interrupted: %w", cause)
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
	out := &screen{to: a.Out, color: console.IsTerminal(a.Out) && a.Env("NO_COLOR") == ""}
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
	box := sandbox.Find(ctx, s.bin, s.dir, sandbox.Mounts(s.h.Layout, demoWorkspace))
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
	r, w := io.Pipe()
	defer r.Close()
	in := io.Reader(r)
	if file, ok := s.In.(*os.File); ok && !s.unattended {
		in = &keyboard{File: file, fallback: r, atEnd: func() { go s.typeAnswer(ctx, k, w, "deny", "end of input") }}
	} else {
		go s.typeAnswer(ctx, k, w, "approve", "typed by the demo itself")
	}
	decider := s.h.Decider(k)
	c := &terminalchat.Channel{
		In: in, Out: s.out, Viewer: s.h.Viewer(k),
		Interceptor: &chat.Interceptor{
			Decider: decider, Viewer: s.h.Viewer(k), Zone: time.Local, Redact: home.NewRedaction(), CanDecide: decider.CanDecide,
		},
		Person: home.Operator(), Workspaces: []string{demoWorkspace},
		Style: s.h.Style(), Color: s.out.color,
		Interval: 100 * time.Millisecond,
		Log:      func(err error) { s.out.line(bad, "terminal: "+chat.Escape(err.Error())) },
	}
	return c.Run(ctx)
}

// keyboard reads the person's input; at its end the demo continues typing. It
// embeds the file so that the channel can interrupt a read.
type keyboard struct {
	*os.File
	fallback io.Reader
	atEnd    func()
	ended    bool
}

func (k *keyboard) Read(b []byte) (int, error) {
	if !k.ended {
		n, err := k.File.Read(b)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		k.ended = true
		k.atEnd()
	}
	return k.fallback.Read(b)
}

// typeAnswer types the answer in place of a person, after the channel has shown the request.
func (s *demoSession) typeAnswer(ctx context.Context, k *home.Keys, w *io.PipeWriter, verb, why string) {
	for {
		if err := home.Sleep(ctx, 300*time.Millisecond); err != nil {
			return
		}
		list, err := s.h.Viewer(k).Waiting(ctx, []string{demoWorkspace})
		if err != nil || len(list) == 0 || !s.out.contains("approve "+list[0].Pending.ShortID) {
			continue
		}
		line := verb + " " + list[0].Pending.ShortID
		s.out.line(warn, "> "+line+"        ("+why+")")
		_, _ = io.WriteString(w, line+"\n") // fails only when the demo is over
		return
	}
}
