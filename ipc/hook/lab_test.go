package hook

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const killedHook = "the hook is killed at a random moment"

// labReport is what the lab has recorded: by the row, then by the column.
type labReport struct {
	Versions      map[string]string
	Cells, Trials map[string]map[string]string
}

func readLab(t *testing.T) (r labReport, document string) {
	t.Helper()
	b, err := os.ReadFile("../../.ci/lab/report.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &r))
	b, err = os.ReadFile("README.md")
	require.NoError(t, err)
	return r, string(b)
}

// labTable reads a table of the document: by the row, then by the column.
func labTable(t *testing.T, r labReport, document, mark string) map[string]map[string]string {
	t.Helper()
	_, rest, ok := strings.Cut(document, "<!-- "+mark+": make lab writes this table -->\n\n")
	require.True(t, ok, mark)
	table, _, ok := strings.Cut(rest, "\n<!-- end -->")
	require.True(t, ok, mark)
	lines := strings.Split(strings.TrimSpace(table), "\n")
	columns := labCells(lines[0])[1:]
	for i, title := range columns {
		name, _, _ := strings.Cut(title, " ")
		require.Contains(t, title, name+" "+r.Versions[name])
		columns[i] = strings.ReplaceAll(strings.Replace(title, " "+r.Versions[name], "", 1), "`", "")
	}
	found := map[string]map[string]string{}
	for _, line := range lines[2:] {
		cells := labCells(line)
		row := map[string]string{}
		for i, text := range cells[1:] {
			if text != "–" {
				row[columns[i]] = strings.Replace(text, "**runs**", "runs", 1)
			}
		}
		found[cells[0]] = row
	}
	return found
}

func labCells(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// The tables of the document are those of the recorded run of the lab.
func TestLabTables(t *testing.T) {
	t.Parallel()
	r, document := readLab(t)
	require.Equal(t, r.Cells, labTable(t, r, document, "cells"))
	trials := labTable(t, r, document, "trials")
	for _, mark := range []string{"exchanges", "mcp"} {
		for row, cells := range labTable(t, r, document, mark) {
			require.NotContains(t, trials, row)
			trials[row] = cells
		}
	}
	require.Equal(t, r.Trials, trials)
}

// What is promised is what was found: no call that was not allowed, except where our process was killed in an agent that
// then goes on.
func TestLabPromises(t *testing.T) {
	t.Parallel()
	r, _ := readLab(t)
	for row, cells := range r.Cells {
		for column, got := range cells {
			require.Contains(t, []string{"runs", "blocked"}, got, "%s, %s", row, column)
			if row == "exits 2, reason on stderr" || strings.HasPrefix(row, "managed: ") && strings.HasPrefix(column, "claude-code") {
				require.Equal(t, "blocked", got, "%s, %s", row, column)
			}
		}
	}
	form := regexp.MustCompile(`^ran \d+ of \d+$`)
	for row, cells := range r.Trials {
		for column, got := range cells {
			if row == killedHook && !strings.HasPrefix(column, "claude-code") {
				continue
			}
			require.Regexp(t, form, got, "%s, %s", row, column)
		}
	}
	for _, column := range []string{"claude-code onFailure", "claude-code managed"} {
		require.Equal(t, "ran 0 of 50", r.Trials[killedHook][column])
	}
}
