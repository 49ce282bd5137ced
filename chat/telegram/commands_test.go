package telegram_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

func TestStart(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	h.start()
	m := h.waitForReply(h.api.Say(ann, family, "/start@permesso_bot"))
	require.Contains(t, m.Text, "Your id: 1001")
	require.Contains(t, m.Text, "This chat's id: -1001000000001")
	require.Contains(t, m.Text, "You can decide for: personal")
	thread := h.api.AddTopic(forum, "T")
	m = h.waitForReply(h.api.Post(forum, botapi.Message{From: &botapi.User{ID: bob}, Text: "/start@permesso_bot", ThreadID: thread}))
	require.Contains(t, m.Text, fmt.Sprintf("This topic's id: %d", thread))
	require.NotContains(t, m.Text, "You can decide", "no workspace is asked there")

	// Any user gets their own ID, five times a minute.
	for range 5 {
		m = h.waitForReply(h.api.Say(eve, eve, "/start"))
		require.Equal(t, "Your id: 6666", m.Text)
	}
	h.api.Say(eve, eve, "/start")
	h.helpRoundTripIn(family)
	require.Len(t, h.api.State().FromBot(eve), 5)
}

func (h *rig) helpRoundTripIn(chatID int64) {
	h.t.Helper()
	h.waitForReply(h.api.Say(ann, chatID, "/help@permesso_bot"))
}

// A user gets five refusals in a minute; each of the five is in the audit log.
func TestRefusalsAreLimited(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	h.start()
	m := h.ask(keyIn(personal, 1), family, postRequest)
	for i := range 8 {
		a := h.tap(eve, m, "✅ Once")
		if i < 5 {
			require.Equal(t, "You are not an approver here.", a.Text)
			require.True(t, a.Alert)
		} else {
			require.Empty(t, a.Text, "answered without text")
		}
	}
	h.mu.Lock()
	refused := len(h.refused)
	h.mu.Unlock()
	require.Equal(t, 5, refused)
	require.Equal(t, "You are not an approver here.", h.tap(carl, m, "✅ Once").Text, "the limit is per user")
	require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
}

func TestPending(t *testing.T) {
	h := newRig(t)
	h.start()
	require.Equal(t, "No pending requests.", h.waitForReply(h.api.Say(ann, ann, "pending")).Text)
	for i := range 20 {
		h.ask(keyIn(personal, 0x100+i), ann, postRequest)
	}
	h.ask(keyIn(other, 0x200), carl, postRequest)
	list := h.waitForReply(h.api.Say(ann, ann, "Pending"))
	require.True(t, strings.HasPrefix(list.Text, "Pending: 20\n1 ⏳ a7000100 · personal · x_post"), list.Text)
	require.NotContains(t, list.Text, "a7000200")
	require.Equal(t, 9, strings.Count(list.Text, "\n")+1)
	require.Equal(t, append(labels(1, 2, 3, 4, 5, 6, 7, 8), "› 2/3"), list.Buttons())

	h.tap(ann, list, "› 2/3")
	list = h.waitForText(list, "a7000108")
	require.Equal(t, []string{"‹ 1/3", "› 3/3"}, list.Buttons()[8:])
	h.tap(ann, list, labels(9, 10)[1])
	at := h.waitForMessage(ann, "a pointer to the card", func(m botapi.Message) bool { return m.Text == "⬆ a7000109" })
	require.Contains(t, at.ReplyTo.Text, "a7000109")
	require.Equal(t, "You are not an approver here.", h.tap(eve, list, "› 3/3").Text)

	// show points to a card by its short ID.
	h.api.Say(ann, ann, "/show a7000110")
	h.waitForMessage(ann, "a pointer to the card", func(m botapi.Message) bool { return m.Text == "⬆ a7000110" })
	require.Contains(t, h.waitForReply(h.api.Say(ann, ann, "/show a70001")).Text, "or more than one does")
	require.Contains(t, h.waitForReply(h.api.Say(ann, ann, "/show a7000200")).Text, "No request here matches")
	require.Empty(t, h.api.State().Refused())
}

func TestGrants(t *testing.T) {
	h := newRig(t)
	h.start()
	require.Contains(t, h.waitForReply(h.api.Say(ann, ann, "grants")).Text, "No active grants")
	until := time.Now().Add(time.Hour)
	h.revoker.grants = []grant.Grant{
		{ID: "a7f3b2c1d4e5f6a7", Terms: approval.Terms{Workspace: personal, ClientID: "ws:" + personal, Form: grant.Action, ActionType: "send_message"}, By: "ann", ExpiresAt: until},
		{ID: "b7f3b2c1d4e5f6a7", Terms: approval.Terms{Workspace: personal, ClientID: "ws:" + personal, Form: grant.Target, Tool: "write", Target: "/tmp/\u202ex http://evil.example", TargetKind: "exact"}, By: "ann", ExpiresAt: until},
		{ID: "c7f3b2c1d4e5f6a7", Terms: approval.Terms{Workspace: other, Form: grant.Action, ActionType: "send_message"}, By: "carl", ExpiresAt: until},
	}
	list := h.waitForReply(h.api.Say(ann, ann, "grants"))
	require.Contains(t, list.Text, `Always: every send_message that the agent does itself, but no tool, in personal, until `)
	require.Contains(t, list.Text, `Always: write to "/tmp/\u{202E}x http://evil.example" in personal, until `)
	require.Equal(t, []string{"✖ a7f3b2c1", "✖ b7f3b2c1"}, list.Buttons())
	h.requirePlain(list)
	require.Contains(t, h.tap(ann, list, "✖ a7f3b2c1").Text, "Revoked: a7f3b2c1")
	list = h.waitForEdit(list, "one grant less", func(m botapi.Message) bool { return len(m.Buttons()) == 1 })
	require.Equal(t, "1001", h.revoker.grants[0].RevokedBy)
	require.Contains(t, h.waitForReply(h.api.Say(ann, ann, "undo b7f3")).Text, "Revoked: b7f3b2c1")
	require.Contains(t, h.waitForReply(h.api.Say(ann, ann, "undo c7f3")).Text, "No grant to revoke", "not ann's workspace")
	require.True(t, h.revoker.grants[2].RevokedAt.IsZero())
}

// fakePauser is a pauser.
type fakePauser struct {
	mu     sync.Mutex
	calls  []string
	paused map[string]bool
}

func (b *fakePauser) Pause(_ context.Context, ws string, by approval.Person, reason string) (bool, error) {
	return b.note("pause", ws, by, reason, true), nil
}

func (b *fakePauser) Resume(_ context.Context, ws string, by approval.Person) (bool, error) {
	return b.note("resume", ws, by, "", false), nil
}

func (b *fakePauser) note(what, ws string, by approval.Person, reason string, on bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, strings.TrimSpace(fmt.Sprint(what, " ", ws, " ", by.ID, " ", reason)))
	changed := b.paused[ws] != on
	b.paused[ws] = on
	return changed
}

func TestPauseAndResume(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	b := &fakePauser{paused: map[string]bool{}}
	h.start(func(c *channel) { c.Pauser = b })
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "/pause it goes wild")).Text, "⏸ personal: paused")
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "/pause personal")).Text, "⏸ personal: already paused")
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "/resume other")).Text, "Which workspace? personal")
	require.Contains(t, h.waitForReply(h.api.Say(bob, family, "/resume@permesso_bot")).Text, "▶ personal: resumed")
	require.Equal(t, "You are not an approver here.", h.waitForReply(h.api.Say(eve, family, "/pause")).Text)
	require.Equal(t, "You are not an approver here.", h.waitForReply(h.api.Say(ann, ann, "/pause")).Text, "no workspace is asked in this chat")
	require.Equal(t, []string{"pause personal 1001 it goes wild", "pause personal 1001", "resume personal 1002"}, b.calls)
}

// A command that names the bot waits until the bot's name is known, in a later session too.
func TestCalledByName(t *testing.T) {
	for _, sessions := range []int{1, 2} {
		h := newRig(t, deliver.Place{Address: at(family, 0)})
		b := &fakePauser{paused: map[string]bool{}}
		open := func() { h.start(func(c *channel) { c.Pauser = b }) }
		h.api.Fail("getMe", botapi.Fault{Kind: botapi.BadGateway})
		open()
		m := h.api.Say(ann, family, "/pause@permesso_bot it goes wild")
		h.waitFor("the journaled update", func() bool {
			names, err := h.channel().Updates.List()
			return err == nil && strings.Contains(strings.Join(names, " "), "update-")
		})
		if sessions > 1 {
			h.stopChannel()
			open()
		}
		require.Empty(t, h.api.State().FromBot(family))
		h.api.ClearFaults()
		require.Contains(t, h.waitForReply(m).Text, "⏸ personal: paused")
		require.Equal(t, []string{"pause personal 1001 it goes wild"}, b.calls)
	}
}

type fakeHistory []approval.Key

func (h fakeHistory) Last(context.Context, []string, int) ([]approval.Key, error) { return h, nil }

func TestLast(t *testing.T) {
	h := newRig(t)
	one, two := keyIn(personal, 1), keyIn(personal, 2)
	h.start(func(c *channel) { c.History = fakeHistory{two, one, keyIn(personal, 3)} })
	require.Equal(t, "No decisions yet.", h.waitForReply(h.api.Say(ann, ann, "last")).Text)
	m := h.ask(one, ann, postRequest)
	h.tap(ann, m, "✅ Once")
	h.ask(two, ann, postRequest)
	h.decideAsOperator(two, approval.Denied)
	h.waitForResponse(one)
	h.waitForResponse(two)
	last := h.waitForReply(h.api.Say(ann, ann, "last")).Text
	require.Contains(t, last, "a7000002 · denied · by operator:root (cli)")
	require.Contains(t, last, "a7000001 · approved · by ann (telegram)")
	require.Less(t, strings.Index(last, "a7000002"), strings.Index(last, "a7000001"))
	require.NotContains(t, last, "a7000003", "its record is gone")
	require.NotContains(t, last, "until ", "the deadline is of no account any more")
	require.Regexp(t, `(?m)^\d{4}-\d\d-\d\d \d\d:\d\d UTC · a7000002 · denied · by operator:root \(cli\)\npersonal · Post "Meeting at 5"$`, last)

	// show tells how an ended request ended, and one that runs that it was approved.
	require.Regexp(t, `^\d{4}-.* UTC · a7000002 · denied · by operator:root \(cli\)\npersonal · Post "Meeting at 5"$`, h.waitForReply(h.api.Say(ann, ann, "show a7000002")).Text)
	require.Contains(t, h.waitForReply(h.api.Say(ann, ann, "show a700")).Text, "or more than one does")
}

// The last decisions are in the order of the times that they show. An approved request that a pause holds is one.
func TestLastIsOrdered(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0)}, deliver.Place{Address: at(bob, 0)})
	keys := []approval.Key{keyIn(personal, 1), keyIn(personal, 2), keyIn(personal, 3)}
	h.start(h.withPause(10*time.Minute), func(c *channel) {
		c.History = fakeHistory{keys[0], keys[2], keys[1]} // in the order of asking
		c.Guard = guardOf{h, bob}
	})
	for _, k := range keys {
		h.ask(k, ann, postRequest)
		h.decideAsOperator(k, approval.Denied)
		h.waitForResponse(k)
	}
	held, open := keyIn(personal, 4), keyIn(personal, 5)
	m := h.ask(held, ann, postRequest)
	h.ask(open, ann, postRequest)
	h.setPaused(true)
	h.tap(ann, m, "✅ Once")
	var shown []string
	last := h.waitForReply(h.api.Say(ann, ann, "last")).Text
	for line := range strings.Lines(last) {
		for n := range 5 {
			if id := fmt.Sprint("a700000", n+1); strings.Contains(line, id) {
				shown = append(shown, id)
			}
		}
	}
	require.Regexp(t, `^✅ Approved by ann at \d\d:\d\d UTC \(telegram\)\n⏸ paused since \d\d:\d\d UTC by bob: it runs after resume, or expires at `, last)
	require.Equal(t, []string{"a7000003", "a7000002", "a7000001"}, shown)
	require.Equal(t, 4, strings.Count(last, "personal · Post"), "not the one that is pending")
	require.NotContains(t, h.waitForReply(h.api.Say(bob, bob, "last")).Text, "paused", "not one that another decides")
}

// guardOf lets a person decide no request.
type guardOf struct {
	*rig
	not int64
}

func (g guardOf) May(ws string, p *approval.Pending, by approval.Person) (string, bool) {
	name, ok := g.rig.May(ws, p, by)
	return name, ok && (p == nil || by.ID != fmt.Sprint(g.not))
}

func TestShowOfARunningRequest(t *testing.T) {
	h := newRig(t)
	free := sync.OnceFunc(h.handler.mu.Unlock)
	h.handler.mu.Lock() // no handler ends
	t.Cleanup(free)
	h.start()
	k := keyIn(personal, 1)
	h.tap(ann, h.ask(k, ann, postRequest), "✅ Once")
	got := h.waitForReply(h.api.Say(ann, ann, "show a7000001")).Text
	require.Regexp(t, `^✅ Approved by ann at \d\d:\d\d UTC \(telegram\)\nthe outcome follows\npersonal · Post "Meeting at 5"$`, got)
	require.Equal(t, "No pending requests.", h.waitForReply(h.api.Say(ann, ann, "pending")).Text)
	free()
	h.waitForResponse(k)
}

func TestCommandMenu(t *testing.T) {
	h := newRig(t)
	h.start()
	h.waitForState("the command menu", func(s botapi.State) bool { return len(s.Commands["it"]) == 8 && len(s.Commands[""]) == 8 })
}

// Alert sends to every place of a workspace.
func TestAlert(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0)}, deliver.Place{Address: at(family, 0)})
	var c *channel
	h.start(func(x *channel) { c = x })
	h.helpRoundTrip()
	c.Alert(personal, "forged mails arrive, see http://evil.example")
	for _, id := range []int64{ann, family} {
		m := h.waitForMessage(id, "the alert", func(m botapi.Message) bool { return strings.HasPrefix(m.Text, "forged mails arrive") })
		h.requirePlain(m)
	}
	c.Alert("nowhere", "x")
}
