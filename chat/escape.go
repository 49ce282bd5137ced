package chat

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	runSign   = '␠' // precedes the length of a run of spaces
	minRun    = 3   // a run of this many spaces is counted
	maxMarks  = 4   // combining marks on one letter
	bar       = "│" // before every line of a block
	maskBegin = '‹' // the gate's masks and references stand between these
	maskEnd   = '›'
)

// mode says where the escaped text is used.
type mode uint8

const (
	inLine  mode = iota // bare, on a line of its own
	inQuote             // between quotation marks
	inJSON              // JSON text, in which backslashes already escape
)

// Escape writes s on one line without invisible characters. Two different strings
// never look the same because of an invisible character:
//
//	\\ \n \r \t   backslash, line feed, carriage return, tab
//	\u{202E}      a control, format or unassigned character, white space other
//	              than U+0020, a combining mark without a letter of its own
//	              script before it, …
//	\x{FF}        a byte that is not UTF-8
//	␠{17}         17 spaces: a run of three or more, or any run at an end
//
// Unescape is its inverse. Letters that look alike are not escaped: the card
// flags them.
func Escape(s string) string { return escape(s, inLine) }

// Quote is Escape between quotation marks; a quotation mark inside becomes \".
func Quote(s string) string { return `"` + escape(s, inQuote) + `"` }

// Block writes s on as many lines as it has, each behind a bar and a space, so
// that none looks like a line of the card. An empty line is a bar.
func Block(s string) []string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = withBar(Escape(l))
	}
	return lines
}

func withBar(escaped string) string {
	if escaped == "" {
		return bar
	}
	return bar + " " + escaped
}

func escape(s string, m mode) string {
	var b strings.Builder
	b.Grow(len(s))
	letter, marks := "", 0 // script of the previous letter, and its marks so far
	for i := 0; i < len(s); {
		if n := len(s[i:]) - len(strings.TrimLeft(s[i:], " ")); n > 0 {
			edge := m == inLine && (i == 0 || i+n == len(s))
			b.WriteString(blanks(n, edge))
			i, letter = i+n, ""
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x{%02X}`, s[i])
			letter = ""
		case unicode.Is(unicode.M, r):
			// A mark of another script can hide or alter the letter. A stack of
			// marks overlaps the lines above and below.
			if marks++; letter == "" || marks > maxMarks || !visible(r) || scriptOf(r) != letter {
				writeCode(&b, r)
			} else {
				b.WriteRune(r)
			}
		default:
			letter, marks = scriptOf(r), 0
			writeRune(&b, r, m)
		}
		i += size
	}
	return b.String()
}

func blanks(n int, edge bool) string {
	if n >= minRun || edge {
		return fmt.Sprintf("%c{%d}", runSign, n)
	}
	return strings.Repeat(" ", n)
}

// writeRune writes r, which is neither a mark nor a space.
func writeRune(b *strings.Builder, r rune, m mode) {
	switch {
	case m == inJSON && (r == '\\' || r == '"'):
		b.WriteRune(r)
	case r == '\\':
		b.WriteString(`\\`)
	case m != inJSON && r == '\n':
		b.WriteString(`\n`)
	case m != inJSON && r == '\r':
		b.WriteString(`\r`)
	case m != inJSON && r == '\t':
		b.WriteString(`\t`)
	case m == inQuote && r == '"':
		b.WriteString(`\"`)
	case visible(r):
		b.WriteRune(r)
	default:
		writeCode(b, r)
	}
}

func writeCode(b *strings.Builder, r rune) { fmt.Fprintf(b, `\u{%04X}`, r) }

// visible says whether r has a glyph. unicode.IsPrint excludes controls, formats,
// white space other than U+0020 and unassigned code points. The listed ones are
// blank or used by Escape itself. The last test excludes ignorable code points and
// variation selectors.
func visible(r rune) bool {
	switch r {
	case 0x2800, // Braille blank
		0xFFFC, 0xFFFD, // object replacement, replacement character
		0x1107F,          // Brahmi number joiner
		0x13441, 0x13442, // Egyptian blanks
		0x16FE4, // Khitan filler
		0x1D159, // musical null note head
		runSign, maskBegin, maskEnd:
		return false
	}
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
