package policy

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// anyWords is the word of a pattern that stands for zero or more free words.
const anyWords = "..."

const maxPattern = 100 // words

// freeWord is what anyWords may stand for: no option, NAME=value, absolute path, address,
// or file of options. So it leads nowhere outside the working directory.
// It is compiled when it is needed: every command would wait for it.
var freeWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL\pN._][\pL\pM\pN._/,@%+~^-]*$`) })

func isFree(w string) bool {
	return freeWord().MatchString(w) && !slices.Contains(strings.Split(w, "/"), "..") && (w == "." || !openers()[w] && !isRunning(w))
}

// Pattern reads a command pattern such as "go test ...", given for a request, or says why
// it is refused.
func Pattern(p *approval.Pending, line string) (pattern []string, why approval.Reason) {
	if pattern, why = splitLine(line); !why.IsZero() {
		return nil, why
	}
	if why = checkPattern(pattern); !why.IsZero() {
		return nil, why
	}
	cmd, _, why := commandOf(&approval.Facts{
		Tool: p.ToolName, ActionType: p.ActionType, Capability: p.Capability, Declared: p.Runs.Args, Args: p.RequestData,
	})
	if o, _ := p.Offer(approval.Commands); why.IsZero() && (o.Terms.Digest != cmd.rest || !MatchWords(pattern, cmd.words)) {
		why = approval.Because("pattern_other")
	}
	return pattern, why
}

// checkPattern says why no grant may have a pattern.
func checkPattern(pattern []string) approval.Reason {
	if len(pattern) == 0 || pattern[0] == anyWords || len(pattern) > maxPattern {
		return approval.Because("pattern_wide")
	}
	if why := refuseCommand(pattern); !why.IsZero() {
		return why
	}
	if why := refuseOnlyAgain(pattern); !why.IsZero() {
		return why
	}
	return refuseOption(pattern)
}

// refuseOnlyAgain refuses programs of which only the same request can be remembered: by
// their subcommand, or because a free word may be a program or a host.
func refuseOnlyAgain(pattern []string) approval.Reason {
	name := path.Base(pattern[0])
	b, builds := builders()[name]
	switch {
	case b.anyTarget && slices.Contains(pattern, anyWords), builds && !b.anyTarget && !b.whole && !b.patterns[pattern[1]]:
		return approval.Because("command_sub", "program", name)
	case !builds && slices.ContainsFunc(pattern, isRunning):
		return approval.Because("command_word", "word", pattern[slices.IndexFunc(pattern, isRunning)])
	case !builds && facts.ParseArgv(pattern).Commands[0].Connects() != "" && slices.Contains(pattern, anyWords):
		return approval.Because("command_network", "program", name)
	}
	return approval.Reason{}
}

// runningWords are subcommands of many programs that run what the words behind them say.
var runningWords = set(strings.Fields(`run exec shell sh x dlx eval script enter ssh console repl attach do foreach bisect
	spawn with call start environment develop chroot plugin alias open edit hook generate install`))

func isRunning(w string) bool { return runningWords[w] }

// MatchWords says whether a pattern covers a command that refuseCommand does not refuse.
func MatchWords(pattern, words []string) bool {
	p, w := 0, 0
	star, from := -1, 0 // the last anyWords, and where the words behind it began
	for w < len(words) {
		switch {
		case p < len(pattern) && pattern[p] == anyWords:
			star, from = p, w
			p++
		case p < len(pattern) && pattern[p] == words[w]:
			p, w = p+1, w+1
		case star >= 0 && isFree(words[from]):
			from++
			p, w = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == anyWords {
		p++
	}
	return p == len(pattern)
}

// subcommand is what the first argument of a program looks like if it says what to do.
var subcommand = regexp.MustCompile(`^[a-z][a-z-]*$`)

// SuggestPattern keeps the program, its subcommand, every option with the word after it, and
// what no pattern covers. Runs of other words become "...".
func SuggestPattern(words []string) (pattern []string) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		option := i > 0 && strings.HasPrefix(words[i-1], "-") && !strings.Contains(words[i-1], "=")
		switch {
		case i == 0, i == 1 && subcommand.MatchString(w), option, !isFree(w):
			pattern = append(pattern, w)
		case pattern[len(pattern)-1] != anyWords:
			pattern = append(pattern, anyWords)
		}
	}
	return pattern
}
