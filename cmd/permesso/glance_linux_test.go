package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// An approver counts the own requests through the socket, without a word about the circumstances.
func TestStatusLineThroughTheSocket(t *testing.T) {
	v := newMultiUserRig(t)
	d := v.startServing()
	v.submitAndAwait("annes")
	v.submitAndAwait("annes")
	v.submitAndAwait("bobs")
	// says awaits a line: a busy machine may need longer for an answer than a prompt waits.
	says := func(uid int, pattern string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			code, out, errs := v.runAs(uid, "status", "--line")
			require.Zero(c, code)
			require.Regexp(c, pattern, out)
			require.Empty(c, errs)
		}, testTimeout, 10*time.Millisecond)
	}
	says(v.ann, `^2 wait, oldest \d+ (s|m)\n$`)
	v.logNeedsRoot()
	if v.root {
		says(uidBob, `^1 waits, oldest \d+ (s|m)\n$`)
		code, out, errs := v.runAs(uidStranger, "status", "--line")
		require.Equal(t, console.ExitRefused, code)
		require.Empty(t, out)
		require.Regexp(t, strangerLine, errs)
	}
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGSTOP))
	says(v.ann, `^daemon silent\n$`)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGCONT))
	d.stop()
	says(v.ann, `^daemon down\n$`)
	require.NoError(t, os.RemoveAll(v.socket))
	says(v.ann, `^daemon down\n$`)
}
