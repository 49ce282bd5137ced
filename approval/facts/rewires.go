package facts

import (
	"cmp"
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
	`\.(bash|zsh|ksh|csh|tcsh)rc$`, `\.(profile|bash_profile|bash_login|bash_logout|zshenv|zprofile|zlogin|zlogout|login|inputrc|envrc|pam_environment)$`,
	`\.config/(fish|environment\.d|systemd|autostart)(/|$)`, `\.git/(hooks|config)(/|$)`, `\.gitconfig$`, `\.config/git(/|$)`, `\.ssh(/|$)`,
	`etc/(profile|profile\.d|bash\.bashrc|zsh|environment|crontab|cron\.[a-z]+)(/|$)`, `etc/(claude-code|codex|gemini-cli|github-copilot|cursor|opencode|permesso)(/|$)`,
	`permesso\.toml$`, `\.config/permesso(/|$)`, `\.local/state/permesso(-hooks)?(/|$)`, `(lib|run)/permesso(/|$)`, `permesso\.sock$`,
}, "|") + `)`)

// asksOnly are the commands of the gate that an agent is there to use.
var asksOnly = setOf("request wait cancel hook")

// Rewires is the part of a call that would change who is asked about later ones, "" if none is known. reads says that its
// paths are only read; own are the places of this gate, which are not for reading either. Of an argument that is not declared each text is taken for a path and for a command.
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
			case a.Type == TypePath && (!reads || r.isOwn(text)):
				part = r.path(text)
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

// commandRewires looks at every word: which of them a program writes to, only the program knows.
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
			if strings.EqualFold(words[0].program(), "permesso") && (len(words) < 2 || words[1].Open || !asksOnly[words[1].Text]) {
				return "permesso"
			}
		}
		words := c.Words
		for _, redirect := range c.Redirects {
			words = append(words[:len(words):len(words)], redirect.To)
		}
		for _, w := range append(words[:len(words):len(words)], c.Assigns...) {
			if part := r.word(w.Text); part != "" {
				return part
			}
		}
	}
	return ""
}

// wordRewires looks for a file in a word, also behind = or : or quotes.
func (r rewiring) word(word string) string {
	for _, part := range strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("=:,;'\"()<>|&{}", r) }) {
		if r.path(part) != "" {
			return part
		}
	}
	return ""
}
