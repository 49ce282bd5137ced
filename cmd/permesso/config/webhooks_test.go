package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestWebhooks(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(`[webhooks.ci]
url = "https://hooks.example.org/permesso?to=ci"
secret_file = "/etc/permesso/ci.secret"
[webhooks.board]
url = "http://10.1.2.3:8080/"
secret_file = "/etc/permesso/board.secret"
events = ["settled"]
workspaces = ["w"]
allow_private = ["10.1.2.3:8080"]
[workspaces.w]
`))
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Equal(t, map[string]config.Webhook{
		"ci":    {URL: "https://hooks.example.org/permesso?to=ci", SecretFile: "/etc/permesso/ci.secret", Events: []string{"settled"}},
		"board": {URL: "http://10.1.2.3:8080/", SecretFile: "/etc/permesso/board.secret", Events: []string{"settled"}, Workspaces: []string{"w"}, AllowPrivate: []string{"10.1.2.3:8080"}},
	}, c.Webhooks)
	require.Equal(t, []string{"/etc/permesso/board.secret", "/etc/permesso/ci.secret"}, c.SecretFiles())
}

func TestWebhookIssues(t *testing.T) {
	const secret = "\nsecret_file = \"/x\"\n"
	for _, row := range []struct{ why, text, want string }{
		{"no url", "[webhooks.ci]" + secret, "a webhook needs url"},
		{"no secret", "[webhooks.ci]\nurl = \"https://x.org/\"\n", "a webhook needs secret_file"},
		{"the secret itself", "[webhooks.ci]\nurl = \"https://x.org/\"\nsecret = \"whsec_abc\"\n", "secrets are not allowed in this file"},
		{"a relative path", "[webhooks.ci]\nurl = \"https://x.org/\"\nsecret_file = \"x\"\n", "secret_file must be an absolute path"},
		{"an unknown event", "[webhooks.ci]\nurl = \"https://x.org/\"\nevents = [\"pending\"]" + secret, "events must hold settled"},
		{"no event", "[webhooks.ci]\nurl = \"https://x.org/\"\nevents = []" + secret, "a webhook without events sends nothing"},
		{"an unknown workspace", "[webhooks.ci]\nurl = \"https://x.org/\"\nworkspaces = [\"v\"]" + secret, `unknown workspace "v"`},
		{"no workspace", "[webhooks.ci]\nurl = \"https://x.org/\"\nworkspaces = []" + secret, "a webhook without workspaces sends nothing"},
		{"not a URL", "[webhooks.ci]\nurl = \"x.org\"" + secret, "url: write https://HOST/PATH"},
		{"a user", "[webhooks.ci]\nurl = \"https://u:p@x.org/\"" + secret, "url: a URL must not contain a user"},
		{"a field", "[webhooks.ci]\nurl = \"https://x.org/{id}\"" + secret, "url: braces"},
		{"without encryption", "[webhooks.ci]\nurl = \"http://x.org/\"" + secret, "url: must use https, unless allow_private names the host"},
		{"a private address", "[webhooks.ci]\nurl = \"https://127.0.0.1/\"" + secret, "url: 127.0.0.1 is not a public address; to allow it, add it to allow_private"},
		{"a network", "[webhooks.ci]\nurl = \"https://x.org/\"\nallow_private = [\"10.0.0.0/8\"]" + secret, "allow_private: must contain addresses or host names"},
		{"a name", "[webhooks.\"C I\"]\nurl = \"https://x.org/\"" + secret, "webhook \"C I\": a name is"},
	} {
		_, err := config.Parse("p.toml", []byte(row.text+"[workspaces.w]\n"))
		require.ErrorContains(t, err, row.want, row.why)
		require.NotContains(t, err.Error(), "whsec_")
	}
}
