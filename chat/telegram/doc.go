// Package telegram is the Telegram adapter of package chat/deliver, which asks approvers and takes their
// decisions.
//
// # Messages
//
// A message is plain text with formats given by offsets. Text that Telegram could turn into a link is formatted
// as code. So text from an agent can never format itself, be tapped, or imitate the gate. Messages are sent
// within Telegram's rate limits.
//
// # Users
//
// A user is known by the numeric ID, which users cannot choose. A text counts only if the user wrote it
// directly: not edited, forwarded, sent through a bot, or sent in the name of a group or a channel.
//
// # Updates
//
// Updates come by long polling or through a webhook, and go through a Journal. They are durable before Telegram
// gets the acknowledgment, and finished when their effect is durable.
package telegram
