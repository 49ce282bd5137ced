package chat

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

const cardID = "a7f3b2c1d4e5f6a7"

var (
	noCard     = Context{Bots: []string{"permesso_bot"}}
	actionCard = Context{Reply: true, ID: cardID, Type: approval.TypeAction, Bots: []string{"permesso_bot"}}
	editCard   = Context{Reply: true, ID: cardID, Type: approval.TypeAction, Editable: true}
	lastCard   = Context{Reply: true, Implicit: true, ID: cardID, Type: approval.TypeAction}
	askCard    = Context{Reply: true, ID: cardID, Type: approval.TypeQuestion, Options: 3, Bots: []string{"permesso_bot"}}
	openCard   = Context{Reply: true, ID: cardID, Type: approval.TypeQuestion}
	lastAsk    = Context{Reply: true, Implicit: true, ID: cardID, Type: approval.TypeQuestion, Options: 2}
)

func notUnderstoodCmd(p problem) Command { return Command{Kind: Unclear, Problem: p} }

func TestParseCommands(t *testing.T) {
	approve := Command{Kind: Approve, ID: "a7f3b2c1"}
	for _, tc := range []struct {
		text string
		want Command
		why  string
	}{
		{"approve a7f3b2c1", approve, "the form on the card"},
		{"APPROVE A7F3B2C1", approve, "any case"},
		{" \tapprove \t a7f3b2c1\r\n", approve, "white space around and between"},
		{"@permesso_bot approve a7f3b2c1", approve, "addressed"},
		{"@Permesso_Bot approve a7f3b2c1", approve, "names have no case"},
		{"approve a7f3", Command{Kind: Approve, ID: "a7f3"}, "four digits suffice"},
		{"approve " + strings.Repeat("a", 64), Command{Kind: Approve, ID: strings.Repeat("a", 64)}, "a full id"},
		{"approve " + strings.Repeat("a", 65), notUnderstoodCmd(notExact), "longer than any id"},
		{"approve 0190F3C2-1b7e-7c4a-9d2e-5f60718293a4", Command{Kind: Approve, ID: "0190f3c2-1b7e-7c4a-9d2e-5f60718293a4"}, "a UUID"},
		{"deny 0190f3c2-1b spam", Command{Kind: Deny, ID: "0190f3c2-1b", Text: "spam"}, "its beginning"},
		{"undo 0190f3c2-", Command{Kind: Undo, ID: "0190f3c2-"}, "with a dash at the end"},
		{"approve 0190f3c21b7e-7c4a", notUnderstoodCmd(notExact), "a dash at another place"},
		{"deny dead-end", notUnderstoodCmd(notExact), "begins like an id"},
		{"approve 0190f3c2-1b7e-7c4a-9d2e-5f60718293a4-", notUnderstoodCmd(notExact), "longer than a UUID"},
		{"approve 0190f3c2-1b7e? no", notUnderstoodCmd(notExact), "never guessed"},
		{"approve a7f", notUnderstoodCmd(idTooShort), "three do not"},
		{"deny a7", notUnderstoodCmd(idTooShort), "two do not"},
		{"approve", notUnderstoodCmd(notExact), "no id"},
		{"approve a7f3b2c1? no", notUnderstoodCmd(notExact), "never guessed"},
		{"approve a7f3b2c1 please", notUnderstoodCmd(notExact), "one word too many"},
		{"approve a7f3b2c1.", notUnderstoodCmd(notExact), "a period after the id"},
		{"approve a7f3b2c1 a7f3b2c2", notUnderstoodCmd(notExact), "two ids"},
		{"approve\na7f3b2c1", notUnderstoodCmd(notExact), "a command is one line"},
		{"approve a7f3b2c1\nno, wait", notUnderstoodCmd(notExact), "text after the command"},
		{"approve the plan", Command{}, "conversation"},
		{"approve zq", Command{}, "not an id"},
		{"@permesso_bot approve the plan", notUnderstoodCmd(notExact), "addressed to the bot, so not conversation"},
		{"@other_bot approve a7f3b2c1", Command{}, "addressed to another bot"},
		{"@permesso_bot", notUnderstoodCmd(notExact), "only a mention"},
		{"@permesso_bot @permesso_bot pending", notUnderstoodCmd(notExact), "two mentions"},
		{"deny a7f3b2c1", Command{Kind: Deny, ID: "a7f3b2c1"}, "without a reason"},
		{"deny a7f3b2c1 not today\n  really", Command{Kind: Deny, ID: "a7f3b2c1", Text: "not today\n  really"}, "with a reason, lines kept"},
		{"reject a7f3b2c1", Command{Kind: Deny, ID: "a7f3b2c1"}, "the predecessor's word"},
		{"deny a7f3b2c1? no", notUnderstoodCmd(notExact), "never guessed"},
		{"undo a7f3b2c1", Command{Kind: Undo, ID: "a7f3b2c1"}, "the form of the confirmation"},
		{"Revoke A7F3", Command{Kind: Undo, ID: "a7f3"}, "the command line's word"},
		{"@permesso_bot undo a7f3b2c1", Command{Kind: Undo, ID: "a7f3b2c1"}, "addressed"},
		{"undo a7f3b2c1 please", notUnderstoodCmd(notExact), "one word too many"},
		{"undo a7f3b2c1? no", notUnderstoodCmd(notExact), "never guessed"},
		{"undo\na7f3b2c1", notUnderstoodCmd(notExact), "a command is one line"},
		{"revoke a7f3b2c1\nsorry", notUnderstoodCmd(notExact), "text after the command"},
		{"undo " + strings.Repeat("a", 65), notUnderstoodCmd(notExact), "longer than any id"},
		{"undo", Command{}, "conversation"},
		{"undo that", Command{}, "conversation"},
		{"undo a7f", Command{}, "too short for an id"},
		{"revoke access for bob", Command{}, "not an id"},
		{"undone a7f3b2c1", Command{}, "another word"},
		{"@permesso_bot undo that", notUnderstoodCmd(notExact), "addressed to the bot"},
		{"pending", Command{Kind: Pending}, "the list"},
		{"Pending", Command{Kind: Pending}, "any case"},
		{"pending?", Command{}, "not exact, may be conversation"},
		{"show pending items", Command{}, "conversation"},
		{"\u2003approve a7f3b2c1", Command{}, "only ASCII blanks are trimmed"},
		{"approve a7f3b2c1\u200b", notUnderstoodCmd(notExact), "an invisible character counts"},
		{"approve\u00a0a7f3b2c1", Command{}, "a no-break space does not separate words"},
		{"аpprove a7f3b2c1", Command{}, "a Cyrillic letter makes another word"},
		{"approve ａ7f3b2c1", Command{}, "a full-width letter is no hex digit"},
		{"pendinK", Command{}, "the Kelvin sign does not fold"},
		{"1", Command{}, "a code needs a card"},
		{"who will be emailed?", Command{}, "without a card, conversation"},
		{"@permesso_bot who will be emailed?", notUnderstoodCmd(notExact), "addressed, but names no request"},
		{"", Command{}, "empty"},
		{"approve \xff", Command{}, "not UTF-8"},
	} {
		require.Equal(t, tc.want, Parse(tc.text, noCard), "%q: %s", tc.text, tc.why)
	}
}

func TestParseReplies(t *testing.T) {
	code := func(c, text string) Command { return Command{Kind: Menu, Code: c, Text: text} }
	needs := func(c string) Command { return Command{Kind: Unclear, Problem: needsText, Code: c} }
	none := func(c string) Command { return Command{Kind: Unclear, Problem: takesNoText, Code: c} }
	for _, tc := range []struct {
		text string
		in   Context
		want Command
		why  string
	}{
		{"1", actionCard, code("1", ""), "once"},
		{" 2 \n", actionCard, code("2", ""), "blanks around"},
		{"6", lastCard, code("6", ""), "the card shown last"},
		{"@permesso_bot 1", actionCard, code("1", ""), "addressed, as in a group"},
		{"3", actionCard, code("3", ""), "deny"},
		{"3 too late\nfor that", actionCard, code("3", "too late\nfor that"), "with a reason"},
		{"4 add logs", actionCard, code("4", "add logs"), "note"},
		{"4\nline two", actionCard, code("4", "line two"), "on the next line"},
		{"5 a\n\n  b", actionCard, code("5", "a\n\n  b"), "lines kept"},
		{"4", actionCard, needs("4"), "a note is text"},
		{"5 \n", actionCard, needs("5"), "so is a change"},
		{"1 no wait", actionCard, none("1"), "text after a code"},
		{"2 ok", actionCard, none("2"), ""},
		{"6 please", actionCard, code("6", ""), "politeness"},
		{"4: 4 people", actionCard, code("4", "4 people"), "a colon always begins text"},
		{"4:no, not that", actionCard, code("4", "no, not that"), ""},
		{"3: days of holiday", actionCard, code("3", "days of holiday"), ""},
		{"4 people will be mailed", actionCard, Command{Kind: Unclear, Problem: continues, Code: "4"}, "a sentence that begins with a number"},
		{"4 add logs, not traces", actionCard, Command{Kind: Unclear, Problem: continues, Code: "4"}, "may take the approval back"},
		{"3 not today", actionCard, code("3", "not today"), "nothing runs"},
		{"is this a good idea?", actionCard, Command{Kind: Question, Text: "is this a good idea?"}, "it is asked back before it goes to the agent"},
		{"Bob lo sa?", actionCard, Command{Kind: Question, Text: "Bob lo sa?"}, ""},
		{"ok, do it?", actionCard, notUnderstoodCmd(notExact), "a decision that hesitates"},
		{"please approve this?", actionCard, Command{Kind: Unclear}, ""},
		{"non va bene?", actionCard, Command{Kind: Unclear}, ""},
		{"really?", actionCard, Command{Kind: Unclear}, "no sentence"},
		{"3 days off", actionCard, Command{Kind: Unclear, Problem: continues, Code: "3"}, ""},
		{"5 don't send it to bob", actionCard, code("5", "don't send it to bob"), ""},
		{"1\nSent from my phone", actionCard, none("1"), "the email channel removes signatures"},
		{"1.", actionCard, code("1", ""), "as in a list"},
		{"1)", actionCard, code("1", ""), ""},
		{"1.5", actionCard, notUnderstoodCmd(notExact), ""},
		{"11", actionCard, notUnderstoodCmd(notExact), ""},
		{"7", actionCard, notUnderstoodCmd(notExact), "no such code"},
		{"0", actionCard, notUnderstoodCmd(notExact), ""},
		{"２", actionCard, code("2", ""), "full-width"},
		{"７", actionCard, notUnderstoodCmd(notExact), ""},
		{"١", actionCard, notUnderstoodCmd(notExact), "Arabic-Indic"},
		{"1\ufe0f\u20e3", actionCard, notUnderstoodCmd(notExact), "keycap"},
		{"1\u00a0", actionCard, notUnderstoodCmd(notExact), "an invisible tail"},
		{"4\u00a0note", actionCard, notUnderstoodCmd(notExact), ""},
		{"ok", actionCard, code("1", ""), "a word that approves"},
		{"yes", lastCard, code("1", ""), "the card shown last"},
		{"approve", actionCard, code("1", ""), "the card is named by the reply"},
		{"deny too late", actionCard, code("3", "too late"), ""},
		{"@permesso_bot no", actionCard, code("3", ""), "addressed, as in a group"},
		{"", actionCard, notUnderstoodCmd(notExact), "empty"},
		{"\xff", actionCard, notUnderstoodCmd(notExact), "not UTF-8"},
		{"? why", actionCard, Command{Kind: Question, Text: "why"}, "a question back"},
		{"?", actionCard, Command{Kind: Question}, "why am I asked"},
		{"why?", actionCard, Command{Kind: Question, Text: "why?"}, "a known question needs no mark"},
		{"Who will be emailed?", actionCard, Command{Kind: Question, Text: "Who will be emailed?"}, ""},
		{"@permesso_bot tell me what files will be written", actionCard, Command{Kind: Question, Text: "tell me what files will be written"}, ""},
		{"quali tabelle vengono lette", lastCard, Command{Kind: Question, Text: "quali tabelle vengono lette"}, ""},
		{"is bob among them?", actionCard, Command{Kind: Question, Text: "is bob among them?"}, "it is asked back"},
		{"why not?", actionCard, notUnderstoodCmd(notExact), "may be a yes"},
		{"approve it, or who will be emailed?", actionCard, notUnderstoodCmd(notExact), "may be a decision"},
		{"no, who will be emailed?", actionCard, notUnderstoodCmd(notExact), "may be a decision"},
		{"approve a7f3b2c1? who will be emailed?", actionCard, notUnderstoodCmd(notExact), ""},
		{"1 who will be emailed?", actionCard, none("1"), ""},
		{"3 who will be emailed?", actionCard, code("3", "who will be emailed?"), "a reason that asks"},
		{"banana", actionCard, notUnderstoodCmd(notExact), "neither a decision nor a question"},
		{"banana?", actionCard, notUnderstoodCmd(notExact), ""},
		{"？ why", actionCard, notUnderstoodCmd(notExact), "full-width mark"},
		{"approve a7f3b2c1", actionCard, Command{Kind: Approve, ID: "a7f3b2c1"}, "names the same card"},
		{"approve beef1234", actionCard, notUnderstoodCmd(otherCard), "a reply to one card names another"},
		{"approve beef1234", lastCard, Command{Kind: Approve, ID: "beef1234"}, "the last card is only implied"},
		{"deny beef1234 no", actionCard, notUnderstoodCmd(otherCard), ""},
		{"pending", actionCard, Command{Kind: Pending}, "decides nothing"},
		{"undo a7f3b2c1", actionCard, Command{Kind: Undo, ID: "a7f3b2c1"}, "names the same card"},
		{"undo beef1234", actionCard, notUnderstoodCmd(otherCard), "a reply to one card names another"},
		{"undo beef1234", lastCard, Command{Kind: Undo, ID: "beef1234"}, "the last card is only implied"},
		{"undo", actionCard, notUnderstoodCmd(notExact), "no id"},
		{"7: npm test -- --run src", editCard, code("7", "npm test -- --run src"), "the text to run"},
		{"7 npm test", editCard, Command{Kind: Unclear, Problem: continues, Code: "7"}, "it may read on"},
		{"7", editCard, Command{Kind: Unclear, Problem: needsText, Code: "7"}, ""},
		{"7: npm test", actionCard, notUnderstoodCmd(notExact), "no such code on this card"},
		{"8: npm test", editCard, notUnderstoodCmd(notExact), ""},
		{"approve a7f3b2c1? no", lastCard, notUnderstoodCmd(notExact), ""},
	} {
		require.Equal(t, tc.want, Parse(tc.text, tc.in), "%q: %s", tc.text, tc.why)
	}
}

func TestParseAnswers(t *testing.T) {
	free := func(s string) Command { return Command{Kind: Free, Text: s} }
	for _, tc := range []struct {
		text string
		in   Context
		want Command
		why  string
	}{
		{"2", askCard, Command{Kind: Option, Option: 2}, "an option"},
		{"@permesso_bot 3", askCard, Command{Kind: Option, Option: 3}, ""},
		{"4", askCard, notUnderstoodCmd(notExact), "there is no fourth option"},
		{"0", askCard, notUnderstoodCmd(notExact), ""},
		{"２", askCard, Command{Kind: Option, Option: 2}, "full-width"},
		{"2.", askCard, Command{Kind: Option, Option: 2}, "as in a list"},
		{"no", askCard, free("no"), "an answer in words"},
		{"4", openCard, free("4"), "no options: a number is an answer"},
		{"42", askCard, free("42"), "two digits are no option"},
		{"1 because\nof that", askCard, free("1 because\nof that"), "words"},
		{"the main branch", askCard, free("the main branch"), ""},
		{"what files are read?", askCard, free("what files are read?"), "a reply to a question is its answer"},
		{"pending", askCard, free("pending"), "a reply to the question"},
		{"pending", lastAsk, Command{Kind: Pending}, "typed in the terminal"},
		{"approve of it", lastAsk, notUnderstoodCmd(notExact), "in the terminal commands come first"},
		{"help me", lastAsk, notUnderstoodCmd(notExact), ""},
		{"undo it all", lastAsk, notUnderstoodCmd(notExact), ""},
		{"undo it all", askCard, free("undo it all"), "a reply to the question"},
		{"undo beef1234", askCard, free("undo beef1234"), "another id is plain text"},
		{"aye", lastAsk, free("aye"), ""},
		{"deny a7f3 no idea", askCard, Command{Kind: Deny, ID: "a7f3", Text: "no idea"}, "the form on the card"},
		{"deny dead people a voice", askCard, free("deny dead people a voice"), "another id is plain text"},
		{"approve a7f3b2c1", askCard, Command{Kind: Approve, ID: "a7f3b2c1"}, "parsed here, refused later"},
		{"? which repository", askCard, Command{Kind: Question, Text: "which repository"}, ""},
		{"?", askCard, Command{Kind: Unclear, Problem: needsText, Code: "?"}, ""},
		{" \n", askCard, notUnderstoodCmd(notExact), "empty"},
		{"a\xff", openCard, notUnderstoodCmd(notExact), "not UTF-8"},
	} {
		require.Equal(t, tc.want, Parse(tc.text, tc.in), "%q: %s", tc.text, tc.why)
	}
}

// FuzzParse checks the grammar: no panic, String parses to the same command, and
// only exact forms decide.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"approve a7f3b2c1", "@permesso_bot 4 x\ny", "deny a7f3 no", "? why", "1", "2 x", "pending", "@permesso_bot @permesso_bot 1",
		"approve a7f3b2c1? no", "undo a7f3b2c1", "Revoke A7F3 x", "３", "\xff", " 5 \u00a0", "deny a7f3b2c1\n\nx ", "help", "4\u0085",
	} {
		f.Add(s)
	}
	contexts := []Context{noCard, actionCard, lastCard, askCard, openCard, lastAsk}
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range contexts {
			cmd := Parse(s, c)
			if cmd.Kind == NotAddressed || cmd.Kind == Unclear {
				require.False(t, cmd.NeedsCard())
				continue
			}
			require.Equal(t, cmd, Parse(cmd.String(), c), "%q in %+v", s, c)
			requireExact(t, s, cmd, c)
		}
	})
}

func requireExact(t *testing.T, s string, cmd Command, c Context) {
	t.Helper()
	bare := strings.Trim(s, " \t\r\n")
	if len(bare) > 13 && strings.EqualFold(bare[:13], "@permesso_bot") {
		bare = strings.Trim(bare[13:], " \t\r\n")
	}
	switch cmd.Kind {
	case Approve:
		require.Contains(t, []string{"approve " + cmd.ID, "approva " + cmd.ID}, strings.Join(strings.Fields(strings.ToLower(bare)), " "))
	case Undo:
		require.Contains(t, []string{"undo " + cmd.ID, "revoke " + cmd.ID, "annulla " + cmd.ID, "revoca " + cmd.ID}, strings.Join(strings.Fields(strings.ToLower(bare)), " "))
	case Menu:
		require.True(t, c.Reply && c.Type == approval.TypeAction)
		if first, _ := utf8.DecodeRuneInString(bare); unicode.IsDigit(first) {
			require.Contains(t, cmd.Code+string('０'+rune(cmd.Code[0]-'0')), string(first))
			return
		}
		require.Contains(t, []string{"1", "3", "4"}, cmd.Code, "in words")
	case Option:
		require.True(t, c.Type == approval.TypeQuestion && cmd.Option >= 1 && cmd.Option <= c.Options)
	case Free:
		require.Equal(t, approval.TypeQuestion, c.Type)
		require.NotEmpty(t, cmd.Text)
	}
}
