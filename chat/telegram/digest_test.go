package telegram_test

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// askInDigest asks until the digest in a chat has these lines.
func (h *rig) askInDigest(chatID int64, from, n int) (d botapi.Message) {
	h.t.Helper()
	for i := range n {
		h.request(keyIn(personal, from+i), postRequest)
		h.waitFor("its sent record", func() bool { return strings.Contains(h.record(keyIn(personal, from+i)), `"state":"sent"`) })
	}
	return h.waitForMessage(chatID, "the digest", func(m botapi.Message) bool {
		return strings.Contains(m.Text, " requests still open") && strings.Contains(m.Text, approval.ShortID(keyIn(personal, from+n-1).ID))
	})
}

// button is the data of a button, in the last version of a digest that has it.
func (h *rig) button(m botapi.Message, text string) (data string) {
	h.t.Helper()
	h.waitForEdit(m, "a button "+text, func(m botapi.Message) bool {
		b, ok := m.Button(text)
		data = b.CallbackData
		return ok
	})
	return data
}

// verdict is the verdict on a request, "" if it is undecided.
func (h *rig) verdict(k approval.Key) approval.Verdict {
	st, err := h.viewer().Story(h.ctx, k)
	require.NoError(h.t, err)
	if st.Decision == nil {
		return ""
	}
	return st.Decision.Verdict
}

// heldDigest is an adapter that waits before it returns from a message about a digest.
type heldDigest struct {
	deliver.Adapter
	shown   chan string // texts that were sent or edited
	release chan struct{}
}

func (a heldDigest) hold(ctx context.Context, m deliver.Message) {
	if !strings.Contains(m.Text(), " requests still open") {
		return
	}
	select {
	case a.shown <- m.Text():
	case <-ctx.Done():
	}
	select {
	case <-a.release:
	case <-ctx.Done():
	}
}

// next is the next text that was sent or edited.
func (a heldDigest) next(h *rig) string {
	h.t.Helper()
	select {
	case text := <-a.shown:
		return text
	case <-h.ctx.Done():
		require.NoError(h.t, h.ctx.Err(), "no digest was sent")
		return ""
	}
}

func (a heldDigest) Send(ctx context.Context, to deliver.Address, m deliver.Message) (deliver.ID, error) {
	id, err := a.Adapter.Send(ctx, to, m)
	a.hold(ctx, m)
	return id, err
}

func (a heldDigest) Edit(ctx context.Context, to deliver.Address, id deliver.ID, m deliver.Message) error {
	err := a.Adapter.Edit(ctx, to, id, m)
	a.hold(ctx, m)
	return err
}

// A request that joins a digest while the digest is being sent counts as sent only with its own line.
func TestRequestJoinsDigestBeingSent(t *testing.T) {
	h := newRig(t)
	held := heldDigest{shown: make(chan string), release: make(chan struct{})}
	h.start(func(c *channel) {
		c.MaxCards = 1
		held.Adapter = c.Channel.Adapter
		c.Channel.Adapter = held
	})
	h.ask(keyIn(personal, 1), ann, postRequest)
	h.request(keyIn(personal, 2), postRequest)
	require.NotContains(t, held.next(h), "a7000003")
	h.request(keyIn(personal, 3), postRequest)
	h.waitFor("its record", func() bool { return h.record(keyIn(personal, 3)) != "" })
	held.release <- struct{}{}
	require.Contains(t, held.next(h), "a7000003")
	require.Contains(t, h.record(keyIn(personal, 2)), `"state":"sent"`)
	require.NotContains(t, h.record(keyIn(personal, 3)), `"state":"sent"`)
	held.release <- struct{}{}
	h.waitFor("its sent record", func() bool { return strings.Contains(h.record(keyIn(personal, 3)), `"state":"sent"`) })
}

// One button denies what its digest showed when it was sent, for an approver, and nothing else.
func TestDenyAll(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	flood := func(c *channel) { c.MaxCards = 1 }
	h.start(flood)
	h.ask(keyIn(personal, 1), family, postRequest)
	first := h.askInDigest(family, 2, 3)
	data := h.button(first, "❌ Deny these 3")
	second := h.askInDigest(family, 5, 2)
	require.Equal(t, first.ID, second.ID)
	h.decideAsOperator(keyIn(personal, 2), approval.Approved)
	h.waitForResponse(keyIn(personal, 2))

	for _, who := range []int64{eve, carl} {
		require.Equal(t, "You are not an approver here.", h.waitForAnswer(h.api.TapData(who, family, first.ID, data)).Text)
	}
	require.Empty(t, h.verdict(keyIn(personal, 3)))

	h.stopChannel()
	h.start(flood)
	a := h.waitForAnswer(h.api.TapData(ann, family, first.ID, data))
	require.Equal(t, "❌ Denied in personal: 2 · already decided, or changed: 1 · others there still pending: 3", a.Text)
	for n, want := range []approval.Verdict{"", approval.Approved, approval.Denied, approval.Denied, "", ""} {
		require.Equal(t, want, h.verdict(keyIn(personal, n+1)), "request %d", n+1)
	}
	require.Equal(t, "ann", h.decisionOf(keyIn(personal, 3)).DecidedBy)
	require.Equal(t, "telegram", h.decisionOf(keyIn(personal, 3)).Via)
	d := h.waitForText(second, "📋 personal: 2 of 5 requests still open\n")
	require.Equal(t, append(labels(4, 5), "❌ Deny these 2"), d.Buttons())
	require.Equal(t, "❌ Denied in personal: 2 · others there still pending: 1", h.tap(ann, d, "❌ Deny these 2").Text)
	require.Equal(t, approval.Denied, h.verdict(keyIn(personal, 6)))
	require.Empty(t, h.verdict(keyIn(personal, 1)), "it has a card of its own")
	require.Empty(t, h.waitForText(second, "📋 personal: 0 of 5 requests still open\n").Buttons())
}

// A digest with one open request says so on its button. Nothing else waits after it.
func TestDenyThisOne(t *testing.T) {
	h := newRig(t)
	h.start(func(c *channel) { c.MaxCards = 1 })
	m := h.ask(keyIn(personal, 1), ann, postRequest)
	d := h.askInDigest(ann, 2, 1)
	require.Equal(t, append(labels(1), "❌ Deny this one"), d.Buttons())
	h.tap(ann, m, "❌ Deny")
	a := h.tap(ann, d, "❌ Deny this one")
	require.Equal(t, "❌ Denied in personal: 1", a.Text)
	require.False(t, a.Alert)
	require.Equal(t, approval.Denied, h.verdict(keyIn(personal, 2)))
}

// A request that was replaced since its line was shown is not denied.
func TestDenyAllOfReplaced(t *testing.T) {
	h := newRig(t)
	h.start(func(c *channel) { c.MaxCards = 1 })
	h.ask(keyIn(personal, 1), ann, postRequest)
	d := h.askInDigest(ann, 2, 2)
	data := h.button(d, "❌ Deny these 2")
	h.stopChannel()
	names, err := h.channel().State.List()
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasPrefix(name, "digest-") {
			raw, err := h.channel().State.Get(name)
			require.NoError(t, err)
			other := regexp.MustCompile(`("`+keyIn(personal, 2).ID+`":")[0-9a-f]{64}`).ReplaceAllString(string(raw), "${1}"+strings.Repeat("5e", 32))
			require.NotEqual(t, string(raw), other)
			require.NoError(t, h.channel().State.Put(name, []byte(other)))
		}
	}
	h.start(func(c *channel) { c.MaxCards = 1 })
	require.Equal(t, "❌ Denied in personal: 1 · already decided, or changed: 1 · others there still pending: 2", h.waitForAnswer(h.api.TapData(ann, ann, d.ID, data)).Text)
	require.Empty(t, h.verdict(keyIn(personal, 2)))
	require.Equal(t, approval.Denied, h.verdict(keyIn(personal, 3)))
}

// Another button pauses the workspace of the digest. No button approves.
func TestPauseFromDigest(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0), Language: "it"})
	p := &fakePauser{paused: map[string]bool{}}
	h.start(func(c *channel) {
		c.MaxCards, c.Pauser = 1, p
		c.Interceptor.Paused = func(ws string) *chat.Pause {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.paused[ws] {
				return &chat.Pause{By: "ann"}
			}
			return nil
		}
	})
	h.ask(keyIn(personal, 1), ann, postRequest)
	for n := 2; n <= 3; n++ {
		h.request(keyIn(personal, n), postRequest)
	}
	d := h.waitForMessage(ann, "the digest", func(m botapi.Message) bool {
		return strings.HasPrefix(m.Text, "📋 personal: 2 richieste su 2 ancora aperte\n") && len(m.Buttons()) == 4 // a line comes before its button
	})
	require.Equal(t, []string{
		`1 · pubblichi su X · "Meeting at 5"`, `2 · pubblichi su X · "Meeting at 5"`, "❌ Nega queste 2", "⏸ Metti in pausa personal",
	}, d.Buttons())
	require.Equal(t, "You are not an approver here.", h.tap(eve, d, "⏸ Metti in pausa personal").Text)
	require.Empty(t, p.calls)
	require.Contains(t, h.tap(ann, d, "⏸ Metti in pausa personal").Text, "⏸ personal: in pausa")
	require.Equal(t, []string{"pause personal 1001"}, p.calls)
	h.waitForEdit(d, "no button to pause", func(m botapi.Message) bool { return len(m.Buttons()) == 3 })
	require.Zero(t, h.handler.count(keyIn(personal, 2)))
}

// The buttons of lists say what they are about. Those of requests with the same verb and target differ.
func TestButtonsSayWhat(t *testing.T) {
	h := newRig(t)
	h.start(func(c *channel) { c.MaxCards = 1 })
	h.ask(keyIn(personal, 1), ann, postRequest)
	for n, text := range []string{"Lunch", "Dinner"} {
		h.request(keyIn(personal, 2+n), strings.Replace(postRequest, "Meeting at 5", text, 1))
		h.waitFor("its sent record", func() bool { return strings.Contains(h.record(keyIn(personal, 2+n)), `"state":"sent"`) })
	}
	d := h.waitForMessage(ann, "the digest", func(m botapi.Message) bool { return strings.Contains(m.Text, "2 of 2 requests still open") })
	require.Subset(t, d.Buttons(), []string{`1 · post · "Lunch"`, `2 · post · "Dinner"`})
	for _, text := range []string{"pending", "status"} {
		got := h.waitForReply(h.api.Say(ann, ann, text))
		require.Equal(t, []string{
			`1 · post · "Meeting at 5"`, `2 · post · "Lunch"`, `3 · post · "Dinner"`,
		}, got.Buttons(), text)
		require.Contains(t, got.Text, "\n3 ⏳ a7000003 · ")
	}
	h.decideAsOperator(keyIn(personal, 2), approval.Denied)
	h.waitForEdit(d, "one of its kind", func(m botapi.Message) bool { return slices.Contains(m.Buttons(), labels(2)[0]) })
}

// agentCall is a call that an agent executes itself.
func agentCall(session, command string) string {
	return `"tool_name":"Bash","execution":"agent","session_id":"` + session + `","request_data":{"command":"` + command + `"}`
}

// The calls of one turn of an agent are one message with a line each, which denies all and approves none. One alone, or of
// another session, has a card.
func TestCallsOfOneTurn(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	h.start(func(c *channel) { c.Turn = 3 * time.Second })
	for n := 1; n <= 3; n++ {
		h.request(keyIn(personal, n), agentCall("s", "make "+strconv.Itoa(n)))
	}
	h.request(keyIn(personal, 4), agentCall("other", "make 4"))
	d := h.waitForMessage(ann, "the digest", func(m botapi.Message) bool { // the button of a line may come after it, by an edit
		return strings.Contains(m.Text, "3 of 3 requests still open") && len(m.Buttons()) == 4
	})
	for n := 1; n <= 3; n++ {
		require.Contains(t, d.Text, "a700000"+strconv.Itoa(n))
	}
	require.NotContains(t, d.Text, "a7000004")
	require.Equal(t, "❌ Deny these 3", d.Buttons()[3])
	h.waitForMessage(ann, "a card of its own", func(m botapi.Message) bool { return strings.Contains(m.Text, "approve a7000004") })
	for _, m := range h.api.State().FromBot(ann) {
		require.NotContains(t, m.Text, "approve a7000001")
	}
	line := slices.IndexFunc(d.Buttons(), func(b string) bool { return strings.Contains(b, "make 2") }) // the gate may take them in another order
	require.GreaterOrEqual(t, line, 0)
	h.tap(ann, d, d.Buttons()[line])
	card := h.waitForMessage(ann, "the card of a line", func(m botapi.Message) bool { return strings.Contains(m.Text, "approve a7000002") })
	h.tap(ann, card, "✅ Once")
	h.tap(ann, h.waitForText(d, "📋 personal: 2 of 3 requests still open"), "❌ Deny these 2")
	for n, want := range []approval.Verdict{approval.Denied, approval.Approved, approval.Denied, ""} {
		require.Equal(t, want, h.verdict(keyIn(personal, n+1)), "request %d", n+1)
	}
	h.request(keyIn(personal, 5), agentCall("s", "make 5"))
	h.waitForMessage(ann, "a card", func(m botapi.Message) bool { return strings.Contains(m.Text, "approve a7000005") })
}
