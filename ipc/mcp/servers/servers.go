// Package servers edits the MCP servers in the settings of an agent: it puts ours in, and the gateway before all others. Every
// other byte stays as it is.
//
// Sources: the programs themselves (Claude Code 2.1.330, Codex 0.169.0, Gemini CLI 0.61.0), and the documents of Cursor,
// VS Code (code.visualstudio.com/docs/agents/reference/mcp-configuration) and opencode (opencode.ai/docs/mcp-servers).
package servers

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/ipc/agentconf"
)

// Agent is a program that has MCP servers. A new one is a row here, and its fixtures.
type Agent struct {
	Name string

	user, project []agentconf.Place // the first that is there counts
	lists         [][]string        // where servers are listed; the first gets ours; "*" is any name
	toml          bool
	memory        bool   // the agent keeps more than settings in its file, and writes it at each start
	oneList       bool   // command is a list, with the arguments
	local, remote string // the values of type; "": there need be none
	timeout       string // the member with the time-out of a call
	unit          time.Duration
	limit         time.Duration     // the time-out of a call where the settings have none; 0: not known
	whole         bool              // it is that of all rounds of a call
	more          []agentconf.Field // of our entry
	variables     string            // the member with the names of variables that a server gets
	advice        string
}

const byDocuments = "written from the documents of %s, not tried in the lab"

var agents = []Agent{
	{
		Name:    "claude-code",
		user:    []agentconf.Place{{Variable: "CLAUDE_CONFIG_DIR", File: ".claude.json"}},
		project: []agentconf.Place{{File: ".mcp.json"}},
		lists:   [][]string{{"mcpServers"}, {"projects", "*", "mcpServers"}}, // claude mcp add writes to the second by default
		memory:  true,
		local:   "stdio", remote: "http", timeout: "timeout", unit: time.Millisecond, limit: 30 * time.Minute, whole: true, // without progress; in all 27 h
		advice: "servers of plugins, of claude.ai, of the system and of --mcp-config stand elsewhere, and so do those of .mcp.json in folders above",
	},
	{
		Name:    "codex",
		user:    []agentconf.Place{{Variable: "CODEX_HOME", Folder: ".codex", File: "config.toml"}},
		project: []agentconf.Place{{Folder: ".codex", File: "config.toml"}},
		lists:   [][]string{{"mcp_servers"}}, toml: true, timeout: "tool_timeout_sec", unit: time.Second, limit: 5 * time.Minute,
		more:      []agentconf.Field{{Name: "default_tools_approval_mode", Value: "approve"}}, // else Codex asks before it asks
		variables: "env_vars",
		advice:    "servers of plugins and of -c stand elsewhere; Codex gives a server HOME and PATH, and no other variable that it does not name",
	},
	{
		Name:    "gemini",
		user:    []agentconf.Place{{Folder: ".gemini", File: "settings.json"}},
		project: []agentconf.Place{{Folder: ".gemini", File: "settings.json"}},
		lists:   [][]string{{"mcpServers"}}, timeout: "timeout", unit: time.Millisecond, limit: 10 * time.Minute,
		more:   []agentconf.Field{{Name: "trust", Value: true}}, // else Gemini CLI asks before it asks
		advice: "servers of extensions and mcp.serverCommand stand elsewhere",
	},
	{
		Name:    "cursor",
		user:    []agentconf.Place{{Folder: ".cursor", File: "mcp.json"}},
		project: []agentconf.Place{{Folder: ".cursor", File: "mcp.json"}},
		lists:   [][]string{{"mcpServers"}}, local: "stdio", remote: "http",
		advice: fmt.Sprintf(byDocuments, "Cursor"),
	},
	{
		Name:    "vscode",
		user:    []agentconf.Place{codeUser(runtime.GOOS)},
		project: []agentconf.Place{{Folder: ".vscode", File: "mcp.json"}},
		lists:   [][]string{{"servers"}}, local: "stdio", remote: "http",
		advice: fmt.Sprintf(byDocuments, "VS Code") + "; servers of extensions, of other profiles and of settings.json stand elsewhere",
	},
	{
		Name: "opencode",
		user: []agentconf.Place{
			{Variable: "XDG_CONFIG_HOME", Below: "opencode", Folder: ".config/opencode", File: "opencode.json"},
			{Variable: "XDG_CONFIG_HOME", Below: "opencode", Folder: ".config/opencode", File: "opencode.jsonc"},
		},
		project: []agentconf.Place{{File: "opencode.json"}, {File: "opencode.jsonc"}, {Folder: ".opencode", File: "opencode.json"}, {Folder: ".opencode", File: "opencode.jsonc"}},
		lists:   [][]string{{"mcp"}}, oneList: true, local: "local", remote: "remote", timeout: "timeout", unit: time.Millisecond,
		advice: fmt.Sprintf(byDocuments, "opencode"),
	},
}

// codeUser is the folder of VS Code's default profile.
func codeUser(system string) agentconf.Place {
	p := agentconf.Place{Variable: "XDG_CONFIG_HOME", Below: "Code/User", Folder: ".config/Code/User", File: "mcp.json"}
	switch system {
	case "darwin":
		p = agentconf.Place{Folder: "Library/Application Support/Code/User", File: "mcp.json"}
	case "windows":
		p = agentconf.Place{Variable: "APPDATA", Below: "Code/User", Folder: "AppData/Roaming/Code/User", File: "mcp.json"}
	}
	return p
}

// Agents lists the names of the agents.
func Agents() (names []string) {
	for _, a := range agents {
		names = append(names, a.Name)
	}
	return names
}

// AgentNamed is the agent of this name.
func AgentNamed(name string) (Agent, bool) {
	i := slices.IndexFunc(agents, func(a Agent) bool { return a.Name == name })
	if i < 0 {
		return Agent{}, false
	}
	return agents[i], true
}

// Files are those in which the servers of a scope can stand; the agent reads all of them. home is the user's folder, project
// the folder of the project.
func (a Agent) Files(scope agentconf.Scope, home, project string, env func(string) string) (all []string) {
	places := a.user
	if scope == agentconf.Project {
		places = a.project
	}
	for _, p := range places {
		all = append(all, p.Path(scope, home, project, env))
	}
	return all
}

// Times reports whether the settings can have a time-out for a call.
func (a Agent) Times() bool { return a.timeout != "" }

// Advice is what a person has to know about the settings of the agent.
func (a Agent) Advice() string { return a.advice }

// Hold is how long ours may hold a call, or one round of it, that the agent gives up after a time-out: what is given up is
// taken back, and its request with it.
func (a Agent) Hold(timeout time.Duration) time.Duration {
	const spare, rounds = 10 * time.Second, 3 // ipc/mcp answers two rounds, and then with an error
	d := timeout - min(spare, timeout/2)
	if a.whole {
		d /= rounds
	}
	return max(time.Second, d.Truncate(time.Second))
}

// Entry is our server.
type Entry struct {
	Name      string
	Program   string        // absolute path
	Args      []string      // mcp ...
	Timeout   time.Duration // of a call, if the settings can have one
	Variables []string      // names of those that it needs, where an agent gives a server only those that it names
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (a Agent) fields(e Entry) (all []agentconf.Field) {
	if a.local != "" {
		all = append(all, agentconf.Field{Name: "type", Value: a.local})
	}
	if a.oneList {
		all = append(all, agentconf.Field{Name: "command", Value: slices.Concat([]string{e.Program}, e.Args)})
	} else {
		all = append(all, agentconf.Field{Name: "command", Value: e.Program}, agentconf.Field{Name: "args", Value: e.Args})
	}
	if a.timeout != "" && e.Timeout > 0 {
		all = append(all, agentconf.Field{Name: a.timeout, Value: int64(e.Timeout / a.unit)})
	}
	if a.variables != "" && len(e.Variables) > 0 {
		all = append(all, agentconf.Field{Name: a.variables, Value: e.Variables})
	}
	return append(all, a.more...)
}

// Add returns settings with our server, and with no other of ours. Empty settings are an empty object.
func (a Agent) Add(text []byte, e Entry) ([]byte, error) {
	if !plainName.MatchString(e.Name) {
		return nil, fmt.Errorf("%q is no name for a server: letters, digits, - and _", e.Name)
	}
	without, err := a.Remove(text)
	if err != nil {
		return nil, err
	}
	t, err := agentconf.Parse(without, a.toml)
	if err != nil {
		return nil, err
	}
	names := append(slices.Clone(a.main(t)), e.Name)
	if t.Root.At(names...) != nil {
		return nil, fmt.Errorf("another server is named %s: give ours another name by --name", e.Name)
	}
	insert := t.Insert
	if a.toml {
		insert = t.InsertTable
	}
	out, err := insert(names, a.fields(e))
	if err != nil {
		return nil, err
	}
	if before, err := agentconf.Parse(text, a.toml); err == nil && a.equal(before, out, names) {
		return text, nil // it is there, in another layout or between others
	}
	return out, a.check(out, names, e)
}

// equal reports whether a text has, below these names, the server that another one has, and no other of ours.
func (a Agent) equal(t *agentconf.Text, other []byte, names []string) bool {
	o, err := agentconf.Parse(other, a.toml)
	v := t.Root.At(names...)
	if err != nil || v == nil || len(a.ours(t)) != 1 {
		return false
	}
	w := o.Root.At(names...)
	return w != nil && slices.EqualFunc(v.Members, w.Members, func(x, y agentconf.Member) bool {
		return x.Name == y.Name && (t.Raw(x.Value) == o.Raw(y.Value) || same(x.Value, y.Value))
	})
}

func same(x, y *agentconf.Value) bool {
	if x.Kind == '"' || y.Kind == '"' {
		return x.Kind == y.Kind && x.String == y.String
	}
	a, xList := x.Texts()
	b, yList := y.Texts()
	return xList && yList && slices.Equal(a, b)
}

// check reads what was written.
func (a Agent) check(text []byte, names []string, e Entry) error {
	t, err := agentconf.Parse(text, a.toml)
	if err != nil {
		return err
	}
	if w := a.words(t.Root.At(names...)); len(w) == 0 || w[0] != e.Program || !slices.Equal(w[1:], e.Args) {
		return errors.New("our server cannot be put there without changing more")
	}
	return nil
}

// Remove returns settings without our server; nil: the file is not needed any more.
func (a Agent) Remove(text []byte) ([]byte, error) {
	for {
		t, err := agentconf.Parse(text, a.toml)
		if err != nil {
			return nil, err
		}
		ours := a.ours(t)
		if len(ours) == 0 {
			return text, nil
		}
		if a.toml {
			if text, err = t.CutTable(ours[0]...); err != nil {
				return nil, err
			}
		} else {
			text = t.Cut(ours[0]...)
		}
		if text == nil {
			return nil, nil
		}
	}
}

// Restores reports whether old settings are those of now without our server, whatever the layout of both is.
func (a Agent) Restores(old, now []byte) bool {
	plain := func(text []byte) ([]byte, error) {
		with, err := a.Add(text, Entry{Name: "permesso", Program: "permesso", Args: []string{"mcp"}})
		if err != nil {
			return nil, err
		}
		return a.Remove(with)
	}
	without, err := a.Remove(old)
	x, oldErr := plain(old)
	y, nowErr := plain(now)
	return errors.Join(err, oldErr, nowErr) == nil && string(without) == string(old) && agentconf.Same(x, y, a.toml)
}

// SameOthers reports whether two settings are the same but for our server and the gateway, whatever their layout is. In the
// memory of an agent only the servers count.
func (a Agent) SameOthers(x, y []byte) bool {
	plain := func(text, other []byte) []byte {
		out, err := a.Unwrap(text, other)
		if err == nil {
			out, err = a.Remove(out)
		}
		if err == nil && a.memory {
			out, err = a.onlyServers(out)
		}
		if err != nil {
			return text
		}
		return out
	}
	return agentconf.Same(plain(x, y), plain(y, x), a.toml)
}

// onlyServers are the servers of a text of JSON, as a list of their places and values.
func (a Agent) onlyServers(text []byte) ([]byte, error) {
	t, err := agentconf.Parse(text, false)
	if err != nil {
		return nil, err
	}
	out := `{"":[`
	for i, e := range a.entries(t) {
		if i > 0 {
			out += ","
		}
		out += "[" + agentconf.QuoteAll(e.names) + "," + t.Raw(e.Value) + "]"
	}
	return []byte(out + "]}"), nil
}

// main is where our server is put. The second version of opencode has its servers one level deeper.
func (a Agent) main(t *agentconf.Text) []string {
	list := a.lists[0]
	if deeper := t.Root.At("mcp", "servers"); a.oneList && deeper != nil && deeper.Get("type") == nil {
		return []string{"mcp", "servers"}
	}
	return list
}

// ours are the names of our servers there.
func (a Agent) ours(t *agentconf.Text) (all [][]string) {
	list := a.main(t)
	v := t.Root.At(list...)
	if v == nil {
		return nil
	}
	for _, m := range v.Members {
		if w := a.words(m.Value); isOurs(w) && !isProxy(w) {
			all = append(all, append(slices.Clone(list), m.Name))
		}
	}
	return all
}

// words are the command line of a server, nil if it has none. Where there is an address as well, an agent may take that.
func (a Agent) words(v *agentconf.Value) []string {
	command := v.At("command")
	if command == nil || urlOf(v) != nil {
		return nil
	}
	if a.oneList {
		words, _ := command.Texts()
		return words
	}
	if command.Kind != '"' {
		return nil
	}
	if args := v.At("args"); args != nil {
		words, ok := args.Texts()
		if !ok {
			return nil
		}
		return append([]string{command.String}, words...)
	}
	return []string{command.String}
}

// isOurs reports whether a command line is one of permesso mcp.
func isOurs(words []string) bool {
	return len(words) > 1 && filepath.Base(words[0]) == "permesso" && words[1] == "mcp"
}

// isProxy reports whether it is the gateway's.
func isProxy(words []string) bool { return isOurs(words) && len(words) > 2 && words[2] == "proxy" }

// entry is one server in a text.
type entry struct {
	names []string
	*agentconf.Value

	hold time.Duration // by the time-out of a call; 0: it is not known
}

func (e entry) name() string { return e.names[len(e.names)-1] }

// entries are all servers of a text.
func (a Agent) entries(t *agentconf.Text) (all []entry) {
	lists := slices.Clone(a.lists)
	lists[0] = a.main(t)
	for _, list := range lists {
		for _, at := range expand(t.Root, list) {
			for _, m := range t.Root.At(at...).Members {
				all = append(all, entry{append(slices.Clone(at), m.Name), m.Value, a.holdOf(t, m.Value)})
			}
		}
	}
	return all
}

// holdOf is how long a call of a server may be held. Progress does not make an agent wait longer.
func (a Agent) holdOf(t *agentconf.Text, v *agentconf.Value) time.Duration {
	if m := v.Get(a.timeout); a.timeout != "" && m != nil {
		n, err := strconv.ParseFloat(strings.ReplaceAll(t.Raw(m.Value), "_", ""), 64)
		if d := n * float64(a.unit); err == nil && d >= float64(time.Second) && d < float64(24*24*time.Hour) {
			return a.Hold(time.Duration(d))
		}
	}
	if a.limit == 0 {
		return 0
	}
	return a.Hold(a.limit)
}

// expand are the paths that fit a pattern.
func expand(v *agentconf.Value, pattern []string) (all [][]string) {
	if len(pattern) == 0 {
		return [][]string{nil}
	}
	for _, m := range v.Members {
		if pattern[0] != "*" && pattern[0] != m.Name {
			continue
		}
		for _, rest := range expand(m.Value, pattern[1:]) {
			all = append(all, append([]string{m.Name}, rest...))
		}
	}
	return all
}

// urlOf is the member with the address of a remote server. Gemini CLI has had two names for it.
func urlOf(v *agentconf.Value) *agentconf.Member { return cmp.Or(v.Get("httpUrl"), v.Get("url")) }
