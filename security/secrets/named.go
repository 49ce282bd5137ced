package secrets

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// In a command, any word may be a program, a script, a file or a host to the program that
// gets it. So only what is named a secret there may be masked.
const secretName = `(?:token|secret|password|passwd|passphrase|api[-_]?key|access[-_]?key|secret[-_]?key|credential)s?`

var (
	namedValue = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:` + secretName + `|authorization|cookie)["']? ?[:=] ?["']?(?:(?:bearer|basic|token) )?["']?$`)
	})
	scheme = regexp.MustCompile(`(?i)\b(?:bearer|basic) ["']?$`)
	option = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^--?[a-z0-9_-]*` + secretName + `$`)
	})
)

// isNamed says whether what precedes a token in its word, or the word before, names it a
// secret: "--token=", "Authorization: Bearer ", or --password.
func (w argWord) isNamed(line string, token int) bool {
	before := line[w.start:token]
	return namedValue().MatchString(before) || scheme.MatchString(before) ||
		option().MatchString(w.before) && strings.Trim(before, `"'`) == ""
}

// argWord is an argument in a command line.
type argWord struct {
	start, end int
	before     string // the word before it
}

// runPlaces are the arguments that stand in a URL, or in an element of an argv that is a path: what
// they say there is a place.
func runPlaces(x approval.Runs) map[string]bool {
	at := map[string]bool{}
	add := func(parts []approval.Part) {
		for _, p := range parts {
			at[p.Arg] = true
		}
	}
	add(x.URL)
	for _, element := range x.Argv {
		if strings.Contains(operatorText(element), "/") {
			add(element)
		}
	}
	return at
}

// placeNames are members of JSON that say where something goes, or what runs.
var placeNames = strings.Fields("path file filename dir folder cwd url uri href host hostname domain server to cc bcc " +
	"recipient recipients address target destination command cmd argv args program script exec executable")

// isPlace says whether a value stands under a member that names a place, or too deep to
// tell.
func (l *leaf) isPlace() bool {
	names := strings.FieldsFunc(strings.ToLower(l.where), func(c rune) bool { return !isLetterIn(string(c)) })
	return strings.Contains(l.where, "…") ||
		slices.ContainsFunc(names, func(name string) bool { return slices.Contains(placeNames, name) })
}

// inHead says whether byte at of a diff is in a line that names a file.
func inHead(diff string, at int) bool {
	line := diff[strings.LastIndexByte(diff[:at], '\n')+1:]
	return line == "" || !strings.ContainsAny(line[:1], " +-") ||
		strings.HasPrefix(line, "+++ ") || strings.HasPrefix(line, "--- ")
}

// allowed drops the tokens that stand where they may not be masked.
func allowed(l *leaf, all []token) []token {
	var words []argWord
	switch {
	case l.mask == maskText || len(all) == 0:
		return all
	case l.mask == maskDiff:
		return slices.DeleteFunc(all, func(t token) bool { return inHead(l.shown, t.Start) })
	case l.mask == maskLine:
		words = arguments(l.shown)
	case l.mask == maskNamed:
		words = []argWord{{0, len(l.shown), ""}}
	case !strings.ContainsAny(l.shown, operators):
		words = []argWord{{0, len(l.shown), l.before}}
	}
	return slices.DeleteFunc(all, func(t token) bool {
		return !slices.ContainsFunc(words, func(w argWord) bool {
			return w.start <= t.Start && t.End <= w.end && w.isNamed(l.shown, t.Start)
		})
	})
}

// operators have a meaning for a shell.
const operators = ";|&<>()$`\\{}!*?[]#\n"

// arguments are the words of the simple commands in a line that are neither a place nor an
// assignment nor a script, and in which nothing has a meaning for a shell.
func arguments(line string) (words []argWord) {
	shell, err := facts.ParseCommand(line)
	if err != nil || shell.Unread {
		return nil
	}
	scripts := map[int]bool{} // commands with a word that is a script
	for _, c := range shell.Commands {
		if c.How == facts.Script {
			scripts[c.In] = true
		}
	}
	for i, c := range shell.Commands {
		if scripts[i] || len(c.Words) == 0 {
			continue
		}
		places := c.Places()
		for i, w := range c.Words[1:] {
			if slices.Contains(places, w) {
				continue
			}
			if w.Fixed && w.End > w.Start && !strings.ContainsAny(line[w.Start:w.End], operators) {
				words = append(words, argWord{w.Start, w.End, c.Words[i].Text})
			}
		}
	}
	return words
}
