package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/email/mailserver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// TestRestWhileTelegramIsDown: whoever asks is answered all the same, and the card goes
// out when Telegram is back.
func TestRestWhileTelegramIsDown(t *testing.T) {
	t.Parallel()
	b := newBotTown(t, annDecides)
	config, err := os.ReadFile(b.config)
	require.NoError(t, err)
	listen := fmt.Sprintf("listen = [\"127.0.0.1:0\", \"unix:%s\"]\n", filepath.Join(b.dir, "rest.sock"))
	require.NoError(t, os.WriteFile(b.config, append([]byte(listen), config...), 0o600))
	door := b.serve().door()
	code, key, errs := b.run("", "key", "create", "default")
	require.Zero(t, code, errs)
	agent := &restClient{b.place, door, key[:len(key)-1]}
	b.api.Fail("sendMessage", botapi.Fault{Kind: botapi.Offline})
	status, a := agent.do("POST", "/v1/approvals", `{"tool_name":"say","channel":"telegram"}`)
	require.Equal(t, 201, status, "%v", a)
	require.Equal(t, "pending", a["status"])
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, b.api.Await(ctx, func(s botapi.State) bool {
		return slices.ContainsFunc(s.Calls, func(c botapi.Call) bool { return c.Method == "sendMessage" && c.Code == 0 })
	}), "nobody tried")
	b.api.Heal()
	id := a["approval_id"].(string)[len("appr_"):]
	require.Contains(t, b.taps(b.card(id), "✅ Once"), "Approved: ")
	_, a = agent.do("GET", "/v1/approvals/appr_"+id+"?wait=60", "")
	require.Equal(t, "approved", a["outcome"], "%v", a)
}

// TestRestWhileMailIsDown is the same by e-mail.
func TestRestWhileMailIsDown(t *testing.T) {
	w := newTown(t, `log_level = "debug"`, "log_level = \"debug\"\nlisten = \"127.0.0.1:0\"")
	w.daemon.awaitLog("HTTP API listening")
	found := listensOn.FindStringSubmatch(w.daemon.said())
	require.NotNil(t, found)
	code, key, errs := w.run("", "key", "create", "work")
	require.Zero(t, code, errs)
	agent := &restClient{w.place, "http://" + found[1], key[:len(key)-1]}
	w.village.StopSMTPD()
	status, a := agent.do("POST", "/v1/approvals", `{"tool_name":"count","request_data":{"what":"sheep"},"channel":"email"}`)
	require.Equal(t, 201, status, "%v", a)
	require.Equal(t, "pending", a["status"])
	w.daemon.awaitLog("email not sent")
	w.village.StartSMTPD(t)
	w.mailTo(mailserver.Ann, a["approval_id"].(string)[len("appr_"):], itself)
}
