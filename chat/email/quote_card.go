package email

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// cardWords are the fixed words of a card, in every language. They come from cards
// that we render, so they change with the cards. They are compared without
// punctuation: mail programs lose the lock, the dots and the angle brackets.
type cardWords struct {
	heads [][]string // how a line of the head begins
	menus [][]string // complete menu lines
	gives []string   // how a line begins that says what would be remembered, as a normalized text
	until [][]string // the words before the deadline
}

const exampleID = "0123abcd"

// ownCardWords renders an example of each card.
var ownCardWords = sync.OnceValue(func() *cardWords {
	c := &cardWords{}
	for _, l := range earlierMenus {
		c.menus = append(c.menus, wordsOf(l))
	}
	for _, lang := range chat.Languages() {
		for _, l := range chat.Menus(lang) {
			c.menus = append(c.menus, wordsOf(l))
		}
		for _, editable := range []bool{false, true} {
			for _, l := range menuOf(textsFor(lang).codeLines(true, editable, "", "")) {
				c.menus = append(c.menus, wordsOf(l))
			}
		}
		for _, l := range chat.Remembers(lang) {
			c.gives = append(c.gives, normalize(l))
		}
		for _, kind := range []string{approval.TypeAction, approval.TypeQuestion} {
			for _, options := range [][]string{nil, {"a"}} {
				for _, r := range []approval.Reversibility{approval.Reversible, approval.Partial, approval.Irreversible} {
					c.add(chat.Style{Language: lang}.Card(&approval.Pending{
						ShortID: exampleID, Type: kind, SourceGroup: "w", ToolName: "t", RequestData: approval.Raw(`{}`),
						Options: options, ExpiresAt: time.Unix(0, 0), Timestamp: time.Unix(0, 0), Reversibility: r,
					}))
				}
			}
		}
	}
	return c
})

func (c *cardWords) add(card chat.Card) {
	head := wordsOf(card.Meta)
	c.heads = append(c.heads, head[:len(head)-1]) // without the class
	parts := strings.Split(card.Foot, " · ")
	foot := wordsOf(parts[len(parts)-1])
	if n := slices.IndexFunc(foot, isNumeral); n > 0 {
		c.until = append(c.until, foot[:n])
	}
}

const lock = "🔐"

// Cards of earlier versions began with one of these, and an id, and had these menus. They
// are still in mailboxes.
var (
	earlierHeads = [][]string{
		{"approval", "required"}, {"answer", "required"}, {"serve", "un", "approvazione"}, {"serve", "una", "risposta"},
	}
	earlierMenus = []string{
		"1 once · 2 session · 3 deny · 4 <note> · 5 <change> · 6 always",
		"1 una volta · 2 sessione · 3 nega · 4 <nota> · 5 <modifica> · 6 sempre",
	}
)

var (
	shortID         = pattern(`^[0-9a-f]{8,64}$`)
	footStart       = pattern(`^(?:→|/|\?) ?(?:approve|deny)(?: |$)`)
	footPart        = pattern(`^·|·$|^deny [0-9a-f]{8,} \S+ [·?](?: |$)`) // the foot, wrapped
	sizeMark        = pattern(`\(~\d+ B\)$`)                              // ends the object line
	placeholderLine = pattern(`^[1-6]:? ?<\p{L}+>`)                       // "4: <note>": a placeholder of the menu
	optionLine      = pattern(`^[1-9] ["“„«].*["”“»]$`)
)

// isFirstLine says whether a line is one of the first of a card: the question, the object
// or, where a mail program lost the lock, what follows.
func (c *cardWords) isFirstLine(l line) bool {
	return strings.Contains(l.norm, lock) || sizeMark().MatchString(l.norm) || c.isHead(wordsOf(l.norm))
}

// contains says whether a line is part of a card, possibly a wrapped part.
func (c *cardWords) contains(l line) bool {
	if strings.Contains(l.norm, lock) || sizeMark().MatchString(l.norm) || footPart().MatchString(l.norm) || footStart().MatchString(l.norm) || optionLine().MatchString(l.norm) || placeholderLine().MatchString(l.norm) {
		return true
	}
	gives := func(begin string) bool { return strings.HasPrefix(l.norm, begin) }
	words := wordsOf(l.norm)
	return slices.ContainsFunc(c.gives, gives) || c.isHead(words) || c.isMenu(words, l.norm) || c.isFoot(words)
}

func (c *cardWords) isHead(words []string) bool {
	begins := func(h []string) bool { return len(words) >= len(h) && slices.Equal(words[:len(h)], h) }
	if slices.ContainsFunc(c.heads, begins) {
		return true
	}
	return slices.ContainsFunc(earlierHeads, begins) && slices.ContainsFunc(words, shortID().MatchString)
}

// isMenu says whether words continue like a part of the menu. An approver may type
// two of them ("3 deny"), so two count only with the punctuation of a menu or after
// a code that takes a text.
func (c *cardWords) isMenu(words []string, norm string) bool {
	const enough = 4
	if len(words) < 2 {
		return false
	}
	words = words[:min(len(words), enough)]
	for _, menu := range c.menus {
		for i := range menu {
			if len(words) > len(menu)-i || !slices.Equal(menu[i:i+len(words)], words) {
				continue
			}
			if len(words) > 2 || strings.ContainsAny(norm, "<>·•|") || slices.Contains([]string{"4", "5", approval.CodeEdit}, words[0]) {
				return true
			}
		}
	}
	return false
}

// isFoot recognizes "approve ID / deny ID · until …", also a part of it before or
// after a line break.
func (c *cardWords) isFoot(words []string) bool {
	if len(words) > 2 && words[0] == "approve" && shortID().MatchString(words[1]) && words[2] == "deny" {
		return true
	}
	denied := len(words) > 2 && words[0] == "deny" && shortID().MatchString(words[1])
	if denied {
		words = words[2:]
	}
	for _, until := range c.until {
		if i := slices.Index(words, until[0]); i > 0 && len(words) > i+len(until) && isNumeral(words[i+len(until)]) && slices.Equal(words[i:i+len(until)], until) {
			return true // the workspace and the tool precede it
		}
		n := min(len(words), len(until))
		if !slices.Equal(words[:n], until[:n]) {
			continue
		}
		if len(words) > n && isNumeral(words[n]) || denied && len(words) == n {
			return true
		}
	}
	return false
}

// wordsOf are the letters and digits of s, in lower case.
func wordsOf(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}
