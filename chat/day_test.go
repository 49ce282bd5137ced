package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
)

var (
	midnight = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	evening  = midnight.Add(18 * time.Hour)
)

func dayOf(n int) *Day {
	ws := DayWorkspace{Workspace: "personal", Counts: map[approval.Status]int{approval.StatusApproved: n}}
	for i := range n {
		ws.Requests = append(ws.Requests, DayRequest{
			RequestID: fmt.Sprintf("%016x", i), At: midnight.Add(time.Duration(i) * time.Minute), Status: approval.StatusApproved, What: fmt.Sprintf("Post %d", i), By: "ann",
		})
	}
	return &Day{Since: midnight, Until: evening, Workspaces: []DayWorkspace{ws}}
}

func TestDay(t *testing.T) {
	d := &Day{Since: midnight, Until: evening, Workspaces: []DayWorkspace{
		{
			Workspace: "personal", Counts: map[approval.Status]int{
				approval.StatusApproved: 1, approval.StatusAutoApproved: 3, approval.StatusFailed: 1, approval.StatusDenied: 1, "pending": 1,
			},
			Amounts: map[string]string{"EUR": "42.50", "": "3"},
			Requests: []DayRequest{
				{At: midnight.Add(-time.Hour), Status: approval.StatusFailed, What: "Deploy to prod", By: "ann"},
				{At: midnight.Add(8 * time.Hour), Status: approval.StatusAutoApproved, What: "Read the calendar", By: "my calendar"},
				{At: midnight.Add(9 * time.Hour), Status: approval.StatusApproved, What: `Post "Meeting at 5" -> x.com/ricardo`, By: "ann"},
				{At: midnight.Add(10 * time.Hour), Status: approval.StatusAutoApproved, What: "Read the calendar", By: "my calendar"},
				{At: midnight.Add(10*time.Hour + time.Minute), Status: approval.StatusAutoApproved, What: "Read the calendar", By: "my calendar"},
				{At: midnight.Add(11 * time.Hour), Status: approval.StatusDenied, What: "Mail to bob@example.org", By: "bob"},
				{At: midnight.Add(12 * time.Hour), Status: "pending", What: "Pay 5 EUR"},
			},
			Grants: []string{"x_post to x.com/ricardo · ann"},
		},
		{Workspace: "work", Counts: map[approval.Status]int{approval.StatusExpired: 1}, Requests: []DayRequest{{At: evening, Status: approval.StatusExpired, What: "Post"}}, Omitted: 2},
	}}
	require.Equal(t, `Since 00:00 UTC: 8 requests

personal · ⏳ 1 pending · ⚠ 1 failed · ✅ 1 approved · 🤖 3 allowed by policy · ❌ 1 denied
💶 3
💶 42.50 EUR
11-20 23:00 ⚠ Deploy to prod · ann
09:00 ✅ Post "Meeting at 5" -> x.com/ricardo · ann
10:01 🤖 Read the calendar ×3 · my calendar
11:00 ❌ Mail to bob@example.org · bob
12:00 ⏳ Pay 5 EUR
🔓 x_post to x.com/ricardo · ann

work · ⌛ 1 expired
18:00 ⌛ Post
… and 2 more: permesso history`, Style{Language: "en"}.Day(d))
	it := Style{Language: "it"}.Day(d)
	require.Contains(t, it, "Dalle 00:00 UTC, richieste: 8\n\npersonal · ⏳ in attesa: 1 · ⚠ fallite: 1 · ✅ approvate: 1")
	require.Contains(t, it, "… e altre 2: permesso history")
	require.Equal(t, "No requests since 00:00 UTC.", Style{Language: "en"}.Day(&Day{Since: midnight, Until: evening}))
}

// Every status has a mark and a word in every language.
func TestDayStatuses(t *testing.T) {
	require.ElementsMatch(t, dayOrder(), keysOf(dayMarks))
	for _, language := range Languages() {
		for _, status := range dayOrder() {
			require.Contains(t, catalog(language).DayCounts[string(status)], "{n}", "%s: %s", language, status)
		}
	}
}

func keysOf(m map[approval.Status]string) (keys []approval.Status) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// However much there is, the message fits on a phone, and says how much is missing.
func TestDayIsShort(t *testing.T) {
	text := Style{Language: "en"}.Day(dayOf(100))
	require.True(t, strings.HasPrefix(text, "Since 00:00 UTC: 100 requests\n"))
	require.True(t, strings.HasSuffix(text, "01:39 ✅ Post 99 · ann\n… and 76 more: permesso history"), text)
	require.NotContains(t, text, "Post 75 ")
	require.Contains(t, text, "Post 76 ")

	many := dayOf(0)
	many.Workspaces = nil
	for i := range 200 {
		ws := dayOf(50).Workspaces[0]
		ws.Workspace = fmt.Sprintf("w%03d", i)
		ws.Grants = []string{"a", "b", "c", "d", "e", "f", "g"}
		for j := range ws.Requests {
			ws.Requests[j].What = strings.Repeat("x", 500) + fmt.Sprint(j)
			ws.Requests[j].What = fmt.Sprint(j) + ws.Requests[j].What
		}
		many.Workspaces = append(many.Workspaces, ws)
	}
	text = Style{Language: "en"}.Day(many)
	require.LessOrEqual(t, Units(text), 3800)
	require.Contains(t, text, "🔓 … and 2 more: permesso grants")
	for line := range strings.SplitSeq(text, "\n") {
		require.LessOrEqual(t, len([]rune(line)), 200)
	}
	require.Regexp(t, `… and 19\d more workspaces: permesso today$`, text)
	require.Contains(t, text, "w003 · ✅ 50 approved\n00:47 ✅ 47xxx", "the newest of each that is shown")
	for _, n := range []int{9, 8, 5, 3, 2, 1} {
		many.Workspaces = many.Workspaces[:min(n, len(many.Workspaces))]
		require.LessOrEqual(t, Units(Style{Language: "it"}.Day(many)), 3800, n)
	}
}

func TestTodayInATerminal(t *testing.T) {
	question := Context{Reply: true, Implicit: true, ID: "a7f3b2c1d4e5f6a7", Type: approval.TypeQuestion}
	for text, want := range map[string]Kind{"today": Today, " Oggi ": Today, "today, please": Free} {
		require.Equal(t, want, Parse(text, question).Kind, text)
	}
	require.Equal(t, Today, Parse("today", Context{Implicit: true}).Kind)
	require.Equal(t, NotAddressed, Parse("today", Context{}).Kind, "in a group it is conversation")
	question.Implicit = false
	require.Equal(t, Command{Kind: Free, Text: "today"}, Parse("today", question), "a reply answers the question")
}

func TestTodayIsAnswered(t *testing.T) {
	asked := Message{}
	ic := &Interceptor{Decider: refuseAll{}, Viewer: noRequests{}, Day: func(_ context.Context, m Message) (*Day, error) {
		asked = m
		return dayOf(1), nil
	}}
	m := Message{From: approval.Person{Name: "ann"}, Via: "terminal", Text: "today", Workspaces: []string{"personal"}, Implicit: true, Language: "en"}
	require.Contains(t, ic.Handle(t.Context(), m).Text, "00:00 ✅ Post 0 · ann")
	require.Equal(t, m, asked)
	m.Workspaces = nil
	require.Equal(t, catalog("en").NotAuthorized, ic.Handle(t.Context(), m).Text)
	m.Workspaces = asked.Workspaces
	ic.Day = func(context.Context, Message) (*Day, error) { return nil, errors.New("disk") }
	r := ic.Handle(t.Context(), m)
	require.Equal(t, catalog("en").DayUnreadable, r.Text)
	require.ErrorContains(t, r.Err, "disk")
	ic.Day = nil
	require.Equal(t, catalog("en").DayUnavailable, ic.Handle(t.Context(), m).Text)
}

type refuseAll struct{}

func (refuseAll) Decide(context.Context, decide.Input) (*approval.Decision, error) {
	return nil, errors.New("refused")
}

type noRequests struct{}

func (noRequests) Waiting(context.Context, []string) ([]approval.StoredPending, error) {
	return nil, nil
}

func (noRequests) Find(context.Context, []string, string) ([]approval.Key, error) { return nil, nil }
