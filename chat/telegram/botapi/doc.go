// Package botapi is what the Telegram channel is tested against: a strict Bot API server of ours, and the
// means to start one that somebody else wrote.
//
// # The strict fake
//
// A Server behaves to one bot as api.telegram.org does, as far as the methods in its table go, and to tests
// as the people do who write to that bot and tap on its buttons. Its refusals have the codes and the words
// of the real server (see its source, tdlib/telegram-bot-api, and tdlib's MessageEntity.cpp); it counts
// as that one counts: texts, entities and answers in UTF-16 code units, callback data in bytes. What the
// real server takes and then ignores, drops or changes without a word, the fake refuses, in words of its own
// that begin "Bad Request: strict fake:": parameters and members that it does not know, overlapping
// entities, texts with characters that Telegram removes, buttons without a text. So a bot that gets along
// with the fake shows people exactly what it sent.
//
// The update queue is that of the real server: what lies below the offset of a getUpdates is forgotten,
// all the rest is given again and again, for a day. A second poll ends the first with 409, and so does a
// webhook.
//
// What Telegram does besides and the fake does not: parse_mode, inline mode, business accounts, media other
// than documents, reply keyboards, replies across chats, reactions, delivery to a webhook in parallel. The
// links that Telegram finds in a text by itself are found by patterns that find rather too much.
//
// # People
//
// Server.Say, Reply, Forward, Edit and their like write as people do, and Post puts a message into a chat
// that none of them can write. Server.Tap presses a button that is there and returns a Tap whose Answer is what the
// person sees; Server.TapData sends what no honest client would. Server.Await waits until the state is as
// it should be, and State is a copy of it. Server.Fail makes methods fail, Limits switches the rate limits
// on, and Close followed by Listen is an outage.
//
// # The server of somebody else
//
// StartForeign starts telegram-test-api, from the npm registry, in a process of its own; which versions of it
// and of all that it needs stands in npm/package-lock.json. It proves that the conversation is right, and no
// more. It does not wait in getUpdates, takes no notice of offset, limit and allowed_updates, and gives each
// update once: so nothing about acknowledgement can be seen there. It never refuses anything: no limits,
// no unknown chats or messages, no same text twice, no 401, 403, 409 or 429. It does not say whether a tap
// was answered. Its results are null where the real server gives true or the edited message. It takes the
// number of a tap for that of a message, so that a message sent right after a tap cannot be deleted. It has
// no documents, no commands, no topics, and understands JSON only, where go-telegram/bot posts forms of
// several parts: hence JSONClient.
package botapi
