package email

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is the kind of a line. Only isText can be an answer.
type kind uint8

const (
	isText        kind = iota
	isBlankLine        // empty, or invisible characters only
	isQuote            // after a quotation mark of any style
	isAttribution      // "On …, Ann wrote:"
	isHeader           // From: Sent: To: Subject: of the message replied to
	isMarker           // -----Original Message-----, Begin forwarded message:
	isRule             // ________________
	isDelimiter        // "-- " before a signature
	isMobile           // Sent from my phone
	isCard             // a line of one of our cards
)

// line is one classified line of an email.
type line struct {
	text string // as received, without trailing blanks
	ink  string // for comparing: lower case, without markup and invisible characters
	kind kind
	// loose says that the line could also be the writer's own text that looks like this
	// kind. Next to an answer that takes a text, it makes the answer unclear.
	loose bool
}

// quoter classifies the lines of an email.
type quoter struct {
	lines []line
	card  *cardWords
}

// maxNotice is the longest line that is compared: mail programs write no longer ones
// around a quotation.
const maxNotice = 400

// readLines classifies every line.
func readLines(text string) []line {
	q := &quoter{card: ourCard()}
	for l := range strings.SplitSeq(text, "\n") {
		l = strings.TrimRightFunc(l, func(r rune) bool { return isBlank(r) || isInkless(r) })
		q.lines = append(q.lines, line{text: l, ink: notice(l)})
	}
	for i := range q.lines {
		q.lines[i].kind = q.atSight(q.lines[i])
	}
	for i := 0; i < len(q.lines); i++ {
		if q.lines[i].kind == isText {
			i = q.inContext(i)
		}
	}
	q.looseRules()
	return q.lines
}

// notice is the form of a line for comparing.
func notice(l string) string {
	if len(l) > maxNotice {
		cut := maxNotice
		for !utf8.RuneStart(l[cut]) {
			cut--
		}
		l = l[:cut]
	}
	l = strings.ReplaceAll(inkOf(l), "*", "")
	l = strings.ReplaceAll(strings.ToLower(l), "i\u0307", "i") // the Turkish İ
	return strings.Join(strings.Fields(l), " ")
}

// inkOf removes invisible characters and converts every blank to a space.
func inkOf(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case isBlank(r):
			return ' '
		case isInkless(r):
			return -1
		}
		return r
	}, s)
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || unicode.Is(unicode.Zs, r) }

func isInkless(r rune) bool {
	return r > 0x7f && unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) || r == '\u2800'
}

var (
	// initials begin a quoted line in an old style: "JD> …".
	initials = regexp.MustCompile(`^[A-Z]{1,4}> `)
	rule     = regexp.MustCompile(`^(?:(?:[-_=~#.+] ?){3,}|(?:[—–─━﹣－＿]\s?){2,})$`)
	// marked is a line of any words between dashes.
	marked  = regexp.MustCompile(`^[-_=]{2,}[ |]*\p{L}.{2,80}?[ |]*[-_=]{2,}$`)
	dashes3 = regexp.MustCompile(`^[-_=]{3,}.*[-_=]{3,}$`)
)

// quoteMarks begin a quoted line: ">" in any width and nesting, and the bars of some
// programs and of our own blocks.
var quoteMarks = []string{">", "＞", "&gt;", "|", "│", "┃", "▏"}

func isQuoted(bare string) bool {
	return hasPrefixOf(bare, quoteMarks) || initials.MatchString(bare)
}

// isRuled says whether a line may consist of dashes, alone or around words.
func isRuled(ink string) bool {
	r, _ := utf8.DecodeRuneInString(ink)
	return strings.ContainsRune("-_=~#.+—–─━﹣－＿", r)
}

// atSight is the kind of a line by itself, without its neighbors.
func (q *quoter) atSight(l line) kind {
	bare := strings.TrimLeft(inkOf(l.text), " ")
	switch {
	case l.ink == "":
		if strings.Trim(bare, " ") != "" && len(l.text) < maxNotice {
			return isRule // only asterisks
		}
		return isBlankLine
	case isQuoted(bare):
		return isQuote
	case l.ink == "--" || l.ink == "—" || l.ink == "––":
		return isDelimiter
	case isRuled(l.ink) && rule.MatchString(l.ink):
		return isRule
	case isRuled(l.ink) && marked.MatchString(l.ink) || forwardMark(l.ink):
		return isMarker
	case q.card.has(l):
		return isCard
	case mobileSignature(l.ink):
		return isMobile
	}
	return isText
}

// inContext classifies what begins at a line that is isText by itself. It returns the
// last line of it.
func (q *quoter) inContext(i int) int {
	if end, loose, ok := q.header(i); ok {
		return q.mark(i, end, isHeader, loose)
	}
	if end, ok := q.attribution(i); ok {
		loose := q.between(i) && !year.MatchString(q.lines[i].ink) || !evident(q.joined(i, end))
		return q.mark(q.reach(i), end, isAttribution, loose)
	}
	if start, ok := q.attributionEnd(i); ok {
		start = q.reach(start)
		q.mark(start, i, isAttribution, q.between(start))
	}
	return i
}

// reach returns the first line of the block that an attribution ends. It stops if an
// answer is there.
func (q *quoter) reach(start int) int {
	top := start
	for q.textAbove(top) && start-top < maxAttribution {
		top--
	}
	if q.textAbove(top) || anew.MatchString(q.lines[top].ink) {
		return start
	}
	return top
}

// between says whether a line stands between an attribution and the first line of its
// block. Such a line may belong to either.
func (q *quoter) between(start int) bool {
	return start > 1 && q.textAbove(start) && q.textAbove(start-1)
}

func (q *quoter) mark(from, to int, k kind, loose bool) int {
	for i := from; i <= to; i++ {
		if q.lines[i].kind != isBlankLine {
			q.lines[i].kind, q.lines[i].loose = k, loose
		}
	}
	return to
}

// looseRules marks the rules that could be the writer's own: no header, marker or
// attribution follows. Of a card, all but the head is loose: the text right above it
// belongs to the card.
func (q *quoter) looseRules() {
	next := isText // kind of the next line that is not blank
	for i := len(q.lines) - 1; i >= 0; i-- {
		l := &q.lines[i]
		switch l.kind {
		case isBlankLine:
			continue
		case isRule:
			l.loose = next != isHeader && next != isMarker && next != isAttribution && next != isCard && next != isQuote
		case isCard:
			l.loose = !q.card.starts(*l)
		case isMarker:
			l.loose = marked.MatchString(l.ink) && !dashes3.MatchString(l.ink)
		}
		next = l.kind
	}
}

// How many lines around a line are checked.
const (
	maxAttribution = 6
	maxHeaderLines = 8
)

// attribution finds an attribution that begins at line i with a typical first word,
// and returns its last line. Of several such words the last one counts: the lines above
// may be an answer.
func (q *quoter) attribution(i int) (end int, ok bool) {
	if !beginsAttribution(q.lines[i].ink) {
		return 0, false
	}
	for end = i; end < len(q.lines) && end < i+maxAttribution && q.lines[end].kind == isText; end++ {
		if !q.closes(end) {
			continue
		}
		for start := end; start >= i; start-- {
			if beginsAttribution(q.lines[start].ink) && (wrote(q.joined(start, end)) || q.tells(start, end)) {
				return end, start == i
			}
		}
	}
	return 0, false
}

// tells says whether some lines, joined, name an author and a time.
func (q *quoter) tells(from, to int) bool {
	joined := q.joined(from, to)
	return len(joined) <= 2*maxNotice && saidBy(joined) && evident(joined)
}

func (q *quoter) joined(from, to int) string {
	var inks []string
	for _, l := range q.lines[from : to+1] {
		inks = append(inks, l.ink)
	}
	return strings.Join(inks, " ")
}

// closes says whether an attribution may end with a line.
func (q *quoter) closes(i int) bool {
	return endsAttribution(q.lines[i].ink) || wrote(q.lines[i].ink) && q.quotedNext(i)
}

// attributionEnd finds an attribution that ends at line i, for languages without a
// typical first word. It returns its first line, as far as that can be determined.
func (q *quoter) attributionEnd(i int) (start int, ok bool) {
	if !q.closes(i) {
		return 0, false
	}
	quoted := q.quotedNext(i)
	if !quoted && !saidBy(q.joined(max(0, i-maxAttribution+1), i)) {
		return 0, false // no part of it names an author either
	}
	for start = i; start >= 0 && start > i-maxAttribution && q.lines[start].kind == isText; start-- {
		if q.tells(start, i) {
			return q.dateAbove(start), true
		}
		if joined := q.joined(start, i); quoted && (saidBy(joined) || evident(joined)) {
			return q.dateAbove(start), true
		}
	}
	return 0, false
}

// dateAbove extends an attribution without a date upward to the lines of the date.
func (q *quoter) dateAbove(start int) int {
	dated := func(i int) bool { return q.lines[i].kind == isText && clockOrYear.MatchString(q.lines[i].ink) }
	top := start
	for i := start; i >= 0 && i > start-maxAttribution && q.lines[i].kind == isText; i-- {
		if dated(i) {
			top = i
			break
		}
	}
	for top > 0 && top > start-maxAttribution && dated(top-1) {
		top--
	}
	return top
}

// quotedNext says whether the next line that is not blank is quoted.
func (q *quoter) quotedNext(i int) bool {
	for i++; i < len(q.lines); i++ {
		if q.lines[i].kind != isBlankLine {
			return q.lines[i].kind == isQuote
		}
	}
	return false
}

// header finds the block of header lines that begins at line i: at least two fields
// with known labels, or three lines that look like fields and contain an address.
func (q *quoter) header(i int) (end int, loose, ok bool) {
	if onOneLine(q.lines[i].ink) {
		return i, false, true
	}
	label, known := fieldLabel(q.lines[i].ink)
	if label == "" || !known && !strings.Contains(q.lines[i].ink, "@") {
		return 0, false, false
	}
	b := q.fields(i)
	switch {
	case len(b.known) >= 3 && b.from && b.evident, len(b.known) >= 2 && b.from && b.evident && !q.textAbove(i):
		return b.end, false, true
	case len(b.known) >= 2, b.count >= 3 && strings.Contains(q.lines[i].ink, "@"):
		return b.end, true, true
	case known && (!fromLabels[label] || strings.Contains(q.lines[i].ink, "@")):
		return i, true, true
	}
	return 0, false, false
}

// fieldBlock is a run of lines that look like header fields.
type fieldBlock struct {
	end     int             // its last line
	count   int             // of fields
	known   map[string]bool // the known labels
	from    bool            // one names a sender
	evident bool            // one contains an address or a time
}

// fields reads a block from line i, over single blank lines and folded ones.
func (q *quoter) fields(i int) fieldBlock {
	b := fieldBlock{end: i, known: map[string]bool{}}
	blank, folded := false, false
	for j := i; j < len(q.lines) && b.count < maxHeaderLines; j++ {
		l := q.lines[j]
		if l.kind == isBlankLine {
			if blank {
				break
			}
			blank = true
			continue
		}
		label, known := "", false
		if l.kind == isText {
			label, known = fieldLabel(l.ink)
		}
		switch {
		case label != "":
			b.count, blank, folded = b.count+1, false, false
			b.evident = b.evident || strings.Contains(l.ink, "@") || clockOrYear.MatchString(l.ink)
			if known {
				b.known[label] = true
				b.from = b.from || fromLabels[label]
			}
		case blank || folded || l.kind != isText:
			return b
		default:
			folded = true
		}
		b.end = j
	}
	return b
}

func (q *quoter) textAbove(i int) bool { return i > 0 && q.lines[i-1].kind == isText }
