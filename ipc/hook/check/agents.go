package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/permesso-dev/permesso/ipc/hook"
	"github.com/permesso-dev/permesso/ipc/hook/model"
)

// start is how one agent is started against a model of ours, with the user's and the project's settings in force.
type start struct {
	program string
	call    func(file string) model.Call // creates a file
	args    func(url, prompt string, permissionOnly bool) []string
	env     func(c Check, url, dir string) ([]string, error)
	drop    []string // variables that would send it elsewhere
	least   string   // the first version for which something can be promised; "": any
	older   string   // what those before it do
}

var starts = map[string]start{
	"claude-code": {
		program: "claude",
		call: func(file string) model.Call {
			return model.Call{Tool: "Bash", Args: encode(map[string]string{"command": touch(file), "description": "Create an empty file"})}
		},
		args: func(url, prompt string, permissionOnly bool) []string {
			// The flag is stronger than the env of the user's settings.
			args := []string{"-p", prompt, "--no-session-persistence", "--settings", encode(map[string]any{"env": claudeEnv(url)})}
			if permissionOnly {
				return args // the event comes only where the agent would ask
			}
			return append(args, "--allowedTools", "Bash")
		},
		env: func(_ Check, url, _ string) (env []string, err error) {
			for name, value := range claudeEnv(url) {
				env = append(env, name+"="+value)
			}
			return env, nil
		},
		drop:  []string{"ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDECODE"},
		least: "2.1.295", older: "ignore onFailure, and execute a call whose hook breaks",
	},
	"codex": {
		program: "codex",
		call: func(file string) model.Call {
			return model.Call{Tool: "exec_command", Args: encode(map[string]string{"cmd": touch(file)})}
		},
		args: func(url, prompt string, _ bool) []string {
			return []string{
				"exec", "--skip-git-repo-check", "--ephemeral", "-m", "gpt-5", "-c", `model_provider="permesso-check"`,
				"-c", fmt.Sprintf(`model_providers.permesso-check={name="permesso",base_url="%s/v1",wire_api="responses"}`, url),
				"-c", `approval_policy="never"`, "-c", `sandbox_mode="danger-full-access"`, prompt,
			}
		},
		env: func(Check, string, string) ([]string, error) { return nil, nil },
	},
	"gemini": {
		program: "gemini",
		call: func(file string) model.Call {
			return model.Call{Tool: "run_shell_command", Args: encode(map[string]string{"command": touch(file)})}
		},
		args: func(_, prompt string, _ bool) []string {
			return []string{"-m", "gemini-2.5-pro", "--yolo", "-p", prompt}
		},
		env: func(c Check, url, dir string) ([]string, error) {
			home, err := geminiHome(c, dir)
			return []string{"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + url, geminiHomeVariable + "=" + home}, err
		},
		drop: []string{"GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA", "GEMINI_CLI_USE_COMPUTE_ADC"},
	},
}

// touch is the harmless command.
func touch(file string) string { return "touch '" + strings.ReplaceAll(file, "'", `'\''`) + "'" }

func claudeEnv(url string) map[string]string {
	return map[string]string{
		"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
		"CLAUDE_CODE_USE_BEDROCK": "", "CLAUDE_CODE_USE_VERTEX": "", "CLAUDE_CODE_USE_FOUNDRY": "",
	}
}

const geminiHomeVariable = "GEMINI_CLI_HOME"

// geminiOwn is what the agent writes and with which it reaches an account: a check has neither.
var geminiOwn = []string{"settings.json", "tmp", "history", "projects.json", "oauth_creds.json", "google_accounts.json", "mcp-oauth-tokens.json"}

// geminiHome is a home with the user's settings as they are, but with a key for the model: no variable is stronger than an
// account that the user has chosen there. All else is that of the user.
func geminiHome(c Check, dir string) (string, error) {
	const folder = ".gemini"
	from := filepath.Join(cmp.Or(c.Env(geminiHomeVariable), c.Home), folder)
	home := filepath.Join(dir, "home")
	to := filepath.Join(home, folder)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, e := range entries {
		if slices.Contains(geminiOwn, e.Name()) {
			continue
		}
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return "", err
		}
	}
	file := filepath.Join(from, "settings.json")
	doc, err := settings(file)
	if err != nil {
		return "", fmt.Errorf("%s cannot be read, perhaps it has comments: %w", file, err)
	}
	if doc == nil {
		doc = map[string]any{}
	}
	object(object(doc, "security"), "auth")["selectedType"] = "gemini-api-key"
	return home, os.WriteFile(filepath.Join(to, "settings.json"), []byte(encode(doc)), 0o600)
}

// object is the object of this name in another one, made if there is none.
func object(in map[string]any, name string) map[string]any {
	m, ok := in[name].(map[string]any)
	if !ok {
		m = map[string]any{}
		in[name] = m
	}
	return m
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts, and what was read as JSON
	}
	return string(b)
}

// Agents are the names of the agents that can be checked.
func Agents() []string {
	return slices.DeleteFunc(hook.Agents(), func(name string) bool { return starts[name].program == "" })
}

// TooOld says why nothing can be promised for a version of an agent, "" if something can.
func TooOld(a hook.Agent, version string) string {
	s := starts[a.Name]
	if s.least == "" || !semver.IsValid("v"+version) || semver.Compare("v"+version, "v"+s.least) >= 0 {
		return ""
	}
	return fmt.Sprintf("nothing can be promised for %s %s: versions before %s %s", a.Name, version, s.least, s.older)
}

// Update is the advice for a version that is too old.
func Update(a hook.Agent) string {
	return "update " + starts[a.Name].program + " to " + starts[a.Name].least + " or later"
}

// environ is the environment of the agent: ours without what would send it elsewhere, and with what sends it to the model.
func (s start) environ(c Check, url, dir string) ([]string, error) {
	drop := append([]string{
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", hook.Checking, hook.Deferring,
	}, s.drop...)
	env := slices.DeleteFunc(slices.Clone(c.Environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(drop, strings.ToUpper(name))
	})
	own, err := s.env(c, url, dir)
	env = append(env, own...)
	return append(env, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost", hook.Checking+"="+dir), err
}
