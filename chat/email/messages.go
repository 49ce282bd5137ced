package email

import (
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// catalog holds the sentences that only this channel uses. fill replaces the names in
// braces. No line may begin like an answer: a reply can quote it without a mark.
type catalog struct {
	howTo         string // below an action's card
	howToAnswer   string // below a question's card
	longCard      string // below a long card
	incomplete    string // {id}
	ceiling       string // {it}, {ceiling}
	reversibility map[string]string
	agentWords    string // above the agent's own words, in the HTML part
	unclear       string // before howTo or howToAnswer
	doubt         string // {why}
	wrongToken    string
	otherRequest  string
	late          string // {outcome}
	gone          string
}

func textsFor(language string) *catalog {
	if chat.Language(language) == "it" {
		return italian()
	}
	return english()
}

// fill replaces the names in braces. It does not expand braces in the values.
func fill(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}

func english() *catalog {
	return &catalog{
		howTo: "To decide, reply to this email. Start the reply with a menu code: 1, 2, 3, 3 <reason>, 4 <note>, 5 <change>, 6, " +
			"? <question>, approve, deny, or deny <reason>. Only the text above the first blank line counts. Quoted text does not count.",
		howToAnswer: "To answer, reply to this email. Start the reply with the number of an option, or with: answer <your words>. You can also reply deny. " +
			"Only the text above the first blank line counts. Quoted text does not count.",
		longCard:      "This email is long. Delete the quoted text from your reply: an email over 512 KiB is not read.",
		incomplete:    "✂ You cannot approve this by email (codes 1, 2, 4 and 6), because the email does not show the complete request. To see it, run: permesso show {id}",
		ceiling:       "You cannot approve this by email (codes 1, 2, 4 and 6): it is {it}, and the limit for approval by email is {ceiling}. Deny it here, or decide in another channel.",
		reversibility: map[string]string{"reversible": "reversible", "partial": "partly reversible", "irreversible": "irreversible"},
		agentWords:    "In the agent's own words (not verified):",
		unclear:       "Not understood, nothing was decided.",
		doubt:         "Nothing was decided, because the email could not be read reliably: {why}.",
		wrongToken:    "Nothing was decided: this email does not contain the code of a card that was sent to you. Reply to the card itself, from the address that received it.",
		otherRequest:  "Nothing was decided: the request has changed since the card was sent.",
		late:          "Too late, nothing was changed. {outcome}",
		gone:          "Too late, nothing was changed: the request is settled.",
	}
}
