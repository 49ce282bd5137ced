package receipt_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/receipt"
)

// Check reports errors of both halves, and repairs nothing.
func TestCheck(t *testing.T) {
	other := t.TempDir()
	_, err := receipt.LoadOrCreate(ipc.OS(), other, "other")
	require.NoError(t, err)
	otherPublic, err := os.ReadFile(filepath.Join(other, "signing.pub"))
	require.NoError(t, err)
	for _, row := range []struct {
		why, says string
		damage    func(private, public string) error
	}{
		{"unchanged", "", func(string, string) error { return nil }},
		{"no private half", "signing.key", func(private, _ string) error { return os.Remove(private) }},
		{"no public half", "signing.pub", func(_, public string) error { return os.Remove(public) }},
		{"another key's public half", "is not the public key of", func(_, public string) error { return os.WriteFile(public, otherPublic, 0o644) }},
		{"a private half that all users read", "is accessible to other users", func(private, _ string) error { return os.Chmod(private, 0o644) }},
		{"a public half that other users can change", "is accessible to other users", func(_, public string) error { return os.Chmod(public, 0o666) }},
		{"not a key", "signing.key", func(private, _ string) error { return os.WriteFile(private, []byte("key\n"), 0o600) }},
	} {
		t.Run(row.why, func(t *testing.T) {
			dir := t.TempDir()
			_, err := receipt.LoadOrCreate(ipc.OS(), dir, "home")
			require.NoError(t, err)
			private, public := filepath.Join(dir, "signing.key"), filepath.Join(dir, "signing.pub")
			require.NoError(t, row.damage(private, public))
			before, err := os.ReadDir(dir)
			require.NoError(t, err)
			err = receipt.Check(ipc.OS(), dir)
			if row.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.says)
			require.True(t, hints.Of(err) != "" || errors.Is(err, receipt.ErrNoKey))
			after, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}
