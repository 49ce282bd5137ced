package email

import (
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// words are the sentences that only this channel says. Names in braces are
// filled in by fill. No line begins with what could be taken for an answer where
// it comes back as a quotation.
type words struct {
	howTo         string // below an action's card
	howToAnswer   string // below a question's card
	long          string // below a long card
	notWhole      string // {id}
	ceiling       string // {it}, {ceiling}
	reversibility map[string]string
	says          string // above the agent's own words, in the HTML part
	unclear       string // before howTo or howToAnswer
	doubt         string // {why}
	wrongToken    string
	otherRequest  string
	late          string // {outcome}
	gone          string
}

func catalogue(language string) *words {
	if chat.Language(language) == "it" {
		return italian()
	}
	return english()
}

// fill replaces the names in braces. What is filled in is never read again.
func fill(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}

func english() *words {
	return &words{
		howTo: "To answer, reply to this mail and begin with a code of the menu. These will do: 1, 2, 3, 3 <reason>, 4 <note>, 5 <change>, 6, " +
			"? <question>, approve, deny, deny <reason>. Only the first lines of the reply count, down to a blank line; what is quoted does not.",
		howToAnswer: "To answer, reply to this mail and begin with the number of an option, or with: answer <your words>. deny will do, too. " +
			"Only the first lines of the reply count, down to a blank line; what is quoted does not.",
		long:          "This mail is long: take the quotation out of your reply, for a mail of more than 512 KiB is not read.",
		notWhole:      "✂ By mail this cannot be approved (codes 1, 2, 4 and 6), because the mail does not show all of it. See it with: permesso show {id}",
		ceiling:       "By mail this cannot be approved (codes 1, 2, 4 and 6): it is {it}, and here mail approves only what is {ceiling}. Deny it here, or answer elsewhere.",
		reversibility: map[string]string{"reversible": "reversible", "partial": "partly reversible", "irreversible": "irreversible"},
		says:          "In the agent's own words, which nobody has checked:",
		unclear:       "Unclear, nothing was decided.",
		doubt:         "Nothing was decided, because the mail could not be read for certain: {why}.",
		wrongToken:    "Nothing was decided: this mail does not carry the code of a card that was sent to you. Reply to the card itself, from the address that got it.",
		otherRequest:  "Nothing was decided: the request is no longer the one that the card shows.",
		late:          "Too late, nothing was changed. {outcome}",
		gone:          "Too late, nothing was changed: the request is settled.",
	}
}
