// Package botapi provides the servers that the Telegram channel is tested against: a strict fake of the Bot
// API, and a third-party test server.
//
// # The strict fake
//
// A Server behaves to one bot like api.telegram.org, for the methods in its table. To tests, it plays the users
// who write to the bot and tap its buttons. Its errors have the codes and texts of the real server (see its
// source, tdlib/telegram-bot-api, and tdlib's MessageEntity.cpp). It counts like the real server: texts,
// entities and answers in UTF-16 code units, callback data in bytes. What the real server silently ignores,
// drops or changes, the fake refuses with "Bad Request: strict fake: ...": unknown parameters and members,
// overlapping entities, texts with characters that Telegram removes, buttons without a text. So a bot without
// errors shows users exactly what it sent.
//
// The update queue is that of the real server: getUpdates drops the updates below its offset, and returns all
// others again, for a day. A second poll ends the first with 409, and so does a webhook.
//
// The fake has the methods that the channel calls, and refuses all others. It does not have: parse_mode, links,
// inline mode, business accounts, channels, media other than documents, reply keyboards, buttons without
// callback data, replies across chats, reactions, edits by users, parallel webhook deliveries. Its patterns for
// automatic links match more than Telegram's.
//
// # Users
//
// Server.Say, Reply, Forward and similar methods write as users do; Post adds any message to a chat.
// Server.Tap taps a button of a message and returns a Tap whose Answer is what the user sees. Server.TapData
// sends any data, as a modified client could. Server.Await waits for a State. Server.Fail makes methods fail,
// Limits enables the rate limits, and Close followed by Listen is an outage.
//
// # The third-party server
//
// StartThirdParty starts telegram-test-api from the npm registry as a process; npm/package-lock.json pins its
// version and its dependencies. It tests the conversation only. Its getUpdates does not wait, ignores offset,
// limit and allowed_updates, and returns each update once, so it cannot test acknowledgment. It refuses
// nothing: no rate limits, no unknown chats or messages, no unchanged text, no 401, 403, 409 or 429. It does
// not record whether a tap was answered. Some results are null where the real server returns true or the edited
// message. It confuses the ID of a tap with a message ID, so a message sent right after a tap cannot be
// deleted. It has no documents, commands or topics. It accepts JSON only, but go-telegram/bot posts multipart
// forms: hence JSONClient.
package botapi
