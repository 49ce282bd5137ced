package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// If a key cannot be read, the daemon does not start, prints a hint, and creates no
// new key. A running daemon does not need the file.
func TestUnreadableKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"mac.key", "signing.key"} {
		for _, tc := range []struct {
			why, says string
			damage    func(file string) error
		}{
			{"damaged", "hint: restore it from a backup", func(file string) error { return os.Truncate(file, 7) }},
			{"a folder", "hint: ", func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }},
			{"open to others", "hint: chmod", func(file string) error { return os.Chmod(file, 0o644) }},
		} {
			t.Run(key+" "+tc.why, func(t *testing.T) {
				h := newRig(t, "default", askAll)
				d := h.serve()
				d.awaitLog(`"serving"`)
				file := filepath.Join(h.layout.Keys(), key)
				kept, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, tc.damage(file))
				id := h.ask(`{"tool_name":"say"}`)
				h.awaitPending("default", id)
				d.kill()

				d = h.serve()
				require.Error(t, d.awaitExit())
				require.Equal(t, console.ExitError, d.cmd.ProcessState.ExitCode())
				require.Regexp(t, "permesso: .*(MAC|signing) key", d.logged())
				require.Contains(t, d.logged(), tc.says)

				require.NoError(t, os.RemoveAll(file))
				require.NoError(t, os.WriteFile(file, kept, 0o600))
				d = h.serve()
				d.awaitLog(`"serving"`)
				code, _, stderr := h.run("", "approve", id)
				require.Equal(t, console.ExitOK, code, stderr)
				require.Equal(t, approval.StatusApproved, h.response(id).Status)
				d.stop()
			})
		}
	}
}
