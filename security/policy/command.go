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

	"mvdan.cc/sh/v3/syntax"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// actionExec is the release-only action whose grant is for one command line.
const actionExec = "exec_cmd"

// exactOf is the digest of the command line of a release-only exec_cmd, "" for any
// other request and for a command line that no grant can cover.
func exactOf(f *approval.Facts) string {
	if f.Tool != "" || f.ActionType != actionExec {
		return ""
	}
	d, err := ExactCommand(f.Args)
	if err != nil {
		return ""
	}
	return d
}

// notCoverable is a digest that no grant has.
const notCoverable = "never"

// exactFor is the value of Exact of a grant that covers the request.
func exactFor(f *approval.Facts, exact string) string {
	if f.Tool == "" && f.ActionType == actionExec && exact == "" {
		return notCoverable
	}
	return exact
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
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil || len(file.Stmts) != 1 || len(file.Last) > 0 {
		return nil, errOperators
	}
	s := file.Stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(s.Redirs) > 0 || s.Negated || s.Background || s.Coprocess || len(s.Comments) > 0 || s.Semicolon.IsValid() {
		return nil, errOperators
	}
	words := make([]string, 0, len(call.Args))
	for _, w := range call.Args {
		text, ok := literalWord(w)
		if !ok {
			return nil, errOperators
		}
		words = append(words, text)
	}
	return words, nil
}

func literalWord(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, "*?[]{}~\\!^") {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			if p.Dollar || len(p.Parts) > 1 {
				return "", false
			}
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok || strings.Contains(lit.Value, "\\") {
					return "", false
				}
				b.WriteString(lit.Value)
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}

// opensProgram says whether a program can open a shell, an interpreter, an
// editor, a pager or another program. It checks the arguments too, because many
// programs take another program as an argument.
func opensProgram(words []string) bool {
	name := path.Base(words[0])
	if name == "" || name == "." || name == "/" || strings.ContainsAny(words[0], "\x00\n") {
		return true
	}
	if openers[strings.TrimRight(name, "0123456789.-")] || openers[name] {
		return true
	}
	return slices.ContainsFunc(words[1:], func(w string) bool {
		base := path.Base(w)
		return strings.ContainsAny(w, "\x00\n;|&`$<>") || shells[base]
	})
}

// names are the words of the lists, without the lines that begin with #.
func names(lists ...string) map[string]bool {
	m := map[string]bool{}
	for _, l := range lists {
		for line := range strings.Lines(l) {
			if !strings.HasPrefix(line, "#") {
				maps.Copy(m, set(strings.Fields(line)))
			}
		}
	}
	return m
}

const shellNames = `sh bash dash ash zsh fish ksh mksh pdksh csh tcsh rbash sash busybox toybox elvish nu pwsh powershell
	xonsh slsh wish tclsh tasksh jjs jshell`

// shells may not be any word of a command that a grant covers.
var shells = names(shellNames)

// openers are programs that run other programs, read a script, or open an editor or
// a pager. A version suffix (python3.11) is cut before the lookup. If a name is
// missing, a grant can cover one exact command line that an approver approved. If a
// name is superfluous, an approver is asked once more.
var openers = names(shellNames, openersFile)

//go:embed openers.txt
var openersFile string
