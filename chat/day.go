package chat

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Day is what the agents of some workspaces did since a time.
type Day struct {
	Since      time.Time      `json:"since"`
	Until      time.Time      `json:"until"`
	Workspaces []DayWorkspace `json:"workspaces"` // those with something to tell
}

// DayWorkspace is what the agents of one workspace did.
type DayWorkspace struct {
	Workspace string                  `json:"workspace"`
	Counts    map[approval.Status]int `json:"counts"`  // also of pending and running requests
	Amounts   map[string]string       `json:"amounts"` // sums of what ran, by currency; "" is none
	Requests  []DayRequest            `json:"requests"`
	Omitted   int                     `json:"omitted"` // older requests that are only counted
	Grants    []string                `json:"grants"`  // given, and active
}

// DayRequest is one request in a few words, escaped and without secrets.
type DayRequest struct {
	RequestID string          `json:"request_id"`
	At        time.Time       `json:"at"` // when it ended, else when it was made
	Status    approval.Status `json:"status"`
	What      string          `json:"what"`
	By        string          `json:"by"` // the person who decided, or the rule that allowed it; "": neither
}

const (
	maxDayUnits      = 3800 // a message of Telegram has 4096
	maxDayLines      = 24   // about requests
	maxDayWorkspaces = 8
	maxDayGrants     = 5 // of a workspace
	maxDayAmounts    = 5
	maxDayWidth      = 120
)

// dayMarks stand before the lines of a Day.
var dayMarks = map[approval.Status]string{
	approval.StatusApproved: "✅", approval.StatusAutoApproved: "🤖", approval.StatusFailed: "⚠", approval.StatusInterrupted: "⚠",
	approval.StatusDenied: "❌", approval.StatusAutoRejected: "🚫", approval.StatusMalformed: "🚫", approval.StatusExpired: "⌛",
	approval.StatusCancelled: "⊘", approval.StatusRequestMore: "❓", approval.StatusOverridden: "✎", approval.StatusAnswered: "💬",
	"pending": "⏳", "running": "▶",
}

// dayOrder is the order of the counts of a workspace.
func dayOrder() []approval.Status {
	return []approval.Status{
		"pending", "running", approval.StatusFailed, approval.StatusInterrupted, approval.StatusApproved, approval.StatusAutoApproved,
		approval.StatusAnswered, approval.StatusDenied, approval.StatusOverridden, approval.StatusRequestMore, approval.StatusAutoRejected,
		approval.StatusMalformed, approval.StatusExpired, approval.StatusCancelled,
	}
}

// Day renders a day as one message that fits on a phone: of many requests the newest, which come last.
func (s Style) Day(d *Day) string {
	w := catalog(s.Language)
	total := 0
	for _, ws := range d.Workspaces {
		for _, n := range ws.Counts {
			total += n
		}
	}
	if len(d.Workspaces) == 0 {
		return Format(w.DayEmpty, "time", s.clock(d.Since, d.Until))
	}
	title := Format(w.DayTitle, "time", s.clock(d.Since, d.Until), "n", strconv.Itoa(total))
	for most, workspaces := maxDayLines, maxDayWorkspaces; ; most, workspaces = most/2, max(workspaces/2, 1) {
		text := strings.Join(append([]string{title}, s.dayOf(d, most, workspaces)...), "\n")
		if fits(text, maxDayUnits) || most == 0 && workspaces == 1 {
			return text
		}
	}
}

// dayOf is a day in at most so many lines about requests, of at most so many workspaces.
func (s Style) dayOf(d *Day, most, workspaces int) (lines []string) {
	workspaces = min(workspaces, len(d.Workspaces))
	for i := range workspaces {
		lines = append(lines, s.dayWorkspace(&d.Workspaces[i], d.Until, most/workspaces)...)
	}
	if left := len(d.Workspaces) - workspaces; left > 0 {
		lines = append(lines, "", Format(catalog(s.Language).DayMoreWorkspaces, "n", strconv.Itoa(left)))
	}
	return lines
}

func (s Style) dayWorkspace(ws *DayWorkspace, now time.Time, most int) []string {
	w := catalog(s.Language)
	var counts []string
	for _, status := range dayOrder() {
		if n := ws.Counts[status]; n > 0 {
			counts = append(counts, dayMarks[status]+" "+Format(w.DayCounts[string(status)], "n", strconv.Itoa(n)))
		}
	}
	lines := []string{"", strings.TrimSuffix(Escape(ws.Workspace)+" · "+strings.Join(counts, " · "), " · ")}
	for i, currency := range slices.Sorted(maps.Keys(ws.Amounts)) {
		if i == maxDayAmounts {
			lines = append(lines, Format(w.DayAmount, "amount", "…"))
			break
		}
		lines = append(lines, Format(w.DayAmount, "amount", strings.TrimSpace(ws.Amounts[currency]+" "+Escape(currency))))
	}
	shown, left := dayLines(ws.Requests, most)
	for _, x := range shown {
		lines = append(lines, s.dayLine(x, now))
	}
	if left += ws.Omitted; left > 0 {
		lines = append(lines, Format(w.DayMore, "n", strconv.Itoa(left)))
	}
	for i, g := range ws.Grants {
		if i == maxDayGrants {
			lines = append(lines, Format(w.DayMoreGrants, "n", strconv.Itoa(len(ws.Grants)-i)))
			break
		}
		lines = append(lines, Format(w.DayGrant, "grant", shorten(g)))
	}
	return lines
}

// repeated is a line of a Day: the newest of requests that look the same.
type repeated struct {
	DayRequest
	times int
}

// dayLines are at most so many lines, the newest last, and the number of requests that are in none.
func dayLines(all []DayRequest, most int) (shown []repeated, left int) {
	for _, x := range slices.Backward(all) {
		i := slices.IndexFunc(shown, func(r repeated) bool { return r.Status == x.Status && r.What == x.What && r.By == x.By })
		switch {
		case i >= 0:
			shown[i].times++
		case len(shown) < most:
			shown = append(shown, repeated{x, 1})
		default:
			left++
		}
	}
	slices.Reverse(shown)
	return shown, left
}

func (s Style) dayLine(x repeated, now time.Time) string {
	at, _, _ := strings.Cut(s.clock(x.At, now), " ")
	if date, rest, ok := strings.Cut(s.clock(x.At, now), " "); ok && len(date) > len("15:04") {
		clock, _, _ := strings.Cut(rest, " ")
		at = date[len("2006-"):] + " " + clock
	}
	line := shorten(x.What)
	if x.times > 1 {
		line += " ×" + strconv.Itoa(x.times)
	}
	if x.By != "" {
		line += " · " + clip(x.By, maxWord)
	}
	return at + " " + dayMarks[x.Status] + " " + line
}

// shorten cuts a rendered text.
func shorten(s string) string {
	if kept := clip(s, maxDayWidth); kept != s {
		return kept + "…"
	}
	return s
}
