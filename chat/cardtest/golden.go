package cardtest

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxGoldenLines is from how many lines a golden file holds the middle as a digest.
const maxGoldenLines = 100

// Golden compares a message with a file in testdata/chat, as seen from a folder below
// chat, or rewrites the file if the test has -update.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("..", "..", "testdata", "chat", name)
	got = foldMiddle(strings.TrimRight(got, "\n") + "\n")
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, file)
}

// foldMiddle leaves the first and last lines of a long text.
func foldMiddle(text string) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= maxGoldenLines {
		return text
	}
	const keep = 20
	middle := lines[keep : len(lines)-keep]
	note := fmt.Sprintf("[%d lines, SHA-256 %x]\n", len(middle), sha256.Sum256([]byte(strings.Join(middle, ""))))
	return strings.Join(lines[:keep], "") + note + strings.Join(lines[len(lines)-keep:], "")
}
