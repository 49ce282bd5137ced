// Package email reaches people by mail: a card goes out, and a single reply to
// it decides.
//
// # The life of a card
//
//  1. A request waits, and its workspace asks by e-mail. The channel writes a page
//     into its notebook: whom it asks, under which Message-ID. Each person gets a
//     mail of their own.
//  2. Before each attempt to send, the page gets the digest of a new token, durably.
//     The token itself stands only in the mail: in the reply address where the
//     server knows sub-addresses, else in the subject and at the foot of the text.
//  3. What may have been sent is noted as sent, or is sent again later under the same
//     Message-ID; people then see it once or, at worst, twice.
//  4. A mail comes in, from an IMAP mailbox, a maildir, or handed over. It counts
//     only if a person can have written it, if it names a card of ours and carries
//     one of its tokens, if it is proved to be by whom the card was sent to, and
//     if they are an approver of the workspace. Then the first block of new text in
//     it is an answer, which chat's interceptor has decided.
//  5. A mail that had consequences is noted with what is answered, as one file,
//     before anything is answered. Handed in again it is known, by its delivery and
//     by what it says; and should the note not have been written, Decide knows who
//     was first.
//  6. When the request is settled, whoever was asked and did not decide by mail hears
//     how it ended, in the thread of the card. The page is kept for thirty days, so
//     that a late reply can be told that it is late.
//
// # What is answered
//
// Mails to machines go in circles, so at most one answer goes to a mail, ten an
// hour to one sender, three about what is unclear in replies to one card, and none
// to anybody who is not a proved approver. All mails of ours say that they are
// automatic (RFC 3834).
//
// # Answers
//
// The grammar is chat's, with three shorter forms; see fullForm. A question is
// answered by the number of an option, or by the word answer and a text: text
// alone could be what a mail program says by itself.
package email
