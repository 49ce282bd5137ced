package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/security/audit"
)

// logOf writes a log from lines such as "5 a approved ann cli": seconds, request,
// event, decider and via.
func logOf(t *testing.T, story string) afero.Fs {
	t.Helper()
	p := newDisk(t).Process("daemon")
	l := open(t, p)
	for text := range strings.SplitSeq(strings.TrimSpace(story), "\n") {
		f := append(strings.Fields(text), "", "")
		var sec int
		_, err := fmt.Sscan(f[0], &sec)
		require.NoError(t, err)
		e := event.Entry{
			Time: clock().Add(time.Duration(sec) * time.Second), Event: event.Kind(f[2]),
			Workspace: "w", RequestID: f[1], Tool: "tool-" + f[1], By: f[3], Via: f[4],
		}
		if f[3] == event.DetailAgain {
			e.Detail, e.By = f[3], ""
		}
		if f[1] == "-" {
			e.Workspace, e.RequestID, e.Tool = "", "", ""
		}
		l.Note(e)
	}
	require.NoError(t, l.Close())
	return p
}

// logIn reads the log of a disk.
func logIn(fsys afero.Fs) read.Log {
	return func(keep func([]byte) bool, each func(event.Entry) error) error {
		return audit.Backwards(fsys, dir, keep, each)
	}
}

// summary is one request as a short text. A dash means unknown.
func summary(r *read.Request) string {
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return fmt.Sprint(int(t.Sub(clock()).Seconds()))
	}
	by := r.By
	if by == "" {
		by = "-"
	}
	return fmt.Sprintf("%s %s by %s %s %s %s", r.Key.ID, r.Status, by, at(r.AskedAt), at(r.DecidedAt), at(r.EndedAt))
}

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		why, log string
		want     []string // id, status, decider, asked, decided, ended
	}{
		{"no request", "0 - started", nil},
		{"asked, approved, run", "1 a approval_requested\n3 a approved ann cli\n7 a executed ann cli", []string{"a approved by ann 1 3 7"}},
		{"released", "1 a approval_requested\n3 a approved ann cli\n3 a released ann cli", []string{"a approved by ann 1 3 3"}},
		{"failed", "1 a approval_requested\n3 a approved ann cli\n7 a failed ann cli", []string{"a failed by ann 1 3 7"}},
		{"a rule", "1 a auto_approved\n2 a executed", []string{"a auto_approved by - 1 1 2"}},
		{"refused at once", "1 a auto_rejected\n2 b malformed", []string{"b malformed by - 2 2 2", "a auto_rejected by - 1 1 1"}},
		{"pending", "1 a approval_requested", []string{"a pending by - 1 - -"}},
		{"running", "1 a approval_requested\n2 a approved ann cli", []string{"a running by ann 1 2 -"}},
		{"expired", "1 a approval_requested\n301 a expired deadline gate", []string{"a expired by deadline 1 301 301"}},
		{"denied", "1 a approval_requested\n2 a denied_by_user bob cli", []string{"a denied by bob 1 2 2"}},
		{"interrupted and run again", "1 a auto_approved\n5 a auto_approved again\n6 a executed", []string{"a auto_approved by - 1 1 6"}},
		{"approved and run again", "1 a approval_requested\n2 a approved ann cli\n5 a approved ann cli\n6 a executed ann cli", []string{"a approved by ann 1 2 6"}},
		{"ordered by the time of asking", "1 a approval_requested\n2 b auto_approved\n3 b executed\n9 a denied_by_user ann cli", []string{"b auto_approved by - 2 2 3", "a denied by ann 1 9 9"}},
		{"unrelated events are ignored", "1 a approval_requested\n2 a refused_decider eve cli\n2 a forged\n4 a denied_by_user ann cli\n5 a response_restored\n6 a redeemed ann cli", []string{"a denied by ann 1 4 4"}},
		{"unrelated events alone are no request", "1 a refused_decider eve cli\n2 b forged", nil},
		{"pruned, and the id used again", "1 a approval_requested\n2 a approved ann cli\n3 a executed ann cli\n4 - pruned\n5 a approval_requested\n6 a denied_by_user bob cli", []string{"a denied by bob 5 6 6", "a approved by ann 1 2 3"}},
		{"used again by a rule", "1 a auto_approved\n2 a executed\n5 a auto_rejected", []string{"a auto_rejected by - 5 5 5", "a auto_approved by - 1 1 2"}},
		{"refused, then asked", "1 a auto_rejected\n5 a approval_requested", []string{"a pending by - 5 - -", "a auto_rejected by - 1 1 1"}},
		{"a power cut lost the first entry", "5 a denied_by_user ann cli", []string{"a denied by ann - 5 5"}},
		{"two lost their first entries, and have one id", "5 a denied_by_user ann cli\n6 b auto_approved\n7 a denied_by_user bob cli", []string{"a denied by bob - 7 7", "b running by - 6 6 -", "a denied by ann - 5 5"}},
		{"a power cut lost the outcome", "1 a approval_requested\n2 a approved ann cli\n9 - started", []string{"a running by ann 1 2 -"}},
	} {
		found, more, err := read.Requests(logIn(logOf(t, c.log)), read.Query{})
		require.NoError(t, err, c.why)
		require.False(t, more, c.why)
		var got []string
		for _, r := range found {
			got = append(got, summary(r))
			require.Equal(t, "tool-"+r.Key.ID, r.Tool, c.why)
		}
		require.Equal(t, c.want, got, c.why)

		var streamed []string
		require.NoError(t, read.Each(logIn(logOf(t, c.log)), read.Query{}, func(r *read.Request) error {
			streamed = append(streamed, summary(r))
			return nil
		}))
		require.ElementsMatch(t, c.want, streamed, c.why)
		if !strings.Contains(c.why, "lost their first") {
			require.Equal(t, c.want, streamed, c.why)
		}
	}
}

func TestRequestsSelection(t *testing.T) {
	log := logOf(t, `
1 a approval_requested
2 b auto_approved
3 b executed
4 c approval_requested
5 c denied_by_user ann cli
6 d approval_requested
9 a approved ann cli
9 a executed ann cli`)
	at := func(sec int) time.Time { return clock().Add(time.Duration(sec) * time.Second) }
	for _, c := range []struct {
		why    string
		wanted read.Query
		want   string
		more   bool
	}{
		{"all", read.Query{}, "d c b a", false},
		{"since is inclusive", read.Query{Since: at(4)}, "d c", false},
		{"until is exclusive", read.Query{Until: at(4)}, "b a", false},
		{"both", read.Query{Since: at(2), Until: at(6)}, "c b", false},
		{"limit selects by the newest entry", read.Query{Limit: 1}, "a", true},
		{"and the result is ordered by the time of asking", read.Query{Limit: 2}, "d a", true},
		{"limit equal to the number", read.Query{Limit: 4}, "d c b a", false},
		{"matching", read.Query{Match: func(r *read.Request) bool { return r.By == "ann" }}, "c a", false},
		{"matching, limited", read.Query{Limit: 1, Match: func(r *read.Request) bool { return r.Tool < "tool-c" }}, "a", true},
	} {
		found, more, err := read.Requests(logIn(log), c.wanted)
		require.NoError(t, err, c.why)
		var got []string
		for _, r := range found {
			got = append(got, r.Key.ID)
		}
		require.Equal(t, c.want, strings.Join(got, " "), c.why)
		require.Equal(t, c.more, more, c.why)
		if c.wanted.Limit == 0 {
			got = nil
			require.NoError(t, read.Each(logIn(log), c.wanted, func(r *read.Request) error {
				got = append(got, r.Key.ID)
				return nil
			}))
			require.Equal(t, c.want, strings.Join(got, " "), c.why)
		}
	}
}

// A search for the newest requests must not read the complete log.
func TestRequestsStopsEarly(t *testing.T) {
	disk := newDisk(t)
	put(t, disk, "log.jsonl", "damaged\n")
	put(t, disk, "log-2.jsonl", line(2)+strings.Replace(line(3), "executed", "auto_rejected", 1)+strings.Replace(line(4), "executed", "malformed", 1))
	p := disk.Process("reader")
	found, more, err := read.Requests(logIn(p), read.Query{Limit: 1})
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, found, 1)
	_, _, err = read.Requests(logIn(p), read.Query{Since: clock().Add(25 * time.Hour)})
	require.NoError(t, err, "more than a day before Since")
	found, _, err = read.Requests(logIn(p), read.Query{Since: clock()})
	require.ErrorIs(t, err, audit.ErrDamaged, "within a day the clock may have been set back")
	require.Len(t, found, 3, "the requests found before the damage")
	n := 0
	require.ErrorIs(t, read.Each(logIn(p), read.Query{}, func(*read.Request) error { n++; return nil }), audit.ErrDamaged)
	require.Equal(t, 3, n)
}
