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

// reasonInfos is the closed list of codes. The values of the args note, gap, source and
// why are codes, too: what they name are args of the same reason. A test of the whole
// tree holds every use of a code against this list.
var reasonInfos = [...]reasonInfo{
	// A sentence that an earlier version stored.
	{code: "text", args: "text"},
	// Rulings of the table of capabilities. unknown_capability: it is not one of the 13.
	{code: "table_allow", args: "level capability", argues: forAllow},
	{code: "table_ask", args: "level capability", argues: forAsk},
	{code: "table_deny", args: "level capability", argues: forDeny},
	{code: "unknown_capability", args: "capability", argues: forDeny},
	// Rules that match. words: the operator's. note: why an allow rule allows nothing. clause and gap:
	// what is not proven.
	{code: "rule_allow", args: "rule words? note? capability?", argues: forAllow},
	{code: "rule_ask", args: "rule words? note? clause? gap?" + unprovenArgs, argues: forAsk, rank: askOfRule},
	{code: "rule_deny", args: "rule words? note? clause? gap?" + unprovenArgs, argues: forDeny},
	{code: "rule_deny_unsure", args: "rule words?", argues: forAsk, rank: askOfRule},
	{code: "path_moved", args: "path was leads", argues: forDeny},
	// Allow rules that do not apply, and what an applied one used. rule_proven: a deny or ask rule that
	// does not apply.
	{code: "rule_unevaluated", args: "rule"},
	{code: "rule_unproven", args: "rule clause gap" + unprovenArgs},
	{code: "rule_uncovered", args: "rule gap"},
	{code: "rule_proven", args: "rule clauses source prover?"},
	{code: "proven", args: "clauses source prover?"},
	// Notes of a rule.
	{code: "note_unevaluated"},
	{code: "note_question"},
	{code: "note_unknown_tool"},
	{code: "note_table_deny"},
	{code: "note_other_rule"},
	{code: "note_no_proof"},
	{code: "note_always_asks", args: "capability"},
	// Sources of evidence.
	{code: "source_arguments"},
	{code: "source_proof", args: "prover"},
	// Why a clause is not proven.
	{code: "gap_unknown"},
	{code: "gap_count", args: "n"},
	{code: "gap_more"},
	{code: "gap_times"},
	{code: "gap_value"},
	{code: "gap_not_plain"},
	{code: "gap_other"},
	{code: "gap_other_path"},
	{code: "gap_link"},
	{code: "gap_twice"},
	{code: "gap_sum", args: "n"},
	{code: "gap_currency"},
	{code: "gap_amount"},
	{code: "gap_no_proof"},
	{code: "gap_claim", args: "why error? field? text?"},
	{code: "gap_effect"},
	{code: "gap_contract"},
	// Trust. where and n of a secret: the field and its bytes.
	{code: "not_dangerous", args: "tool", argues: forAllow},
	{code: "dangerous_writes", args: "tool?", argues: forAsk},
	{code: "trifecta", args: "tool? target? strangers? strangers_in? strangers_n? secrets? secrets_in? secrets_n?", argues: forAsk, rank: askOfHost},
	{code: "despite", args: "rule what", argues: forAllow},
	{code: "forbidden_read", args: "tool property", argues: forDeny},
	{code: "forbidden_write", args: "tool property", argues: forDeny},
	{code: "secret", args: "where kind n", argues: forAsk, rank: askOfHost},
	{code: "secret_deny", args: "where kind n", argues: forDeny},
	{code: "secret_allow", args: "tool kind", argues: forAllow},
	// A call that the agent executes, and that no table declares so.
	{code: "call_unlisted", args: "tool", argues: forAsk, rank: askOfHost},
	{code: "definition_changed", args: "tool", argues: forAsk, rank: askOfHost},
	// A call that could change who is asked about later ones, by what.
	{code: "changes_asking", args: "what", argues: forAsk, rank: askOfHost},
	// Rates and budgets. n of a cost: the sum with this request.
	{code: "rate_ask", args: "n per capability", argues: forAsk, rank: askOfHost},
	{code: "rate_deny", args: "n per capability", argues: forDeny},
	{code: "rate_ask_bare", args: "n per", argues: forAsk, rank: askOfHost},
	{code: "rate_deny_bare", args: "n per", argues: forDeny},
	{code: "cost_session_ask", args: "n max", argues: forAsk, rank: askOfHost},
	{code: "cost_session_deny", args: "n max", argues: forDeny},
	{code: "cost_day_ask", args: "n max", argues: forAsk, rank: askOfHost},
	{code: "cost_day_deny", args: "n max", argues: forDeny},
	{code: "question"},
	// Grants: the one that allows, and why one does not.
	{code: "grant", args: "grant kind? by date", argues: forAllow},
	{code: "grant_revoked"},
	{code: "grant_expired"},
	{code: "grant_used_up"},
	{code: "grant_tool_changed"},
	// Programs. The reasons after program_step are those of this step.
	{code: "program_step", args: "step tool"},
	{code: "program_empty", argues: forAllow},
	// detail: the gate's own words, which have some of the program's in them.
	{code: "program_error", args: "detail", argues: forDeny},
	{code: "guarantee_refuted", args: "guarantee step", argues: forDeny},
	// What would change the ruling.
	{code: "raise_autonomy", args: "capability level"},
	{code: "clear_taints", args: "workspace"},
	{code: "rule_despite", args: "tool what"},
	// The gate's own refusals.
	{code: "workspace_unknown", args: "workspace", argues: forDeny},
	{code: "decision_file"},
	{code: "folder_closed", args: "workspace", argues: forDeny},
	{code: "other_workspace", args: "workspace", argues: forDeny},
	{code: "malformed", args: "detail", argues: forDeny},
	{code: "expired", argues: forDeny},
	{code: "other_principal", args: "approver principal", argues: forDeny},
	{code: "degraded", args: "problem", argues: forDeny},
	{code: "cancelled_paused", argues: forDeny},
	{code: "no_rule", argues: forDeny},
	{code: "limit_pending", args: "n", argues: forDeny},
	{code: "limit_requests", args: "n", argues: forDeny},
	{code: "limit_asks", args: "n", argues: forDeny},
	{code: "limit_stored", args: "n", argues: forDeny},
	// Requests that could not run. near: what may be meant. detail: the declared arguments. why: what the
	// argument must be, or why it does not fit into the tool's template.
	{code: "tool_unknown", args: "tool near?", argues: forDeny},
	{code: "tool_on_host", args: "tool", argues: forDeny},
	{code: "argument_none", args: "detail?", argues: forDeny},
	{code: "argument_missing", args: "name why detail", argues: forDeny},
	{code: "argument_undeclared", args: "name near? detail?", argues: forDeny},
	{code: "argument_type", args: "name value? why", argues: forDeny},
	{code: "argument_unfillable", args: "name value? why", argues: forDeny},
	{code: "cannot_run", args: "problem", argues: forDeny},
	{code: "is_text"},
	{code: "is_number"},
	{code: "is_bool"},
	{code: "is_path"},
	{code: "is_url"},
	{code: "is_host"},
	{code: "is_recipients"},
	{code: "is_amount"},
	{code: "is_currency"},
	{code: "is_table"},
	{code: "is_command"},
	{code: "is_diff"},
	{code: "is_list"},
	{code: "is_json"},
	{code: "is_program"},
	{code: "is_unknown"},
	{code: "fit_missing"},
	{code: "fit_plain"},
	{code: "fit_nul"},
	{code: "fit_option"},
	{code: "fit_dash"},
	{code: "fit_segment"},
	{code: "fit_dots"},
	{code: "fit_url"},
	{code: "fit_deep"},
	// In records of earlier versions.
	{code: "short_id_pending", args: "short_id", argues: forDeny},
	{code: "short_id_settled", args: "short_id", argues: forDeny},
	// Why an approval cannot be remembered.
	{code: "answer_once"},
	{code: "no_session"},
	{code: "unknown_tool"},
	{code: "no_action_type"},
	{code: "command_none"},
	{code: "command_shell"},
	{code: "command_path", args: "program"},
	{code: "command_interprets", args: "program"},
	{code: "command_sub", args: "program"},
	{code: "command_word", args: "word"},
	{code: "command_option", args: "option"},
	{code: "command_network", args: "program"},
	{code: "pattern_wide"},
	{code: "pattern_other"},
	{code: "asked_anyway", args: "rule"},
	{code: "program_opaque"},
	{code: "path_leads", args: "path leads"},
	{code: "no_target"},
	{code: "not_offered"},
	// Why no rule is proposed.
	{code: "rule_no_tool"},
	{code: "rule_masked"},
	{code: "rule_needless"},
	// Why a proof is only a claim.
	{code: "proof_unreadable", args: "error"},
	{code: "proof_unsigned"},
	{code: "proof_no_prover"},
	{code: "proof_unknown_prover"},
	{code: "proof_lacks", args: "field"},
	{code: "proof_signature"},
	{code: "proof_digest"},
	{code: "proof_unbound"},
	{code: "proof_no_program"},
	{code: "proof_no_field", args: "field"},
	{code: "proof_other_tool"},
	{code: "proof_other_program"},
	{code: "proof_other_arguments"},
	{code: "proof_expired"},
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
		*r = Because("text", "text", text)
		if text == "" {
			*r = Reason{}
		}
		return nil
	}
	*r = Reason{}
	return json.Unmarshal(b, (*plainReason)(r), json.RejectUnknownMembers(true))
}
