package policy

import (
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// IsShadowedBy says whether a stricter rule applies to every request that this rule applies
// to. It compares only what is written alike, so it misses some.
func (r Rule) IsShadowedBy(by Rule) bool {
	return by.Outcome < r.Outcome && len(by.UnlessProven) == 0 &&
		by.Tool.cover(r.Tool) && by.Workspace.cover(r.Workspace) && by.Session.cover(r.Session) && by.Client.cover(r.Client) && by.Subagent.cover(r.Subagent) &&
		subset(by.Capability, r.Capability) && subset(by.Approver, r.Approver) && subset(by.Target, r.Target) &&
		(by.When == Window{} || by.When == r.When) && by.coversProgram(r) &&
		!slices.ContainsFunc(by.Args, func(wide Condition) bool {
			return !slices.ContainsFunc(r.Args, func(c Condition) bool { return c.isWithin(wide) })
		})
}

// cover says whether every name that fits one of others also fits one of these.
func (n Names) cover(others Names) bool {
	if len(n) == 0 {
		return true
	}
	return len(others) > 0 && !slices.ContainsFunc(others, func(o string) bool {
		return !slices.ContainsFunc(n, func(own string) bool {
			prefix, star := strings.CutSuffix(own, "*")
			return own == o || star && strings.HasPrefix(o, prefix)
		})
	})
}

// subset says whether each of the others is one of all. No names are all names.
func subset(all, others []string) bool {
	return len(all) == 0 || len(others) > 0 && !slices.ContainsFunc(others, func(o string) bool { return !slices.Contains(all, o) })
}

// isWithin says whether wide is the same condition, perhaps with more patterns.
func (c Condition) isWithin(wide Condition) bool {
	if len(wide.Is) > 0 && len(c.Is) > 0 && subset(wide.Is, c.Is) {
		c.Is = wide.Is
	}
	return reflect.DeepEqual(c, wide)
}

// NeverAllows says why no value of an argument of this type meets the condition of an allow,
// "" if one may.
func (c Condition) NeverAllows(kind string) string {
	x, err := c.compile()
	switch {
	case err != nil || len(x.path) > 1:
		return ""
	case hasLineBreak(c.Contains):
		return "contains matches no text with a line break"
	case x.max != nil && x.min == nil && x.max.exact().Sign() < 0:
		return "without min nothing below 0 matches"
	case x.equals.Value == nil:
		return ""
	case kind == facts.TypePath && x.equalIsText && !plainPath(x.equalText):
		return "a path matches only if it is absolute and leads to one place"
	}
	wrong := false
	switch have := x.equals.Value.Kind(); kind {
	case facts.TypeBool:
		wrong = have != 't' && have != 'f'
	case facts.TypeNumber:
		wrong = have != '0'
	case facts.TypeList, facts.TypeJSON, facts.TypeAmount:
	default:
		wrong = have != '"' && have != '['
	}
	if wrong {
		return "it compares with " + string(x.equals.Value)
	}
	return ""
}

// OpenProgram says what a command pattern leaves open besides plain arguments: the program
// that runs what its words name, or the option that names one. "" if nothing.
func OpenProgram(pattern string) string {
	p, err := parseCommandPattern(pattern)
	if err != nil {
		return ""
	}
	program := p.words[0].text
	for _, w := range p.words {
		for option := range w.options {
			if why := refuseOption([]string{program, option}); !why.IsZero() {
				before, _, _ := strings.Cut(pattern, "[")
				return before + option
			}
		}
	}
	var named []string // words before the first open one, without options
	open := false
	for _, w := range p.words[1:] {
		if open = w.text == anyWords || w.text == oneWord; open {
			break
		}
		if w.text != "" && !strings.HasPrefix(w.text, "-") {
			named = append(named, w.text)
		}
	}
	if !open || !leavesProgramOpen(path.Base(program), named) {
		return ""
	}
	return strings.Join(append([]string{program}, named...), " ")
}

// leavesProgramOpen says whether the words behind the named ones say what a program runs.
func leavesProgramOpen(program string, named []string) bool {
	b, builds := builders()[program]
	switch {
	case facts.IsShell(program) || remoteShells[program]:
		return true
	case searchers[program]:
		return false
	case builds && !b.whole && !b.anyTarget:
		own := len(named) > 0 && (b.patterns[named[0]] || b.exact[named[0]] || scripts[program+" "+named[0]])
		return !own && !slices.ContainsFunc(named, func(w string) bool { return !isRunning(w) })
	}
	return !builds && interprets(program) && !slices.ContainsFunc(named, func(w string) bool { return !isRunning(w) })
}

var (
	remoteShells = set([]string{"ssh", "rsh", "xargs", "parallel", "su"})
	// searchers run a program only by an option, and free words are no options.
	searchers = set([]string{"find", "fd", "fdfind"})
	// scripts run what a file of the project names, as make does.
	scripts = set([]string{"npm run", "pnpm run", "yarn run", "cargo run"})
)

// IsOneArgv says whether command patterns look like the words of one command.
func IsOneArgv(patterns []string) bool {
	if len(patterns) < 2 || slices.ContainsFunc(patterns, func(p string) bool { return len(strings.Fields(p)) != 1 }) {
		return false
	}
	b, builds := builders()[patterns[0]]
	_, also := builders()[patterns[1]]
	return builds && (b.patterns[patterns[1]] || b.exact[patterns[1]] || b.anyTarget && !also && !openers()[patterns[1]])
}

// LinkedFolder returns the folder of a path pattern and where it leads, if its links lead
// elsewhere: then no allow matches.
func LinkedFolder(glob string, resolve func(string) (string, error)) (folder, leads string) {
	p, err := parsePath(glob)
	if err != nil {
		return "", ""
	}
	folder = p.glob
	if strings.ContainsAny(p.glob, meta) {
		folder = path.Clean(literalFolder(p.glob))
	}
	if leads, err = resolve(folder); err != nil || leads == folder {
		return "", ""
	}
	return folder, leads
}

// IsOpenPlace says whether a condition of an allow matches every path, every host, or every
// host of a top-level domain.
func (c Condition) IsOpenPlace(kind string) (pattern string, open bool) {
	for _, text := range c.Is {
		switch p := newPattern(text); {
		case kind == facts.TypePath && (text == "/**" || text == "/**/*"),
			(kind == facts.TypeURL || kind == facts.TypeHost) && p.place != nil && p.place.below && !strings.Contains(p.place.host, "."):
			return text, true
		}
	}
	if kind == facts.TypeURL && slices.Contains([]string{".*", ".+", "^.*$", "^.+$", "https?://.*", "https://.*"}, c.Matches) {
		return c.Matches, true
	}
	return "", false
}

// AlwaysAsks says whether a capability asks each time, so that an allow needs a condition on
// every argument.
func AlwaysAsks(capability string) bool {
	c, ok := facts.CapabilityNamed(capability)
	return ok && c.Default == facts.AskAlways
}

// Unconditioned lists the arguments of a tool that each request has and on which the rule has
// no condition, sorted. members says that one on a member counts.
func (r *Rule) Unconditioned(args map[string]approval.Argument, members bool) (missing []string) {
	for name, a := range args {
		on := func(c Condition) bool { return c.Field == name || members && strings.HasPrefix(c.Field, name+".") }
		if !a.Optional && !slices.ContainsFunc(r.Args, on) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}
