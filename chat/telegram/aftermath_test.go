package telegram_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// fakePause pauses all workspaces. It is the gate's guard.
type fakePause struct {
	mu  sync.Mutex
	now *chat.Pause
}

func (p *fakePause) Enter(string) bool { return p.in("") == nil }

func (p *fakePause) Leave(string) {}

func (p *fakePause) in(string) *chat.Pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// setPaused pauses or resumes the gate.
func (h *rig) setPaused(on bool) {
	h.pause.mu.Lock()
	h.pause.now = nil
	if on {
		h.pause.now = &chat.Pause{By: "bob", Since: time.Now()}
	}
	h.pause.mu.Unlock()
	h.gate.Resumed()
}

// withPause shows pauses, and lets approvals expire after this time.
func (h *rig) withPause(runBefore time.Duration) func(*channel) {
	return func(c *channel) {
		d := h.decider()
		d.RunBefore = func() time.Duration { return runBefore }
		c.Interceptor.Decider, c.Interceptor.Paused = d, h.pause.in
		style := c.Style
		c.Style = func(language string) chat.Style {
			s := style(language)
			s.Paused = h.pause.in
			return s
		}
	}
}

// lateDecider returns late.
type lateDecider struct {
	chat.Decider
	after <-chan struct{}
}

func (d lateDecider) Decide(ctx context.Context, in decide.Input) (*approval.Decision, error) {
	decision, err := d.Decider.Decide(ctx, in)
	<-d.after
	return decision, err
}

// storyAs is a viewer that shows another status of failed requests.
type storyAs struct {
	*read.Viewer
	status approval.Status
}

func (v storyAs) Story(ctx context.Context, k approval.Key) (read.Story, error) {
	st, err := v.Viewer.Story(ctx, k)
	if st.Record != nil {
		rec := *st.Record
		rec.Status = v.status
		st.Record = &rec
	}
	return st, err
}

// repliesTo are the bot's replies to a message, without answers to what users wrote.
func (h *rig) repliesTo(m botapi.Message) (all []botapi.Message) {
	for _, r := range h.api.State().FromBot(m.Chat.ID) {
		if r.ReplyTo != nil && r.ReplyTo.ID == m.ID {
			all = append(all, r)
		}
	}
	return all
}

func (h *rig) waitForReplyTo(m botapi.Message, text string) botapi.Message {
	h.t.Helper()
	return h.waitForMessage(m.Chat.ID, "a reply with "+text, func(r botapi.Message) bool {
		return r.ReplyTo != nil && r.ReplyTo.ID == m.ID && strings.Contains(r.Text, text)
	})
}

// An approved request that did not run well is told by a new message that rings, in every chat that was asked.
func TestFailureAfterApprovalRings(t *testing.T) {
	for status, want := range map[approval.Status]string{
		approval.StatusFailed:      "⚠ Approved, but it failed: post \"Meeting at 5\"\n",
		approval.StatusInterrupted: "⚠ Approved, but it was interrupted: post \"Meeting at 5\"\n",
	} {
		t.Run(string(status), func(t *testing.T) {
			h := newRig(t, deliver.Place{Address: at(ann, 0)}, deliver.Place{Address: at(bob, 0), Language: "it"})
			h.handler.fail = "exit status 7"
			h.start(func(c *channel) { c.Viewer = storyAs{h.viewer(), status} })
			k := keyIn(personal, 1)
			m := h.ask(k, ann, postRequest)
			his := h.waitForCard(k, bob)
			require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
			r := h.waitForReplyTo(m, "exit status 7")
			require.True(t, strings.HasPrefix(r.Text, want), r.Text)
			require.False(t, r.Silent)
			require.Contains(t, r.Text, "a7000001")
			require.False(t, h.waitForReplyTo(his, "Approvato").Silent)
			require.Empty(t, h.waitForText(m, "exit status 7").Buttons(), "the card shows it, too")
			h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
			require.Len(t, h.repliesTo(m), 1)
			require.Len(t, h.repliesTo(his), 1)
		})
	}
}

// Success changes the card and sends nothing.
func TestSuccessIsSilent(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.tap(ann, m, "✅ Once")
	h.waitForText(m, "✅ Approved by ann")
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
	require.Len(t, h.api.State().FromBot(ann), 1)
}

// A denial is no failure.
func TestDenialIsSilent(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.decideAsOperator(k, approval.Denied)
	h.waitForText(m, "❌ Denied by operator:root")
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
	require.Len(t, h.api.State().FromBot(ann), 1)
}

// An approval during a pause says so, and when it expires. The chat hears that it waits, and that it expired.
func TestApprovalDuringPause(t *testing.T) {
	h := newRig(t)
	h.start(h.withPause(8 * time.Second))
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.setPaused(true)
	a := h.tap(ann, m, "✅ Once")
	require.Regexp(t, `^Approved: post .*\n⏸ paused since \d\d:\d\d UTC by bob: it runs after resume, or expires at (\d{4}-\d\d-\d\d )?\d\d:\d\d UTC$`, a.Text)
	r := h.waitForReplyTo(m, "it runs after resume, or expires at ")
	require.True(t, strings.HasPrefix(r.Text, "⏸ Approved, but it waits for the end of a pause: post \"Meeting at 5\"\n⏸ paused since "), r.Text)
	require.False(t, r.Silent)
	h.waitForText(m, "it runs after resume")
	r = h.waitForReplyTo(m, "⌛ Approved, but it did not run in time: post \"Meeting at 5\"\n")
	require.False(t, r.Silent)
	require.Contains(t, r.Text, "paused")
	require.Equal(t, approval.StatusExpired, h.waitForResponse(k).Status)
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
	require.Len(t, h.repliesTo(m), 2)
	require.Zero(t, h.handler.count(k))
}

// A text that approves is answered in the chat: this is told once. After resume it runs, in silence.
func TestTypedApprovalDuringPause(t *testing.T) {
	h := newRig(t)
	shown := make(chan struct{})
	h.start(h.withPause(10*time.Minute), func(c *channel) { c.Interceptor.Decider = lateDecider{c.Interceptor.Decider, shown} })
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.setPaused(true)
	mine := h.api.Reply(ann, ann, m.ID, "1")
	h.waitForText(m, "it runs after resume") // before its answer
	close(shown)
	require.Contains(t, h.waitForReply(mine).Text, "it runs after resume, or expires at ")
	h.waitFor("the record", func() bool { return strings.Contains(h.record(k), `"told":"paused"`) })
	h.setPaused(false)
	h.waitForResponse(k)
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
	require.Empty(t, h.repliesTo(m))
	require.Len(t, h.api.State().FromBot(ann), 2)
}

// The daemon dies after it has told of a failure and before it has recorded that. It is told once more, and not
// again.
func TestFailureIsToldAtMostTwice(t *testing.T) {
	h := newRig(t)
	h.handler.fail = "exit status 7"
	h.start(func(c *channel) {
		c.Sent = failingStore{c.Sent, func(p string) error {
			if strings.Contains(p, `"told"`) {
				return errDiskFull
			}
			return nil
		}}
	})
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.tap(ann, m, "✅ Once")
	h.waitForReplyTo(m, "exit status 7")
	h.stopChannel()
	require.NotContains(t, h.record(k), `"told"`)
	// It dies again, before it has edited the card.
	h.start(func(c *channel) {
		c.Sent = failingStore{c.Sent, func(p string) error {
			if strings.Contains(p, `"phase":"over"`) {
				return errDiskFull
			}
			return nil
		}}
	})
	h.waitFor("the record", func() bool { return strings.Contains(h.record(k), `"told":"ended"`) })
	h.stopChannel()
	h.start()
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
	require.Len(t, h.repliesTo(m), 2)
}

// A failure that could not be told is told after the restart, also if the daemon was restarted several times.
func TestFailureIsToldAfterOutage(t *testing.T) {
	for _, fault := range []botapi.FaultKind{botapi.Offline, botapi.BadGateway, botapi.TooMany} {
		t.Run(fault.String(), func(t *testing.T) {
			h := newRig(t)
			h.handler.fail = "exit status 7"
			h.start()
			k := keyIn(personal, 1)
			m := h.ask(k, ann, postRequest)
			h.api.Fail("sendMessage", botapi.Fault{Kind: fault})
			h.tap(ann, m, "✅ Once")
			h.waitForResponse(k)
			for range 3 {
				n := h.sendCalls()
				h.waitFor("attempts", func() bool { return h.sendCalls() > n+2 })
				h.stopChannel()
				h.start()
			}
			h.api.ClearFaults()
			h.waitForReplyTo(m, "exit status 7")
			h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
			require.Len(t, h.repliesTo(m), 1)
		})
	}
}

func (h *rig) sendCalls() (n int) {
	for _, c := range h.api.State().Calls {
		if c.Method == "sendMessage" {
			n++
		}
	}
	return n
}
