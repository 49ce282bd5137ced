package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/ipc/agentconf"
	"github.com/permesso-dev/permesso/ipc/hook/model"
	"github.com/permesso-dev/permesso/ipc/mcp/servers"
)

// filesystem is the server that the gateway stands before.
const filesystem = "@modelcontextprotocol/server-filesystem"

// unmade are in results after which a model makes its call again: of ours, and of an agent that was killed before a result.
var unmade = []string{"call again with the same arguments", "its outcome is unknown", "aborted"}

// prompting is the column of Claude Code that asks our server by its --permission-prompt-tool, without a hook.
var prompting = agent{
	name: "claude-code", column: "claude-code prompt tool", pkg: agents[0].pkg, program: agents[0].program, head: "prompt tool",
	shell: agents[0].shell, prepare: agents[0].prepare, env: agents[0].env, resume: agents[0].resume,
	args: func(row) []string {
		return []string{"-p", "do it", "--permission-prompt-tool", "mcp__permesso__permission_prompt"}
	},
}

// wrapped are the agents with a server behind the gateway.
var wrapped = []agent{
	inWrapped(agents[0], "mcp__files__write_file", func(row) []string {
		return []string{"-p", "do it", "--allowedTools", "mcp__files__write_file"}
	}),
	inWrapped(codex, "write_file", codex.args),
	inWrapped(gemini, "mcp_files_write_file", gemini.args),
}

// inWrapped is an agent whose model calls a tool of the server.
func inWrapped(a agent, tool string, args func(row) []string) agent {
	a.column, a.head, a.tool, a.args = a.name+" wrapped", "wrapped", tool, args
	return a
}

var served = append([]agent{prompting}, wrapped...)

// exposure is one call that asks by MCP.
type exposure struct {
	name    string
	ran     int
	timeout time.Duration // of a call, in the agent's settings; 0: its own
	do      func(*setting, *running) error
	said    string // is in what the model was told
}

var exposures = []exposure{
	{name: "approved", ran: 1, do: func(w *setting, _ *running) error { return w.approve() }},
	{name: "denied", said: denial, do: func(w *setting, _ *running) error { return denyIt(w) }},
	{name: "approved after a long wait", ran: 1, do: waitsLong},
	{name: "approved after the time-out of a call, which is 20 s", ran: 1, timeout: 20 * time.Second, do: func(w *setting, r *running) error {
		if err := r.until("a second call", func() bool { return len(w.model.Results()) > 0 }); err != nil {
			return err
		}
		return w.approve()
	}},
	{name: "the agent is killed while it waits, and the same prompt given again, then approved", ran: 1, do: restarted((*setting).agentLine, (*setting).approve)},
	{name: "the agent is killed while it waits, and the same prompt given again, then denied", said: denial, do: restarted((*setting).agentLine, denyIt)},
	{name: "the agent is killed while it waits, and its session resumed, then approved", ran: 1, do: restarted((*setting).resumeLine, (*setting).approve)},
	{name: "the agent is killed while it waits, approved, and the same prompt given again", ran: 1, do: func(w *setting, r *running) error {
		r.end()
		return errors.Join(w.left(), w.approve(), w.again(w.agentLine(), func(*running) error { return nil }))
	}},
}

func mcpRow(x exposure) string { return "mcp: " + x.name }

func waitsLong(w *setting, r *running) error {
	select {
	case <-r.ended:
		return errors.New("the agent ended before the decision")
	case <-time.After(w.lab.wait):
		return w.approve()
	}
}

// resumeLine is the command line with which the agent's session goes on.
func (w *setting) resumeLine() []string {
	line := w.agentLine()
	return append(line[:1:1], w.agent.resume(line[1:])...)
}

// restarted kills the agent, starts it again, and decides when its call waits again.
func restarted(line func(*setting) []string, decide func(*setting) error) func(*setting, *running) error {
	return func(w *setting, r *running) error {
		r.end()
		if err := w.left(); err != nil {
			return err
		}
		return w.again(line(w), func(r *running) error {
			if err := r.until("a call that waits", w.waits); err != nil {
				return err
			}
			return decide(w)
		})
	}
}

// again starts the agent once more.
func (w *setting) again(line []string, do func(*running) error) error {
	r, err := w.start(line...)
	if err != nil {
		return err
	}
	defer r.end()
	if err := do(r); err != nil {
		return fmt.Errorf("%w: %s", err, lastLine([]byte(r.out.String())))
	}
	<-r.ended
	return nil
}

// waits reports whether a process of ours waits for the request: it has locked its file.
func (w *setting) waits() bool {
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return false
	}
	files, _ := filepath.Glob(filepath.Join(w.home, ".local/state/permesso-mcp/*/calls/*/1"))
	for _, file := range files {
		var st syscall.Stat_t
		if syscall.Stat(file, &st) == nil && strings.Contains(string(locks), fmt.Sprintf(":%d 0 EOF", st.Ino)) {
			return true
		}
	}
	return false
}

// left waits until no process waits for the request.
func (w *setting) left() error {
	for range 1000 {
		if !w.waits() {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("our process waits though its agent was killed")
}

// mcp runs the calls that ask by MCP.
func (l *lab) mcp(part, column string) (map[string]map[string]string, error) {
	if err := build("-o", l.program(false), "./cmd/permesso"); err != nil {
		return nil, err
	}
	if _, err := l.version(filesystem); err != nil {
		return nil, fmt.Errorf("%s is not installed", filesystem)
	}
	cells := map[string]map[string]string{}
	var wrong []error
	var mu sync.Mutex
	var jobs []func()
	for _, x := range exposures {
		name := mcpRow(x)
		if !strings.Contains(name, part) {
			continue
		}
		cells[name] = map[string]string{}
		for _, a := range served {
			if _, err := l.version(a.pkg); err != nil || !strings.Contains(a.column, column) {
				continue
			}
			jobs = append(jobs, func() {
				began := time.Now()
				c, err := l.expose(a, x)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && (c.ran != x.ran || c.unallowed > 0) {
					err = errors.New(c.String())
				}
				if err != nil {
					wrong = append(wrong, fmt.Errorf("%s, %s: %w", name, a.column, err))
				}
				cells[name][a.column] = c.String()
				fmt.Printf("lab: %-22s %-22s %s (%.0f s)\n", c, a.column, name, time.Since(began).Seconds())
			})
		}
	}
	parallel(4, jobs) // most of them wait
	return cells, errors.Join(wrong...)
}

// expose runs an agent once, whose call asks by MCP.
func (l *lab) expose(a agent, x exposure) (c count, err error) {
	w, err := l.setting(a, false)
	if err != nil {
		return c, err
	}
	defer w.close()
	c.of = 1
	made := a.shell(w.makes("0"))
	if a.tool != "" {
		made = model.Call{Tool: a.tool, Args: fmt.Sprintf(`{"path":%q,"content":%q}`, w.dir+"/effects/0", content)}
		if a.name == "codex" {
			made.In = "mcp__files"
		}
	}
	w.model = &model.Server{Turns: [][]model.Call{{made}}, Again: unmade}
	url, stop, err := serveModel(w.model)
	if err != nil {
		return c, err
	}
	defer stop()
	w.url = url
	if err := errors.Join(a.prepare(w.place, row{ours: true}), w.configure("approval_timeout = \"1h\"\n"), w.serve()); err != nil {
		return c, err
	}
	if a.tool == "" {
		args := []string{"mcp", "install", a.name, "--yes"}
		if x.timeout > 0 {
			args = append(args, "--timeout", x.timeout.String())
		}
		err = w.operator(args...)
	} else if err = w.addFiles(x.timeout); err == nil {
		err = w.operator("mcp", "wrap", a.name, "--yes")
	}
	if err != nil {
		return c, err
	}
	r, err := w.start(w.agentLine()...)
	if err != nil {
		return c, err
	}
	defer r.end()
	if err = w.awaitPending(r); err == nil {
		err = r.until("a call that waits", w.waits)
	}
	if err == nil {
		err = x.do(w, r)
	}
	if err == nil {
		<-r.ended
		c, err = w.exposed(c, x)
	}
	if err != nil {
		err = fmt.Errorf("%w; the model was told %q; it ended with: %s", err, w.model.Results(), lastLine([]byte(r.out.String())))
	}
	return c, err
}

// exposed counts how often the call ran, and sees that it was asked once and that the model was told how it ended.
func (w *setting) exposed(c count, x exposure) (count, error) {
	out, err := w.command(context.Background(), w.program, "history", "--json").Output()
	if err != nil {
		return c, err
	}
	var asked []any
	if err := json.Unmarshal(out, &asked); err != nil {
		return c, err
	}
	if len(asked) != 1 {
		return c, fmt.Errorf("it was asked %d times", len(asked))
	}
	results := w.model.Results()
	if len(results) == 0 || !strings.Contains(results[len(results)-1], x.said) {
		return c, fmt.Errorf("the model was not told %q", x.said)
	}
	if w.agent.tool == "" {
		return w.counted(c)
	}
	for _, line := range w.lines("calls") {
		if methodOf(line) == "tools/call" {
			c.ran++
		}
	}
	c.unallowed = max(0, c.ran-x.ran)
	written, err := os.ReadFile(filepath.Join(w.dir, "effects/0"))
	if c.ran > 0 && (string(written) != content || !strings.Contains(results[len(results)-1], "Successfully wrote")) || c.ran == 0 && err == nil {
		return c, fmt.Errorf("the file is %q", written)
	}
	return c, nil
}

const content = "hello"

// addFiles puts the server into the agent's settings.
func (w *setting) addFiles(timeout time.Duration) error {
	named, _ := servers.AgentNamed(w.agent.name)
	file := named.Files(agentconf.User, w.home, w.project, func(string) string { return "" })[0]
	node := filepath.Join(w.lab.folder, "node_modules", filesystem, "dist/index.js")
	line := "tee -a " + w.dir + "/calls | node " + node + " " + w.dir + "/effects"
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if w.agent.name == "codex" {
		more := "[mcp_servers.files]\nrequired = true\ncommand = \"sh\"\nargs = [\"-c\", \"" + line + "\"]\n"
		if timeout > 0 {
			more += fmt.Sprintf("tool_timeout_sec = %.0f\n", timeout.Seconds())
		}
		return w.write(file, string(before)+more, 0o600)
	}
	all := object{}
	if len(before) > 0 {
		if err := json.Unmarshal(before, &all); err != nil {
			return err
		}
	}
	entry := object{"command": "sh", "args": []string{"-c", line}}
	if timeout > 0 {
		entry["timeout"] = timeout.Milliseconds()
	}
	all["mcpServers"] = object{"files": entry}
	return w.write(file, text(all), 0o600)
}
