package hook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/client"
)

// A request that no daemon takes is given up, and cancelled for the daemon that comes later.
func TestNoDaemonTakesIt(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"requests", "responses"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	a, _ := AgentNamed("codex")
	h := Hook{Agent: a, Gate: client.Files{Requests: dir + "/requests", Responses: dir + "/responses"}, Notice: 50 * time.Millisecond}
	x := h.Run(t.Context(), strings.NewReader(`{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"id"},"session_id":"s","tool_use_id":"u"}`))
	require.Equal(t, Deny, x.Exit)
	require.Empty(t, x.Out)
	require.Contains(t, x.Reason, "no answer from the gate: no daemon has taken ")
	files, err := os.ReadDir(dir + "/requests")
	require.NoError(t, err)
	require.Len(t, files, 2)
	require.Equal(t, strings.TrimSuffix(files[1].Name(), ".json"), strings.TrimSuffix(files[0].Name(), ".cancel"))
}

// A person has the time that hook install was told, or else nearly the agent's own.
func TestTimeOfAPerson(t *testing.T) {
	for _, row := range []struct {
		agent        string
		timeout      time.Duration
		within, hold time.Duration
	}{
		{"claude-code", 0, 10*time.Minute - Spare, 10*time.Minute - margin},
		{"codex", time.Hour + Spare, time.Hour, time.Hour + Spare - margin}, // as hook install writes it for an hour
		{"codex", Spare + margin, margin, Spare},
		{"codex", 20 * time.Second, 20*time.Second - margin, 20*time.Second - margin}, // too short for the spare time
		{"codex", time.Second, time.Second, time.Second},
	} {
		a, _ := AgentNamed(row.agent)
		g := &scripted{answers: []approval.Response{approved("")}}
		h := Hook{Agent: a, Gate: g, Timeout: row.timeout}
		require.Equal(t, row.hold, h.hold(), row.timeout)
		x := h.Run(t.Context(), strings.NewReader(`{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"id"},"session_id":"s","tool_use_id":"u"}`))
		require.Equal(t, Allow, x.Exit, x.Reason)
		require.Equal(t, int64(row.within/time.Second), g.asked[0].ExpiresInSec, row.timeout)
	}
}

// Calls that differ in anything that a person sees are different requests; the same one is the same.
func TestSameCall(t *testing.T) {
	id := func(event string) string {
		c, err := parse([]byte(event))
		require.NoError(t, err)
		return c.id("codex")
	}
	base := `{"session_id":"s","tool_name":"Bash","tool_input":{"command":"id"},"tool_use_id":"u","turn":1}`
	require.Equal(t, id(base), id(strings.Replace(base, `"turn":1`, `"turn":2`, 1)))
	for _, change := range [][2]string{{`"s"`, `"t"`}, {"Bash", "bash"}, {`"id"`, `"id "`}, {`"u"`, `"v"`}, {`,"tool_use_id":"u"`, ""}} {
		require.NotEqual(t, id(base), id(strings.Replace(base, change[0], change[1], 1)), change)
	}
	without := strings.Replace(base, `,"tool_use_id":"u"`, "", 1)
	require.NotEqual(t, id(without), id(strings.Replace(without, `"turn":1`, `"turn":2`, 1)), "the event is all there is")
}
