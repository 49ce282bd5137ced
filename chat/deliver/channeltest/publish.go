package channeltest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
)

// RunPublisher tests an adapter that only shows notifications. Of the fixture it needs Adapter, At, Shown and Fail. A
// message that replaces another one has its ID. Each test opens a service of its own.
func RunPublisher(t *testing.T, open func(t *testing.T) Fixture) {
	for name, test := range map[string]func(*rig){
		"a card has no word of the agent":            (*rig).noticeOfHost,
		"the outcome replaces the card":              (*rig).noticeSettled,
		"a failure rings, with no word of the agent": (*rig).noticeFailed,
		"refusals by a limit are one line":           (*rig).noticeLimited,
		"a restart asks nothing twice":               (*rig).noticeRestart,
		"a failure loses nothing":                    (*rig).noticeRetry,
		"each of many requests has its card":         (*rig).noticeMany,
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{T: t, Fixture: open(t)}
			r.gate = newGate(t, "test", "ann")
			r.sent = r.gate.sent
			r.start()
			t.Cleanup(func() { r.stop() })
			test(r)
		})
	}
}

// hostile is what the agent writes in these tests.
const hostile = "hostile: approve at http://evil.example"

// notice waits for the notice of a request, with what it says.
func (r *rig) notice(k approval.Key, says string) Shown {
	r.Helper()
	m := r.awaitMessage("the notice of "+k.ID, func(m Shown) bool {
		return strings.Contains(m.Text, approval.ShortID(k.ID)) && strings.Contains(m.Text, says)
	})
	require.NotContains(r, m.Text, "hostile")
	require.Empty(r, m.Buttons)
	return m
}

// requireNotices fails unless there are n messages.
func (r *rig) requireNotices(n int) {
	r.Helper()
	require.Len(r, r.Shown(), n)
}

func (r *rig) noticeOfHost() {
	k := r.gate.ask(1, hostile)
	m := r.notice(k, "🔐 May I ")
	require.Contains(r, m.Text, workspace)
	require.Nil(r, r.gate.decision(k))
}

func (r *rig) noticeSettled() {
	k := r.gate.ask(1, hostile)
	m := r.notice(k, "🔐")
	a := decide.ByCode("3", hostile)
	a.Key, a.By, a.Via = k, r.gate.approver, "cli"
	_, err := r.gate.decider.Decide(r.Context(), a)
	require.NoError(r, err)
	require.Equal(r, m.ID, r.notice(k, "Settled: denied").ID)
	r.await("the end of the record", func() bool { return !r.sent.has(`"state"`) })
	r.requireNotices(1)
}

// What went wrong after an approval is a message of its own, with a sound.
func (r *rig) noticeFailed() {
	k := r.gate.askTool("fails", "a7000001deadbeef", hostile)
	card := r.notice(k, "🔐")
	a := decide.ByCode("1", "")
	a.Key, a.By, a.Via = k, r.gate.approver, "cli"
	_, err := r.gate.decider.Decide(r.Context(), a)
	require.NoError(r, err)
	settled, failed := r.notice(k, "Settled: failed"), r.notice(k, "⚠ Approved, but it failed: May I ")
	require.Equal(r, card.ID, settled.ID)
	require.NotEqual(r, card.ID, failed.ID)
	require.Equal(r, []bool{false, true, false}, []bool{card.Silent, settled.Silent, failed.Silent})
	r.await("the end of the record", func() bool { return !r.sent.has(`"state"`) })
	r.requireNotices(2)
}

// Requests that a limit refused are told once in an hour, with their number, also those before the channel runs.
func (r *rig) noticeLimited() {
	told := func(n int) {
		says := fmt.Sprintf("🚫 personal: requests refused by a limit, without asking you: %d", n)
		r.awaitMessage("the line", func(m Shown) bool { return strings.Contains(m.Text, says) })
	}
	r.notice(r.gate.ask(1, hostile), "🔐")
	for range 3 {
		r.run.Limited(workspace)
	}
	told(3)
	r.ahead.Store(int64(59 * time.Minute))
	r.run.Limited(workspace)
	stored := func(n int) {
		r.await("the stored number", func() bool {
			b, err := r.gate.state.Get("limited-" + workspace + ".json")
			return err == nil && strings.Contains(string(b), fmt.Sprintf(`"count":%d,`, n))
		})
	}
	stored(1)
	r.ahead.Store(int64(62 * time.Minute))
	r.run.Limited(workspace)
	told(2)
	r.requireNotices(3)

	stored(0)
	r.stop()
	r.ahead.Store(int64(124 * time.Minute))
	r.build()
	for range 4 {
		r.run.Limited(workspace) // the gate may refuse before the channel is ready
	}
	r.begin()
	told(4)
	r.requireNotices(4)
}

func (r *rig) noticeRestart() {
	k := r.gate.ask(1, hostile)
	r.notice(k, "🔐")
	r.await("the record of the card", func() bool { return r.sent.has(`"state":"sent"`) })
	r.stop()
	r.start()
	r.notice(r.gate.ask(2, hostile), "🔐")
	r.requireNotices(2)
}

func (r *rig) noticeRetry() {
	r.Fail()
	r.notice(r.gate.ask(1, hostile), "🔐")
	r.requireNotices(1)
}

func (r *rig) noticeMany() {
	for n := range 6 {
		r.gate.ask(n, fmt.Sprint(hostile, n))
	}
	r.await("a notice for each", func() bool { return len(r.Shown()) == 6 })
}
