package telegram

import (
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// catalog holds the texts that only this channel uses. format fills in the names in braces. A new language
// needs a file like catalog_it.go and a case in catalogFor.
type catalog struct {
	// Buttons.
	once, session, always, deny string
	note, change, ask, answer   string
	showAll, undo               string

	// Lines added to a card.
	longMenu       string // the options do not fit
	inDocument     string // the complete text is in a document
	verdicts       map[approval.Verdict]string
	scopes         map[approval.Scope]string
	cancelled      string // canceled by a person, not by the agent
	byAt           string // {verdict} {by} {via} {time}
	atTime         string // {verdict} {time}: no person decided
	sentToAgent    string // {text}: what the agent was told
	outcomeFollows string
	undone         string
	unknownRequest string // the request is gone
	askedElsewhere string // the workspace is now asked in another chat
	replaced       string // a newer card replaces this one

	// Answers to taps.
	showing       string
	buttonExpired string // the button is no longer known
	pleaseWait    string // the decision is being written
	notShown      string // {id}: the card was not shown completely
	unsure        string // it may or may not have been done

	// Prompts, by verb; {id}.
	prompts      map[string]string
	placeholders map[string]string // in the empty field of the reply

	commands [][2]string // Telegram's command menu

	// Answers to commands.
	help           string
	yourID         string // {id}
	chatID         string // {id}
	threadID       string // {id}
	youDecideIn    string // {workspaces}
	nothingWaits   string
	waitingCount   string // {n}
	cardAbove      string // {id}: points to the card
	notFound       string // {id}
	nothingYet     string // no request was settled yet
	noGrants       string
	oneSession     string // a grant that is limited to one session
	grantedBy      string // {by} {until}
	andMore        string // {n}
	unavailable    string // a command that is not available here
	whichWorkspace string // {workspaces}
	paused         string // {workspace}
	alreadyPaused  string // {workspace}
	resumed        string // {workspace}
	notPaused      string // {workspace}

	testCard        string
	digestTitle     string // {n} {workspace}
	morningTitle    string // {workspace} {waiting} {expired}
	feedLine        string // {id} {rule}
	feedTitle       string // {workspace}
	reminder        string // {id} {time}
	recall          string // {id} {time}
	documentCaption string // {id}: caption of the complete text
}

func catalogFor(language string) *catalog {
	if chat.Language(language) == "it" {
		return italian()
	}
	return english()
}

// format fills in the names in braces. Values that are filled in are not expanded again.
func format(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}
