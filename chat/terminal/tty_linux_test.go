package terminal

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openPTY returns both ends of a new pseudo-terminal.
func openPTY(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { user.Close() })
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0))
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { program.Close() })
	return user, program
}

// A poll that took long tells of a stop, unless the terminal was entered meanwhile: then a
// key is one of after the stop.
func TestStoppedSince(t *testing.T) {
	_, program := openPTY(t)
	x, err := openTTY(program)
	require.NoError(t, err)
	require.False(t, x.stoppedSince(time.Now()))
	require.True(t, x.stoppedSince(time.Now().Add(-stopTime)))
	require.NoError(t, x.enter())
	require.False(t, x.stoppedSince(time.Now().Add(-stopTime)))
}

// Two that drop what was typed do not wait for more: after a stop both the reader and the
// signal's handler do, and one that waits would keep every card waiting for a key.
func TestDrainDoesNotWait(t *testing.T) {
	user, program := openPTY(t)
	x, err := openTTY(program)
	require.NoError(t, err)
	require.NoError(t, x.enter())
	for range 2000 {
		_, err := user.WriteString("1\r")
		require.NoError(t, err)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { x.drain() })
		}
		drained := make(chan struct{})
		go func() { both.Wait(); close(drained) }()
		select {
		case <-drained:
		case <-time.After(10 * time.Second):
			_, _ = user.WriteString("\r")
			require.Fail(t, "it waits for a key")
		}
	}
}
