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
	reasons          map[string]string // by code; a part in [[ ]] is left out without its values
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
	onlyClaimed                 string
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
			"table_allow":          "{capability} is allowed at autonomy {level}",
			"table_ask":            "{capability} needs approval at autonomy {level}",
			"table_deny":           "{capability} is denied at autonomy {level}",
			"unknown_capability":   "{capability} is not a capability",
			"rule_allow":           "rule {rule} allows it[[: {words}]][[ ({note})]]",
			"rule_ask":             "rule {rule} asks[[: {words}]][[ ({note})]][[ (not proven: {clause} ({gap}))]]",
			"rule_deny":            "rule {rule} denies it[[: {words}]][[ ({note})]][[ (not proven: {clause} ({gap}))]]",
			"rule_unevaluated":     "rule {rule} does not apply: one of its conditions cannot be evaluated",
			"rule_unproven":        "rule {rule} does not apply: not proven: {clause} ({gap})",
			"rule_uncovered":       "rule {rule} does not apply: not proven: {gap}",
			"rule_proven":          "rule {rule} does not apply: proven {source}: {clauses}",
			"proven":               "proven {source}: {clauses}",
			"note_unevaluated":     "one of its conditions cannot be evaluated",
			"note_question":        "but a person must answer a question",
			"note_unknown_tool":    "but it does not name this tool, which is not configured",
			"note_table_deny":      "but no rule lifts a deny of the table",
			"note_other_rule":      "but another rule asks",
			"note_no_proof":        "but no proof lifts what is always asked",
			"note_always_asks":     "but {capability} always asks: a rule that lifts it names the tool and each of its arguments",
			"source_arguments":     "by the arguments",
			"source_proof":         "by a proof of {prover}",
			"gap_unknown":          "unknown",
			"gap_count":            "there are {n}",
			"gap_more":             "there are more",
			"gap_times":            "the number of times is unknown",
			"gap_value":            "a value is unknown",
			"gap_not_plain":        "a value has an unusual form",
			"gap_other":            "there is another one",
			"gap_other_path":       "there is another path, or one that may be another",
			"gap_twice":            "one occurs twice",
			"gap_no_proof":         "the program came with the request, without a proof",
			"gap_claim":            "the proof is not verified: {why}",
			"gap_effect":           "the program has an effect that the rule does not name",
			"gap_contract":         "a required contract is missing",
			"not_dangerous":        "{tool} does nothing dangerous, according to the configuration",
			"dangerous_writes":     "{tool} makes dangerous writes",
			"trifecta":             "the agent has read untrusted content (corruption) and secret data (secret), and {tool} could publish it",
			"forbidden_read":       "reading from {tool} is forbidden ({property})",
			"forbidden_write":      "writing to {tool} is forbidden ({property})",
			"secret":               "{where} holds what looks like a secret ({kind}, {n} bytes)",
			"rate_ask":             "more than {n} {capability} in {per} in this workspace",
			"rate_deny":            "more than {n} {capability} in {per} in this workspace: wait, then ask again under a new ID",
			"rate_ask_bare":        "more than {n} requests without a capability in {per} in this workspace",
			"rate_deny_bare":       "more than {n} requests without a capability in {per} in this workspace: wait, then ask again under a new ID",
			"cost_session_ask":     "with this request the session would cost {n}, more than its soft limit {max}",
			"cost_session_deny":    "with this request the session would cost {n}, more than its hard limit {max}",
			"cost_day_ask":         "with this request the day would cost {n}, more than its soft limit {max}",
			"cost_day_deny":        "with this request the day would cost {n}, more than its hard limit {max}",
			"question":             "a person must answer a question",
			"grant":                "grant {grant} ({kind}) allows it, given by {by} on {date}",
			"grant_revoked":        "a grant for this was revoked",
			"grant_expired":        "a grant for this has expired",
			"grant_used_up":        "a grant for this is used up",
			"raise_autonomy":       "{capability} needs a higher level: raise autonomy to {level}",
			"clear_taints":         "an operator can clear the taints: permesso session clear {workspace}",
			"workspace_unknown":    "workspace {workspace} is not configured: add [workspaces.{workspace}] to permesso.toml",
			"malformed":            "{detail}",
			"expired":              "Approval expired (no response within timeout)",
			"other_principal":      "the API key is for {approver}, the workspace for {principal}",
			"degraded":             "The gate cannot take requests now: {problem}. Nothing ran; ask again later under a new id.",
			"cancelled_paused":     "Cancelled by the agent while the gate was paused",
			"no_rule":              "no rule allows it",
			"limit_pending":        "{n} requests are already pending: wait until some are decided",
			"limit_requests":       "more than {n} requests a minute from this workspace: slow down and ask again under a new id",
			"limit_asks":           "more than {n} requests that ask a person a minute from this workspace: slow down and ask again under a new id",
			"short_id_pending":     "the first 8 digits of the id, {short_id}, are those of a pending request: use a random id",
			"short_id_settled":     "the first 8 digits of the id, {short_id}, are those of an earlier request: use a random id",
			"answer_once":          "an answer applies to one question only",
			"no_session":           "the request names no session",
			"always_asks":          "{capability} is asked every time",
			"unknown_tool":         "the tool is unknown here",
			"no_action_type":       "the request names no action type",
			"opens_programs":       "a command that can open a shell or another program is asked every time",
			"proof_unreadable":     "it cannot be read: {error}",
			"proof_unsigned":       "it is not signed",
			"proof_no_prover":      "it names no prover",
			"proof_unknown_prover": "its prover is not configured",
			"proof_signature":      "the signature does not match the prover it names",
			"proof_digest":         "program_sha256 does not match the program in it",
			"proof_unbound":        "nothing shows that this program is what runs",
			"proof_no_program":     "the request has no program",
			"proof_no_field":       "the request has no program in {field}",
			"proof_other_program":  "it is for another program",
			"text":                 "{text}",
		},
		evidenceText: evidenceMessages{
			host:      "From the request: {facts}",
			notListed: "{n} that cannot be listed",
			verified:  "Verified by {prover}: {facts}", covered: "{domain} is covered by contracts", trusting: " (trusted without proof: {names})",
			unknown: "Unknown: {what}", missing: "{domain} ({names})",
			everythingElse: "everything not named here", program: "what the program does",
			onlyClaimed: "everything in the agent's proof, which is not verified ({why})",
			claimHead:   "Agent's proof (not verified)", contract: "contract",
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
