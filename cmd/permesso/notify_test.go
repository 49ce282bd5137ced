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

	"github.com/permesso-dev/permesso/ipc"
)

// manager is a service manager's end of sd_notify(3).
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T) (*manager, string) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{t, conn}, "NOTIFY_SOCKET=" + path
}

// next is the next message; ok is false when none comes for so long.
func (m *manager) next(within time.Duration) (message string, ok bool) {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(within)))
	b := make([]byte, 4096)
	n, err := m.conn.Read(b)
	return string(b[:n]), err == nil
}

// until gives the first message that begins so.
func (m *manager) until(begin string) string {
	m.t.Helper()
	for {
		message, ok := m.next(patience)
		require.True(m.t, ok, "no %s", begin)
		if strings.HasPrefix(message, begin) {
			return message
		}
	}
}

func TestNotify(t *testing.T) {
	m, socket := newManager(t)
	h := newPlace(t, "default", "# nothing\n")
	d := h.serve(socket, "WATCHDOG_USEC=400000")
	ready := m.until("READY=1")
	require.Equal(t, "READY=1\nSTATUS=serving 1 workspaces", ready)
	for range 3 {
		m.until("WATCHDOG=1")
	}
	// A reload: the time is that of the monotonic clock, as Type=notify-reload demands.
	var before, after unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &before))
	d.signal(syscall.SIGHUP)
	reloading := strings.TrimSpace(m.until("RELOADING=1"))
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &after))
	usec, err := strconv.ParseInt(strings.TrimPrefix(reloading, "RELOADING=1\nMONOTONIC_USEC="), 10, 64)
	require.NoError(t, err, reloading)
	require.GreaterOrEqual(t, usec, before.Nano()/1000)
	require.LessOrEqual(t, usec, after.Nano()/1000)
	m.until("READY=1")

	h.edit("][")
	m.until("RELOADING=1")
	require.Contains(t, m.until("READY=1"), "degraded: 1 issue,")
	h.edit("# nothing\n")
	require.Contains(t, m.until("READY=1"), "serving 1")

	code, _, stderr := h.run("", "pause")
	require.Equal(t, exitOK, code, stderr)
	m.until("STATUS=paused: nothing runs")
	d.stop()
	m.until("STOPPING=1")
}

// A gate that hangs gets no more time: every worker is stuck in a file that
// never opens.
func TestWatchdogOfAGateThatHangs(t *testing.T) {
	m, socket := newManager(t)
	h := newPlace(t, "a", "[workspaces.a]\n[workspaces.b]\n")
	d := h.serve(socket, "WATCHDOG_USEC=600000")
	m.until("READY=1")
	m.until("WATCHDOG=1")
	// One workspace alone does not stop the others, so it does not stop the dog.
	h.stick("a")
	for range 3 {
		m.until("WATCHDOG=1")
	}
	h.stick("b")
	d.awaitLog("gate is not making progress")
	for silent := false; !silent; { // what was sent before
		_, ok := m.next(900 * time.Millisecond)
		silent = !ok
	}
	require.Contains(t, fmt.Sprint(h.healthReport()), "gate is not making progress")
	d.kill()
}

// stick puts more files into a workspace than there are workers, and none of
// them can be opened by a reader: nobody writes.
func (h *place) stick(ws string) {
	h.t.Helper()
	for i := range workersOfAGate {
		name := filepath.Join(h.layout.Pendings(ws), fmt.Sprintf("%016x.json", i+1))
		require.NoError(h.t, unix.Mkfifo(name, 0o600))
	}
}

// workersOfAGate is as many moves as a gate makes at once.
const workersOfAGate = 128

func (h *place) healthReport() healthReport {
	return (&instance{fs: ipc.OS(), layout: h.layout}).healthOf(time.Now())
}
