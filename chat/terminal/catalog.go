package terminal

import "github.com/permesso-dev/permesso/chat"

// messages are the sentences that only this channel uses.
type messages struct {
	Welcome        string
	NoInput        string
	Help           string
	Answer         string
	NameRequest    string
	LineDropped    string
	NoCard         string
	Repeat         string
	LineTooLong    string
	InputClosed    string
	OutcomeFollows string
	Resumed        string
	StillWaiting   string
	NotRevealed    string
	NoProposal     string
	SeeLog         string
	Leave          string

	// of the linear mode
	LinearHelp, AskAction, AskAnswer, Confirm, NotConfirmed, NameCode, LineIgnored, NotServed, ServedAgain string
}

func catalog(language string) *messages { return chat.Messages[messages](language, "terminal") }
