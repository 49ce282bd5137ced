package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

// notifySocket is the service manager's end of sd_notify(3).
type notifySocket struct {
	t    *testing.T
	conn *net.UnixConn
}

func newNotifySocket(t *testing.T) (*notifySocket, string) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &notifySocket{t, conn}, "NOTIFY_SOCKET=" + path
}

// next is the next message; ok is false if none arrives in time.
func (m *notifySocket) next(within time.Duration) (message string, ok bool) {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(within)))
	b := make([]byte, 4096)
	n, err := m.conn.Read(b)
	return string(b[:n]), err == nil
}

// awaitPrefix returns the first message with this prefix.
func (m *notifySocket) awaitPrefix(begin string) string {
	m.t.Helper()
	for {
		message, ok := m.next(testTimeout)
		require.True(m.t, ok, "no %s", begin)
		if strings.HasPrefix(message, begin) {
			return message
		}
	}
}

func TestNotify(t *testing.T) {
	t.Parallel()
	m, socket := newNotifySocket(t)
	h := newRig(t, "default", "# nothing\n")
	d := h.serve(socket, "WATCHDOG_USEC=400000")
	ready := m.awaitPrefix("READY=1")
	require.Equal(t, "READY=1\nSTATUS=serving 1 workspaces", ready)
	for range 3 {
		m.awaitPrefix("WATCHDOG=1")
	}
	// Type=notify-reload requires the time of the monotonic clock.
	var before, after unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &before))
	d.signal(syscall.SIGHUP)
	reloading := strings.TrimSpace(m.awaitPrefix("RELOADING=1"))
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &after))
	usec, err := strconv.ParseInt(strings.TrimPrefix(reloading, "RELOADING=1\nMONOTONIC_USEC="), 10, 64)
	require.NoError(t, err, reloading)
	require.GreaterOrEqual(t, usec, before.Nano()/1000)
	require.LessOrEqual(t, usec, after.Nano()/1000)
	m.awaitPrefix("READY=1")

	h.replaceConfig("][")
	m.awaitPrefix("RELOADING=1")
	require.Contains(t, m.awaitPrefix("READY=1"), "degraded: 1 issue,")
	h.replaceConfig("# nothing\n")
	require.Contains(t, m.awaitPrefix("READY=1"), "serving 1")

	code, _, stderr := h.run("", "pause")
	require.Equal(t, console.ExitOK, code, stderr)
	m.awaitPrefix("STATUS=paused: nothing runs")
	d.stop()
	m.awaitPrefix("STOPPING=1")
}

// A hung daemon sends no more watchdog messages: every worker blocks while it opens
// a FIFO.
func TestWatchdogOfAHungDaemon(t *testing.T) {
	t.Parallel()
	m, socket := newNotifySocket(t)
	h := newRig(t, "a", "[workspaces.a]\n[workspaces.b]\n")
	d := h.serve(socket, "WATCHDOG_USEC=600000")
	m.awaitPrefix("READY=1")
	m.awaitPrefix("WATCHDOG=1")
	// One blocked workspace does not stop the others, nor the watchdog messages.
	h.blockWorkers("a")
	for range 3 {
		m.awaitPrefix("WATCHDOG=1")
	}
	h.blockWorkers("b")
	d.awaitLog("gate is not making progress")
	for silent := false; !silent; { // messages sent before
		_, ok := m.next(900 * time.Millisecond)
		silent = !ok
	}
	require.Contains(t, fmt.Sprint(h.healthReport()), "gate is not making progress")
	d.kill()
}

// blockWorkers puts as many FIFOs into a workspace as there are workers. Opening one
// for reading blocks, because no process writes.
func (h *rig) blockWorkers(ws string) {
	h.t.Helper()
	for i := range gateWorkers {
		name := filepath.Join(h.layout.Pendings(ws), fmt.Sprintf("%016x.json", i+1))
		require.NoError(h.t, unix.Mkfifo(name, 0o600))
	}
}

// gateWorkers is the number of workers of a gate.
const gateWorkers = 128

func (h *rig) healthReport() home.HealthReport {
	return (&home.Home{FS: ipc.OS(), Layout: h.layout}).HealthAt(time.Now())
}
