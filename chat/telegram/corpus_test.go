package telegram_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// updateCase is a file of testdata/telegram/updates: an update and its expected effect. In the update, @CARD@
// is the card's message ID, @ID@ and @SHORT@ the request's IDs, @1@ the data of the button with code 1,
// @NONCE1@ its nonce alone, and @QUERY@ a callback query's ID.
type updateCase struct {
	Why    string          `json:"why"`
	Place  string          `json:"place"`  // private, group, topic
	Before string          `json:"before"` // status of the request before: "", expired, denied
	Twice  bool            `json:"twice"`  // the update is delivered twice
	Update json.RawMessage `json:"update"`
	Expect struct {
		Decision string  `json:"decision"` // "": still pending
		By       string  `json:"by"`
		Answer   string  `json:"answer"`  // to the tap
		Says     string  `json:"says"`    // in the chat
		Refused  []int64 `json:"refused"` // users with a refusal in the audit log
		Silent   bool    `json:"silent"`  // no message and no answer
		Problem  string  `json:"trouble"` // shown by status
		Runs     int     `json:"runs"`
	} `json:"expect"`
}

// Each update comes from the journal, as after a restart. So the kinds that the channel does not request are
// tested as well.
func TestUpdates(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../testdata/telegram/updates/*.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 30)
	h := newRig(t)
	h.api.AddTopic(forum, "Approvals")
	for i, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			h.t = t
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			var c updateCase
			require.NoError(t, json.Unmarshal(b, &c))
			h.runCase(c, keyIn(personal, i+1))
		})
	}
}

func (h *rig) runCase(c updateCase, k approval.Key) {
	place := map[string]deliver.Place{"private": {Address: at(ann, 0)}, "group": {Address: at(family, 0)}, "topic": {Address: at(forum, 1)}}[c.Place]
	h.mu.Lock()
	h.workspaces[0].Places, h.refused, h.problem = []deliver.Place{place}, nil, ""
	h.mu.Unlock()
	h.start()
	members := postRequest
	if c.Before == "expired" {
		members += `,"expires_in_sec":4` // time enough to see the buttons
	}
	card := h.ask(k, place.Chat.Number(), members)
	switch c.Before {
	case "expired":
		h.waitForResponse(k)
	case "denied":
		h.decideAsOperator(k, approval.Denied)
		h.waitForResponse(k)
	}
	if c.Before != "" { // the card shows the outcome and the record is gone: the button has expired
		h.waitForEdit(card, "a settled card", func(m botapi.Message) bool { return m.Keyboard == nil })
	}
	if c.Before == "" {
		h.stopChannel()
	}
	query := h.deliver(c, k, card)
	if c.Before == "" {
		h.start()
	}
	journaled := func() bool {
		names, err := h.channel().Updates.List()
		return err == nil && !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "update-") })
	}
	h.waitFor("an empty journal", journaled)
	h.checkCase(c, k, place, query, card)
	h.waitFor("an empty journal", journaled)
	h.stopChannel()
	h.settleCase(k)
}

// deliver gives the update to the channel: through the journal if it is stopped, else as Telegram does.
func (h *rig) deliver(c updateCase, k approval.Key, card botapi.Message) (query string) {
	t := h.t
	h.nextUpdate++
	query = strconv.FormatInt(4_000_000_000_000_000_000+h.nextUpdate, 10)
	pairs := []string{"\"@CARD@\"", strconv.Itoa(card.ID), "@ID@", k.ID, "@SHORT@", approval.ShortID(k.ID), "@QUERY@", query}
	for _, row := range card.Keyboard.InlineKeyboard {
		for _, b := range row {
			verb, nonce, _ := strings.Cut(b.CallbackData, ":")
			pairs = append(pairs, "@"+verb+"@", b.CallbackData, "@NONCE"+verb+"@", nonce)
		}
	}
	text := strings.NewReplacer(pairs...).Replace(string(c.Update))
	require.NotContains(t, text, "@NONCE")
	times := 1
	if c.Twice {
		times = 2
	}
	for range times {
		var update map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &update))
		if c.Before != "" {
			for kind, payload := range update {
				require.NotZero(t, h.api.Inject(kind, payload))
			}
			h.waitForState("the update", func(botapi.State) bool { return true })
			continue
		}
		h.nextUpdate++
		id := 900_000_000 + h.nextUpdate
		update["update_id"] = json.RawMessage(strconv.FormatInt(id, 10))
		raw, err := json.Marshal(update)
		require.NoError(t, err)
		require.NoError(t, h.channel().Updates.Put(fmt.Sprintf("update-%d.json", id), raw))
	}
	return query
}

func (h *rig) checkCase(c updateCase, k approval.Key, place deliver.Place, query string, card botapi.Message) {
	t := h.t
	if c.Expect.Answer != "" {
		times := 1
		if c.Twice {
			times = 2
		}
		h.waitForState("an answer with "+c.Expect.Answer, func(s botapi.State) bool {
			n := 0
			for _, call := range s.Calls {
				if call.Method == "answerCallbackQuery" && call.Params["callback_query_id"] == query && strings.Contains(call.Params["text"], c.Expect.Answer) {
					n++
				}
			}
			return n >= times
		})
	}
	if c.Expect.Says != "" {
		h.waitForState("a message with "+c.Expect.Says, func(s botapi.State) bool {
			return slices.ContainsFunc(s.Calls, func(call botapi.Call) bool {
				return call.Method == "sendMessage" && call.At.After(h.startedAt) && strings.Contains(call.Params["text"], c.Expect.Says)
			})
		})
	}
	if c.Expect.Problem != "" {
		h.waitFor("a report", func() bool { return strings.Contains(h.reported(), c.Expect.Problem) })
	}
	if c.Expect.Silent {
		h.waitForReply(h.api.Post(place.Chat.Number(), botapi.Message{From: &botapi.User{ID: ann}, Text: "/help@permesso_bot", ThreadID: int(place.Thread.Number())}))
		for _, call := range h.api.State().Calls {
			recall := strings.HasSuffix(call.Params["text"], "permesso was restarted")
			if call.At.After(h.startedAt) && !recall && (call.Method == "answerCallbackQuery" || call.Method == "sendMessage" && !strings.HasPrefix(call.Params["text"], "Tap a button")) {
				require.Failf(t, "not silent", "%+v", call)
			}
		}
	}
	story, err := h.viewer().Story(h.ctx, k)
	require.NoError(t, err)
	verdict, by := "", ""
	if story.Decision != nil {
		verdict, by = string(story.Decision.Verdict), story.Decision.DecidedBy
	}
	require.Equal(t, c.Expect.Decision, verdict, c.Why)
	if c.Expect.By != "" {
		require.Equal(t, c.Expect.By, by)
	}
	if verdict == "approved" {
		h.waitForResponse(k)
		require.Equal(t, 1, h.handler.count(k))
	} else {
		require.Zero(t, h.handler.count(k))
	}
	h.mu.Lock()
	var refused []int64
	for _, p := range h.refused {
		id, err := strconv.ParseInt(p.ID, 10, 64)
		require.NoError(t, err)
		refused = append(refused, id)
	}
	h.mu.Unlock()
	require.Equal(t, c.Expect.Refused, refused, "refusals in the audit log")
	if c.Expect.Decision == "" {
		now, _ := h.api.State().Message(card.Chat.ID, card.ID)
		require.NotEmpty(t, now.Buttons(), "still decidable")
	}
}

// settleCase settles the request of a case, so that the next case has the chat to itself.
func (h *rig) settleCase(k approval.Key) {
	if h.record(k) != "" {
		_ = h.channel().Sent.Remove(k)
	}
	story, err := h.viewer().Story(h.ctx, k)
	require.NoError(h.t, err)
	if story.Decision == nil && story.Record == nil {
		h.decideAsOperator(k, approval.Denied)
	}
	h.waitForResponse(k)
}
