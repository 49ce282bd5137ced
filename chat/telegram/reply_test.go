package telegram_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/messagestest"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// waitForReply waits for the bot's reply to a message.
func (h *rig) waitForReply(m botapi.Message) botapi.Message {
	h.t.Helper()
	return h.waitForMessage(m.Chat.ID, "an answer to "+m.Text, func(x botapi.Message) bool { return x.ReplyTo != nil && x.ReplyTo.ID == m.ID })
}

func (h *rig) decisionOf(k approval.Key) *approval.Decision {
	h.t.Helper()
	story, err := h.viewer().Story(h.ctx, k)
	require.NoError(h.t, err)
	require.NotNil(h.t, story.Decision)
	return story.Decision
}

func TestReplies(t *testing.T) {
	h := newRig(t)
	h.start()
	for i, tc := range []struct {
		text, says string
		status     approval.Status
		check      func(d *approval.Decision) string
		want       string
	}{
		{"1", "Approved: ", approval.StatusApproved, nil, ""},
		{"4: but quietly,\nplease", "Approved: ", approval.StatusApproved, func(d *approval.Decision) string { return d.Note }, "but quietly,\nplease"},
		{"5 tomorrow", "Not run: ", approval.StatusOverridden, func(d *approval.Decision) string { return d.Override }, "tomorrow"},
		{"3 not now", "Denied: ", approval.StatusDenied, func(d *approval.Decision) string { return d.Feedback }, "not now"},
		{"? agent, who asked you", "Sent back to the agent", approval.StatusRequestMore, func(d *approval.Decision) string { return d.Feedback }, "who asked you"},
		{"approve a70000", "Approved: ", approval.StatusApproved, nil, ""},
		{"/deny@permesso_bot a70000 go away", "Denied: ", approval.StatusDenied, func(d *approval.Decision) string { return d.Feedback }, "go away"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			h.t = t
			k := keyIn(personal, 1+i)
			m := h.ask(k, ann, postRequest)
			sent := h.api.Reply(ann, ann, m.ID, tc.text)
			require.Contains(t, h.waitForReply(sent).Text, tc.says)
			require.Equal(t, tc.status, h.waitForResponse(k).Status)
			if tc.check != nil {
				require.Equal(t, tc.want, tc.check(h.decisionOf(k)))
			}
			require.Empty(t, h.waitForText(m, " by ann at ").Buttons())
		})
	}
}

// A person may write a word, and their name below.
func TestRepliesInWords(t *testing.T) {
	h := newRig(t)
	h.start()
	for i, tc := range []struct {
		text   string
		status approval.Status
	}{{"Yes, please.\nAnn", approval.StatusApproved}, {"va bene, grazie", approval.StatusApproved}, {"👎", approval.StatusDenied}, {"No, too early", approval.StatusDenied}} {
		k := keyIn(personal, 1+i)
		m := h.ask(k, ann, postRequest)
		h.waitForReply(h.api.Reply(ann, ann, m.ID, tc.text))
		require.Equal(t, tc.status, h.waitForResponse(k).Status, tc.text)
	}
}

// What people write in reply to a card, over the Bot API.
func TestPhrases(t *testing.T) {
	deciding, other := messagestest.Phrases(t, "../..")
	h := newRig(t)
	h.start()
	missed := 0
	some := messagestest.Sample(t, deciding)
	for i, p := range some {
		k := keyIn(personal, 1+i)
		m := h.ask(k, ann, postRequest)
		if reply := h.waitForReply(h.api.Reply(ann, ann, m.ID, p.Text)); strings.Contains(reply.Text, "Not understood") {
			missed++
			continue
		}
		h.waitForResponse(k)
		d := h.decisionOf(k)
		require.Equal(t, p.Verdict != "deny", d.Verdict == approval.Approved, "%q", p.Text)
		require.Equal(t, p.Verdict == "note", d.Note != "", "%q", p.Text)
	}
	require.LessOrEqual(t, missed*20, len(some)+40, "one of twenty, two more in a sample")
	k := keyIn(personal, 1+len(some))
	m := h.ask(k, ann, postRequest)
	for _, p := range messagestest.Sample(t, other) {
		h.waitForReply(h.api.Reply(ann, ann, m.ID, p.Text))
		_, err := h.store.Read(t.Context(), approval.DocDecision, k)
		require.ErrorIs(t, err, store.ErrMissing, "%q", p.Text)
	}
}

// An invalid reply is answered once, and decides nothing.
func TestRepliesThatDecideNothing(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	longQuestion := "? " + strings.Repeat("and if not ", 370)
	for text, want := range map[string]string{
		"yes, if you must":    "Not understood, nothing was decided",
		"4 eyes only":         "Write 4: <text>, with the colon",
		"1 and be quick":      "takes no text",
		"4":                   "needs text",
		"approve b7000001":    "you replied to a7000001",
		"approve a7000001? n": "Not understood",
		"? why":               "needs your decision because",
		"what if it rains?":   "To send it, reply: ? agent, what if it rains?",
		longQuestion:          "ends a7000001: it does not run",
		"７":                   "Not understood",
	} {
		require.Contains(t, h.waitForReply(h.api.Reply(ann, ann, m.ID, text)).Text, want, text)
	}
	require.NotNil(t, m.Keyboard)
	require.Contains(t, h.record(k), `"phase":"asked"`)
	require.Zero(t, h.handler.count(k))
}

// Some buttons open a reply; the user's text counts as a reply to the card.
func TestPrompts(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	h.start()
	for i, tc := range []struct {
		button, text string
		status       approval.Status
		of           func(d *approval.Decision) string
	}{
		{"✎ Allow with a note", "mind the tone", approval.StatusApproved, func(d *approval.Decision) string { return d.Note }},
		{"✎ Change", "at 6", approval.StatusOverridden, func(d *approval.Decision) string { return d.Override }},
		{"❓ Ask", "agent, which meeting?", approval.StatusRequestMore, func(d *approval.Decision) string { return d.Feedback }},
	} {
		t.Run(tc.button, func(t *testing.T) {
			h.t = t
			k := keyIn(personal, 1+i)
			m := h.ask(k, family, postRequest)
			require.Empty(t, h.tap(ann, m, tc.button).Text)
			prompt := h.waitForMessage(family, "a prompt", func(x botapi.Message) bool { return x.ForceReply && x.ReplyTo != nil && x.ReplyTo.ID == m.ID })
			require.Contains(t, prompt.Text, "a700000")
			h.waitFor("the recorded prompt", func() bool {
				var p struct{ Posts []struct{ Prompts []any } }
				_ = json.Unmarshal([]byte(h.record(k)), &p)
				return len(p.Posts) == 1 && len(p.Posts[0].Prompts) == 1
			})
			h.waitForReply(h.api.Reply(ann, family, prompt.ID, tc.text))
			require.Equal(t, tc.status, h.waitForResponse(k).Status)
			require.Equal(t, strings.TrimPrefix(tc.text, "agent, "), tc.of(h.decisionOf(k)))
		})
	}
}

const question = `"type":"question","title":"Which branch shall I build?","options":["main","dev","neither: approve a7000001"],"rationale":"Both changed."`

func TestQuestions(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, question)
	require.Equal(t, []string{"1 · main", "2 · dev", "3 · neither: approve a7000001", "✎ Answer", "❌ Deny", "❓ Ask"}, m.Buttons())
	require.Contains(t, h.tap(ann, m, "2 · dev").Text, `Answered: "dev"`)
	require.Equal(t, approval.StatusAnswered, h.waitForResponse(k).Status)
	require.Equal(t, "dev", h.decisionOf(k).Answer)
	h.waitForText(m, "✅ Answered by ann at ")

	k = keyIn(personal, 2)
	m = h.ask(k, ann, question)
	require.Contains(t, h.tap(ann, m, "❌ Deny").Text, "Denied: ")
	require.Equal(t, approval.StatusDenied, h.waitForResponse(k).Status)

	k = keyIn(personal, 3)
	m = h.ask(k, ann, question)
	h.tap(ann, m, "✎ Answer")
	prompt := h.waitForMessage(ann, "a prompt", func(x botapi.Message) bool { return x.ForceReply })
	h.waitFor("the recorded prompt", func() bool { return strings.Contains(h.record(k), `"verb":"say"`) })
	h.waitForReply(h.api.Reply(ann, ann, prompt.ID, "approve whatever you like"))
	require.Equal(t, approval.StatusAnswered, h.waitForResponse(k).Status)
	require.Equal(t, "approve whatever you like", h.decisionOf(k).Answer, "not a command")
}

// Without a card, a short ID must match exactly one card in this chat.
func TestCommandsWithoutACard(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	h.start()
	one, two := keyIn(personal, 0x10), keyIn(personal, 0x20)
	h.ask(one, family, postRequest)
	m := h.ask(two, family, postRequest)
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "approve a700")).Text, "Several requests begin with a700")
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "approve a7f")).Text, "at least 4 digits")
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "approve a7000020")).Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(two).Status)
	h.waitForText(m, "by ann")
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "Approve A7000020")).Text, "Already approved by ann")
	require.Contains(t, h.waitForReply(h.api.Say(bob, family, "@permesso_bot deny a7000010 no")).Text, "Denied: ")
	require.Equal(t, approval.StatusDenied, h.waitForResponse(one).Status)

	// A request that is asked elsewhere cannot be decided here.
	three := keyIn(other, 0x30)
	h.ask(three, carl, postRequest)
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "approve a7000030")).Text, "No pending request with this id")
	require.Zero(t, h.handler.count(three))
}

// Group talk is ignored: about the bot, between users, and commands for other bots.
func TestIgnoresGroupTalk(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	h.start()
	h.ask(keyIn(personal, 1), family, postRequest)
	for _, text := range []string{
		"shall we approve it?", "pause", "last", "help", "I deny everything", "/approve@another_bot a7000001", "/help@another_bot",
		"@carl approve a7000001", "undo that", "resume tomorrow",
	} {
		h.api.Say(ann, family, text)
	}
	last := h.api.Say(ann, family, "/help")
	h.waitForReply(last)
	require.Len(t, h.api.State().FromBot(family), 2, h.dump())
}

// A reply to a prompt counts while the prompt's record is still being written.
func TestPromptIsUsableBeforeItIsDurable(t *testing.T) {
	h := newRig(t)
	let := make(chan struct{})
	free := sync.OnceFunc(func() { close(let) })
	t.Cleanup(free)
	h.start(func(c *channel) { c.Sent = slowStore{c.Sent, `"prompts"`, let} })
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.tap(ann, m, "❓ Ask")
	h.waitFor("the prompt on disk", func() bool { return strings.Contains(h.record(k), `"prompts"`) })
	prompt := h.waitForMessage(ann, "a prompt", func(x botapi.Message) bool { return x.ForceReply })
	text := h.api.Reply(ann, ann, prompt.ID, "agent, which meeting?")
	require.Equal(t, approval.StatusRequestMore, h.waitForResponse(k).Status)
	free()
	require.Contains(t, h.waitForReply(text).Text, "Sent back to the agent")
}

// A user may type the decision while the card's record is still being written.
func TestCardIsUsableBeforeItIsDurable(t *testing.T) {
	h := newRig(t)
	let := make(chan struct{})
	free := sync.OnceFunc(func() { close(let) })
	t.Cleanup(free)
	h.start(func(c *channel) { c.Sent = slowStore{c.Sent, `"message_id":`, let} })
	k := keyIn(personal, 1)
	h.ask(k, ann, postRequest)
	h.waitFor("the card on disk", func() bool { return strings.Contains(h.record(k), `"message_id":`) })
	text := h.api.Say(ann, ann, "approve "+approval.ShortID(k.ID))
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	free()
	require.Contains(t, h.waitForReply(text).Text, "Approved: ")
}

// slowStore writes a record that contains a text, and then blocks.
type slowStore struct {
	chat.SentStore
	text string
	let  chan struct{}
}

func (b slowStore) Save(k approval.Key, p []byte) error {
	err := b.SentStore.Save(k, p)
	if strings.Contains(string(p), b.text) {
		<-b.let
	}
	return err
}

// Digits that fit a card of this chat and one that was cancelled decide nothing. Neither do
// digits of a request whose card is in another chat.
func TestDigitsOfACancelledCard(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	h.start()
	gone, next := keyIn(personal, 0x10), keyIn(personal, 0x20)
	h.ask(gone, family, postRequest)
	_, err := h.decider().Cancel(h.ctx, decide.Input{Key: gone, By: approval.Person{Channel: "local", ID: "9", Name: "operator:root"}, Via: "cli"})
	require.NoError(t, err)
	require.Equal(t, approval.StatusCancelled, h.waitForResponse(gone).Status)
	h.ask(next, family, postRequest)
	text := h.waitForReply(h.api.Say(ann, family, "approve a700")).Text
	require.Contains(t, text, "fits "+next.String()+", which is pending, and "+gone.String()+", which is settled")
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "approve a7000010")).Text, "cancelled")
	require.Zero(t, h.handler.count(next))
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "approve a7000020")).Text, "Approved: ")
}
