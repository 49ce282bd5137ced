package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/ipc/hook/model"
)

// trial is one call of an agent with our hook, and what happens to the hook, the gate and the request meanwhile.
type trial struct {
	name  string
	times int
	down  bool                                   // no daemon runs at the start
	while func(w *setting) error                 // what happens while the agent runs; it has the pending request, if asks
	asks  bool                                   // waits for the request to be pending first
	hooks int                                    // how often the hook is installed; 0: 1
	wait  time.Duration                          // approval timeout; 0: 10 min
	want  func(column string, ran int) (ok bool) // of times
}

// setting is a place with a daemon of ours.
type setting struct {
	place
	program string
	daemon  *exec.Cmd
	agent   agent
	event   string // of its hook
	id      string // of the pending request
}

func never(_ string, ran int) bool { return ran == 0 }

func always(times int) func(string, int) bool {
	return func(_ string, ran int) bool { return ran == times }
}

// failsClosed are the columns that hold even if our process itself is killed.
func failsClosed(column string) bool { return strings.HasPrefix(column, "claude-code onFailure") }

var trials = []trial{
	{name: "approved", asks: true, while: (*setting).approve, want: always(1), times: 1},
	{name: "approved, with two hooks for the call", asks: true, hooks: 2, while: (*setting).approve, want: always(1), times: 1},
	{name: "denied", asks: true, while: func(w *setting) error { return w.operator("deny", w.id, "not on a Sunday") }, want: never, times: 1},
	{name: "no decision in time", asks: true, wait: 5 * time.Second, while: func(*setting) error { return nil }, want: never, times: 1},
	{name: "the daemon is down", down: true, while: func(*setting) error { return nil }, want: never, times: 1},
	{name: "the daemon is killed while the hook waits, and started again", asks: true, times: 1, want: always(1), while: func(w *setting) error {
		if err := w.kill(); err != nil {
			return err
		}
		if err := w.serve(); err != nil {
			return err
		}
		return w.approve()
	}},
	{name: "the hook is ended by SIGTERM", asks: true, while: func(w *setting) error { return w.signal(syscall.SIGTERM) }, want: never, times: 1},
	{name: "the hook is killed at a random moment", times: 50, want: func(column string, ran int) bool { return ran == 0 || !failsClosed(column) }, while: func(w *setting) error {
		for range 6000 { // until there is one
			if w.signal(0) == nil {
				time.Sleep(rand.N(400 * time.Millisecond))
				return w.signal(syscall.SIGKILL)
			}
			time.Sleep(5 * time.Millisecond)
		}
		return errors.New("no hook was there to be killed")
	}},
}

// gate runs the trials, and reports of each how often the call ran.
func (l *lab) gate(part string) (map[string]map[string]string, error) {
	program := filepath.Join(l.folder, "permesso")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd/permesso").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	cells := map[string]map[string]string{}
	var wrong []error
	for _, t := range trials {
		if !strings.Contains(t.name, part) {
			continue
		}
		cells[t.name] = map[string]string{}
		for _, a := range agents {
			if _, err := l.version(a.pkg); err != nil || a.column == "claude-code" {
				continue
			}
			var mu sync.Mutex
			ran := 0
			var failed error
			parallel(2, slices.Repeat([]func(){func() {
				did, err := l.try(a, t, program)
				mu.Lock()
				defer mu.Unlock()
				if did {
					ran++
				}
				failed = errors.Join(failed, err)
			}}, t.times))
			if failed != nil {
				return cells, fmt.Errorf("%s, %s: %w", t.name, a.column, failed)
			}
			if !t.want(a.column, ran) {
				wrong = append(wrong, fmt.Errorf("%s, %s: ran %d of %d", t.name, a.column, ran, t.times))
			}
			cells[t.name][a.column] = fmt.Sprintf("ran %d of %d", ran, t.times)
			fmt.Printf("lab: ran %2d of %2d %-22s %s\n", ran, t.times, a.column, t.name)
		}
	}
	return cells, errors.Join(wrong...)
}

func (l *lab) try(a agent, t trial, program string) (ran bool, err error) {
	dir, err := os.MkdirTemp("", "lab-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return false, err
	}
	effect := filepath.Join(dir, "effect")
	m := &model.Server{Turns: [][]model.Call{{a.touch(effect)}}}
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	w := &setting{agent: a, program: program, place: place{dir: dir, home: filepath.Join(dir, "home"), project: filepath.Join(dir, "project"), url: "http://" + listener.Addr().String()}}
	if err := os.MkdirAll(w.project, 0o755); err != nil {
		return false, err
	}
	if err := a.prepare(w.place, row{ours: true}); err != nil {
		return false, err
	}
	if err := w.write(filepath.Join(w.home, ".config/permesso/permesso.toml"), "listen = \"\"\nui = false\n[workspaces.default]\n", 0o600); err != nil {
		return false, err
	}
	for i := range max(t.hooks, 1) {
		args := []string{"hook", "install", a.name, "--yes"}
		if i > 0 { // another one for the same call, in the project
			args = append(args, "--project")
		}
		if t.wait > 0 {
			args = append(args, "--approval-timeout", t.wait.String())
		}
		if err := w.operator(args...); err != nil {
			return false, err
		}
	}
	if err := w.serve(); err != nil {
		return false, err
	}
	defer func() { _ = w.kill() }()
	if t.down {
		if err := w.kill(); err != nil {
			return false, err
		}
	}

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(l.folder, "node_modules/.bin", a.program), a.args(row{})...)
	cmd.Dir, cmd.Env = w.project, append(w.env(), a.env(w.url)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	killGroup(cmd)
	if err := cmd.Start(); err != nil {
		return false, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	err = w.awaitPending(t.asks, ended)
	if err == nil {
		err = t.while(w)
	}
	if err != nil {
		cancel()
		<-ended
		return false, fmt.Errorf("%w: %s", err, lastLine(out.Bytes()))
	}
	<-ended
	if m.Asked() == 0 {
		return false, fmt.Errorf("the model was not asked: %s", lastLine(out.Bytes()))
	}
	_, err = os.Stat(effect)
	return err == nil, nil
}

func (w *setting) env() []string {
	return []string{"HOME=" + w.home, "PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", "LAB_KEY=none"}
}

func (w *setting) operator(args ...string) error {
	cmd := exec.Command(w.program, args...)
	cmd.Dir, cmd.Env = w.project, w.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("permesso %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (w *setting) approve() error {
	cmd := exec.Command(w.program, "pending", "--json")
	cmd.Env = w.env()
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	_, rest, ok := strings.Cut(string(out), `"pending_sha256":"`)
	if !ok || len(rest) < 64 {
		return fmt.Errorf("no pending request in %s", out)
	}
	return w.operator("approve", w.id, "--seen", rest[:64])
}

func (w *setting) serve() error {
	w.daemon = exec.Command(w.program, "serve")
	w.daemon.Dir, w.daemon.Env = w.project, w.env()
	if err := w.daemon.Start(); err != nil {
		return err
	}
	for range 1000 {
		if w.operator("pending") == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the daemon does not serve")
}

func (w *setting) kill() error {
	err := w.daemon.Process.Kill()
	_ = w.daemon.Wait()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// awaitPending waits for the request of the call.
func (w *setting) awaitPending(asks bool, ended <-chan struct{}) error {
	pattern := filepath.Join(w.home, ".local/state/permesso/ipc/default/pending_approvals/*.json")
	for asks {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		if len(files) == 1 {
			w.id = strings.TrimSuffix(filepath.Base(files[0]), ".json")
			return nil
		}
		select {
		case <-ended:
			return errors.New("the agent ended without a request")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// signal sends a signal to the hook's process.
func (w *setting) signal(sig syscall.Signal) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(line, []byte(w.program+"\x00hook\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err != nil || !bytes.Contains(environ, []byte(w.dir)) {
			continue
		}
		return syscall.Kill(pid, sig)
	}
	return os.ErrProcessDone
}
