package telegram

import (
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// words are the sentences that only this channel says. Names in braces are filled in by say. A further
// language is one more file like words_it.go, and a case in catalogue.
type words struct {
	// Buttons.
	once, session, always, deny string
	note, change, ask, answer   string
	showAll, undo               string

	// What a card says besides the card.
	longMenu   string // the options did not fit
	inDocument string // … or something else, and {n} says where all of it is
	verdicts   map[approval.Verdict]string
	scopes     map[approval.Scope]string
	cancelled  string // as a verdict of somebody who is not the agent
	byAt       string // {verdict} {by} {via} {time}
	itself     string // {verdict} {time}: nobody decided
	said       string // {text}: what went to the agent
	running    string
	undone     string
	gone       string // nothing is known of it any more
	elsewhere  string // the card is no longer this chat's
	replaced   string // another card stands for it now

	// Answers to taps.
	showing  string
	old      string // a button of long ago
	oneSec   string // the decision is being written
	notShown string // {id}: not all of it was shown
	unsure   string // it may not have been done

	// Prompts, by verb; {id}.
	prompts map[string]string
	holders map[string]string // what stands in the empty field of the reply

	commands [][2]string // what Telegram offers, with a few words each

	// Answers to commands.
	help         string
	yourID       string // {id}
	chatID       string // {id}
	threadID     string // {id}
	greeting     string // {workspaces}
	nothingWaits string
	waiting      string // {n}
	here         string // {id}: its card stands above
	noSuch       string // {id}
	nothingYet   string // nothing was settled
	noGrants     string
	oneSession   string // a consent that holds for one session
	grantedBy    string // {by} {until}
	more         string // {n}
	notHere      string // a command that this gate does not take here
	noWorkspace  string // {workspaces}
	paused       string // {workspace}
	wasPaused    string // {workspace}
	resumed      string // {workspace}
	notPaused    string // {workspace}

	testCard  string
	digest    string // {n} {workspace}
	morning   string // {workspace} {waiting} {expired}
	allowed   string // {id} {rule}: a line of the feed
	feedTitle string // {workspace}
	reminder  string // {id} {time}
	recall    string // {id} {time}
	document  string // {id}: the caption of the whole
}

func catalogue(language string) *words {
	if chat.Language(language) == "it" {
		return italian()
	}
	return english()
}

// say fills the names in braces in. What is filled in is not read again.
func say(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}
