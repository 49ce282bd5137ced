package email

import (
	"slices"
	"strings"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// fullForm converts an answer to p's card to chat's grammar. Email has three shorter
// forms, in any case:
//
//	approve            without the id, because the email names the card
//	deny [reason]      likewise, unless the reason begins like an id
//	answer text        to a question; a text alone does not count
func fullForm(text string, p *approval.Pending) string {
	text = strings.TrimSpace(text)
	word, rest, _ := strings.Cut(text, " ")
	if i := strings.IndexByte(word, '\n'); i >= 0 {
		word, rest = text[:i], text[i+1:]
	}
	rest = strings.TrimSpace(rest)
	question := p.Type == approval.TypeQuestion
	switch chat.LowerASCII(word) {
	case "approve":
		if rest == "" && !question {
			return "approve " + p.ShortID
		}
	case "deny", "reject":
		if rest == "" || !question && !likeID(rest) {
			return strings.TrimSpace("deny " + p.ShortID + " " + rest)
		}
	case "answer":
		if question {
			return rest
		}
	}
	return text
}

// likeID says whether a text begins with what may be an id.
func likeID(text string) bool {
	first := strings.Fields(text)[0]
	return len(first) >= 4 && strings.Trim(chat.LowerASCII(first), "0123456789abcdef") == ""
}

// byMail says whether an understood command is valid by email. An automatic reply that
// we do not recognize writes anything but an exact code, so a free answer must begin
// with the word answer. Repeated question marks are letters that a mail server could
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
