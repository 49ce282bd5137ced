package bench

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/mcp/mcptest"
)

const mcpConfig = `listen = ""
ui = false
[workspaces.default]
limits = { pending = 2000, ask_per_minute = 100000, per_minute = 100000 }
[tools."mcp.test.echo"]
trust = false
args = { text = "text" }
handler = { kind = "agent" }
`

// BenchmarkMCP measures what the gateway adds to a call that policy allows, and what calls that wait need.
func BenchmarkMCP(b *testing.B) {
	b.Run("MCP gateway: added to an allowed call, median", func(b *testing.B) {
		r := newRig(b)
		r.daemon(mcpConfig)
		direct, through := r.connectMCP(serverCommand(b)), r.connectMCP(r.gatewayCommand(b))
		callMCP(b, through, "echo", 0) // the first one waits for the daemon's start
		var took [2][]time.Duration
		for n := 0; b.Loop(); n++ {
			took[0] = append(took[0], callMCP(b, direct, "echo", n))
			took[1] = append(took[1], callMCP(b, through, "echo", n))
		}
		reportU(b, "", quantile(took[1], 0.5)-quantile(took[0], 0.5), "<=3")
	})
	b.Run("MCP gateway: memory (RSS) with 1,000 waiting calls", func(b *testing.B) {
		r := newRig(b)
		r.daemon(mcpConfig)
		cmd := r.gatewayCommand(b)
		s := r.connectMCP(cmd)
		callMCP(b, s, "echo", 0)
		before := residentMB(b, cmd.Process.Pid)
		for n := range 1000 {
			go func() {
				_, _ = s.CallTool(b.Context(), &mcp.CallToolParams{Name: "record", Arguments: map[string]any{"text": fmt.Sprint(n)}})
			}()
		}
		pending := filepath.Join(r.Layout.Workspace(workspace), "pending_approvals", "*.json")
		for found, deadline := 0, time.Now().Add(2*time.Minute); found < 1000; {
			files, err := filepath.Glob(pending)
			require.NoError(b, err)
			found = len(files)
			require.Less(b, time.Now(), deadline, "%d are waiting", found)
			time.Sleep(100 * time.Millisecond)
		}
		for b.Loop() {
			time.Sleep(3 * time.Second)
			report(b, "", residentMB(b, cmd.Process.Pid)-before, "MB", "<=40")
		}
	})
}

func serverCommand(b *testing.B) *osexec.Cmd {
	argv := mcptest.Argv(b.TempDir())
	return osexec.Command(argv[0], argv[1:]...)
}

func (r *rig) gatewayCommand(b *testing.B) *osexec.Cmd {
	cmd := osexec.Command(bin, append([]string{"mcp", "proxy", "--server", "test", "--hold", "10m", "--home", r.Layout.Home, "--config", r.configFile(), "--"}, mcptest.Argv(b.TempDir())...)...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(r.Layout.Home, "agent"))
	return cmd
}

func (r *rig) connectMCP(cmd *osexec.Cmd) *mcp.ClientSession {
	s, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(context.Background(), &mcp.CommandTransport{Command: cmd}, nil)
	require.NoError(r.b, err)
	r.b.Cleanup(func() { _ = cmd.Process.Kill(); _ = s.Close() })
	return s
}

func callMCP(b *testing.B, s *mcp.ClientSession, tool string, n int) time.Duration {
	began := time.Now()
	r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": fmt.Sprint(n)}})
	took := time.Since(began)
	require.NoError(b, err)
	require.False(b, r.IsError)
	return took
}
