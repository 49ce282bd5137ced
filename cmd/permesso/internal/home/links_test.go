package home

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Resolve agrees with the kernel for what exists, and follows links to what does not.
func TestResolve(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("project/src"), 0o700))
	require.NoError(t, os.WriteFile(at("project/src/a.go"), nil, 0o600))
	for name, to := range map[string]string{
		"project/etc": "/etc", "project/up": "..", "project/new": at("outside/file"), "project/rel": "src/a.go",
		"project/loop": "loop", "project/chain": "rel", "project/dot": "src/../src/./a.go", "src": "project/src",
	} {
		require.NoError(t, os.Symlink(to, at(name)))
	}
	for name, want := range map[string]string{
		"project/src/a.go": at("project/src/a.go"), "project/src/new.go": at("project/src/new.go"), "project/x/y/z": at("project/x/y/z"),
		"project/rel": at("project/src/a.go"), "project/chain": at("project/src/a.go"), "project/dot": at("project/src/a.go"),
		"project/new": at("outside/file"), "project/up": dir, "project/up/other": at("other"), "src/../up": dir,
		"project/etc/passwd": "/etc/passwd", "project/src/../../x": at("x"), "src/..": at("project"), "project/./src//a.go/": at("project/src/a.go"),
		"project/loop": "", "project/gone/../etc": "", "project/src/a.go/../b": "", "project/rel/../x": "", "project/src/a.go/x": "",
	} {
		got, err := Resolve(dir + "/" + name)
		require.Equal(t, want == "", err != nil, "%s: %v", name, err)
		require.Equal(t, want, got, name)
		if real, err := filepath.EvalSymlinks(dir + "/" + name); err == nil {
			require.Equal(t, real, got, name)
		}
	}
	_, err = Resolve("relative")
	require.Error(t, err)
	for _, name := range []string{"/proc/self/root" + dir, "/proc/self/cwd", "/proc/1/exe", "/proc/self"} {
		_, err = Resolve(name)
		require.Error(t, err, name)
	}
	require.NoError(t, os.Symlink("/proc/self/root", at("project/root")))
	_, err = Resolve(at("project/root") + dir)
	require.Error(t, err)
}
