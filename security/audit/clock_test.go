package audit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/security/audit"
)

func TestSteady(t *testing.T) {
	const hour, day, year = time.Hour, 24 * time.Hour, 365 * 24 * time.Hour
	for _, c := range []struct {
		why     string
		entries []time.Duration // after the first
		now     time.Duration
		steady  bool
	}{
		{"no entry to compare with", nil, 0, false},
		{"a new gate", []time.Duration{0}, hour, true},
		{"every day", []time.Duration{0, day, 2 * day, 3 * day}, 4 * day, true},
		{"a week's pause", []time.Duration{0}, 7 * day, true},
		{"set forward, nothing logged since", []time.Duration{0, hour}, 10 * year, false},
		{"set forward, and the log continues", []time.Duration{0, hour, 10 * year}, 10*year + hour, false},
		{"set forward, restarted", []time.Duration{0, hour, 10 * year, 10*year + hour, 10*year + 2*hour}, 10*year + 23*hour, false},
		{"a day later it is trusted", []time.Duration{0, hour, 10 * year, 10*year + 20*hour}, 10*year + 25*hour, true},
		{"set forward and back", []time.Duration{0, hour, 10 * year, 2 * hour}, 3 * hour, false},
		{"set back, and the log continued for a day", []time.Duration{0, hour, 10 * year, 2 * hour, 20 * hour}, 30 * hour, true},
		{"set back", []time.Duration{10 * year, 0}, hour, true}, // with such a clock nothing is too old
	} {
		p := newDisk(t).Process("daemon")
		l := open(t, p)
		for _, after := range c.entries {
			l.Note(event.Entry{Event: event.Started, Time: clock().Add(after)})
		}
		require.NoError(t, l.Close())
		err := audit.CheckClock(p, dir, clock().Add(c.now))
		if c.steady {
			require.NoError(t, err, c.why)
			continue
		}
		var leap *audit.ClockJump
		require.ErrorAs(t, err, &leap, c.why)
	}
	require.Error(t, audit.CheckClock(newDisk(t).Process("reader"), "/nowhere", clock()))
}

func TestLeapNamesBothTimes(t *testing.T) {
	p := newDisk(t).Process("daemon")
	l := open(t, p)
	require.NoError(t, l.Append(entry(1)))
	err := audit.CheckClock(p, dir, clock().AddDate(3, 0, 0))
	require.EqualError(t, err, "the clock jumped from 2026-11-21T12:00:00Z to 2029-11-21T12:00:00Z between two entries of the audit log")
}
