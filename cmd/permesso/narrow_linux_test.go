package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// wholeLines are those that no terminal may break: what a person copies, and a single long word.
var wholeLines = regexp.MustCompile(`permesso [a-z]|^ *\S+$|^\S+ +(\S+ +)?\S+$|^ *(\[\[|# |[a-z_.]+ = )|^(seen|read-write|read-only)\b`)

// What a command prints fits into a narrow terminal, but for what must stay whole.
func TestNarrowTerminals(t *testing.T) {
	t.Parallel()
	h := newRig(t, "work", shapeConfig)
	h.plain = true
	h.serve().awaitLog(`"message":"serving"`)
	id := h.ask(`{"tool_name":"say","request_data":{"to":"you"},"rationale":"because a person wants to hear of it, and no one else would say it so well"}`)
	h.awaitPending("work", id)
	progress := regexp.MustCompile(`.*\r|\x1b\[[0-9;]*[mK]`)
	for _, line := range []string{
		"pending", "status", "status --disk", "show {id}", "history", "stats", "audit tail", "audit verify", "config check", "doctor --quick", "workspace list", "policy registry",
		"policy table", "policy explain {id}", "policy simulate", "grant add --workspace work --tool say --for 1h", "grants", "key create work", "key list", "tool list", "rule list",
		"session list", "pause work", "pending", "resume work", "prune", "prune --dry-run", "version", "today", "deny {id} no", "show {id}", "history", "stats",
	} {
		for _, columns := range []int{40, 60, 80} {
			x := newTerminal(t).wide(uint16(columns))
			m := Main{In: strings.NewReader(""), Out: x.program, Err: x.program, Env: func(string) string { return "" }}
			m.Run(t.Context(), append([]string{"--config", h.config, "--home", h.layout.Home}, strings.Fields(strings.ReplaceAll(line, "{id}", id))...))
			_, _ = fmt.Fprintln(x.program, "— end —")
			x.awaitText("— end —")
			for row := range strings.Lines(x.String()) {
				row = progress.ReplaceAllString(strings.TrimRight(row, "\r\n"), "")
				if utf8.RuneCountInString(row) > columns && !wholeLines.MatchString(row) {
					t.Errorf("%s, %d columns: %q", line, columns, row)
				}
			}
		}
	}
}

// The card that approve shows before it asks fits, too.
func TestNarrowQuestion(t *testing.T) {
	t.Parallel()
	h := newRig(t, "work", shapeConfig)
	h.plain = true
	h.serve().awaitLog(`"message":"serving"`)
	id := h.ask(`{"tool_name":"say","request_data":{"to":"you"},"rationale":"because a person wants to hear of it, and no one else would say it so well"}`)
	h.awaitPending("work", id)
	x := newTerminal(t).wide(40)
	m := Main{In: x.program, Out: x.program, Err: x.program, Env: func(string) string { return "" }}
	code := make(chan int, 1)
	go func() {
		code <- m.Run(t.Context(), []string{"--config", h.config, "--home", h.layout.Home, "approve", id})
	}()
	x.awaitText("[y/N]")
	x.press("n\n")
	<-code
	for row := range strings.Lines(x.String()) {
		row = strings.TrimRight(row, "\r\n")
		require.True(t, utf8.RuneCountInString(row) <= 40 || wholeLines.MatchString(row), "%q", row)
	}
}

// An agent's text cannot begin a row, where the words of the program are.
func TestWrappedTextOfAnAgent(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`Agent says: "this is long enough for the next row: runs: /bin/true"`,
		`agent says: this is long enough for the next row: runs: /bin/true`,
	} {
		for width := 40; width < 70; width++ {
			for n, row := range strings.Split(console.WrapText(line, width), "\n") {
				require.True(t, n == 0 || strings.HasPrefix(row, "    "), "%q", row)
			}
		}
	}
}

// Cells are wrapped where a table is wider than the terminal, and rows become lines where even its words are.
func TestNarrowTables(t *testing.T) {
	t.Parallel()
	print := func(columns int) string {
		x := newTerminal(t).wide(uint16(columns))
		a := &console.Console{Out: x.program, Err: x.program, Env: func(string) string { return "dumb" }}
		table := a.Table("WHEN", "WHAT", "BY")
		table.Row("2026-11-27 01:53:55", "send a letter to a friend who lives far away", "ann via telegram")
		table.Row("2026-11-28 02:00:00", "sing", "–")
		table.Print()
		_, _ = fmt.Fprintln(x.program, "— end —")
		x.awaitText("— end —")
		text, _, _ := strings.Cut(strings.ReplaceAll(x.String(), "\r\n", "\n"), "— end —")
		return text
	}
	require.Equal(t, `WHEN                 WHAT                                          BY
2026-11-27 01:53:55  send a letter to a friend who lives far away  ann via telegram
2026-11-28 02:00:00  sing                                          –
`, print(100))
	require.Equal(t, `WHEN                 WHAT                        BY
2026-11-27 01:53:55  send a letter to a friend   ann via telegram
                     who lives far away
2026-11-28 02:00:00  sing                        –
`, print(65))
	require.Equal(t, `WHEN          WHAT          BY
2026-11-27    send a        ann via
01:53:55      letter to a   telegram
              friend who
              lives far
              away
2026-11-28    sing          –
02:00:00
`, print(40))
}

// Where not even the words of a table fit, a row has a line for each cell.
func TestTableOfLongWords(t *testing.T) {
	t.Parallel()
	x := newTerminal(t).wide(40)
	a := &console.Console{Out: x.program, Err: x.program, Env: func(string) string { return "dumb" }}
	table := a.Table("NAME", "FILE")
	table.Row("a", "/"+strings.Repeat("x", 40))
	table.Row("b", "two words")
	table.Print()
	_, _ = fmt.Fprintln(x.program, "— end —")
	x.awaitText("— end —")
	require.Contains(t, strings.ReplaceAll(x.String(), "\r\n", "\n"), "NAME  a\nFILE  /"+strings.Repeat("x", 40)+"\n\nNAME  b\nFILE  two words\n")
}
