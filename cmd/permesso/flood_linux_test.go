package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
)

const floodConfig = `
listen = ""
ui = false
[workspaces.noisy]
%s
[workspaces.quiet]
limits = { per_minute = 100000 }
[tools.say]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
handler = { kind = "command", argv = ["/bin/true"] }
[tools.never]
trust = false
target = "{text}"
args = { text = "text" }
[[rules]]
match = { tool = "say" }
outcome = "allow"
[[rules]]
match = { tool = "never" }
outcome = "deny"
`

// refusals are requests that are refused, each in another way, and each as large as it may be.
func refusals(size int) []string {
	fill := func(form string) string {
		return strings.Replace(form, "FILL", strings.Repeat("x", size-len(form)-64), 1) // room for the id
	}
	metadata := `"metadata":{"m":"` + strings.Repeat("m", 4000) + `"}`
	return []string{
		fill(`{"request_id":ID,"tool_name":"never","request_data":{"text":"FILL"}}`),
		fill(`{"request_id":ID,"tool_name":"never",` + metadata + `,"request_data":{"text":"FILL"}}`),
		fill(`{"request_id":ID,"tool_name":"unknown","request_data":{"text":"FILL"}}`),
		fill(`{"request_id":ID,"tool_name":"say","request_data":{"FILL":1}}`),
		fill(`{"request_id":ID,"tool_name":"say","unknown":"FILL"}`),
		fill(`["FILL"]`),
	}
}

// flood is a daemon with a workspace whose agent writes one refused request after the other.
type flood struct {
	*rig
	daemon *daemonProcess
	sent   int
	last   string // id
	body   []byte // of the last one
}

func newFlood(t *testing.T, limits string) *flood {
	f := &flood{rig: newRig(t, "noisy", fmt.Sprintf(floodConfig, limits))}
	f.plain = true
	f.daemon = f.serve()
	f.daemon.awaitLog(`"serving"`)
	return f
}

// send writes requests while more is true. It leaves no more than a few untaken: what lies in the
// folder is the agent's own.
func (f *flood) send(bodies []string, more func() bool) {
	for ; more(); f.sent++ {
		if f.sent%32 == 0 {
			await(f.t, f.agent.Requests, func() bool {
				names, err := os.ReadDir(f.agent.Requests)
				return err == nil && len(names) < 64 || !more()
			})
		}
		f.last = client.NewID()
		f.body = []byte(strings.Replace(bodies[f.sent%len(bodies)], "ID", `"`+f.last+`"`, 1))
		require.NoError(f.t, f.agent.Submit(f.last, f.body))
	}
}

// serveQuiet makes requests of the other workspace until the returned function is called, which
// returns how many were served.
func (f *flood) serveQuiet() (stop func() int) {
	agent := client.Files{Requests: f.layout.Requests("quiet"), Responses: f.layout.Responses("quiet")}
	var ended atomic.Bool
	served, failed := make(chan int, 1), make(chan error, 1)
	go func() {
		n := 0
		for ; !ended.Load(); n++ {
			id := client.NewID()
			err := agent.Submit(id, fmt.Appendf(nil, `{"request_id":%q,"tool_name":"say"}`, id))
			if err == nil {
				ctx, cancel := context.WithTimeout(f.t.Context(), testTimeout)
				var r *approval.Response
				if r, err = agent.Await(ctx, client.Submitted{ID: id}); err == nil && r.Status != approval.StatusAutoApproved {
					err = fmt.Errorf("%s: %v", r.Status, r.Error)
				}
				cancel()
			}
			if err != nil {
				failed <- err
				break
			}
		}
		served <- n
	}()
	return func() int {
		ended.Store(true)
		n := <-served
		select {
		case err := <-failed:
			require.NoError(f.t, err, "the other workspace is served throughout: %d times", n)
		default:
		}
		return n
	}
}

// onDisk is what folders take, as du says.
func onDisk(t testing.TB, folders ...string) (all int64) {
	for _, dir := range folders {
		require.NoError(t, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil {
				all += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return err
		}))
	}
	return all
}

// left stops the daemon, prunes, and returns what HOME takes before and after, without the
// journal, whose size is fixed, and without what the other workspace left: that is its own budget.
func (f *flood) left() (before, after int64) {
	f.daemon.stop()
	l := f.layout
	size := func() int64 {
		return onDisk(f.t, l.Home) - onDisk(f.t, l.Journal(), l.Workspace("quiet"), l.Records("quiet"), l.Errors("quiet"), l.Receipts("quiet"))
	}
	before = size()
	code, out, errs := f.run("", "prune")
	require.Equal(f.t, console.ExitOK, code, errs)
	f.t.Log(strings.TrimSpace(out))
	after = size()
	code, _, errs = f.run("", "audit", "verify")
	require.Equal(f.t, console.ExitOK, code, errs)
	f.t.Logf("%d refused requests: %d KiB, after a prune %d KiB, of which the log %d KiB", f.sent, before>>10, after>>10, onDisk(f.t, f.layout.Audit())>>10)
	return before, after
}

// An agent writes refused requests as fast as it can. They leave little, and the other workspace
// is served throughout.
func TestFloodOfRefusals(t *testing.T) {
	t.Parallel()
	const size, budget = 256 << 10, 16 << 20
	f := newFlood(t, `limits = { stored = "16MiB", per_minute = 100000 }`)
	stop := f.serveQuiet()
	until := func(n int) func() bool { return func() bool { return f.sent < n } }
	f.send(refusals(size), until(150))
	r := f.response(f.last)
	require.Equal(t, approval.Digest(f.body), r.RequestSHA256)
	require.NotEmpty(t, *r.Error)
	f.send(refusals(8 << 10)[1:2], until(1150)) // of 20 KiB each: more than the budget
	r = f.response(f.last)
	require.Equal(t, approval.Digest(f.body), r.RequestSHA256)
	require.NotZero(t, stop())
	before, after := f.left()
	require.Less(t, before, int64(budget+8<<20), "with the log, and what is under way")
	require.Less(t, after, int64(budget))
	b, err := os.ReadFile(filepath.Join(f.layout.Audit(), "log.jsonl"))
	require.NoError(t, err)
	require.True(t, bytes.Contains(b, []byte("to make room: limits.stored")), "the budget was reached")
	require.Less(t, len(b)/f.sent, 1<<10, "bytes of the log for a request, those of the other workspace included")
}

// The same for a minute, with the default limits and with the largest.
func TestFloodOfRefusalsForAMinute(t *testing.T) {
	if os.Getenv("PERMESSO_SOAK") == "" {
		t.Skip("a minute: make soak")
	}
	for _, limits := range []string{"", "limits = { per_minute = 100000 }"} {
		f := newFlood(t, limits)
		began := time.Now()
		stop := f.serveQuiet()
		f.send(refusals(256<<10), func() bool { return time.Since(began) < time.Minute })
		t.Logf("%d requests of the other workspace were served", stop())
		before, after := f.left()
		journal := onDisk(t, f.layout.Journal())
		require.Less(t, before+journal, int64(300<<20), limits)
		require.Less(t, after+journal, int64(256<<20), limits)
	}
}
