package chat

import (
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// moreOfElement precedes the lines of a list's element behind its first.
const moreOfElement = "┆"

// command displays what a line for a shell runs, and then the line; or an argv.
func (t typedValue) command(v approval.Raw) ([]Line, bool) {
	texts, list, ok := textsOf(v)
	switch {
	case !ok:
		return nil, false
	case list:
		return t.argv(texts), true
	}
	s, err := facts.ParseCommand(texts[0])
	if err != nil {
		return append([]Line{t.head(), {LineWarn, t.Values.NotParsed}}, t.commandLine(texts[0], nil)...), true
	}
	secrets := t.argumentTokens(s, texts[0])
	parts := t.shell(listed{s, texts[0], secrets, false})
	if len(s.Commands) == 1 && len(parts) == 0 && !strings.ContainsAny(texts[0], "\n\t") && texts[0] != "" {
		return t.inline(LineCode, t.oneLine(texts[0], secrets)), true
	}
	return slices.Concat([]Line{t.head()}, parts, t.commandLine(texts[0], secrets)), true
}

func (t typedValue) commandLine(s string, secrets []hidden) (lines []Line) {
	for _, l := range t.blockLines(s, secrets) {
		lines = append(lines, Line{LineCode, withBar(l)})
	}
	return lines
}

// argv displays a command element by element.
func (t typedValue) argv(words []string) []Line {
	s := facts.ParseArgv(words)
	places := s.Commands[0].Places()
	var elements []Line
	var all []hidden
	at := 0
	for _, w := range words {
		var secrets []hidden
		if !slices.ContainsFunc(places, func(p facts.Word) bool { return p.Text == w }) {
			secrets = t.secrets(w)
		}
		elements = append(elements, t.element(w, secrets)...)
		for _, h := range secrets {
			h.Start, h.End = h.Start+at, h.End+at
			all = append(all, h)
		}
		at += len(w) + 1
	}
	parts := t.shell(listed{s, strings.Join(words, "\x00"), all, true})
	return slices.Concat([]Line{t.count(len(words))}, parts, elements)
}

// element displays one word of an argv, which may have lines.
func (t typedValue) element(w string, secrets []hidden) (lines []Line) {
	if w == "" || w[0] == '"' {
		return []Line{{LineCode, withBar(`"` + t.masked(w, secrets, inQuote)[0] + `"`)}}
	}
	for i, l := range t.blockLines(w, secrets) {
		if l = withBar(l); i > 0 {
			l = moreOfElement + strings.TrimPrefix(l, bar)
		}
		lines = append(lines, Line{LineCode, l})
	}
	return lines
}

// listed is a command line, or an argv joined by NUL characters, whose commands are listed.
type listed struct {
	facts.Shell
	line    string
	secrets []hidden // in line, sorted
	argv    bool
}

const (
	maxListed  = 60  // commands in a list
	maxCommand = 100 // characters of one of them
)

// shell displays what is serious, and then the simple commands, one a line, if there are
// several or if there is something to know about one. Of too many, those are listed first.
func (t typedValue) shell(s listed) (lines []Line) {
	var list, plain []Line
	many := len(s.Commands) > maxListed
	for _, c := range s.Commands {
		serious := t.serious(s, c)
		if len(serious) > 0 {
			lines = append(lines, t.remark("⚠ "+t.programName(c)+": "+strings.Join(serious, ", "))...)
		}
		about := slices.Concat(serious, t.effects(s, c))
		if len(about)+len(s.Commands) == 1 || len(list) == maxListed {
			continue
		}
		text := strings.Join(append([]string{t.words(s, c)}, nonEmpty(strings.Join(about, ", "))...), ": ")
		if line := (Line{LineText, "· " + text}); !many || len(about) > 0 {
			list = append(list, line)
		} else if len(plain) < maxListed {
			plain = append(plain, line)
		}
	}
	if many {
		list = append(list, plain[:min(len(plain), maxListed-len(list))]...)
		list = append(list, Line{LineText, "· " + Format(t.Evidence.More, "n", strconv.Itoa(len(s.Commands)-maxListed))})
	}
	if len(s.Defines) > 0 {
		lines = append(lines, t.remark(Format(t.Values.Defines, "names", t.names(s.Defines)))...)
	}
	if s.Unread {
		lines = append(lines, t.remark(t.Values.Unread)...)
	}
	return append(lines, list...)
}

// words are the words of a command as they stand in the line, with its masks, cut: they are
// complete below. Words that do not stand there as they are, are only named by their program.
// What a remark could begin in is in quotation marks.
func (t typedValue) words(s listed, c facts.SimpleCommand) string {
	text, secrets, ok := s.cut(c)
	if !ok {
		return t.programName(c)
	}
	kept := clip(text, maxCommand)
	for _, h := range secrets {
		if h.Start < len(kept) && h.End > len(kept) {
			kept = text[:h.End]
		}
	}
	more := ""
	if len(kept) < len(text) {
		more = "…"
	}
	if strings.Contains(kept, ": ") || kept[0] == '"' {
		return `"` + t.masked(kept, secrets, inQuote)[0] + `"` + more
	}
	return t.oneLine(kept, secrets) + more
}

// cut cuts the words of a command out of the line. ok is false if there are none, or if one does
// not stand there.
func (s listed) cut(c facts.SimpleCommand) (text string, secrets []hidden, ok bool) {
	words := slices.Concat(c.Assigns, c.Words)
	for _, r := range c.Redirects {
		if r.Op == "<" || r.Op == "<<<" {
			words = append(words, r.To)
		}
	}
	slices.SortStableFunc(words, func(a, b facts.Word) int { return a.Start - b.Start })
	var b strings.Builder
	for _, w := range words {
		if w.End <= w.Start && !s.argv || w.End > len(s.line) {
			return "", nil, false
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if slices.ContainsFunc(c.Redirects, func(r facts.Redirect) bool { return r.To == w }) {
			b.WriteString("< ")
		}
		secrets = append(secrets, s.write(&b, w)...)
	}
	return b.String(), secrets, b.Len() > 0
}

// write writes a word, in quotation marks if it is an element of an argv with blanks, and
// returns its secrets.
func (s listed) write(b *strings.Builder, w facts.Word) (secrets []hidden) {
	quote := ""
	if s.argv && (w.End <= w.Start || strings.ContainsAny(s.line[w.Start:w.End], " \t\n")) {
		quote = `"`
	}
	b.WriteString(quote)
	for _, h := range s.secrets {
		start, end := max(h.Start, w.Start), min(h.End, w.End)
		if start < end {
			h.Start, h.End = b.Len()+start-w.Start, b.Len()+end-w.Start
			secrets = append(secrets, h)
		}
	}
	b.WriteString(s.line[w.Start:w.End] + quote)
	return secrets
}

// programName names the programs that a command starts.
func (t typedValue) programName(c facts.SimpleCommand) string {
	var names []string
	for _, w := range c.Programs() {
		names = append(names, t.cut(w.Text))
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, " ")
}

// cut escapes a word, and cuts it: it is complete below.
func (r renderer) cut(s string) string {
	kept := clip(s, maxWord)
	return Escape(kept) + r.cutMark(s[len(kept):])
}

func (r renderer) names(all []string) string {
	shown := make([]string, len(all))
	for i, s := range all {
		shown[i] = r.cut(s)
	}
	return strings.Join(shown, ", ")
}

// serious says what an approver must notice about a command.
func (t typedValue) serious(s listed, c facts.SimpleCommand) (about []string) {
	w := t.Values
	warn := func(is bool, text, program string) {
		if is {
			about = append(about, Format(text, "program", t.cut(program)))
		}
	}
	warn(c.Open(), w.Open, "")
	warn(c.Elevates() != "", w.Elevates, c.Elevates())
	warn(c.Evaluates() != "", w.Evaluates, c.Evaluates())
	warn(c.ServesPeer() != "", w.ServesPeer, c.ServesPeer())
	switch {
	case c.Interprets() == "":
	case c.From >= 0:
		about = append(about, Format(w.Interprets, "program", t.programName(s.Commands[c.From])))
	default:
		about = append(about, w.InterpretsText)
	}
	if c.SetsSearch() {
		about = append(about, Format(w.Sets, "names", t.names(c.Sets())))
	}
	for _, h := range c.Hosts() {
		about = append(about, t.nameFlags(facts.HostPlace(h))...)
	}
	return append(about, t.deletions(c, true)...)
}

// deletions says what a command deletes, if that is strong or if it is not.
func (t typedValue) deletions(c facts.SimpleCommand, strong bool) (about []string) {
	for _, d := range c.Deletes() {
		switch {
		case d.Strong != strong:
		case len(d.Files) == 0:
			about = append(about, Format(t.Values.DeletesSome, "program", t.cut(d.Program)))
		default:
			about = append(about, Format(t.Values.Deletes, "names", t.names(textsOfWords(d.Files))))
		}
	}
	return about
}

func textsOfWords(words []facts.Word) []string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.Text
	}
	return texts
}

// effects lists what a command sets, writes, deletes and connects to, and what it is a part of.
func (t typedValue) effects(s listed, c facts.SimpleCommand) (about []string) {
	w := t.Values
	if names := c.Sets(); len(names) > 0 && !c.SetsSearch() {
		about = append(about, Format(w.Sets, "names", t.names(names)))
	}
	if files := c.Writes(); len(files) > 0 {
		about = append(about, Format(w.Writes, "names", t.names(textsOfWords(files))))
	}
	about = append(about, t.deletions(c, false)...)
	hosts := c.Hosts()
	for i, h := range hosts {
		if p := facts.HostPlace(h); p.Written != "" {
			hosts[i] = strings.Replace(h, p.Written, p.Host, 1)
		}
	}
	if len(hosts) > 0 {
		about = append(about, Format(w.Connects, "names", t.names(hosts)))
	} else if c.Connects() != "" {
		about = append(about, w.Network)
	}
	if c.Later {
		about = append(about, w.Background)
	}
	if c.In >= 0 {
		inside := w.Substitution
		if c.How == facts.Script {
			inside = w.Script
		}
		about = append(about, Format(inside, "program", t.programName(s.Commands[c.In])))
	}
	return about
}

// argumentTokens finds the secrets in what a line gives to programs as arguments and
// input. Programs, files, hosts, operators and anything that is run are never masked.
func (t typedValue) argumentTokens(s facts.Shell, line string) []hidden {
	words := s.Arguments()
	return slices.DeleteFunc(t.secrets(line), func(h hidden) bool {
		return !slices.ContainsFunc(words, func(w facts.Word) bool { return w.Start <= h.Start && h.End <= w.End })
	})
}
