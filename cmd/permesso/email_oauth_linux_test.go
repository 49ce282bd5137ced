package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

var typedCode = regexp.MustCompile(`^Open (\S+) in a browser, log in as permesso@gate\.test, and type this code: (\S+)$`)

// setUpMail runs permesso email setup, as a person does who authorizes the daemon, and returns the
// output. The person does what the output says.
func setUpMail(t *testing.T, r *rig, o *mailserver.OAuth, wantError bool, args ...string) (out string) {
	t.Helper()
	cmd := r.command(append(args[:2:2], append([]string{"email", "setup"}, args[2:]...)...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		out += lines.Text() + "\n"
		if m := typedCode.FindStringSubmatch(lines.Text()); m != nil {
			o.Type(m[2], true)
		}
		if strings.HasPrefix(lines.Text(), o.URL+"/authorize?") {
			o.Allow(t, lines.Text())
		}
	}
	require.NoError(t, lines.Err())
	err = cmd.Wait()
	out += errs.String()
	require.Equal(t, wantError, err != nil, out)
	require.NotContains(t, out, mailserver.ClientSecret)
	return out
}

// email setup authorizes the daemon in a browser or with a code, logs in to real servers with the
// token, and writes the configuration. It authorizes anew what was revoked.
func TestEmailSetupWithOAuth(t *testing.T) {
	t.Parallel()
	for _, flow := range []struct{ flag, path, says string }{
		{"--auth-url", "/authorize", "Open this page in a browser on this machine, and log in as permesso@gate.test:\n"},
		{"--device-url", "/device", "type this code: "},
	} {
		o := mailserver.StartOAuth(t)
		v := mailserver.StartWithOAuth(t, o, "xoauth2 oauthbearer")
		r := newRig(t, "work", "")
		require.NoError(t, os.MkdirAll(r.layout.Keys(), 0o700)) // as permesso init does
		other, secret := filepath.Join(r.dir, "fresh.toml"), filepath.Join(r.dir, "secret")
		require.NoError(t, os.WriteFile(other, []byte("[workspaces.w]\n"), 0o600))
		require.NoError(t, os.WriteFile(secret, []byte(mailserver.ClientSecret+"\n"), 0o600))
		ok := regexp.MustCompile(`(?m)^ok      outgoing email at 127\.0\.0\.1:\d+\nok      incoming email at 127\.0\.0\.1:\d+$`)

		out := setUpMail(t, r, o, false, "--config", other, "--from", mailserver.Gate, "--smtp", v.SMTP, "--imap", v.IMAP, "--imap-security", "starttls",
			"--ca-file", v.CAFile, "--oauth", "other", "--client-id", mailserver.ClientID, "--client-secret-file", secret,
			flow.flag, o.URL+flow.path, "--token-url", o.URL+"/token", "--scope", "mail", "--write")
		require.Contains(t, out, flow.says)
		require.Regexp(t, ok, out)
		token := filepath.Join(r.layout.Keys(), "email.oauth")
		info, err := os.Stat(token)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		b, err := os.ReadFile(other)
		require.NoError(t, err)
		require.Contains(t, string(b), `oauth = { provider = "other", client_id = "gate-client", client_secret_file = `)
		require.NotContains(t, string(b), "password")

		out = setUpMail(t, r, o, false, "--config", other)
		require.NotContains(t, out, flow.says, "the authorization still holds")
		require.Regexp(t, ok, out)

		o.Revoke()
		out = setUpMail(t, r, o, false, "--config", other)
		require.Contains(t, out, "run permesso email setup again")
		require.Contains(t, out, flow.says)
		require.Regexp(t, ok, out)

		v.StopDovecot()
		out = setUpMail(t, r, o, true, "--config", other)
		require.NotContains(t, out, flow.says, "the servers are down: the authorization may be good")
	}
}
