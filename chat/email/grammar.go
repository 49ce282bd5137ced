package email

import (
	"slices"
	"strings"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// fullForm converts an answer to a question's card to chat's grammar. Email has two shorter
// forms, in any case:
//
//	deny           without the id, because the email names the card
//	answer text    a text alone does not count
func fullForm(text string, p *approval.Pending) string {
	text = strings.TrimSpace(text)
	if p.Type != approval.TypeQuestion {
		return text
	}
	end := strings.IndexAny(text+" ", " \n")
	word, rest := text[:end], strings.TrimSpace(text[end:])
	switch chat.LowerASCII(word) {
	case "deny", "reject":
		if rest == "" {
			return "deny " + p.ShortID
		}
	case "answer":
		return rest
	}
	return text
}

// byMail says whether an understood command is valid by email. An automatic reply that
// we do not recognize writes anything but a code or the words of a decision, so a free
// answer must begin with the word answer. Repeated question marks are letters that a mail server could
// not encode.
func byMail(p *approval.Pending, cmd chat.Command, text string) bool {
	text = strings.TrimSpace(text)
	switch cmd.Kind {
	case chat.Free:
		word, _, _ := strings.Cut(chat.LowerASCII(text), " ")
		return word == "answer" && p.Type == approval.TypeQuestion
	case chat.Question:
		if text == "?" {
			return true
		}
		result := strings.TrimSpace(strings.TrimPrefix(text, "?"))
		return result != "" && strings.ContainsFunc(result, unicode.IsLetter) && !strings.Contains(text, "??")
	}
	return true
}

// approves says whether a command would let something run.
func approves(cmd chat.Command) bool {
	if cmd.Kind == chat.Menu {
		return slices.Contains([]string{"1", "2", "4", "6"}, cmd.Code)
	}
	return cmd.Kind == chat.Approve
}
