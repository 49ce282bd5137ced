package policy

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// commandPattern is a rule's pattern of one simple command: go test [-v -run *] ...
type commandPattern struct {
	words []patternWord
}

type patternWord struct {
	text    string          // itself, anyWords or oneWord; "": options
	options map[string]bool // all that were named up to here, and whether a value follows
}

// oneWord is the word of a rule's pattern that stands for one word of any text.
const oneWord = "*"

func parseCommandPattern(text string) (*commandPattern, error) {
	p, options, inside, last := &commandPattern{}, map[string]bool{}, false, ""
	if i := strings.IndexAny(text, "'\"`\\$;|&<>(){}?"); i >= 0 {
		return nil, fmt.Errorf("%q: a pattern is words between blanks, of one command; %q is not for that", text, text[i:i+1])
	}
	for _, w := range strings.Fields(text) {
		if bare := strings.Trim(w, "[]"); bare != oneWord && strings.Contains(bare, oneWord) {
			return nil, fmt.Errorf("%q: * stands for a whole word, and ... for several: %q", text, w)
		}
		if rest, ok := strings.CutPrefix(w, "["); ok && !inside {
			inside, w, last = true, rest, ""
		}
		if !inside {
			p.words = append(p.words, patternWord{text: w})
			continue
		}
		w, closes := strings.CutSuffix(w, "]")
		switch {
		case w == oneWord && last != "":
			options[last] = true
			last = ""
		case len(w) > 1 && w[0] == '-' && !strings.ContainsAny(w, "=[]"):
			options[w], last = false, w
		case w != "" || !closes:
			return nil, fmt.Errorf("%q: between [ and ] stand only options, each with * behind it if it takes a value", text)
		}
		if closes {
			p.words = append(p.words, patternWord{options: maps.Clone(options)})
			inside = false
		}
	}
	switch {
	case inside:
		return nil, fmt.Errorf("%q: a [ is not closed", text)
	case len(p.words) > 0 && strings.HasPrefix(p.words[0].text, "-"):
		return nil, fmt.Errorf("%q: a pattern is a whole command; for one list of words write { equals = [...] }", text)
	case len(p.words) == 0 || len(p.words) > maxPattern:
		return nil, fmt.Errorf("a command pattern has 1 to %d words", maxPattern)
	case p.words[0].isAny():
		return nil, errors.New("a command pattern begins with the name of a program")
	}
	return p, nil
}

func (w patternWord) isAny() bool { return w.text == "" || w.text == anyWords || w.text == oneWord }

// closed says whether the pattern is one command.
func (p *commandPattern) closed() bool {
	return !slices.ContainsFunc(p.words, patternWord.isAny)
}

// covers says whether the pattern matches all words of a command, narrowly.
func (p *commandPattern) covers(words []string) bool {
	type place struct{ p, w int }
	seen := map[place]bool{}
	var from func(at place, options map[string]bool) bool
	from = func(at place, options map[string]bool) bool {
		if seen[at] {
			return false
		}
		seen[at] = true
		if at.p < len(p.words) && p.words[at.p].options != nil {
			return from(place{at.p + 1, at.w}, p.words[at.p].options)
		}
		if at.w == len(words) {
			return !slices.ContainsFunc(p.words[at.p:], func(w patternWord) bool { return w.text != anyWords && w.options == nil })
		}
		w := words[at.w]
		if n := optionWords(options, words[at.w:]); n > 0 && from(place{at.p, at.w + n}, options) {
			return true
		}
		if at.p == len(p.words) {
			return false
		}
		switch text := p.words[at.p].text; text {
		case anyWords:
			return isFree(w) && from(place{at.p, at.w + 1}, options) || from(place{at.p + 1, at.w}, options)
		case oneWord:
			return !strings.HasPrefix(w, "-") && from(place{at.p + 1, at.w + 1}, options)
		default:
			return text == w && from(place{at.p + 1, at.w + 1}, options)
		}
	}
	return from(place{}, nil)
}

// optionWords is how many words the option at the beginning takes, 0 if it is none of these.
func optionWords(options map[string]bool, words []string) int {
	name, _, joined := strings.Cut(words[0], "=")
	value, known := options[words[0]]
	switch {
	case joined && strings.HasPrefix(name, "--") && options[name]:
		return 1
	case !known:
		return 0
	case !value:
		return 1
	case len(words) > 1 && !strings.HasPrefix(words[1], "-"):
		return 2
	}
	return 0
}

// shellLine is a command, parsed.
type shellLine struct {
	facts.Shell
	valid bool
}

func parseShell(v approval.Raw) shellLine {
	if line, ok := (codec.Field{Value: v}).Text(); ok {
		parsed, err := facts.ParseCommand(line)
		return shellLine{parsed, err == nil}
	}
	words, why := wordsOf(codec.Field{Value: v})
	if !why.IsZero() || len(words) == 0 {
		return shellLine{}
	}
	return shellLine{facts.ParseArgv(words), true}
}

// matchCommand evaluates command patterns.
func (c *condition) matchCommand(v *value, raw approval.Raw, how reading) matchResult {
	if v.shell == nil { // a command is an argument, of which there is one value
		parsed := parseShell(raw)
		v.shell = &parsed
	}
	s := v.shell
	if !s.valid {
		return unknown
	}
	if how == wide {
		return matchCommandsWide(c.is, s.Shell)
	}
	if !s.Sequence {
		return no
	}
	for _, command := range s.Commands {
		if command.In < 0 && !slices.ContainsFunc(c.is, func(p pattern) bool { return p.command != nil && p.command.covers(texts(command.Words)) }) {
			return no
		}
	}
	return yes
}

func texts(words []facts.Word) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = w.Text
	}
	return all
}

// matchCommandsWide looks for a pattern in every command of a line.
func matchCommandsWide(is []pattern, s facts.Shell) matchResult {
	best := no
	if s.Unread || s.Differs || len(s.Defines) > 0 {
		best = unknown
	}
	for i, command := range s.Commands {
		if readsCommands(s, i) {
			best = max(best, unknown)
		}
		more := false
		for _, p := range is {
			if p.command != nil && slices.ContainsFunc(command.Assigns, func(w facts.Word) bool { return mentions(w.Text, path.Base(p.command.words[0].text)) }) {
				best = max(best, unknown) // PAGER='rm x' git log
			}
		}
		for _, words := range command.Invocations() {
			for _, p := range is {
				if p.command == nil {
					best = max(best, unknown)
					continue
				}
				best = max(best, p.command.occursIn(words, more))
				if best == no && mayStart(words, path.Base(p.command.words[0].text)) {
					best = unknown
				}
			}
			more = more || appends[path.Base(words[0].Text)]
		}
	}
	return best
}

// appends are programs that give another one words that they read.
var appends = set([]string{"xargs", "parallel", "find"})

// readsCommands says whether command i is a shell that gets its commands from a pipe or a
// file, or runs a file inside the shell.
func readsCommands(s facts.Shell, i int) bool {
	if s.Commands[i].Interprets() != "" || s.Commands[i].Evaluates() != "" && s.Commands[i].Program() != "eval" {
		return true
	}
	scripted := slices.ContainsFunc(s.Commands, func(c facts.SimpleCommand) bool { return c.In == i && c.How == facts.Script })
	return s.Commands[i].Program() == "eval" && !scripted
}

// occursIn says whether a program with its arguments matches the pattern, widely.
// more says that the program gets other words, too.
func (p *commandPattern) occursIn(words []facts.Word, more bool) matchResult {
	switch program := words[0]; {
	case uncertain(program):
		return unknown
	case !strings.EqualFold(path.Base(program.Text), path.Base(p.words[0].text)):
		return no
	}
	open := more || slices.ContainsFunc(words[1:], uncertain)
	given := texts(words[1:])
	rest := given
	for _, w := range p.words[1:] {
		found := false
		switch {
		case w.isAny():
			continue
		case strings.HasPrefix(w.text, "-"):
			found = hasOption(given, w.text)
		default:
			i := slices.IndexFunc(rest, func(g string) bool { return sameWord(g, w.text) })
			if found = i >= 0; found {
				rest = rest[i+1:]
			}
		}
		switch {
		case !found && open:
			return unknown
		case !found:
			return no
		}
	}
	return yes
}

// mayStart says whether a program runs what its other words say, and they name a program.
func mayStart(words []facts.Word, name string) bool {
	program := strings.ToLower(path.Base(words[0].Text))
	runs := interprets(program) || starters[program] || strings.HasPrefix(program, "-")
	for i, w := range words[1:] {
		option := strings.HasPrefix(words[i].Text, "-") && refuseOption([]string{"", words[i].Text}).Code != ""
		switch {
		case strings.Contains(w.Text, "/") && strings.EqualFold(path.Base(w.Text), name): // ln -s /bin/rm x
			return true
		case !runs && !option && !strings.ContainsAny(w.Text, "!=") && refuseOption([]string{"", w.Text}).Code == "":
			continue
		case mentions(w.Text, name):
			return true
		}
	}
	return false
}

// mentions says whether the name of a program stands in a text.
func mentions(text, name string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(text, isNoName), func(s string) bool {
		return strings.EqualFold(s, name) || s[0] == '-' && strings.HasSuffix(strings.ToLower(s), strings.ToLower(name))
	})
}

// starters run programs, besides other things that they do.
var starters = set(strings.Fields("docker podman kubectl npm pnpm yarn repeat noglob nocorrect and not caffeinate busybox toybox proxychains"))

func isNoName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._+-", r)
}

// uncertain says whether the shell may make other words of it.
func uncertain(w facts.Word) bool {
	return w.Open || strings.HasPrefix(w.Text, "=") || !w.Fixed && w.Text != "[" && strings.ContainsAny(w.Text, "*?[{~!^")
}

// sameWord compares without case, and paths in their shortest form.
func sameWord(given, want string) bool {
	if strings.Contains(want, "/") && given != "" {
		given, want = path.Clean(given), path.Clean(want)
	}
	return strings.EqualFold(given, want)
}

// hasOption looks for an option in all its spellings: -rf, -fr, -r -f, --force=x, --forc.
func hasOption(given []string, option string) bool {
	letters := map[rune]bool{}
	for _, g := range given {
		name, _, _ := strings.Cut(g, "=")
		long := strings.HasPrefix(name, "--") && len(name) > 3
		if g == option || name == option || "-"+name == option || name == "-"+option || long && strings.HasPrefix(option, name) {
			return true
		}
		if strings.HasPrefix(g, "-") && !strings.HasPrefix(g, "--") {
			for _, r := range g[1:] {
				letters[r] = true
			}
		}
	}
	return !strings.HasPrefix(option, "--") && !strings.ContainsFunc(option[1:], func(r rune) bool { return !letters[r] })
}
