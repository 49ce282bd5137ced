package web

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/chat"
)

// block is a part of a card: lines of the gate, and below them the lines of one value.
type block struct {
	Lines []gateLine
	Rows  []valueRow
	Chips bool // the rows are recipients
}

// gateLine is a line of the gate, which may hold a short value.
type gateLine struct {
	Class, Label, Text string
}

// valueRow is a line of a value. Lead is what precedes it in a card: a sign, and a bar.
type valueRow struct {
	Class, Lead, Text string
	Sign              string // of a change
	Number            string // of the line in its text or file; "": none
}

// lineClass is the CSS class of a line of a card.
func lineClass(k chat.LineKind) string {
	return map[chat.LineKind]string{
		chat.LineLabel: "label", chat.LineAdded: "more", chat.LineRemoved: "less", chat.LineSame: "same",
		chat.LineWarn: "warning", chat.LineStrong: "strong",
	}[k]
}

// blocksOf groups the lines of a card. Behind a bar is always a value: see chat.Block.
func blocksOf(lines []chat.Line) (all []block) {
	for _, l := range lines {
		row, isRow := valueRowOf(l)
		if n := len(all); n == 0 || !isRow && len(all[n-1].Rows) > 0 {
			all = append(all, block{})
		}
		b := &all[len(all)-1]
		if isRow {
			b.Rows, b.Chips = append(b.Rows, row), l.Kind == chat.LineRecipient
		} else {
			b.Lines = append(b.Lines, gateLineOf(l))
		}
	}
	for _, b := range all {
		b.setNumbers()
	}
	return all
}

var valueLead = regexp.MustCompile(`^([-+ ] )?[│┆](?: |$)`)

func valueRowOf(l chat.Line) (valueRow, bool) {
	lead := valueLead.FindString(l.Text)
	if lead == "" {
		return valueRow{}, false
	}
	r := valueRow{Class: lineClass(l.Kind), Lead: lead, Text: l.Text[len(lead):]}
	if strings.IndexAny(lead, "-+ ") == 0 {
		r.Sign = lead[:1]
	}
	return r, true
}

// setNumbers numbers the rows, unless a line above says that they are several values: a
// removed line has its number in the old file, any other in the new one.
func (b block) setNumbers() {
	isPlace := slices.ContainsFunc(b.Rows, func(r valueRow) bool { return r.Class == "strong" })
	if n := len(b.Lines); b.Chips || isPlace || n > 0 && (b.Lines[n-1].Class != "label" || strings.HasSuffix(b.Lines[n-1].Text, "):")) {
		return
	}
	before, after := 0, 0
	for i := range b.Rows {
		r := &b.Rows[i]
		if r.Sign != "+" {
			before++
		}
		if r.Sign != "-" {
			after++
		}
		r.Number = strconv.Itoa(after)
		if r.Sign == "-" {
			r.Number = strconv.Itoa(before)
		}
	}
}

var plainLabel = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL][\pL\d_. -]*(?: \(\d+\))?:(?: |$)`) })

func gateLineOf(l chat.Line) gateLine {
	g := gateLine{Class: lineClass(l.Kind), Text: l.Text}
	if l.Kind != chat.LineWarn && l.Kind != chat.LineLabel {
		g.Label = plainLabel().FindString(l.Text)
		g.Text = l.Text[len(g.Label):]
	}
	return g
}

// textBlocks groups lines that have no kinds.
func textBlocks(texts []string) []block {
	lines := make([]chat.Line, len(texts))
	for i, s := range texts {
		lines[i].Text = s
	}
	return blocksOf(lines)
}

// textBlock is a block of a text, with numbered lines.
func textBlock(lines []string) []block {
	var b block
	for _, l := range lines {
		b.Rows = append(b.Rows, valueRow{Lead: "│ ", Text: l})
	}
	b.setNumbers()
	return []block{b}
}
