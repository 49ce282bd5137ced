package main

import (
	"bytes"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// The program of macOS and Windows, built for this system: it asks by HTTP, checks the receipt without a daemon's keys,
// and says of all other commands that they are not here.
func TestClientProgram(t *testing.T) {
	t.Parallel()
	g := newPackagedGate(t)
	program := filepath.Join(t.TempDir(), "permesso")
	build := osexec.Command("go", "build", "-buildvcs=false", "-ldflags=-X main.version=1.2.3 -X main.commit=0123456789abcdef -X main.date=2026-11-21T12:00:00Z", "-o", program, "./client")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := func(args ...string) (int, string, string) {
		cmd := osexec.Command(program, args...)
		var out, errs bytes.Buffer
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = t.TempDir(), slices.Concat(g.env, []string{"HOME=" + t.TempDir()}), &out, &errs
		if err := cmd.Run(); err != nil {
			_, exited := errors.AsType[*osexec.ExitError](err)
			require.True(t, exited, "%v", err)
		}
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}

	said := g.quickStart(osexec.Command(program, "request", "hello", "--arg", "name=you", "--wait", "--json"))
	require.Contains(t, said, `"status":"approved"`)
	responses, err := filepath.Glob(filepath.Join(g.agent.Responses, "*.json"))
	require.NoError(t, err)
	require.Len(t, responses, 1)
	id := strings.TrimSuffix(filepath.Base(responses[0]), ".json")
	code, text, errs := run("wait", id)
	require.Zero(t, code, errs)
	require.Contains(t, text, "approved")
	code, text, errs = run("cancel", id)
	require.Equal(t, console.ExitFailed, code, errs)
	require.Contains(t, text, "already executed")

	// A receipt needs the public key, and nothing else of the daemon.
	code, _, errs = run("receipt", "verify", responses[0])
	require.Equal(t, console.ExitUsage, code)
	require.Contains(t, errs, "the public key is on the daemon's host\nhint: copy HOME/keys/signing.pub from there, and give it: --key FILE")
	key := filepath.Join(g.layout.Home, "keys", "signing.pub")
	code, text, errs = run("receipt", "verify", responses[0], "--key", key)
	require.Zero(t, code, errs)
	require.Contains(t, text, "valid: "+id+" hello in default")
	b, err := os.ReadFile(responses[0])
	require.NoError(t, err)
	forged := filepath.Join(t.TempDir(), "forged.json")
	require.Contains(t, string(b), "tool: hello")
	require.NoError(t, os.WriteFile(forged, bytes.ReplaceAll(b, []byte("tool: hello"), []byte("tool: other")), 0o600))
	code, _, errs = run("receipt", "verify", forged, "--key", key)
	require.Equal(t, console.ExitRefused, code, errs)

	for _, args := range [][]string{{"serve"}, {"approve", "1234", "--always"}, {"audit", "verify", "--json"}, {"--home", "x", "pending"}} {
		code, text, errs := run(args...)
		require.Equal(t, console.ExitUsage, code, args)
		require.Empty(t, text)
		require.Contains(t, errs, ": the daemon and its commands need Linux, this is linux; here are cancel, hook, receipt, request, run, version, wait\nhint: install permesso on a Linux host, and name it here by PERMESSO_URL and PERMESSO_KEY", args)
	}
	code, text, errs = run("version", "--json")
	require.Zero(t, code, errs)
	for _, part := range []string{"1.2.3", "0123456789abcdef", "2026-11-21T12:00:00Z"} {
		require.Contains(t, text, part)
	}
	code, text, errs = run()
	require.Zero(t, code, errs)
	require.Contains(t, text, "These are the commands of an agent.")
	_, cancels, _ := run("cancel", "--help")
	require.Contains(t, cancels, "An agent cancels its own requests.\n")
	for _, absent := range []string{"demo", "doctor", "serve", "operator"} {
		require.NotContains(t, text+cancels, absent)
	}
}
