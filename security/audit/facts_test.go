package audit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/security/audit"
)

func TestMissingFactsAreAnAlarm(t *testing.T) {
	at := func(sec int) time.Time { return clock().Add(time.Duration(sec) * time.Second) }
	outcome := func(kind event.Kind) audit.Facts {
		return audit.Facts{Outcomes: map[string][]event.Kind{"w/b": {kind, event.Released}}, At: map[string]time.Time{"w/b": at(3)}}
	}
	receipt := func(digest string) audit.Facts {
		return audit.Facts{Receipts: map[string]string{digest: "w/b"}, At: map[string]time.Time{"w/b": at(3)}}
	}
	story := []event.Entry{
		{Time: at(1), Event: event.Executed, Workspace: "w", RequestID: "a"},
		{Time: at(2), Event: event.AutoApproved, Workspace: "w", RequestID: "b", ReceiptSHA256: "1"},
		{Time: at(3), Event: event.Executed, Workspace: "w", RequestID: "b", ReceiptSHA256: "3"},
		{Time: at(4), Event: event.Failed, Workspace: "v", RequestID: "b"},
	}
	for _, c := range []struct {
		why   string
		facts audit.Facts
		acked int // seconds; 0: no alarm was acknowledged
		lacks bool
	}{
		{"nothing to find", audit.Facts{}, 0, false},
		{"its outcome", outcome(event.Executed), 0, false},
		{"another outcome", outcome(event.Denied), 0, true},
		{"the outcome of another workspace", outcome(event.Failed), 0, true},
		{"its receipt", receipt("1"), 0, false},
		{"another receipt", receipt("2"), 0, true},
		{"a receipt that only an outcome names", receipt("3"), 0, true},
		{"acknowledged before", outcome(event.Denied), 2, true},
		{"acknowledged since", outcome(event.Denied), 5, false},
		{"also of a receipt", receipt("2"), 5, false},
		{"a kept receipt is never covered", audit.Facts{Receipts: map[string]string{"2": "file"}}, 5, true},
	} {
		t.Run(c.why, func(t *testing.T) {
			disk := newDisk(t)
			l := openSigned(t, disk.Process("daemon"))
			for _, e := range story {
				l.Note(e)
			}
			if c.acked > 0 {
				l.Note(event.Entry{Time: at(c.acked), Event: event.LogAcknowledged})
			}
			require.NoError(t, l.Close())
			check := &audit.Check{FS: disk.Process("verifier"), Dir: dir, Keys: testKeys(t).Known, Facts: c.facts}
			for range 2 {
				report, err := check.Run()
				if c.lacks {
					require.ErrorIs(t, err, audit.ErrTampered)
					require.ErrorContains(t, err, c.facts.String())
				} else {
					require.NoError(t, err)
					if c.acked > 0 {
						require.Contains(t, report.Notes, c.facts.String()+": an alarm that was acknowledged later covers it")
					}
				}
			}
			require.NoError(t, audit.RaiseIfMissing(disk.Process("daemon"), dir, l.Appended(), c.facts))
			if a := alarmOf(t, disk); c.lacks {
				require.NotNil(t, a)
				require.Equal(t, c.facts.String(), a.Reason)
			} else {
				require.Nil(t, a)
			}
		})
	}
}

func TestSplitCheckpoints(t *testing.T) {
	const one, two = "o\n1\nr\n\n— o a\n", "o\n2\nr\n\n— o a\n— w b\n"
	for text, want := range map[string][]string{
		one: {one}, one[:len(one)-1]: {one}, one + "\n" + two + "\n": {one, two}, "": nil, "x": {"x\n"},
	} {
		require.Equal(t, want, audit.SplitCheckpoints(text), text)
	}
}
