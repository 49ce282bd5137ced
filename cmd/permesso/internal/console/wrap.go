package console

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"golang.org/x/term"
)

// minWidth is the width that texts are wrapped for on narrower terminals.
const minWidth = 40

// Width is the width of a terminal in columns, 0 for what is none.
func Width(out any) int {
	if file, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return max(width, minWidth)
		}
	}
	return 0
}

// Say prints a line for a person, wrapped on a terminal.
func (a *Console) Say(format string, v ...any) {
	fmt.Fprintln(a.Out, WrapText(fmt.Sprintf(format, v...), Width(a.Out)))
}

// Note prints a line for a person to standard error, wrapped on a terminal.
func (a *Console) Note(format string, v ...any) {
	fmt.Fprintln(a.Err, WrapText(fmt.Sprintf(format, v...), Width(a.Err)))
}

// kept are the beginnings of lines that stay whole: of a payload, and of TOML.
var kept = regexp.MustCompile(`^ *(│|\[\[|# |[a-z_.]+ = )`)

// escapes are what a terminal does not show.
var escapes = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// columns is the width of a text. A character that may be wide counts twice.
func columns(text string) (n int) {
	for _, c := range escapes.ReplaceAllString(text, "") {
		n++
		if c >= 0x1100 && (c < 0x1200 || c >= 0x2e80) {
			n++
		}
	}
	return n
}

// WrapText breaks the lines of a text between words, so that none is wider than width: 0 breaks
// none. A row below begins where the line's text does, and further in if the line quotes an
// agent, whose text must not begin a row. A word that is wider stays whole, and so does a command
// to copy, and a line of a payload.
func WrapText(text string, width int) string {
	if width == 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if columns(line) > width && !kept.MatchString(line) {
			lines[i] = wrapLine(line, width)
		}
	}
	return strings.Join(lines, "\n")
}

func wrapLine(line string, width int) string {
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	hang := hanging(line, indent, width)
	var out strings.Builder
	out.WriteString(line[:indent])
	used := indent
	for n, word := range glued(body) {
		wide := columns(word)
		switch {
		case n == 0:
		case used+1+wide > width && used > hang:
			out.WriteString("\n" + strings.Repeat(" ", hang))
			used = hang
		default:
			out.WriteString(" ")
			used++
		}
		out.WriteString(word)
		used += wide
	}
	return out.String()
}

// hanging is where the rows below the first begin.
func hanging(line string, indent, width int) (hang int) {
	hang = indent
	if strings.ContainsAny(line, "\"“«") || strings.HasPrefix(line, "agent") {
		hang += 4
	}
	for _, gap := range gaps.FindAllStringIndex(line[indent:], -1) { // a name and its text, in columns
		if at := columns(line[:indent+gap[1]]); at <= width/2 {
			hang = max(hang, at)
		}
	}
	return hang
}

var gaps = regexp.MustCompile(`  +`)

// glued are the words of a text. A command from "permesso" to the next mark is one word, and
// blanks beyond one belong to the word before.
func glued(text string) (words []string) {
	command := false
	for word := range strings.SplitSeq(text, " ") {
		last := len(words) - 1
		if last >= 0 && (command || word == "") {
			words[last] += " " + word
		} else {
			words = append(words, word)
		}
		command = word == "permesso" || command && strings.Trim(word, ";,.:)") == word
	}
	return words
}
