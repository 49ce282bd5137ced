package hook

import (
	"bytes"
	_ "embed" // the plugin for opencode
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/agentconf"
)

// Scope is whose settings a hook stands in.
type Scope = agentconf.Scope

// The scopes.
const (
	User    = agentconf.User
	Project = agentconf.Project
	Managed = agentconf.Managed
)

// settings is where and how an agent keeps its hooks.
type settings struct {
	agentconf.Place

	managed string         // the system's file; "": there is none
	version bool           // the file needs a version
	events  []string       // that the hook is for by default
	permits []string       // that it is for with --events permission
	entry   func(Line) any // of one event; nil: the file is whole
	whole   map[Scope]whole
}

// whole is a file that is all ours.
type whole struct {
	mark string // its first line
	text func(line Line, events []string) string
}

// Line is the command line of a hook.
type Line struct {
	Program string   // absolute path
	Args    []string // hook AGENT ...
	Timeout time.Duration
}

type entry struct {
	Matcher string         `json:"matcher,omitempty"`
	Hooks   []commandEntry `json:"hooks"`
}

// flatEntry is a hook of Copilot's, VS Code's or Cursor's.
type flatEntry struct {
	Type       string `json:"type,omitempty"`
	Bash       string `json:"bash,omitempty"`
	Command    string `json:"command,omitempty"`
	Timeout    int64  `json:"timeout,omitempty"`
	TimeoutSec int64  `json:"timeoutSec,omitempty"`
	FailClosed bool   `json:"failClosed,omitempty"`
}

type commandEntry struct {
	Name      string   `json:"name,omitempty"`
	Type      string   `json:"type"`
	Command   string   `json:"command"`
	Args      []string `json:"args,omitempty"`
	Timeout   int64    `json:"timeout"`
	OnFailure string   `json:"onFailure,omitempty"`
}

// shellWords is the command line for a shell. Its words are a path and options of ours.
func (l Line) shellWords() string {
	words := append([]string{l.Program}, l.Args...)
	for i, w := range words {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_./:=@%+,-", r)
		}) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

var settingsOf = map[string]settings{
	"claude-code": {
		Place:   agentconf.Place{Variable: "CLAUDE_CONFIG_DIR", Folder: ".claude", File: "settings.json"},
		managed: "/etc/claude-code/managed-settings.json",
		events:  []string{"PreToolUse"}, permits: []string{"PermissionRequest"},
		entry: func(l Line) any { // no shell, and what breaks blocks
			return entry{Hooks: []commandEntry{{Type: "command", Command: l.Program, Args: l.Args, Timeout: int64(l.Timeout / time.Second), OnFailure: "block"}}}
		},
	},
	"codex": {
		whole:   map[Scope]whole{Managed: {requirementsMark, requirements}},
		Place:   agentconf.Place{Variable: "CODEX_HOME", Folder: ".codex", File: "hooks.json"},
		managed: "/etc/codex/requirements.toml",
		events:  []string{"PreToolUse"}, permits: []string{"PermissionRequest"},
		entry: func(l Line) any {
			return entry{Hooks: []commandEntry{{Type: "command", Command: l.shellWords(), Timeout: int64(l.Timeout / time.Second)}}}
		},
	},
	"gemini": {
		Place:   agentconf.Place{Folder: ".gemini", File: "settings.json"},
		managed: "/etc/gemini-cli/settings.json",
		events:  []string{"BeforeTool"},
		entry: func(l Line) any {
			return entry{Matcher: ".*", Hooks: []commandEntry{{Name: "permesso", Type: "command", Command: l.shellWords(), Timeout: l.Timeout.Milliseconds()}}}
		},
	},
	"copilot": {
		Place: agentconf.Place{Variable: "COPILOT_HOME", Folder: ".copilot", Project: ".github", File: "hooks/permesso.json"}, version: true,
		managed: "/etc/github-copilot/policy.d/permesso.json",
		events:  []string{copilotTool}, permits: []string{copilotPermission},
		entry: func(l Line) any {
			return flatEntry{Type: "command", Bash: l.shellWords(), TimeoutSec: int64(l.Timeout / time.Second)}
		},
	},
	"vscode": {
		Place: agentconf.Place{Folder: ".copilot", Project: ".github", File: "hooks/permesso.json"}, version: true, // Copilot reads it, too
		events: []string{"PreToolUse"},
		entry: func(l Line) any {
			return flatEntry{Type: "command", Command: l.shellWords(), Timeout: int64(l.Timeout / time.Second)}
		},
	},
	"cursor": {
		Place: agentconf.Place{Folder: ".cursor", File: "hooks.json"}, version: true, managed: "/etc/cursor/hooks.json",
		events: []string{"preToolUse"}, permits: []string{cursorShell, cursorMCP},
		entry: func(l Line) any {
			return flatEntry{Command: l.shellWords(), Timeout: int64(l.Timeout / time.Second), FailClosed: true}
		},
	},
	"opencode": {
		Place: agentconf.Place{
			Variable: "XDG_CONFIG_HOME", Below: "opencode", Folder: ".config/opencode", Project: ".opencode", File: "plugins/permesso.js",
		},
		events: []string{opencodeTool},
		whole:  map[Scope]whole{User: {pluginMark, plugin}, Project: {pluginMark, plugin}},
	},
}

// plugin is the source of our plugin for opencode.
//
//go:embed opencode.mjs
var pluginSource string

const pluginMark = "// Written by permesso, all of it; a file without this line is left alone.\n"

func plugin(line Line, _ []string) string {
	command, err := json.Marshal(append([]string{line.Program}, line.Args...))
	if err != nil {
		panic(err) // texts
	}
	return pluginMark + strings.Replace(pluginSource, `["permesso", "hook", "opencode"]`, string(command), 1)
}

// Events are those that a hook is for: before each call, or with permission only where the agent itself would ask.
func (a Agent) Events(kinds []string) (names []string, err error) {
	s := settingsOf[a.Name]
	for _, kind := range kinds {
		switch {
		case kind == "pretool":
			names = append(names, s.events...)
		case kind == "permission" && s.permits != nil:
			names = append(names, s.permits...)
		case kind == "permission":
			return nil, fmt.Errorf("%s has no event for permissions", a.Name)
		default:
			return nil, fmt.Errorf("event %q: pretool or permission", kind)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("no event is named: pretool, permission or both")
	}
	return names, nil
}

// Defers reports whether the agent can end, until the decision, at each of these events.
func (a Agent) Defers(events []string) bool {
	return a.deferral != nil && slices.Equal(events, settingsOf[a.Name].events)
}

// File is where the hooks of a scope stand. home is the user's folder, project the folder of the project.
func (a Agent) File(scope Scope, home, project string, env func(string) string) (string, error) {
	s := settingsOf[a.Name]
	switch {
	case scope != Managed:
		return s.Path(scope, home, project, env), nil
	case s.managed == "":
		return "", fmt.Errorf("%s has no settings of the system for hooks", a.Name)
	}
	return s.managed, nil
}

// Advice is what a person has to know about the hook in this scope, "" if it holds as it is.
func (a Agent) Advice(scope Scope) string {
	switch {
	case a.Name == "claude-code" && scope != Managed:
		return "a project switches it off by disableAllHooks in its .claude/settings.json, and claude --bare does; with --managed, as root, neither can"
	case a.Name == "codex" && scope == Managed:
		return "Codex runs a call whose hook is killed; a project and flags cannot switch this one off"
	case a.Name == "codex":
		return "Codex skips it, without a word, until you trust it: start codex, type /hooks, and trust it; again after each change"
	case a.Name == "gemini":
		return "Gemini CLI runs a call whose hook is killed, and a trusted project can switch it off by hooksConfig"
	case documentedAdvice[a.Name] != "":
		return "written from the documents of " + a.Name + ", not tried in the lab: " + documentedAdvice[a.Name]
	}
	return ""
}

// documentedAdvice is what does not hold with the agents that were not tried, as their documents and reports of users have it.
var documentedAdvice = map[string]string{
	"copilot": "a call whose hook is late goes on to Copilot's own rules, and calls at the same time share that time; a project switches all " +
		"hooks but those of the system off by disableAllHooks in .github/copilot/settings.json; VS Code reads this file, too",
	"vscode": "a call whose hook breaks runs; chat.hookFilesLocations in the user's settings can leave this file out; Copilot CLI reads it, too: " +
		"with copilot installed beside it, each call is asked twice",
	"cursor":   "without failClosed, which is set here, Cursor runs a call whose hook breaks",
	"opencode": "opencode runs every call if the plugin does not load, and opencode --pure starts without plugins; a plugin that is loaded later can change a call after its approval",
}

// Add returns the settings of a scope with this hook for these events, and with no other of ours. Empty settings are an
// empty object.
func (a Agent) Add(scope Scope, text []byte, line Line, events []string) ([]byte, error) {
	if w, ok := settingsOf[a.Name].whole[scope]; ok {
		return w.replace(text, w.text(line, events))
	}
	e, err := json.Marshal(settingsOf[a.Name].entry(line))
	if err != nil {
		return nil, err
	}
	return a.edit(text, func(event string) []approval.Raw {
		if slices.Contains(events, event) {
			return []approval.Raw{e}
		}
		return nil
	}, events)
}

const requirementsMark = "# Requirements of Codex, all written by permesso; others are kept if this line is gone.\n"

// requirements is Codex's file of the system.
func requirements(line Line, events []string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%sallow_managed_hooks_only = true\n\n[features]\nhooks = true\n\n[hooks]\nmanaged_dir = %q\n", requirementsMark, filepath.Dir(line.Program))
	for _, event := range events {
		fmt.Fprintf(&out, "\n[[hooks.%s]]\n[[hooks.%s.hooks]]\ntype = \"command\"\ncommand = %q\ntimeout = %d\n", event, event, line.shellWords(), int64(line.Timeout/time.Second))
	}
	return out.String()
}

// isOurs reports whether all of a file is ours.
func (w whole) isOurs(text []byte) bool { return bytes.HasPrefix(text, []byte(w.mark)) }

// replace is the new text in place of ours. A file that others have written is theirs to edit.
func (w whole) replace(text []byte, by string) ([]byte, error) {
	if len(text) > 0 && !w.isOurs(text) {
		return nil, fmt.Errorf("others have written it: add these by hand:\n%s", by)
	}
	return []byte(by), nil
}

// Remove returns the settings of a scope without our hooks; nil: the file is not needed any more.
func (a Agent) Remove(scope Scope, text []byte) ([]byte, error) {
	if w, ok := settingsOf[a.Name].whole[scope]; ok {
		if w.isOurs(text) {
			return nil, nil
		}
		return text, nil
	}
	out, err := a.edit(text, func(string) []approval.Raw { return nil }, nil)
	rest, _ := codec.Fields(out) // if it is changed, it is valid
	if err == nil && !bytes.Equal(out, text) && (len(rest) == 0 || len(rest) == 1 && settingsOf[a.Name].version && rest[0].Name == versionField) {
		return nil, nil
	}
	return out, err
}

// Restores reports whether old settings are those of now without our hook, whatever the layout of both is.
func (a Agent) Restores(scope Scope, old, now []byte) bool {
	plain := func(text []byte) ([]byte, error) {
		with, err := a.Add(scope, text, Line{Program: "permesso", Args: []string{"hook", a.Name}}, settingsOf[a.Name].events)
		if err != nil {
			return nil, err
		}
		return a.Remove(scope, with)
	}
	without, err := a.Remove(scope, old)
	x, oldErr := plain(old)
	y, nowErr := plain(now)
	return errors.Join(err, oldErr, nowErr) == nil && bytes.Equal(without, old) && bytes.Equal(x, y)
}

const versionField = "version"

// edit replaces our entries of each event by others. All else keeps its order, and its numbers their digits.
func (a Agent) edit(text []byte, others func(event string) []approval.Raw, events []string) ([]byte, error) {
	object := text
	switch _, err := jsontext.AppendFormat(nil, text); {
	case len(bytes.TrimSpace(text)) == 0:
		object = []byte("{}")
	case bytes.HasPrefix(text, []byte("\xef\xbb\xbf")):
		return nil, errors.New("it begins with a byte order mark: save it as UTF-8 without one")
	case err != nil:
		return nil, fmt.Errorf("not JSON, which has neither comments nor a comma behind the last member: %w", err)
	}
	doc, err := codec.Fields(object)
	if err != nil {
		return nil, err
	}
	var hooks []codec.Field
	at := slices.IndexFunc(doc, func(f codec.Field) bool { return f.Name == "hooks" })
	if at >= 0 && doc[at].Value.Kind() != 'n' {
		if hooks, err = codec.Fields(doc[at].Value); err != nil {
			return nil, fmt.Errorf("hooks is not an object: %w", err)
		}
	}
	for _, event := range events {
		if !slices.ContainsFunc(hooks, func(f codec.Field) bool { return f.Name == event }) {
			hooks = append(hooks, codec.Field{Name: event, Value: approval.Raw("[]")})
		}
	}
	changed := false
	kept := hooks[:0:0]
	for _, f := range hooks {
		items, err := codec.Items(f.Value)
		if err != nil {
			if !slices.Contains(events, f.Name) {
				kept = append(kept, f) // another version's: it is not ours
				continue
			}
			return nil, fmt.Errorf("hooks.%s is not a list: %w", f.Name, err)
		}
		now := slices.Concat(slices.DeleteFunc(slices.Clone(items), a.isOurs), others(f.Name))
		if slices.EqualFunc(now, items, func(x, y jsontext.Value) bool { return bytes.Equal(x, y) }) {
			kept = append(kept, f)
			continue
		}
		changed = true
		if len(now) > 0 {
			kept = append(kept, codec.Field{Name: f.Name, Value: codec.Array(now)})
		}
	}
	if !changed {
		return text, nil
	}
	switch {
	case len(kept) == 0 && at >= 0:
		doc = slices.Delete(doc, at, at+1)
	case at >= 0:
		doc[at].Value = codec.Object(kept)
	default:
		doc = append(doc, codec.Field{Name: "hooks", Value: codec.Object(kept)})
	}
	if settingsOf[a.Name].version && len(kept) > 0 && !slices.ContainsFunc(doc, func(f codec.Field) bool { return f.Name == versionField }) {
		doc = slices.Insert(doc, 0, codec.Field{Name: versionField, Value: approval.Raw("1")})
	}
	out := codec.Object(doc)
	if err := out.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

// anyEntry is one of any agent.
type anyEntry struct {
	entry
	flatEntry
}

// lines are the command lines of an entry.
func (e anyEntry) lines() []string {
	all := []string{e.Bash + " " + e.Command}
	for _, h := range e.Hooks {
		all = append(all, h.Command+" "+strings.Join(h.Args, " "))
	}
	return all
}

// isOurs reports whether an entry has nothing but a hook of ours for this agent.
func (a Agent) isOurs(item jsontext.Value) bool {
	var e anyEntry
	return json.Unmarshal(item, &e) == nil && len(e.Hooks) <= 1 && a.isOurLine(strings.Join(e.lines(), " "))
}

func (a Agent) isOurLine(line string) bool {
	return agentconf.Runs(line, "hook", a.Name)
}
