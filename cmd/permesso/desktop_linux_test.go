package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/desktop/desktoptest"
)

// A desktop hears what waits. A click opens the request's page in a browser, logged in.
func TestDesktopNotify(t *testing.T) {
	t.Parallel()
	h, d := newUIRig(t, uiConfig)
	s := desktoptest.New(t, false)
	opened := filepath.Join(h.dir, "opened")
	opener := h.script("xdg-open", fmt.Sprintf("cp \"$1\" %[1]s.new && mv %[1]s.new %[1]s", opened))
	cmd := h.command("desktop-notify")
	cmd.Env = append(cmd.Env, "DBUS_SESSION_BUS_ADDRESS="+s.Address, "PATH="+filepath.Dir(opener)+":"+os.Getenv("PATH"), "XDG_RUNTIME_DIR=")
	errs := &strings.Builder{}
	cmd.Stderr = errs
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	id := h.ask(`{"tool_name":"hello","request_data":{"name":"hostile: see http://evil.example"},"preview":"hostile"}`)
	var n desktoptest.Notice
	require.Eventually(t, func() bool {
		shown := s.Shown()
		if len(shown) == 1 {
			n = shown[0]
		}
		return len(shown) == 1
	}, testTimeout, 10*time.Millisecond)
	require.Equal(t, "🔐 May I say hello?", n.Title)
	require.Equal(t, "hello · personal · "+approval.ShortID(id), n.Text)

	s.Signal(t, "ActionInvoked", n.ID, "default")
	awaitFile(t, opened)
	page, err := os.ReadFile(opened)
	require.NoError(t, err)
	link := regexp.MustCompile(`url=(http://[^"]+)"`).FindSubmatch(page)
	require.NotNil(t, link, "%s", page)
	at, err := url.Parse(string(link[1]))
	require.NoError(t, err)
	require.Equal(t, "r/personal/"+id, at.Query().Get("to"))
	b := openLink(t, string(link[1]))
	code, text := b.get("r/personal/" + id)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, `id="code-3"`)

	code, _, msg := h.run("", "deny", id)
	require.Zero(t, code, msg)
	require.Eventually(t, func() bool { return len(s.Shown()) == 0 }, testTimeout, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), errs)
	require.Empty(t, errs.String())
	d.stop()
}

func TestDesktopUnitIsValid(t *testing.T) {
	t.Parallel()
	code, unit, errs := runCommand("desktop-notify", "--unit", "--program", "/bin/true", "--home", t.TempDir())
	require.Zero(t, code, errs)
	file := filepath.Join(t.TempDir(), "permesso-desktop.service")
	require.NoError(t, os.WriteFile(file, []byte(unit), 0o600))
	out, err := analyze(t, "verify", "--user", "--man=no", file)
	require.NoError(t, err, out)
	require.Empty(t, out)
}
