package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// Every key of [channels.NAME] is among the settings whose change opens the channel
// again.
func TestChannelsAreReopened(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return fmt.Sprintf("%q", path)
	}
	before := map[string]string{
		"email.from": `"a@example.org"`, "email.smtp.address": `"127.0.0.1:25"`, "email.imap.address": `"127.0.0.1:143"`, "email.imap.username": `"u"`,
		"telegram.webhook.listen": `":1"`, "telegram.webhook.url": `"https://a.example.org/t"`, "telegram.webhook.secret_file": file("secret"),
		"ntfy.topic_file": file("topic"),
	}
	after := map[string]string{
		"email.from": `"b@example.org"`, "email.authserv_id": `"mx"`, "email.dkim": "false", "email.trust_relay": "true",
		"email.sub_addressing": "true", "email.follow_up": "false", "email.dns": `"127.0.0.1:5353"`, "email.maildir": fmt.Sprintf("%q", dir),
		"email.imap.mailbox": `"In"`, "telegram.token_file": file("token"), "telegram.feed": "true", "telegram.server_url": `"https://x.example.org"`,
		"telegram.webhook.listen": `":2"`, "telegram.webhook.url": `"https://b.example.org/t"`, "telegram.webhook.secret_file": file("other"),
		"ntfy.server": `"https://x.example.org"`, "ntfy.topic_file": file("topic2"), "ntfy.token_file": file("token"), "ntfy.ui_url": `"https://g.example.org"`,
	}
	for key, v := range map[string]string{
		"provider": `"microsoft"`, "client_id": `"b"`, "client_secret_file": file("client"), "auth_url": `"https://b.example.org"`,
		"token_url": `"https://b.example.org"`, "device_url": `"https://b.example.org"`, "scope": `"b"`,
	} {
		after["email.oauth."+key] = v
	}
	after["email.authserv_unnamed"] = "true"
	for _, server := range []string{"email.smtp.", "email.imap."} {
		after[server+"address"], after[server+"security"], after[server+"username"] = `"127.0.0.1:2"`, `"none"`, `"v"`
		after[server+"password_file"], after[server+"ca_file"] = file("password"), file("ca")
	}
	parse := func(values map[string]string) *config.Config {
		text := ""
		for key, v := range values {
			text += "channels." + key + " = " + v + "\n"
		}
		c, err := config.Parse("c.toml", []byte(text))
		require.NoError(t, err, text)
		return c
	}
	for _, r := range config.Rows() {
		key, ok := strings.CutPrefix(r.Path, "channels.")
		if !ok {
			continue
		}
		require.Contains(t, after, key)
		values := map[string]string{}
		for k, v := range before {
			values[k] = v
		}
		if strings.HasPrefix(key, "email.oauth.") {
			values["email.oauth.provider"], values["email.oauth.client_id"], values["email.smtp.username"] = `"google"`, `"a"`, `"u"`
		}
		switch key { // keys that need or exclude others
		case "email.maildir":
			delete(values, "email.imap.address")
			delete(values, "email.imap.username")
		case "email.dkim":
			values["email.authserv_id"] = `"mx"`
		case "email.smtp.password_file":
			values["email.smtp.username"] = `"u"`
		}
		old := parse(values)
		values[key] = after[key]
		next, differ := parse(values), false
		for _, k := range kinds() {
			differ = differ || !reflect.DeepEqual(k.settings(old), k.settings(next))
		}
		require.True(t, differ, "%s is edited, and no channel is opened again", r.Path)
	}
}
