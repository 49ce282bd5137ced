package chat

import "strings"

// messages are all sentences that approvers see, in one language. format fills in
// placeholders in braces. Both catalogs have the same placeholders.
type messages struct {
	// The card.
	headAction       string
	headQuestion     string
	mayI             string // the question, with the verb of this language
	mayIUntranslated string // the same, with a verb of another language
	act              string // verb and object, to state what was decided
	actUntranslated  string // the same, with a verb of another language
	run              string // verb of a tool without one
	releaseOnly      string // verb of a request without a tool
	agentAsks        string
	onlyAnswer       string
	paused           string
	reversible       string
	partial          string
	irreversible     string
	class            string
	unknown          string
	session          string // markers of a territory
	permanent        string
	other            string
	why              string
	toChange         string // label of what would change the ruling
	moreReasons      string
	reasons          map[string]string // of policy, by the form that policy writes
	evidenceText     evidenceMessages  // of the lines about evidence

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

	unknownTool    string
	claimed        string
	mixed          string
	rtl            string
	noDetails      string
	unreadable     string
	says           string
	title          string
	preview        string
	redacted       string
	cutValue       string
	cutFields      string
	cutPayload     string
	cutChanges     string
	cutProse       string
	menu           string
	menuOptions    string
	menuFree       string
	codeImpossible string // why a code is not possible
	bothImpossible string
	wouldAllow     string // what "always" would have allowed
	allowsNone     string
	examples       string
	foot           string
	footQuestion   string

	// Replies to approvers.
	approved            string
	runBefore           string
	denied              string
	answered            string
	overridden          string
	sentBack            string
	undoHere            string // after an approval that gave a grant
	undoElsewhere       string
	undone              string
	nothingToUndo       string
	waitsBecause        string
	stillWaiting        string // after an answer from facts
	factsInsufficient   string // after a question that went to the agent
	onlyUnverified      string
	writeQuestion       string
	nonePending         string
	notAuthorized       string
	unknownID           string
	unknownRequest      string
	decided             string
	decidedBy           string
	tooLate             string
	notPossible         string
	ambiguous           string
	shortID             string
	isQuestion          string
	otherCard           string
	notUnderstood       string
	notUnderstoodReply  string
	notUnderstoodAnswer string
	needsText           string
	takesNoText         string
	unconfirmed         string
	verdicts            map[string]string // of approval.Verdict and approval.Status
	outcome             string            // how a request was settled
	outcomeBy           string
	outcomeError        string
}

// evidenceMessages are the words of the lines about evidence.
type evidenceMessages struct {
	host, notListed             string // the gate's findings, and how many values are not listed
	verified, covered, trusting string
	unknown, missing            string
	everythingElse, program     string // what a proof does not name; what has no proof
	onlyClaimed, notSigned      string
	claimHead, contract         string // before an unverified proof
	more, none                  string
	names, statuses             map[string]string
}

// Languages lists the languages that have a catalog. The first is the default.
func Languages() []string { return []string{"en", "it"} }

// Language picks the language of the catalog for a tag like "it" or "it-CH".
func Language(tag string) string {
	primary, _, _ := strings.Cut(strings.ReplaceAll(lower(tag), "_", "-"), "-")
	for _, l := range Languages() {
		if l == primary {
			return l
		}
	}
	return Languages()[0]
}

func catalog(tag string) *messages {
	if Language(tag) == "it" {
		return italian()
	}
	return english()
}

// format fills in the placeholders. It does not expand the values, so a brace in
// an agent's text stays a brace.
func format(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}

func english() *messages {
	return &messages{
		headAction:       "🔐 Approval required · {workspace} · {tool} · {id}",
		headQuestion:     "🔐 Answer required · {workspace} · {id}",
		mayI:             "May I {verb}?",
		mayIUntranslated: "May I? ({verb})",
		act:              "{verb} {object}",
		actUntranslated:  "{verb} {object}",
		run:              "run {tool}",
		releaseOnly:      "let the agent run {action} itself",
		agentAsks:        "The agent asks: {title}",
		onlyAnswer:       "nothing runs | your answer goes to the agent",
		paused:           "⏸ paused since {time} by {by}: nothing runs until resume",
		reversible:       "reversible",
		partial:          "partly reversible",
		irreversible:     "irreversible",
		class:            "class",
		unknown:          "unknown",
		session:          "[territory: session]",
		permanent:        "[territory: permanent]",
		other:            "[territory: {territory}]",
		why:              "why",
		toChange:         "to change that",
		moreReasons:      "; and {n} more: permesso policy explain {id}",
		unknownTool:      "⚠ unknown tool: the operator has not described it; treated as irreversible, and nothing here can run it",
		claimed:          "⚠ the action type is the agent's claim; nothing runs on this host, the agent gets a receipt",
		mixed:            "⚠ mixed scripts: {words}",
		rtl:              "⚠ right-to-left text: nearby text may appear in another order",
		noDetails:        "(no details)",
		unreadable:       "⚠ request_data is not a JSON object: {raw}",
		says:             "Agent says",
		title:            "Agent's title",
		preview:          "Agent's preview",
		redacted:         "[redacted: {kind}, {n} chars]",
		cutValue:         "… [{n} more chars]",
		cutFields:        "… [{n} more fields]",
		cutPayload:       "✂ {n} more chars are not shown. See all of it before you approve.",
		cutChanges:       "✂ changes not shown: {n} chars",
		cutProse:         "✂ agent's text not shown: {n} chars",
		menu:             "1 once · 2 session · 3 deny · 4 <note> · 5 <change> · 6 always",
		menuOptions:      "reply to this message with a number or with your own answer",
		menuFree:         "reply to this message with your answer",
		codeImpossible:   "{code} is not possible here: {why}",
		bothImpossible:   "2 and 6 are not possible here: {why}",
		wouldAllow:       "6 would have allowed {n} of the last {of}",
		allowsNone:       "6 would have allowed none of the last {of}",
		examples:         ", among them {examples}",
		foot:             "→ approve {id}  /  deny {id} · until {time}",
		footQuestion:     "→ deny {id} · until {time}",

		approved:            "Approved: {what}",
		runBefore:           " · will not start after {time}",
		denied:              "Denied: {what}",
		answered:            "Answered: {text}",
		overridden:          "Not run: {what} · your change goes to the agent: {text}",
		sentBack:            "Sent back to the agent: {text} · {what} was not run",
		undoElsewhere:       "Undo is not available here. Run: permesso revoke {id}",
		undoHere:            " · To undo: send undo {id} here, or run permesso revoke {id}",
		undone:              "Revoked: {what}. Such requests need approval again.",
		nothingToUndo:       "No grant to revoke for {id}, or it was already revoked.",
		waitsBecause:        "{id} needs your decision because: {reasons}",
		stillWaiting:        "{id} is still pending. To ask the agent instead, begin with: ? agent,",
		factsInsufficient:   " · the gate's facts do not answer it",
		onlyUnverified:      " · only the agent's unverified proof mentions it",
		writeQuestion:       "Write your question after the question mark.",
		nonePending:         "No pending approvals.",
		notAuthorized:       "You are not an approver here.",
		unknownID:           "No pending request with this id: {id}",
		unknownRequest:      "No such request: unknown id, or settled and removed.",
		decided:             "Already decided.",
		decidedBy:           "Already {verdict} by {by} at {time}.",
		tooLate:             "Too late: the request has expired or is settled.",
		notPossible:         "Not possible here.",
		ambiguous:           "Several requests begin with {id}: type more digits.",
		shortID:             "Type at least 4 digits of the id.",
		isQuestion:          "{id} is a question: reply to its card with the answer.",
		otherCard:           "Not understood: you replied to {id} but named another request. Nothing was decided.",
		notUnderstood:       "Not understood, nothing was decided. Write exactly: approve <id>, deny <id> [reason], undo <id>, or pending.",
		notUnderstoodReply:  "Not understood, nothing was decided. Reply with 1, 2, 3 [reason], 4 <note>, 5 <change>, 6 or ? <question>.",
		notUnderstoodAnswer: "Not understood, nothing was answered. Reply with the number of an option or with your answer.",
		needsText:           "{code} needs text after it: nothing was decided.",
		takesNoText:         "{code} takes no text: nothing was decided. To add a note write 4 <note>.",
		unconfirmed:         "Not confirmed: do not rely on it. The daemon's log has the error.",
		verdicts: map[string]string{
			"approved": "approved", "denied": "denied", "answered": "answered", "overridden": "overridden",
			"request_more": "sent back", "cancelled": "cancelled", "expired": "expired",
			"auto_approved": "approved by policy", "auto_rejected": "refused by policy",
			"failed": "failed", "interrupted": "interrupted", "malformed": "malformed",
		},
		reasons: map[string]string{ //nolint:gosec // it mentions secrets and contains none
			"ask: a {level} agent and {capability}": "{capability} needs approval at autonomy {level}",
			"ask: '{tool}' makes dangerous writes":  "{tool} makes dangerous writes",
			"ask: its client has read what strangers wrote and what they must not see, and '{tool}' reaches strangers": "the agent has read untrusted content (corruption) and secret data (secret), and {tool} could publish it",
			"ask: {where} holds what looks like a secret ({kind}, {n} bytes)":                                          "{where} holds what looks like a secret ({kind}, {n} bytes)",
			"ask: more than {n} requests without a capability in {per} in this workspace":                              "more than {n} requests without a capability in {per} in this workspace",
			"ask: more than {n} {capability} in {per} in this workspace":                                               "more than {n} {capability} in {per} in this workspace",
			"ask: with this the session would cost {n}, more than its soft limit {max}":                                "with this request the session would cost {n}, more than its soft limit {max}",
			"ask: with this the day would cost {n}, more than its soft limit {max}":                                    "with this request the day would cost {n}, more than its soft limit {max}",
			`ask by rule "{rule}"`:          "rule {rule} asks",
			`ask by rule "{rule}": {words}`: "rule {rule} asks: {words}",
			`ask by rule "{rule}" (a condition of it cannot be evaluated here, so the careful answer counts)`:          "rule {rule} asks (one of its conditions cannot be evaluated)",
			`ask by rule "{rule}": {words} (a condition of it cannot be evaluated here, so the careful answer counts)`: "rule {rule} asks: {words} (one of its conditions cannot be evaluated)",
			`rule "{rule}" does not apply: a condition of it cannot be evaluated here`:                                 "rule {rule} does not apply: one of its conditions cannot be evaluated",
			`ask by rule "{rule}" (not proven: {words})`:                                                               "rule {rule} asks (not proven: {words})",
			`ask by rule "{rule}": {words} (not proven: {open})`:                                                       "rule {rule} asks: {words} (not proven: {open})",
			`rule "{rule}" does not apply: not proven: {words}`:                                                        "rule {rule} does not apply: not proven: {words}",
			"a question is for a person":                                                                               "a person must answer a question",
			"a consent to this was revoked":                                                                            "a grant for this was revoked",
			"a consent to this has expired":                                                                            "a grant for this has expired",
			"a consent to this is used up":                                                                             "a grant for this is used up",

			"nobody has signed it":                                  "it is not signed",
			"it names no prover":                                    "it names no prover",
			"the operator knows no such prover":                     "its prover is not configured",
			"the signature is not that of the prover it names":      "the signature does not match the prover it names",
			"program_sha256 is not that of the program in it":       "program_sha256 does not match the program in it",
			"nothing says that this program is what runs":           "nothing shows that this program is what runs",
			"the request has no program":                            "the request has no program",
			"the request has no program in {field}":                 "the request has no program in {field}",
			"it is for another program than the one that would run": "it is for another program",
			"it cannot be read: {error}":                            "it cannot be read: {error}",

			"insufficient level for {capability}: raise autonomy to {level}":         "{capability} needs a higher level: raise autonomy to {level}",
			"a person may clear the taints: permesso session clear {workspace}":      "an operator can clear the taints: permesso session clear {workspace}",
			"an answer is for one question":                                          "an answer applies to one question only",
			"the request names no session":                                           "the request names no session",
			"{capability} is asked every time":                                       "{capability} is asked every time",
			"the tool is unknown here":                                               "the tool is unknown here",
			"the request names no action type":                                       "the request names no action type",
			"a command that can open a shell or another program is asked every time": "a command that can open a shell or another program is asked every time",
		},
		evidenceText: evidenceMessages{
			host:      "From the request: {facts}",
			notListed: "{n} that cannot be listed",
			verified:  "Verified by {prover}: {facts}", covered: "{domain} is covered by contracts", trusting: " (trusted without proof: {names})",
			unknown: "Unknown: {what}", missing: "{domain} ({names})",
			everythingElse: "everything not named here", program: "what the program does",
			onlyClaimed: "everything in the agent's proof, which is not verified ({why})", notSigned: "it is not signed",
			claimHead: "Agent's proof (not verified)", contract: "contract",
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
		resubmitsUnknown:   "the agent says that this resubmits {id}: no such request, not compared",
		resubmitsElsewhere: "the agent says that this resubmits {id}: a request of another workspace, not compared",
		resubmitsOthers:    "the agent says that this resubmits {id}: a request of another client, not compared",
		otherTool:          "different tool: it was {tool}",
		notCompared:        "not compared: one of the two is not a JSON object",
		sameFields:         "unchanged fields: {n}",
		sameLines:          "… {n} unchanged lines",
		sameEnds:           "without the first {n} and the last {m} chars, which are unchanged:",
		moreChanges:        "✂ {n} more lines of changes; everything that would run is above",
		outcome:            "{id} · {status}",
		outcomeBy:          " · by {by} ({via})",
		outcomeError:       " · {error}",
	}
}
