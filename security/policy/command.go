package policy

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// actionExec is the release-only action whose grant is for one command line.
const actionExec = "exec_cmd"

// command is the one command of a request.
type command struct {
	words []string
	rest  string // digest of everything else in request_data, and of how the command is given
}

// commandOf returns the command of a request that a grant can cover only as a whole, and
// the digest of the request. why says why no grant can cover it. A tool's command has no
// words if the tool does not declare exactly one.
func commandOf(f *approval.Facts) (c command, exact string, why approval.Reason) {
	if !onlyAgain(f) {
		return c, "", approval.Because("command_none")
	}
	fields, err := codec.Fields(f.Args)
	commands, rest := splitFields(f, fields)
	if err != nil || f.Tool == "" && len(commands) != 1 {
		return c, "", approval.Because("command_none")
	}
	for _, x := range commands {
		if c.words, why = wordsOf(x); why.IsZero() {
			why = refuseCommand(c.words)
		}
		if !why.IsZero() {
			return command{}, "", why
		}
	}
	exact = digestWords(c.words, rest)
	if f.Tool != "" {
		exact = digestWords([]string{f.Tool}, fields)
	}
	if len(commands) != 1 {
		return command{}, exact, approval.Reason{}
	}
	c.rest = digestWords([]string{commands[0].Name, string(commands[0].Value.Kind())}, rest)
	return c, exact, approval.Reason{}
}

// splitFields separates the commands of a request from its other arguments.
func splitFields(f *approval.Facts, fields []codec.Field) (commands, rest []codec.Field) {
	for _, x := range fields {
		if holdsCommand(f, x.Name) {
			commands = append(commands, x)
		} else {
			rest = append(rest, x)
		}
	}
	return commands, rest
}

// holdsCommand says whether an argument is a command line.
func holdsCommand(f *approval.Facts, name string) bool {
	if f.Tool == "" {
		return name == "argv" || name == "command" || name == "cmd"
	}
	return f.Declared[name].Type == facts.TypeCommand
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

func wordsOf(f codec.Field) ([]string, approval.Reason) {
	if line, ok := f.Text(); ok {
		return splitLine(line)
	}
	items, err := codec.Items(f.Value)
	if err != nil {
		return nil, approval.Because("command_none")
	}
	words := make([]string, 0, len(items))
	for _, it := range items {
		w, ok := codec.Field{Value: it}.Text()
		if !ok {
			return nil, approval.Because("command_none")
		}
		words = append(words, w)
	}
	return words, approval.Reason{}
}

// splitLine splits one simple command of literal words. It refuses anything else.
func splitLine(line string) ([]string, approval.Reason) {
	s, err := facts.ParseCommand(line)
	if err != nil || !s.Plain {
		return nil, approval.Because("command_shell")
	}
	words := make([]string, len(s.Commands[0].Words))
	for i, w := range s.Commands[0].Words {
		words[i] = w.Text
	}
	return words, approval.Reason{}
}

// refuseCommand says why no grant may cover a command: the agent can rewrite its program,
// or what runs depends on its input.
func refuseCommand(words []string) approval.Reason {
	if len(words) == 0 {
		return approval.Because("command_none")
	}
	program, name := words[0], path.Base(words[0])
	if name == ".." || strings.Contains(program, "/") && !systemFolders[path.Dir(program)] {
		return approval.Because("command_path", "program", program)
	}
	if interprets(name) {
		return approval.Because("command_interprets", "program", name)
	}
	for i, w := range words {
		switch {
		case strings.ContainsAny(w, "\x00\n;|&`$<>"):
			return approval.Because("command_shell")
		case i > 0 && startsProgram(w):
			return approval.Because("command_interprets", "program", w)
		}
	}
	return refuseSubcommand(words)
}

var systemFolders = set(strings.Fields("/bin /sbin /usr/bin /usr/sbin /usr/local/bin /usr/local/sbin"))

// interprets says whether a program runs what it reads, or other programs. Many programs
// have a version in their name.
func interprets(name string) bool {
	return slices.ContainsFunc([]string{name, strings.TrimRight(name, "0123456789.-")}, func(n string) bool {
		return facts.IsInterpreter(n) || openers()[n]
	}) || slices.ContainsFunc(openerPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// startsProgram says whether an argument, or the value of an option, is a shell, an
// interpreter, or the address of a program.
func startsProgram(w string) bool {
	_, value, _ := strings.Cut(w, "=")
	return slices.ContainsFunc([]string{w, value}, func(s string) bool {
		named := !strings.Contains(s, "/") || strings.HasPrefix(s, "/")
		return facts.IsShell(s) || named && facts.IsInterpreter(s) || strings.HasPrefix(s, "ext::")
	})
}

// refuseSubcommand says why no grant may cover what a program with subcommands would do.
func refuseSubcommand(words []string) approval.Reason {
	b, ok := builders()[path.Base(words[0])]
	switch {
	case !ok:
		return approval.Reason{}
	case len(words) > 1 && b.anyTarget && target.MatchString(words[1]), b.whole:
	case len(words) < 2 || !b.patterns[words[1]] && !b.exact[words[1]]:
		return approval.Because("command_sub", "program", path.Base(words[0]))
	}
	if i := slices.IndexFunc(words, assigns); i >= 0 {
		return approval.Because("command_option", "option", words[i])
	}
	return refuseOption(words)
}

// assigns says whether a word is NAME=value, as make and others read it.
func assigns(w string) bool { return !strings.HasPrefix(w, "-") && strings.Contains(w, "=") }

// refuseOption finds an option that names a program, or a file that does. Options may be
// shortened.
func refuseOption(words []string) approval.Reason {
	for _, w := range words[1:] {
		name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
		if strings.HasPrefix(w, "-") && len(name) > 2 &&
			slices.ContainsFunc(runningOptions, func(o string) bool { return strings.HasPrefix(o, name) }) {
			return approval.Because("command_option", "option", w)
		}
	}
	return approval.Reason{}
}

var runningOptions = strings.Fields(`exec execdir toolexec vettool exec-path eval command checkpoint-action to-command
	use-compress-program rsh rsync-path upload-pack receive-pack ext-diff textconv open-files-in-pager pager editor shell
	config config-file config-env kubeconfig rcfile init-script init-file require import loader preload plugin hook
	node-options script-shell compiler-wrapper wrapper rustc-wrapper overlay extld`)

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
var openers = sync.OnceValue(func() map[string]bool { return names(openersFile) })

var openerPrefixes = strings.Fields("ld-linux ld-musl ld.so ld64 qemu- s6- wine proxychains")

//go:embed openers.txt
var openersFile string

// builder is a program that does different things by its first word.
type builder struct {
	patterns, exact map[string]bool // subcommands that a pattern may name, and others that only the same request has
	anyTarget       bool            // its words are names that a file of the project defines
	whole           bool            // it has no subcommands
}

var target = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

var builders = sync.OnceValue(func() map[string]builder { return buildersOf(buildersFile) })

//go:embed builders.txt
var buildersFile string

// buildersOf reads lines "programs: subcommands | subcommands".
func buildersOf(list string) map[string]builder {
	m := map[string]builder{}
	for line := range strings.Lines(list) {
		programs, rest, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		patterns, exact, _ := strings.Cut(rest, "|")
		b := builder{patterns: set(strings.Fields(patterns)), exact: set(strings.Fields(exact))}
		b.anyTarget, b.whole = b.patterns["*"], len(b.patterns) == 0
		delete(b.patterns, "*")
		for name := range strings.FieldsSeq(programs) {
			m[name] = b
		}
	}
	return m
}
