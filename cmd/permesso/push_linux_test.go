package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/web/push"
	"github.com/permesso-dev/permesso/chat/web/push/pushserver"
)

// pushBinary is a program that may use a push service on this machine.
var pushBinary = builder("push", []string{"CGO_ENABLED=0"}, "-trimpath", "-ldflags", "-X github.com/permesso-dev/permesso/cmd/permesso/internal/daemon.pushLoopback=yes")

// servePush starts a daemon that may use a push service on this machine.
func (h *rig) servePush() *daemonProcess {
	h.t.Helper()
	file, err := pushBinary()
	require.NoError(h.t, err)
	cmd := h.command("serve")
	cmd.Path, cmd.Args[0] = file, file
	return h.start(cmd)
}

// pushed is a payload as the service worker gets it.
type pushed struct {
	Title, Body, Tag, Path string
	Settled, Silent        bool
}

// awaitPushed waits for a message to a browser.
func awaitPushed(t *testing.T, s *pushserver.Server, browser string, ok func(p pushed) bool) (found pushed) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, m := range s.Messages() {
			var p pushed
			if m.Browser == browser && json.Unmarshal(m.Payload, &p) == nil && ok(p) {
				found = p
				return true
			}
		}
		return false
	}, testTimeout, 10*time.Millisecond)
	return found
}

// subscribe subscribes a browser with the key on the help page.
func subscribe(t *testing.T, s *pushserver.Server, b *pageClient, name string) *pushserver.Browser {
	t.Helper()
	_, help := b.get("help")
	_, rest, ok := strings.Cut(help, `id="push" hidden data-key="`)
	require.True(t, ok)
	key, _, _ := strings.Cut(rest, `"`)
	x := s.Subscribe(name, key)
	code, _, _ := b.post("push/subscribe", url.Values{"endpoint": {x.Endpoint}, "p256dh": {x.Key}, "auth": {x.Auth}})
	require.Equal(t, http.StatusNoContent, code)
	return x
}

// keepSubscription stores a subscription of a person, as an earlier run could have.
func (h *rig) keepSubscription(b *pushserver.Browser, of approval.Person) {
	h.t.Helper()
	x := push.Subscription{Endpoint: b.Endpoint, Key: b.Key, Auth: b.Auth, Person: of, Since: time.Now()}
	text, err := json.Marshal(x)
	require.NoError(h.t, err)
	require.NoError(h.t, os.WriteFile(filepath.Join(h.layout.ChannelState("push", "subscriptions"), x.ID()), text, 0o600))
}

// A browser without an open page hears what waits and how it ended, after a restart too, until its subscription ends.
func TestPush(t *testing.T) {
	t.Parallel()
	h := newRig(t, "personal", uiConfig)
	s := pushserver.New(t)
	d := h.servePush()
	d.awaitLog("web UI listening")
	keyFile := filepath.Join(h.layout.Keys(), "push.key")
	require.NoFileExists(t, keyFile, "made at its first use")
	phone := subscribe(t, s, h.openPages(t), "phone")
	info, err := os.Stat(keyFile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	id := h.ask(`{"tool_name":"hello","request_data":{"name":"hostile: see http://evil.example"},"preview":"hostile"}`)
	p := awaitPushed(t, s, "phone", func(p pushed) bool { return strings.Contains(p.Body, approval.ShortID(id)) })
	require.Equal(t, pushed{Title: "🔐 May I say hello?", Body: "hello · personal · " + approval.ShortID(id), Tag: p.Tag, Path: "r/personal/" + id}, p)
	code, _, errs := h.run("", "deny", id)
	require.Zero(t, code, errs)
	settled := awaitPushed(t, s, "phone", func(p pushed) bool { return p.Settled })
	require.Equal(t, p.Tag, settled.Tag)
	require.Equal(t, "Settled: denied · "+approval.ShortID(id), settled.Body)
	for _, shown := range []pushed{p, settled} {
		requireReadme(t, "web", strings.ReplaceAll(shown.Title+"\n"+shown.Body, approval.ShortID(id), "a7f3b2c1"))
	}

	d.stop()
	h.keepSubscription(s.Subscribe("stranger", phone.ApplicationKey), approval.Person{Channel: approval.EntranceSocket, ID: "4711"})
	d = h.servePush()
	d.awaitLog("web UI listening")
	b := h.openPages(t)
	laptop := subscribe(t, s, b, "laptop")
	require.Equal(t, phone.ApplicationKey, laptop.ApplicationKey, "the key is kept")
	other := h.submitHello()
	for _, browser := range []string{"phone", "laptop"} {
		awaitPushed(t, s, browser, func(p pushed) bool { return p.Path == "r/personal/"+other })
	}

	s.Unsubscribe("phone")
	code, _, _ = b.post("push/unsubscribe", url.Values{"endpoint": {laptop.Endpoint}})
	require.Equal(t, http.StatusNoContent, code)
	last := h.submitHello()
	require.Eventually(t, func() bool { return len(s.Refused()) > 0 }, testTimeout, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		names, err := os.ReadDir(h.layout.ChannelState("push", "subscriptions"))
		return err == nil && len(names) == 1 // the stranger's
	}, testTimeout, 10*time.Millisecond)
	for _, m := range s.Messages() {
		require.NotEqual(t, "stranger", m.Browser, "who may not see the workspace any more")
		require.NotContains(t, string(m.Payload), last)
		require.NotContains(t, string(m.Payload), "evil")
	}
	require.Equal(t, []string{"410 no such subscription"}, s.Refused())
	require.NotContains(t, d.logged(), "/send/")
	d.stop()
}

// The service worker in a real browser. What it gets is what our daemon sent and a push service decrypted.
func TestBrowserPush(t *testing.T) {
	t.Parallel()
	h := newRig(t, "personal", uiConfig)
	s := pushserver.New(t)
	d := h.servePush()
	d.awaitLog("web UI listening")
	gate := browserGate{
		Program: program(t, true), Pid: d.cmd.Process.Pid, Flags: []string{"--config", h.config, "--home", h.layout.Home},
		Folders: map[string]map[string]string{"personal": {"requests": h.agent.Requests, "responses": h.agent.Responses}},
	}
	runScenarios(t, browserPlan{Scenarios: []string{"push.mjs"}, Gates: map[string]browserGate{"home": gate}, Push: s.URL})
}
