package policy_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/policy"
)

// corpus is a file of shared test data; where there is none the project's own
// lines have to do, but not in CI.
func corpus(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../shared/corpora", name))
	if err != nil {
		require.Empty(t, os.Getenv("CI"), "in CI the corpora must be there: %v", err)
		b, err = os.ReadFile(filepath.Join("../../testdata/policy", name))
		require.NoError(t, err)
	}
	return strings.Split(strings.TrimRight(string(b), "\n"), "\n")
}

func command(line string) approval.Raw {
	return approval.TextResult("command", line)
}

// What people let agents remember must not be what GTFOBins is made of.
func TestExactGrantsOpenNoProgram(t *testing.T) {
	remembered := map[string]string{}
	for _, line := range corpus(t, "tldr-sample.txt") {
		if d, err := policy.ExactCommand(command(line)); err == nil {
			remembered[d] = line
		}
	}
	require.Greater(t, len(remembered), 20, "some everyday lines can be remembered")
	t.Logf("%d lines can be remembered", len(remembered))
	identical := 0
	for _, entry := range corpus(t, "gtfobins-sample.txt") {
		_, quoted, ok := strings.Cut(entry, "\t")
		require.True(t, ok, entry)
		for _, code := range unquoted(t, quoted) {
			if d, err := policy.ExactCommand(command(code)); err == nil {
				require.NotContains(t, remembered, d, "%q is covered by %q", code, remembered[d])
			}
			identical++
		}
	}
	require.NotZero(t, identical)
}

// unquoted reads a Python string literal: the whole of it, and each line.
func unquoted(t *testing.T, lit string) []string {
	t.Helper()
	body := lit[1 : len(lit)-1]
	if lit[0] == '\'' {
		body = strings.ReplaceAll(strings.ReplaceAll(body, `\'`, `'`), `"`, `\"`)
	}
	s, err := strconv.Unquote(`"` + body + `"`)
	require.NoError(t, err, lit)
	return append(strings.Split(s, "\n"), s)
}
