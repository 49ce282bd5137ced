package check

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/permesso-dev/permesso/ipc/hook"
)

// The program of the tests is also the agent and the hook that it calls, by the name under which it is started.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); name {
	case "claude", "codex", "gemini":
		os.Exit(standIn(name, os.Args[1:]))
	case "permesso":
		a, _ := hook.AgentNamed(os.Args[2])
		x := hook.Hook{Agent: a, Check: os.Getenv(hook.Checking)}.Run(context.Background(), os.Stdin)
		fmt.Fprintln(os.Stderr, x.Reason)
		os.Exit(x.Exit)
	}
	os.Exit(m.Run())
}

// behavior, in the environment, is how the agent differs from a real one.
const behavior = "STAND_IN"

// standIn is an agent that asks the model for a call, calls the hook of its settings, and obeys it as the real one does:
// exit 2 with a line on standard error is a deny.
func standIn(name string, args []string) int {
	mode := os.Getenv(behavior)
	switch {
	case len(args) == 1 && args[0] == "--version":
		fmt.Println(map[string]string{"old": "2.1.294 (Claude Code)", "unversioned": "hello"}[mode] + map[bool]string{true: "2.1.330 (Claude Code)"}[mode != "old" && mode != "unversioned"])
		return 0
	case mode == "garbage":
		fmt.Print(strings.Repeat("\x1b[31m\xff{{{\n", 100000))
		return 1
	case mode == "hangs":
		return hang(args)
	}
	tool, command, err := askModel(name, args)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if mode == "silent" || callHook(name, tool, command) || mode == "disobeys" {
		_ = exec.Command("sh", "-c", command).Run()
	}
	return 0
}

// hang starts a process in a group of its own, says so, and waits as it does.
func hang(args []string) int {
	child := exec.Command("sleep", "600")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if child.Start() != nil {
		return 1
	}
	_ = os.WriteFile(os.Getenv("CHILD"), fmt.Appendf(nil, "%d", child.Process.Pid), 0o600)
	fmt.Println("waiting for", len(args), "things")
	_ = child.Wait()
	return 0
}

// askModel asks in the form of the agent's own API, at the address that only the environment and the flags give.
func askModel(name string, args []string) (tool, command string, err error) {
	url, body := "", ""
	switch name {
	case "claude":
		url, body = os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"name":"Bash"}]}`
	case "codex":
		_, rest, _ := strings.Cut(strings.Join(args, " "), `base_url="`)
		base, _, _ := strings.Cut(rest, `"`)
		url, body = base+"/responses", `{"input":[],"tools":[{"type":"function","name":"exec_command"}]}`
	case "gemini":
		url, body = os.Getenv("GOOGLE_GEMINI_BASE_URL")+"/v1beta/models/m:generateContent", `{"contents":[],"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}]}`
	}
	answer, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	var all bytes.Buffer
	if _, err := all.ReadFrom(answer.Body); err != nil {
		return "", "", err
	}
	_, rest, ok := strings.Cut(all.String(), "touch ")
	if !ok {
		return "", "", errors.New("the model asks for nothing")
	}
	file, _, _ := strings.Cut(strings.ReplaceAll(rest, `\`, ""), `"`)
	return map[string]string{"claude": "Bash", "codex": "Bash", "gemini": "run_shell_command"}[name], "touch " + file, nil
}

// callHook reports whether the call may run.
func callHook(name, tool, command string) bool {
	folder := map[string]string{"claude": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}[name]
	home := os.Getenv("HOME")
	if name == "gemini" {
		home = os.Getenv("GEMINI_CLI_HOME")
	}
	text, err := os.ReadFile(filepath.Join(home, folder))
	if err != nil {
		return true
	}
	var doc struct {
		Hooks    map[string][]struct{ Hooks []struct{ Command string } }
		Security struct{ Auth struct{ SelectedType string } }
	}
	if json.Unmarshal(text, &doc) != nil || name == "gemini" && doc.Security.Auth.SelectedType != "gemini-api-key" {
		fmt.Println("Invalid auth method selected.")
		return true
	}
	for event, entries := range doc.Hooks {
		input, _ := json.Marshal(map[string]any{"hook_event_name": event, "session_id": "s", "cwd": "/", "tool_name": tool, "tool_input": map[string]string{"command": command}})
		program := strings.Fields(entries[0].Hooks[0].Command)[0]
		cmd := exec.Command(program, "hook", map[string]string{"claude": "claude-code"}[name]+map[bool]string{true: name}[name != "claude"])
		var errs bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &errs
		_ = cmd.Run()
		if line, _ := bufio.NewReader(&errs).ReadString('\n'); cmd.ProcessState.ExitCode() == hook.Deny && strings.TrimSpace(line) != "" {
			return false
		}
	}
	return true
}
