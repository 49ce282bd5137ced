package email

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Answer is the new text of the writer: its first block, up to a blank line, a
// quotation or a signature, with its line breaks. Answer searches above the quotation.
// If nothing is there, it searches below a quotation whose lines are all marked.
//
// clear is false if there is no answer or any doubt about it. Then nothing may be
// decided, with any text.
func (m *inboundMail) Answer() (text string, clear bool) {
	if m.Doubt != "" {
		return "", false
	}
	text, clear = answer(m.Text, m.HTML || m.flowed)
	if !clear || strings.TrimSpace(m.htmlText) == "" {
		return text, clear
	}
	// The writer saw the HTML. If the plain text differs from it, the plain text was
	// not made from it. If it is equal, or equal to the beginning, its line breaks are
	// not the writer's.
	seen, sure := answer(m.htmlText, true)
	switch {
	case !sameStart(text, seen):
		return "", false
	case sure && startsWith(wordsOf(seen), wordsOf(text)):
		return seen, true
	}
	return text, true
}

func startsWith(words, first []string) bool {
	return len(words) >= len(first) && slices.Equal(words[:len(first)], first)
}

// sameStart compares the first words: links and line breaks differ in any case.
func sameStart(a, b string) bool {
	x, y := wordsOf(a), wordsOf(b)
	return slices.Equal(x[:min(len(x), 3)], y[:min(len(y), 3)])
}

// maxLines limits the search. A text with more lines is not a reply.
const maxLines = 20000

// answerFinder finds the answer among lines. exact means that no program wrapped them, so
// that a quotation ends where its marks end.
type answerFinder struct {
	lines []line
	exact bool
}

func answer(text string, exact bool) (string, bool) {
	if strings.Count(text, "\n") > maxLines {
		return "", false
	}
	r := &answerFinder{readLines(text), exact}
	at := r.skip(0, isBlankLine, isMobile)
	switch r.kind(at) {
	case isText:
		return r.above(at)
	case isQuote, isAttribution:
		return r.below(at)
	}
	return "", false
}

func (r *answerFinder) kind(i int) kind {
	if i >= len(r.lines) {
		return isBlankLine
	}
	return r.lines[i].kind
}

func (r *answerFinder) skip(i int, kinds ...kind) int {
	for i < len(r.lines) && slices.Contains(kinds, r.lines[i].kind) {
		i++
	}
	return i
}

// above reads the block at line i. The lines below it are checked up to the point
// where quoted and new text cannot be told apart.
func (r *answerFinder) above(i int) (string, bool) {
	end := r.skip(i, isText)
	return r.block(i, end, r.noOtherAnswer(end))
}

// noOtherAnswer says whether the lines after the answer contain no other answer.
func (r *answerFinder) noOtherAnswer(i int) bool {
	quotes, words := 0, false // quotations so far; new text since the last one
	for ; i < len(r.lines); i++ {
		switch r.lines[i].kind {
		case isHeader, isMarker, isCard:
			return true // old text from here on, with an unknown end
		case isRule:
			if !r.lines[i].uncertain {
				return true
			}
		case isAttribution:
			if i = r.skip(i, isAttribution, isBlankLine); r.kind(i) != isQuote {
				return true
			}
			i-- // the quotation is next
		case isDelimiter:
			end := r.skip(i, isDelimiter, isText, isMobile, isBlankLine)
			if slices.ContainsFunc(r.lines[i:end], func(l line) bool { return anotherCode().MatchString(l.norm) }) {
				return false
			}
			i = end - 1
		case isQuote:
			if quotes > 0 && words {
				return false // comments between the quotations
			}
			quotes, words = quotes+1, false
			i = r.quotation(i) - 1
		case isText:
			words = true
			if r.isOtherAnswer(i) {
				return false
			}
		}
	}
	return true
}

// quotation returns the line after the quotation at line i. A program that wraps a
// quoted line leaves the rest of it unmarked. So unmarked text right below belongs to
// the quotation, unless it looks like an answer.
func (r *answerFinder) quotation(i int) int {
	i = r.skip(i, isQuote)
	for !r.exact && r.kind(i) == isText && !r.isOtherAnswer(i) {
		i = r.skip(i+1, isQuote)
	}
	return i
}

// below reads the block under the quotation at line i. One attribution may be right
// above the quotation. Of two attributions the second is itself quoted, by a program
// that marks nothing.
func (r *answerFinder) below(i int) (string, bool) {
	if r.kind(i) == isAttribution {
		from := i
		i = r.skip(i, isAttribution)
		if slices.ContainsFunc(r.lines[from:i-1], func(l line) bool { return endsAttribution(l.norm) }) {
			return "", false
		}
		i = r.skip(i, isBlankLine)
	}
	if r.kind(i) != isQuote {
		return "", false
	}
	for r.kind(i) == isQuote {
		i = r.quotation(i)
		if blank := r.skip(i, isBlankLine); r.kind(blank) == isQuote || r.kind(i) == isBlankLine {
			i = blank
		}
	}
	if r.kind(i) != isText || !r.exact && r.kind(i-1) != isBlankLine {
		return "", false
	}
	end := r.skip(i, isText)
	for _, l := range r.lines[end:] {
		switch l.kind {
		case isQuote, isAttribution, isHeader, isMarker, isCard:
			return "", false
		}
	}
	return r.block(i, end, r.noOtherAnswer(end))
}

// block returns the answer in lines i to end. It is not clear if anything is doubtful.
func (r *answerFinder) block(i, end int, alone bool) (string, bool) {
	var lines []string
	for _, l := range r.lines[i:end] {
		lines = append(lines, l.text)
	}
	text := cleanAnswer(strings.Join(lines, "\n"))
	switch {
	case !alone, text == "", hasControlChars(text), dated().MatchString(text):
		return text, false
	case r.kind(end) == isCard && r.lines[end].uncertain:
		return text, false // part of a card; the text above it may belong to the card, too
	case r.endUncertain(end) && !completeAnswer().MatchString(text):
		return text, false
	}
	return text, true
}

// endUncertain says whether the block may continue after its end.
func (r *answerFinder) endUncertain(end int) bool {
	switch r.kind(end) {
	case isBlankLine:
		next := r.skip(end, isBlankLine)
		return r.kind(next) == isQuote && endsAttribution(r.lines[end-1].norm) // possibly "… wrote:" in an unknown language
	case isQuote: // right below: part of the writer's text, unless the quotation names its author
		return endsAttribution(r.lines[end-1].norm) || !namesAuthor(r.lines[end].norm)
	}
	return r.lines[end].uncertain
}

var (
	// completeAnswer is an answer that no further text could complete.
	completeAnswer = pattern(`^(?:[1236]|\?|(?i:approve|deny|reject)(?: +[0-9a-fA-F][0-9a-fA-F-]{3,63})?)$`)
	// dated begins like a date and may be an attribution: "4 Feb 2026, Bob:".
	dated = pattern(`^[1-9]\.? (?:de |d')?\p{L}+\.?,?(?: de| del)? (?:19|20)\d\d(?:\D|$)`)
	// otherAnswer begins like another answer; anotherCode is one.
	otherAnswer = pattern(`^(?:[1-6?](?: |$)|(?:approve|deny|reject|undo)(?: |$))`)
	anotherCode = pattern(`^(?:[1-6]|(?:approve|deny|reject)(?: [0-9a-f][0-9a-f-]{3,63})?)$`)
	// retraction begins like a retraction.
	retraction = pattern(`^(?:no|not|wait|stop|sorry|actually|cancel|don't|nein|halt|stopp|warte|nicht|non|attends|arrête|aspetta|ferma|espera|para|nee|wacht|nej|vänta|nie|нет|стоп|подожди|いいえ|待って|不|等等)(?:[,.!…;:– ]*$|[,.!…;:] )`)
)

// isOtherAnswer says whether line i may be another answer. Inside a block only a code alone
// on a line counts: a house number does not.
func (r *answerFinder) isOtherAnswer(i int) bool {
	norm := r.lines[i].norm
	if i > 0 && r.lines[i-1].kind == isText {
		return anotherCode().MatchString(norm)
	}
	return otherAnswer().MatchString(norm) || retraction().MatchString(norm)
}

// cleanAnswer converts every blank to a space, and removes invisible characters from
// the first word and both ends.
func cleanAnswer(s string) string {
	s = strings.Map(func(r rune) rune {
		if r != '\n' && isBlank(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimFunc(s, func(r rune) bool { return r == '\n' || isBlank(r) || isInvisible(r) })
	first, rest, found := strings.Cut(s, " ")
	if strings.ContainsRune(first, '\n') || !found {
		return s
	}
	return visibleText(first) + " " + rest
}

// hasControlChars says whether a text contains characters that a person cannot type.
func hasControlChars(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return r == utf8.RuneError || r != '\n' && unicode.IsControl(r)
	})
}
