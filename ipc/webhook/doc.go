// Package webhook tells programs elsewhere that a request has settled. It only tells: nothing that a receiver answers
// decides anything.
//
// # Messages
//
// A message is a POST of one JSON object, signed by the specification Standard Webhooks 1.0.0:
//
//	webhook-id         the same for each attempt: a receiver drops repeats by it
//	webhook-timestamp  of the attempt, in Unix seconds
//	webhook-signature  v1,BASE64: HMAC-SHA256 of "ID.TIMESTAMP.BODY" with the shared secret
//
// # Delivery
//
// A Hook follows the audit log. Its state is the number of the last entry up to which all was sent, so messages are sent
// oldest first, and what settled while the daemon was down is sent later. The state is durable at least once a second
// and before the Hook waits: a daemon that is killed may send again what it sent in that second, and loses nothing. A
// webhook without a state is new, and nothing from before is sent. A state that cannot be read counts from the oldest
// entry that is not too old.
//
// An attempt fails without a response of status 2xx. Failures delay the next attempt, up to a quarter of an hour. A
// receiver that answers, but refuses one message again and again, gets the following ones: the refused one is set aside
// and tried once an hour. After three days a message is given up. 410 Gone ends all attempts until the configuration
// of the webhook changes or the daemon starts again.
//
// # The network
//
// The host is the configured one: redirects are not followed, no proxy is used, and the address of each connection must
// be public or named by allow_private. A Hook has goroutines of its own: a slow receiver delays only its own messages.
package webhook
