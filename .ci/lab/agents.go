package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/ipc/hook/model"
)

// agent is a column of the report.
type agent struct {
	name, column, pkg, program string
	system                     string // its folder in /etc
	onFailure                  bool
	managed                    bool   // in trials: the hook is in the settings of the system
	flat                       bool   // the form of its answers
	tool                       string // that the model calls, of a server behind the gateway; "": a command
	head                       string // more for the column's head
	shell                      func(command string) model.Call
	prepare                    func(place, row) error
	args                       func(row) []string
	env                        func(url string) []string
	resume                     func(args []string) []string // those with which its last session goes on
}

var agents = []agent{claude("claude-code", false), claude("claude-code onFailure", true), codex, gemini}

// title is the column's head.
func (a agent) title(versions map[string]string) string {
	title := a.name + " " + versions[a.name]
	switch {
	case a.managed:
		title += " managed"
	case a.onFailure:
		title += " `onFailure`"
	case a.head != "":
		title += " " + a.head
	}
	return title
}

// inSystem is the agent with its hook in the settings of the system.
func (a agent) inSystem() agent {
	a.managed, a.column = true, a.name+" managed"
	return a
}

// tried are the columns of the trials. Our hook always has onFailure in Claude Code's settings.
var tried = []agent{agents[1], agents[1].inSystem(), codex, codex.inSystem(), gemini, gemini.inSystem()}

func agentOf(column string) agent {
	for _, a := range slices.Concat(agents, tried, served) {
		if a.column == column {
			return a
		}
	}
	return agent{}
}

// row is how a hook ends, or is kept from being called.
type row struct {
	name    string
	script  string // what the hook does after it has read the event; "": the hook is missing
	calls   bool   // the hook must have been called, else the cell says nothing
	timeout int    // seconds, in the settings; 0: 60
	managed bool   // in the settings of the system
	ours    bool   // prepare no hook: permesso hook install does
	off     string // "": on; project, flag, trust: what keeps the hook from being called
	only    []string
}

// answer is a shell command that prints a decision in the form of Claude Code and Codex, or in Gemini's.
func answer(decision, more string, reason bool) string {
	specific, flat := `"hookEventName":"PreToolUse","permissionDecision":"`+decision+`"`, `"decision":"`+decision+`"`
	if reason {
		specific, flat = specific+`,"permissionDecisionReason":"no"`, flat+`,"reason":"no"`
	}
	return `case $LAB_FORM in flat) echo '{` + flat + more + `}' ;; *) echo '{"hookSpecificOutput":{` + specific + more + `}}' ;; esac`
}

var (
	plain     = []string{"claude-code", "codex", "gemini"}
	withFlags = []string{"claude-code", "claude-code onFailure", "codex"}
)

var rows = []row{
	{name: "exits 0, silent", script: "exit 0", calls: true, only: plain}, // the control: it must run
	{name: "exits 2, reason on stderr", script: "echo no >&2; exit 2", calls: true},
	{name: "exits 2, nothing on stderr", script: "exit 2", calls: true, only: plain},
	{name: "exits 1", script: "echo no >&2; exit 1", calls: true},
	{name: "exits 0, broken JSON", script: `echo '{"decision":'`, calls: true},
	{name: "exits 0, plain text", script: `echo no`, calls: true},
	{name: "deny without a reason", script: answer("deny", "", false), calls: true, only: plain},
	{name: "deny with a field it does not know", script: answer("deny", `,"fromTomorrow":1`, true), calls: true, only: plain},
	{name: "a decision it does not know", script: answer("perhaps", "", true), calls: true},
	{name: "ask, not interactive", script: answer("ask", "", true), calls: true, only: plain},
	{name: "is killed", script: "kill -9 $$", calls: true},
	{name: "is killed after half a deny", script: `printf '{"decision":"deny","rea'; kill -9 $$`, calls: true},
	{name: "runs into its time-out", script: "sleep 60", calls: true, timeout: 2},
	{name: "is missing", script: ""},
	{name: "was never trusted", script: "exit 2", off: "trust", only: []string{"codex"}},
	{name: "is switched off by a file of the project", script: "echo no >&2; exit 2", off: "project"},
	{name: "agent started with a flag", script: "echo no >&2; exit 2", off: "flag", only: withFlags},
	{name: "managed: switched off by a file of the project", script: "echo no >&2; exit 2", off: "project", managed: true, only: []string{"claude-code onFailure", "codex", "gemini"}},
	{name: "managed: started with a flag", script: "echo no >&2; exit 2", off: "flag", managed: true, only: []string{"claude-code onFailure", "codex"}},
	{name: "managed: is killed", script: "kill -9 $$", calls: true, managed: true, only: []string{"claude-code onFailure", "codex"}},
}

func (r row) seconds() int {
	if r.timeout == 0 {
		return 60
	}
	return r.timeout
}

func text(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // texts and numbers
	}
	return string(b)
}

type object = map[string]any

func claude(column string, onFailure bool) agent {
	return agent{
		name: "claude-code", column: column, pkg: "@anthropic-ai/claude-code", program: "claude", system: "claude-code", onFailure: onFailure,
		shell: func(command string) model.Call {
			return model.Call{Tool: "Bash", Args: fmt.Sprintf(`{"command":%q,"description":"Create a file"}`, command)}
		},
		prepare: func(p place, r row) error {
			h := object{"type": "command", "command": p.hook, "args": []string{}, "timeout": r.seconds()}
			if onFailure {
				h["onFailure"] = "block"
			}
			if r.ours {
				return nil
			}
			file := filepath.Join(p.home, ".claude/settings.json")
			if r.managed {
				file = filepath.Join(p.system, "managed-settings.json")
			}
			if err := p.write(file, text(object{"hooks": object{"PreToolUse": []any{object{"hooks": []any{h}}}}}), 0o644); err != nil {
				return err
			}
			if r.off == "project" {
				return p.write(filepath.Join(p.project, ".claude/settings.json"), `{"disableAllHooks":true}`, 0o644)
			}
			return nil
		},
		args: func(r row) []string {
			args := []string{"-p", "do it", "--allowedTools", "Bash"}
			if r.off == "flag" {
				args = append(args, "--bare")
			}
			return args
		},
		resume: func(args []string) []string { return append(args, "--continue") },
		env: func(url string) []string {
			return []string{"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1"}
		},
	}
}

var codex = agent{
	name: "codex", column: "codex", pkg: "@openai/codex", program: "codex", system: "codex",
	shell: func(command string) model.Call {
		return model.Call{Tool: "exec_command", Args: fmt.Sprintf(`{"cmd":%q}`, command)}
	},
	prepare: func(p place, r row) error {
		config := `model = "gpt-5"
model_provider = "lab"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.lab]
name = "lab"
base_url = "` + p.url + `/v1"
wire_api = "responses"
env_key = "LAB_KEY"
[projects."` + p.project + `"]
trust_level = "trusted"
`
		entry := "[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = " + strconv.Quote(p.hook) + "\ntimeout = " + strconv.Itoa(r.seconds()) + "\n"
		if r.managed && !r.ours {
			// managed_dir is where the scripts are.
			text := "allow_managed_hooks_only = true\n[features]\nhooks = true\n[hooks]\nmanaged_dir = " + strconv.Quote(p.dir) + "\n" + entry
			if err := p.write(filepath.Join(p.system, "requirements.toml"), text, 0o644); err != nil {
				return err
			}
		} else if !r.ours {
			config += entry
		}
		if r.off == "project" {
			if err := p.write(filepath.Join(p.project, ".codex/config.toml"), "[features]\nhooks = false\n", 0o644); err != nil {
				return err
			}
		}
		return p.write(filepath.Join(p.home, ".codex/config.toml"), config, 0o644)
	},
	args: func(r row) []string {
		args := []string{"exec", "--skip-git-repo-check"}
		if r.off != "trust" && !r.managed {
			args = append(args, "--dangerously-bypass-hook-trust")
		}
		if r.off == "flag" {
			args = append(args, "-c", "features.hooks=false")
		}
		return append(args, "do it")
	},
	resume: func(args []string) []string { return slices.Insert(args, 1, "resume", "--last") },
	env:    func(string) []string { return nil },
}

var gemini = agent{
	name: "gemini", column: "gemini", pkg: "@google/gemini-cli", program: "gemini", system: "gemini-cli", flat: true,
	shell: func(command string) model.Call {
		return model.Call{Tool: "run_shell_command", Args: fmt.Sprintf(`{"command":%q}`, command)}
	},
	prepare: func(p place, r row) error {
		hooks := object{"BeforeTool": []any{object{"matcher": ".*", "hooks": []any{object{"name": "lab", "type": "command", "command": p.hook, "timeout": r.seconds() * 1000}}}}}
		user := object{"security": object{"auth": object{"selectedType": "gemini-api-key"}, "folderTrust": object{"enabled": false}}}
		if r.managed && !r.ours {
			if err := p.write(filepath.Join(p.system, "settings.json"), text(object{"hooks": hooks}), 0o644); err != nil {
				return err
			}
		} else if !r.ours {
			user["hooks"] = hooks
		}
		if r.off == "project" {
			if err := p.write(filepath.Join(p.project, ".gemini/settings.json"), `{"hooksConfig":{"enabled":false,"disabled":["lab"]}}`, 0o644); err != nil {
				return err
			}
		}
		return p.write(filepath.Join(p.home, ".gemini/settings.json"), text(user), 0o644)
	},
	args:   func(row) []string { return strings.Fields("-m gemini-2.5-pro --yolo -p do") },
	resume: func(args []string) []string { return append(args, "--resume", "latest") },
	env:    func(url string) []string { return []string{"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + url} },
}
