package client

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOtherLanguages runs the tests of the other clients that need no gate: offline.py
// and offline.mjs. TestFourClients tests them with a gate.
func TestOtherLanguages(t *testing.T) {
	lib, err := filepath.Abs("python")
	require.NoError(t, err)
	for _, row := range []struct {
		language, hint string
		argv           []string
	}{
		{"Python", "apt-get install python3", []string{"python3", "-W", "error", "../../testdata/rest/offline.py"}},
		{"JavaScript", "apt-get install nodejs", []string{"node", "../../testdata/rest/offline.mjs"}},
	} {
		t.Run(row.language, func(t *testing.T) {
			t.Parallel()
			_, err := exec.LookPath(row.argv[0])
			require.NoError(t, err, "%s is needed\nhint: make deps installs it, or: %s", row.argv[0], row.hint)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, row.argv[0], row.argv[1:]...)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+lib, "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Empty(t, string(out))
		})
	}
}
