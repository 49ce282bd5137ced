package email

import "github.com/permesso-dev/permesso/chat"

// catalog holds the sentences that only this channel uses. Comments about them are in
// chat/messages/en.toml.
type catalog struct {
	HowTo         string
	HowToAnswer   string
	HowToDeny     string
	LongCard      string
	Incomplete    string
	Ceiling       string
	Reversibility map[string]string
	AgentWords    string
	OtherCodes    string
	Buttons       buttonTexts
	Codes         codeTexts
	WhyAsked      string
	Unclear       string
	Doubt         string
	Doubts        map[string]string
	WrongToken    string
	Refused       string
	Refusals      map[string]string
	Unanswered    string
	OtherRequest  string
	Late          string
	Gone          string
}

type buttonTexts struct{ Approve, Deny, Hint string }

type codeTexts struct{ Once, Deny, Note, Change, Edit, Ask, Runs, RunsNothing string }

func textsFor(language string) *catalog { return chat.Messages[catalog](language, "email") }
