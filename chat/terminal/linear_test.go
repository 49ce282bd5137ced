package terminal

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

func linear(c *Channel) { c.Linear = true }

// The linear mode shows every line of a card, in its order, and nothing of it as a code of the terminal.
func TestLinearCardIsComplete(t *testing.T) {
	shown := func(style chat.Style, p *approval.Pending) string {
		var out bytes.Buffer
		v := (&Channel{Out: &out, Style: style, Linear: true}).newView()
		v.draw(approval.StoredPending{Pending: p})
		v.flush()
		return out.String()
	}
	cards := 0
	compare := func(style chat.Style, p *approval.Pending) string {
		cards++
		text := shown(style, p)
		rest := strings.Split(text, "\n")
		card := style.Card(p)
		for _, line := range append(strings.Split(card.String(), "\n"), card.Why...) {
			if line == "" {
				continue
			}
			i := slices.Index(rest, line)
			require.GreaterOrEqual(t, i, 0, "%q is missing, or comes too early, in:\n%s", line, text)
			rest = rest[i+1:]
		}
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text, "\r")
		return text
	}
	cardtest.Run(t, cardtest.Style(t, true), func(style chat.Style, p *approval.Pending) (forms []string, approvable bool) {
		return []string{compare(style, p)}, true
	})
	for _, k := range cardtest.Kinds() {
		for _, language := range []string{"en", "it"} {
			style := cardtest.Style(t, true)
			style.Language, style.Foot = language, "log 1042 9f3c"
			compare(style, k.Pending)
		}
	}
	require.Greater(t, cards, 2*len(cardtest.Kinds()))
}

// A decision names its request, whatever is shown.
func TestLinearDecisionsNameTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeGate{waiting: []approval.StoredPending{reversible(first), reversible(second)}}
		s := start(t, h, linear)
		s.waitFor("Approve or deny a7f3b2c1?")
		for _, line := range []string{"1", "2", "3 no", "yes", "approve", "y", "? why", "a7f3", "a7f3 7", "a7f3 approve beef0000", "cafe 1"} {
			s.typeLine(line)
		}
		s.waitFor("write the request's id before the code")
		s.do(func() { require.Empty(t, s.asked) })

		s.typeLine("beef0000 1")
		s.waitFor("beef0000 was not on this screen yet")
		s.do(func() { require.Empty(t, s.asked) })
		s.typeLine("beef0000 4: log it")
		s.waitFor("Approved: post say hello")
		s.typeLine("deny a7f3b2c1 not now")
		s.waitFor("Denied: post say hello")
		s.do(func() {
			require.Len(t, s.asked, 2)
			require.Equal(t, second, s.asked[0].Key.ID)
			require.Equal(t, "sha of "+second, s.asked[0].PendingSHA256)
			require.Equal(t, "log it", s.asked[0].Note)
			require.Equal(t, first, s.asked[1].Key.ID)
		})
	})
}

func reversible(id string) approval.StoredPending {
	w := request(id)
	w.Pending.Reversibility = approval.Reversible
	return w
}

// An approval that cannot be undone is asked for once more: only the same id approves, and only exactly what was shown.
func TestLinearConfirms(t *testing.T) {
	for _, line := range []string{"approve a7f3b2c1", "a7f3b2c1 1", "a7f3b2c1 4: log it", "A7F3 yes"} {
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first), request(second)}}, linear)
				s.waitFor("Approve or deny a7f3b2c1?")
				for i, other := range []string{"y", "beef0000", "a7f3b2c1 1", "approve a7f3b2c1"} {
					s.typeLine(line)
					require.Equal(t, i+1, strings.Count(s.String(), "Type the id again: a7f3b2c1"))
					s.typeLine(other)
					require.Equal(t, i+1, strings.Count(s.String(), "Nothing was decided about a7f3b2c1"))
				}
				s.typeLine(line)
				s.typeNow("a7f3b2c1\n") // typed before the question could be read
				s.do(func() { require.Empty(t, s.asked) })
				s.typeLine("a7f3b2c1")
				s.do(func() {
					require.Len(t, s.asked, 1)
					require.Equal(t, "sha of "+first, s.asked[0].PendingSHA256)
				})
			})
		})
	}
}

// What changed between the question and its answer is not approved.
func TestLinearConfirmsExactlyWhatWasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}, keep: true}, linear)
		s.waitFor("Approve or deny a7f3b2c1?")
		s.typeLine("approve a7f3b2c1")
		changed := request(first)
		changed.SHA256 = "another"
		s.do(func() { s.waiting[0] = changed })
		s.changes <- changed.Key()
		s.typeLine("a7f3b2c1")
		s.do(func() {
			require.Len(t, s.asked, 1)
			require.Equal(t, "sha of "+first, s.asked[0].PendingSHA256, "the gate refuses what is not pending any more")
		})
	})
}

// A denial needs no confirmation.
func TestLinearDeniesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}}, linear)
		s.waitFor("Approve or deny a7f3b2c1?")
		s.typeLine("a7f3b2c1 3 not now")
		s.waitFor("Denied: post say hello")
	})
}

// A new request is one line. It does not take the place of the card, and is shown when that is decided.
func TestLinearNewRequestIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{reversible(first)}}, linear)
		s.waitFor("Approve or deny a7f3b2c1?")
		before := s.String()
		s.do(func() { s.waiting = append(s.waiting, reversible(second)) })
		s.changes <- reversible(second).Key()
		synctest.Wait()
		require.Equal(t, "\nbeef0000 · personal · x_post · say hello · 13:00 UTC\n", strings.TrimPrefix(s.String(), before))
		s.typeLine("approve a7f3b2c1")
		s.waitFor("Approve or deny beef0000?")
		s.settle(settled(t, second, approval.StatusDenied, "bob"))
		s.waitFor("beef0000 · denied · by bob (telegram)")
	})
}

// Many requests are counted, and listed when the person asks.
func TestLinearManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{reversible(first), reversible(second)}}, linear)
		s.waitFor("Still pending: 2 (type pending for the list)")
		require.NotContains(t, s.String(), "beef0000")
		s.typeLine("pending")
		s.waitFor("beef0000 · personal")
		s.typeLine("beef")
		s.waitFor("Approve or deny beef0000?")
		s.settle(settled(t, first, approval.StatusDenied, "bob"))
		s.waitFor("a7f3b2c1 · denied · by bob (telegram)")
	})
}

// Without a daemon it says once that nothing runs, and that it does again.
func TestLinearSaysWhetherADaemonRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, serves := &fakeGate{}, false
		s := start(t, h, linear, func(c *Channel) {
			c.Served = func() bool { h.mu.Lock(); defer h.mu.Unlock(); return serves }
		})
		s.waitFor("nothing runs until permesso serve is started")
		s.changes <- approval.Key{}
		synctest.Wait()
		h.do(func() { serves = true })
		s.changes <- approval.Key{}
		s.waitFor("The daemon runs again.")
		require.Equal(t, 1, strings.Count(s.String(), "not running"))
	})
}

// With one request only, it ends once that one needs no decision.
func TestLinearOnlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{reversible(second), reversible(first)}}, linear, func(c *Channel) {
			c.Only = request(second).Key()
		})
		s.waitFor("Approve or deny beef0000?")
		s.do(func() { s.waiting = append(s.waiting, reversible("cafe000000000000")) })
		s.changes <- approval.Key{}
		s.typeLine("approve beef0000")
		require.NoError(t, <-s.done)
		s.done <- nil
		require.NotContains(t, s.String(), "cafe0000")
		require.NotContains(t, s.String(), "a7f3b2c1")
	})
}
