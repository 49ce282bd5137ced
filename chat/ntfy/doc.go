// Package ntfy is the ntfy adapter of package chat/deliver: it notifies phones and desktops through a server of
// ntfy, one's own or another. It only publishes. People decide on another channel: a tap opens the request's page of
// the web UI, if it has an address.
//
// # Messages
//
// A message has words of the host alone, see chat.Notice: others may run the server. While a request is pending its
// message has a high priority, and a low one in quiet hours. The outcome replaces the message without a sound, by its
// sequence ID. What goes wrong after an approval is a new message, see deliver.Notices. A server before version 2.16
// cannot replace one, so it gets no outcome: it would only be a second message.
//
// # Secrets
//
// The name of a topic is a secret: a person who knows it can read the messages and forge some. It and the access
// token are never in an error, a log or a status.
package ntfy
