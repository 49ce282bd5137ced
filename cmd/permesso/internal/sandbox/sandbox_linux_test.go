package sandbox

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/ipc"
)

func TestMain(m *testing.M) {
	exec.SuperviseIfAsked()
	if len(os.Args) == 3 && os.Args[1] == "run-agent" {
		_ = runAgent(context.Background(), os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// runAgent runs an agent that never ends. Its command line contains dir.
func runAgent(ctx context.Context, dir string) error {
	s := Find(ctx, "/bin/true", dir, ipc.Layout{Home: dir}, nil)
	return s.Run(ctx, io.Discard, "sleep 1000 # "+dir)
}

// withFilter returns a sandbox whose filter is in dir.
func withFilter(t *testing.T, dir string) Sandbox {
	l := ipc.Layout{Home: dir}
	require.NoError(t, WriteFilter(l))
	s := Find(t.Context(), "/bin/true", dir, l, nil)
	require.Empty(t, s.Why)
	return s
}

// kills is the number of kills: a few, or many in the long form.
func kills() int {
	if os.Getenv("PERMESSO_SOAK") != "" {
		return 400
	}
	return 15
}

// agents lists the processes whose command line contains dir.
func agents(t *testing.T, dir string) (pids []int) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && bytes.Contains(b, []byte(dir)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// An agent ends with Run, at whatever moment Run is cancelled.
func TestNoAgentOutlivesRun(t *testing.T) {
	for range kills() {
		dir := t.TempDir()
		s := withFilter(t, dir)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(12_000))*time.Microsecond)
		require.Error(t, s.Run(ctx, io.Discard, "sleep 1000 # "+dir))
		cancel()
		require.Empty(t, agents(t, dir))
	}
}

// An agent ends with its program, at whatever moment the program is killed.
func TestNoAgentOutlivesItsProgram(t *testing.T) {
	for range kills() {
		dir := t.TempDir()
		withFilter(t, dir)
		cmd := osexec.Command("/proc/self/exe", "run-agent", dir)
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(rand.IntN(60_000)) * time.Microsecond) // the moment of the kill
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		for left := agents(t, dir); len(left) > 0; left = agents(t, dir) {
			requireGone(t, left[0])
		}
	}
}

// requireGone waits for the end of a process that is not a child of the test.
func requireGone(t *testing.T, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone already
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	require.NoError(t, err)
	require.Equal(t, 1, n, "process %d is still running", pid)
}
