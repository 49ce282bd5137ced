package deliver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// What happens after an approval is told everywhere; as a notification in the host's words alone.
func TestAftermathIsTold(t *testing.T) {
	x := &sentCopy{Message: "1"}
	p := &sentRecord{Copies: []*sentCopy{x}}
	st := status{
		Story: read.Story{
			Pending:  &approval.Pending{SourceGroup: "personal", ShortID: "a7f3b2c1", ToolName: "hello", ToolSHA256: "5e", Summary: "hostile", RequestData: approval.Raw(`{"x":"hostile"}`)},
			Decision: &approval.Decision{Verdict: approval.Approved},
		}, pause: &chat.Pause{},
	}
	for _, traits := range []Traits{{Edits: true}, {Letters: Notices{}, Outcomes: true, OneWay: true}} {
		s := &session{Channel: &Channel{Style: func(string) chat.Style { return chat.Style{} }}, traits: traits}
		require.True(t, s.hasToTell(p, x, st))
		require.Equal(t, chat.Notice{
			Title: "⏸ Approved, but it waits for the end of a pause: May I run hello?", Text: "hello · personal · a7f3b2c1",
		}, s.renderer("").aftermathNotice(tellPause, st))
	}
}
