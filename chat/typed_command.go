package chat

import (
	"slices"
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
	parts := t.shell(s)
	if len(s.Commands) == 1 && len(parts) == 0 && !strings.ContainsAny(texts[0], "\n\t") && texts[0] != "" {
		return t.inline(LineCode, t.oneLine(texts[0], t.argumentTokens(s, texts[0]))), true
	}
	return slices.Concat([]Line{t.head()}, parts, t.commandLine(texts[0], t.argumentTokens(s, texts[0]))), true
}

func (t typedValue) commandLine(s string, secrets []hidden) (lines []Line) {
	for _, l := range t.blockLines(s, secrets) {
		lines = append(lines, Line{LineCode, withBar(l)})
	}
	return lines
}

// argv displays a command element by element.
func (t typedValue) argv(words []string) []Line {
	lines := []Line{t.count(len(words))}
	s := facts.ParseArgv(words)
	lines = append(lines, t.shell(s)...)
	places := s.Commands[0].Places()
	for _, w := range words {
		var secrets []hidden
		if !slices.ContainsFunc(places, func(p facts.Word) bool { return p.Text == w }) {
			secrets = t.secrets(w)
		}
		lines = append(lines, t.element(w, secrets)...)
	}
	return lines
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

// shell displays the simple commands, one a line, if there are several or if there is
// something to know about one.
func (t typedValue) shell(s facts.Shell) (lines []Line) {
	for _, c := range s.Commands {
		about, serious := t.aboutCommand(s, c)
		if len(about) == 0 && len(s.Commands) == 1 {
			continue
		}
		kind, sign := LineText, "· "
		if serious {
			kind, sign = LineWarn, "⚠ "
		}
		line := sign + t.programName(c)
		if len(about) > 0 {
			line += ": " + strings.Join(about, ", ")
		}
		lines = append(lines, Line{kind, line})
	}
	if len(s.Defines) > 0 {
		lines = append(lines, t.remark(Format(t.Values.Defines, "names", t.names(s.Defines)))...)
	}
	if s.Unread {
		lines = append(lines, t.remark(t.Values.Unread)...)
	}
	return lines
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

// aboutCommand says what an approver should know about a command, and whether it is
// more than what it reads and writes.
func (t typedValue) aboutCommand(s facts.Shell, c facts.SimpleCommand) (about []string, serious bool) {
	w := t.Values
	warn := func(is bool, text string) {
		if is {
			about, serious = append(about, text), true
		}
	}
	warn(c.Open(), w.Open)
	program := c.Elevates()
	warn(program != "", Format(w.Elevates, "program", t.cut(program)))
	program = c.Evaluates()
	warn(program != "", Format(w.Evaluates, "program", t.cut(program)))
	if c.Interprets() != "" {
		text := w.InterpretsText
		if c.From >= 0 {
			text = Format(w.Interprets, "program", t.programName(s.Commands[c.From]))
		}
		warn(true, text)
	}
	warn(c.SetsSearch(), Format(w.Sets, "names", t.names(c.Sets())))
	about = append(about, t.effects(c)...)
	if c.In >= 0 {
		inside := w.Substitution
		if c.How == facts.Script {
			inside = w.Script
		}
		about = append(about, Format(inside, "program", t.programName(s.Commands[c.In])))
	}
	return about, serious
}

// effects lists what a command sets, writes and connects to.
func (t typedValue) effects(c facts.SimpleCommand) (about []string) {
	w := t.Values
	if names := c.Sets(); len(names) > 0 && !c.SetsSearch() {
		about = append(about, Format(w.Sets, "names", t.names(names)))
	}
	if files := c.Writes(); len(files) > 0 {
		names := make([]string, len(files))
		for i, f := range files {
			names[i] = f.Text
		}
		about = append(about, Format(w.Writes, "names", t.names(names)))
	}
	if hosts := c.Hosts(); len(hosts) > 0 {
		about = append(about, Format(w.Connects, "names", t.names(hosts)))
	} else if c.Connects() != "" {
		about = append(about, w.Network)
	}
	if c.Later {
		about = append(about, w.Background)
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
