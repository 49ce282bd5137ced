package approval

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuietHoursCovers(t *testing.T) {
	over := QuietHours{From: 22 * time.Hour, To: 7 * time.Hour}
	midday := QuietHours{From: 13 * time.Hour, To: 14*time.Hour + 30*time.Minute}
	for _, tc := range []struct {
		why   string
		hours QuietHours
		at    string
		want  bool
	}{
		{"the zero value covers nothing", QuietHours{}, "03:00:00", false},
		{"equal ends mean no quiet hours", QuietHours{From: time.Hour, To: time.Hour}, "01:00:00", false},
		{"the beginning", over, "22:00:00", true},
		{"a second before", over, "21:59:59", false},
		{"midnight", over, "00:00:00", true},
		{"the end", over, "07:00:00", false},
		{"the last second", over, "06:59:59", true},
		{"noon", over, "12:00:00", false},
		{"within one day", midday, "14:29:59", true},
		{"after it", midday, "14:30:00", false},
		{"before it", midday, "12:59:59", false},
	} {
		at, err := time.Parse("15:04:05", tc.at)
		require.NoError(t, err)
		require.Equal(t, tc.want, tc.hours.Covers(at), tc.why)
	}
	rome := time.FixedZone("Rome", 3600)
	require.True(t, over.Covers(time.Date(2026, 11, 21, 21, 30, 0, 0, time.UTC).In(rome)), "local time counts")
}
