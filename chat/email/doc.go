// Package email is the approval channel over email: it sends a card, and one reply
// to the card decides. It is an adapter of chat/deliver, which says who is asked and what
// is recorded; see its section about letters.
//
// # How a card is sent and answered
//
//  1. A request is pending and its workspace uses the email channel. The channel
//     saves a sent record: whom it asks, under which Message-ID. Each approver gets
//     a separate email.
//  2. Before each attempt to send, the digest of a new token is saved durably in the
//     sent record. The token itself is only in the email: in the reply address if
//     the server supports sub-addresses, else in the subject and at the end of the text.
//  3. If an attempt may have succeeded, it is recorded as such and the card is sent
//     again later under the same Message-ID. At worst the approver sees it twice.
//  4. A reply comes in from an IMAP mailbox, a maildir, the API or `permesso email
//     deliver` (see mailbox). It counts only if all of this holds: a person can have
//     written it, it names a card and carries one of the card's tokens, its sender is
//     proved to be the approver who got the card (see authentic), the proof covers that it
//     was written to the gate and after the card was sent, and that approver still
//     belongs to the workspace. The first block of new text is the answer. chat's
//     interceptor executes it.
//  5. If a reply had an effect, one file records the reply and our answer to it,
//     before the answer is sent. A second delivery is recognized by its name and by
//     its content. If the file was not written, Decide reports who decided first.
//  6. After the request is settled, every approver who was asked and did not decide by
//     email gets the outcome, in the thread of the card. The sent record is kept for
//     30 days, so that a late reply gets the answer "too late".
//
// # What a person sees
//
// An email has a complete plain part, and an HTML part with the same facts and with
// buttons. A button is a mailto link with the address, the subject and the answer of a
// reply, so that a program that follows links decides nothing. The reply is no reply to a
// message for the mail program: its address or its subject has the token. A card that
// cannot be approved by email has no Approve button. The subject says what would be done
// and where; the tag with the id, and with the token if the address has none, is its end.
// The subject of an outcome begins with what happened.
//
// # What gets an answer
//
// Two automatic mailers can answer each other forever. So a reply gets at most one
// answer, a sender at most ten an hour besides confirmations, a card at most three about
// unclear replies, and an automatic email or a sender who is not a proved approver gets
// none. Every email that we send declares itself automatic (RFC 3834).
//
// An email with a token of the card and a proved sender is never dropped in silence: if it
// gets no answer, a note in the status tells of it, and the next card to its sender. The
// channel is not degraded by it.
//
// # Grammar
//
// The grammar is chat's, with two shorter forms for questions; see fullForm. A question is
// answered by the number of an option, or by the word answer and a text. A text
// alone does not count: a mail program could have written it.
package email
