package config_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	flag := write(t, filepath.Join(dir, "flag.toml"), "")
	named := write(t, filepath.Join(dir, "env.toml"), "")
	inXDG := write(t, filepath.Join(dir, "xdg/permesso/permesso.toml"), "")
	inHome := write(t, filepath.Join(dir, "home/.config/permesso/permesso.toml"), "")
	xdg, home := filepath.Join(dir, "xdg"), filepath.Join(dir, "home")

	for _, row := range []struct {
		why, flag string
		env       func(string) string
		want      string
	}{
		{"the flag beats all", flag, env("PERMESSO_CONFIG", named, "XDG_CONFIG_HOME", xdg, "HOME", home), flag},
		{"then the variable", "", env("PERMESSO_CONFIG", named, "XDG_CONFIG_HOME", xdg, "HOME", home), named},
		{"then the XDG folder", "", env("XDG_CONFIG_HOME", xdg, "HOME", home), inXDG},
		{"then the user's home", "", env("HOME", home), inHome},
		{"a relative XDG folder is ignored", "", env("XDG_CONFIG_HOME", "xdg", "HOME", home), inHome},
		{"no default file is fine", "", env("HOME", dir), ""},
		{"no home is fine", "", env(), ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			got, err := config.Locate(row.flag, row.env)
			require.NoError(t, err)
			require.Equal(t, row.want, got)
		})
	}
}

func TestLocateRefuses(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone.toml")
	_, err := config.Locate(gone, env())
	require.Equal(t, gone+": no such file or directory\nhint: check --config, or leave it out", printed(err))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = config.Locate("", env("PERMESSO_CONFIG", gone))
	require.Equal(t, gone+": no such file or directory\nhint: check PERMESSO_CONFIG, or unset it", printed(err))

	file := write(t, filepath.Join(dir, "file"), "")
	_, err = config.Locate("", env("XDG_CONFIG_HOME", file))
	require.Error(t, err, "an unreadable file must not count as missing: its rules would be ignored silently")

	dangling := filepath.Join(dir, "xdg/permesso/permesso.toml")
	require.NoError(t, os.MkdirAll(filepath.Dir(dangling), 0o700))
	require.NoError(t, os.Symlink(gone, dangling))
	path, err := config.Locate("", env("XDG_CONFIG_HOME", filepath.Join(dir, "xdg")))
	require.NoError(t, err)
	_, err = config.Reader{}.Load(path)
	require.ErrorIs(t, err, fs.ErrNotExist, "a dangling link is an error, not a missing file")
}

func TestLocateHome(t *testing.T) {
	cwd, err := os.Getwd()
	require.NoError(t, err)
	for _, row := range []struct {
		why, flag string
		env       func(string) string
		want      string
	}{
		{"the flag beats all", "/flag", env("PERMESSO_HOME", "/env", "XDG_STATE_HOME", "/xdg"), "/flag"},
		{"then the variable", "", env("PERMESSO_HOME", "/env", "XDG_STATE_HOME", "/xdg"), "/env"},
		{"then the XDG folder", "", env("XDG_STATE_HOME", "/xdg", "HOME", "/home/ann"), "/xdg/permesso"},
		{"then the user's home", "", env("HOME", "/home/ann"), "/home/ann/.local/state/permesso"},
		{"the path is absolute, as permesso mounts needs it", "state", env(), filepath.Join(cwd, "state")},
	} {
		t.Run(row.why, func(t *testing.T) {
			got, err := config.LocateHome(row.flag, row.env)
			require.NoError(t, err)
			require.Equal(t, row.want, got)
		})
	}
	_, err = config.LocateHome("", env())
	require.Equal(t, "permesso: no state folder: HOME is not set\nhint: use --home DIR, or set PERMESSO_HOME", printed(err))
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	c, err := config.Reader{}.Load("")
	require.NoError(t, err)
	require.Equal(t, config.Default(), c, "no file: the built-in configuration")

	path := write(t, filepath.Join(dir, "p.toml"), "gate = \"g\"")
	c, err = config.Reader{}.Load(path)
	require.NoError(t, err)
	require.Equal(t, path, c.File)
	require.Equal(t, "g", c.GateName)

	require.NoError(t, os.Chmod(path, 0o666))
	c, err = config.Reader{}.Load(path)
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
	require.Equal(t, path+": every user of this machine may change this file, and so who may approve\nhint: chmod o-w "+path, printed(c.Warnings[0].Format(path)))

	write(t, path, "gat = \"g\"")
	c, err = config.Reader{}.Load(path)
	require.Equal(t, path+":1:1: unknown key \"gat\"\nhint: did you mean \"gate\"?", printed(err))
	require.Nil(t, c)

	_, err = config.Reader{}.Load(dir)
	require.Equal(t, dir+": is a folder, not a file", printed(err))
	_, err = config.Reader{}.Load(filepath.Join(dir, "gone"))
	require.Equal(t, filepath.Join(dir, "gone")+": no such file or directory\nhint: permesso init creates one", printed(err))
}
