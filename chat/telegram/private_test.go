package telegram_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-telegram/bot/models"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
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
		{"resume", "▶ personal: not paused"},
		{"show", "pause [workspace]"},
		{"pending", "Pending: 1"},
		{"/pending", "Pending: 1"},
		{"status", "▶ personal: not paused\nPending: 1\n1 ⏳ a7000001 · personal · x_post · "},
		{"/status", "▶ personal: not paused\nPending: 1\n"},
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

// today tells what the agents did, to an approver, of this chat's workspaces alone.
func TestToday(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0)}, deliver.Place{Address: at(family, 0)})
	var mu sync.Mutex
	var asked []chat.Message
	now := time.Now()
	h.start(func(c *channel) {
		c.Interceptor.Day = func(_ context.Context, m chat.Message) (*chat.Day, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, m)
			return &chat.Day{Since: now, Until: now, Workspaces: []chat.DayWorkspace{{
				Workspace: personal, Counts: map[approval.Status]int{approval.StatusApproved: 1},
				Requests: []chat.DayRequest{{At: now, Status: approval.StatusApproved, What: "*Post* [x](http://evil.example) /approve_a7000001", By: "ann"}},
			}}}, nil
		}
	})
	for _, text := range []string{"today", "/today", "Oggi"} {
		m := h.waitForReply(h.api.Say(ann, ann, text))
		require.Contains(t, m.Text, "personal · ✅ 1 approved", text)
		require.Contains(t, m.Text, "*Post* [x](http", text)
		for _, e := range m.Entities {
			require.Equal(t, models.MessageEntityTypeCode, e.Type, "no text of an agent formats itself or can be tapped: %+v", m.Entities)
		}
	}
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "/today")).Text, "personal · ✅ 1 approved")
	require.NotContains(t, h.waitForReply(h.api.Say(ann, ann, "today is fine")).Text, "approved")
	require.NotContains(t, h.waitForReply(h.api.Say(eve, eve, "today")).Text, "approved")
	h.api.Say(ann, family, "today") // conversation
	h.helpRoundTripIn(family)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, asked, 4)
	for _, m := range asked {
		require.Equal(t, []string{personal}, m.Workspaces)
		require.Equal(t, "1001", m.From.ID)
	}
}

// The words of a language work in each chat, with and without a slash, and with their arguments.
func TestItalianCommands(t *testing.T) {
	for _, language := range []string{"it", "en"} {
		h := newRig(t, deliver.Place{Address: at(ann, 0), Language: language})
		b := &fakePauser{paused: map[string]bool{}}
		h.start(func(c *channel) { c.Pauser, c.History = b, fakeHistory{} })
		card := h.ask(keyIn(personal, 1), ann, postRequest)
		for _, tc := range []struct{ text, italian, english string }{
			{"pausa personal", "⏸ personal: in pausa", "⏸ personal: paused"},
			{"/pausa impazzisce tutto", "⏸ personal: era già in pausa", "⏸ personal: already paused"},
			{"Riprendi p", "Quale workspace? personal", "Which workspace? personal"},
			{"riprendi personal", "▶ personal: pausa terminata", "▶ personal: resumed"},
			{"/riprendi@permesso_bot", "▶ personal: non è in pausa", "▶ personal: not paused"},
			{"in attesa", "In attesa: 1", "Pending: 1"},
			{"/in attesa", "In attesa: 1", "Pending: 1"},
			{"STATO", "▶ personal: non è in pausa\nIn attesa: 1", "▶ personal: not paused\nPending: 1"},
			{"ultime", "Ancora nessuna decisione.", "No decisions yet."},
			{"permessi", "Nessun consenso attivo.", "No active grants."},
			{"consensi", "Nessun consenso attivo.", "No active grants."},
			{"aiuto", "Tocca un pulsante", "Tap a button"},
			{"/aiuto", "Tocca un pulsante", "Tap a button"},
			{"mostra", "Tocca un pulsante", "Tap a button"},
			{"ferma", "Per negare una richiesta scrivi nega a7000001", "write deny a7000001"},
			{"annulla", "scrivi annulla <id>", "write undo <id>"},
			{"annulla a7000001", "Nessun consenso da revocare", "No grant to revoke"},
			{"nega a7000001 troppo presto", "Negato: ", "Denied: "},
			{"/approva a7000001", "Già negato da ann", "Already denied by ann"},
			{"approva pure domani", "Non ho capito", "Not understood"},
			{"in attesa di Bob", "Non ho capito", "Not understood"},
			{"annulla tutto", "Non ho capito", "Not understood"},
		} {
			want := tc.english
			if language == "it" {
				want = tc.italian
			}
			require.Contains(t, h.waitForReply(h.api.Say(ann, ann, tc.text)).Text, want, tc.text)
			if tc.text == "mostra" {
				h.api.Say(ann, ann, "mostra a7000001")
				h.waitForMessage(ann, "a pointer to the card", func(m botapi.Message) bool {
					return m.Text == "⬆ a7000001" && m.ReplyTo.ID == card.ID
				})
			}
		}
		require.Contains(t, b.calls, "pause personal 1001 impazzisce tutto")
		require.Equal(t, "troppo presto", h.decisionOf(keyIn(personal, 1)).Feedback)
	}
}

// Help names the words of its language.
func TestHelpInItalian(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0), Language: "it"})
	h.start()
	help := h.waitForReply(h.api.Say(ann, ann, "help")).Text
	for _, words := range []string{
		"approva <id>", "nega <id> [motivo]", "annulla <id>", "in attesa:", "ultime:", "permessi:", "mostra <id>:", "pausa [workspace] [motivo]", "riprendi [workspace]", "stato:", "/pausa",
	} {
		require.Contains(t, help, words)
	}
}

// In a group these words are conversation, but for exact commands that name a request.
func TestItalianCommandsInAGroup(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0), Language: "it"})
	b := &fakePauser{paused: map[string]bool{}}
	h.start(func(c *channel) { c.Pauser = b })
	k := keyIn(personal, 1)
	h.ask(k, family, postRequest)
	before := len(h.api.State().FromBot(family))
	for _, text := range []string{"in attesa", "pausa", "ferma tutto", "approva pure domani", "nega che sia vero", "annulla tutto", "aiuto"} {
		h.api.Say(ann, family, text)
	}
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "/pausa@permesso_bot")).Text, "⏸ personal: in pausa")
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "@permesso_bot in attesa")).Text, "In attesa: 1")
	require.Len(t, h.api.State().FromBot(family), before+2)
	require.Contains(t, h.waitForReply(h.api.Say(ann, family, "approva a7000001")).Text, "Approvato: ")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
}

// In a private chat every other message is answered with what would be understood, five times a minute.
func TestEveryPrivateMessageIsAnswered(t *testing.T) {
	for what, say := range map[string]func(h *rig) botapi.Message{
		"undo":       func(h *rig) botapi.Message { return h.api.Say(ann, ann, "undo that") },
		"stop":       func(h *rig) botapi.Message { return h.api.Say(ann, ann, "stop that") },
		"a slash":    func(h *rig) botapi.Message { return h.api.Say(ann, ann, "/hello") },
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

// The answers to what is not understood are limited for each person, and the last one says so. Commands are not.
func TestPrivateAnswersAreLimited(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0)}, deliver.Place{Address: at(bob, 0)})
	var clock testClock
	h.start(func(c *channel) { c.Now = clock.now })
	const announced = "More of them get no answer for a minute. Commands are always answered."
	for n := range 5 {
		got := h.waitForReply(h.api.Say(ann, ann, "hello?")).Text
		require.Contains(t, got, "pause [workspace] [reason]")
		require.Equal(t, n == 4, strings.HasSuffix(got, announced), got)
	}
	h.api.Say(ann, ann, "hello?")
	h.api.Forward(ann, ann, bob, "approve a7000001")
	h.waitForReply(h.api.Say(ann, ann, "help"))
	require.Len(t, h.api.State().FromBot(ann), 6)
	h.waitForReply(h.api.Say(bob, bob, "hello?"))
	clock.set(time.Minute)
	require.NotContains(t, h.waitForReply(h.api.Say(ann, ann, "hello?")).Text, announced)
}

// The silence lasts a minute from its announcement. Then all five answers are available, whenever the first five were.
func TestSilenceLastsAMinute(t *testing.T) {
	h := newRig(t)
	var clock testClock
	h.start(func(c *channel) { c.Now = clock.now })
	const announced = "More of them get no answer for a minute."
	for n := range 5 {
		clock.set(time.Duration(n) * 10 * time.Second)
		require.Equal(t, n == 4, strings.Contains(h.waitForReply(h.api.Say(ann, ann, "hello?")).Text, announced), n)
	}
	for _, later := range []time.Duration{61, 70, 80} {
		clock.set(later * time.Second)
		before := len(h.api.State().FromBot(ann))
		h.api.Say(ann, ann, "hello?")
		h.waitForReply(h.api.Say(ann, ann, "grants"))
		require.Len(t, h.api.State().FromBot(ann), before+1, "after %d seconds", later)
	}
	clock.set(100 * time.Second)
	for n := range 5 {
		require.Equal(t, n == 4, strings.Contains(h.waitForReply(h.api.Say(ann, ann, "hello?")).Text, announced), n)
	}
}

// Alone, these words decide nothing: the answer says what they could mean, with the exact commands.
func TestUndoAndStopAlone(t *testing.T) {
	h := newRig(t)
	k := keyIn(personal, 1)
	h.start(func(c *channel) { c.History = fakeHistory{k} })
	h.ask(k, ann, postRequest)
	for _, text := range []string{
		"stop", "/stop", "Stop", "stop!", "stop everything", "Stop everything!", "/stop everything", "ferma", "ferma tutto", "Ferma tutto!", "/ferma tutto",
	} {
		got := h.waitForReply(h.api.Say(ann, ann, text))
		require.Equal(t, "Nothing was decided. To deny a request, write deny a7000001, or reply stop to its card. "+
			"To let nothing run, write pause.\nPending: 1", strings.Join(strings.Split(got.Text, "\n")[:2], "\n"))
		require.Equal(t, labels(1), got.Buttons())
	}
	require.Empty(t, h.verdict(k))
	got := h.waitForReply(h.api.Say(ann, ann, "undo")).Text
	require.Equal(t, "Nothing was changed. To revoke a grant, write undo <id>, or tap its button. A decision cannot be taken back.\n"+
		"No active grants.\nThe last decision:\nNo decisions yet.", got)
	h.decideAsOperator(k, approval.Denied)
	h.waitForResponse(k)
	h.revoker.grants = []grant.Grant{{
		ID: "b7f3b2c1d4e5f6a7", Terms: approval.Terms{Workspace: personal, Form: grant.Action, ActionType: "send_message"}, By: "ann", ExpiresAt: time.Now().Add(time.Hour),
	}}
	m := h.waitForReply(h.api.Say(ann, ann, "/undo"))
	require.Contains(t, m.Text, "\nb7f3b2c1 · ")
	require.Contains(t, m.Text, "\nThe last decision:\n")
	require.Contains(t, m.Text, " · a7000001 · denied · by operator:root (cli)")
	require.Equal(t, []string{"✖ b7f3b2c1"}, m.Buttons())
	require.Contains(t, h.waitForReply(h.api.Say(ann, ann, "stop")).Text, "write deny <id>, or")
}

// A pause of everything outlives the resume of a workspace, and the answers say so.
func TestResumeInAPauseOfEverything(t *testing.T) {
	h := newRig(t)
	b := &fakePauser{paused: map[string]bool{personal: true}}
	h.style = func(s *chat.Style) {
		s.Paused = func(string) *chat.Pause { return &chat.Pause{By: "root", Since: time.Now()} }
	}
	h.start(func(c *channel) { c.Pauser = b })
	for range 2 {
		got := h.waitForReply(h.api.Say(ann, ann, "resume")).Text
		require.Contains(t, got, "personal: ⏸ paused since ")
		require.Contains(t, got, "\nThe operator has paused everything. To end that: permesso resume")
	}
	require.NotContains(t, h.waitForReply(h.api.Say(ann, ann, "status")).Text, "not paused")
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
