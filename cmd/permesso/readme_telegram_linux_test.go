package main

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

// fakeSystemctl starts the ExecStart of the user's unit, as systemd would, and logs
// to a file.
const fakeSystemctl = `#!/bin/sh
unit=$HOME/.config/systemd/user/permesso.service
case "$*" in
*enable*) setsid $(sed -n 's/^ExecStart=//p' "$unit") >"$HOME/log" 2>&1 & echo $! >"$HOME/pid" ;;
esac
`

// The blocks of the section run in order. The test types the token at a terminal
// and taps in Telegram.
func TestReadmeToYourPhone(t *testing.T) {
	t.Parallel()
	api := newTelegram(t)
	r := newReader(t)
	home := strings.TrimPrefix(r.env[0], "HOME=")
	bin := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	require.NoError(t, writeProgram(filepath.Join(bin, "systemctl"), fakeSystemctl, 0o755))
	r.env = append(r.env, "PATH="+filepath.Join(home, ".local/bin")+":"+bin+":"+os.Getenv("PATH"), setup.TelegramServer+"="+api.URL)
	blocks := readmeBlocks(t, "chat/telegram/README.md", "To your phone in ten minutes")
	require.Len(t, blocks, 4)
	for _, b := range blocks {
		require.Equal(t, "sh", b.lang)
	}
	install, connect, serve, ask := blocks[0].text, blocks[1].text, blocks[2].text, blocks[3].text

	out, err := r.terminal(install).CombinedOutput()
	require.NoError(t, err, "%s", out)

	d := &demoRun{t: t, temp: t.TempDir(), more: make(chan struct{}, 1), cmd: r.terminal(connect)}
	keys := d.startOnTerminal()
	types := func(prompt, line string) {
		t.Helper()
		d.awaitOutput(prompt)
		_, err := keys.WriteString(line)
		require.NoError(t, err)
	}
	types("Token (not shown): ", botapi.Token+"\r")
	api.Say(tgAnn, tgAnn, "/start "+numberOf(d))
	types("Which approver are you?", "\n")
	tapTestCard(t, api, tgAnn, tgAnn)
	require.NotContains(t, d.awaitExit(0), secretHalf)
	requireTokenFile(t, filepath.Join(home, ".config/permesso/telegram.token"))

	out, err = r.terminal(serve).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { r.stopGate(home) })

	agent := r.terminal(ask)
	var said bytes.Buffer
	agent.Stdout, agent.Stderr = &said, &said
	require.NoError(t, agent.Start())
	m := awaitMessage(t, api, tgAnn, "🔐 May I say hello?", "✅ Once")
	require.Contains(t, m.Text, "default · hello · until ")
	_, err = api.Tap(tgAnn, tgAnn, m.ID, "✅ Once")
	require.NoError(t, err)
	require.NoError(t, agent.Wait(), "%s", said.String())
	require.Contains(t, said.String(), `result: {"output":"hello\n"}`)
	r.stopGate(home)
	b, err := os.ReadFile(filepath.Join(home, "log"))
	require.NoError(t, err)
	require.Contains(t, string(b), `"message":"stopped"`)
	require.NotContains(t, string(b), secretHalf)
}

// stopGate stops the daemon that the fake systemctl started. A second call does nothing.
func (r *reader) stopGate(home string) {
	r.t.Helper()
	out, err := osexec.Command("sh", "-c", `p=$(cat "$0/pid") || exit 0; rm "$0/pid"; kill "$p"; while kill -0 "$p" 2>/dev/null; do sleep 0.05; done`, home).CombinedOutput()
	require.NoError(r.t, err, "%s", out)
}
