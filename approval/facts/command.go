package facts

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// Shell is a line for a shell, or an argv, as the simple commands that it consists
// of, in the order in which they are written.
type Shell struct {
	Commands []SimpleCommand
	Comments int      // how many comments it has
	Defines  []string // names of functions and aliases, which replace programs of this name
	Unread   bool     // a part is nested deeper than maxNested, or not valid: its commands are not listed
	Plain    bool     // one command of fixed words, without operators, assignments, redirects and comments
	Sequence bool     // only such commands, joined by && || ; | or line breaks
	Differs  bool     // shells read a part of it differently, and may run other commands
}

// SimpleCommand is one simple command.
type SimpleCommand struct {
	Words     []Word     // the program first; empty: only assignments or redirects
	Assigns   []Word     // NAME=value, before the program or alone
	Redirects []Redirect // also those of a group: { …; } > file
	From      int        // index of the command whose output it reads through a pipe; -1: none
	In        int        // index of the command that it is a part of; -1: none
	How       Nesting    // how it is a part of In
	Later     bool       // the shell does not wait for it: &
}

// Nesting says how a command is a part of another one.
type Nesting string

// The ways to nest a command.
const (
	Substitution Nesting = "substitution" // $(…), `…`, <(…), >(…)
	Script       Nesting = "script"       // sh -c '…', eval '…', alias x='…', sh <<EOF
)

// Word is one word of a command.
type Word struct {
	Text       string // what the program gets; if Open, the word as it is written
	Fixed      bool   // written so that no shell changes it
	Open       bool   // an expansion or a substitution changes it
	Start, End int    // its bytes in the line; 0, 0: it is not there as it is
}

// Redirect is a redirection of a command's input or output.
type Redirect struct {
	Op string // "<", ">", ">>", "<<", "<<<", "&>", …
	To Word   // file, descriptor, or text
}

// Writes says whether the redirect can change a file.
func (r Redirect) Writes() bool {
	if r.Op == ">&" {
		return strings.Trim(r.To.Text, "0123456789-") != ""
	}
	return r.Op == "<>" || strings.Contains(r.Op, ">") && r.Op != ">&"
}

// text says whether the redirect's input is text of the line.
func (r Redirect) text() bool { return strings.HasPrefix(r.Op, "<<") }

const (
	// maxNested bounds how deeply commands are looked for in substitutions and scripts.
	maxNested = 8
	// maxOpeners bounds the brackets of a line: the parser calls itself for each.
	maxOpeners = 10_000
)

// ErrNotParsed is returned for a line that is not valid bash.
var ErrNotParsed = errors.New("not a valid shell line")

// ParseCommand reads a line for bash. The error is ErrNotParsed.
func ParseCommand(line string) (s Shell, err error) {
	defer func() {
		if recover() != nil { // the parser takes lines that bash refuses
			s, err = Shell{}, ErrNotParsed
		}
	}()
	p := shellParser{Shell: &s, source: line}
	file, err := parseBash(line)
	if err != nil {
		return s, err
	}
	p.file(file, place{from: -1, in: -1})
	s.Differs = s.Differs || s.Comments > 0 && strings.Contains(line, "\\\n") // a comment ends at its line's end
	fixed := func(c SimpleCommand) bool {
		return c.In < 0 && len(c.Words) > 0 && !slices.ContainsFunc(c.Words, func(w Word) bool { return !w.Fixed })
	}
	s.Sequence = s.Comments == 0 && len(file.Stmts) > 0 && !slices.ContainsFunc(file.Stmts, isNoSequence) &&
		!slices.ContainsFunc(s.Commands, func(c SimpleCommand) bool { return c.In < 0 && !fixed(c) })
	s.Plain = s.Sequence && len(file.Stmts) == 1 && plainStmt(file.Stmts[0])
	return s, nil
}

// ParseArgv reads a command that no shell reads, and the scripts that it passes to a
// shell. The bytes of its words are those in the argv, joined by NUL characters.
func ParseArgv(argv []string) Shell {
	s := Shell{Plain: true, Sequence: true}
	p := shellParser{Shell: &s, source: strings.Join(argv, "\x00")}
	c := SimpleCommand{From: -1, In: -1}
	at := 0
	for _, w := range argv {
		c.Words = append(c.Words, Word{Text: w, Fixed: true, Start: at, End: at + len(w)})
		at += len(w) + 1
	}
	p.scripts(p.add(c), place{from: -1, in: -1})
	return s
}

// JoinWords writes words as a line that ParseCommand reads as these words.
func JoinWords(words []string) string {
	quoted := slices.Clone(words)
	for i, w := range words {
		if plainWord().MatchString(w) && (i > 0 || !strings.Contains(w, "=")) {
			continue
		}
		var err error
		if quoted[i], err = syntax.Quote(w, syntax.LangBash); err != nil {
			quoted[i] = strconv.Quote(w)
		}
	}
	return strings.Join(quoted, " ")
}

var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL\pN_./,:@%+-][\pL\pN_./,:@%+=-]*$`) })

func parseBash(text string) (*syntax.File, error) {
	openers := 0
	for i := range len(text) {
		switch text[i] {
		case 0, '\r':
			return nil, ErrNotParsed // a shell drops the one, and keeps the other, which the parser drops
		case '(', '{', '`', '[':
			openers++
		}
	}
	if openers > maxOpeners {
		return nil, ErrNotParsed
	}
	parser := syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true))
	file, err := parser.Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, ErrNotParsed
	}
	named := true // bash has no functions without a name
	syntax.Walk(file, func(n syntax.Node) bool {
		f, is := n.(*syntax.FuncDecl)
		named = named && (!is || f.Name != nil)
		return named
	})
	if !named {
		return nil, ErrNotParsed
	}
	return file, nil
}

func plainStmt(s *syntax.Stmt) bool {
	_, ok := s.Cmd.(*syntax.CallExpr)
	return ok && !isNoSequence(s) && !s.Semicolon.IsValid()
}

// isNoSequence says whether a statement is more than simple commands and && || | between them.
func isNoSequence(s *syntax.Stmt) bool {
	if len(s.Redirs) > 0 || s.Negated || s.Background || s.Coprocess {
		return true
	}
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		return len(cmd.Assigns) > 0
	case *syntax.BinaryCmd:
		return cmd.Op == syntax.PipeAll || isNoSequence(cmd.X) || isNoSequence(cmd.Y)
	}
	return true
}

// place says what a statement is a part of.
type place struct {
	from, in int
	how      Nesting
	later    bool
	depth    int
}

// shellParser lists the commands of one text, and of those inside it.
type shellParser struct {
	*Shell
	source string
	base   int  // where source begins in the line; -1: it is not there as it is
	listed bool // its substitutions are listed already
}

func (p shellParser) file(f *syntax.File, at place) {
	p.Comments += len(f.Last)
	for _, s := range f.Stmts {
		p.stmt(s, at)
	}
}

func (p shellParser) add(c SimpleCommand) int {
	p.Commands = append(p.Commands, c)
	return len(p.Commands) - 1
}

func (p shellParser) stmt(s *syntax.Stmt, at place) {
	p.Comments += len(s.Comments)
	at.later = at.later || s.Background || s.Coprocess
	c := SimpleCommand{From: at.from, In: at.in, How: at.how, Later: at.later, Redirects: p.redirects(s.Redirs)}
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		c.Assigns = p.assigns(cmd.Assigns)
		for _, w := range cmd.Args {
			c.Words = append(c.Words, p.word(w))
			// A POSIX shell reads echo &>f x as echo & and >f x.
			p.Differs = p.Differs || slices.ContainsFunc(s.Redirs, func(r *syntax.Redirect) bool {
				return (r.Op == syntax.RdrAll || r.Op == syntax.AppAll) && r.OpPos.Offset() < w.Pos().Offset()
			})
		}
	case *syntax.DeclClause:
		c.Words = []Word{{Text: cmd.Variant.Value, Fixed: true}}
		c.Assigns = p.assigns(cmd.Args)
	default:
		p.compound(s, c, at)
		return
	}
	p.simple(s, c, at)
}

// simple adds a command, what its substitutions run, and its scripts.
func (p shellParser) simple(s *syntax.Stmt, c SimpleCommand, at place) {
	i := p.add(c)
	inside := at
	inside.in = i
	if s.Cmd != nil {
		syntax.Walk(s.Cmd, p.visitor(inside))
	}
	for _, r := range s.Redirs {
		syntax.Walk(r, p.visitor(inside))
	}
	p.scripts(i, at)
}

// compound lists the commands of a statement that is not a simple command.
func (p shellParser) compound(s *syntax.Stmt, c SimpleCommand, at place) {
	if len(c.Redirects) > 0 || s.Cmd == nil {
		redirects := *s
		redirects.Cmd = nil
		p.simple(&redirects, c, at)
	}
	switch cmd := s.Cmd.(type) {
	case nil:
	case *syntax.BinaryCmd:
		p.binary(cmd, at)
	case *syntax.FuncDecl:
		p.Defines = append(p.Defines, cmd.Name.Value)
		p.stmt(cmd.Body, at)
	case *syntax.ArithmCmd, *syntax.TestClause, *syntax.CoprocClause:
		p.Differs = true // for a POSIX shell (( and [[ are no keywords
		syntax.Walk(cmd, p.visitor(at))
	default:
		syntax.Walk(cmd, p.visitor(at))
	}
}

func (p shellParser) binary(cmd *syntax.BinaryCmd, at place) {
	first := len(p.Commands)
	p.stmt(cmd.X, at)
	if cmd.Op == syntax.Pipe || cmd.Op == syntax.PipeAll {
		for i := len(p.Commands) - 1; i >= first; i-- {
			if p.Commands[i].In == at.in {
				at.from = i
				break
			}
		}
	}
	p.stmt(cmd.Y, at)
}

// visitor lists the statements below a node and those of its substitutions.
func (p shellParser) visitor(at place) func(syntax.Node) bool {
	return func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			p.stmt(n, at)
			return false
		case *syntax.CmdSubst:
			p.substitution(n.Stmts, n.Last, at)
			return false
		case *syntax.ProcSubst:
			p.substitution(n.Stmts, n.Last, at)
			return false
		case *syntax.Comment:
			p.Comments++
		}
		return true
	}
}

func (p shellParser) substitution(stmts []*syntax.Stmt, last []syntax.Comment, at place) {
	if p.listed {
		return
	}
	p.Comments += len(last)
	if at.depth++; at.depth > maxNested {
		p.Unread = true
		return
	}
	at.from, at.how = -1, Substitution
	for _, s := range stmts {
		p.stmt(s, at)
	}
}

// scripts lists the commands in the texts that command i gives to a shell. A text
// with expansions in it is parsed as it is written.
func (p shellParser) scripts(i int, at place) {
	for _, a := range p.Commands[i].aliases() {
		name, _, _ := strings.Cut(a.Text, "=")
		p.Defines = append(p.Defines, name)
	}
	for _, w := range scriptsOf(p.Commands[i]) {
		w = p.unquoted(w)
		inside := place{from: -1, in: i, how: Script, later: at.later, depth: at.depth + 1}
		file, err := parseBash(w.Text)
		if err != nil || inside.depth > maxNested {
			p.Unread = true
			continue
		}
		script := shellParser{Shell: p.Shell, source: w.Text, base: -1, listed: w.Open}
		if w.End > w.Start {
			script.base = w.Start
		}
		script.file(file, inside)
	}
}

// unquoted moves the bytes of a word inside its quotes. If its text is not the same
// there, the word is nowhere in the line.
func (p shellParser) unquoted(w Word) Word {
	if n := len(w.Text); w.Open && n > 1 && w.Text[0] == '"' && w.Text[n-1] == '"' {
		w.Text = w.Text[1 : n-1]
	}
	if w.End <= w.Start {
		return w
	}
	switch written := p.source[w.Start-p.base : w.End-p.base]; {
	case written == w.Text:
	case len(written) > 1 && written[1:len(written)-1] == w.Text:
		w.Start, w.End = w.Start+1, w.End-1
	default:
		w.Start, w.End = 0, 0
	}
	return w
}

func (p shellParser) redirects(rs []*syntax.Redirect) (all []Redirect) {
	for _, r := range rs {
		to := p.word(r.Word)
		if r.Hdoc != nil {
			to = p.hereDoc(r.Hdoc, to.Text)
		}
		all = append(all, Redirect{Op: r.Op.String(), To: to})
	}
	return all
}

// hereDoc is the text of a here-document, without the line that ends it.
func (p shellParser) hereDoc(body *syntax.Word, end string) Word {
	w := p.written(body)
	text := strings.TrimSuffix(w.Text, end)
	if w.End > 0 {
		w.End -= len(w.Text) - len(text)
	}
	w.Text = text
	return w
}

func (p shellParser) assigns(as []*syntax.Assign) (all []Word) {
	for _, a := range as {
		w := p.written(a)
		if a.Value != nil {
			v := p.word(a.Value)
			w.Open, w.Fixed = v.Open, v.Fixed
		}
		all = append(all, w)
	}
	return all
}

// written is a node as it is written.
func (p shellParser) written(n syntax.Node) Word {
	start, end := int(n.Pos().Offset()), min(int(n.End().Offset()), len(p.source))
	if start >= end {
		return Word{}
	}
	w := Word{Text: p.source[start:end]}
	if p.base >= 0 {
		w.Start, w.End = p.base+start, p.base+end
	}
	return w
}

// word reads a word as a shell does.
func (p shellParser) word(w *syntax.Word) Word {
	r := wordReader{fixed: true}
	r.parts(w.Parts, false)
	word := p.written(w)
	word.Fixed, word.Open = r.fixed && !r.open, r.open
	if !r.open {
		word.Text = r.text.String()
	}
	return word
}

// wordReader removes the quotes of a word.
type wordReader struct {
	text        strings.Builder
	fixed, open bool
}

func (r *wordReader) parts(parts []syntax.WordPart, quoted bool) {
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			r.literal(p.Value, quoted)
		case *syntax.SglQuoted:
			r.open = r.open || p.Dollar
			r.text.WriteString(p.Value)
		case *syntax.DblQuoted:
			r.fixed = r.fixed && !p.Dollar && len(p.Parts) < 2
			r.parts(p.Parts, true)
		default:
			r.open = true
		}
	}
}

// literal reads what is not an expansion. Unquoted patterns and tildes stay.
func (r *wordReader) literal(s string, quoted bool) {
	special := "*?[]{}~\\!^"
	if quoted {
		special = `\`
	}
	if strings.ContainsAny(s, special) {
		r.fixed = false
	}
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (!quoted || strings.IndexByte("$`\"\\\n", s[i+1]) >= 0) {
			if i++; s[i] == '\n' {
				continue
			}
		}
		r.text.WriteByte(s[i])
	}
}
