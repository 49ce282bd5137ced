// Package chat renders a pending request as a card, parses an approver's reply
// and submits the decision. All channels use its renderer, grammar and
// sentences. No channel writes a decision itself.
//
// # Grammar
//
// Command words and ids are case-insensitive. Everything else is exact. White
// space around a message and a leading mention of the bot are ignored.
//
//	message  = [ "@" bot blanks ] ( command | reply )
//	command  = "approve" blanks id
//	         | ( "deny" | "reject" ) blanks id [ white text ]
//	         | ( "undo" | "revoke" ) blanks id
//	         | "pending"
//	id       = 4 to 64 hex digits, the beginning of a request's id, with or
//	           without the dashes of a UUID; a grant has the id of the request
//	           that it was given for
//	reply    = to an action's card:
//	             "1" | "2" | "3" | "6"
//	             "3" white text          deny, with a reason
//	             "4" white text          allow, with a note
//	             "5" white text          do this instead
//	             "?" [ white ] [ text ]  a question back
//	             asked                   the same, in known words
//	         | to a question's card:
//	             digit                   that option
//	             "?" [ white ] text      a question back
//	             text                    the answer
//	blanks   = one or more of space, tab
//	white    = one or more of space, tab, CR, LF
//
// Line breaks inside text are kept. Only ASCII digits are codes: full-width and
// Arabic-Indic digits, "1." and "1)" are not. An approval with one word too many
// ("approve a7f3b2c1? no") is not understood and decides nothing. The same holds
// for a code with text that it does not take.
//
// An asked question is one sentence. All its words are in a closed list of one
// language, one of them asks, and none of them can decide: "who will be
// emailed?", "dimmi quali file saranno scritti". Any other question must begin
// with "?". A command in reply to a card must name that card. Text that is
// neither a command nor a reply is conversation and is ignored.
//
// In the terminal a reply applies to the card shown last. Command words come
// first there: a free answer to a question cannot begin with one.
//
// # What a card shows
//
// A card shows all of request_data, from the bytes that were digested, in a form
// from which those bytes can be read back: see Escape. An agent's text follows a
// label on its own line, in quotation marks, or behind the bar of Block. So no
// agent's text can look like a line of the gate. A secret is replaced by its kind
// and length, which counts as shown.
//
// Above that stands the evidence: what the gate read from the request, what a
// prover that the operator trusts verified, and what is unknown. An unverified
// proof is the agent's claim and is shown with the agent's text. If a request
// resubmits one of the same client, the card says what changed.
//
// A question is answered from this evidence and from the ruling's reasons if they
// answer it completely. Then nothing is written and the request stays pending.
// Otherwise the question goes to the agent, and the approver is told so.
//
// A card shows at most three reasons for the ruling's own outcome. Reasons that
// no grant lifts come first. Below the menu the card says which codes are not
// possible and why, and what "always" would have allowed.
package chat
