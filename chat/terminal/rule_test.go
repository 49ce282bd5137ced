package terminal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
)

// The word rule prints the lines of a rule for the card on the screen, and what they would
// have allowed. It decides nothing.
func TestProposeRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, refuse := chat.Proposal{Rule: "[[rules]]\noutcome = \"allow\"", Would: 3, Of: 7}, error(nil)
		var asked []approval.Key
		w := request(first)
		s := start(t, &fakeGate{waiting: []approval.StoredPending{w}}, func(c *Channel) {
			c.ProposeRule = func(_ context.Context, k approval.Key) (chat.Proposal, error) {
				asked = append(asked, k)
				return x, refuse
			}
		})
		s.wait(time.Minute)
		s.typeLine("Rule")
		s.waitFor("It would have allowed 3 of the last 7 requests that were asked.\n[[rules]]\noutcome = \"allow\"\n")
		require.Equal(t, []approval.Key{w.Key()}, asked)
		x = chat.Proposal{WhyNot: []approval.Reason{approval.Because("rule_no_tool")}}
		s.typeLine("rule")
		s.waitFor("No rule can allow this request:\nit names no tool: a grant may allow it again\n")
		refuse = &decide.Refusal{Reason: decide.ErrUnknown}
		s.typeLine("rule")
		s.waitFor("No rule: " + decide.ErrUnknown.Error())
		refuse = errors.New("disk on fire")
		s.typeLine("rule")
		s.waitFor("No rule: the daemon's log")
		s.do(func() { require.Empty(t, s.asked) })
	})
}
