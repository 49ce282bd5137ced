package deliver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// The feed says what a rule allowed despite the trifecta or secrets.
func TestFeedSaysDespite(t *testing.T) {
	r := &approval.Ruling{Reasons: []approval.Reason{
		approval.Because("table_allow", "level", "full", "capability", "channel:out"),
		approval.Because("despite", "rule", "team", "what", "trifecta"),
	}}
	require.Equal(t, " · rule team allows it despite trifecta", allowedDespite(r, "en"))
	require.Equal(t, " · la regola team lo permette nonostante trifecta", allowedDespite(r, "it"))
	require.Empty(t, allowedDespite(&approval.Ruling{Reasons: r.Reasons[:1]}, "en"))
}
