package chat

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	runSign    = '␠' // precedes the length of a run of spaces
	minRun     = 3   // a run of this many spaces is counted
	maxIndent  = 64  // columns of blanks before the text of a line of a block
	maxGap     = 16  // columns of blanks inside it
	tabColumns = 8
	maxMarks   = 4   // combining marks on one letter
	bar        = "│" // before every line of a block
	maskBegin  = '‹' // the gate's masks and references stand between these
	maskEnd    = '›'
)

// mode says where the escaped text is used.
type mode uint8

const (
	inLine  mode = iota // bare, on a line of its own
	inQuote             // between quotation marks
	inJSON              // JSON text, in which backslashes already escape
	inBlock             // a line of a block: blanks before and inside the text stay
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
// that none looks like a line of the card. An empty line is a bar. Spaces and tabs
// stay as they are. Those at the end of a line, and more than a person expects, are
// counted as Escape does.
func Block(s string) []string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = withBar(escape(l, inBlock))
	}
	return lines
}

func withBar(escaped string) string {
	if escaped == "" {
		return bar
	}
	return bar + " " + escaped
}

func escape(s string, m mode) string { return escapePart(s, m, true, true) }

// escapePart escapes a part of a line: its first, its last, both, or another one.
func escapePart(s string, m mode, first, last bool) string {
	var b strings.Builder
	b.Grow(len(s))
	letter, marks := "", 0 // script of the previous letter, and its marks so far
	for i := 0; i < len(s); {
		if n := blanksAt(s[i:], m); n > 0 {
			start, end := i == 0, i+n == len(s)
			if m == inBlock {
				b.WriteString(blockBlanks(s[i:i+n], first && start, last && end))
			} else {
				b.WriteString(blanks(n, m == inLine && (first && start || last && end)))
			}
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

// blanksAt counts the spaces at the beginning of s, and in a block also the tabs.
func blanksAt(s string, m mode) int {
	cut := " "
	if m == inBlock {
		cut = " \t"
	}
	return len(s) - len(strings.TrimLeft(s, cut))
}

// blockBlanks writes spaces and tabs as they are, if they are followed by text that
// they do not push out of view.
func blockBlanks(run string, start, end bool) string {
	limit := maxGap
	if start {
		limit = maxIndent
	}
	if tabs := strings.Count(run, "\t"); !end && len(run)+tabs*(tabColumns-1) <= limit {
		return run
	}
	var b strings.Builder
	for run != "" {
		if n := len(run) - len(strings.TrimLeft(run, " ")); n > 0 {
			b.WriteString(blanks(n, true))
			run = run[n:]
			continue
		}
		b.WriteString(`\t`)
		run = run[1:]
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
