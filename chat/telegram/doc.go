// Package telegram lets people answer from Telegram, with one tap or one line. It holds no decision of its
// own: what somebody taps or writes goes to chat's interceptor, and Decide says whether they may.
//
// # Cards
//
// What waits is compared with a notebook, over and over: an event is a hint. A request without a page there
// has not been asked yet. Its page is made first, with a random 128-bit nonce for each button, and is
// durable before a message is sent; so a tap is understood even where the gate died between sending a card
// and noting that. Where nobody can say whether a card was sent, another one is sent in its place, with
// other buttons, and both are understood. When the request is settled its cards say who decided what, in
// every chat, their buttons go, and then the page. What was remembered of an approval keeps an Undo button
// for a day.
//
// A message is plain text. Its formats are given by offsets, and whatever in it Telegram could make a link
// of stands as code: nothing that an agent wrote can format itself, be tapped on, or mimic the gate. A card
// that does not show all that would run has no button that approves, and no words approve it there, until
// "Show all" has sent the whole as a document.
//
// # Answers
//
// A button's data is a verb and a nonce. Both must be on our page, the tap must come from the very message
// that the page names, in a chat that the configuration names, and from an approver's numeric id. Of words,
// only those count that a person wrote with their own hands: nothing edited, forwarded, sent through a bot,
// or in the name of a group or a channel. Strangers hear one neutral sentence, five times a minute, and
// stand in the audit log.
//
// # Updates
//
// Updates go through a Journal: they are durable before Telegram is told that we have them, and finished
// when what they asked for is durable. Those about one request are handled one after the other. A handler
// only looks at files; all that goes to Telegram goes through an outbox, which does the jobs of each chat in
// turn, at Telegram's pace, and tries again what fails. What cannot be sent, and what waits and could not be
// asked, is told to those who look after the gate.
//
// # Quiet
//
// Above five new cards a minute in one workspace the rest becomes lines of one message, whose buttons bring
// the cards; none approves them all. Half-way to its end a request is called to mind, once. In quiet hours
// nothing rings, and in the morning one message tells what waits and what expired.
package telegram
