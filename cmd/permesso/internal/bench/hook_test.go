package bench

import (
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const hookConfig = `listen = ""
ui = false
[workspaces.default]
[tools.Bash]
trust = false
handler = { kind = "agent" }
args = { command = "command", cwd = "path" }
`

// BenchmarkHook measures the complete process of a hook, for a call that a rule allows: an agent waits for it before each
// call. Its unit is the start of the program.
func BenchmarkHook(b *testing.B) {
	b.Run("a hook for an allowed call, median", func(b *testing.B) {
		r := newRig(b)
		r.daemon(hookConfig)
		var took, start []time.Duration
		for n := 0; b.Loop(); n++ {
			start = append(start, timeProgram(b, "--version"))
			took = append(took, r.timeHook(n))
		}
		reportMS(b, "", quantile(took[min(1, len(took)-1):], 0.5), "<=25") // the first one waits for the daemon's start
		report(b, "as often as the start of the program", float64(quantile(took, 0.5))/float64(quantile(start, 0.5)), "x", "<=4")
	})
}

func (r *rig) timeHook(n int) time.Duration {
	cmd := osexec.Command(bin, "hook", "codex", "--home", r.Layout.Home, "--config", r.configFile())
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+r.Layout.Home)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"session_id":"s","cwd":"/","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"make"},"tool_use_id":"%d"}`, n))
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	require.NoError(r.b, err, "%s", out)
	return took
}
