package deliver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// What happens after an approval is told with the words of the request: not where only the host's words may leave.
func TestAftermathIsForChannelsWithCards(t *testing.T) {
	x := &sentCopy{Message: "1"}
	p := &sentRecord{Copies: []*sentCopy{x}}
	st := status{
		Story: read.Story{Pending: &approval.Pending{}, Decision: &approval.Decision{Verdict: approval.Approved}}, pause: &chat.Pause{},
	}
	for _, oneWay := range []bool{false, true} {
		s := &session{Channel: &Channel{}, traits: Traits{Edits: true, OneWay: oneWay}}
		require.Equal(t, !oneWay, s.hasToTell(p, x, st))
	}
}
