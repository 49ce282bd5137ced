// Package deliver asks approvers on a service that carries messages, and takes their decisions: by one tap or
// one line. It makes no decisions. A tap or a text goes to chat.Interceptor, and Decide checks whether the user
// may decide. What is particular to a service is an Adapter: how it sends, edits and listens, its limits, and
// how a card looks there. Package chat/deliver/channeltest tests an adapter; its in-memory one shows how to
// write one.
//
// # Cards
//
// A Channel compares the pending requests with its sent records, again and again: an event is only a hint. A
// request without a sent record has not been asked yet. The record is created first, with a random 128-bit
// nonce for each button, and is durable before a message is sent. So a tap is understood even if the daemon
// died between sending a card and recording its message ID. If it is unknown whether a card was sent, a second
// card with other buttons is sent, and both are accepted. It gets its approve buttons by an edit once its message ID
// is durable. Where IDs are ascending numbers, the first card is searched for below it. When the request is settled, every copy is edited to
// show the decision, its buttons are removed, and then the record is removed. If an approval created a grant,
// its card keeps an Undo button for a day. Where messages cannot be edited, the outcome is a new message.
//
// An edit makes no sound. So what went wrong after an approval is a new message, a reply to the card: the request
// failed, was interrupted, waits for the end of a pause, or expired. It is recorded after it was sent, and before the
// card is edited: a daemon that is killed in between tells it once more.
//
// A card that does not show everything that would run has no approve button, and a typed approval is refused
// too, until "Show all" has sent the complete text as a document.
//
// # Letters
//
// Where messages are letters, as in email, each place is one approver. A letter's ID is recorded before the letter
// is sent. If it is unknown whether it arrived, it is sent again under this ID. Each attempt carries a new secret,
// which a reply must carry, and of which only the digest is stored. All letters are in one queue, which pauses
// while the service fails. Letters cannot be edited, and there are no digests and no reminders: an approver who was
// asked and did not decide here gets the outcome as another letter, and one who decided here only a failure. Then the
// record is kept for 30 days, so that a late reply is recognized.
//
// # Decisions
//
// In a private chat every text gets an answer. A tap is done when its answer was sent: else the next run answers it.
//
// A button's data is a verb and a nonce. The sent record must have both. The tap must come from the message
// that the record names, in a configured chat, and from an approver's ID. A text counts only if the user wrote
// it directly. Any other user gets one neutral sentence, at most five times a minute, and an audit entry.
//
// # Events
//
// Events about one request are handled in order, and done when their effect is durable. A handler only reads
// and writes files. All messages go through an outbox, which runs the jobs of each chat in order and retries
// failures. Messages that cannot be sent, and requests that could not be asked, are reported to the operator.
//
// # Fewer notifications
//
// Above five new cards a minute in one place of a workspace, further requests become lines of one digest
// message. Its buttons show single cards, deny those that this message showed, or pause the workspace; no button
// approves all. The number of requests that a limit refused is told in one line, every ten minutes at most, and in
// one letter or notification an hour. When a request is halfway to its deadline, one message reminds of all that
// waits in the chat. A restart does so too: in
// silence if no card is older than ten minutes. In quiet hours messages are silent, and in the morning one message
// lists what is pending and what expired.
package deliver
