package web

import (
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// words are the texts of the pages in one language. format fills names in braces;
// both catalogs have the same names.
type words struct {
	Name       string
	Skip       string
	Menu       string // the name of the navigation
	ListTitle  string
	Help       string
	HelpShort  string // in the navigation
	LogOut     string
	LoggedInAs string // whose session it is

	// The login pages.
	LoginTitle    string
	LoginText     string
	LoginButton   string
	NoSessionText string
	Refusals      map[refusal]string

	// The list.
	NoPending       string
	CountOne        string
	CountMany       string
	Asked           string
	Until           string
	Question        string
	Reversibilities map[string]string // of reversibility
	Left            string            // of the time that is left
	TimeOver        string
	NewRequest      string // for screen readers and notifications
	ConnectionLost  string // to the daemon
	TooManyPages    string
	Reload          string

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
	RulingHints  string
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
	MoreChoices  string
	AnswerLabel  string
	AnswerButton string
	ReadOnly     string
	ExpiredText  string
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
	StateChanged string // for screen readers, when the state of a request changes

	// The other pages.
	GrantsTitle       string
	GrantsText        string
	GrantsNone        string
	GrantExact        string
	GrantSession      string
	GrantStates       map[string]string
	GrantUsed         string
	Since             string
	GivenBy           string
	Revoke            string
	Revoked           string
	GrantNotFound     string
	NotAllowed        string
	RulesTitle        string
	RulesText         string
	RulesNone         string
	Outcomes          map[string]string
	HistoryTitle      string
	HistoryNone       string
	Similar           string // history of one kind
	AllSimilar        string
	Search            string
	SearchButton      string
	StatusLabel       string
	AnyStatus         string
	Statuses          map[string]string
	Older             string
	LogUnreadable     string
	ColAsked          string
	ColWhat           string
	ColStatus         string
	ColBy             string
	ColTook           string
	ColEvent          string
	ColWhen           string
	ColMore           string
	ColNumber         string
	AuditTitle        string
	AuditNone         string
	VerifyText        string
	VerifyButton      string
	VerifyGood        string
	VerifyBad         string
	VerifyBusy        string
	WorkspacesTitle   string
	Autonomy          string
	Approvers         string
	NoApprovers       string
	OnlyDecider       string
	Channels          string
	Timeout           string
	Limits            string
	LimitPending      string
	LimitAsk          string
	LimitAll          string
	LimitRunning      string
	LimitSize         string
	Rates             string
	Taints            string
	WaitingNow        string
	RequestsLastMonth string // the number of them
	MedianIs          string
	PeopleTitle       string
	ColPerson         string
	ColDecided        string
	ColShare          string
	ColMedian         string
	ColFast           string
	RubberStamping    string
	PauseTitle        string
	PauseReason       string
	PauseButton       string
	PauseAll          string
	ResumeButton      string
	ResumeAll         string
	PausedNow         string
	ResumedNow        string

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

	// Errors.
	InternalError   string
	RequestNotFound string
	BadForm         string
	NotUnderstood   string
}

func catalog(lang string) *words {
	if chat.Language(lang) == "it" {
		return italian()
	}
	return english()
}

// format replaces names in braces. It does not replace names inside the values.
func format(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}

func english() *words {
	return &words{
		Name:       "permesso",
		Skip:       "Skip to content",
		Menu:       "Pages",
		ListTitle:  "Pending",
		Help:       "Help and settings",
		HelpShort:  "Help",
		LogOut:     "Log out",
		LoggedInAs: "Logged in as {name}",

		LoginTitle:    "Open permesso",
		LoginText:     "This link opens permesso in this browser. It works once.",
		LoginButton:   "Open permesso",
		NoSessionText: "To view and decide requests here, run permesso ui on this machine. It prints a link that works once.",
		Refusals: map[refusal]string{
			refusedHost:    "Unknown host name. Use the address that permesso ui prints, or add this name to listen_hosts in permesso.toml.",
			refusedFrame:   "permesso cannot be shown inside another page.",
			refusedOrigin:  "This was not sent by a permesso page. Nothing was changed.",
			refusedMethod:  "Method not allowed.",
			refusedForm:    "This was not sent as a form. Nothing was changed.",
			refusedSession: "No valid session. Nothing was changed. Run permesso ui for a new link.",
			refusedLink:    "This link was already used or has expired. Run permesso ui for a new one.",
		},

		NoPending:       "No pending requests.",
		CountOne:        "1 pending request.",
		CountMany:       "{n} pending requests.",
		Asked:           "requested",
		Until:           "expires",
		Question:        "question",
		Reversibilities: map[string]string{"reversible": "reversible", "partial": "partly reversible", "irreversible": "irreversible"},
		Left:            "{time} left",
		TimeOver:        "expired",
		NewRequest:      "New request. {n} pending.",
		ConnectionLost:  "Connection to permesso lost. This page may be out of date: reload it, or run permesso ui.",
		TooManyPages:    "Too many open pages. Close some.",
		Reload:          "Reload",

		Facts:        "Facts",
		Evidence:     "Evidence",
		ChangesTitle: "Changes since the earlier request",
		Exact:        "Exactly this would run",
		ExactHint:    "All arguments. Invisible characters are escaped; secrets are replaced by their kind and length.",
		AgentSays:    "The agent says",
		AgentHint:    "The agent's own words, not verified.",
		WhyAsked:     "Why is approval needed?",
		RuleIs:       "Rule:",
		RulingHints:  "What would change this ruling:",
		NoReason:     "No reason was recorded.",
		Source:       "The program, as verified",
		SourceClaim:  "The program, as given by the agent (not verified)",
		Decide:       "Your decision",
		Codes:        map[string]string{"1": "Allow once", "2": "Allow for this session", "3": "Deny", "4": "Allow with this note", "5": "Request this change", "6": "Always allow"},
		DenyReason:   "Reason (optional; the agent reads it)",
		NoteLabel:    "Note to the agent; the request runs unchanged",
		ChangeLabel:  "What the agent should do instead; nothing runs now",
		AskLabel:     "Question about this request",
		AskButton:    "Ask",
		MoreChoices:  "More choices",
		AnswerLabel:  "Your answer",
		AnswerButton: "Answer",
		ReadOnly:     "You may view this request, but not decide it here.",
		ExpiredText:  "This request has expired and cannot be decided any more.",
		DecidedLine:  "{verdict} by {by} via {via} at {time}",
		Running:      "The action is running.",
		Outcome:      "Outcome",
		Output:       "Output",
		UndoText:     "This approval created a grant.",
		UndoButton:   "Undo: revoke the grant",
		Next:         "Next request",
		Back:         "Back to the list",
		ConfirmTitle: "Are you sure?",
		ConfirmText:  "This action cannot be undone.",
		ConfirmYes:   "Yes: {what}",
		ConfirmNo:    "No, go back",
		Verdicts: map[string]string{
			"approved": "Approved", "denied": "Denied", "answered": "Answered", "overridden": "Change requested", "request_more": "More information requested",
			"cancelled": "Cancelled", "expired": "Expired",
		},
		StateChanged: "This request has changed.",

		GrantsTitle:   "Grants",
		GrantsText:    "A request that matches an active grant runs without asking.",
		GrantsNone:    "No grants.",
		GrantExact:    "one exact command line",
		GrantSession:  "session",
		GrantStates:   map[string]string{"active": "active", "expired": "expired", "used": "used up", "revoked": "revoked"},
		GrantUsed:     "used {n}×",
		Since:         "at",
		GivenBy:       "granted by",
		Revoke:        "Revoke",
		Revoked:       "Revoked. Matching requests need approval again.",
		GrantNotFound: "No such grant.",
		NotAllowed:    "You are not allowed to do this.",
		RulesTitle:    "Rules",
		RulesText:     "The operator's rules, in order. To change them, edit permesso.toml.",
		RulesNone:     "No rules. Requests that policy does not decide by capability need approval.",
		Outcomes:      map[string]string{"allow": "allow", "ask": "ask", "deny": "deny"},
		HistoryTitle:  "History",
		HistoryNone:   "No requests found.",
		Similar:       "Earlier requests of this kind",
		AllSimilar:    "All requests of this kind",
		Search:        "Search for",
		SearchButton:  "Search",
		StatusLabel:   "Status",
		AnyStatus:     "any",
		Statuses: map[string]string{
			"pending": "pending", "running": "running", "approved": "approved", "auto_approved": "allowed by policy", "denied": "denied",
			"auto_rejected": "denied by policy", "expired": "expired", "cancelled": "cancelled", "request_more": "more information requested",
			"overridden": "change requested", "answered": "answered", "failed": "failed", "interrupted": "interrupted", "malformed": "malformed",
		},
		Older:             "Older",
		LogUnreadable:     "The audit log could not be read completely. The rows shown are correct. See the daemon's log.",
		ColAsked:          "Requested",
		ColWhat:           "What",
		ColStatus:         "Status",
		ColBy:             "By",
		ColTook:           "Duration",
		ColEvent:          "Event",
		ColWhen:           "Time",
		ColMore:           "Details",
		ColNumber:         "No.",
		AuditTitle:        "Audit log",
		AuditNone:         "No entries found.",
		VerifyText:        "Reads every entry and compares it with every signed checkpoint and receipt of this daemon.",
		VerifyButton:      "Verify the log",
		VerifyGood:        "Log OK: {found}",
		VerifyBad:         "Log verification failed: {why}",
		VerifyBusy:        "A verification is already running. Try again later.",
		WorkspacesTitle:   "Workspaces",
		Autonomy:          "Autonomy",
		Approvers:         "Approvers",
		NoApprovers:       "only the operator",
		OnlyDecider:       "decided only by",
		Channels:          "Channels",
		Timeout:           "Approval timeout",
		Limits:            "Limits",
		LimitPending:      "{n} pending",
		LimitAsk:          "{n} approval requests per minute",
		LimitAll:          "{n} requests per minute",
		LimitRunning:      "{n} running",
		LimitSize:         "{n} KiB per request",
		Rates:             "Rate limits and budgets",
		Taints:            "Taints",
		WaitingNow:        "Pending now",
		RequestsLastMonth: "Requests in the last 30 days",
		MedianIs:          "Median time to decide",
		PeopleTitle:       "Decisions by person",
		ColPerson:         "Person",
		ColDecided:        "Decided",
		ColShare:          "Approved",
		ColMedian:         "Median",
		ColFast:           "Within 5 s",
		RubberStamping:    "{name} approves nearly everything, faster than a person can read it. Add allow rules for routine requests, so that approvers read the others.",
		PauseTitle:        "Pause",
		PauseReason:       "Reason",
		PauseButton:       "Pause {name}",
		PauseAll:          "Pause everything",
		ResumeButton:      "Resume {name}",
		ResumeAll:         "Resume everything",
		PausedNow:         "Paused: nothing starts before a resume.",
		ResumedNow:        "Resumed.",

		KeysTitle:   "Keys",
		KeyApprove:  "approve the request on the page",
		KeyDeny:     "deny the request on the page",
		KeyNext:     "next request",
		KeyHelp:     "this help",
		KeysNote:    "Keys are ignored while you type in a field.",
		Settings:    "Settings of this browser",
		Language:    "Language",
		Languages:   map[string]string{"en": "English", "it": "Italiano"},
		KeysSetting: "Keys",
		On:          "on",
		Off:         "off",
		Save:        "Save",
		Notify:      "Desktop notifications",
		NotifyOn:    "Notify me of new requests",
		NotifyOff:   "Stop notifications",
		NotifyNo:    "This browser does not allow notifications.",

		InternalError:   "Internal error: see the daemon's log. The action may not have been completed.",
		RequestNotFound: "Request not found, or you may not see it.",
		BadForm:         "The form was not complete. Nothing was decided: go back and reload the page.",
		NotUnderstood:   "Not understood, nothing decided.",
	}
}
