package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

func TestDoctorChecksTelegram(t *testing.T) {
	for _, row := range []struct {
		why, token string
		mode       os.FileMode
		chat       int64
		privacy    bool
		down       bool
		worst      Severity
		says       string
	}{
		{why: "healthy", token: botapi.Token, chat: 7, privacy: true, worst: SeverityOK, says: "Telegram accepts the bot @permesso_bot"},
		{why: "a group without privacy mode", token: botapi.Token, chat: -7, worst: SeverityOK, says: "Telegram accepts the bot"},
		{why: "a group in privacy mode", token: botapi.Token, chat: -7, privacy: true, worst: SeverityInfo, says: "in groups @permesso_bot receives only commands"},
		{why: "an unknown token", token: "123456789:hunter2-hunter2-hunter2", chat: 7, worst: SeverityError, says: "Telegram does not accept the token"},
		{why: "no token", token: "hunter2", chat: 7, worst: SeverityError, says: "has no valid bot token"},
		{why: "a token readable by others", token: "123456789:hunter2-hunter2-hunter2", mode: 0o644, chat: 7, worst: SeverityError, says: "readable by other users"},
		{why: "no network", token: botapi.Token, chat: 7, down: true, worst: SeverityWarning, says: "call getMe: "},
		{why: "a token in the environment", chat: 7, worst: SeverityInfo, says: "is in the daemon's environment"},
	} {
		t.Run(row.why, func(t *testing.T) {
			t.Parallel()
			api := &botapi.Server{Privacy: row.privacy}
			require.NoError(t, api.Listen())
			t.Cleanup(api.Close)
			if row.down {
				api.Close()
			}
			file := filepath.Join(t.TempDir(), "token")
			text := fmt.Sprintf("[workspaces.w]\ntelegram = { chat_id = %d }\n[channels.telegram]\nserver_url = %q\n", row.chat, api.URL)
			if row.token != "" {
				require.NoError(t, os.WriteFile(file, []byte(row.token+"\n"), 0o600))
				require.NoError(t, os.Chmod(file, row.mode|0o600))
				text += fmt.Sprintf("token_file = %q\n", file)
			}
			cfg, err := config.Parse("p.toml", []byte(text))
			require.NoError(t, err)
			d := &Doctor{app: &console.Console{Env: func(string) string { return "" }}, Home: &home.Home{Config: cfg}, names: []string{"w"}}
			list := d.checkTelegram(t.Context())
			worst := list[len(list)-1]
			require.Equal(t, row.worst, worst.Severity)
			require.Contains(t, worst.What, row.says)
			for _, f := range list {
				require.NotContains(t, f.What+f.Cure, "hunter2")
				require.NotContains(t, f.What+f.Cure, "strict-fake-and-nobodys-token")
			}
		})
	}
	d := &Doctor{Home: &home.Home{Config: config.Default()}}
	require.Equal(t, []Finding{okFinding("Telegram is not configured")}, d.checkTelegram(t.Context()))
}

// A request that its client sends to one channel is not reported as unsent on the others.
func TestDoctorRespectsAskOn(t *testing.T) {
	now := time.Now()
	d := &Doctor{Home: &home.Home{Layout: ipc.Layout{Home: t.TempDir()}}, Now: now}
	for askOn, missed := range map[string][2]int{"": {1, 1}, "telegram": {1, 0}, "email": {0, 1}} {
		waiting := []approval.StoredPending{{Pending: &approval.Pending{
			RequestID: "a7f3b2c1d4e5f6a7", AskOn: askOn, Timestamp: now.Add(-time.Hour), ExpiresAt: now.Add(time.Hour),
		}}}
		for i, channel := range []string{"telegram", "email"} {
			require.Len(t, d.unsentMessages(channel, "w", waiting), missed[i], "%s, asked on %q", channel, askOn)
		}
	}
}
