package email

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Answer is what the writer newly wrote: the first block of it, down to a blank
// line, a quotation or a signature. Line breaks in it are kept. It is looked for
// above the quotation, and where nothing stands there, below one that is marked
// line by line and ends for certain.
//
// clear is false where anything is doubtful, and where there is no answer: then
// nothing may be decided, whatever text is.
func (m *Mail) Answer() (text string, clear bool) {
	if m.Doubt != "" {
		return "", false
	}
	text, clear = answer(m.Text, m.HTML || m.flowed)
	if !clear || strings.TrimSpace(m.other) == "" {
		return text, clear
	}
	// The writer saw the HTML. A plain text that says something else was not
	// made from it; one that says the same, or the beginning of it, has line
	// breaks that nobody typed.
	seen, sure := answer(m.other, true)
	switch {
	case !alike(text, seen):
		return "", false
	case sure && startsWith(wordsOf(seen), wordsOf(text)):
		return seen, true
	}
	return text, true
}

func startsWith(words, first []string) bool {
	return len(words) >= len(first) && slices.Equal(words[:len(first)], first)
}

// alike compares the first words: links and line breaks differ anyway.
func alike(a, b string) bool {
	x, y := wordsOf(a), wordsOf(b)
	return slices.Equal(x[:min(len(x), 3)], y[:min(len(y), 3)])
}

// maxLines caps what we look through: more is nobody's reply.
const maxLines = 20000

// reader looks for the answer among lines. exact says that no program wrapped
// them, so that quotation ends where its marks do.
type reader struct {
	lines []line
	exact bool
}

func answer(text string, exact bool) (string, bool) {
	if strings.Count(text, "\n") > maxLines {
		return "", false
	}
	r := &reader{readLines(text), exact}
	at := r.skip(0, isBlankLine, isMobile)
	switch r.kind(at) {
	case isText:
		return r.above(at)
	case isQuote, isAttribution:
		return r.below(at)
	}
	return "", false
}

func (r *reader) kind(i int) kind {
	if i >= len(r.lines) {
		return isBlankLine
	}
	return r.lines[i].kind
}

func (r *reader) skip(i int, kinds ...kind) int {
	for i < len(r.lines) && slices.Contains(kinds, r.lines[i].kind) {
		i++
	}
	return i
}

// above reads the block that begins at line i, and what stands below it up to
// where the quotation can no longer be told from new words.
func (r *reader) above(i int) (string, bool) {
	end := r.skip(i, isText)
	return r.block(i, end, r.unanswered(end))
}

// unanswered says whether what follows the answer holds no other.
func (r *reader) unanswered(i int) bool {
	quotes, words := 0, false // quotations so far; new words since the last
	for ; i < len(r.lines); i++ {
		switch r.lines[i].kind {
		case isHeader, isMarker, isCard:
			return true // from here on old words, and nobody says where they end
		case isRule:
			if !r.lines[i].loose {
				return true
			}
		case isAttribution:
			if i = r.skip(i, isAttribution, isBlankLine); r.kind(i) != isQuote {
				return true
			}
			i-- // the quotation is next
		case isDelimiter:
			end := r.skip(i, isDelimiter, isText, isMobile, isBlankLine)
			if slices.ContainsFunc(r.lines[i:end], func(l line) bool { return anotherCode.MatchString(l.ink) }) {
				return false
			}
			i = end - 1
		case isQuote:
			if quotes > 0 && words {
				return false // remarks between the quotations
			}
			quotes, words = quotes+1, false
			i = r.quotation(i) - 1
		case isText:
			words = true
			if r.second(i) {
				return false
			}
		}
	}
	return true
}

// quotation is the first line behind one that begins at line i. Programs that
// wrap a quoted line leave the rest of it unmarked: so words right below are
// its own, unless they look like an answer.
func (r *reader) quotation(i int) int {
	i = r.skip(i, isQuote)
	for !r.exact && r.kind(i) == isText && !r.second(i) {
		i = r.skip(i+1, isQuote)
	}
	return i
}

// below reads the block under a quotation that begins at line i. One attribution
// may stand above it, right above: of two, the second is itself quoted, and by a
// program that marks nothing.
func (r *reader) below(i int) (string, bool) {
	if r.kind(i) == isAttribution {
		from := i
		i = r.skip(i, isAttribution)
		if slices.ContainsFunc(r.lines[from:i-1], func(l line) bool { return endsAttribution(l.ink) }) {
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
	return r.block(i, end, r.unanswered(end))
}

// block is the answer in lines i to end, unless something about it is doubtful.
func (r *reader) block(i, end int, alone bool) (string, bool) {
	var lines []string
	for _, l := range r.lines[i:end] {
		lines = append(lines, l.text)
	}
	text := tidyAnswer(strings.Join(lines, "\n"))
	switch {
	case !alone, text == "", unfit(text), dated.MatchString(text):
		return text, false
	case r.kind(end) == isCard && r.lines[end].loose:
		return text, false // a piece of a card, and what stands above it another
	case r.cutLoosely(end) && !bare.MatchString(text):
		return text, false
	}
	return text, true
}

// cutLoosely says whether the block may go on where we ended it.
func (r *reader) cutLoosely(end int) bool {
	switch r.kind(end) {
	case isBlankLine:
		next := r.skip(end, isBlankLine)
		return r.kind(next) == isQuote && endsAttribution(r.lines[end-1].ink) // "… wrote:", in a language of its own?
	case isQuote: // right below: a part of what he writes, unless the quotation says whose it is
		return endsAttribution(r.lines[end-1].ink) || !saidBy(r.lines[end].ink)
	}
	return r.lines[end].loose
}

var (
	// bare is an answer that a text behind it would not complete.
	bare = regexp.MustCompile(`^(?:[1236]|\?|(?i:approve|deny|reject)(?: +[0-9a-fA-F]{4,64})?)$`)
	// dated begins like a date and may be an attribution: "4 Feb 2026, Bob:".
	dated = regexp.MustCompile(`^[1-9]\.? (?:de |d')?\p{L}+\.?,?(?: de| del)? (?:19|20)\d\d(?:\D|$)`)
	// anew begins like another answer, anotherCode is one.
	anew        = regexp.MustCompile(`^(?:[1-6?](?: |$)|(?:approve|deny|reject|undo)(?: |$))`)
	anotherCode = regexp.MustCompile(`^(?:[1-6]|(?:approve|deny|reject)(?: [0-9a-f]{4,64})?)$`)
	// regret begins like a second thought.
	regret = regexp.MustCompile(`^(?:no|not|wait|stop|sorry|actually|cancel|don't|nein|halt|stopp|warte|nicht|non|attends|arrête|aspetta|ferma|espera|para|nee|wacht|nej|vänta|nie|нет|стоп|подожди|いいえ|待って|不|等等)(?:[,.!…;:– ]*$|[,.!…;:] )`)
)

// second says whether line i may be another answer: one begins a block, and
// stands in the midst of one only by itself (a house number is none).
func (r *reader) second(i int) bool {
	ink := r.lines[i].ink
	if i > 0 && r.lines[i-1].kind == isText {
		return anotherCode.MatchString(ink)
	}
	return anew.MatchString(ink) || regret.MatchString(ink)
}

// tidyAnswer makes every blank a space, and takes what has no ink away from the
// first word and the ends.
func tidyAnswer(s string) string {
	s = strings.Map(func(r rune) rune {
		if r != '\n' && isBlank(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimFunc(s, func(r rune) bool { return r == '\n' || isBlank(r) || isInkless(r) })
	first, rest, found := strings.Cut(s, " ")
	if strings.ContainsRune(first, '\n') || !found {
		return s
	}
	return inkOf(first) + " " + rest
}

// unfit says whether a text holds what nobody types.
func unfit(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return r == utf8.RuneError || r != '\n' && unicode.IsControl(r)
	})
}
