package email

import (
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
	norm string // for comparing: lower case, without markup and invisible characters
	kind kind
	// uncertain says that the line could also be the writer's own text that looks like this
	// kind. Next to an answer that takes a text, it makes the answer unclear.
	uncertain bool
}

// classifier classifies the lines of an email.
type classifier struct {
	lines []line
	card  *cardWords
}

// maxCompared is the longest line that is compared: mail programs write no longer ones
// around a quotation.
const maxCompared = 400

// readLines classifies every line.
func readLines(text string) []line {
	q := &classifier{card: ownCardWords()}
	for l := range strings.SplitSeq(text, "\n") {
		l = strings.TrimRightFunc(l, func(r rune) bool { return isBlank(r) || isInvisible(r) })
		q.lines = append(q.lines, line{text: l, norm: normalize(l)})
	}
	for i := range q.lines {
		q.lines[i].kind = q.kindAlone(q.lines[i])
	}
	for i := 0; i < len(q.lines); i++ {
		if q.lines[i].kind == isText {
			i = q.classifyFrom(i)
		}
	}
	q.markUncertain()
	return q.lines
}

// normalize is the form of a line for comparing.
func normalize(l string) string {
	if len(l) > maxCompared {
		cut := maxCompared
		for !utf8.RuneStart(l[cut]) {
			cut--
		}
		l = l[:cut]
	}
	l = strings.ReplaceAll(visibleText(l), "*", "")
	l = strings.ReplaceAll(strings.ToLower(l), "i\u0307", "i") // the Turkish İ
	return strings.Join(strings.Fields(l), " ")
}

// visibleText removes invisible characters and converts every blank to a space.
func visibleText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case isBlank(r):
			return ' '
		case isInvisible(r):
			return -1
		}
		return r
	}, s)
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || unicode.Is(unicode.Zs, r) }

func isInvisible(r rune) bool {
	return r > 0x7f && unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) || r == '\u2800'
}

var (
	// initials begin a quoted line in an old style: "JD> …".
	initials = pattern(`^[A-Z]{1,4}> `)
	rule     = pattern(`^(?:(?:[-_=~#.+] ?){3,}|(?:[—–─━﹣－＿]\s?){2,})$`)
	// dashedText is a line of any words between dashes.
	dashedText = pattern(`^[-_=]{2,}[ |]*\p{L}.{2,80}?[ |]*[-_=]{2,}$`)
	dashes3    = pattern(`^[-_=]{3,}.*[-_=]{3,}$`)
)

// quoteMarks begin a quoted line: ">" in any width and nesting, and the bars of some
// programs and of our own blocks.
var quoteMarks = []string{">", "＞", "&gt;", "|", "│", "┃", "▏"}

func isQuoted(bare string) bool {
	return hasPrefixOf(bare, quoteMarks) || initials().MatchString(bare)
}

// kindAlone is the kind of a line by itself, without its neighbors.
func (q *classifier) kindAlone(l line) kind {
	bare := strings.TrimLeft(visibleText(l.text), " ")
	switch {
	case l.norm == "":
		if strings.Trim(bare, " ") != "" && len(l.text) < maxCompared {
			return isRule // only asterisks
		}
		return isBlankLine
	case isQuoted(bare):
		return isQuote
	case l.norm == "--" || l.norm == "—" || l.norm == "––":
		return isDelimiter
	case rule().MatchString(l.norm):
		return isRule
	case dashedText().MatchString(l.norm) || forwardMark(l.norm):
		return isMarker
	case q.card.contains(l):
		return isCard
	case mobileSignature(l.norm):
		return isMobile
	}
	return isText
}

// classifyFrom classifies what begins at a line that is isText by itself. It returns the
// last line of it.
func (q *classifier) classifyFrom(i int) int {
	if end, loose, ok := q.header(i); ok {
		return q.setKind(i, end, isHeader, loose)
	}
	if end, ok := q.attribution(i); ok {
		loose := q.ownerUnclear(i) && !year().MatchString(q.lines[i].norm) || !hasDateOrAddress(q.joined(i, end))
		return q.setKind(q.blockStart(i), end, isAttribution, loose)
	}
	if start, ok := q.attributionEnd(i); ok {
		start = q.blockStart(start)
		q.setKind(start, i, isAttribution, q.ownerUnclear(start))
	}
	return i
}

// blockStart returns the first line of the block that an attribution ends. It stops if an
// answer is there.
func (q *classifier) blockStart(start int) int {
	top := start
	for q.textAbove(top) && start-top < maxAttribution {
		top--
	}
	if q.textAbove(top) || otherAnswer().MatchString(q.lines[top].norm) {
		return start
	}
	return top
}

// ownerUnclear says whether a line stands between an attribution and the first line of its
// block. Such a line may belong to either.
func (q *classifier) ownerUnclear(start int) bool {
	return start > 1 && q.textAbove(start) && q.textAbove(start-1)
}

func (q *classifier) setKind(from, to int, k kind, loose bool) int {
	for i := from; i <= to; i++ {
		if q.lines[i].kind != isBlankLine {
			q.lines[i].kind, q.lines[i].uncertain = k, loose
		}
	}
	return to
}

// markUncertain marks the rules that could be the writer's own: no header, marker or
// attribution follows. Of a card, all but the head is loose: the text right above it
// belongs to the card.
func (q *classifier) markUncertain() {
	next := isText // kind of the next line that is not blank
	for i := len(q.lines) - 1; i >= 0; i-- {
		l := &q.lines[i]
		switch l.kind {
		case isBlankLine:
			continue
		case isRule:
			l.uncertain = next != isHeader && next != isMarker && next != isAttribution && next != isCard && next != isQuote
		case isCard:
			l.uncertain = !q.card.isFirstLine(*l)
		case isMarker:
			l.uncertain = dashedText().MatchString(l.norm) && !dashes3().MatchString(l.norm)
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
func (q *classifier) attribution(i int) (end int, ok bool) {
	if !beginsAttribution(q.lines[i].norm) {
		return 0, false
	}
	for end = i; end < len(q.lines) && end < i+maxAttribution && q.lines[end].kind == isText; end++ {
		if !q.mayEndAttribution(end) {
			continue
		}
		for start := end; start >= i; start-- {
			if beginsAttribution(q.lines[start].norm) && (hasVerb(q.joined(start, end)) || q.namesAuthorAndTime(start, end)) {
				return end, start == i
			}
		}
	}
	return 0, false
}

// namesAuthorAndTime says whether some lines, joined, name an author and a time.
func (q *classifier) namesAuthorAndTime(from, to int) bool {
	joined := q.joined(from, to)
	return len(joined) <= 2*maxCompared && namesAuthor(joined) && hasDateOrAddress(joined)
}

func (q *classifier) joined(from, to int) string {
	var inks []string
	for _, l := range q.lines[from : to+1] {
		inks = append(inks, l.norm)
	}
	return strings.Join(inks, " ")
}

// mayEndAttribution says whether an attribution may end with a line.
func (q *classifier) mayEndAttribution(i int) bool {
	return endsAttribution(q.lines[i].norm) || hasVerb(q.lines[i].norm) && q.nextIsQuoted(i)
}

// attributionEnd finds an attribution that ends at line i, for languages without a
// typical first word. It returns its first line, as far as that can be determined.
func (q *classifier) attributionEnd(i int) (start int, ok bool) {
	if !q.mayEndAttribution(i) {
		return 0, false
	}
	quoted := q.nextIsQuoted(i)
	if !quoted && !namesAuthor(q.joined(max(0, i-maxAttribution+1), i)) {
		return 0, false // no part of it names an author either
	}
	for start = i; start >= 0 && start > i-maxAttribution && q.lines[start].kind == isText; start-- {
		if q.namesAuthorAndTime(start, i) {
			return q.dateAbove(start), true
		}
		if joined := q.joined(start, i); quoted && (namesAuthor(joined) || hasDateOrAddress(joined)) {
			return q.dateAbove(start), true
		}
	}
	return 0, false
}

// dateAbove extends an attribution without a date upward to the lines of the date.
func (q *classifier) dateAbove(start int) int {
	dated := func(i int) bool { return q.lines[i].kind == isText && clockOrYear().MatchString(q.lines[i].norm) }
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

// nextIsQuoted says whether the next line that is not blank is quoted.
func (q *classifier) nextIsQuoted(i int) bool {
	for i++; i < len(q.lines); i++ {
		if q.lines[i].kind != isBlankLine {
			return q.lines[i].kind == isQuote
		}
	}
	return false
}

// header finds the block of header lines that begins at line i: at least two fields
// with known labels, or three lines that look like fields and contain an address.
func (q *classifier) header(i int) (end int, loose, ok bool) {
	if isInlineHeader(q.lines[i].norm) {
		return i, false, true
	}
	label, known := fieldLabel(q.lines[i].norm)
	if label == "" || !known && !strings.Contains(q.lines[i].norm, "@") {
		return 0, false, false
	}
	b := q.fields(i)
	switch {
	case len(b.known) >= 3 && b.from && b.hasDateOrAddress, len(b.known) >= 2 && b.from && b.hasDateOrAddress && !q.textAbove(i):
		return b.end, false, true
	case len(b.known) >= 2, b.count >= 3 && strings.Contains(q.lines[i].norm, "@"):
		return b.end, true, true
	case known && (!isFromLabel(label) || strings.Contains(q.lines[i].norm, "@")):
		return i, true, true
	}
	return 0, false, false
}

// fieldBlock is a run of lines that look like header fields.
type fieldBlock struct {
	end              int             // its last line
	count            int             // of fields
	known            map[string]bool // the known labels
	from             bool            // one names a sender
	hasDateOrAddress bool            // one contains an address or a time
}

// fields reads a block from line i, over single blank lines and folded ones.
func (q *classifier) fields(i int) fieldBlock {
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
			label, known = fieldLabel(l.norm)
		}
		switch {
		case label != "":
			b.count, blank, folded = b.count+1, false, false
			b.hasDateOrAddress = b.hasDateOrAddress || strings.Contains(l.norm, "@") || clockOrYear().MatchString(l.norm)
			if known {
				b.known[label] = true
				b.from = b.from || isFromLabel(label)
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

func (q *classifier) textAbove(i int) bool { return i > 0 && q.lines[i-1].kind == isText }
