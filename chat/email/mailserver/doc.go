// Package mailserver is test support: real mail servers on the loopback interface, so that
// the email channel is tested with the servers that operators use.
//
//	OpenSMTPD  accepts emails on the port for other servers and passes them to
//	           Dovecot; it refuses two addresses, see Later and Never
//	Dovecot    stores them: LMTP from OpenSMTPD, IMAP with IDLE for the users, a
//	           maildir for each, "+" begins the sub-address; it also accepts
//	           emails from the users, over STARTTLS or TLS with a password, and
//	           submits them to OpenSMTPD
//	dnsmasq    publishes human.test's DKIM keys and its DMARC policy
//
// StartOAuth is an authorization server of our own: Dovecot asks it about access tokens.
//
// Start needs root, bubblewrap and Debian's packages (make deps installs them). It takes
// about 0.2 s. The servers run in a separate PID namespace that ends with the test, also
// when the test is killed. OpenSMTPD has private folders instead of its spool and /run,
// so that any number of instances can run in parallel. All of this needs Linux.
package mailserver
