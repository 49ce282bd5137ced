package console

import (
	"os"
	"strings"
	"unicode/utf8"

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

// WrapText breaks the lines of a text between words, so that none is wider than width: 0 breaks
// none. A row below begins where the line's text does. A word that is wider stays whole, and so
// does a command to copy, and a line of a payload.
func WrapText(text string, width int) string {
	if width == 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if utf8.RuneCountInString(line) > width && !strings.HasPrefix(strings.TrimLeft(line, " "), "│") {
			lines[i] = wrapLine(line, width)
		}
	}
	return strings.Join(lines, "\n")
}

func wrapLine(line string, width int) string {
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	hang := indent
	if head, _, ok := strings.Cut(body, "  "); ok { // a name and its text, in two columns
		rest := strings.TrimLeft(body[len(head):], " ")
		if at := indent + utf8.RuneCountInString(body) - utf8.RuneCountInString(rest); at <= width/2 {
			hang = at
		}
	}
	var out strings.Builder
	out.WriteString(line[:indent])
	used := indent
	for n, word := range glued(body) {
		wide := utf8.RuneCountInString(word)
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
