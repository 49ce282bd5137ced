package ruletest_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pieces of lines. None of them names a file, or calls itself.
var pieces = []string{
	"rm", "rm", "rm x", "x", "&&", ";", "|", "&", "&>", ">", "<", "(", ")", "((", "))", "[[", "]]", "{", "}", "!", "$(", "`", `"`, "'", `\`, "\n",
	"if", "then", "fi", "case", "in", "esac", "echo", "eval", "exec", "command", "=", "a=", "$", "${a:-", "<<<", "<(", ">(", "time", "coproc", "()", "*", "?",
	"#", "EOF", "<<EOF", "[", "]", "+", "@(", "!(", "$((", "$'", "r", "m", "\\\n", ",", "{rm,x}", "sudo", "env", "nice", ">&", "2>&1", "||", "-c", "else", ";;", "-", "~", ":", "trap", "exit", "EXIT",
}

// TestShells runs random lines that a deny of rm does not stop in the shells of this machine:
// none of them runs rm. The program is one of the test's own.
func TestShells(t *testing.T) {
	folder := t.TempDir()
	bin := filepath.Join(folder, "bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	programs := map[string]string{"rm": ": > ran", "sudo": `exec "$@"`, "env": `exec "$@"`, "nice": `exec "$@"`}
	for name, script := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	var shells []string
	for _, name := range []string{"sh", "bash"} {
		if program, err := exec.LookPath(name); err == nil {
			shells = append(shells, program)
		}
	}
	require.NotEmpty(t, shells)
	b := &block{lines: map[string]string{"args": `command = "command"`}, rules: []string{`{ outcome = "deny", match = { tool = "t", args = { command = "rm" } } }`}}
	g, err := newRig(b.toml(), nil)
	require.NoError(t, err)
	seed, n := seedAndLength(200, 10_000)
	t.Logf("PERMESSO_SEED=%d, %d lines", seed, n)
	r := random{rand.New(rand.NewPCG(seed, 0)), ""}
	for run := 0; run < n; {
		line := r.shellLine()
		if g.send(t, request{args: map[string]any{"command": line}, tool: "t", session: "s1", now: noon}).outcome != "allow" {
			continue
		}
		run++
		for _, shell := range shells {
			cwd := filepath.Join(folder, fmt.Sprint(run, filepath.Base(shell)))
			require.NoError(t, os.Mkdir(cwd, 0o700))
			runLine(shell, line, cwd, bin)
			require.NoFileExists(t, filepath.Join(cwd, "ran"), "%s runs rm: %q", shell, line)
			require.NoError(t, os.RemoveAll(cwd))
		}
	}
}

// shellLine makes a line of some pieces, one of which may be rm.
func (r random) shellLine() string {
	for {
		var line strings.Builder
		for range 2 + r.IntN(8) {
			line.WriteString(pick(r, pieces...))
			if !r.oneIn(4) {
				line.WriteString(" ")
			}
		}
		if strings.Contains(line.String(), "m") {
			return line.String()
		}
	}
}

// runLine runs a line, and waits for what it starts in the background: that holds its output.
func runLine(shell, line, cwd, bin string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, shell, "-c", line)
	c.Dir, c.Env, c.WaitDelay = cwd, []string{"PATH=" + bin, "HOME=" + cwd}, time.Second
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	_ = c.Run() // most lines are not valid
}
