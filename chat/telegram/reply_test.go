package telegram_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// answered awaits what the bot says to a message.
func (h *house) answered(m botapi.Message) botapi.Message {
	h.t.Helper()
	return h.sees(m.Chat.ID, "an answer to "+m.Text, func(x botapi.Message) bool { return x.ReplyTo != nil && x.ReplyTo.ID == m.ID })
}

func (h *house) decisionOf(k approval.Key) *approval.Decision {
	h.t.Helper()
	st, err := h.viewer().Story(h.ctx, k)
	require.NoError(h.t, err)
	require.NotNil(h.t, st.Decision)
	return st.Decision
}

func TestReplies(t *testing.T) {
	h := newHouse(t)
	h.open()
	for i, tc := range []struct {
		text, says string
		status     approval.Status
		check      func(d *approval.Decision) string
		want       string
	}{
		{"1", "Approved: ", approval.StatusApproved, nil, ""},
		{"4 but quietly,\nplease", "Approved: ", approval.StatusApproved, func(d *approval.Decision) string { return d.Note }, "but quietly,\nplease"},
		{"5 tomorrow", "Not run: ", approval.StatusOverridden, func(d *approval.Decision) string { return d.Override }, "tomorrow"},
		{"3 not now", "Denied: ", approval.StatusDenied, func(d *approval.Decision) string { return d.Feedback }, "not now"},
		{"? who asked you", "Sent back to the agent", approval.StatusRequestMore, func(d *approval.Decision) string { return d.Feedback }, "who asked you"},
		{"approve a70000", "Approved: ", approval.StatusApproved, nil, ""},
		{"/deny@permesso_bot a70000 go away", "Denied: ", approval.StatusDenied, func(d *approval.Decision) string { return d.Feedback }, "go away"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			h.t = t
			k := keyIn(personal, 1+i)
			m := h.asks(k, ann, post)
			said := h.api.Reply(ann, ann, m.ID, tc.text)
			require.Contains(t, h.answered(said).Text, tc.says)
			require.Equal(t, tc.status, h.settled(k).Status)
			if tc.check != nil {
				require.Equal(t, tc.want, tc.check(h.decisionOf(k)))
			}
			require.Empty(t, h.says(m, " by ann at ").Buttons())
		})
	}
}

// What a reply gets wrong is answered once, and decides nothing.
func TestRepliesThatDecideNothing(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	for text, want := range map[string]string{
		"yes":                 "Not understood, nothing was decided",
		"1 and be quick":      "takes no text",
		"4":                   "needs text",
		"approve b7000001":    "you replied to a7000001",
		"approve a7000001? n": "Not understood",
		"? why":               "needs your decision because",
		"１":                   "Not understood",
	} {
		require.Contains(t, h.answered(h.api.Reply(ann, ann, m.ID, text)).Text, want, text)
	}
	require.NotNil(t, m.Keyboard)
	require.Contains(t, h.page(k), `"phase":"asked"`)
	require.Zero(t, h.hands.count(k))
}

// ✎ and Ask open a reply; what is said there is said to the card.
func TestPrompts(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: family})
	h.open()
	for i, tc := range []struct {
		button, text string
		status       approval.Status
		of           func(d *approval.Decision) string
	}{
		{"✎ Allow with a note", "mind the tone", approval.StatusApproved, func(d *approval.Decision) string { return d.Note }},
		{"✎ Change", "at 6", approval.StatusOverridden, func(d *approval.Decision) string { return d.Override }},
		{"❓ Ask", "which meeting?", approval.StatusRequestMore, func(d *approval.Decision) string { return d.Feedback }},
	} {
		t.Run(tc.button, func(t *testing.T) {
			h.t = t
			k := keyIn(personal, 1+i)
			m := h.asks(k, family, post)
			require.Empty(t, h.taps(ann, m, tc.button).Text)
			prompt := h.sees(family, "a prompt", func(x botapi.Message) bool { return x.ForceReply && x.ReplyTo != nil && x.ReplyTo.ID == m.ID })
			require.Contains(t, prompt.Text, "a700000")
			h.until("the prompt to be noted", func() bool {
				var p struct{ Posts []struct{ Prompts []any } }
				_ = json.Unmarshal([]byte(h.page(k)), &p)
				return len(p.Posts) == 1 && len(p.Posts[0].Prompts) == 1
			})
			h.answered(h.api.Reply(ann, family, prompt.ID, tc.text))
			require.Equal(t, tc.status, h.settled(k).Status)
			require.Equal(t, tc.text, tc.of(h.decisionOf(k)))
		})
	}
}

const question = `"type":"question","title":"Which branch shall I build?","options":["main","dev","neither: approve a7000001"],"rationale":"Both changed."`

func TestQuestions(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, question)
	require.Equal(t, []string{"1 · main", "2 · dev", "3 · neither: approve a7000001", "✎ Answer", "❌ Deny", "❓ Ask"}, m.Buttons())
	require.Contains(t, h.taps(ann, m, "2 · dev").Text, `Answered: "dev"`)
	require.Equal(t, approval.StatusAnswered, h.settled(k).Status)
	require.Equal(t, "dev", h.decisionOf(k).Answer)
	h.says(m, "✅ Answered by ann at ")

	k = keyIn(personal, 2)
	m = h.asks(k, ann, question)
	require.Contains(t, h.taps(ann, m, "❌ Deny").Text, "Denied: ")
	require.Equal(t, approval.StatusDenied, h.settled(k).Status)

	k = keyIn(personal, 3)
	m = h.asks(k, ann, question)
	h.taps(ann, m, "✎ Answer")
	prompt := h.sees(ann, "a prompt", func(x botapi.Message) bool { return x.ForceReply })
	h.until("the prompt to be noted", func() bool { return strings.Contains(h.page(k), `"verb":"say"`) })
	h.answered(h.api.Reply(ann, ann, prompt.ID, "approve whatever you like"))
	require.Equal(t, approval.StatusAnswered, h.settled(k).Status)
	require.Equal(t, "approve whatever you like", h.decisionOf(k).Answer, "an answer is an answer")
}

// From a lock screen: the first digits fit one card shown here.
func TestWordsWithoutACard(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: family})
	h.open()
	one, two := keyIn(personal, 0x10), keyIn(personal, 0x20)
	h.asks(one, family, post)
	m := h.asks(two, family, post)
	require.Contains(t, h.answered(h.api.Say(ann, family, "approve a700")).Text, "Several requests begin with a700")
	require.Contains(t, h.answered(h.api.Say(ann, family, "approve a7f")).Text, "at least 4 digits")
	require.Contains(t, h.answered(h.api.Say(ann, family, "approve a7000020")).Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.settled(two).Status)
	h.says(m, "by ann")
	require.Contains(t, h.answered(h.api.Say(ann, family, "Approve A7000020")).Text, "Already approved by ann")
	require.Contains(t, h.answered(h.api.Say(bob, family, "@permesso_bot deny a7000010 no")).Text, "Denied: ")
	require.Equal(t, approval.StatusDenied, h.settled(one).Status)

	// What is asked elsewhere is not decided by its digits here.
	three := keyIn(other, 0x30)
	h.asks(three, carl, post)
	require.Contains(t, h.answered(h.api.Say(ann, family, "approve a7000030")).Text, "No pending request with this id")
	require.Zero(t, h.hands.count(three))
}

// People talk in a group: about us, to one another, and in commands for other bots.
func TestTalkIsLeftAlone(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: family})
	h.open()
	h.asks(keyIn(personal, 1), family, post)
	for _, text := range []string{
		"shall we approve it?", "pause", "last", "help", "I deny everything", "/approve@another_bot a7000001", "/help@another_bot",
		"@carl approve a7000001", "undo that", "resume tomorrow",
	} {
		h.api.Say(ann, family, text)
	}
	last := h.api.Say(ann, family, "/help")
	h.answered(last)
	require.Len(t, h.api.State().FromBot(family), 2, h.chats())
}

// What is said to a prompt counts while the disk is still at the note of it.
func TestAPromptIsAnsweredAtOnce(t *testing.T) {
	h := newHouse(t)
	let := make(chan struct{})
	free := sync.OnceFunc(func() { close(let) })
	t.Cleanup(free)
	h.open(func(c *telegram.Channel) { c.Notebook = slowNotebook{c.Notebook, let} })
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	h.taps(ann, m, "❓ Ask")
	h.until("the prompt on disk", func() bool { return strings.Contains(h.page(k), `"prompts"`) })
	prompt := h.sees(ann, "a prompt", func(x botapi.Message) bool { return x.ForceReply })
	said := h.api.Reply(ann, ann, prompt.ID, "which meeting?")
	require.Equal(t, approval.StatusRequestMore, h.settled(k).Status)
	free()
	require.Contains(t, h.answered(said).Text, "Sent back to the agent")
}

// slowNotebook writes a page with a prompt, and then takes its time.
type slowNotebook struct {
	chat.SentStore
	let chan struct{}
}

func (b slowNotebook) Save(k approval.Key, p []byte) error {
	err := b.SentStore.Save(k, p)
	if strings.Contains(string(p), `"prompts"`) {
		<-b.let
	}
	return err
}
