package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	terminalchat "github.com/permesso-dev/permesso/chat/terminal"
)

func (a *app) demoCmd() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "See it work: a sandboxed agent asks, you answer", Args: cobra.NoArgs,
		Long: "Start a gate in a temporary folder and a toy agent in bubblewrap that makes three requests: one that a rule\n" +
			"allows, one that asks you, one that a rule denies. Nothing is left behind. Without a terminal it answers itself.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context()) },
	}
}

const demoWorkspace = "demo"

// errand is one request of the demo's agent.
type errand struct {
	tool  string
	says  string          // the agent, before it asks
	call  string          // its command line
	args  string          // as the program composes them: what the receipt must be for
	other string          // what the receipt must not be for
	want  approval.Status // "" where a person decides
}

func errands() []errand {
	return []errand{
		{
			tool: "greet", says: "A greeting. A rule allows it.", call: "permesso request greet --arg name=world --wait",
			args: `{"name":"world"}`, other: `{"name":"moon"}`, want: approval.StatusAutoApproved,
		},
		{
			tool: "post_note", says: "A note for the notice board. That asks you.",
			call: "permesso request post_note --arg text='Meeting at 5' --rationale='They should know.' --wait",
			args: `{"text":"Meeting at 5"}`, other: `{"text":"Meeting at 6"}`,
		},
		{
			tool: "wipe_board", says: "Wiping the board. A rule denies it.", call: "permesso request wipe_board --wait",
			args: `{}`, other: `{"all":true}`, want: approval.StatusAutoRejected,
		},
	}
}

// script is the agent's whole mind. Every request may end as it likes: that is
// for the host to judge, from its own records.
func script() string {
	var b strings.Builder
	for i, e := range errands() {
		fmt.Fprintf(&b, "echo %s\necho %s\n%s\n", shellWord(fmt.Sprintf("# %d. %s", i+1, e.says)), shellWord("$ "+e.call), e.call)
	}
	return b.String() + "exit 0\n"
}

// demoConfig has tools that harm nobody: the board is a file in dir.
func demoConfig(dir string) (string, error) {
	board, err := jsontext.AppendQuote(nil, filepath.Join(dir, "board.txt")) // JSON's strings are TOML's
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`
[workspaces.demo]
approval_timeout = "4m"     # receipts are valid for five: the first one still is at the end

[tools.greet]
verb = "greet"
summary = "{name}"
reversibility = "reversible"
trust = false
handler = { kind = "command", argv = ["/bin/echo", "Hello, {name}!"] }

[tools.post_note]
verb = "post"
summary = "{text} -> the notice board"
capability = "channel:out"
target = "board"
reversibility = "reversible"
handler = { kind = "command", argv = ["/bin/sh", "-c", 'printf "%%s\n" "$2" >>"$1" && echo posted', "sh", %[1]s, "{text}"] }

[tools.wipe_board]
verb = "wipe"
summary = "the notice board"
handler = { kind = "command", argv = ["/bin/rm", "-f", %[1]s] }

[[rules]]
name = "greetings-are-fine"
match = { tool = "greet" }
outcome = "allow"

[[rules]]
name = "the-board-stays"
match = { tool = "wipe_board" }
outcome = "deny"
reason = "nobody wipes the board"
`, board), nil
}

// stage is the demo under way.
type stage struct {
	*app       // with the temporary home and its configuration
	h          *house
	out        *screen
	dir        string
	bin        string
	unattended bool
}

func (a *app) demo(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "permesso-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The terminal was closed, or nobody reads on: tidy up all the same.
	ctx, unhook := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGPIPE)
	defer unhook()
	s, err := a.stage(dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := s.startGate(ctx, cancel)
	if err != nil {
		return err
	}
	err = s.play(ctx, cancel)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fail(codeError, "", "stopped before the end: %w", cause)
	}
	return errors.Join(err, stop())
}

// stage prepares the home as init would.
func (a *app) stage(dir string) (*stage, error) {
	bin, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := demoConfig(dir)
	if err != nil {
		return nil, err
	}
	inner := &app{Main: a.Main, ctx: a.ctx, configFlag: filepath.Join(dir, "permesso.toml"), homeFlag: filepath.Join(dir, "home")}
	if err := os.WriteFile(inner.configFlag, []byte(text), 0o600); err != nil {
		return nil, err
	}
	h, err := inner.house()
	if err != nil {
		return nil, err
	}
	if err := h.prepare(); err != nil {
		return nil, err
	}
	if _, err := h.makeKeys(); err != nil {
		return nil, err
	}
	out := &screen{to: a.Out, color: terminal(a.Out) && a.Env("NO_COLOR") == ""}
	return &stage{app: inner, h: h, out: out, dir: dir, bin: bin, unattended: !terminal(a.In)}, nil
}

// startGate starts the daemon as anybody would, and waits until it serves.
// When it ends before its time, the demo does.
func (s *stage) startGate(ctx context.Context, cancel context.CancelCauseFunc) (stop func() error, err error) {
	logFile := filepath.Join(s.dir, "serve.log")
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(s.bin, "serve", "--home", s.homeFlag, "--config", s.configFlag)
	cmd.Stdout, cmd.Stderr = log, log
	endWithParent(cmd)
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- onOneThread(func() error {
			err := cmd.Start()
			started <- err
			if err == nil {
				err = cmd.Wait()
				cancel(errors.New("the gate has stopped"))
			}
			return err
		})
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err = <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			err = errors.Join(errors.New("it did not stop when asked to"), <-ended)
		}
		if err == nil {
			return nil
		}
		b, _ := os.ReadFile(logFile)
		return fmt.Errorf("the gate: %w\n%s", err, chat.Escape(string(b)))
	}
	for {
		served, err := s.h.served()
		if err == nil && !served {
			err = pauseFor(ctx, 20*time.Millisecond)
		}
		switch {
		case err != nil:
			return nil, errors.Join(err, stop())
		case served:
			return stop, nil
		}
	}
}

// play is the demo as it is seen.
func (s *stage) play(ctx context.Context, cancel context.CancelCauseFunc) error {
	box := findSandbox(ctx, s.bin, s.dir, mounts(s.h.layout, demoWorkspace))
	s.introduce(box)
	k, err := s.h.loadKeys()
	if err != nil {
		return err
	}
	answers, hangUp := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.answer(answers, k); err != nil {
			cancel(err) // nobody can answer: without this the agent would wait on
		}
	})
	err = box.run(ctx, &prefixer{to: s.out, prefix: "agent │ "}, script())
	hangUp()
	wg.Wait()
	if err != nil {
		return fmt.Errorf("the agent: %w", err)
	}
	return s.judge(ctx, k)
}

func (s *stage) introduce(box sandbox) {
	s.out.line(bold, "An agent asks, you answer, and the gate does exactly what you have approved.")
	s.out.line(plain, "")
	s.out.line(plain, "The gate runs on the host, here in "+s.dir+", until the demo ends.")
	if box.bwrap != "" {
		s.out.line(plain, "The agent runs in bubblewrap. Of the gate it sees two folders and nothing else:")
		for _, m := range box.see {
			access := "to write  "
			if m.ReadOnly {
				access = "to read   "
			}
			s.out.line(plain, "  "+access+m.Target)
		}
	} else {
		s.out.line(warn, "!! THE AGENT IS NOT SANDBOXED: "+box.why+".")
		s.out.line(warn, "!! It runs as your own user and could approve itself. Never do this with a real agent.")
	}
	if s.unattended {
		s.out.line(warn, "!! NOBODY IS ASKED: standard input is no terminal, so the demo types the answer itself.")
	}
	s.out.line(plain, "")
}

// answer is the terminal channel of serve. The demo decides from another
// process than the gate's, as permesso approve does.
func (s *stage) answer(ctx context.Context, k *keys) error {
	r, w := io.Pipe()
	defer r.Close()
	in, eyes := io.Reader(r), &witness{Writer: s.out}
	if file, ok := s.In.(*os.File); ok && !s.unattended {
		in = &keyboard{File: file, then: r, over: func() { go s.typeAnswer(ctx, k, w, eyes, "deny", "the input has ended") }}
	} else {
		go s.typeAnswer(ctx, k, w, eyes, "approve", "typed by the demo itself")
	}
	decider := s.h.decider(k, nil)
	c := &terminalchat.Channel{
		In: in, Out: eyes, Viewer: s.h.viewer(k),
		Interceptor: &chat.Interceptor{
			Decider: decider, Viewer: s.h.viewer(k), Zone: time.Local, Redact: newRedaction(), CanDecide: decider.CanDecide,
		},
		Person: operator(), Workspaces: []string{demoWorkspace},
		Style: s.h.style(), Color: s.out.color,
		Every: 100 * time.Millisecond,
		Log:   func(err error) { s.out.line(bad, "terminal: "+chat.Escape(err.Error())) },
	}
	return c.Run(ctx)
}

// keyboard is the person's; when they hang up, the demo types on. As a file it
// lets the channel interrupt a read.
type keyboard struct {
	*os.File
	then  io.Reader
	over  func()
	ended bool
}

func (k *keyboard) Read(b []byte) (int, error) {
	if !k.ended {
		n, err := k.File.Read(b)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		k.ended = true
		k.over()
	}
	return k.then.Read(b)
}

// witness remembers what the channel has shown.
type witness struct {
	io.Writer
	mu    sync.Mutex
	shown strings.Builder
}

func (w *witness) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown.Write(b)
	return w.Writer.Write(b)
}

func (w *witness) saw(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.shown.String(), text)
}

// typeAnswer stands in for the person, before the very same channel, and answers what it has shown.
func (s *stage) typeAnswer(ctx context.Context, k *keys, w *io.PipeWriter, eyes *witness, verb, why string) {
	for {
		if err := pauseFor(ctx, 300*time.Millisecond); err != nil {
			return
		}
		list, err := s.h.viewer(k).Waiting(ctx, []string{demoWorkspace})
		if err != nil || len(list) == 0 || !eyes.saw("approve "+list[0].Pending.ShortID) {
			continue
		}
		line := verb + " " + list[0].Pending.ShortID
		s.out.line(warn, "> "+line+"        ("+why+")")
		_, _ = io.WriteString(w, line+"\n") // nobody listens any more: the demo is over
		return
	}
}
