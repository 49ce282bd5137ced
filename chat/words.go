package chat

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
)

// replyWords are the closed sets of words of one language in which a person decides without a
// code. A text with any other word decides nothing.
type replyWords struct {
	Approve     phrases
	ApproveVerb phrases // that a note may follow: "approve, but be brief"
	Deny        phrases
	DenyVerb    phrases // that any reason may follow: "deny: too early"
	Fillers     phrases // change nothing
	Polite      phrases // likewise, and may follow a code or stand in a signature
	But         wordSet // between a verb and a note
	Because     wordSet // between a verb and a reason
	Counts      wordSet // behind a digit: the sentence reads on
	Not         wordSet // behind a code: it takes the approval back
	When        wordSet // behind a code: it has a condition or another time
	Begins      wordSet // with which a note behind a code begins
	Manner      wordSet // of which a note behind a word consists
	Alone       phrases // deny if nothing else is said
	Doubts      wordSet // behind "no": it may be no denial
	Automatic   phrases // of automatic replies
	GivenNames  wordSet // each may stand below a reply; none has another meaning
}

// phrases are word groups, written with ";" between them.
type phrases map[string]bool

// UnmarshalText reads the phrases.
func (p *phrases) UnmarshalText(text []byte) error {
	*p = phrases{}
	for phrase := range strings.SplitSeq(string(text), ";") {
		(*p)[strings.Join(strings.Fields(phrase), " ")] = true
	}
	delete(*p, "")
	return nil
}

const (
	maxPhrase  = 6  // words
	maxVerdict = 80 // bytes, before a note or a reason
)

func everyReplyWords() (all []*replyWords) {
	for _, language := range Languages() {
		all = append(all, &catalog(language).Replies)
	}
	return all
}

const (
	marks    = ".!,;:-–—"   // may stand anywhere between words
	dividers = ":,;.!–— \n" // may stand before a note or a reason
	symbols  = "👍👎✅✔🆗👌❌🚫⛔🙏🙂😊😀"
)

var composed = strings.NewReplacer("’", "'", "a\u0300", "à", "e\u0300", "è", "e\u0301", "é", "i\u0300", "ì", "o\u0300", "ò", "u\u0300", "ù",
	"\ufe0f", "", "🏻", "", "🏼", "", "🏽", "", "🏾", "", "🏿", "")

// lowerLatin lowers the letters of Latin-1 only: see LowerASCII.
func lowerLatin(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= unicode.MaxLatin1 {
			return unicode.ToLower(r)
		}
		return r
	}, s)
}

// splitWords returns the words and symbols of a text, in lower case. ok is false if it has
// other characters, but for marks.
func splitWords(text string) (words []string, ok bool) {
	ok = true
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), r == '\'', strings.ContainsRune(symbols, r):
			return r
		case !strings.ContainsRune(white+marks, r):
			ok = false
		}
		return ' '
	}, lowerLatin(composed.Replace(text)))
	for _, symbol := range symbols {
		text = strings.ReplaceAll(text, string(symbol), " "+string(symbol)+" ")
	}
	return strings.Fields(text), ok
}

// cut divides words into known phrases, the longest first; names count as such. ok is false if
// it ends before an unknown word.
func (w *replyWords) cut(words, names []string) (all []string, ok bool) {
	for len(words) > 0 {
		n := min(len(words), maxPhrase)
		for n > 0 && !w.knows(strings.Join(words[:n], " ")) {
			n--
		}
		if n == 0 && slices.Contains(names, words[0]) {
			n = 1
		}
		if n == 0 {
			return all, false
		}
		all, words = append(all, strings.Join(words[:n], " ")), words[n:]
	}
	return all, len(all) > 0
}

func (w *replyWords) knows(s string) bool {
	return w.Approve[s] || w.ApproveVerb[s] || w.Deny[s] || w.DenyVerb[s] || w.Fillers[s] || w.Polite[s]
}

// verdict reads a text of known words: the code, and whether text may follow it.
func (w *replyWords) verdict(text string, names []string) (code string, verb bool) {
	words, ok := splitWords(text)
	if !ok || strings.Contains(text, "..") { // "ok..." hesitates
		return "", false
	}
	all, known := w.cut(words, names)
	if !known {
		return "", false
	}
	approves := slices.ContainsFunc(all, func(s string) bool { return w.Approve[s] || w.ApproveVerb[s] })
	denies := slices.ContainsFunc(all, func(s string) bool { return w.Deny[s] || w.DenyVerb[s] })
	verb = slices.ContainsFunc(all, func(s string) bool { return w.ApproveVerb[s] || w.DenyVerb[s] })
	switch {
	case approves == denies:
		return "", false
	case approves:
		return "1", verb
	}
	return "3", verb
}

// decide returns the code that a reply in words stands for, with a note or a reason. "" is no
// decision.
func (w *replyWords) decide(text string, names []string) (code, with string) {
	text = w.withoutSignature(text, names)
	if code, _ := w.verdict(text, names); code != "" && !strings.Contains(text, "\n") {
		return code, ""
	}
	if words, ok := splitWords(text); ok && w.Alone[strings.Join(words, " ")] {
		return "3", ""
	}
	for _, dividers := range []string{":,;.!–—", white} {
		for i, r := range text[:min(len(text), maxVerdict)] {
			if !strings.ContainsRune(dividers, r) || w.splitsPhrase(text, text[:i]) {
				continue
			}
			if code, with = w.withText(text[:i], r, trim(text[i+utf8.RuneLen(r):])); code != "" {
				return code, with
			}
		}
	}
	return "", ""
}

// withText is decide for a text that a divider cuts into a verdict and a note or a reason.
func (w *replyWords) withText(first string, divider rune, rest string) (code, with string) {
	code, verb := w.verdict(first, nil)
	space := strings.ContainsRune(white, divider)
	word, after, _ := cutWhite(rest)
	word = lowerLatin(word)
	switch {
	case code == "1" && w.But[word] && w.isNote(after):
		return "4", after
	case code == "1" && verb && !space && w.isNote(rest):
		return "4", rest
	case code == "3" && verb && divider == ':' && rest != "":
		return code, rest
	case code == "3" && (!space || verb || w.Because[word]) && !namesRequest(rest) && isReason(rest, verb):
		return code, rest
	}
	return "", ""
}

// splitsPhrase reports whether a text has a phrase that begins in its first part and ends behind it.
func (w *replyWords) splitsPhrase(text, first string) bool {
	words, _ := splitWords(text)
	before, _ := splitWords(first)
	all, _ := w.cut(words, nil)
	n := 0
	for _, s := range all {
		if n += 1 + strings.Count(s, " "); n >= len(before) {
			break
		}
	}
	return n != len(before)
}

// withoutSignature removes lines below the first: thanks, names of the person, and another name where one may stand.
func (w *replyWords) withoutSignature(text string, names []string) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool { return trim(s) == "" })
	for n := len(lines); n > 1; n = len(lines) {
		last := trim(lines[n-1])
		signed := strings.TrimLeft(last, "-–— ")
		marked := signed != last || w.isPolite(lines[n-2], nil)
		mayName := marked || n == 2 && w.takesName(lines[0], names)
		if isSignature := w.isPolite(last, names) || mayName && w.isName(signed, names, marked); !isSignature {
			break
		}
		lines = lines[:n-1]
	}
	return trim(strings.Join(lines, "\n"))
}

// takesName reports whether a name may stand below a line without a dash or thanks: the line decides. A reason may go
// on with a name.
func (w *replyWords) takesName(line string, names []string) bool {
	code, with := w.decide(line, names)
	return code != "" && (code != "3" || with == "")
}

// isName reports whether a line is one to three capitalized given names, or names of the person. These are a closed
// list, since any other word, of whatever language, may take a decision back: "Thanks" and "Delayed", "Tom Refused".
// Behind a dash or thanks a surname may follow.
func (w *replyWords) isName(line string, names []string, surname bool) bool {
	words := strings.FieldsFunc(line, func(r rune) bool { return r == '-' || strings.ContainsRune(white, r) })
	if len(words) == 0 || len(words) > 3 || strings.ContainsAny(line, ",;:!–—") {
		return false
	}
	for i, word := range words {
		first, _ := utf8.DecodeRuneInString(word)
		plain, ok := splitWords(word)
		switch {
		case !ok || len(plain) != 1 || !unicode.IsUpper(first):
			return false
		case hasWord(plain, givenNames) || slices.Contains(names, plain[0]):
		case !surname || i == 0 || w.knows(plain[0]) || strings.HasSuffix(plain[0], "n't") || hasWord(plain, notWords, whenWords, doubtWords, countWords):
			return false
		}
	}
	return true
}

// The sets that are safe to look in for every language at once.
func countWords(w *replyWords) wordSet { return w.Counts }
func notWords(w *replyWords) wordSet   { return w.Not }
func whenWords(w *replyWords) wordSet  { return w.When }
func beginWords(w *replyWords) wordSet { return w.Begins }
func doubtWords(w *replyWords) wordSet { return w.Doubts }
func givenNames(w *replyWords) wordSet { return w.GivenNames }

// hasWord reports whether a word is in one of these sets of any language.
func hasWord(words []string, sets ...func(*replyWords) wordSet) bool {
	for _, w := range everyReplyWords() {
		for _, set := range sets {
			if slices.ContainsFunc(words, func(s string) bool { return set(w)[s] }) {
				return true
			}
		}
	}
	return false
}

// looseWords are the words of any text, in lower case.
func looseWords(text string) []string {
	return strings.FieldsFunc(lowerLatin(composed.Replace(text)), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' })
}

// isPlainNote reports whether text behind the code of a note is one: it begins like one, does not ask, sets no
// condition and no time, and takes nothing back.
func isPlainNote(note string) bool {
	words := looseWords(note)
	return len(words) > 0 && hasWord(words[:1], beginWords) && !strings.ContainsAny(note, "?？¿") && !hasWord(words, notWords, whenWords) &&
		!hasPhrase(note, denying) && !slices.ContainsFunc(words, func(s string) bool { return strings.HasSuffix(s, "n't") })
}

// isChange reports whether text behind the code of a change is one: "5 shorter", but not "5 thanks" or "5 Bob".
func isChange(text string) bool {
	words := looseWords(text)
	return len(words) > 0 && !slices.ContainsFunc(everyReplyWords(), func(w *replyWords) bool {
		_, known := w.cut(words, nil)
		return known || len(words) == 1 && w.GivenNames[words[0]]
	})
}

// isNote reports whether text behind words that approve is about the manner only.
func (w *replyWords) isNote(text string) bool {
	words, ok := splitWords(text)
	return ok && len(words) > 0 && !slices.ContainsFunc(words, func(s string) bool { return !w.Manner[s] })
}

// isReason reports whether text behind a denial is a reason. Behind a verb almost any is.
func isReason(text string, verb bool) bool {
	words := looseWords(text)
	if len(words) == 0 || beginsWithDigit(text) || strings.ContainsAny(text, "?？¿") {
		return false
	}
	return !hasPhrase(text, approving) && (verb || !hasWord(words, doubtWords))
}

// namesRequest reports whether the first word of a text may be an id.
func namesRequest(text string) bool {
	word, _, _ := cutWhite(text)
	word = strings.Trim(word, marks+"?()")
	return len(word) >= minID && approval.MaybeID(word)
}

func beginsWithDigit(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsDigit(r)
}

// readsOn reports whether text behind a code is the rest of a sentence that began with a number,
// or of an automatic reply.
func readsOn(text string) bool {
	words := looseWords(text)
	return len(words) > 0 && hasWord(words[:1], countWords) || isAutomatic(text)
}

// isAutomatic reports whether a text has a phrase of an automatic reply.
func isAutomatic(text string) bool {
	return hasPhrase(text, func(w *replyWords) []phrases { return []phrases{w.Automatic} })
}

func approving(w *replyWords) []phrases { return []phrases{w.Approve, w.ApproveVerb} }
func denying(w *replyWords) []phrases   { return []phrases{w.Deny, w.DenyVerb} }

// hasPhrase reports whether a text has a phrase of these sets of any language.
func hasPhrase(text string, sets func(*replyWords) []phrases) bool {
	said := " " + strings.Join(looseWords(text), " ") + " "
	for _, w := range everyReplyWords() {
		for _, set := range sets(w) {
			for phrase := range set {
				if strings.Contains(said, " "+phrase+" ") {
					return true
				}
			}
		}
	}
	return false
}

// isPolite reports whether a text consists of polite words and names of the person.
func (w *replyWords) isPolite(text string, names []string) bool {
	words, ok := splitWords(text)
	all, known := w.cut(words, names)
	return ok && known && !slices.ContainsFunc(all, func(s string) bool { return !w.Polite[s] && !slices.Contains(names, s) })
}

// isPolite reports whether a text may follow a code that takes none.
func isPolite(text string, names []string) bool {
	return slices.ContainsFunc(everyReplyWords(), func(w *replyWords) bool { return w.isPolite(text, names) })
}

// asks reports whether a text is a sentence that asks, and no decision that hesitates.
func asks(text string) bool {
	first, _ := utf8.DecodeRuneInString(text)
	said := looseWords(text)
	if len(said) < 2 || hasWord(said[:2], notWords) || strings.HasSuffix(said[0], "n't") || len(text) > maxQuestion || !unicode.IsLetter(first) || !strings.HasSuffix(text, "?") || strings.ContainsAny(text, "\r\n") {
		return false
	}
	words, _ := splitWords(text)
	return !slices.ContainsFunc(everyReplyWords(), func(w *replyWords) bool {
		known, _ := w.cut(words, nil)
		return slices.ContainsFunc(known, func(s string) bool { return w.Approve[s] || w.ApproveVerb[s] || w.Deny[s] || w.DenyVerb[s] })
	})
}

// decideInWords reads a reply in the words of any language.
func decideInWords(text string, names []string) Command {
	if isAutomatic(text) || strings.IndexAny(text, "!-–—") == 0 { // "!ok" may mean the opposite
		return Command{}
	}
	for _, w := range everyReplyWords() {
		if code, with := w.decide(text, names); code != "" {
			return Command{Kind: Menu, Code: code, Text: with}
		}
	}
	return Command{}
}
