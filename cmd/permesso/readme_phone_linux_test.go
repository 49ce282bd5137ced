package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// systemctlStandIn starts what the unit says, as systemd would, and writes down
// the process.
const systemctlStandIn = `#!/bin/sh -e
case "$*" in
"--user daemon-reload") ;;
"--user enable --now permesso")
	sed -n 's/^ExecStart=//p' "$HOME/.config/systemd/user/permesso.service" >"$TMPDIR/start"
	setsid sh -c "exec $(cat "$TMPDIR/start")" >"$TMPDIR/log" 2>&1 </dev/null &
	echo $! >"$TMPDIR/pid"
	;;
*) echo "systemctl $*: not here" >&2; exit 1 ;;
esac
`

// follower is a reader whose terminal is read while it runs.
type follower struct {
	t    *testing.T
	said *demoRun
	code chan error
}

// follows runs a text in the background.
func (r *reader) follows(text string) *follower {
	r.t.Helper()
	f := &follower{r.t, newDemo(r.t), make(chan error, 1)}
	cmd := r.terminal(text)
	cmd.Stdout, cmd.Stderr = f.said, f.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(r.t, cmd.Start())
	r.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	go func() { f.code <- cmd.Wait() }()
	return f
}

func (f *follower) ends() string {
	f.t.Helper()
	select {
	case err := <-f.code:
		require.NoError(f.t, err, "%s", f.said.said())
	case <-time.After(patience):
		require.FailNow(f.t, "it does not end", "%s", f.said.said())
	}
	return f.said.said()
}

// The blocks, in one shell after the other, with a strict Telegram in the place
// of the real one and somebody's phone at the other end.
func TestReadmeToYourPhone(t *testing.T) {
	blocks := blocksOf(t, "To your phone in ten minutes")
	require.Len(t, blocks, 4)
	api := newTelegram(t)
	r := newReader(t)
	tools := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(tools, "systemctl"), []byte(systemctlStandIn), 0o755))
	home, temp := strings.TrimPrefix(r.env[0], "HOME="), t.TempDir()
	path := "PATH=" + filepath.Join(home, ".local", "bin") + ":" + tools + ":" + os.Getenv("PATH")
	// The token and the server come from the environment here, the one place where
	// this differs from what a reader does, who is asked.
	r.env = append(r.env, path, "TMPDIR="+temp, telegramToken+"="+botapi.Token, telegramServer+"="+api.URL)

	out, err := r.terminal(blocks[0].text).CombinedOutput()
	require.NoError(t, err, "%s", out)

	setup := r.follows(blocks[1].text)
	number := numberOf(setup.said)
	api.Say(tgAnn, tgAnn, "/start "+number)
	tapsTestCard(t, api, tgAnn, tgAnn)
	require.NotContains(t, setup.ends(), secretHalf)

	t.Cleanup(func() {
		b, err := os.ReadFile(filepath.Join(temp, "pid"))
		if err != nil {
			return
		}
		pid, err := strconv.Atoi(string(bytes.TrimSpace(b)))
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGTERM)
		for end := time.Now().Add(patience); syscall.Kill(pid, 0) == nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	out, err = r.terminal(blocks[2].text).CombinedOutput()
	require.NoError(t, err, "%s", out)

	ask := r.follows(blocks[3].text)
	card := awaitMessage(t, api, tgAnn, "🔐 Approval required · default · hello", "✅ Once")
	tap, err := api.Tap(tgAnn, tgAnn, card.ID, "✅ Once")
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	answer, err := tap.Answer(ctx)
	require.NoError(t, err)
	require.Contains(t, answer.Text, "Approved: say hello")
	said := ask.ends()
	require.Regexp(t, `(?m)^approved \(.*\)\nresult: \{"output":"hello\\n"\}$`, said)
	log, err := os.ReadFile(filepath.Join(temp, "log"))
	require.NoError(t, err)
	require.NotContains(t, string(log), secretHalf)
}
