package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/ipc/agentconf"
	"github.com/permesso-dev/permesso/ipc/mcp/servers"
)

// listed are the settings of an agent with two servers, and more that it needs to list them.
var listed = map[string]string{
	"claude-code": `{"mcpServers":{"here":{"command":"true","args":["a b"],"env":{"A":"b"}},"far":{"type":"http","url":"https://127.0.0.1:1/mcp"}}}`,
	"codex":       "[mcp_servers.here]\ncommand = \"true\" # here\nargs = [\"a b\"]\n[mcp_servers.here.env]\nA = \"b\"\n[mcp_servers.far]\nurl = \"https://127.0.0.1:1/mcp\"\n",
	"gemini":      `{"security":{"folderTrust":{"enabled":false}},"mcpServers":{"here":{"command":"true","args":["a b"],"env":{"A":"b"}},"far":{"httpUrl":"https://127.0.0.1:1/mcp"}}}`,
}

// holds are how long a call waits by default behind the gateway: less than the agent does.
var holds = map[string]string{"claude-code": "9m56s", "codex": "4m50s", "gemini": "9m50s"}

// installed are the same for our server, whose time-out is 10 minutes.
var installed = map[string]string{"claude-code": "3m16s", "codex": "9m50s", "gemini": "9m50s"}

// servers puts our MCP server and the gateway into the settings of each agent, sees that the agent reads what we meant, and
// takes both out again.
func (l *lab) servers() error {
	if err := build("-o", l.program(false), "./cmd/permesso"); err != nil {
		return err
	}
	var wrong []error
	for _, a := range []agent{agents[0], codex, gemini} {
		version, err := l.version(a.pkg)
		if err != nil {
			continue
		}
		if err := l.lists(a); err != nil {
			wrong = append(wrong, fmt.Errorf("servers of %s %s: %w", a.name, version, err))
			continue
		}
		fmt.Printf("lab: %-14s %-22s servers\n", "listed", a.name+" "+version)
	}
	return errors.Join(wrong...)
}

func (l *lab) lists(a agent) error {
	dir, err := os.MkdirTemp("", "lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := place{dir: dir, home: filepath.Join(dir, "home"), project: filepath.Join(dir, "project")}
	if err := os.MkdirAll(p.project, 0o755); err != nil {
		return err
	}
	named, _ := servers.AgentNamed(a.name)
	file := named.Files(agentconf.User, p.home, p.project, func(string) string { return "" })[0]
	if err := p.write(file, listed[a.name], 0o600); err != nil {
		return err
	}
	run := func(program string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir, cmd.Env = p.project, append(p.env(), a.env("http://127.0.0.1:1")...)
		killGroup(cmd)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, lastLine(out))
		}
		return string(out), err
	}
	ours := l.program(false)
	for _, args := range [][]string{{"mcp", "install", a.name, "--yes"}, {"mcp", "wrap", a.name, "--yes"}} {
		if _, err := run(ours, args...); err != nil {
			return err
		}
	}
	out, err := run(filepath.Join(l.folder, "node_modules/.bin", a.program), "mcp", "list")
	if err != nil {
		return err
	}
	plain := strings.Join(strings.Fields(out), " ")
	behind := " --hold " + holds[a.name] + " --name " + a.name
	for _, line := range []string{
		ours + " mcp --name " + a.name + " --hold " + installed[a.name], ours + " mcp proxy --server here --env A" + behind + " -- true a b",
		ours + " mcp proxy --server far" + behind + " --url https://127.0.0.1:1/mcp",
	} {
		if !strings.Contains(plain, line) {
			return fmt.Errorf("it does not list %q: %s", line, plain)
		}
	}
	for _, args := range [][]string{{"mcp", "unwrap", a.name, "--yes"}, {"mcp", "uninstall", a.name, "--yes"}} {
		if _, err := run(ours, args...); err != nil {
			return err
		}
	}
	now, err := os.ReadFile(file)
	if err == nil && !bytes.Equal(now, []byte(listed[a.name])) && !named.SameOthers([]byte(listed[a.name]), now) {
		err = fmt.Errorf("afterwards its servers are others: %s", now)
	}
	return err
}
