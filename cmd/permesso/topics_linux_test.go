package main

import (
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// The list of help environment is that of the code.
func TestEnvironmentIsDocumented(t *testing.T) {
	t.Parallel()
	ours := regexp.MustCompile(`PERMESSO_[A-Z_]+|[eE]nv\("([A-Z_]+)"\)|"(XDG_[A-Z_]+)"`)
	internal := []string{"PERMESSO_PROBE_REMOUNT", "PERMESSO_PROBE_SECRET", "PERMESSO_SOAK", "SOURCE_DATE_EPOCH"} // between its own processes, of tests, of the pages' builder
	read := []string{"DBUS_SESSION_BUS_ADDRESS", "PATH", "TMPDIR"}                                                // by libraries
	for _, dir := range []string{"cmd", "ipc", "chat", "approval", "security", "watcher"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "test/") ||
				strings.Contains(path, "/bench/") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range ours.FindAllStringSubmatch(string(b), -1) {
				name := m[1] + m[2]
				if name == "" {
					name = m[0]
				}
				read = append(read, name)
			}
			return err
		})
		require.NoError(t, err)
	}
	slices.Sort(read)
	_, out, _ := runCommand("help", "environment")
	for _, name := range slices.Compact(read) {
		if !slices.Contains(internal, name) {
			require.Regexp(t, `(^|[ ,\n])`+name+`([ ,\n])`, out, "help environment lacks what the code reads")
		}
	}
	for _, name := range regexp.MustCompile(`PERMESSO_[A-Z_]+`).FindAllString(out, -1) {
		require.Contains(t, read, name, "help environment has what no code reads")
	}
}

func TestHelpFiles(t *testing.T) {
	t.Parallel()
	_, out, _ := runCommand("help", "files")
	for _, path := range []string{config.SystemHome, config.SystemFile, config.DefaultSocket, "/permesso/requests", "HOME/keys", "HOME/audit"} {
		require.Contains(t, out, path)
	}
}

var manBinary = builder("man", []string{"CGO_ENABLED=0"}, "-trimpath", "-tags=man")

// Each page has the sections that all have, names each key or command, and is read without a warning.
func TestManPages(t *testing.T) {
	t.Parallel()
	bin, err := manBinary()
	require.NoError(t, err)
	dir := t.TempDir()
	out, err := osexec.Command(bin, "man", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	pages, err := filepath.Glob(filepath.Join(dir, "*.[15]"))
	require.NoError(t, err)
	require.Greater(t, len(pages), 80)
	for _, page := range pages {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		text := string(b)
		if strings.HasSuffix(page, ".1") {
			for _, section := range []string{"EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"} {
				require.Equal(t, 1, strings.Count(text, "\n.SH "+section+"\n"), "%s: section %s", page, section)
			}
			require.Contains(t, text, "permesso.toml(5)", page)
		} else {
			require.Regexp(t, `(?s)\n\.SH ENVIRONMENT\n.*\n\.SH FILES\n.*\n\.SH SEE ALSO\n`, text)
		}
		require.Regexp(t, `(?m)^\.TH \S+ "?[15]"? "?\d{4}-\d\d-\d\d"? `, text, "%s: a date that every reader of pages knows", page)
		require.NotContains(t, text, "\n\t", "%s: a tab in filled text", page)
		require.NotRegexp(t, `\n\.SH [^\n]*\n\.PP\n`, text, "%s: a paragraph without a text", page)
		for n, line := range strings.Split(text, "\n") {
			require.NotRegexp(t, `^[.'](?:$|[^A-Za-z\\])|^\.[a-z]{3,}`, line, "%s:%d: a request that is none", page, n+1)
		}
	}
	top, err := os.ReadFile(filepath.Join(dir, "permesso.1"))
	require.NoError(t, err)
	for _, c := range (&app{&console.Console{Env: func(string) string { return "" }}}).root().Commands() {
		if c.IsAvailableCommand() {
			require.Contains(t, string(top), ".B "+strings.ReplaceAll(c.Name(), "-", `\-`)+"\n")
		}
	}
	man, err := osexec.LookPath("groff") // make deps installs it
	require.True(t, err == nil || os.Getenv("CI") == "", err)
	if err == nil {
		out, err := osexec.Command(man, append([]string{"-Kutf8", "-man", "-ww", "-z", "-Tutf8"}, pages...)...).CombinedOutput()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			require.Regexp(t, `(cannot|can't) (adjust|break) line`, line, "groff") // a long word is no fault of a page
		}
	}
}

// wide makes a terminal of so many columns.
func (x *terminal) wide(columns uint16) *terminal {
	require.NoError(x.t, unix.IoctlSetWinsize(int(x.keyboard.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	return x
}

// Help and errors are wrapped between words down to 40 columns. What must be copied whole stays whole.
func TestWrapsOnNarrowTerminals(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{40, 60, 80} {
		for _, line := range []string{"", "approve", "tool add", "audit", "request", "serve", "environment"} {
			x := newTerminal(t).wide(uint16(columns))
			m := Main{In: x.program, Out: x.program, Err: x.program, Env: func(string) string { return "" }}
			require.Zero(t, m.Run(t.Context(), append([]string{"help"}, strings.Fields(line)...)))
			require.Equal(t, console.ExitUsage, m.Run(t.Context(), []string{"approve", "a", "b", "--no-such-flag"}))
			x.awaitText("no-such-flag")
			x.awaitText("\nhint:")
			for row := range strings.Lines(x.String()) {
				row = strings.TrimRight(row, "\n")
				if utf8.RuneCountInString(row) <= columns {
					continue
				}
				words := strings.Fields(row)
				require.True(t, len(words) <= 2 || wholeLines.MatchString(row), "%d columns, help %s: %q", columns, line, row)
			}
		}
	}
}

func TestWrapText(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"short", "short"},
		{"one two three four five six seven eight nine ten", "one two three four five six seven eight\nnine ten"},
		{"  name      a text of several words that goes on", "  name      a text of several words that\n            goes on"},
		{"hint: " + strings.Repeat("x", 50) + " y", "hint:\n" + strings.Repeat("x", 50) + "\ny"},
		{"hint: to see it run permesso show a7f3b2c1 --reveal; or ask", "hint: to see it run\npermesso show a7f3b2c1 --reveal; or ask"},
		{strings.Repeat("許可 ", 9), "許可 許可 許可 許可 許可 許可 許可 許可\n許可 "},
		{"│ " + strings.Repeat("payload ", 10), "│ " + strings.Repeat("payload ", 10)},
	} {
		require.Equal(t, row.want, console.WrapText(row.text, 40))
		require.Equal(t, row.text, console.WrapText(row.text, 0), "no terminal")
	}
}

// TERM=dumb: no escape sequence at all. NO_COLOR: no colors.
func TestDumbTerminals(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	h.serve().awaitLog(`"message":"serving"`)
	id := h.ask(`{"tool_name":"say"}`)
	h.awaitPending("default", id)
	for _, row := range []struct {
		env             string
		escapes, colors bool
	}{{"TERM=xterm", true, true}, {"TERM=dumb", false, false}, {"NO_COLOR=1", true, false}} {
		escapes, colors := 0, 0
		for _, line := range []string{"history", "doctor --quick", "status", "show " + id, "stats", "grants"} {
			x := newTerminal(t).wide(100)
			m := Main{In: x.program, Out: x.program, Err: x.program, Env: func(name string) string {
				key, value, _ := strings.Cut(row.env, "=")
				if name == key {
					return value
				}
				return ""
			}}
			m.Run(t.Context(), append([]string{"--config", h.config, "--home", h.layout.Home}, strings.Fields(line)...))
			_, _ = fmt.Fprintln(x.program, "— end —")
			x.awaitText("— end —")
			escapes += strings.Count(x.String(), "\x1b")
			colors += len(regexp.MustCompile(`\x1b\[[0-9;]*m`).FindAllString(x.String(), -1))
		}
		require.Equal(t, row.escapes, escapes > 0, "%s: %d escape sequences", row.env, escapes)
		require.Equal(t, row.colors, colors > 0, "%s: %d colors", row.env, colors)
	}
}

// A dumb terminal cannot be restored, so no secret is shown on it.
func TestRevealNeedsAScreen(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	x := newTerminal(t)
	m := Main{In: x.program, Out: x.program, Err: x.program, Env: func(name string) string { return map[string]string{"TERM": "dumb"}[name] }}
	require.Equal(t, console.ExitUsage, m.Run(t.Context(), []string{"--config", h.config, "--home", h.layout.Home, "show", "--reveal", "0123456789abcdef"}))
	x.awaitText("needs a terminal whose screen it can restore")
}
