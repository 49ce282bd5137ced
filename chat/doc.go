// Package chat renders a pending request as a card, parses an approver's reply
// and submits the decision. All channels use its renderer, grammar and
// sentences. No channel writes a decision itself.
//
// # Grammar
//
// Command words and ids are case-insensitive. Everything else is exact. White
// space around a message and a leading mention of the bot are ignored. The words of every
// language work in each chat: "approva a7f3", "nega a7f3 troppo presto". See CutCommand.
//
//	message  = [ "@" bot blanks ] ( command | reply )
//	command  = "approve" blanks id
//	         | ( "deny" | "reject" ) blanks id [ white text ]
//	         | ( "undo" | "revoke" ) blanks id
//	         | "pending"
//	         | "today"               in a terminal
//	id       = 4 to 64 hex digits, the beginning of a request's id, with or
//	           without the dashes of a UUID; a grant has the id of the request
//	           that it was given for
//	reply    = to an action's card:
//	             ( "1" | "2" | "6" ) [ polite ]
//	             "3" [ text ]            deny, with a reason
//	             "4" text                allow, with a note
//	             "5" text                do this instead
//	             words                   approve or deny, in known words
//	             "?" [ white ] [ text ]  a question back
//	             asked                   the same, in known words
//	         | to a question's card:
//	             digit                   that option
//	             "?" [ white ] text      a question back
//	             text                    the answer
//	blanks   = one or more of space, tab
//	white    = one or more of space, tab, CR, LF
//
// Line breaks inside text are kept. A code is an ASCII or a full-width digit, perhaps with
// one of ".):,!" behind it, and white or a colon before a text. An approval with one word too
// many ("approve a7f3b2c1? no") is not understood and decides nothing. The same holds for a
// code with text that it does not take, and for a digit that begins a sentence ("4 people will
// be mailed, so no"), asks, or takes itself back. Behind "4:" any text is a note.
//
// Words decide if all of them are in the closed lists of one language: "yes, please",
// "va bene", "👎". Behind a verb there may be a note or a reason: "approve, but be brief",
// "deny: too early". A note with a negation, a condition or a question is none, and the reply
// is not understood. Below there may be thanks and a name: the person's, or a common given
// name, with a surname behind a dash or below thanks. See replyWords.
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
// A card begins with the question, the object with its size, and how far the action can
// be undone. Warnings follow, then the evidence: what a prover that the operator trusts
// verified, and what is unknown. Then stands everything that would run, from the pending
// alone: the finished invocation, element by element, and each argument by its type. A
// short value stands where it is used. Any other is named there, as ‹name›, and follows
// below, so that each value stands once. The agent's own text is quoted, labeled, and below.
//
// All bytes that would run can be read back from the card: see Escape, Block and Line. An
// agent's text stands behind a label or a bar, or in quotation marks, so that none looks
// like a line of the gate. The signs ‹ and › are the gate's alone.
//
// The card of a program says what it would do, by tool, what it guarantees, and then every call
// with its arguments. Calls of one form are one block: what differs in few of them stands first,
// what is the same in all of them once, and any other argument with its values in the order of
// the calls. A result that is not known yet stands between the signs ‹ and ›. The source is the
// agent's text: a long one stands with the reasons why an approver is asked.
//
// Only a bounded token inside one value is masked, with its kind and length; see Redactor.
// Any other secret is shown on this host, where Style.Local is set. For chat services and
// email its value is withheld, and Card.Blocked says where the request can be approved.
//
// Only possible choices are listed. Why an approver is asked, which codes are not possible
// and why, and what "always" would have allowed is Card.Why, which a channel shows when it
// is asked.
//
// A question about a request is answered from its evidence, its arguments and the ruling's
// reasons if they answer it completely. Then nothing is written and the request stays
// pending. Otherwise the approver is told that the question would end the request; it goes to
// the agent as "? agent, …". If a request resubmits one of the same client, the card says what changed.
package chat
