package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/security/audit"
)

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	local := func(y, m, d, h, min int) time.Time { return time.Date(y, time.Month(m), d, h, min, 0, 0, time.Local) }
	for text, want := range map[string]time.Time{
		"":                          {},
		"2h":                        now.Add(-2 * time.Hour),
		"90m":                       now.Add(-90 * time.Minute),
		"0s":                        now,
		"7d":                        now.Add(-7 * 24 * time.Hour),
		"1d12h":                     now.Add(-36 * time.Hour),
		"1.5d":                      now.Add(-36 * time.Hour),
		"2026-11-01":                local(2026, 11, 1, 0, 0), // the day begins in the local time zone
		"2026-11-01T15:04":          local(2026, 11, 1, 15, 4),
		"2026-11-01 15:04":          local(2026, 11, 1, 15, 4),
		"2026-11-01T15:04:05Z":      time.Date(2026, 11, 1, 15, 4, 5, 0, time.UTC),
		"2026-11-01T15:04:05+02:00": time.Date(2026, 11, 1, 13, 4, 5, 0, time.UTC),
	} {
		got, err := parseTime("since", text, now)
		require.NoError(t, err, text)
		require.True(t, want.Equal(got), "%q: %v, not %v", text, got, want)
	}
	for _, text := range []string{"yesterday", "7", "-2h", "-7d", "d", "7d7d", "99999999d", "2026-13-01", "2026-11-1", "12:00", "2026-11-01T25:00:00Z"} {
		_, err := parseTime("since", text, now)
		var e *console.Error
		require.ErrorAs(t, err, &e, text)
		require.Equal(t, console.ExitUsage, e.Code, text)
		require.Contains(t, e.Hint(), "7d", text)
	}
}

func TestShortDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "350ms": 350 * time.Millisecond, "12.4s": 12_400 * time.Millisecond, "3m10s": 190 * time.Second,
		"1m0s": time.Minute, "2h5m": 125 * time.Minute, "3d4h": 76 * time.Hour, "–": -time.Second,
	} {
		require.Equal(t, want, shortDuration(d))
	}
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r := &read.Request{AskedAt: at, DecidedAt: at.Add(time.Minute), EndedAt: at.Add(time.Minute + time.Second), Person: true}
	require.Equal(t, "1m0s + 1s", durations(r))
	r.EndedAt = r.DecidedAt.Add(time.Microsecond)
	require.Equal(t, "1m0s", durations(r), "nothing ran after the decision")
}

// decided is a request that was decided after this time.
func decided(by string, st approval.Status, after time.Duration) *read.Request {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return &read.Request{
		Tool: "t", Status: st, By: by, ByID: "local:1", Via: "cli", Person: true,
		AskedAt: at, DecidedAt: at.Add(after), EndedAt: at.Add(after + time.Hour),
	}
}

func TestStatsFindRubberStamping(t *testing.T) {
	for _, c := range []struct {
		why    string
		n      int
		denied int
		after  time.Duration
		stamps bool
	}{
		{"all approved quickly", 20, 0, 2 * time.Second, true},
		{"few denials", 50, 1, 2 * time.Second, true},
		{"too few decisions", 19, 0, 2 * time.Second, false},
		{"slow enough to read", 20, 0, 5 * time.Second, false},
		{"enough denials", 20, 1, 2 * time.Second, false},
	} {
		var found []*read.Request
		for i := range c.n {
			st := approval.StatusApproved
			if i < c.denied {
				st = approval.StatusDenied
			}
			found = append(found, decided("ann", st, c.after))
		}
		st := read.NewStats(slices.Values(found))
		require.Len(t, st.Approvers, 1)
		require.Equal(t, c.stamps, st.Approvers[0].RubberStamps(), c.why)
		var out bytes.Buffer
		(&app{&console.Console{Out: &out, Env: os.Getenv}}).printStats(st)
		require.Equal(t, c.stamps, bytes.Contains(out.Bytes(), []byte("too fast to read the requests")), c.why)
	}
}

func TestStatsCountOnlyDecisionsOfPeople(t *testing.T) {
	rule := &read.Request{Tool: "t", Status: approval.StatusAutoApproved, Rule: "r"}
	late := decided("deadline", approval.StatusExpired, time.Hour)
	late.Via, late.ByID = "gate", ""
	st := read.NewStats(slices.Values([]*read.Request{
		rule, late,
		decided("ann", approval.StatusApproved, 2*time.Second),
		decided("ann", approval.StatusFailed, 8*time.Second), // ann approved it
		decided("bob", approval.StatusDenied, 10*time.Second),
		decided("bob", approval.StatusExpired, 20*time.Second), // approved, then the daemon was down
		decided("bob", approval.StatusOverridden, 4*time.Second),
	}))
	require.Equal(t, 7, st.Requests)
	require.Equal(t, 6, st.Asked)
	require.InDelta(t, 8, *st.Median, 0.001, "of five")
	require.Equal(t, "bob 3 0.33 10.0 0, ann 2 1.00 5.0 1", formatTallies(st.Approvers))
	require.Equal(t, "t 5 0.60 8.0 1", formatTallies(st.Tools))
	require.Equal(t, 7, st.Tools[0].Requests)
}

func formatTallies(list []read.Tally) (s string) {
	for i, t := range list {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s %d %.2f %.1f %d", t.Name, t.Decided, *t.Share, *t.Median, t.Hasty)
	}
	return s
}

// history prints the readable entries, then the error.
func TestHistoryOfADamagedLog(t *testing.T) {
	h := home.New(config.Default(), filepath.Join(t.TempDir(), "home"))
	require.NoError(t, h.Prepare())
	_, err := h.MakeKeys()
	require.NoError(t, err)
	log := filepath.Join(h.Layout.Audit(), "log.jsonl")
	line := `{"seq":%d,"time":"2026-11-21T12:00:00Z","event":%s` + "\n"
	require.NoError(t, os.WriteFile(log, fmt.Appendf(nil, line+line, 1, "broken", 2, `"auto_rejected","workspace":"w","tool":"\u001b[2Jx","request_id":"00000000000000cc"}`), 0o600))
	var out bytes.Buffer
	a := &app{&console.Console{Out: &out, Env: func(string) string { return "" }, HomeFlag: h.Layout.Home}}
	err = a.history(t.Context(), historyFlags{limit: 50})
	require.ErrorIs(t, err, audit.ErrDamaged)
	var e *console.Error
	require.True(t, errors.As(err, &e) && e.Hint() != "")
	require.Contains(t, out.String(), `\u{001B}[2Jx`, "bytes of an agent are escaped")
	require.NotContains(t, out.String(), "\x1b")
}

// numbered are n requests.
func numbered(n int, before func(i int)) func(each func(*read.Request) error) (bool, error) {
	return func(each func(*read.Request) error) (bool, error) {
		for i := range n {
			before(i)
			if err := each(&read.Request{Key: approval.Key{ID: fmt.Sprint(i)}}); err != nil {
				return false, err
			}
		}
		return false, nil
	}
}

func TestLongListIsOneJSONArray(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 5000} {
		var out bytes.Buffer
		_, err := (&app{&console.Console{Out: &out}}).printItems(false, numbered(n, func(int) {}))
		require.NoError(t, err)
		var items []historyItem
		require.NoError(t, json.Unmarshal(out.Bytes(), &items))
		require.Len(t, items, n)
		for i, item := range items {
			require.Equal(t, fmt.Sprint(i), item.RequestID)
		}
	}
}

// A list is printed while it is read: its length does not matter.
func TestLongListIsPrintedWhileItIsRead(t *testing.T) {
	t.Parallel()
	const n = 100_000
	out := &countingWriter{}
	waiting := 0 // the most bytes that were made and not yet written
	_, err := (&app{&console.Console{Out: out}}).printItems(false, numbered(n, func(i int) {
		waiting = max(waiting, i*len(`{"request_id":"0"}`)-out.n)
	}))
	require.NoError(t, err)
	require.Less(t, waiting, 64<<10)

	out = &countingWriter{fail: os.ErrClosed}
	read := 0
	_, err = (&app{&console.Console{Out: out}}).printItems(false, numbered(n, func(i int) { read = i }))
	require.ErrorIs(t, err, os.ErrClosed)
	require.Less(t, read, 1000, "the reader has gone")
}

// countingWriter counts bytes, or fails.
type countingWriter struct {
	n    int
	fail error
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.n += len(b)
	return len(b), w.fail
}

// Requests whose ids begin with the same digits are told apart: an agent chooses them.
func TestHistoryTellsIDsApart(t *testing.T) {
	ids := []string{"abcd12340000000a", "abcd12340000000b", "beef12340000000c"}
	var found []*read.Request
	for _, id := range ids {
		found = append(found, &read.Request{Key: approval.Key{Workspace: "w", ID: id}, Status: approval.StatusDenied, AskedAt: time.Now()})
	}
	var out strings.Builder
	(&app{Console: &console.Console{Out: &out}}).printHistory(found)
	require.Contains(t, out.String(), ids[0])
	require.Contains(t, out.String(), ids[1])
	require.Contains(t, out.String(), "  beef1234  ")
}
