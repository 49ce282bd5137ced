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
	words   []patternWord
	program string // in lower case, without folders
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
	p.program = strings.ToLower(path.Base(p.words[0].text))
	return p, nil
}

func (w patternWord) isAny() bool { return w.text == "" || w.text == anyWords || w.text == oneWord }

// closed says whether the pattern is one command.
func (p *commandPattern) closed() bool {
	return !slices.ContainsFunc(p.words, patternWord.isAny)
}

// covers says whether the pattern matches all words of a command, narrowly.
func (p *commandPattern) covers(words []string) bool {
	if len(words) == 0 || words[0] != p.words[0].text {
		return false
	}
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
	valid  bool
	top    [][]string // the words of its own commands
	unsure bool       // a part of it cannot be told
	calls  []call
}

// call is a program that a line starts, with what a deny compares.
type call struct {
	program   string // in lower case, without folders
	uncertain bool   // of the program
	given     []string
	open      bool     // it gets other words, too
	names     []string // of programs that it may start, in lower case
}

func parseShell(v approval.Raw) *shellLine {
	s := &shellLine{}
	if line, ok := (codec.Field{Value: v}).Text(); ok {
		parsed, err := facts.ParseCommand(line)
		s.Shell, s.valid = parsed, err == nil
	} else if words, why := wordsOf(codec.Field{Value: v}); why.IsZero() && len(words) > 0 {
		s.Shell, s.valid = facts.ParseArgv(words), true
	}
	s.unsure = s.Unread || s.Differs || len(s.Defines) > 0
	for i, command := range s.Commands {
		if command.In < 0 {
			s.top = append(s.top, texts(command.Words))
		}
		s.unsure = s.unsure || readsCommands(s.Shell, i)
		more := false
		for _, w := range command.Assigns { // PAGER='rm x' git log
			s.calls = append(s.calls, call{names: namesIn(w.Text)})
		}
		for _, words := range command.Invocations() {
			c := call{
				program: strings.ToLower(path.Base(words[0].Text)), uncertain: uncertain(words[0]), given: texts(words[1:]),
				open: more || slices.ContainsFunc(words[1:], uncertain), names: startable(words),
			}
			s.calls = append(s.calls, c)
			more = more || appends[c.program]
		}
	}
	return s
}

// matchCommand evaluates command patterns.
func (c *condition) matchCommand(v *value, raw approval.Raw, how reading) matchResult {
	if v.shell == nil { // a command is an argument, of which there is one value
		v.shell = parseShell(raw)
	}
	s := v.shell
	switch {
	case !s.valid:
		return unknown
	case how == wide:
		return matchCommandsWide(c.is, s)
	case !s.Sequence:
		return no
	}
	for _, words := range s.top {
		if !slices.ContainsFunc(c.is, func(p pattern) bool { return p.command != nil && p.command.covers(words) }) {
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
func matchCommandsWide(is []pattern, s *shellLine) matchResult {
	best := no
	if s.unsure {
		best = unknown
	}
	for i := range is {
		p := is[i].command
		if p == nil {
			return unknown
		}
		for j := range s.calls {
			best = max(best, p.occursIn(&s.calls[j]))
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
func (p *commandPattern) occursIn(c *call) matchResult {
	missing := no
	if slices.ContainsFunc(c.names, func(n string) bool { return n == p.program || n[0] == '-' && strings.HasSuffix(n, p.program) }) {
		missing = unknown
	}
	switch {
	case c.uncertain:
		return unknown
	case c.program != p.program:
		return missing
	case c.open:
		missing = unknown
	}
	rest := c.given
	for _, w := range p.words[1:] {
		found := false
		switch {
		case w.isAny():
			continue
		case strings.HasPrefix(w.text, "-"):
			found = hasOption(c.given, w.text)
		default:
			i := slices.IndexFunc(rest, func(g string) bool { return sameWord(g, w.text) })
			if found = i >= 0; found {
				rest = rest[i+1:]
			}
		}
		if !found {
			return missing
		}
	}
	return yes
}

// startable are the names in the words of a program that it may start: all if it runs
// others, else those that an option, an assignment or a path gives.
func startable(words []facts.Word) (names []string) {
	program := strings.ToLower(path.Base(words[0].Text))
	runs := interprets(program) || starters[program] || strings.HasPrefix(program, "-")
	for i, w := range words[1:] {
		switch {
		case runs, strings.HasPrefix(words[i].Text, "-") && isRunningOption(words[i].Text), strings.ContainsAny(w.Text, "!="), isRunningOption(w.Text):
			names = append(names, namesIn(w.Text)...)
		case strings.Contains(w.Text, "/"): // ln -s /bin/rm x
			names = append(names, strings.ToLower(path.Base(w.Text)))
		}
	}
	return names
}

func isRunningOption(w string) bool { return refuseOption([]string{"", w}).Code != "" }

// namesIn are the words of a text that may be names of programs, in lower case.
func namesIn(text string) []string { return strings.FieldsFunc(strings.ToLower(text), isNoName) }

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
