package home

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

const firstConfig = `[workspaces.w]
[tools.post]
capability = "channel:out"
target = "{to}"
action_type = "send_message"
args = { to = "text" }
handler = { kind = "none" }
[tools.ping]
action_type = "send_message"
trust = false
handler = { kind = "none" }
`

// firstGrants are grants as version 1 wrote them, by what the log says of them; "": nothing.
func firstGrants() map[string]string {
	body := func(id, rest string) string {
		return `{"version":1,"id":"` + id + `","workspace":"w","client_id":"ws:w","session_id":"","exact":"","channel":"",` +
			`"sender":"","by":"operator:root","by_id":"local:0","via":"cli","reason":"code 6 on ` + id[:8] + `",` +
			`"created_at":"2026-11-22T19:35:07Z",` + rest + `,"max_uses":0}`
	}
	const live = `"expires_at":"2999-01-01T00:00:00Z"`
	return map[string]string{
		body("a1a1a1a1a1a1a1a1", live+`,"kind":"grant","capability":"channel:out","target_kind":"exact","target":"it's x"`): `permesso grant add --workspace 'w' --tool post --target 'it'\''s x'`,
		body("b2b2b2b2b2b2b2b2", live+`,"kind":"allow_rule","action_type":"send_message"`): `permesso grant add --workspace 'w' --tool ping; ` +
			`permesso grant add --workspace 'w' --client 'ws:w' --action-type 'send_message'`,
		body("c3c3c3c3c3c3c3c3", live+`,"kind":"allow_rule","action_type":"exec_cmd"`):                        "an approver gives it with the next request",
		body("d4d4d4d4d4d4d4d4", live+`,"kind":"session_allow","action_type":"x","added_later":1`):            "an approver gives it with the next request",
		body("e5e5e5e5e5e5e5e5", `"expires_at":"2026-11-23T00:00:00Z","kind":"allow_rule","action_type":"x"`): "",
	}
}

// newHome makes a home with this configuration.
func newHome(t *testing.T, config string) (*Home, *Keys) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "permesso.toml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	a := &console.Console{Env: func(string) string { return "" }, ConfigFlag: file, HomeFlag: filepath.Join(dir, "home")}
	h, err := Load(a)
	require.NoError(t, err)
	require.NoError(t, h.Layout.PrepareHome(h.FS))
	k, err := h.MakeKeys()
	require.NoError(t, err)
	return h, k
}

// Grants of version 1 allow nothing, are revoked once, and the log says how to give them
// anew.
func TestGrantsOfVersionOneAreRevokedOnce(t *testing.T) {
	h, k := newHome(t, firstConfig)
	all := firstGrants()
	for body := range all {
		_, rest, _ := strings.Cut(body, `"id":"`)
		require.NoError(t, h.sealGrant(k, rest[:16], []byte(body), store.Durable))
	}

	start := func(audit func(event.Entry) error) string {
		var log bytes.Buffer
		m, err := h.NewMemory(k, zerolog.New(&log))
		require.NoError(t, err)
		require.Empty(t, m.Grants(), "they allow nothing, whether revoked or not")
		m.Audit = func(e event.Entry) error {
			if err := audit(e); err != nil {
				return err
			}
			m.Observe(e)
			return nil
		}
		_ = m.ApplyChanges(time.Now()) // fails only with audit
		return log.String()
	}
	// Killed after the first file was replaced, and before its entry was durable.
	logged := start(func(event.Entry) error { return errors.New("killed") })
	revoked := map[string]int{}
	count := func(e event.Entry) error {
		require.Equal(t, event.Revoked, e.Event)
		require.Equal(t, earlierVersion, e.By)
		revoked[e.Grant]++
		return nil
	}
	logged += start(count)
	require.Len(t, revoked, len(all))
	for body, anew := range all {
		if anew != "" {
			quoted := strings.ReplaceAll(anew, `\`, `\\`)
			require.Contains(t, logged, `"anew":"`+quoted+`"`, body)
		}
	}
	require.Equal(t, 4, strings.Count(logged, "grant of an earlier version revoked"), logged)
	for id, n := range revoked {
		require.Equal(t, 1, n, id)
		b, err := h.Store.Read(t.Context(), approval.DocGrant, grant.Key(id))
		require.NoError(t, err)
		body, err := k.Seal.Open(approval.DocGrant, grant.Key(id), b)
		require.NoError(t, err)
		g, err := grant.ParseFirst(body, id)
		require.NoError(t, err)
		require.False(t, g.RevokedAt.IsZero())
	}
}
