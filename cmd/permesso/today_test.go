package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat"
)

const todayConfig = `
[workspaces.personal]
approval_timeout = "1h"
[workspaces.work]
[tools.pay]
capability = "channel:out"
verb = "pay"
summary = "{amount} to {to}"
target = "bank"
args = { amount = { type = "amount", currency = "EUR" }, to = "text" }
reversibility = "irreversible"
handler = { kind = "command", argv = ["/bin/true", "{amount}", "{to}"] }
[tools.broken]
capability = "channel:out"
args = { to = "text" }
reversibility = "irreversible"
handler = { kind = "command", argv = ["/bin/false", "{to}"] }
[tools.calendar]
capability = "calendar:read"
summary = "events of {day}"
args = { day = "text" }
reversibility = "reversible"
handler = { kind = "command", argv = ["/bin/true", "{day}"] }
[[rules]]
name = "my calendar"
match = { tool = "calendar" }
outcome = "allow"
`

// One message tells what the agents did: with and without the daemon, and as one JSON value.
func TestToday(t *testing.T) {
	t.Parallel()
	h := newRig(t, "personal", todayConfig)
	d := h.serve()
	d.awaitLog(`"serving"`)
	code, out, errs := h.run("", "today")
	require.Zero(t, code, errs)
	require.Regexp(t, `^No requests since 00:00 \w+\.\n$`, out)
	decide := func(verb, body string, rest ...string) string {
		id := h.ask(body)
		h.awaitPending("personal", id)
		code, _, errs := h.run("", append([]string{verb, id}, rest...)...)
		require.True(t, code == 0 || code == 4 && strings.Contains(body, "broken"), errs)
		h.response(id)
		return id
	}
	decide("approve", `{"tool_name":"pay","request_data":{"amount":"12.50","to":"ann`+leakedToken+`"}}`)
	decide("approve", `{"tool_name":"pay","request_data":{"amount":30,"to":"bob\u202e\u001b[31m"}}`)
	decide("deny", `{"tool_name":"pay","request_data":{"amount":7,"to":"eve"}}`)
	h.response(h.ask(`{"tool_name":"pay","request_data":{"amount":"1e9999999","to":"eve"}}`))
	decide("approve", `{"tool_name":"broken","request_data":{"to":"nowhere"}}`)
	for range 3 {
		h.response(h.ask(`{"tool_name":"calendar","request_data":{"day":"monday"}}`))
	}
	waiting := h.ask(`{"tool_name":"pay","request_data":{"amount":1,"to":"carl"}}`)
	h.awaitPending("personal", waiting)

	check := func() {
		code, out, errs := h.run("", "today")
		require.Zero(t, code, errs)
		require.Regexp(t, `^Since 00:00 \w+: 9 requests\n\npersonal · ⏳ 1 pending · ⚠ 1 failed · ✅ 2 approved · 🤖 3 allowed by policy · ❌ 1 denied · 🚫 1 denied by policy\n💶 42.50 EUR\n`, out)
		require.Regexp(t, `(?m)^\d\d:\d\d ✅ Pay 12.50 EUR to ‹.*github.*› · operator:`, out)
		require.Regexp(t, `(?m)^\d\d:\d\d ✅ Pay 30 EUR to "bob\\u\{202E\}\\u\{001B\}\[31m" · operator:`, out)
		require.Regexp(t, `(?m)^\d\d:\d\d 🚫 Pay \(no details\)$`, out, "what is refused at once is not kept")
		require.Regexp(t, `(?m)^\d\d:\d\d ⚠ Run broken to: nowhere · operator:`, out)
		require.Regexp(t, `(?m)^\d\d:\d\d 🤖 Run calendar events of "monday" ×3 · my calendar$`, out)
		require.Regexp(t, `(?m)^\d\d:\d\d ⏳ Pay 1 EUR to "carl"$`, out)
		require.NotContains(t, out, leakedToken)
		require.NotContains(t, out, "work")
	}
	check()
	code, out, errs = h.run("", "today", "--json", "--since", "1h")
	require.Zero(t, code, errs)
	require.NotContains(t, out, leakedToken)
	var day chat.Day
	require.NoError(t, json.Unmarshal([]byte(out), &day))
	require.Len(t, day.Workspaces, 1)
	require.Equal(t, map[string]string{"EUR": "42.50"}, day.Workspaces[0].Amounts)
	require.Len(t, day.Workspaces[0].Requests, 9)
	require.Equal(t, waiting, day.Workspaces[0].Requests[8].RequestID)
	code, out, errs = h.run("", "today", "--workspace", "work")
	require.Zero(t, code, errs)
	require.Contains(t, out, "No requests since")
	code, _, errs = h.run("", "today", "--workspace", "other")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no workspace 'other'\nhint: workspaces: personal, work")
	code, _, errs = h.run("", "today", "--since", "yesterday")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "--since \"yesterday\": not a time")
	d.stop()
	check()

	text, err := os.ReadFile(h.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.config, []byte("language = \"it\"\n"+string(text)), 0o600))
	code, out, errs = h.run("", "today")
	require.Zero(t, code, errs)
	require.True(t, strings.HasPrefix(out, "Dalle 00:00 "), out)
}
