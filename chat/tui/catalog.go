package tui

import "github.com/permesso-dev/permesso/chat"

// messages are the sentences that only this channel uses. Comments about them are in messages/en.toml.
type messages struct {
	Connecting, CountOne, Count, None              string
	NoAnswer, NotServed                            string
	Deciding, NotUnderstood                        string
	DecidedBy, Gone, Changed, Loading              string
	Position, ReadOn, ReadOnShort, Wait, NoRequest string
	Confirm, AskAgent, Text                        string
	Reason, Note, Change, Edit, Question, Answer   string
	Silent, TooSmall                               string
	NoGrant, Copied, FilterLabel, NoMatch          string
	Place, Unchangeable                            string
	Revealed, NotRevealed                          string
	TooLong                                        string
	Word, OtherWord                                string // that confirms what cannot be undone, or does not
	Help                                           string
	Keys                                           keyMessages
	Titles, Empty                                  map[string]string // of pages
	Scopes                                         map[string]string // what Tab shows in a dialog
}

type keyMessages struct {
	Open, Filter, Help, Quit, Back                        string
	Approve, Deny, Reason, Session, Always, Text, Ask     string
	Next, Copy, Answer, Option, Act, Scroll, Send, Cancel string
	Reveal, Undo, More, Yes, ApproveIt                    string
}

func catalog(language string) *messages { return chat.Messages[messages](language, "tui") }
