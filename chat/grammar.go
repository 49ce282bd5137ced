package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
)

// Kind says what a message is.
type Kind uint8

// The kinds of message. The zero value decides nothing and asks for no reply.
const (
	NotAddressed Kind = iota // conversation
	Unclear                  // meant for us and not exact: one helpful answer
	Approve                  // approve ID
	Deny                     // deny ID, with Text as the reason
	Pending                  // the list, please
	Menu                     // Code, with Text where the code takes some
	Question                 // a question back, in Text
	Option                   // option number Option of a question
	Free                     // the answer to a question, in Text
	Undo                     // undo ID: take back what is remembered of that approval
)

// Problem says why a message is Unclear.
type Problem uint8

// The problems, from the most general on.
const (
	NotExact    Problem = iota // no form of the grammar
	NeedsText                  // code 4 or 5 alone
	TakesNoText                // code 1, 2 or 6 with text
	IDTooShort                 // fewer than four digits
	OtherCard                  // a reply to one card that names another
)

// minID is how many digits of an id will do.
const minID = 4

// Context is what the parser must know besides the text.
type Context struct {
	Reply    bool     // the text answers a card
	Implicit bool     // … but does not say so: the card shown last, in a terminal
	ID       string   // the card's request id
	Type     string   // the card's type
	Options  int      // how many options the question offers
	Bots     []string // our names, without @
}

// Command is a message understood.
type Command struct {
	Kind    Kind
	Problem Problem // of an Unclear one
	ID      string  // beginning of an id, in lower case
	Code    string  // "1" to "6"
	Option  int     // from 1
	Text    string
}

// String writes the command in the form that parses to it again.
func (c Command) String() string {
	join := func(parts ...string) string { return trim(strings.Join(parts, " ")) }
	switch c.Kind {
	case Approve:
		return "approve " + c.ID
	case Deny:
		return join("deny", c.ID, c.Text)
	case Pending:
		return "pending"
	case Undo:
		return "undo " + c.ID
	case Menu:
		return join(c.Code, c.Text)
	case Question:
		return join("?", c.Text)
	case Option:
		return string(rune('0' + c.Option))
	case Free:
		return c.Text
	}
	return ""
}

// NeedsCard says whether the command speaks of a card without naming it.
func (c Command) NeedsCard() bool {
	switch c.Kind {
	case Menu, Question, Option, Free:
		return true
	}
	return false
}

// Parse understands a message, or says that it is none or unclear. It never
// guesses: only the exact forms of the grammar decide anything.
func Parse(text string, c Context) Command {
	text = trim(text)
	text, called := mention(text, c.Bots)
	if !utf8.ValidString(text) {
		return other(called || c.Reply)
	}
	if _, again := mention(text, c.Bots); again {
		return other(true)
	}
	switch {
	case !c.Reply:
		return command(text, called)
	case c.Type == approval.TypeQuestion:
		return answer(text, c)
	}
	return reply(text, c)
}

func other(ours bool) Command {
	if ours {
		return Command{Kind: Unclear}
	}
	return Command{}
}

// command parses what is said without a card. called tells that it was said
// to us by name, so that it is no conversation.
func command(text string, called bool) Command {
	word, rest, broken := cutWhite(text)
	switch lower(word) {
	case "pending":
		if rest == "" {
			return Command{Kind: Pending}
		}
	case "approve":
		if rest == "" {
			return Command{Kind: Unclear}
		}
		if id, after, _ := cutWhite(rest); after == "" && !broken && isHex(id) {
			return withID(Approve, id, "")
		}
		if likeID(rest) {
			return Command{Kind: Unclear}
		}
	case "deny", "reject":
		if rest == "" {
			return Command{Kind: Unclear}
		}
		id, reason, _ := cutWhite(rest)
		if !broken && isHex(id) && (len(id) >= minID || reason == "") {
			return withID(Deny, id, reason)
		}
		if likeID(rest) {
			return Command{Kind: Unclear}
		}
	case "undo", "revoke":
		id, after, _ := cutWhite(rest)
		if after == "" && !broken && isHex(id) && len(id) >= minID {
			return withID(Undo, id, "")
		}
		// "undo bad luck", "undo that" and "revoke access for bob" are conversation.
		if bare := strings.TrimRight(id, "?!.,;:"); len(bare) >= minID && isHex(bare) {
			return Command{Kind: Unclear}
		}
	}
	return other(called)
}

func withID(k Kind, id, text string) Command {
	switch {
	case len(id) < minID:
		return Command{Kind: Unclear, Problem: IDTooShort}
	case len(id) > 64:
		return Command{Kind: Unclear}
	}
	return Command{Kind: k, ID: lower(id), Text: text}
}

// likeID says whether s begins like an id, so that the sentence around it was
// probably meant for us.
func likeID(s string) bool {
	return len(s) >= minID && isHex(s[:minID])
}

// reply parses what is said to an action's card.
func reply(text string, c Context) Command {
	if cmd := command(text, false); cmd.Kind != NotAddressed {
		return sameCard(cmd, c)
	}
	code, rest, _ := cutWhite(text)
	if q, ok := strings.CutPrefix(text, "?"); ok {
		return Command{Kind: Question, Text: trim(q)}
	}
	switch code {
	case "1", "2", "6":
		if rest != "" {
			return Command{Kind: Unclear, Problem: TakesNoText, Code: code}
		}
	case "4", "5":
		if rest == "" {
			return Command{Kind: Unclear, Problem: NeedsText, Code: code}
		}
	case "3":
	default:
		if len(topicsOf(text)) > 0 {
			return Command{Kind: Question, Text: text}
		}
		return Command{Kind: Unclear}
	}
	return Command{Kind: Menu, Code: code, Text: rest}
}

// sameCard refuses a command that names another request than the card it is a
// reply to.
func sameCard(cmd Command, c Context) Command {
	if cmd.ID != "" && !c.Implicit && !strings.HasPrefix(c.ID, cmd.ID) {
		return Command{Kind: Unclear, Problem: OtherCard}
	}
	return cmd
}

// answer parses what is said to a question's card. Almost everything is an
// answer there: the exceptions are what the card itself offers.
func answer(text string, c Context) Command {
	cmd := command(text, false)
	named := cmd.ID != "" && strings.HasPrefix(c.ID, cmd.ID)
	if named || c.Implicit && (cmd.Kind != NotAddressed || commandWord(text)) {
		if cmd.Kind == NotAddressed {
			return Command{Kind: Unclear}
		}
		return cmd
	}
	if q, ok := strings.CutPrefix(text, "?"); ok {
		if q = trim(q); q == "" {
			return Command{Kind: Unclear, Problem: NeedsText, Code: "?"}
		}
		return Command{Kind: Question, Text: q}
	}
	if text == "" {
		return Command{Kind: Unclear}
	}
	if r, size := utf8.DecodeRuneInString(text); size == len(text) && unicode.IsDigit(r) && c.Options > 0 {
		if n := int(r - '0'); n >= 1 && n <= min(c.Options, 9) {
			return Command{Kind: Option, Option: n}
		}
		return Command{Kind: Unclear} // a slip, more likely than an answer
	}
	return Command{Kind: Free, Text: text}
}

// commandWord says whether text begins with a word that commands something.
func commandWord(text string) bool {
	word, _, _ := cutWhite(text)
	switch lower(word) {
	case "approve", "deny", "reject", "pending", "undo", "revoke", "help":
		return true
	}
	return false
}

// mention takes a leading "@bot" off.
func mention(text string, bots []string) (rest string, called bool) {
	word, after, _ := cutWhite(text)
	name, ok := strings.CutPrefix(word, "@")
	if !ok {
		return text, false
	}
	for _, b := range bots {
		if b != "" && lower(b) == lower(name) {
			return after, true
		}
	}
	return text, false
}

const white = " \t\r\n"

func trim(s string) string { return strings.Trim(s, white) }

// cutWhite parts s at its first white space; broken tells that a line ended
// there.
func cutWhite(s string) (head, rest string, broken bool) {
	i := strings.IndexAny(s, white)
	if i < 0 {
		return s, "", false
	}
	rest = strings.TrimLeft(s[i:], white)
	gap := s[i : len(s)-len(rest)]
	return s[:i], rest, strings.ContainsAny(gap, "\r\n")
}

// lower lowers ASCII only: the letters of other scripts that fold to ASCII
// ("K" for Kelvin) make no command.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

func isHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}
