package tui

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/permesso-dev/permesso/chat"
)

// attribute is an SGR parameter of a row.
type attribute int

const (
	plain   attribute = 0
	bold    attribute = 1
	dim     attribute = 2
	inverse attribute = 7
	bad     attribute = 31
	good    attribute = 32
	warn    attribute = 35 // legible on a light and on a dark background, unlike yellow
)

// row is one row of the screen.
type row struct {
	attr attribute
	text string
}

// line is a line of a card or page, which may take several rows.
type line struct {
	attr attribute
	text string
	// sentence breaks between words; any other line breaks anywhere.
	sentence bool
}

// goesOn marks a row that continues the line above it. Other rows have a blank there, which no text can fill.
const (
	goesOn = "↪ "
	begins = "  "
	gutter = 2
)

// runeWidth is the number of columns of a character; 0 of one that joins the one before it.
func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	return ansi.StringWidthWc(string(r))
}

func textWidth(s string) (n int) {
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// cut returns as much of a text as fits, and the rest. It never separates a character from those that join it.
func cut(s string, width int) (head, rest string) {
	n := 0
	for i, r := range s {
		w := runeWidth(r)
		if n+w > width && i > 0 {
			return s[:i], s[i:]
		}
		n += w
	}
	return s, ""
}

// clip cuts a text that does not fit, and says so.
func clip(s string, width int) string {
	if textWidth(s) <= width {
		return s
	}
	head, _ := cut(s, max(width-1, 0))
	return head + "…"
}

// between puts a text to the left and one to the right. If they do not fit, the left one is cut.
func between(left, right string, width int) string {
	left = clip(left, width-textWidth(right)-1)
	return left + strings.Repeat(" ", max(1, width-textWidth(left)-textWidth(right))) + right
}

// wrap breaks lines into rows.
func wrap(lines []line, width int) (rows []row) {
	width = max(width-gutter, 8)
	for _, l := range lines {
		lead := begins
		for rest := safe(l.text); ; lead = goesOn {
			var head string
			if head, rest = cut(rest, width); rest != "" && l.sentence {
				if i := strings.LastIndexByte(head, ' '); i > width/3 {
					head, rest = head[:i], head[i+1:]+rest
				}
			}
			rows = append(rows, row{l.attr, lead + head})
			if rest == "" {
				break
			}
		}
	}
	return rows
}

// tabColumns is the distance of tab stops.
const tabColumns = 8

// untab replaces tabs, which package chat leaves in a block, with the blanks that a terminal shows.
func untab(s string) string {
	var b strings.Builder
	column := 0
	for i, part := range strings.Split(s, "\t") {
		if i > 0 {
			n := tabColumns - column%tabColumns
			b.WriteString(strings.Repeat(" ", n))
			column += n
		}
		b.WriteString(part)
		column += textWidth(part)
	}
	return b.String()
}

// safe is the last check before the screen. Text that package chat has rendered passes unchanged, but for tabs.
func safe(s string) string {
	if strings.Contains(s, "\t") {
		s = untab(s)
	}
	bad := func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar
	}
	if !strings.ContainsFunc(s, bad) {
		return s
	}
	return chat.Escape(s)
}

// paint is a row as the renderer takes it.
func (r row) paint(width int) string {
	text := clip(safe(r.text), width)
	if r.attr == plain {
		return text
	}
	if r.attr == inverse {
		text += strings.Repeat(" ", max(0, width-textWidth(text)))
	}
	return "\x1b[" + strconv.Itoa(int(r.attr)) + "m" + text + "\x1b[0m"
}
