package web

import (
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// words are all the sentences of the pages, in one language. Names in braces are
// filled in by say; both catalogues hold the same names.
type words struct {
	Name      string
	Skip      string
	Menu      string // the name of the navigation
	ListTitle string
	Help      string
	HelpShort string // in the navigation
	Leave     string
	You       string // whose session it is

	// The door.
	DoorTitle   string
	DoorText    string
	DoorButton  string
	OutsideText string
	Refusals    map[refusal]string

	// The list.
	None      string
	CountOne  string
	CountMany string
	Asked     string
	Until     string
	Question  string
	Degrees   map[string]string // of reversibility
	Left      string            // of the time that is left
	Over      string
	NewOne    string // said aloud
	Lost      string // the line to the gate
	TooMany   string
	Reload    string

	// A request.
	Facts        string
	Evidence     string
	ChangesTitle string
	Exact        string
	ExactHint    string
	AgentSays    string
	AgentHint    string
	WhyAsked     string
	RuleIs       string
	Milder       string
	NoReason     string
	Source       string
	SourceClaim  string
	Decide       string
	Codes        map[string]string
	DenyReason   string
	NoteLabel    string
	ChangeLabel  string
	AskLabel     string
	AskButton    string
	More         string
	AnswerLabel  string
	AnswerButton string
	ReadOnly     string
	LateText     string
	DecidedLine  string
	Running      string
	Outcome      string
	Output       string
	UndoText     string
	UndoButton   string
	Next         string
	Back         string
	ConfirmTitle string
	ConfirmText  string
	ConfirmYes   string
	ConfirmNo    string
	Verdicts     map[string]string
	Turned       string // said aloud when the state of a request changes

	// What else there is.
	GrantsTitle  string
	GrantsText   string
	GrantsNone   string
	GrantExact   string
	GrantSession string
	GrantStates  map[string]string
	GrantUsed    string
	Since        string
	GivenBy      string
	Revoke       string
	Revoked      string
	NoGrant      string
	NotYours     string
	RulesTitle   string
	RulesText    string
	RulesNone    string
	Outcomes     map[string]string
	HistoryTitle string
	HistoryNone  string
	Like         string // history of one kind
	LikeMore     string
	Search       string
	SearchButton string
	StatusLabel  string
	AnyStatus    string
	Statuses     map[string]string
	Older        string
	LogBroken    string
	ColAsked     string
	ColWhat      string
	ColStatus    string
	ColBy        string
	ColTook      string
	ColEvent     string
	ColWhen      string
	ColMore      string
	ColNumber    string
	AuditTitle   string
	AuditNone    string
	VerifyText   string
	VerifyButton string
	VerifyGood   string
	VerifyBad    string
	VerifyBusy   string
	PlacesTitle  string
	Autonomy     string
	Approvers    string
	Nobody       string
	OnlyFor      string
	Channels     string
	TimeOut      string
	Limits       string
	LimitPending string
	LimitAsk     string
	LimitAll     string
	LimitRunning string
	LimitSize    string
	Rates        string
	Taints       string
	WaitingNow   string
	LastMonth    string // how many requests there were
	MedianIs     string
	PeopleTitle  string
	ColPerson    string
	ColDecided   string
	ColShare     string
	ColMedian    string
	ColHasty     string
	Stamps       string
	PauseTitle   string
	PauseReason  string
	PauseButton  string
	PauseAll     string
	ResumeButton string
	ResumeAll    string
	PausedNow    string
	ResumedNow   string

	// Help and settings.
	KeysTitle   string
	KeyApprove  string
	KeyDeny     string
	KeyNext     string
	KeyHelp     string
	KeysNote    string
	Settings    string
	Language    string
	Languages   map[string]string
	KeysSetting string
	On          string
	Off         string
	Save        string
	Notify      string
	NotifyOn    string
	NotifyOff   string
	NotifyNo    string

	// What went wrong.
	Broken  string
	NoSuch  string
	BadForm string
	Unclear string
}

func catalogue(lang string) *words {
	if chat.Language(lang) == "it" {
		return italian()
	}
	return english()
}

// say fills the names in braces in. What is filled in is never read again.
func say(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}

func english() *words {
	return &words{
		Name:      "permesso",
		Skip:      "Skip to the content",
		Menu:      "Pages",
		ListTitle: "Waiting",
		Help:      "Help and settings",
		HelpShort: "Help",
		Leave:     "Log out",
		You:       "You are {name}",

		DoorTitle:   "Open permesso",
		DoorText:    "This link opens permesso in this browser, once.",
		DoorButton:  "Open permesso",
		OutsideText: "To look and decide here, run permesso ui on this machine: it gives you a link that works once.",
		Refusals: map[refusal]string{
			refusedHost:    "This name is not one of ours. Use the address that permesso ui prints; other names belong into listen_hosts in permesso.toml.",
			refusedFrame:   "permesso is not shown inside of other pages.",
			refusedOrigin:  "That was not sent by a page of permesso's. Nothing was changed.",
			refusedMethod:  "That is not possible here.",
			refusedForm:    "That was not sent as a form. Nothing was changed.",
			refusedSession: "Your session is over, or there was none. Nothing was changed. Run permesso ui for a new link.",
			refusedLink:    "This link was used already, or is too old. Run permesso ui for a new one.",
		},

		None:      "Nothing waits.",
		CountOne:  "One request waits.",
		CountMany: "{n} requests wait.",
		Asked:     "asked",
		Until:     "until",
		Question:  "question",
		Degrees:   map[string]string{"reversible": "reversible", "partial": "partly reversible", "irreversible": "irreversible"},
		Left:      "{time} left",
		Over:      "time is over",
		NewOne:    "A new request waits. {n} in all.",
		Lost:      "The line to the gate is broken. What you see may be old: load the page again, or run permesso ui.",
		TooMany:   "Too many pages are open. Close some.",
		Reload:    "Load again",

		Facts:        "The facts",
		Evidence:     "What is known of it",
		ChangesTitle: "What changed since the earlier request",
		Exact:        "Exactly this would run",
		ExactHint:    "All of the arguments. What is invisible is written out; secrets are replaced by their kind and length.",
		AgentSays:    "The agent says",
		AgentHint:    "These are the agent's own words. Nobody has checked them.",
		WhyAsked:     "Why am I asked?",
		RuleIs:       "The rule that decided:",
		Milder:       "What would change it:",
		NoReason:     "No reason was recorded.",
		Source:       "The program, as it was verified",
		SourceClaim:  "The program, as the agent gives it",
		Decide:       "Your decision",
		Codes:        map[string]string{"1": "Allow once", "2": "Allow for this session", "3": "Deny", "4": "Allow with this note", "5": "Ask for this instead", "6": "Always allow"},
		DenyReason:   "Reason, if you like (the agent reads it)",
		NoteLabel:    "Note to the agent; the request runs as it is",
		ChangeLabel:  "What the agent is to do instead; nothing runs now",
		AskLabel:     "A question about it",
		AskButton:    "Ask",
		More:         "More ways to answer",
		AnswerLabel:  "Your answer",
		AnswerButton: "Answer",
		ReadOnly:     "You may look at this request, and not decide it here.",
		LateText:     "Its time is over: nothing can be decided any more.",
		DecidedLine:  "{verdict} by {by} via {via} at {time}",
		Running:      "It is being carried out.",
		Outcome:      "How it ended",
		Output:       "What came of it",
		UndoText:     "This approval is remembered.",
		UndoButton:   "Undo: remember it no longer",
		Next:         "Next request",
		Back:         "Back to the list",
		ConfirmTitle: "Are you sure?",
		ConfirmText:  "This cannot be taken back once it runs.",
		ConfirmYes:   "Yes: {what}",
		ConfirmNo:    "No, go back",
		Verdicts: map[string]string{
			"approved": "Approved", "denied": "Denied", "answered": "Answered", "overridden": "Another way was asked for", "request_more": "Asked back",
			"cancelled": "Cancelled", "expired": "Expired",
		},
		Turned: "This request has changed.",

		GrantsTitle:  "Remembered",
		GrantsText:   "What is let through from now on without asking, because somebody said so.",
		GrantsNone:   "Nothing is remembered.",
		GrantExact:   "one whole command line",
		GrantSession: "session",
		GrantStates:  map[string]string{"active": "holds", "expired": "expired", "used": "used up", "revoked": "revoked"},
		GrantUsed:    "used {n}×",
		Since:        "since",
		GivenBy:      "given by",
		Revoke:       "Revoke",
		Revoked:      "Revoked: it is asked about again.",
		NoGrant:      "Nothing of the kind is remembered.",
		NotYours:     "That is not yours to do.",
		RulesTitle:   "Rules",
		RulesText:    "The operator's rules, in their order. They stand in permesso.toml and are changed there.",
		RulesNone:    "There are no rules. What the table of capabilities does not settle is asked.",
		Outcomes:     map[string]string{"allow": "allow", "ask": "ask", "deny": "deny"},
		HistoryTitle: "History",
		HistoryNone:  "Nothing was found.",
		Like:         "Earlier requests of this kind",
		LikeMore:     "All of this kind",
		Search:       "Search for",
		SearchButton: "Search",
		StatusLabel:  "How it ended",
		AnyStatus:    "in any way",
		Statuses: map[string]string{
			"pending": "waiting", "running": "running", "approved": "approved", "auto_approved": "allowed by a rule", "denied": "denied",
			"auto_rejected": "refused by a rule", "expired": "expired", "cancelled": "cancelled", "request_more": "asked back",
			"overridden": "another way asked for", "answered": "answered", "failed": "failed", "interrupted": "interrupted", "malformed": "malformed",
		},
		Older:        "Older",
		LogBroken:    "The log could not be read to its end; what stands here is right. The gate's log says more.",
		ColAsked:     "Asked",
		ColWhat:      "What",
		ColStatus:    "How it ended",
		ColBy:        "By",
		ColTook:      "Took",
		ColEvent:     "Event",
		ColWhen:      "When",
		ColMore:      "More",
		ColNumber:    "No.",
		AuditTitle:   "Audit log",
		AuditNone:    "No entries were found.",
		VerifyText:   "Every entry is read, and held against every signed checkpoint and receipt in this home.",
		VerifyButton: "Verify the log",
		VerifyGood:   "The log is as it was signed: {found}",
		VerifyBad:    "The log is not what it was: {why}",
		VerifyBusy:   "It is being verified already. Try again in a moment.",
		PlacesTitle:  "Workspaces",
		Autonomy:     "Autonomy",
		Approvers:    "Approvers",
		Nobody:       "nobody but the operator",
		OnlyFor:      "decided only by",
		Channels:     "Channels",
		TimeOut:      "A request waits for",
		Limits:       "Limits",
		LimitPending: "{n} waiting at once",
		LimitAsk:     "{n} questions a minute",
		LimitAll:     "{n} requests a minute",
		LimitRunning: "{n} running at once",
		LimitSize:    "{n} KiB a request",
		Rates:        "Rates and budgets",
		Taints:       "Taints",
		WaitingNow:   "Waiting now",
		LastMonth:    "Requests in the last 30 days",
		MedianIs:     "Median time to decide",
		PeopleTitle:  "Who decides, and how fast",
		ColPerson:    "Person",
		ColDecided:   "Decided",
		ColShare:     "Approved",
		ColMedian:    "Median",
		ColHasty:     "Within 5 s",
		Stamps:       "{name} approves nearly everything, faster than anybody reads. Rules for what is always right keep the other questions worth reading.",
		PauseTitle:   "Pause",
		PauseReason:  "Reason",
		PauseButton:  "Pause {name}",
		PauseAll:     "Pause everything",
		ResumeButton: "Resume {name}",
		ResumeAll:    "Resume everything",
		PausedNow:    "Paused: nothing is started until somebody resumes.",
		ResumedNow:   "Resumed.",

		KeysTitle:   "Keys",
		KeyApprove:  "approve the request on the page",
		KeyDeny:     "deny it",
		KeyNext:     "the next request",
		KeyHelp:     "this help",
		KeysNote:    "Keys do nothing while you type in a field.",
		Settings:    "Settings of this browser",
		Language:    "Language",
		Languages:   map[string]string{"en": "English", "it": "Italiano"},
		KeysSetting: "Keys",
		On:          "on",
		Off:         "off",
		Save:        "Save",
		Notify:      "Notifications on this desktop",
		NotifyOn:    "Tell me when something waits",
		NotifyOff:   "Tell me no longer",
		NotifyNo:    "This browser does not allow it.",

		Broken:  "Something went wrong in the gate. Its log says what. Do not count on anything having happened.",
		NoSuch:  "There is no such request, or it is not for you.",
		BadForm: "That form was not complete. Nothing was decided: go back, and load the page again.",
		Unclear: "That was not clear, so nothing was decided.",
	}
}
