package web

import "github.com/permesso-dev/permesso/chat"

// words are the texts that the code chooses. Comments about them are in chat/messages/en.toml.
type words struct {
	Name            string
	ListTitle       string
	Help            string
	Refusals        map[refusal]string
	Confirm         map[string]string
	Everything      string
	ResultEmpty     string
	ResultStatus    string
	TooManyPages    string
	DecidedLine     string
	Verdicts        map[string]string
	GrantsTitle     string
	Revoked         string
	GrantNotFound   string
	NotAllowed      string
	RulesTitle      string
	HistoryTitle    string
	LogUnreadable   string
	AuditTitle      string
	VerifyGood      string
	VerifyBad       string
	VerifyBusy      string
	WorkspacesTitle string
	PausedNow       string
	ResumedNow      string
	LanguageName    string
	InternalError   string
	RequestNotFound string
	BadForm         string
	NotUnderstood   string
	TaintsCleared   string
	ConfirmText     string
	ConfirmAsk      string
	NotFoundTitle   string
	NotFoundText    string
}

func catalog(language string) *words { return chat.Messages[words](language, "web") }

// aftermaths are the sentences that all channels have for what goes wrong after an approval.
type aftermaths struct{ Aftermath map[string]string }

// texts holds all texts of the pages by their keys, for the templates. A text that only a template shows needs
// no field in words.
type texts map[string]any

func textsIn(language string) texts { return *chat.Messages[texts](language, "web") }
