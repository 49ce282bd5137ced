// Package mailbox receives emails from a mailbox and submits emails to a mail server. It
// knows nothing of approvals.
//
// [IMAP], [Maildir] and [InboxQueue] are sources: each passes every new email on, and
// remembers in a [State] which ones were taken. [SMTP] submits. All connections use TLS or
// STARTTLS, except to this machine. Every failure is an [*Error], which says whether a
// retry helps and what the operator can do.
package mailbox
