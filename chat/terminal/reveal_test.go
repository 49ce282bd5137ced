package terminal

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
)

// masksHello is a Redactor that masks one word.
type masksHello struct{}

func (m masksHello) For(*approval.Pending) chat.Redactor { return m }
func (m masksHello) Secrets(s string) []chat.Span        { return m.Tokens(s) }
func (masksHello) Withheld(string) string                { return "" }
func (masksHello) Unmaskable() []string                  { return nil }

func (masksHello) Tokens(s string) []chat.Span {
	if i := strings.Index(s, "hello"); i >= 0 {
		return []chat.Span{{Start: i, End: i + 5, Kind: "token"}}
	}
	return nil
}

// The card with its secrets is shown on the alternate screen only, after the operation
// that writes the audit entry, and codes do not count there.
func TestReveal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []approval.Key
		var refuse error
		w := request(first)
		s := start(t, &fakeGate{waiting: []approval.StoredPending{w}}, func(c *Channel) {
			c.Style.Redact = masksHello{}
			c.Reveal = func(_ context.Context, k approval.Key) (*approval.StoredPending, error) {
				asked = append(asked, k)
				return &w, refuse
			}
		})
		s.waitFor("text: ‹token, 5 characters› from")
		refuse = &decide.Refusal{Reason: decide.ErrNotAuthorized}
		s.typeLine("reveal")
		s.waitFor("Not revealed: " + decide.ErrNotAuthorized.Error())
		refuse = errors.New("disk on fire")
		s.typeLine("reveal")
		s.waitFor("Not revealed: the daemon's log")
		require.NotContains(t, s.String(), "text: hello")

		refuse = nil
		s.typeLine("reveal")
		s.waitFor("press Enter to leave")
		require.Equal(t, []approval.Key{w.Key(), w.Key(), w.Key()}, asked)
		before, after, _ := strings.Cut(s.String(), enterAltScreen)
		require.NotContains(t, before, "text: hello")
		require.Contains(t, after, "text: hello from")
		s.typeLine("1") // leaves, and decides nothing
		s.waitFor(leaveAltScreen)
		_, after, _ = strings.Cut(s.String(), leaveAltScreen)
		require.NotContains(t, after, "text: hello")
		s.do(func() { require.Empty(t, s.asked) })
	})
}
