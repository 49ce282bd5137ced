package ruletest

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is one word of a command. What a shell would put in place of an open word cannot be
// told. A fuzzy word is one that shells read in different ways.
type word struct {
	text        string
	open, fuzzy bool
	quoted      bool
}

// commands answers for a line or a list of words, and one pattern or a list.
func (j judge) commands(condition, value any) Answer {
	patterns := texts(condition)
	if len(patterns) == 0 {
		return Unknown
	}
	switch v := value.(type) {
	case string:
		if j.narrow {
			return narrowLine(patterns, v)
		}
		found := &search{}
		found.line(v)
		return found.answer(patterns)
	case []any:
		var words []word
		for _, x := range v {
			s, ok := x.(string)
			if !ok {
				return Unknown
			}
			words = append(words, word{text: s})
		}
		if len(words) == 0 {
			return Unknown
		}
		if j.narrow {
			return narrowCommand(patterns, words)
		}
		found := &search{unsure: strings.ContainsAny(words[0].text, " \t\n;|&$`")} // a tool may make a line of them
		found.command(words, plainly)
		return found.answer(patterns)
	}
	return Unknown
}

func parse(line string) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)).Parse(strings.NewReader(line), "")
}

// narrowLine matches a line of simple commands, each of which matches.
func narrowLine(patterns []string, line string) Answer {
	file, err := parse(line)
	if err != nil || len(file.Stmts) == 0 || strings.ContainsAny(line, "\x00\r") {
		return No
	}
	all := Yes
	syntax.Walk(file, func(n syntax.Node) bool {
		if _, comment := n.(*syntax.Comment); comment {
			all = No
		}
		return true
	})
	for _, s := range file.Stmts {
		all = every(all, narrowStatement(patterns, s))
	}
	if strings.Contains(line, "\\\n") {
		all |= No
	}
	return all
}

func narrowStatement(patterns []string, s *syntax.Stmt) Answer {
	if s.Background || s.Coprocess || s.Negated || s.Disown || len(s.Redirs) > 0 {
		return No
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Assigns) > 0 || len(c.Args) == 0 {
			return No
		}
		var words []word
		for _, w := range c.Args {
			words = append(words, wordOf(w))
		}
		return narrowCommand(patterns, words)
	case *syntax.BinaryCmd:
		if c.Op == syntax.PipeAll {
			return No
		}
		return every(narrowStatement(patterns, c.X), narrowStatement(patterns, c.Y))
	}
	return No
}

func narrowCommand(patterns []string, words []word) Answer {
	if slices.ContainsFunc(words, func(w word) bool { return w.open }) {
		return No
	}
	all := No
	for _, p := range patterns {
		strict, liberal := matchWords(patternOf(p), words, nil, false), matchWords(patternOf(p), words, nil, true)
		switch {
		case strict && (words[0].quoted || slices.ContainsFunc(words, func(w word) bool { return w.fuzzy })): // a program is exactly as written
			all = No | Yes
		case strict:
			return Yes
		case liberal:
			all = No | Yes
		}
	}
	return all
}

// wordOf is the word that a shell makes of its parts.
func wordOf(w *syntax.Word) (all word) {
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			all.literal(p.Value, i == 0)
		case *syntax.SglQuoted:
			all.text += p.Value
			all.open = all.open || p.Dollar
			all.quoted = true
		case *syntax.DblQuoted:
			all.open, all.quoted = all.open || p.Dollar, true
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					all.open = true
					continue
				}
				all.text += unescape(lit.Value, "$`\"\\\n")
			}
		default:
			all.open = true
		}
	}
	return all
}

// literal adds a part without quotes.
func (w *word) literal(s string, first bool) {
	if first && strings.HasPrefix(s, "~") {
		w.open = true
	}
	bare := s
	for i := 0; i+1 < len(bare); i++ { // what is escaped is no glob
		if bare[i] == '\\' {
			bare = bare[:i] + bare[i+2:]
			i--
		}
	}
	if strings.ContainsAny(bare, "*?[") {
		w.open = true
	}
	if open := strings.IndexByte(bare, '{'); open >= 0 && bare != "{}" {
		if strings.Contains(bare[open:], ",") || strings.Contains(bare[open:], "..") {
			w.open = true
		}
		w.fuzzy = true
	}
	if strings.ContainsAny(bare, "=:") && strings.Contains(bare, "~") || strings.ContainsAny(bare, "!^#") {
		w.fuzzy = true
	}
	w.quoted = w.quoted || strings.Contains(s, `\`)
	w.text += unescape(s, "")
}

// unescape removes backslashes: before any character, or those of some.
func unescape(s, of string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (of == "" || strings.IndexByte(of, s[i+1]) >= 0) {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// element is a word of a pattern, or the options in brackets.
type element struct {
	word    string
	options map[string]bool // by name: with a value
}

func patternOf(line string) (all []element) {
	var options map[string]bool
	last := ""
	for _, w := range strings.Fields(line) {
		opens, closes := false, false
		if options == nil {
			if w, opens = strings.CutPrefix(w, "["); opens {
				options = map[string]bool{}
			}
		}
		if options == nil {
			all = append(all, element{word: w})
			continue
		}
		if w, closes = strings.CutSuffix(w, "]"); w == "*" {
			options[last] = true
		} else if w != "" {
			options[w], last = false, w
		}
		if closes {
			all, options = append(all, element{options: options}), nil
		}
	}
	return all
}

// matchWords matches word by word, trying everything. Liberally, what can be read in two
// ways matches.
func matchWords(pattern []element, words []word, options map[string]bool, liberal bool) bool {
	if n := optionAt(words, options, liberal); n > 0 && matchWords(pattern, words[n:], options, liberal) {
		return true
	}
	if len(pattern) == 0 {
		return len(words) == 0
	}
	rest := pattern[1:]
	switch e := pattern[0]; {
	case e.options != nil:
		more := map[string]bool{}
		for _, all := range []map[string]bool{options, e.options} {
			for name, value := range all {
				more[name] = value
			}
		}
		return matchWords(rest, words, more, liberal)
	case e.word == "...":
		return matchWords(rest, words, options, liberal) ||
			len(words) > 0 && words[0].isFree(liberal) && matchWords(pattern, words[1:], options, liberal)
	case len(words) == 0:
		return false
	case e.word == "*":
		ok := !strings.HasPrefix(words[0].text, "-") && (liberal || words[0].text != "" && !strings.ContainsAny(words[0].text, lineBreaks))
		return ok && matchWords(rest, words[1:], options, liberal)
	default:
		return words[0].text == e.word && matchWords(rest, words[1:], options, liberal)
	}
}

// optionAt is how many words an option of brackets takes.
func optionAt(words []word, options map[string]bool, liberal bool) int {
	if len(words) == 0 {
		return 0
	}
	value, known := options[words[0].text]
	switch name, _, joined := strings.Cut(words[0].text, "="); {
	case known && !value:
		return 1
	case known && len(words) > 1 && !strings.HasPrefix(words[1].text, "-"):
		return 2
	case joined && options[name] && (strings.HasPrefix(name, "--") || liberal):
		return 1
	}
	return 0
}

const (
	freeCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./,@%+~^-"
	// runners are programs and subcommands that certainly run others.
	runners = " sh bash dash zsh ksh env sudo doas xargs eval exec nohup nice time timeout command busybox " +
		"python python3 perl ruby node awk ssh setsid su parallel "
)

// isFree reports a word that ... may stand for.
func (w word) isFree(liberal bool) bool {
	s := w.text
	outside := slices.Contains(strings.Split(s, "/"), "..")
	if s == "" || strings.Trim(s, freeCharacters) != "" || strings.ContainsAny(s[:1], "-/+") || outside {
		return false
	}
	if isRunner := strings.Contains(runners, " "+path.Base(s)+" "); isRunner {
		return liberal && s != path.Base(s)
	}
	surely := !w.fuzzy && (!strings.Contains(s, "..") || strings.Contains(s, "/...")) && plainWord(s)
	return liberal || surely
}

// plainWord reports a word that names no program.
func plainWord(s string) bool {
	return strings.ContainsAny(s, "./^@0123456789_") && !strings.ContainsAny(s, "~") || slices.Contains([]string{"src", "main", "origin", "HEAD", "docs"}, s)
}

// how certain it is that a command of a line runs.
type certainty int

const (
	plainly    certainty = iota // it stands there
	behind                      // another program runs it
	perhaps                     // some word of a command that runs others
	deepest    = 8
	shellNames = " sh bash dash ash zsh ksh mksh rbash fish csh tcsh "
)

// search collects the commands of a line.
type search struct {
	commands []foundCommand
	unknown  bool // not everything can be seen
	unsure   bool // perhaps not
	fed      bool // a pipe or a document feeds a program
	wrapped  bool // another program runs the commands
	depth    int
}

type foundCommand struct {
	words []word
	how   certainty
}

// line collects the commands of a line, at any depth.
func (f *search) line(line string) {
	if f.depth++; f.depth > deepest {
		f.unknown = true
		return
	}
	defer func() { f.depth-- }()
	file, err := parse(line)
	if err != nil {
		f.unknown = true
		return
	}
	comment := strings.Contains(line, "#") && strings.Contains(line, "\\\n") // its end is not where the parser sees it
	f.unsure = f.unsure || comment || strings.ContainsAny(line, "\r\x00")
	if other, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(line), ""); err == nil {
		f.otherShell(other)
	}
	f.file(file)
}

// otherShell collects the commands that a shell finds which is not bash.
func (f *search) otherShell(file *syntax.File) {
	inner := &search{depth: f.depth, wrapped: true, fed: f.fed}
	inner.file(file)
	f.commands = append(f.commands, inner.commands...)
	f.unsure = f.unsure || inner.unsure || inner.unknown
}

func (f *search) file(file *syntax.File) {
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.FuncDecl:
			f.unknown = true
		case *syntax.Stmt:
			f.behindBoth(n)
		case *syntax.BinaryCmd:
			f.fed = f.fed || n.Op == syntax.Pipe || n.Op == syntax.PipeAll
		case *syntax.Redirect:
			if f.fed = f.fed || strings.Contains(n.Op.String(), "<"); n.Op == syntax.WordHdoc && n.Word != nil {
				f.fromInput(wordOf(n.Word).text)
			} else if n.Hdoc != nil {
				f.fromInput(wordOf(n.Hdoc).text)
			}
		case *syntax.CallExpr:
			var words []word
			for _, w := range n.Args {
				words = append(words, wordOf(w))
			}
			if len(words) > 0 && f.wrapped {
				f.command(words, behind)
			} else if len(words) > 0 {
				f.command(words, plainly)
			}
		case *syntax.TestClause, *syntax.ArithmCmd, *syntax.CoprocClause: // another shell knows none of these
			f.unknown = true
		case *syntax.DeclClause, *syntax.LetClause, *syntax.TimeClause, *syntax.CStyleLoop:
			f.unsure = true
		}
		return true
	})
}

// behindBoth collects the words behind &>: dash takes it for the end of a command, and for a
// redirection of the next one.
func (f *search) behindBoth(s *syntax.Stmt) {
	call, ok := s.Cmd.(*syntax.CallExpr)
	for _, r := range s.Redirs {
		if !ok || r.Op != syntax.RdrAll && r.Op != syntax.AppAll {
			continue
		}
		var words []word
		for _, w := range call.Args {
			if w.Pos().After(r.Pos()) {
				words = append(words, wordOf(w))
			}
		}
		if len(words) > 0 {
			f.unknown = true
			f.behind(words)
		}
	}
}

// fromInput collects what a shell may read.
func (f *search) fromInput(line string) {
	inner := &search{depth: f.depth}
	inner.line(line)
	for _, c := range inner.commands {
		f.commands = append(f.commands, foundCommand{c.words, perhaps})
	}
}

// wrappers run the command that follows their options.
const wrappers = " sudo doas env nice nohup time timeout command exec builtin setsid stdbuf xargs busybox watch " +
	"strace ionice chroot parallel ltrace unshare nsenter flock su toybox catchsegv "

// optionValues are options of wrappers that take the next word.
const optionValues = " -u -g -n -I -L -P -d -s -k -C -S -p -r -a -o "

// command collects a command, and what it runs.
func (f *search) command(words []word, how certainty) {
	f.commands = append(f.commands, foundCommand{words, how})
	if words[0].open {
		f.unknown = true
		f.each(words[1:])
		return
	}
	f.unsure = f.unsure || words[0].fuzzy || strings.HasPrefix(path.Base(words[0].text), "-") || strings.HasPrefix(words[0].text, "=") ||
		strings.ContainsAny(words[0].text, " \t\n;|&$`[]!~*?")
	program := strings.ToLower(path.Base(words[0].text))
	is := func(names string) bool { return strings.Contains(names, " "+program+" ") }
	switch {
	case is(shellNames):
		f.shell(words[1:])
	case program == "eval":
		var all []string
		for _, w := range words[1:] {
			f.unknown = f.unknown || w.open
			all = append(all, w.text)
		}
		f.inside(strings.Join(all, " "))
	case program == "." || program == "source" || program == "alias":
		f.unknown = true
		for _, w := range words[1:] {
			_, line, _ := strings.Cut(w.text, "=")
			f.fromInput(line)
		}
	case program == "find":
		f.find(words)
	case is(wrappers):
		f.wrapper(program, words[1:])
	case is(runners) || is(" ssh docker podman kubectl git make npm npx go script tmux screen expect ld.so vim vi ed less man tar zip rsync scp socat crontab at batch trap fc hash enable systemd-run runuser pkexec taskset setpriv chrt prlimit valgrind gosu bwrap firejail pwsh uv chpasswd php lua tclsh gdb "):
		f.unsure = true
		f.each(words[1:])
	}
}

// each collects every rest of words as a command that may run.
func (f *search) each(words []word) {
	if f.depth >= 3 {
		f.unsure = true
		return
	}
	for i := range words {
		inner := &search{depth: f.depth + 1, fed: f.fed}
		inner.command(words[i:], perhaps)
		for _, c := range inner.commands {
			f.commands = append(f.commands, foundCommand{c.words, perhaps})
		}
		f.unsure = f.unsure || inner.unsure || inner.unknown
	}
}

// inside collects the commands of a line inside a line. A program in it may run any of its
// words.
func (f *search) inside(line string) {
	before := len(f.commands)
	f.line(line)
	for _, c := range slices.Clone(f.commands[before:]) {
		f.each(c.words[min(1, len(c.words)):])
	}
}

func (f *search) shell(words []word) {
	for i, w := range words {
		isOption := strings.HasPrefix(w.text, "-") || strings.HasPrefix(w.text, "+")
		switch {
		case w.open:
			f.unknown = true
			return
		case !isOption:
			f.unsure = true // a file
			return
		case strings.HasPrefix(w.text, "--"):
			f.unsure = true
			if len(words) == 1 && (w.text == "--version" || w.text == "--help") {
				f.unsure = true
				return
			}
		case strings.HasPrefix(w.text, "-") && strings.Contains(w.text, "c"):
			rest := words[i+1:]
			for len(rest) > 0 && strings.HasPrefix(rest[0].text, "-") {
				rest, f.unsure = rest[1:], true
			}
			if len(rest) == 0 || rest[0].open {
				f.unknown = true
				return
			}
			f.inside(rest[0].text)
			f.unsure = f.unsure || len(rest) > 1
			return
		}
	}
	f.unsure, f.unknown = true, f.unknown || f.fed // it reads its input
}

func (f *search) find(words []word) {
	for i, w := range words {
		if !slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, w.text) || i+1 == len(words) {
			f.unknown = f.unknown || w.open && i > 0 && !strings.ContainsAny(w.text, "*?[")
			continue
		}
		run := slices.Clone(words[i+1:])
		if end := slices.IndexFunc(run, func(w word) bool { return w.text == ";" || w.text == "+" }); end > 0 {
			run = run[:end]
		}
		for k := range run {
			if strings.Contains(run[k].text, "{}") {
				run[k].open = true
			}
		}
		f.each(run[1:])
		f.behind(run)
	}
}

// behind collects what a program runs.
func (f *search) behind(words []word) {
	before := f.wrapped
	f.wrapped = true
	f.command(words, behind)
	f.wrapped = before
}

// wrapper collects what a wrapper runs: the first word that is neither an option nor an
// assignment. Options may have values, so each later word may be it as well.
func (f *search) wrapper(program string, words []word) {
	i, values := 0, false
	for i < len(words) && (strings.HasPrefix(words[i].text, "-") || strings.Contains(words[i].text, "=") && program != "xargs") {
		values = values || strings.Contains(optionValues, " "+words[i].text+" ") || strings.HasPrefix(words[i].text, "--")
		f.unknown = f.unknown || words[i].open
		if program == "env" && (strings.HasPrefix(words[i].text, "-S") || strings.HasPrefix(words[i].text, "--split")) {
			f.unsure = true
			if i+1 < len(words) {
				f.line(words[i+1].text)
			}
		}
		i++
	}
	if program == "timeout" || program == "flock" || program == "chroot" {
		i++
	}
	f.each(words)
	if c := slices.IndexFunc(words, func(w word) bool { return w.text == "-c" }); program == "su" && c >= 0 && c+1 < len(words) {
		f.line(words[c+1].text)
		f.unsure = true
	}
	if i >= len(words) {
		f.unsure = true
		return
	}
	run := slices.Clone(words[i:])
	if program == "xargs" || program == "parallel" {
		run = append(run, word{open: true})
	}
	if values {
		f.unsure = true
		before := f.unknown
		f.command(run, perhaps)
		if len(run) > 1 {
			f.command(run[1:], perhaps)
		}
		f.unsure = f.unsure || f.unknown != before
		f.unknown = before
		return
	}
	f.behind(run)
}

func (f *search) answer(patterns []string) Answer {
	all := No
	if f.unknown {
		all = Unknown
	}
	if f.unsure {
		all |= Unknown | No
	}
	for _, p := range patterns {
		for _, c := range f.commands {
			a := occurs(patternOf(p), c.words)
			if a == No && namesAnother(patternOf(p)[0].word, c.words) {
				a = No | Unknown
			}
			switch c.how {
			case behind:
				if a == Yes {
					a = Unknown | Yes
				}
			case perhaps:
				if a != No {
					a = No | Unknown | Yes
				}
			}
			all = some(all, a)
		}
	}
	return all
}

// namesAnother reports whether a word is the path of a program, or gives it to an option.
func namesAnother(program string, words []word) bool {
	return slices.ContainsFunc(words[min(1, len(words)):], func(w word) bool {
		return strings.Contains(w.text, "/") && strings.EqualFold(path.Base(w.text), program) || strings.ContainsAny(w.text, "=!") && strings.Contains(strings.ToLower(w.text), strings.ToLower(program))
	})
}

// occurs answers whether a command has the pattern's program and its other words.
func occurs(pattern []element, words []word) Answer {
	if len(pattern) == 0 || words[0].open {
		return No // the search has counted an open program
	}
	if !strings.EqualFold(path.Base(words[0].text), path.Base(pattern[0].word)) {
		return No
	}
	all, rest := Yes, words[1:]
	for _, e := range pattern[1:] {
		switch {
		case e.options != nil || e.word == "..." || e.word == "*":
		case strings.HasPrefix(e.word, "-"):
			all = every(all, optionOccurs(e.word, words[1:]))
		default:
			i := slices.IndexFunc(rest, func(w word) bool { return !w.open && w.text == e.word })
			if i < 0 {
				all, rest = No, nil
			} else {
				rest = rest[i+1:]
			}
		}
	}
	open := slices.ContainsFunc(words, func(w word) bool { return w.open })
	if all == No && open {
		return Unknown
	}
	if all == No && slices.ContainsFunc(words, func(w word) bool { return strings.Contains(w.text, "^") }) {
		return No | Unknown // zsh can take it for a pattern
	}
	if all.Has(No) && open {
		return all | Unknown
	}
	return all
}

// optionOccurs finds an option: in one word, in several, abbreviated, or with a value.
func optionOccurs(option string, words []word) Answer {
	letters := map[rune]bool{}
	all, long := No, strings.TrimLeft(option, "-")
	for _, w := range words {
		name, _, joined := strings.Cut(w.text, "=")
		bare, isLong := strings.CutPrefix(name, "--")
		switch {
		case w.text == option:
			return Yes
		case isLong && bare == long, isLong && len(bare) > 1 && len(long) > 1 && strings.HasPrefix(long, bare):
			return Yes
		case isLong && bare != "" && (strings.HasPrefix(long, bare) || strings.HasPrefix(bare, long)),
			strings.HasPrefix(name, "-") && strings.TrimLeft(name, "-") == long && (joined || len(long) > 1):
			all = No | Unknown | Yes // an option of one letter, or one dash for two
		}
		if strings.HasPrefix(w.text, "-") && !isLong {
			for _, r := range w.text[1:] {
				letters[r] = true
			}
		}
	}
	if missing := strings.IndexFunc(long, func(r rune) bool { return !letters[r] }); missing < 0 && !strings.HasPrefix(option, "--") {
		return Yes
	}
	return all
}
