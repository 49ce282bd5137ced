package approval

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNightCovers(t *testing.T) {
	over := QuietHours{From: 22 * time.Hour, To: 7 * time.Hour}
	nap := QuietHours{From: 13 * time.Hour, To: 14*time.Hour + 30*time.Minute}
	for _, tc := range []struct {
		why   string
		night QuietHours
		at    string
		want  bool
	}{
		{"none is never", QuietHours{}, "03:00:00", false},
		{"equal ends are none, not a whole day", QuietHours{From: time.Hour, To: time.Hour}, "01:00:00", false},
		{"it begins on the dot", over, "22:00:00", true},
		{"a second before it is day", over, "21:59:59", false},
		{"midnight is in it", over, "00:00:00", true},
		{"it ends on the dot", over, "07:00:00", false},
		{"the last second", over, "06:59:59", true},
		{"noon", over, "12:00:00", false},
		{"within one day", nap, "14:29:59", true},
		{"after it", nap, "14:30:00", false},
		{"before it", nap, "12:59:59", false},
	} {
		at, err := time.Parse("15:04:05", tc.at)
		require.NoError(t, err)
		require.Equal(t, tc.want, tc.night.Covers(at), tc.why)
	}
	rome := time.FixedZone("Rome", 3600)
	require.True(t, over.Covers(time.Date(2026, 11, 21, 21, 30, 0, 0, time.UTC).In(rome)), "the clock on the wall counts")
}
