package telegram_test

import (
	"strings"
	"testing"

	"github.com/go-telegram/bot/models"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// In a private chat every command of help works with and without a slash, and with its arguments.
func TestCommandsInPrivate(t *testing.T) {
	h := newRig(t)
	b := &fakePauser{paused: map[string]bool{}}
	h.start(func(c *channel) { c.Pauser, c.History = b, fakeHistory{} })
	card := h.ask(keyIn(personal, 1), ann, postRequest)
	for _, tc := range []struct{ text, want string }{
		{"pause personal", "⏸ personal: paused"},
		{"/pause personal", "⏸ personal: already paused"},
		{"pause it goes wild", "⏸ personal: already paused"},
		{"resume p", "Which workspace? personal"},
		{"/resume p", "Which workspace? personal"},
		{"resume personal", "▶ personal: resumed"},
		{"resume", "personal itself is not paused"},
		{"show", "pause [workspace]"},
		{"pending", "Pending: 1"},
		{"/pending", "Pending: 1"},
		{"status", "personal itself is not paused\nPending: 1"},
		{"/status", "personal itself is not paused\nPending: 1"},
		{"last", "No decisions yet."},
		{"/last 5", "No decisions yet."},
		{"grants", "No active grants."},
		{"help", "approve <id>"},
		{"help me", "approve <id>"},
		{"start", "Your id: 1001"},
		{"undo a7000001", "No grant to revoke"},
		{"/undo a7000001", "No grant to revoke"},
		{"deny a7000001 too early", "Denied: "},
		{"/approve a7000001", "Already denied by ann"},
	} {
		require.Contains(t, h.waitForReply(h.api.Say(ann, ann, tc.text)).Text, tc.want, tc.text)
		if tc.text == "show" {
			h.api.Say(ann, ann, "show a7000001")
			h.waitForMessage(ann, "a pointer to the card", func(m botapi.Message) bool {
				return m.Text == "⬆ a7000001" && m.ReplyTo.ID == card.ID
			})
		}
	}
	require.Contains(t, b.calls, "pause personal 1001 it goes wild")
}

// In a private chat every other message is answered with what would be understood, five times a minute.
func TestEveryPrivateMessageIsAnswered(t *testing.T) {
	for what, say := range map[string]func(h *rig) botapi.Message{
		"undo":       func(h *rig) botapi.Message { return h.api.Say(ann, ann, "undo") },
		"stop":       func(h *rig) botapi.Message { return h.api.Say(ann, ann, "stop") },
		"a slash":    func(h *rig) botapi.Message { return h.api.Say(ann, ann, "/stop") },
		"a question": func(h *rig) botapi.Message { return h.api.Say(ann, ann, "hello?") },
		"two words":  func(h *rig) botapi.Message { return h.api.Say(ann, ann, "pending please") },
		"a voice message": func(h *rig) botapi.Message {
			return h.api.Post(ann, botapi.Message{From: &botapi.User{ID: ann}, Voice: &models.Voice{FileID: "v", Duration: 1}})
		},
		"another bot's":      func(h *rig) botapi.Message { return h.api.Say(ann, ann, "/pause@another_bot") },
		"a reply to no card": func(h *rig) botapi.Message { return h.api.Reply(ann, ann, 1, "yes, why not") },
	} {
		t.Run(what, func(t *testing.T) {
			h := newRig(t)
			h.start()
			got := h.waitForReply(say(h)).Text
			require.True(t, strings.HasPrefix(got, "Not understood, nothing was decided."), got)
			require.Contains(t, got, "pause [workspace] [reason]")
		})
	}
}

// A forwarded or edited message decides nothing, and is answered in a private chat.
func TestForwardedInPrivate(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	h.ask(k, ann, postRequest)
	got := h.waitForReply(h.api.Forward(ann, ann, bob, "approve a7000001"))
	require.Equal(t, "A forwarded or edited message decides nothing. Write the words yourself.", got.Text)
	require.Zero(t, h.handler.count(k))
	require.Equal(t, "You are not an approver here.", h.waitForReply(h.api.Say(eve, eve, "hello?")).Text)
}

// The answers to what is not understood are limited for each person. Commands are not.
func TestPrivateAnswersAreLimited(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0)}, deliver.Place{Address: at(bob, 0)})
	h.start()
	for range 7 {
		h.api.Say(ann, ann, "hello?")
	}
	h.waitForReply(h.api.Say(ann, ann, "help"))
	require.Len(t, h.api.State().FromBot(ann), 6)
	h.waitForReply(h.api.Say(bob, bob, "hello?"))
}

// A reply to a question is its answer, even if it begins with a command.
func TestAnswerThatBeginsWithACommand(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, question)
	h.waitForReply(h.api.Reply(ann, ann, m.ID, "start with main"))
	h.waitForResponse(k)
	require.Equal(t, "start with main", h.decisionOf(k).Answer)
}
