package deliver

import (
	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// catalog holds the texts of the engine. Comments about them are in chat/messages/en.toml.
type catalog struct {
	Once, Deny                      string
	Note, Change, Edit, Ask, Answer string
	ShowAll, Undo, Why              string

	LongMenu       string
	SayMore        string
	InDocument     string
	Verdicts       map[approval.Verdict]string
	Scopes         map[approval.Scope]string
	Cancelled      string
	ByAt           string
	AtTime         string
	SentToAgent    string
	AgentSays      string
	OutcomeFollows string
	Undone         string
	Aftermath      map[string]string
	UnknownRequest string
	AskedElsewhere string
	Replaced       string

	Showing       string
	ButtonExpired string
	PleaseWait    string
	NotShown      string
	Unsure        string

	Prompts      map[string]string
	Placeholders map[string]string

	Help           string
	NotUnderstood  string
	NoMoreAnswers  string
	StopMeans      string
	UndoMeans      string
	LastDecision   string
	Forwarded      string
	YourID         string
	ChatID         string
	ThreadID       string
	YouDecideIn    string
	NothingWaits   string
	WaitingCount   string
	CardAbove      string
	NotFound       string
	NothingYet     string
	NoGrants       string
	GrantedBy      string
	AndMore        string
	Unavailable    string
	WhichWorkspace string
	PausedNow      string
	AlreadyPaused  string
	Resumed        string
	NotPaused      string
	AllPaused      string

	DenyThese   string
	DenyThis    string
	Pause       string
	DeniedThese string
	LeftAlone   string
	OthersOpen  string

	DigestTitle     string
	MorningTitle    string
	FeedLine        string
	FeedTitle       string
	Reminder        string
	Recall          string
	Reminders       string
	Recalls         string
	DocumentCaption string
	Limited         string
	LimitedLetter   string
}

func catalogFor(language string) *catalog { return chat.Messages[catalog](language, "deliver") }
