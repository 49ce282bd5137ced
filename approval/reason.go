package approval

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// Reason is one reason for a ruling, or one way to change it: a code and what the
// code's sentence names. The sentences are chat's. The zero Reason is none.
type Reason struct {
	Code string            `json:"code"`
	Args map[string]string `json:"args,omitzero"`
}

// Because returns the reason with this code. The args are names, each followed by its
// value. A name with an empty value is left out.
func Because(code string, args ...string) Reason {
	r := Reason{Code: code}
	for i := 0; i+1 < len(args); i += 2 {
		if args[i+1] == "" {
			continue
		}
		if r.Args == nil {
			r.Args = map[string]string{}
		}
		r.Args[args[i]] = args[i+1]
	}
	return r
}

// The codes of reasons. Args are optional if they stand in brackets. The values of
// note, gap, source and why are codes themselves. They are named with the args of the
// same reason.
const (
	// ReasonText is a sentence that an earlier version stored. Args: text.
	ReasonText = "text"

	// ReasonTableAllow, ReasonTableAsk and ReasonTableDeny are the table's ruling.
	// Args: level, capability.
	ReasonTableAllow = "table_allow"
	ReasonTableAsk   = "table_ask"
	ReasonTableDeny  = "table_deny"
	// ReasonUnknownCapability denies what is not one of the 13. Args: capability.
	ReasonUnknownCapability = "unknown_capability"

	// ReasonRuleAllow is an allow rule that matches. Args: rule, [words] (the
	// operator's), [note] (why it allows nothing).
	ReasonRuleAllow = "rule_allow"
	// ReasonRuleAsk and ReasonRuleDeny are an ask or a deny rule that applies. Args:
	// rule, [words], [note], and of what is not proven [clause], [gap], [n], [why] and
	// the args of why.
	ReasonRuleAsk  = "rule_ask"
	ReasonRuleDeny = "rule_deny"
	// ReasonRuleUnevaluated is an allow rule with a condition that cannot be evaluated.
	// Args: rule.
	ReasonRuleUnevaluated = "rule_unevaluated"
	// ReasonRuleUnproven is an allow rule with a clause that is not proven. Args: rule,
	// clause, gap, [n], [why] and the args of why.
	ReasonRuleUnproven = "rule_unproven"
	// ReasonRuleUncovered is an allow rule whose clauses do not cover the proof. Args:
	// rule, gap.
	ReasonRuleUncovered = "rule_uncovered"
	// ReasonRuleProven is a deny or ask rule that does not apply. Args: rule, clauses,
	// source, [prover].
	ReasonRuleProven = "rule_proven"
	// ReasonProven is the evidence that an allow rule used. Args: clauses, source,
	// [prover].
	ReasonProven = "proven"

	// Notes of a rule. No args but the rule's; NoteAlwaysAsks has capability.
	NoteUnevaluated = "note_unevaluated"
	NoteQuestion    = "note_question"
	NoteUnknownTool = "note_unknown_tool"
	NoteTableDeny   = "note_table_deny"
	NoteOtherRule   = "note_other_rule"
	NoteNoProof     = "note_no_proof"
	NoteAlwaysAsks  = "note_always_asks"

	// Sources of evidence. SourceProof has prover.
	SourceArguments = "source_arguments"
	SourceProof     = "source_proof"

	// Gaps say why a clause is not proven. GapCount has n, GapClaim has why and its
	// args.
	GapUnknown   = "gap_unknown"
	GapCount     = "gap_count"
	GapMore      = "gap_more"
	GapTimes     = "gap_times"
	GapValue     = "gap_value"
	GapNotPlain  = "gap_not_plain"
	GapOther     = "gap_other"
	GapOtherPath = "gap_other_path"
	GapTwice     = "gap_twice"
	GapNoProof   = "gap_no_proof"
	GapClaim     = "gap_claim"
	GapEffect    = "gap_effect"
	GapContract  = "gap_contract"

	// ReasonNotDangerous allows what has no capability and no dangerous writes. Args:
	// tool.
	ReasonNotDangerous = "not_dangerous"
	// ReasonDangerousWrites and ReasonTrifecta are trust's asks. Args: tool.
	ReasonDangerousWrites = "dangerous_writes"
	ReasonTrifecta        = "trifecta"
	// ReasonForbiddenRead and ReasonForbiddenWrite are trust's denies. Args: tool,
	// property.
	ReasonForbiddenRead  = "forbidden_read"
	ReasonForbiddenWrite = "forbidden_write"
	// ReasonSecret is a secret in the request. Args: where, kind, n (bytes).
	ReasonSecret = "secret"
	// ReasonRateAsk and ReasonRateDeny are exhausted rates. Args: n, per, capability.
	ReasonRateAsk  = "rate_ask"
	ReasonRateDeny = "rate_deny"
	// ReasonRateAskBare and ReasonRateDenyBare are those of requests without a
	// capability. Args: n, per.
	ReasonRateAskBare  = "rate_ask_bare"
	ReasonRateDenyBare = "rate_deny_bare"
	// ReasonCost… are exhausted budgets. Args: n (the sum with this request), max.
	ReasonCostSessionAsk  = "cost_session_ask"
	ReasonCostSessionDeny = "cost_session_deny"
	ReasonCostDayAsk      = "cost_day_ask"
	ReasonCostDayDeny     = "cost_day_deny"
	// ReasonQuestion asks, because only a person can answer. No args.
	ReasonQuestion = "question"
	// ReasonGrant is the grant that allows the request. Args: grant, kind, by, date.
	ReasonGrant = "grant"
	// ReasonGrantRevoked, ReasonGrantExpired and ReasonGrantUsedUp are why a grant does
	// not. No args.
	ReasonGrantRevoked = "grant_revoked"
	ReasonGrantExpired = "grant_expired"
	ReasonGrantUsedUp  = "grant_used_up"

	// ReasonRaiseAutonomy and ReasonClearTaints would change the ruling. Args:
	// capability, level; workspace.
	ReasonRaiseAutonomy = "raise_autonomy"
	ReasonClearTaints   = "clear_taints"

	// The gate's own refusals, before or without policy. Args: workspace; detail;
	// none; approver, principal; problem; none; none; n; n; n; short_id; short_id.
	ReasonWorkspaceUnknown = "workspace_unknown"
	ReasonMalformed        = "malformed"
	ReasonExpired          = "expired"
	ReasonOtherPrincipal   = "other_principal"
	ReasonDegraded         = "degraded"
	ReasonCancelledPaused  = "cancelled_paused"
	ReasonNoRule           = "no_rule"
	ReasonLimitPending     = "limit_pending"
	ReasonLimitRequests    = "limit_requests"
	ReasonLimitAsks        = "limit_asks"
	ReasonShortIDPending   = "short_id_pending"
	ReasonShortIDSettled   = "short_id_settled"

	// Why an approval cannot be remembered. reasonAlwaysAsks has capability.
	reasonAnswerOnce    = "answer_once"
	reasonNoSession     = "no_session"
	reasonAlwaysAsks    = "always_asks"
	reasonUnknownTool   = "unknown_tool"
	reasonNoActionType  = "no_action_type"
	reasonOpensPrograms = "opens_programs"

	// Why a proof is only a claim. reasonProofUnreadable has error,
	// reasonProofNoField has field.
	reasonProofUnreadable    = "proof_unreadable"
	reasonProofUnsigned      = "proof_unsigned"
	reasonProofNoProver      = "proof_no_prover"
	reasonProofUnknownProver = "proof_unknown_prover"
	reasonProofSignature     = "proof_signature"
	reasonProofDigest        = "proof_digest"
	reasonProofUnbound       = "proof_unbound"
	reasonProofNoProgram     = "proof_no_program"
	reasonProofNoField       = "proof_no_field"
	reasonProofOtherProgram  = "proof_other_program"
)

// reasonInfo is what the core knows of a code.
type reasonInfo struct {
	code   string
	args   string // names, separated by spaces; optional ones end in a question mark
	argues argues
	rank   int
}

type argues uint8

const (
	forNone argues = iota
	forAllow
	forAsk
	forDeny
)

// Ranks of reasons that no grant lifts. Rank inverts them.
const (
	askOfRule = 1
	askOfHost = 2
)

const unprovenArgs = " n? why? error? field? text?"

// reasonInfos is the closed list of codes.
var reasonInfos = [...]reasonInfo{
	{code: ReasonText, args: "text"},
	{code: ReasonTableAllow, args: "level capability", argues: forAllow},
	{code: ReasonTableAsk, args: "level capability", argues: forAsk},
	{code: ReasonTableDeny, args: "level capability", argues: forDeny},
	{code: ReasonUnknownCapability, args: "capability", argues: forDeny},
	{code: ReasonRuleAllow, args: "rule words? note? capability?", argues: forAllow},
	{code: ReasonRuleAsk, args: "rule words? note? clause? gap?" + unprovenArgs, argues: forAsk, rank: askOfRule},
	{code: ReasonRuleDeny, args: "rule words? note? clause? gap?" + unprovenArgs, argues: forDeny},
	{code: ReasonRuleUnevaluated, args: "rule"},
	{code: ReasonRuleUnproven, args: "rule clause gap" + unprovenArgs},
	{code: ReasonRuleUncovered, args: "rule gap"},
	{code: ReasonRuleProven, args: "rule clauses source prover?"},
	{code: ReasonProven, args: "clauses source prover?"},
	{code: NoteUnevaluated},
	{code: NoteQuestion},
	{code: NoteUnknownTool},
	{code: NoteTableDeny},
	{code: NoteOtherRule},
	{code: NoteNoProof},
	{code: NoteAlwaysAsks, args: "capability"},
	{code: SourceArguments},
	{code: SourceProof, args: "prover"},
	{code: GapUnknown},
	{code: GapCount, args: "n"},
	{code: GapMore},
	{code: GapTimes},
	{code: GapValue},
	{code: GapNotPlain},
	{code: GapOther},
	{code: GapOtherPath},
	{code: GapTwice},
	{code: GapNoProof},
	{code: GapClaim, args: "why error? field? text?"},
	{code: GapEffect},
	{code: GapContract},
	{code: ReasonNotDangerous, args: "tool", argues: forAllow},
	{code: ReasonDangerousWrites, args: "tool", argues: forAsk},
	{code: ReasonTrifecta, args: "tool", argues: forAsk, rank: askOfHost},
	{code: ReasonForbiddenRead, args: "tool property", argues: forDeny},
	{code: ReasonForbiddenWrite, args: "tool property", argues: forDeny},
	{code: ReasonSecret, args: "where kind n", argues: forAsk, rank: askOfHost},
	{code: ReasonRateAsk, args: "n per capability", argues: forAsk, rank: askOfHost},
	{code: ReasonRateDeny, args: "n per capability", argues: forDeny},
	{code: ReasonRateAskBare, args: "n per", argues: forAsk, rank: askOfHost},
	{code: ReasonRateDenyBare, args: "n per", argues: forDeny},
	{code: ReasonCostSessionAsk, args: "n max", argues: forAsk, rank: askOfHost},
	{code: ReasonCostSessionDeny, args: "n max", argues: forDeny},
	{code: ReasonCostDayAsk, args: "n max", argues: forAsk, rank: askOfHost},
	{code: ReasonCostDayDeny, args: "n max", argues: forDeny},
	{code: ReasonQuestion},
	{code: ReasonGrant, args: "grant kind by date", argues: forAllow},
	{code: ReasonGrantRevoked},
	{code: ReasonGrantExpired},
	{code: ReasonGrantUsedUp},
	{code: ReasonRaiseAutonomy, args: "capability level"},
	{code: ReasonClearTaints, args: "workspace"},
	{code: ReasonWorkspaceUnknown, args: "workspace", argues: forDeny},
	{code: ReasonMalformed, args: "detail", argues: forDeny},
	{code: ReasonExpired, argues: forDeny},
	{code: ReasonOtherPrincipal, args: "approver principal", argues: forDeny},
	{code: ReasonDegraded, args: "problem", argues: forDeny},
	{code: ReasonCancelledPaused, argues: forDeny},
	{code: ReasonNoRule, argues: forDeny},
	{code: ReasonLimitPending, args: "n", argues: forDeny},
	{code: ReasonLimitRequests, args: "n", argues: forDeny},
	{code: ReasonLimitAsks, args: "n", argues: forDeny},
	{code: ReasonShortIDPending, args: "short_id", argues: forDeny},
	{code: ReasonShortIDSettled, args: "short_id", argues: forDeny},
	{code: reasonAnswerOnce},
	{code: reasonNoSession},
	{code: reasonAlwaysAsks, args: "capability"},
	{code: reasonUnknownTool},
	{code: reasonNoActionType},
	{code: reasonOpensPrograms},
	{code: reasonProofUnreadable, args: "error"},
	{code: reasonProofUnsigned},
	{code: reasonProofNoProver},
	{code: reasonProofUnknownProver},
	{code: reasonProofSignature},
	{code: reasonProofDigest},
	{code: reasonProofUnbound},
	{code: reasonProofNoProgram},
	{code: reasonProofNoField, args: "field"},
	{code: reasonProofOtherProgram},
}

func (r Reason) info() reasonInfo {
	for i := range reasonInfos {
		if reasonInfos[i].code == r.Code {
			return reasonInfos[i]
		}
	}
	return reasonInfo{}
}

// ReasonCodes lists the closed list of codes, each with the names of its args. The
// name of an optional one ends in a question mark.
func ReasonCodes() map[string][]string {
	all := map[string][]string{}
	for _, c := range reasonInfos {
		all[c.code] = strings.Fields(c.args)
	}
	return all
}

// IsZero reports whether there is no reason.
func (r Reason) IsZero() bool { return r.Code == "" }

// Outcome is the outcome that the reason argues for; ok is false if it argues for
// none.
func (r Reason) Outcome() (o Outcome, ok bool) {
	switch r.info().argues {
	case forAllow:
		return Allow, true
	case forAsk:
		return Ask, true
	case forDeny:
		return Deny, true
	}
	return Deny, false
}

// Rank orders the reasons for an ask: 0 for an ask of trust, secrets or limits, which
// no grant lifts; 1 for the ask of a rule, which none lifts either; 2 for the rest.
func (r Reason) Rank() int { return askOfHost - r.info().rank }

// String is the technical form, for logs and tests: the code, then its args, sorted.
func (r Reason) String() string {
	var b strings.Builder
	b.WriteString(r.Code)
	for _, name := range slices.Sorted(maps.Keys(r.Args)) {
		v := r.Args[name]
		if quoted := strconv.Quote(v); v == "" || len(quoted) != len(v)+2 || strings.ContainsAny(v, " =") {
			v = quoted
		}
		b.WriteString(" " + name + "=" + v)
	}
	return b.String()
}

// plainReason is a Reason without its methods.
type plainReason Reason

// UnmarshalJSON also reads the sentences that earlier versions stored.
func (r *Reason) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*r = Because(ReasonText, ReasonText, text)
		if text == "" {
			*r = Reason{}
		}
		return nil
	}
	*r = Reason{}
	return json.Unmarshal(b, (*plainReason)(r), json.RejectUnknownMembers(true))
}
