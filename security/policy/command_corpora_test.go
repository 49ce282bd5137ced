package policy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/policy"
)

// corpus reads a file of shared test data, or the project's own lines. CI needs the
// shared file.
func corpus(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../shared/corpora", name))
	if err != nil {
		require.Empty(t, os.Getenv("CI"), "CI needs the corpora: %v", err)
		b, err = os.ReadFile(filepath.Join("../../testdata/policy", name))
		require.NoError(t, err)
	}
	return strings.Split(strings.TrimRight(string(b), "\n"), "\n")
}

func command(line string) approval.Raw {
	b, _ := json.Marshal(map[string]string{"command": line}) // never fails
	return b
}

// No command line that a grant can cover may be a GTFOBins entry.
func TestExactGrantsOpenNoProgram(t *testing.T) {
	remembered := map[string]string{}
	for _, line := range corpus(t, "tldr-sample.txt") {
		if d, err := policy.ExactCommand(command(line)); err == nil {
			remembered[d] = line
		}
	}
	require.Greater(t, len(remembered), 20, "grants can cover some common lines")
	t.Logf("grants can cover %d lines", len(remembered))
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

// unquoted parses a Python string literal and returns each line and all of it.
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
