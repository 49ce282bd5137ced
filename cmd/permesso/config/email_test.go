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
	}, c.Email, "defaults are strict")
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

// What is known of a provider needs no lines. Another one needs its addresses.
func TestEmailOAuth(t *testing.T) {
	parse := func(oauth string) (config.OAuth, error) {
		c, err := config.Parse("p.toml", []byte(strings.Replace(emailConfig, "smtp =", "oauth = { "+oauth+" }\nsmtp =", 1)))
		if err != nil {
			return config.OAuth{}, err
		}
		return c.Email.OAuth, nil
	}
	google, err := parse(`provider = "google", client_id = "c", client_secret_file = "/s"`)
	require.NoError(t, err)
	require.Equal(t, config.OAuth{
		Provider: "google", ClientID: "c", ClientSecretFile: "/s", AuthURL: "https://accounts.google.com/o/oauth2/v2/auth",
		TokenURL: "https://oauth2.googleapis.com/token", Scope: "https://mail.google.com/",
	}, google)
	microsoft, err := parse(`provider = "microsoft", client_id = "c"`)
	require.NoError(t, err)
	require.Empty(t, microsoft.AuthURL, "a code is typed on any device")
	require.NotEmpty(t, microsoft.DeviceURL)
	require.Contains(t, microsoft.Scope, "offline_access")
	own, err := parse(`provider = "other", client_id = "c", auth_url = "https://a.test/a", token_url = "http://127.0.0.1:1/t", scope = "mail more"`)
	require.NoError(t, err)
	require.Equal(t, config.OAuth{Provider: "other", ClientID: "c", AuthURL: "https://a.test/a", TokenURL: "http://127.0.0.1:1/t", Scope: "mail more"}, own)
	for given, want := range map[string]string{
		`provider = "google"`:                                             "oauth needs client_id",
		`provider = "gogle", client_id = "c"`:                             "google",
		`provider = "other", client_id = "c"`:                             "provider other needs token_url, scope, and auth_url or device_url",
		`client_id = "c", token_url = "ftp://x"`:                          "must be a URL",
		`client_id = "c", auth_url = "http://x/"`:                         "must use https",
		`provider = "google", client_id = "c", client_secret = "hunter2"`: "secrets are not allowed in this file",
	} {
		_, err := parse(given)
		require.ErrorContains(t, err, want, given)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestEmailIssues(t *testing.T) {
	for _, row := range []struct{ why, from, to, want string }{
		{
			"a password in the file", `587" }`, "587\", username = \"u\", password = \"hunter2\" }",
			`p.toml:8:58: password: secrets are not allowed in this file
hint: put it into a separate file that only the daemon can read: password_file = "/path"`,
		},
		{
			"a password in the table itself", "smtp =", "password = \"hunter2\"\nsmtp =",
			`p.toml:8:1: password: secrets are not allowed in this file
hint: put it into a separate file that only the daemon can read: password_file = "/path"`,
		},
		{
			"no sender", "from = \"permesso@gate.test\"\n", "",
			"p.toml:6:11: channel email needs from\nhint: permesso email setup finds the right settings",
		},
		{
			"a name before the address", `"permesso@`, `"Gate <permesso@gate.test>" # "`,
			"p.toml:7:8: from must be an email address without + and quotation marks\nhint: the bare address: \"permesso@example.org\"",
		},
		{
			"a sender with a sub-address: replies would have two of them", `"permesso@`, `"permesso+x@`,
			"p.toml:7:8: from must be an email address without + and quotation marks\nhint: the bare address: \"permesso@example.org\"",
		},
		{
			"no port", "mail.gate.test:587", "mail.gate.test",
			"p.toml:8:20: address must be host:port\nhint: for example \"mail.example.org:587\"",
		},
		{
			"a password in the clear", `587" }`, `587", security = "none" }`,
			"p.toml:8:53: an unencrypted connection is allowed only to this machine\nhint: starttls or tls",
		},
		{
			"a password without a username", `587" }`, `587", password_file = "/etc/pw" }`,
			"p.toml:8:58: password_file needs a username\nhint: add username",
		},
		{
			"a relative password file", `587" }`, `587", username = "u", password_file = "pw" }`,
			"p.toml:8:74: password_file must be an absolute path",
		},
		{
			"imap and maildir", "smtp =", "maildir = \"/var/mail/gate\"\nimap = { address = \"m.test:993\", username = \"u\" }\nsmtp =",
			"p.toml:8:1: replies are received by imap or by maildir, not both\nhint: remove one of them",
		},
		{
			"imap without a username", "smtp =", "imap = { address = \"m.test:993\" }\nsmtp =",
			"p.toml:8:8: imap needs a username",
		},
		{
			"a name, and none", "smtp =", "authserv_id = \"mx.gate.test\"\nauthserv_unnamed = true\nsmtp =",
			"p.toml:9:20: a server writes its name into Authentication-Results, or it does not\nhint: remove one of them",
		},
		{
			"no authentication of senders", "smtp =", "dkim = false\nsmtp =",
			"p.toml:8:8: no setting authenticates the sender of a mail\nhint: set dkim = true, or authserv_id to the name of your mail server",
		},
		{
			"a relay on another machine", "smtp =", "trust_relay = true\nimap = { address = \"m.test:993\", username = \"u\" }\nsmtp =",
			"p.toml:8:15: trust_relay trusts every From, which is safe only with a mail server on this machine\nhint: set authserv_id or dkim instead",
		},
		{
			"an unknown key", "smtp =", "host = \"x\"\nsmtp =",
			"p.toml:8:1: unknown key \"host\"",
		},
		{
			"an invalid ceiling", "approvers = [", "email_ceiling = \"low\"\napprovers = [",
			"p.toml:4:17: email_ceiling must be reversible, partial or irreversible",
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			require.Contains(t, emailConfig, row.from)
			_, err := config.Parse("p.toml", []byte(strings.Replace(emailConfig, row.from, row.to, 1)))
			require.Equal(t, row.want, printed(err))
		})
	}
}

// A channel that no workspace uses, and an approver whom no message reaches, are told.
func TestUnusedChannelWarnings(t *testing.T) {
	const some = "[approvers.ann]\nemail = \"a@b.cc\"\n[workspaces.w]\napprovers = [\"ann\"]\n"
	c, err := config.Parse("p.toml", []byte(some))
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
	require.Equal(t, "p.toml:4:1: approver \"ann\" is never asked in workspace \"w\": it does not use email\nhint: channels = [\"email\"] in [workspaces.w]", printed(c.Warnings[0].Format("p.toml")))
	require.Equal(t, []string{"channels.email", "workspaces.w.channels"}, c.MissingFor("ann"))
	c, err = config.Parse("p.toml", []byte(strings.Replace(some, "email =", "local = 7\nemail =", 1)))
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	c, err = config.Parse("p.toml", []byte(some+"[channels.ntfy]\ntopic_file = \"/etc/topic\"\n"))
	require.NoError(t, err)
	require.Len(t, c.Warnings, 2)
	require.Equal(t, "channel ntfy is configured, but no workspace uses it", c.Warnings[1].Message)
}

func TestEmailWarnings(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(strings.Replace(emailConfig, `email = "Ann@Human.Test"`, "local = 1", 1)))
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
	require.Equal(t, "p.toml:5:1: no approver of workspace \"w\" has an email address\nhint: [approvers.NAME] email = \"…\"", printed(c.Warnings[0].Format("p.toml")))
}
