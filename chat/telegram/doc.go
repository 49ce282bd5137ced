// Package telegram is the Telegram channel: approvers decide with one tap or one line. It makes no decisions. A
// tap or a text goes to chat.Interceptor, and Decide checks whether the user may decide.
//
// # Cards
//
// The channel compares the pending requests with its sent records, again and again: an event is only a hint. A
// request without a sent record has not been asked yet. The record is created first, with a random 128-bit
// nonce for each button, and is durable before a message is sent. So a tap is understood even if the daemon
// died between sending a card and recording its message ID. If it is unknown whether a card was sent, a second
// card with other buttons is sent, and both are accepted. When the request is settled, every copy is edited to
// show the decision, its buttons are removed, and then the record is removed. If an approval created a grant,
// its card keeps an Undo button for a day.
//
// A message is plain text with formats given by offsets. Text that Telegram could turn into a link is formatted
// as code. So text from an agent can never format itself, be tapped, or imitate the gate. A card that does not
// show everything that would run has no approve button, and a typed approval is refused too, until "Show all"
// has sent the complete text as a document.
//
// # Decisions
//
// A button's data is a verb and a nonce. The sent record must have both. The tap must come from the message
// that the record names, in a configured chat, and from an approver's numeric ID. A text counts only if the
// user wrote it directly: not edited, forwarded, sent through a bot, or sent in the name of a group or a
// channel. Any other user gets one neutral sentence, at most five times a minute, and an audit entry.
//
// # Updates
//
// Updates go through a Journal. They are durable before Telegram gets the acknowledgment, and finished when
// their effect is durable. Updates about one request are handled in order. A handler only reads and writes
// files. All messages to Telegram go through an outbox, which runs the jobs of each chat in order, within
// Telegram's rate limits, and retries failures. Messages that cannot be sent, and requests that could not be
// asked, are reported to the operator.
//
// # Fewer notifications
//
// Above five new cards a minute in one workspace, further requests become lines of one digest message. Its
// buttons show single cards; no button approves all. Halfway to its deadline a request gets one reminder. In
// quiet hours messages are silent, and in the morning one message lists what is pending and what expired.
package telegram
