package chat

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
)

// Kind is the kind of a message.
type Kind uint8

// The kinds of message. The zero value decides nothing and asks for no reply.
const (
	NotAddressed Kind = iota // conversation
	Unclear                  // addressed to the gate, but not exact: the reply explains the forms
	Approve                  // approve ID
	Deny                     // deny ID, with Text as the reason
	Pending                  // list the pending requests
	Menu                     // Code, with Text where the code takes some
	Question                 // a question back, in Text
	Option                   // option number Option of a question
	Free                     // the answer to a question, in Text
	Undo                     // undo ID: revoke the grant of that approval
	Today                    // what the agents did today
)

// problem says why a message is Unclear.
type problem uint8

// The problems. The first is the most general.
const (
	notExact    problem = iota // matches no form of the grammar
	needsText                  // code 4, 5 or 7 without text
	takesNoText                // code 1, 2 or 6 with text
	continues                  // the text behind a digit reads like the rest of a sentence
	idTooShort                 // fewer than four digits
	otherCard                  // a reply to one card names another
)

// minID is the least number of digits of an id.
const minID = 4

// Context is what the parser needs besides the text.
type Context struct {
	Reply    bool     // the text replies to a card
	Implicit bool     // the card is the one shown last, in a terminal
	ID       string   // the card's request id
	ShortID  string   // "": the first digits of ID
	Type     string   // the card's type
	Options  int      // how many options the question offers
	Editable bool     // the request takes code 7
	Bots     []string // the bot's names, without @
	Names    []string // the person's, in lower case
}

// Command is a parsed message.
type Command struct {
	Kind    Kind
	Problem problem // if Kind is Unclear
	ID      string  // prefix of an id, in lower case
	Code    string  // "1" to "7"
	Option  int     // from 1
	Text    string
	ToAgent bool // a Question that ends the request, whatever the facts answer
}

// String returns text that parses to the same command.
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
	case Today:
		return "today"
	case Menu:
		if c.Text != "" {
			return join(c.Code+":", c.Text)
		}
		return c.Code
	case Question:
		if c.ToAgent {
			return "? agent, " + c.Text
		}
		return join("?", c.Text)
	case Option:
		return string(rune('0' + c.Option))
	case Free:
		return c.Text
	}
	return ""
}

// NeedsCard says whether the command applies to a card that it does not name.
func (c Command) NeedsCard() bool {
	switch c.Kind {
	case Menu, Question, Option, Free:
		return true
	}
	return false
}

// Parse parses a message. It never guesses: only the exact forms of the grammar, and replies in
// known words alone, decide anything.
func Parse(text string, c Context) Command {
	text = trim(text)
	text, called := cutMention(text, c.Bots)
	if !utf8.ValidString(text) {
		return notACommand(called || c.Reply)
	}
	if _, again := cutMention(text, c.Bots); again {
		return notACommand(true)
	}
	switch word, rest, _ := CutCommand(text); {
	case c.Implicit && word == "today" && rest == "": // elsewhere it is conversation
		return Command{Kind: Today}
	case !c.Reply:
		return parseCommand(text, called)
	case c.Type == approval.TypeQuestion:
		return parseAnswer(text, c)
	}
	return parseReply(text, c)
}

func notACommand(ours bool) Command {
	if ours {
		return Command{Kind: Unclear}
	}
	return Command{}
}

// parseCommand parses a message without a card. called means that the message
// mentions the bot, so it is not conversation.
func parseCommand(text string, called bool) Command {
	word, rest, broken := CutCommand(text)
	switch word {
	case "pending":
		if rest == "" && (called || LowerASCII(text) == word) { // in Italian it is conversation too
			return Command{Kind: Pending}
		}
	case "approve":
		if rest == "" {
			return Command{Kind: Unclear}
		}
		if id, after, _ := cutWhite(rest); after == "" && !broken && approval.MaybeID(id) {
			return withID(Approve, id, "")
		}
		if startsLikeID(rest) {
			return Command{Kind: Unclear}
		}
	case "deny":
		if rest == "" {
			return Command{Kind: Unclear}
		}
		id, reason, _ := cutWhite(rest)
		if !broken && approval.MaybeID(id) && (len(id) >= minID || reason == "") {
			return withID(Deny, id, reason)
		}
		if startsLikeID(rest) {
			return Command{Kind: Unclear}
		}
	case "undo":
		id, after, _ := cutWhite(rest)
		if after == "" && !broken && approval.MaybeID(id) && len(id) >= minID {
			return withID(Undo, id, "")
		}
		// "undo bad luck", "undo that" and "revoke access for bob" are conversation.
		if bare := strings.TrimRight(id, "?!.,;:"); len(bare) >= minID && approval.MaybeID(bare) {
			return Command{Kind: Unclear}
		}
	}
	return notACommand(called)
}

func withID(k Kind, id, text string) Command {
	switch {
	case len(id) < minID:
		return Command{Kind: Unclear, Problem: idTooShort}
	case len(id) > 64:
		return Command{Kind: Unclear}
	}
	return Command{Kind: k, ID: LowerASCII(id), Text: text}
}

// startsLikeID says whether s begins like an id. Then the message was probably
// meant for the gate.
func startsLikeID(s string) bool {
	return len(s) >= minID && approval.MaybeID(s[:minID])
}

// parseReply parses a reply to an action's card.
func parseReply(text string, c Context) Command {
	if cmd := decideInWords(text, c.Names); cmd.Kind != NotAddressed {
		return cmd
	}
	if cmd := parseCommand(text, false); cmd.Kind != NotAddressed {
		return requireSameCard(cmd, c)
	}
	if q, ok := strings.CutPrefix(text, "?"); ok {
		return parseQuestion(trim(q))
	}
	if code, rest, colon := cutCode(text, c.Editable); code != "" {
		return parseCode(code, rest, colon, c)
	}
	if len(topicsOf(text)) > 0 || asks(text) {
		return Command{Kind: Question, Text: text}
	}
	return Command{Kind: Unclear}
}

// parseQuestion reads the text behind a question mark: "agent, …" is for the agent.
func parseQuestion(text string) Command {
	word, rest, _ := cutWhite(text)
	switch LowerASCII(word) {
	case "agent,", "agent:", "agente,", "agente:":
		return Command{Kind: Question, Text: rest, ToAgent: rest != ""}
	}
	return Command{Kind: Question, Text: text}
}

// cutCode cuts a text after its code: a digit from 1 to 6, or 7, perhaps full-width, and perhaps with a
// mark behind it. colon says that whatever follows is meant as text.
func cutCode(text string, editable bool) (code, rest string, colon bool) {
	last := '6'
	if editable {
		last = '7'
	}
	r, size := utf8.DecodeRuneInString(text)
	if r >= '１' && r <= '７' {
		r += '1' - '１'
	}
	if r < '1' || r > last {
		return "", "", false
	}
	after := text[size:]
	if after != "" && strings.ContainsRune(".):,!", rune(after[0])) {
		colon, after = after[0] == ':', after[1:]
	}
	rest = strings.TrimLeft(after, white)
	colon = colon || strings.ContainsAny(after[:len(after)-len(rest)], "\r\n") // the sentence does not read on
	if rest == after && rest != "" && !colon {
		return "", "", false
	}
	return string(r), rest, colon
}

func parseCode(code, rest string, colon bool, c Context) Command {
	takes := code == "3" || code == "4" || code == "5" || code == approval.CodeEdit
	switch {
	case !takes && rest != "" && !isPolite(rest, c.Names):
		return Command{Kind: Unclear, Problem: takesNoText, Code: code}
	case !takes:
		return Command{Kind: Menu, Code: code}
	case rest == "" && code != "3":
		return Command{Kind: Unclear, Problem: needsText, Code: code}
	case !colon && (readsOn(rest) || code == "4" && !isPlainNote(rest) || code == "5" && !isChange(rest) || code == approval.CodeEdit):
		return Command{Kind: Unclear, Problem: continues, Code: code}
	}
	return Command{Kind: Menu, Code: code, Text: rest}
}

func (c Context) isNamed(typed string) bool {
	p := approval.Pending{RequestID: c.ID, ShortID: cmp.Or(c.ShortID, approval.ShortID(c.ID))}
	return p.IsNamed(typed)
}

// requireSameCard refuses a command that names another request than the card it
// replies to.
func requireSameCard(cmd Command, c Context) Command {
	if cmd.ID != "" && !c.Implicit && !c.isNamed(cmd.ID) {
		return Command{Kind: Unclear, Problem: otherCard}
	}
	return cmd
}

// parseAnswer parses a reply to a question's card. Almost any text is an answer.
// The exceptions are the forms that the card offers.
func parseAnswer(text string, c Context) Command {
	cmd := parseCommand(text, false)
	named := cmd.ID != "" && c.isNamed(cmd.ID)
	if named || c.Implicit && (cmd.Kind != NotAddressed || startsWithCommand(text)) {
		if cmd.Kind == NotAddressed {
			return Command{Kind: Unclear}
		}
		return cmd
	}
	if q, ok := strings.CutPrefix(text, "?"); ok {
		if q = trim(q); q == "" {
			return Command{Kind: Unclear, Problem: needsText, Code: "?"}
		}
		return parseQuestion(q)
	}
	if text == "" {
		return Command{Kind: Unclear}
	}
	if n, ok := optionNumber(text); ok && c.Options > 0 {
		if n >= 1 && n <= min(c.Options, 9) {
			return Command{Kind: Option, Option: n}
		}
		return Command{Kind: Unclear} // more likely a typing error than an answer
	}
	return Command{Kind: Free, Text: text}
}

// optionNumber reads one digit alone, perhaps full-width or with a mark behind it.
func optionNumber(text string) (n int, ok bool) {
	r, size := utf8.DecodeRuneInString(text)
	if r >= '０' && r <= '９' {
		r += '0' - '０'
	}
	if rest := text[size:]; !unicode.IsDigit(r) || rest != "" && rest != "." && rest != ")" {
		return 0, false
	}
	return int(r - '0'), true
}

// startsWithCommand says whether text begins with a command word.
func startsWithCommand(text string) bool {
	word, _, _ := cutWhite(text)
	return slices.Contains([]string{"approve", "deny", "reject", "pending", "undo", "revoke", "help"}, LowerASCII(word))
}

// cutMention removes a leading "@bot".
func cutMention(text string, bots []string) (rest string, called bool) {
	word, after, _ := cutWhite(text)
	name, ok := strings.CutPrefix(word, "@")
	if !ok {
		return text, false
	}
	if slices.ContainsFunc(bots, func(b string) bool { return b != "" && LowerASCII(b) == LowerASCII(name) }) {
		return after, true
	}
	return text, false
}

const white = " \t\r\n"

func trim(s string) string { return strings.Trim(s, white) }

// cutWhite cuts s at its first white space. broken says that this white space has
// a line break.
func cutWhite(s string) (head, rest string, broken bool) {
	i := strings.IndexAny(s, white)
	if i < 0 {
		return s, "", false
	}
	rest = strings.TrimLeft(s[i:], white)
	gap := s[i : len(s)-len(rest)]
	return s[:i], rest, strings.ContainsAny(gap, "\r\n")
}

// LowerASCII lowers ASCII letters only. Letters of other scripts that fold to ASCII (the
// Kelvin sign) are not part of a command, and no mail server treats them as equal.
func LowerASCII(s string) string {
	lower := []byte(s)
	for i, c := range lower {
		if c >= 'A' && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return string(lower)
}
