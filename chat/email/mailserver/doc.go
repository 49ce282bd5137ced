// Package mailserver is test support: a village with real mail servers on the
// loopback interface, so that e-mail is tested against what people run.
//
//	OpenSMTPD  takes mails in, on the port for other servers, and hands them to
//	           Dovecot; it knows two addresses that it refuses, see Later and
//	           Never
//	Dovecot    keeps them: LMTP from OpenSMTPD, IMAP with IDLE for the users,
//	           a maildir for each, where "+" begins the sub-address; and takes
//	           mails from the users, over STARTTLS or TLS with a password, which
//	           it submits to OpenSMTPD
//	dnsmasq    publishes human.test's DKIM keys and its DMARC policy
//
// Start needs root, bubblewrap and Debian's packages (make deps installs them);
// it takes some 0.2 s. The servers run in a PID namespace of their own that ends
// with the test, also when the test is killed, and OpenSMTPD sees folders of its
// own in place of its spool and of /run, so that any number of villages can
// stand side by side. Only Linux has what that takes.
package mailserver
