package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// A user who cannot read HOME, or a copy of it, learns as which user to run the command.
func TestCommandsWithoutRights(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.logNeedsRoot()
	if !v.root {
		return
	}
	d := v.startServing()
	d.stop()
	dir := filepath.Join(v.dir, "public")
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.Chmod(dir, 0o777))
	const why = `^permesso: this user cannot read .*/home: permission denied\nhint: run it as the daemon's user \(UID 900\), or as root\n$`
	for _, mode := range []os.FileMode{0o700, 0o755} { // of HOME; its keys are private
		require.NoError(t, os.Chmod(v.layout.Home, mode))
		for _, args := range [][]string{
			{"backup", filepath.Join(dir, "copy")},
			{"restore", "--check", v.layout.Home},
			{"audit", "witness", "--to", filepath.Join(dir, "witness")},
			{"audit", "checkpoint"},
		} {
			code, _, errs := v.runAs(uidStranger, append(args, "--home", v.layout.Home)...)
			require.Equal(t, console.ExitError, code, args)
			require.Regexp(t, why, errs, args)
		}
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is left")
}
