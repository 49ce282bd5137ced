package exec

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// Ready names what is missing, with its path.
func TestReady(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), mode))
		require.NoError(t, os.Chmod(file, mode))
		return file
	}
	program, plain := put("program", "#!/bin/sh\n", 0o755), put("plain", "x", 0o644)
	secret, open := put("secret", "0123456789\n", 0o600), put("open", "0123456789\n", 0o644)
	none := filepath.Join(dir, "none")
	command := func(dir string, argv ...string) approval.Handler {
		return approval.Handler{Kind: approval.HandlerCommand, Argv: argv, Dir: dir}
	}
	http := func(value, ca string) approval.Handler {
		return approval.Handler{Kind: approval.HandlerHTTP, HTTP: approval.HTTP{SecretHeaders: map[string]string{"X-Key": value}, CAFile: ca}}
	}
	for name, c := range map[string]struct {
		h    approval.Handler
		want string
	}{
		"a program":             {command(dir, program, "{x}"), ""},
		"a program in PATH":     {command("", "sh", "-c", "true"), ""},
		"no program":            {command("", none), "program " + none + ": no such program"},
		"no program in PATH":    {command("", "permesso-none"), "program permesso-none: no such program in PATH"},
		"not executable":        {command("", plain), "program " + plain + ": not executable"},
		"a folder as program":   {command("", dir), "program " + dir + ": not executable"},
		"a device as program":   {command("", "/dev/zero"), "program /dev/zero: not executable"},
		"no argv":               {command(""), "argv is empty"},
		"no folder":             {command(none, program), "working folder: stat " + none + ": no such file or directory"},
		"a file as folder":      {command(plain, program), "working folder: " + plain + ": not a folder"},
		"a secret":              {http("Bearer "+secret, ""), ""},
		"no secret":             {http(none, ""), "secret of header X-Key: " + none + ": no such file or directory"},
		"a secret for everyone": {http(open, ""), "secret of header X-Key: " + open + ": other users can read it; run chmod 600 " + open},
		"a pipe as secret":      {http("/dev/zero", ""), "secret of header X-Key: /dev/zero: not a regular file"},
		"no certificates":       {http(secret, none), "ca_file: " + none + ": no such file or directory"},
		"a server":              {approval.Handler{Kind: approval.HandlerMCP, Argv: []string{program}}, ""},
		"no server":             {approval.Handler{Kind: approval.HandlerMCP, Argv: []string{none}}, "program " + none + ": no such program"},
		"no secret of a server": {approval.Handler{Kind: approval.HandlerMCP, HTTP: approval.HTTP{URL: "https://x.org/", SecretHeaders: map[string]string{"A": none}}}, "secret of header A: " + none + ": no such file or directory"},
		"nothing runs":          {approval.Handler{Kind: approval.HandlerNone, Argv: []string{none}}, ""},
		"no handler":            {approval.Handler{}, ""},
	} {
		err := Ready(c.h)
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, c.want, name)
		}
	}
}
