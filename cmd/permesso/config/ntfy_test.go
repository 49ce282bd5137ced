package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestNtfy(t *testing.T) {
	c, err := config.Parse("p.toml", []byte("[channels.ntfy]\ntopic_file = \"/etc/permesso/ntfy.topic\"\n[workspaces.w]\nchannels = [\"ntfy\"]\n"))
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Equal(t, &config.Ntfy{Server: "https://ntfy.sh", TopicFile: "/etc/permesso/ntfy.topic"}, c.Ntfy)
	require.Equal(t, []string{"ntfy"}, c.Workspaces["w"].Channels)

	c, err = config.Parse("p.toml", []byte(`
[channels.ntfy]
server = "http://127.0.0.1:2586/"
topic_file = "/etc/permesso/ntfy.topic"
token_file = "/etc/permesso/ntfy.token"
ui_url = "https://gate.example.org/"
`))
	require.NoError(t, err)
	require.Equal(t, &config.Ntfy{"http://127.0.0.1:2586", "/etc/permesso/ntfy.topic", "/etc/permesso/ntfy.token", "https://gate.example.org"}, c.Ntfy)
	require.Equal(t, []string{"/etc/permesso/ntfy.token", "/etc/permesso/ntfy.topic"}, c.SecretFiles())

	c, err = config.Parse("p.toml", []byte("[workspaces.w]\nchannels = [\"ntfy\"]\n"))
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
	require.Contains(t, c.Warnings[0].Message, "channel ntfy is not configured")
}

func TestNtfyIssues(t *testing.T) {
	const begin = "[channels.ntfy]\ntopic_file = \"/x\"\n"
	for _, tc := range []struct{ why, file, want string }{
		{"no topic", "[channels.ntfy]\n", "channel ntfy needs topic_file"},
		{"a topic in the file", begin + "topic = \"hunter2\"", "topic"},
		{"a token in the file", begin + "token = \"hunter2\"", "token: secrets are not allowed in this file"},
		{"a server without encryption", begin + "server = \"http://ntfy.example.org\"", "server must use https"},
		{"a page without encryption", begin + "ui_url = \"http://gate.example.org\"", "ui_url must use https"},
		{"a relative path", "[channels.ntfy]\ntopic_file = \"ntfy.topic\"", "topic_file must be an absolute path"},
	} {
		_, err := config.Parse("p.toml", []byte(tc.file))
		require.ErrorContains(t, err, tc.want, tc.why)
		require.NotContains(t, err.Error(), "hunter2", tc.why)
	}
}
