package gate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// Quiet hours extend the timeout, never shorten it. A shorter timeout that the agent
// asked for stays.
func TestQuietHoursExtendTimeout(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local().Hour()
	around := approval.QuietHours{From: time.Duration(now) * time.Hour, To: time.Duration((now+1)%24) * time.Hour, Timeout: 9 * time.Hour}
	later := approval.QuietHours{From: around.To, To: around.From, Timeout: 9 * time.Hour}
	for _, tc := range []struct {
		why   string
		night approval.QuietHours
		more  string
		want  time.Duration
	}{
		{"in quiet hours", around, "", 9 * time.Hour},
		{"outside quiet hours", later, "", time.Hour},
		{"quiet hours without a timeout", approval.QuietHours{From: around.From, To: around.To}, "", time.Hour},
		{"a shorter timeout", approval.QuietHours{From: around.From, To: around.To, Timeout: time.Minute}, "", time.Hour},
		{"a shorter timeout by the agent", around, `"expires_in_sec":60`, time.Minute},
	} {
		t.Run(tc.why, func(t *testing.T) {
			h := newRig(t, options{frozenClock: true, quietHours: tc.night})
			k := key(1)
			body := request(k, "run", "")
			if tc.more != "" {
				body = request(k, "run", "", tc.more)
			}
			h.ask(k, body)
			p := h.pending(k)
			require.Equal(t, tc.want, p.ExpiresAt.Sub(p.Timestamp))
		})
	}
}
