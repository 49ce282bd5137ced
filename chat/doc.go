// Package chat is how people are reached: it renders a pending request as a
// card, understands what a person answers, and has it decided. Every channel
// uses the same renderer, the same grammar and the same sentences; none of
// them writes a decision itself.
//
// # Grammar
//
// Letters of command words and of ids may be of either case; everything else
// is exact. White space around a message, and a leading mention of the bot,
// are ignored.
//
//	message  = [ "@" bot blanks ] ( command | reply )
//	command  = "approve" blanks id
//	         | ( "deny" | "reject" ) blanks id [ white text ]
//	         | ( "undo" | "revoke" ) blanks id
//	         | "pending"
//	id       = 4 to 64 hex digits, the beginning of a request's id; a consent
//	           has the id of the request that it was given for
//	reply    = to an action's card:
//	             "1" | "2" | "3" | "6"
//	             "3" white text          deny, with a reason
//	             "4" white text          allow, with a note
//	             "5" white text          do this instead
//	             "?" [ white ] [ text ]  a question back
//	             asked                   the same, of words that we know
//	         | to a question's card:
//	             digit                   that option
//	             "?" [ white ] text      a question back
//	             text                    the answer
//	blanks   = one or more of space, tab
//	white    = one or more of space, tab, CR, LF
//
// Line breaks inside text are kept. Digits are the ten of ASCII: a full-width
// or Arabic-Indic digit is no code, nor is "1." or "1)". An approval with one
// word too many ("approve a7f3b2c1? no") is answered "unclear" and decides
// nothing; so is a code with text that it does not take. An asked question is one
// sentence, all of whose words are in a closed list of one language, with a word
// that asks among them and none that could decide: "who will be emailed?", "dimmi
// quali file saranno scritti". Any other question needs its mark. A command in reply to
// a card must name that card. Text that is neither a command nor a reply is
// conversation, and left alone.
//
// In the terminal the card shown last is replied to without saying so, and
// there command words come first: a free answer to a question cannot begin
// with one.
//
// # What a card shows
//
// All of request_data, from the bytes that were digested, in a form from which
// those bytes can be read back: see Escape. Agents' words stand on a line of
// their own behind a label of ours, in quotation marks, or behind the bar of
// Block, so that none of them can look like a line of the gate's. Secrets are
// replaced by their kind and length, which counts as shown.
//
// What is known besides stands above that, in sentences of ours: what the gate read
// from the request, what a prover of the operator's verified, and what is unknown.
// A proof that nobody has verified is the agent's word, and stands among its words.
// Where a request resubmits one of the same client, the card says what changed.
//
// A question is answered from these facts and from the ruling's reasons where they
// name what it asks for completely; then nothing is written, and the request waits
// on. Else the question goes to the agent, and the person is told so.
//
// Why somebody is asked are the ruling's reasons for its own outcome, at most
// three, what no consent lifts first; below the menu stands which code is not
// possible and why, and what "always" would have let through.
package chat
