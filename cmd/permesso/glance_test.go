package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func TestGlanceText(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		want    string
		waiting int
		age     time.Duration
		paused  bool
		daemon  string
	}{
		{"", 0, 0, false, home.DaemonUp},
		{"1 waits, oldest 59 s", 1, time.Minute - 1, false, home.DaemonUp},
		{"2 wait, oldest 3 m", 2, 239 * time.Second, false, home.DaemonUp},
		{"500 wait, oldest 23 h", 500, 24*time.Hour - 1, false, home.DaemonUp},
		{"3 wait, oldest 2 d", 3, 50 * time.Hour, false, home.DaemonUp},
		{"1 waits, oldest 0 s", 1, -time.Hour, false, home.DaemonUp}, // the clock was set back
		{"paused", 0, 0, true, home.DaemonUp},
		{"paused: 2 wait, oldest 1 m", 2, time.Minute, true, home.DaemonUp},
		{"daemon down", 0, 0, false, home.DaemonDown},
		{"daemon down: 2 wait, oldest 1 h", 2, time.Hour, false, home.DaemonDown},
		{"daemon silent, paused: 1 waits, oldest 1 h", 1, time.Hour, true, home.DaemonSilent},
	} {
		g := home.Glance{Waiting: c.waiting, Paused: c.paused, Daemon: c.daemon}
		if c.waiting > 0 {
			g.Oldest = now.Add(-c.age)
		}
		require.Equal(t, c.want, glanceText(g, now))
	}
}
