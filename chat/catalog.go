package chat

import "strings"

// words are all the sentences that people see, in one language. Names in
// braces are filled in by say; both catalogues hold the same names.
type words struct {
	// The card.
	headAction   string
	headQuestion string
	mayI         string // the question, with the verb of this language
	mayIForeign  string // the same, with a verb of another language
	run          string // verb of a tool that has none
	release      string // verb of a request without a tool
	agentAsks    string
	onlyAnswer   string
	paused       string
	reversible   string
	partial      string
	irreversible string
	class        string
	unknown      string
	session      string // markers of a territory
	permanent    string
	other        string
	why          string
	instead      string // what would make the ruling milder
	moreReasons  string
	reasons      map[string]string // of policy, by the form in which it writes them
	known        evidence          // what is known besides the arguments

	// What changed since the request that it resubmits.
	changedSince       string
	resubmitsUnknown   string
	resubmitsElsewhere string
	resubmitsOthers    string
	otherTool          string
	notCompared        string
	sameFields         string
	sameLines          string
	sameEnds           string
	moreChanges        string

	unknownTool  string
	claimed      string
	mixed        string
	rtl          string
	noDetails    string
	unreadable   string
	says         string
	title        string
	preview      string
	redacted     string
	cutValue     string
	cutFields    string
	cutPayload   string
	cutChanges   string
	cutProse     string
	menu         string
	menuOptions  string
	menuFree     string
	notHere      string // a code that is not possible, and why
	notBoth      string
	wouldAllow   string // what "always" would have let through
	allowsNone   string
	amongThem    string
	foot         string
	footQuestion string

	// Answers to people.
	approved      string
	runBefore     string
	denied        string
	answered      string
	overridden    string
	asked         string
	undoHere      string // behind an approval that is remembered
	undoElsewhere string
	undone        string
	nothingToUndo string
	because       string
	waitsOn       string // below an answer from facts
	notFromFacts  string // behind what went to the agent
	onlyClaimed   string
	noReason      string
	none          string
	notYours      string
	noSuchID      string
	gone          string
	decided       string
	decidedBy     string
	tooLate       string
	notPossible   string
	ambiguous     string
	shortID       string
	isQuestion    string
	otherCard     string
	unclear       string
	unclearCard   string
	unclearAsk    string
	needsText     string
	takesNoText   string
	unconfirmed   string
	verdicts      map[string]string // of approval.Verdict and approval.Status
	outcome       string            // how a request ended
	outcomeBy     string
	outcomeError  string
}

// evidence are the words about what is known of a request.
type evidence struct {
	host, left                  string // the gate's own findings, and what of one it could not list
	verified, covered, trusting string
	unknown, missing            string
	rest, program               string // what a proof does not name; what nobody has proved anything of
	onlyClaim, notSigned        string
	claim, contract             string // before what an unsigned proof says
	more, none                  string
	names, statuses             map[string]string
}

// Languages lists the languages there are catalogues for; the first one stands
// in for every other.
func Languages() []string { return []string{"en", "it"} }

// Language picks the catalogue for a tag like "it" or "it-CH".
func Language(tag string) string {
	primary, _, _ := strings.Cut(strings.ReplaceAll(lower(tag), "_", "-"), "-")
	for _, l := range Languages() {
		if l == primary {
			return l
		}
	}
	return Languages()[0]
}

func catalogue(tag string) *words {
	if Language(tag) == "it" {
		return italian()
	}
	return english()
}

// say fills the names in braces in. What is filled in is never read again, so
// a brace in an agent's text stays a brace.
func say(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}

func english() *words {
	return &words{
		headAction:   "🔐 Approval required · {workspace} · {tool} · {id}",
		headQuestion: "🔐 Answer wanted · {workspace} · {id}",
		mayI:         "May I {verb}?",
		mayIForeign:  "May I? ({verb})",
		run:          "run {tool}",
		release:      "have a receipt for {action}",
		agentAsks:    "The agent asks: {title}",
		onlyAnswer:   "nothing runs | your answer goes to the agent",
		paused:       "⏸ paused since {time} by {by}: nothing runs until resume",
		reversible:   "reversible",
		partial:      "partly reversible",
		irreversible: "irreversible",
		class:        "class",
		unknown:      "unknown",
		session:      "[territory: session]",
		permanent:    "[territory: permanent]",
		other:        "[territory: {territory}]",
		why:          "why",
		instead:      "to change that",
		moreReasons:  "; and {n} more: permesso policy explain {id}",
		unknownTool:  "⚠ unknown tool: the operator has not described it; treated as irreversible, and nothing here can run it",
		claimed:      "⚠ the action is what the agent claims; nothing runs here, the agent gets a receipt",
		mixed:        "⚠ mixed scripts: {words}",
		rtl:          "⚠ right-to-left text: what stands beside it may appear in another order",
		noDetails:    "(no details)",
		unreadable:   "⚠ not an object: {raw}",
		says:         "Agent says",
		title:        "Agent's title",
		preview:      "Agent's preview",
		redacted:     "[redacted: {kind}, {n} chars]",
		cutValue:     "… [{n} more chars]",
		cutFields:    "… [{n} more fields]",
		cutPayload:   "✂ not all of it is shown: {n} more chars. See all of it before you approve.",
		cutChanges:   "✂ what changed is left out: {n} chars",
		cutProse:     "✂ the agent's own words are left out: {n} chars",
		menu:         "1 once · 2 session · 3 deny · 4 <note> · 5 <change> · 6 always",
		menuOptions:  "answer with a number, or in your own words; reply to this message",
		menuFree:     "answer in your own words; reply to this message",
		notHere:      "{code} is not possible here: {why}",
		notBoth:      "2 and 6 are not possible here: {why}",
		wouldAllow:   "6 would have allowed {n} of the last {of}",
		allowsNone:   "6 would have allowed none of the last {of}",
		amongThem:    ", among them {examples}",
		foot:         "→ approve {id}  /  deny {id} · until {time}",
		footQuestion: "→ deny {id} · until {time}",

		approved:      "Approved: {what}",
		runBefore:     " · runs by {time} or not at all",
		denied:        "Denied: {what}",
		answered:      "Answered: {text}",
		overridden:    "Not run: {what} · your change goes to the agent: {text}",
		asked:         "Sent back to the agent: {text} · {what} was not run",
		undoElsewhere: "Not here: permesso revoke {id}",
		undoHere:      " · Undo: write undo {id} here, or permesso revoke {id}",
		undone:        "Taken back: {what}. From now on it is asked again.",
		nothingToUndo: "Nothing of yours is remembered under {id}, or it was taken back before.",
		because:       "{id} waits for you because: {reasons}",
		waitsOn:       "{id} waits on. To have the agent answer, begin with: ? agent,",
		notFromFacts:  " · the facts here do not answer it",
		onlyClaimed:   " · only the agent's own proof, which nobody has verified, speaks of it",
		noReason:      "Write what you want to know after the question mark.",
		none:          "No pending approvals.",
		notYours:      "Nothing here for you.",
		noSuchID:      "No such request is waiting here: {id}",
		gone:          "No such request: it was never here, or is long settled.",
		decided:       "Already decided.",
		decidedBy:     "Already {verdict} by {by} at {time}.",
		tooLate:       "Too late: the request has expired or is settled.",
		notPossible:   "Not possible here.",
		ambiguous:     "Several requests begin with {id}: type more digits.",
		shortID:       "Type at least 4 digits of the id.",
		isQuestion:    "{id} is a question: reply to its card with the answer.",
		otherCard:     "Unclear: you replied to {id} and named another request. Nothing was decided.",
		unclear:       "Unclear, nothing was decided. Write exactly: approve <id>, deny <id> [reason], undo <id>, or pending.",
		unclearCard:   "Unclear, nothing was decided. Reply with 1, 2, 3, 6, or 3 <reason>, 4 <note>, 5 <change>, ? <question>.",
		unclearAsk:    "Unclear, nothing was answered. Reply with the number of an option or with your answer.",
		needsText:     "{code} needs text behind it: nothing was decided.",
		takesNoText:   "{code} takes no text: nothing was decided. To add a note write 4 <note>.",
		unconfirmed:   "That could not be confirmed: do not count on it. The gate's log says why.",
		verdicts: map[string]string{
			"approved": "approved", "denied": "denied", "answered": "answered", "overridden": "overridden",
			"request_more": "sent back", "cancelled": "cancelled", "expired": "expired",
			"auto_approved": "approved by policy", "auto_rejected": "refused by policy",
			"failed": "failed", "interrupted": "interrupted", "malformed": "malformed",
		},
		reasons: map[string]string{ //nolint:gosec // it speaks of secrets and holds none
			"ask: a {level} agent and {capability}": "{capability} is asked of a {level} agent",
			"ask: '{tool}' makes dangerous writes":  "{tool} makes dangerous writes",
			"ask: its client has read what strangers wrote and what they must not see, and '{tool}' reaches strangers": "the agent has read what strangers wrote (corruption) and what they must not see (secret), and {tool} reaches strangers",
			"ask: {where} holds what looks like a secret ({kind}, {n} bytes)":                                          "{where} holds what looks like a secret ({kind}, {n} bytes)",
			"ask: more than {n} requests without a capability in {per} in this workspace":                              "more than {n} requests without a capability in {per} here",
			"ask: more than {n} {capability} in {per} in this workspace":                                               "more than {n} {capability} in {per} here",
			"ask: with this the session would cost {n}, more than its soft limit {max}":                                "with this the session would cost {n}, more than its soft limit {max}",
			"ask: with this the day would cost {n}, more than its soft limit {max}":                                    "with this the day would cost {n}, more than its soft limit {max}",
			`ask by rule "{rule}"`:          "rule {rule} asks",
			`ask by rule "{rule}": {words}`: "rule {rule} asks: {words}",
			`ask by rule "{rule}" (a condition of it cannot be evaluated here, so the careful answer counts)`:          "rule {rule} asks (one of its conditions cannot be evaluated here)",
			`ask by rule "{rule}": {words} (a condition of it cannot be evaluated here, so the careful answer counts)`: "rule {rule} asks: {words} (one of its conditions cannot be evaluated here)",
			`rule "{rule}" does not apply: a condition of it cannot be evaluated here`:                                 "rule {rule} does not apply: one of its conditions cannot be evaluated here",
			`ask by rule "{rule}" (not proven: {words})`:                                                               "rule {rule} asks (not proven: {words})",
			`ask by rule "{rule}": {words} (not proven: {open})`:                                                       "rule {rule} asks: {words} (not proven: {open})",
			`rule "{rule}" does not apply: not proven: {words}`:                                                        "rule {rule} does not apply: not proven: {words}",
			"a question is for a person":                                                                               "a question is for a person",
			"a consent to this was revoked":                                                                            "a consent to this was revoked",
			"a consent to this has expired":                                                                            "a consent to this has expired",
			"a consent to this is used up":                                                                             "a consent to this is used up",

			"nobody has signed it":                                  "nobody has signed it",
			"it names no prover":                                    "it names no prover",
			"the operator knows no such prover":                     "the operator knows no such prover",
			"the signature is not that of the prover it names":      "the signature is not that of the prover it names",
			"program_sha256 is not that of the program in it":       "program_sha256 is not that of the program in it",
			"nothing says that this program is what runs":           "nothing says that this program is what runs",
			"the request has no program":                            "the request has no program",
			"the request has no program in {field}":                 "the request has no program in {field}",
			"it is for another program than the one that would run": "it is for another program than the one that would run",
			"it cannot be read: {error}":                            "it cannot be read: {error}",

			"insufficient level for {capability}: raise autonomy to {level}":         "insufficient level for {capability}: raise autonomy to {level}",
			"a person may clear the taints: permesso session clear {workspace}":      "a person may clear the taints: permesso session clear {workspace}",
			"an answer is for one question":                                          "an answer is for one question",
			"the request names no session":                                           "the request names no session",
			"{capability} is asked every time":                                       "{capability} is asked every time",
			"the tool is unknown here":                                               "the tool is unknown here",
			"the request names no action type":                                       "the request names no action type",
			"a command that can open a shell or another program is asked every time": "a command that can open a shell or another program is asked every time",
		},
		known: evidence{
			host:     "From the request: {facts}",
			left:     "{n} that cannot be listed",
			verified: "Verified by {prover}: {facts}", covered: "{domain} is covered by contracts", trusting: " (on trust: {names})",
			unknown: "Unknown: {what}", missing: "{domain} ({names})",
			rest: "all that is not named here", program: "what the program does",
			onlyClaim: "what its proof speaks of, for that is only the agent's claim ({why})", notSigned: "nobody has signed it",
			claim: "Agent's proof, a claim that nobody has verified", contract: "contract",
			more: "and {n} more",
			none: "none",
			names: map[string]string{
				"mail": "mail", "money": "money", "command": "command", "program": "program", "database": "database", "channel": "channel",
				"send": "send", "write": "write", "read": "read", "exec": "exec", "out": "out",
				"recipient": "recipient", "path": "path", "amount": "amount", "table": "table", "target": "target",
				"program_sha256": "SHA-256",
			},
			statuses: map[string]string{
				"proven": "proven", "not_proven": "not proven", "unknown": "unknown",
				"covered": "covered", "recommended_gap": "recommended contracts missing",
				"required_gap": "required contracts missing", "silent_gap": "no contract at all",
			},
		},
		changedSince:       "changed since {id}{answer}:",
		resubmitsUnknown:   "resubmits {id}, the agent says: no such request is known here, nothing to compare with",
		resubmitsElsewhere: "resubmits {id}, the agent says: that is a request of another workspace, nothing to compare with",
		resubmitsOthers:    "resubmits {id}, the agent says: that is a request of another client, nothing to compare with",
		otherTool:          "another tool: it was {tool}",
		notCompared:        "one of the two is no object: they cannot be compared",
		sameFields:         "unchanged fields: {n}",
		sameLines:          "… {n} lines that are the same",
		sameEnds:           "without the first {n} and the last {m} chars, which are the same:",
		moreChanges:        "✂ {n} more lines of changes; all that would run stands above",
		outcome:            "{id} · {status}",
		outcomeBy:          " · by {by} ({via})",
		outcomeError:       " · {error}",
	}
}
