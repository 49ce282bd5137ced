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
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

func TestStart(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: family})
	h.open()
	m := h.answered(h.api.Say(ann, family, "/start@permesso_bot"))
	require.Contains(t, m.Text, "Your id: 1001")
	require.Contains(t, m.Text, "This chat's id: -1001000000001")
	require.Contains(t, m.Text, "You are asked about: personal")
	thread := h.api.AddTopic(forum, "T")
	m = h.answered(h.api.Post(forum, botapi.Message{From: &botapi.User{ID: bob}, Text: "/start@permesso_bot", ThreadID: thread}))
	require.Contains(t, m.Text, fmt.Sprintf("This topic's id: %d", thread))
	require.NotContains(t, m.Text, "asked about", "nothing is asked there")

	// A stranger learns their own number, five times a minute.
	for range 5 {
		m = h.answered(h.api.Say(eve, eve, "/start"))
		require.Equal(t, "Your id: 6666", m.Text)
	}
	h.api.Say(eve, eve, "/start")
	h.sayAndHearIn(family)
	require.Len(t, h.api.State().FromBot(eve), 5)
}

func (h *house) sayAndHearIn(chatID int64) {
	h.t.Helper()
	h.answered(h.api.Say(ann, chatID, "/help@permesso_bot"))
}

// Five refusals in a minute, then silence; each of the five is in the audit log.
func TestStrangersAreMetWithSilence(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: family})
	h.open()
	m := h.asks(keyIn(personal, 1), family, post)
	for i := range 8 {
		a := h.taps(eve, m, "✅ Once")
		if i < 5 {
			require.Equal(t, "You are not an approver here.", a.Text)
			require.True(t, a.Alert)
		} else {
			require.Empty(t, a.Text, "answered, so that the clock goes away, and nothing said")
		}
	}
	h.mu.Lock()
	refused := len(h.refused)
	h.mu.Unlock()
	require.Equal(t, 5, refused)
	require.Equal(t, "You are not an approver here.", h.taps(carl, m, "✅ Once").Text, "others are heard")
	require.Contains(t, h.taps(ann, m, "✅ Once").Text, "Approved: ")
}

func TestPending(t *testing.T) {
	h := newHouse(t)
	h.open()
	require.Equal(t, "Nothing waits.", h.answered(h.api.Say(ann, ann, "pending")).Text)
	for i := range 20 {
		h.asks(keyIn(personal, 0x100+i), ann, post)
	}
	h.asks(keyIn(other, 0x200), carl, post)
	list := h.answered(h.api.Say(ann, ann, "Pending"))
	require.True(t, strings.HasPrefix(list.Text, "Waiting: 20\na7000100 · personal · x_post"), list.Text)
	require.NotContains(t, list.Text, "a7000200")
	require.Equal(t, 9, strings.Count(list.Text, "\n")+1)
	require.Contains(t, list.Buttons(), "a7000107")
	require.Contains(t, list.Buttons(), "› 2/3")

	h.taps(ann, list, "› 2/3")
	list = h.says(list, "a7000108")
	require.Equal(t, []string{"‹ 1/3", "› 3/3"}, list.Buttons()[8:])
	h.taps(ann, list, "a7000109")
	at := h.sees(ann, "a hint at the card", func(m botapi.Message) bool { return m.Text == "⬆ a7000109" })
	require.Contains(t, at.ReplyTo.Text, "a7000109")
	require.Equal(t, "You are not an approver here.", h.taps(eve, list, "› 3/3").Text)

	// show brings a card by its digits.
	h.api.Say(ann, ann, "/show a7000110")
	h.sees(ann, "a hint at the card", func(m botapi.Message) bool { return m.Text == "⬆ a7000110" })
	require.Contains(t, h.answered(h.api.Say(ann, ann, "/show a70001")).Text, "or more than one")
	require.Contains(t, h.answered(h.api.Say(ann, ann, "/show a7000200")).Text, "Nothing that waits here fits")
	require.Empty(t, h.api.State().Refused())
}

func TestGrants(t *testing.T) {
	h := newHouse(t)
	h.open()
	require.Contains(t, h.answered(h.api.Say(ann, ann, "grants")).Text, "Nothing is remembered")
	until := time.Now().Add(time.Hour)
	h.revoker.grants = []approval.Grant{
		{ID: "a7f3b2c1d4e5f6a7", Workspace: personal, Kind: approval.GrantRule, ActionType: "send_message", By: "ann", ExpiresAt: until},
		{ID: "b7f3b2c1d4e5f6a7", Workspace: personal, Kind: approval.GrantTarget, Capability: "fs:write", Target: "/tmp/\u202ex http://evil.example", By: "ann", ExpiresAt: until},
		{ID: "c7f3b2c1d4e5f6a7", Workspace: other, Kind: approval.GrantRule, ActionType: "send_message", By: "carl", ExpiresAt: until},
	}
	list := h.answered(h.api.Say(ann, ann, "grants"))
	require.Contains(t, list.Text, `fs:write /tmp/\u{202E}x`)
	require.Equal(t, []string{"✖ a7f3b2c1", "✖ b7f3b2c1"}, list.Buttons())
	h.requirePlain(list)
	require.Contains(t, h.taps(ann, list, "✖ a7f3b2c1").Text, "Revoked: a7f3b2c1")
	list = h.becomes(list, "one less", func(m botapi.Message) bool { return len(m.Buttons()) == 1 })
	require.Equal(t, "1001", h.revoker.grants[0].RevokedBy)
	require.Contains(t, h.answered(h.api.Say(ann, ann, "undo b7f3")).Text, "Revoked: b7f3b2c1")
	require.Contains(t, h.answered(h.api.Say(ann, ann, "undo c7f3")).Text, "No grant to revoke", "carl's workspace is not hers")
	require.True(t, h.revoker.grants[2].RevokedAt.IsZero())
}

// brake is a Pauser.
type brake struct {
	mu   sync.Mutex
	said []string
	on   map[string]bool
}

func (b *brake) Pause(_ context.Context, ws string, by approval.Person, reason string) (bool, error) {
	return b.note("pause", ws, by, reason, true), nil
}

func (b *brake) Resume(_ context.Context, ws string, by approval.Person) (bool, error) {
	return b.note("resume", ws, by, "", false), nil
}

func (b *brake) note(what, ws string, by approval.Person, reason string, on bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, strings.TrimSpace(fmt.Sprint(what, " ", ws, " ", by.ID, " ", reason)))
	changed := b.on[ws] != on
	b.on[ws] = on
	return changed
}

func TestPauseAndResume(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: family})
	b := &brake{on: map[string]bool{}}
	h.open(func(c *telegram.Channel) { c.Pauser = b })
	require.Contains(t, h.answered(h.api.Say(ann, family, "/pause it goes wild")).Text, "⏸ personal: paused")
	require.Contains(t, h.answered(h.api.Say(ann, family, "/pause personal")).Text, "⏸ personal was paused before")
	require.Contains(t, h.answered(h.api.Say(ann, family, "/resume other")).Text, "Which one? personal")
	require.Contains(t, h.answered(h.api.Say(bob, family, "/resume@permesso_bot")).Text, "▶ personal: resumed")
	require.Equal(t, "You are not an approver here.", h.answered(h.api.Say(eve, family, "/pause")).Text)
	require.Equal(t, "You are not an approver here.", h.answered(h.api.Say(ann, ann, "/pause")).Text, "not in a chat where nothing is asked")
	require.Equal(t, []string{"pause personal 1001 it goes wild", "pause personal 1001", "resume personal 1002"}, b.said)
}

// Who calls the bot by a name that it does not know yet is heard when it does, in a later life, too.
func TestCalledByName(t *testing.T) {
	for _, lives := range []int{1, 2} {
		h := newHouse(t, telegram.Place{Chat: family})
		b := &brake{on: map[string]bool{}}
		open := func() { h.open(func(c *telegram.Channel) { c.Pauser = b }) }
		h.api.Fail("getMe", botapi.Fault{Kind: botapi.BadGateway})
		open()
		m := h.api.Say(ann, family, "/pause@permesso_bot it goes wild")
		h.until("the update", func() bool {
			names, err := h.channel().Updates.List()
			return err == nil && strings.Contains(strings.Join(names, " "), "update-")
		})
		if lives > 1 {
			h.close()
			open()
		}
		require.Empty(t, h.api.State().FromBot(family))
		h.api.Heal()
		require.Contains(t, h.answered(m).Text, "⏸ personal: paused")
		require.Equal(t, []string{"pause personal 1001 it goes wild"}, b.said)
	}
}

type history []approval.Key

func (h history) Last(context.Context, []string, int) ([]approval.Key, error) { return h, nil }

func TestLast(t *testing.T) {
	h := newHouse(t)
	one, two := keyIn(personal, 1), keyIn(personal, 2)
	h.open(func(c *telegram.Channel) { c.History = history{two, one, keyIn(personal, 3)} })
	require.Equal(t, "Nothing was decided yet.", h.answered(h.api.Say(ann, ann, "last")).Text)
	m := h.asks(one, ann, post)
	h.taps(ann, m, "✅ Once")
	h.asks(two, ann, post)
	h.operator(two, approval.Denied)
	h.settled(one)
	h.settled(two)
	last := h.answered(h.api.Say(ann, ann, "last")).Text
	require.Contains(t, last, "a7000002 · denied · by operator:root (cli)")
	require.Contains(t, last, "a7000001 · approved · by ann (telegram)")
	require.Less(t, strings.Index(last, "a7000002"), strings.Index(last, "a7000001"))
	require.NotContains(t, last, "a7000003", "nothing is known of it any more")
}

func TestTheMenuOfCommands(t *testing.T) {
	h := newHouse(t)
	h.open()
	h.await("the menu", func(s botapi.State) bool { return len(s.Commands["it"]) == 6 && len(s.Commands[""]) == 6 })
}

// Other channels pass on what people should know.
func TestAlert(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: ann}, telegram.Place{Chat: family})
	var c *telegram.Channel
	h.open(func(x *telegram.Channel) { c = x })
	h.sayAndHear()
	c.Alert(personal, "somebody forges mails, see http://evil.example")
	for _, id := range []int64{ann, family} {
		m := h.sees(id, "the alert", func(m botapi.Message) bool { return strings.HasPrefix(m.Text, "somebody forges mails") })
		h.requirePlain(m)
	}
	c.Alert("nowhere", "x")
}
