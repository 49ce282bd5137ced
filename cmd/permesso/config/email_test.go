package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

const emailConfig = `[approvers.ann]
email = "Ann@Human.Test"
[workspaces.w]
approvers = ["ann"]
channels = ["email"]
[channels.email]
from = "permesso@gate.test"
smtp = { address = "mail.gate.test:587" }
`

func TestEmail(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(emailConfig))
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Equal(t, &config.Email{
		From: "permesso@gate.test", SMTP: config.MailServer{Address: "mail.gate.test:587", Security: "starttls"},
		DKIM: true, FollowUp: true,
	}, c.Email, "what is not said is strict")
	require.Empty(t, c.EmailCeiling)

	c, err = config.Parse("p.toml", []byte(`
[workspaces.w]
email_ceiling = "partial"
[channels.email]
from = "Permesso@Gate.Test"
smtp = { address = "localhost:25", security = "none" }
imap = { address = "[::1]:993", username = "gate", password_file = "/etc/pw", ca_file = "/etc/ca.pem", mailbox = "Permesso/In" }
authserv_id = "mx.gate.test"
dkim = false
trust_relay = true
sub_addressing = true
follow_up = false
dns = "127.0.0.1"
`))
	require.NoError(t, err)
	require.Equal(t, &config.Email{
		From: "Permesso@gate.test", SMTP: config.MailServer{Address: "localhost:25", Security: "none"},
		IMAP:       config.MailServer{Address: "[::1]:993", Security: "tls", Username: "gate", PasswordFile: "/etc/pw", CAFile: "/etc/ca.pem", Mailbox: "Permesso/In"},
		AuthservID: "mx.gate.test", TrustRelay: true, SubAddressing: true, DNS: "127.0.0.1:53",
	}, c.Email)
	require.Equal(t, map[string]approval.Reversibility{"w": approval.Partial}, c.EmailCeiling)
}

func TestEmailIssues(t *testing.T) {
	for _, row := range []struct{ why, from, to, want string }{
		{
			"a password in the file", `587" }`, "587\", username = \"u\", password = \"hunter2\" }",
			`p.toml:8:58: password: a secret may not stand in this file
hint: keep it in a file of its own that only the gate can read, and name that file: password_file = "/path"`,
		},
		{
			"a password in the table itself", "smtp =", "password = \"hunter2\"\nsmtp =",
			`p.toml:8:1: password: a secret may not stand in this file
hint: keep it in a file of its own that only the gate can read, and name that file: password_file = "/path"`,
		},
		{
			"no sender", "from = \"permesso@gate.test\"\n", "",
			"p.toml:6:11: channel email needs from\nhint: permesso email setup finds out what belongs there",
		},
		{
			"a name before the address", `"permesso@`, `"Gate <permesso@gate.test>" # "`,
			"p.toml:7:8: from is not an address, or one with a + or quotation marks\nhint: the bare address: \"permesso@example.org\"",
		},
		{
			"a sender with a sub-address: replies would have two", `"permesso@`, `"permesso+x@`,
			"p.toml:7:8: from is not an address, or one with a + or quotation marks\nhint: the bare address: \"permesso@example.org\"",
		},
		{
			"no port", "mail.gate.test:587", "mail.gate.test",
			"p.toml:8:20: address must be host:port\nhint: for example \"mail.example.org:587\"",
		},
		{
			"a password in the clear", `587" }`, `587", security = "none" }`,
			"p.toml:8:53: an unencrypted connection goes to this machine only\nhint: starttls or tls",
		},
		{
			"a password for nobody", `587" }`, `587", password_file = "/etc/pw" }`,
			"p.toml:8:58: a password without a username is of no use\nhint: give the username, too",
		},
		{
			"a password file that moves with the working folder", `587" }`, `587", username = "u", password_file = "pw" }`,
			"p.toml:8:74: password_file must be an absolute path",
		},
		{
			"two ways in", "smtp =", "maildir = \"/var/mail/gate\"\nimap = { address = \"m.test:993\", username = \"u\" }\nsmtp =",
			"p.toml:8:1: answers come in by imap or by maildir, not both\nhint: take one of them out",
		},
		{
			"a mailbox of nobody", "smtp =", "imap = { address = \"m.test:993\" }\nsmtp =",
			"p.toml:8:8: imap needs a username",
		},
		{
			"nothing proves anything", "smtp =", "dkim = false\nsmtp =",
			"p.toml:8:8: nothing could prove who wrote a mail\nhint: set dkim = true, or authserv_id to the name of your mail server",
		},
		{
			"a relay that is not here", "smtp =", "trust_relay = true\nimap = { address = \"m.test:993\", username = \"u\" }\nsmtp =",
			"p.toml:8:15: trust_relay believes every From, which only a mail server of this machine can vouch for\nhint: set authserv_id or dkim instead",
		},
		{
			"a key of no table", "smtp =", "host = \"x\"\nsmtp =",
			"p.toml:8:1: unknown key \"host\"",
		},
		{
			"a ceiling that is none", "approvers = [", "email_ceiling = \"low\"\napprovers = [",
			"p.toml:4:17: email_ceiling must be reversible, partial or irreversible",
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			require.Contains(t, emailConfig, row.from)
			_, err := config.Parse("p.toml", []byte(strings.Replace(emailConfig, row.from, row.to, 1)))
			require.EqualError(t, err, row.want)
		})
	}
}

func TestEmailWarnings(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(strings.Replace(emailConfig, `email = "Ann@Human.Test"`, "local = 1", 1)))
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
	require.Equal(t, "p.toml:5:1: nobody who may approve in workspace \"w\" has an e-mail address\nhint: [approvers.NAME] email = \"…\"", c.Warnings[0].In("p.toml"))
}
