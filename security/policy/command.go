package policy

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// actionExec is the release-only action whose grant is for one command line.
const actionExec = "exec_cmd"

// exactOf is the digest of a request that a grant can cover only as a whole: of a
// release-only exec_cmd its command line, of a tool all arguments. It is "" for any other
// request, and for a command that no grant can cover.
func exactOf(f *approval.Facts) string {
	if !onlyAgain(f) {
		return ""
	}
	if f.Tool == "" {
		d, err := ExactCommand(f.Args)
		if err != nil {
			return ""
		}
		return d
	}
	fields, err := codec.Fields(f.Args)
	if err != nil {
		return ""
	}
	for _, x := range fields {
		if f.Declared[x.Name].Type != facts.TypeCommand {
			continue
		}
		if words, err := wordsOf(x); err != nil || len(words) == 0 || opensProgram(words) {
			return ""
		}
	}
	return digestWords([]string{f.Tool}, fields)
}

// Reasons why no grant can cover a command line.
var (
	errNoCommand    = errors.New(`no command: request_data needs "argv", a list of strings, or "command", one line`)
	errOperators    = errors.New("a line with shell operators, expansions or patterns is asked each time")
	errOpensProgram = errors.New("what can open a shell, an interpreter, an editor or another program is asked each time")
)

// ExactCommand digests all of request_data: every word of the command, the working
// directory and any other member. It fails if no grant may cover the command.
func ExactCommand(args approval.Raw) (digest string, err error) {
	fields, err := codec.Fields(args)
	if err != nil {
		return "", err
	}
	var words []string
	var rest []codec.Field
	for _, f := range fields {
		switch f.Name {
		case "argv", "command", "cmd":
			if words != nil {
				return "", errNoCommand // unclear which of them would run
			}
			if words, err = wordsOf(f); err != nil {
				return "", err
			}
		default:
			rest = append(rest, f)
		}
	}
	if len(words) == 0 {
		return "", errNoCommand
	}
	if opensProgram(words) {
		return "", errOpensProgram
	}
	return digestWords(words, rest), nil
}

func digestWords(words []string, rest []codec.Field) string {
	h := sha256.New()
	put := func(s string) { h.Write([]byte(strconv.Itoa(len(s)) + ":" + s)) }
	put(strconv.Itoa(len(words)))
	for _, w := range words {
		put(w)
	}
	slices.SortFunc(rest, func(a, b codec.Field) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range rest {
		put(f.Name)
		put(string(compact(f.Value)))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func wordsOf(f codec.Field) ([]string, error) {
	if line, ok := f.Text(); ok {
		return splitLine(line)
	}
	items, err := codec.Items(f.Value)
	if err != nil {
		return nil, errNoCommand
	}
	words := make([]string, 0, len(items))
	for _, it := range items {
		w, ok := codec.Field{Value: it}.Text()
		if !ok {
			return nil, errNoCommand
		}
		words = append(words, w)
	}
	return words, nil
}

// splitLine splits one simple command of literal words. It refuses anything else.
func splitLine(line string) ([]string, error) {
	s, err := facts.ParseCommand(line)
	if err != nil || !s.Plain {
		return nil, errOperators
	}
	words := make([]string, len(s.Commands[0].Words))
	for i, w := range s.Commands[0].Words {
		words[i] = w.Text
	}
	return words, nil
}

// opensProgram says whether a program can open a shell, an interpreter, an
// editor, a pager or another program. It checks the arguments too, because many
// programs take another program as an argument.
func opensProgram(words []string) bool {
	name := path.Base(words[0])
	if name == "" || name == "." || name == "/" || strings.ContainsAny(words[0], "\x00\n") {
		return true
	}
	for _, n := range []string{name, strings.TrimRight(name, "0123456789.-")} {
		if facts.IsShell(n) || openers[n] {
			return true
		}
	}
	return slices.ContainsFunc(words[1:], func(w string) bool {
		return strings.ContainsAny(w, "\x00\n;|&`$<>") || facts.IsShell(w)
	})
}

// names are the words of a list, without the lines that begin with #.
func names(list string) map[string]bool {
	m := map[string]bool{}
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, "#") {
			maps.Copy(m, set(strings.Fields(line)))
		}
	}
	return m
}

// openers are programs that run other programs, read a script, or open an editor or
// a pager. A version suffix (python3.11) is cut before the lookup. If a name is
// missing, a grant can cover one exact command line that an approver approved. If a
// name is superfluous, an approver is asked once more.
var openers = names(openersFile)

//go:embed openers.txt
var openersFile string
