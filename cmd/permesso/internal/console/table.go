package console

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
)

// Table prints rows in columns. On a terminal the headers are faint and statuses
// are colored.
type Table struct {
	app   *Console
	color bool
	rows  [][]string
}

// Table returns a table with these headers.
func (a *Console) Table(heads ...string) *Table {
	return &Table{app: a, color: IsTerminal(a.Out) && a.Env("NO_COLOR") == "", rows: [][]string{heads}}
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Print writes the table to standard output.
func (t *Table) Print() {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == len(row)-1 {
				pad = ""
			}
			line.WriteString(t.paint(n, cell) + pad)
			if i < len(row)-1 {
				line.WriteString("  ")
			}
		}
		fmt.Fprintln(t.app.Out, strings.TrimRight(line.String(), " "))
	}
}

const (
	faint  = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// colors are the colors of statuses.
var colors = map[string]string{
	string(approval.StatusApproved):     green,
	string(approval.StatusAutoApproved): green,
	string(approval.StatusDenied):       red,
	string(approval.StatusAutoRejected): red,
	string(approval.StatusFailed):       red,
	string(approval.StatusInterrupted):  red,
	string(approval.StatusExpired):      yellow,
	string(read.StatusPending):          yellow,
	string(read.StatusRunning):          yellow,
}

func (t *Table) paint(row int, cell string) string {
	color := colors[cell]
	if row == 0 {
		color = faint
	}
	if !t.color || color == "" {
		return cell
	}
	return color + cell + reset
}
