package facts

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// rewirers are the files that decide who is asked about later calls: the settings of agents, in which their hooks stand,
// what shells and git start by themselves, and the gate's own. Letters of either case: some systems find both.
var rewirers = regexp.MustCompile(`(?i)(^|/)(` + strings.Join([]string{
	`\.claude/(settings[^/]*\.json|hooks|plugins|agents)(/|$)`, `\.claude\.json$`, `\.codex(/|$)`, `\.gemini/(settings[^/]*\.json|extensions|policies)(/|$)`,
	`\.cursor/(hooks|mcp)\.json$`, `\.cursor/hooks(/|$)`, `\.github/(hooks|copilot)(/|$)`, `\.copilot(/|$)`, `\.mcp\.json$`,
	`\.vscode/(settings|mcp|tasks)\.json$`, `Code( - Insiders)?/User/(settings|mcp)\.json$`, `\.opencode(/|$)`, `\.config/opencode(/|$)`, `opencode\.jsonc?$`,
	`\.(bash|zsh|ksh|csh|tcsh)rc$`, `\.(profile|bash_profile|bash_login|bash_logout|zshenv|zprofile|zlogin|zlogout|login|inputrc|envrc|pam_environment|bash_aliases)$`,
	`\.config/(fish|environment\.d|systemd|autostart)(/|$)`, `\.git/(hooks|config)(/|$)`, `\.gitconfig$`, `\.config/git(/|$)`, `\.ssh(/|$)`,
	`etc/(profile|profile\.d|bash\.bashrc|zsh|environment|crontab|cron\.[a-z]+|gitconfig)(/|$)`, `etc/(claude-code|codex|gemini-cli|github-copilot|cursor|opencode|permesso)(/|$)`,
	`permesso\.toml$`, `bin/permesso$`, `\.config/permesso(/|$)`, `\.local/state/permesso(-hooks)?(/|$)`, `(lib|run)/permesso(/|$)`, `permesso\.sock$`,
}, "|") + `)`)

// rewired are some of them, for patterns.
var rewired = strings.Fields(`.claude/settings.json .claude/hooks .claude.json .codex .gemini/settings.json .cursor/mcp.json .github/hooks .copilot
	.mcp.json .vscode/settings.json .opencode .bashrc .zshrc .kshrc .profile .bash_profile .zshenv .zprofile .inputrc .envrc .git/config .git/hooks
	.gitconfig .ssh .config/permesso .config/opencode .config/git .config/fish .local/state/permesso`)

// rewiredFolder is one that holds such files. Who goes there, or moves it, need not name them.
var rewiredFolder = regexp.MustCompile(`(?i)(^|/)\.(claude|gemini|cursor|vscode|git|config|local|local/state)$`)

// Programs by what they do to the words that they are given.
var (
	asksOnly = setOf("request wait cancel hook")                            // the commands of the gate that an agent is there to use
	decides  = setOf("approve deny change pause resume grants config init") // some of the others
	settles  = setOf("install uninstall run check")                         // what hook does besides asking
	goes     = setOf("cd pushd mv rm rmdir cp rsync ln install tar unzip chmod chown wget curl checkout restore")
	handles  = setOf(`cp mv ln rm install rsync scp chmod chown which whereis npx npm pnpm yarn bunx uvx pipx
		pkill killall pidof pgrep systemctl service rc-service sv launchctl`)  // start, stop, find or replace a program by its name
	places   = setOf("HOME XDG_CONFIG_HOME XDG_STATE_HOME CLAUDE_CONFIG_DIR CODEX_HOME COPILOT_HOME BASH_ENV ENV") // name the folders of settings
	agents   = setOf("claude codex gemini copilot cursor-agent opencode")                                          // another one need not ask
	readsGit = setOf("--get --get-all --get-regexp --get-urlmatch --list -l")
	tameGit  = setOf("get list user.name user.email")
)

// Rewires is the part of a call that would change who is asked about later ones, "" if none is known. reads says that its
// paths are only read; own are the places of this gate, which are not for reading either. Of an argument that is not
// declared each text is taken for a path and for a command. A command is judged by its words: what a script does, or a
// program that was copied before, is not seen.
func Rewires(args map[string]approval.Argument, data approval.Raw, reads bool, own []string) string {
	fields, err := codec.Fields(data)
	if err != nil {
		return ""
	}
	r := rewiring{own}
	for _, f := range fields {
		a, declared := args[f.Name]
		for _, text := range allTexts(f.Value) {
			part := ""
			switch {
			case a.Type == TypeCommand:
				part = r.command(text)
			case a.Type == TypePath:
				part = RewiresFile(text, reads, own)
			case !declared && !strings.Contains(text, "\n"):
				if part = r.path(text); part == "" {
					part = r.command(text)
				}
			}
			if part != "" {
				return part
			}
		}
	}
	return ""
}

// RewiresFile is Rewires of one path.
func RewiresFile(text string, reads bool, own []string) string {
	if r := (rewiring{own}); !reads || r.isOwn(text) {
		return r.path(text)
	}
	return ""
}

// allTexts are the strings of a value, at any depth.
func allTexts(v approval.Raw) (all []string) {
	switch v.Kind() {
	case '"':
		text, _ := codec.Field{Value: v}.Text()
		return []string{text}
	case '[':
		items, err := codec.Items(v)
		if err != nil {
			return nil
		}
		for _, item := range items {
			all = append(all, allTexts(item)...)
		}
	case '{':
		fields, err := codec.Fields(v)
		if err != nil {
			return nil
		}
		for _, f := range fields {
			all = append(all, allTexts(f.Value)...)
		}
	}
	return all
}

// rewiring knows the places of this gate: its folder, its configuration.
type rewiring struct{ own []string }

func (r rewiring) isOwn(text string) bool {
	return slices.ContainsFunc(r.own, func(place string) bool { return strings.HasPrefix(path.Clean(text)+"/", place+"/") })
}

func (r rewiring) path(text string) string {
	if rewirers.MatchString(path.Clean(text)) || r.isOwn(text) {
		return text
	}
	return ""
}

// command looks at every word: which of them a program writes to, only the program knows.
func (r rewiring) command(line string) string {
	s, err := ParseCommand(line)
	if err != nil || s.Unread {
		for _, word := range strings.Fields(line) {
			if part := r.word(word); part != "" || strings.EqualFold(path.Base(word), "permesso") {
				return cmp.Or(part, word)
			}
		}
		return ""
	}
	for _, c := range s.Commands {
		for _, words := range c.Invocations() {
			if part := invocationRewires(words); part != "" {
				return part
			}
		}
		words := c.Words
		for _, redirect := range c.Redirects {
			words = append(words[:len(words):len(words)], redirect.To)
		}
		for _, w := range append(words[:len(words):len(words)], c.Assigns...) {
			name, _, assigns := strings.Cut(w.Text, "=")
			if (assigns || c.Program() == "unset") && (places[name] || strings.HasPrefix(name, "PERMESSO_") || strings.HasPrefix(name, "GIT_CONFIG")) {
				return name
			}
			if part := r.word(w.Text); part != "" {
				return part
			}
		}
	}
	return ""
}

// invocationRewires looks at what one program is told to do.
func invocationRewires(words []Word) string {
	first, rest := words[0], words[1:]
	name := strings.ToLower(first.program())
	isPermesso := func(w Word) bool {
		return strings.EqualFold(strings.TrimSuffix(path.Base(w.Text), ".service"), "permesso")
	}
	given := func(is func(Word) bool) bool { return slices.ContainsFunc(rest, is) }
	matches, _ := path.Match(alternatives.ReplaceAllString(name, "*"), "permesso")
	after := first
	for _, w := range rest { // for another program to start
		if !matches && isPermesso(after) && decides[w.Text] || decisions.MatchString(w.Text) {
			return "permesso"
		}
		after = w
	}
	switch {
	case matches && (len(rest) == 0 || rest[0].Open || !asksOnly[rest[0].Text]),
		matches && rest[0].Text == "hook" && given(func(w Word) bool { return w.Open || settles[w.Text] }),
		first.Open && len(rest) > 0 && (decides[rest[0].Text] || rest[0].Text == "hook"),
		handles[name] && given(isPermesso),
		IsInterpreter(name) && !IsShell(name) && given(func(w Word) bool {
			return strings.Contains(strings.ToLower(w.Text), "permesso") && strings.ContainsAny(w.Text, " (\"'`")
		}):
		return "permesso"
	case name == "crontab", agents[name], name == "git" && setsGit(rest):
		return name
	case goes[name], name == "git" && goes[gitCommand(rest)]:
		for _, w := range rest {
			if rewiredFolder.MatchString(path.Clean(w.Text)) {
				return w.Text
			}
		}
	}
	return ""
}

// decisions are commands of the gate in a text that something else may run.
var decisions = regexp.MustCompile(`(?i)\bpermesso\s+(` + strings.Join(slices.Sorted(maps.Keys(decides)), "|") + `)\b`)

func gitCommand(words []Word) string {
	if words = started(words, gitOptions, 0); len(words) > 0 {
		return words[0].Text
	}
	return ""
}

// setsGit reports whether git, with these words, changes its configuration: it may name programs that it starts later.
func setsGit(words []Word) bool {
	if words = started(words, gitOptions, 0); len(words) < 2 || words[0].Text != "config" || slices.ContainsFunc(words, func(w Word) bool { return readsGit[w.Text] }) {
		return false
	}
	name := started(words[1:], strings.Fields("-f --file --blob --type --default --value --comment"), 0)
	return len(name) == 0 || !tameGit[name[0].Text]
}

// word looks for a file in a word, also behind = or : or quotes.
func (r rewiring) word(word string) string {
	for _, part := range strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("=:,;'\"()<>|&{}", r) }) {
		if r.path(part) != "" {
			return part
		}
	}
	if matchesRewired(alternatives.ReplaceAllString(word, "*")) {
		return word
	}
	return ""
}

var alternatives = regexp.MustCompile(`\{[^{}]*\}`)

// matchesRewired reports whether a shell may find one of the files by a pattern.
func matchesRewired(pattern string) bool {
	if !strings.ContainsAny(pattern, "*?[") {
		return false
	}
	parts := strings.Split(path.Clean(pattern), "/")
	for i := range parts {
		for _, file := range rewired {
			names := strings.Split(file, "/")
			n := min(len(names), len(parts)-i)
			glob := strings.ContainsAny(strings.Join(parts[i:i+n], ""), "*?[")
			for k := 0; k < n && glob; k++ {
				same, _ := path.Match(parts[i+k], names[k])
				glob = same && (names[k][0] != '.' || parts[i+k][0] == '.') // a shell finds no hidden file by *
			}
			if glob {
				return true
			}
		}
	}
	return false
}

// DefinitionChange is an argument that a gateway before an MCP server adds to the call of a tool whose definition is not the
// one that was approved. No table declares it, so that a person is asked whatever the rules allow.
const DefinitionChange = "definition_change"

// DefinitionChanged reports whether the arguments have it.
func DefinitionChanged(args approval.Raw) bool {
	return slices.ContainsFunc(codec.FirstFields(args), func(f codec.Field) bool { return f.Name == DefinitionChange })
}
