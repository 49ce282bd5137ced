package cardtest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// glyph is one thing that a person sees: a character, the escape of one, a mask, or a reference.
type glyph struct {
	r       rune
	escaped bool
	masked  int    // characters behind the mask; 0: no mask
	ref     string // argument that a reference names; "": no reference
}

// page is the visible text of a card, line by line.
type page [][]glyph

var (
	maskShape = regexp.MustCompile(`^‹[^‹›]+, (\d+) [a-z]+›`)
	refShape  = regexp.MustCompile(`^‹([^‹›]+)›`)
	escShape  = regexp.MustCompile(`^(?:\\u\{([0-9A-Fa-f]{1,6})\}|\\u([0-9A-Fa-f]{4})|\\([\\nrtbf"/]))`)
	runShape  = regexp.MustCompile(`^␠\{(\d+)\}`)
)

// read reads the visible text of a card.
func read(visible string) page {
	var p page
	for line := range strings.SplitSeq(visible, "\n") {
		p = append(p, readLine(line))
	}
	return p
}

func readLine(s string) (line []glyph) {
	for s != "" {
		var n int
		switch r := []rune(s[:min(4, len(s))])[0]; {
		case r == '‹' && maskShape.MatchString(s):
			m := maskShape.FindStringSubmatch(s)
			characters, _ := strconv.Atoi(m[1])
			line, n = append(line, glyph{masked: characters}), len(m[0])
		case r == '‹' && refShape.MatchString(s):
			m := refShape.FindStringSubmatch(s)
			line, n = append(line, glyph{ref: m[1]}), len(m[0])
		case r == '\\' && escShape.MatchString(s):
			m := escShape.FindStringSubmatch(s)
			line, n = append(line, glyph{r: unescape(m), escaped: true}), len(m[0])
		case r == '␠' && runShape.MatchString(s):
			m := runShape.FindStringSubmatch(s)
			spaces, _ := strconv.Atoi(m[1])
			line, n = append(line, slices.Repeat([]glyph{{r: ' ', escaped: true}}, spaces)...), len(m[0])
		default:
			line, n = append(line, glyph{r: r}), len(string(r))
		}
		s = s[n:]
	}
	return pairSurrogates(line)
}

func unescape(m []string) rune {
	if hex := m[1] + m[2]; hex != "" {
		n, _ := strconv.ParseUint(hex, 16, 32)
		return rune(n)
	}
	return map[string]rune{`\`: '\\', "n": '\n', "r": '\r', "t": '\t', "b": '\b', "f": '\f', `"`: '"', "/": '/'}[m[3]]
}

// pairSurrogates makes one character of two escaped halves, as JSON has them.
func pairSurrogates(line []glyph) []glyph {
	for i := 0; i+1 < len(line); i++ {
		a, b := line[i], line[i+1]
		if a.escaped && b.escaped && a.r >= 0xD800 && a.r < 0xDC00 && b.r >= 0xDC00 && b.r < 0xE000 {
			line = slices.Replace(line, i, i+2, glyph{r: (a.r-0xD800)<<10 + (b.r - 0xDC00) + 0x10000, escaped: true})
		}
	}
	return line
}

// invisible finds characters that a person cannot see, or sees in another place.
func invisible(visible string) string {
	for i, line := range strings.Split(visible, "\n") {
		for _, r := range line {
			if r != ' ' && r != '\t' && (unicode.Is(unicode.C, r) || unicode.Is(unicode.Z, r) || !unicode.IsGraphic(r) || unicode.Is(unicode.Variation_Selector, r) && r != 0xFE0F) {
				return fmt.Sprintf("line %d has the invisible character %U", i+1, r)
			}
		}
	}
	return ""
}

// prefixes are what may stand before the first line of a text and before the further ones.
var prefixes = [][2]string{{"", "\x00"}, {"│ ", "│ "}, {"│ ", "┆ "}}

// after returns the place in a line behind a prefix, or -1.
func after(line []glyph, prefix string) int {
	bare := []rune(strings.TrimRight(prefix, " "))
	full := []rune(prefix)
	if starts(line, full) {
		return len(full)
	}
	if len(line) == len(bare) && starts(line, bare) {
		return len(bare)
	}
	return -1
}

func starts(line []glyph, with []rune) bool {
	if len(line) < len(with) {
		return false
	}
	for i, r := range with {
		if g := line[i]; g.r != r || g.escaped || g.masked > 0 || g.ref != "" {
			return false
		}
	}
	return true
}
