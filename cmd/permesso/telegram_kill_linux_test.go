package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/ipc/client"
)

// telegramRounds is the number of requests, and of kills.
func telegramRounds() int {
	if os.Getenv("PERMESSO_SOAK") == "" {
		return 40
	}
	return 300
}

// maxSettling is how long after the daemon's return every card shows the state of its request.
const maxSettling = 30 * time.Second

// tapKillRig is the state of one kill test.
type tapKillRig struct {
	*telegramRig
	files map[string]client.Files // by workspace

	mu         sync.Mutex
	asked      map[string]*tapRequest // by short id
	taps       int
	unanswered int
	confirmed  int
}

// tapRequest is one request, as the approver sees it.
type tapRequest struct {
	ws, id    string
	tool      string
	deny      bool
	busy      bool // a tap waits for its answer
	answers   []string
	confirmed bool // one answer was a confirmation
	waits     bool // the approver does not look at it yet: a tap would reveal its message's ID
}

// tapLoop taps on every open card until ctx ends.
func (k *tapKillRig) tapLoop(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var taps sync.WaitGroup
	defer taps.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		st := k.api.State()
		for _, chat := range k.chats {
			for _, m := range slices.Backward(cardsIn(st, chat)) { // the newest: a tap on another copy would reveal its message's ID
				if r := k.nextTap(m); r != nil {
					taps.Go(func() { k.tap(r, m) })
				}
			}
		}
	}
}

// nextTap is the request of a message, if it is to be tapped now.
func (k *tapKillRig) nextTap(m botapi.Message) *tapRequest {
	if _, ok := m.Button("✅ Once"); !ok {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.asked[shortOf(m)]
	if r == nil || r.busy || r.confirmed || r.waits {
		return nil
	}
	r.busy = true
	return r
}

func (k *tapKillRig) tap(r *tapRequest, m botapi.Message) {
	button := "✅ Once"
	if r.deny {
		button = "❌ Deny"
	}
	var answer botapi.Answer
	tap, err := k.api.Tap(tgAnn, m.Chat.ID, m.ID, button)
	if err == nil {
		answer, err = tap.Answer(context.Background())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r.busy = false
	k.taps++
	switch {
	case errors.Is(err, botapi.ErrNoAnswer):
		k.unanswered++
	case err != nil: // the buttons were already removed
	default:
		r.answers = append(r.answers, answer.Text)
		if strings.HasPrefix(answer.Text, "Approved: ") || strings.HasPrefix(answer.Text, "Denied: ") {
			r.confirmed = true
			k.confirmed++
		}
	}
}

// submit submits request i.
func (k *tapKillRig) submit(i int) *tapRequest {
	ws := fmt.Sprintf("w%02d", i%len(k.chats))
	r := &tapRequest{ws: ws, id: client.NewID(), tool: []string{"post", "once"}[i%2], deny: i%5 == 4, waits: i%3 == 0}
	k.mu.Lock()
	k.asked[approval.ShortID(r.id)] = r
	k.mu.Unlock()
	require.NoError(k.t, k.files[ws].Submit(r.id, fmt.Appendf(nil, `{"request_id":%q,"tool_name":%q,"request_data":{"text":"Meeting at 5"}}`, r.id, r.tool)))
	return r
}

// awaitCall waits until the fake has answered a call about a request, for a while.
func (k *tapKillRig) awaitCall(r *tapRequest, method string) {
	ctx, stop := context.WithTimeout(k.t.Context(), maxSettling)
	defer stop()
	_ = k.api.Await(ctx, func(s botapi.State) bool { // a kill at any other moment is as good
		return slices.ContainsFunc(s.Calls, func(c botapi.Call) bool {
			return c.Method == method && strings.Contains(c.Params["text"], approval.ShortID(r.id))
		})
	})
}

// lookAtAll makes the approver decide all requests.
func (k *tapKillRig) lookAtAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.asked {
		r.waits = false
	}
}

// awaitShown waits until every card in every chat shows the state of its request.
func (k *tapKillRig) awaitShown() (lasted time.Duration) {
	k.t.Helper()
	began, wrong := time.Now(), ""
	ctx, stop := context.WithTimeout(k.t.Context(), maxSettling)
	defer stop()
	err := k.api.Await(ctx, func(s botapi.State) bool {
		wrong = k.wrongCard(s)
		return wrong == ""
	})
	require.NoError(k.t, err, "after %s a card does not show its request's state: %s", maxSettling, wrong)
	return time.Since(began).Round(time.Millisecond)
}

// wrongCard is the first card that does not show its request's state, or the first request without a card.
func (k *tapKillRig) wrongCard(s botapi.State) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	shown := map[*tapRequest]bool{}
	for _, chat := range k.chats {
		for _, m := range cardsIn(s, chat) {
			r := k.asked[shortOf(m)]
			if r == nil {
				continue
			}
			shown[r] = true
			_, live := m.Button("✅ Once")
			_, err := os.Stat(filepath.Join(k.layout.Responses(r.ws), r.id+".json"))
			settled := err == nil
			if live == settled || settled && (m.Keyboard != nil || !outcomePattern.MatchString(m.Text)) {
				return fmt.Sprintf("settled %t, %s\n%s\n%q", settled, r.id, m.Text, m.Buttons())
			}
		}
	}
	for _, r := range k.asked {
		if !shown[r] {
			return r.id + " has no card"
		}
	}
	return ""
}

var outcomePattern = regexp.MustCompile("✅ Approved by ann|❌ Denied by ann")

// open counts the requests without a response.
func (k *tapKillRig) open() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.asked {
		if _, err := os.Stat(filepath.Join(k.layout.Responses(r.ws), r.id+".json")); err != nil {
			n++
		}
	}
	return n
}

// cardsIn are the cards in a chat, without reminders and other messages.
func cardsIn(s botapi.State, chat int64) []botapi.Message {
	return slices.DeleteFunc(s.FromBot(chat), func(m botapi.Message) bool { return !strings.HasPrefix(m.Text, "🔐") })
}

// told counts the messages that an approved request was interrupted.
func (k *tapKillRig) told(r *tapRequest) (n int) {
	for _, chat := range k.chats {
		for _, m := range k.api.State().FromBot(chat) {
			if strings.HasPrefix(m.Text, "⚠ Approved, but it was interrupted: ") && shortOf(m) == approval.ShortID(r.id) && !m.Silent {
				n++
			}
		}
	}
	return n
}

// verify compares the responses and cards with what has happened. If the daemon is killed during a run,
// the outcome is unknown, and the card must say so.
func (k *tapKillRig) verify() map[string]int {
	tally, cards := map[string]int{}, map[string]string{}
	for _, chat := range k.chats {
		for _, m := range cardsIn(k.api.State(), chat) {
			if m.Keyboard == nil {
				cards[shortOf(m)] = m.Text
			}
		}
	}
	for _, r := range k.asked {
		resp := k.awaitDecided(r.ws, r.id)
		runs := k.runs(r.id)
		tally[fmt.Sprintf("%s, %s, run %d times", r.tool, resp.Status, runs)]++
		switch resp.Status {
		case approval.StatusApproved:
			require.Equal(k.t, 1, runs, "%s: the response says that it ran once", r.id)
			require.Contains(k.t, cards[approval.ShortID(r.id)], "✅ Approved by ann at ", "%s", r.id)
			require.False(k.t, r.deny, "%s", r.id)
		case approval.StatusInterrupted:
			require.Contains(k.t, cards[approval.ShortID(r.id)], "interrupted", "%s", r.id)
			require.LessOrEqual(k.t, runs, 1, "%s ran more than once", r.id)
			require.Eventually(k.t, func() bool { return k.told(r) > 0 }, 3*testTimeout, 20*time.Millisecond, "%s was interrupted, and no message rang", r.id)
			require.LessOrEqual(k.t, k.told(r), 2, "%s was told more than twice", r.id)
			require.False(k.t, r.deny, "%s", r.id)
		default:
			require.Equal(k.t, approval.StatusDenied, resp.Status, "%s: %q", r.id, r.answers)
			require.True(k.t, r.deny, "%s", r.id)
			require.Zero(k.t, runs, "%s was denied, but ran", r.id)
		}
	}
	return tally
}

// TestRealKillsTelegram kills the real daemon again and again: at random moments, and right after a card was sent or
// edited, while an approver taps on cards. Telegram resends unacknowledged updates. A confirmed decision is executed
// once; every other card can be tapped again. Soon after the daemon's return every card shows its request's state, also
// one whose sending the daemon did not survive.
func TestRealKillsTelegram(t *testing.T) {
	t.Parallel()
	const workspaces = 20
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newTelegramRig(t, groupPerWorkspace(workspaces))
	w.plain = true
	w.api.CallbackTimeout = 10 * time.Second // a slow machine needs time to answer taps
	k := &tapKillRig{telegramRig: w, files: map[string]client.Files{}, asked: map[string]*tapRequest{}}
	k.configure()
	ctx, stop := context.WithCancel(t.Context())
	var approver sync.WaitGroup
	approver.Go(func() { k.tapLoop(ctx) })
	rounds := telegramRounds()
	for i := range rounds {
		if i%3 == 0 {
			w.api.Fail("sendMessage", botapi.Fault{Kind: botapi.AnswerHangs, Times: 1})
		}
		d := w.serve()
		r := k.submit(i)
		switch i % 3 {
		case 0: // it dies before it knows the message's ID
			k.awaitCall(r, "sendMessage")
		case 1:
			k.awaitCall(r, "editMessageText")
		default:
			time.Sleep(time.Duration(150+random.IntN(750)) * time.Millisecond)
		}
		d.kill()
		w.api.ClearFaults()
	}
	stop()
	approver.Wait()
	left := k.open()
	d := w.serve()
	shown := k.awaitShown()
	k.lookAtAll()

	ctx, stop = context.WithCancel(t.Context())
	approver.Go(func() { k.tapLoop(ctx) })
	require.Eventually(t, func() bool { return k.open() == 0 }, 3*testTimeout, 20*time.Millisecond, "a request cannot be decided")
	stop()
	approver.Wait()
	settled := k.awaitShown()
	tally := k.verify()
	for _, c := range w.api.State().Refused() { // calls made just before a kill are repeated after it, and lost cards are searched for
		require.Regexp(t, "query is too old|message is not modified|message can't be edited|message to edit not found", c.Description, "%+v", c)
	}
	d.stop()
	t.Logf("%d requests and kills, %d left after the kills; all cards were right after %s, and after %s; %d messages searched; %d taps, of which %d were never answered and %d confirmed; %v",
		rounds, left, shown, settled, w.api.State().Count("editMessageReplyMarkup"), k.taps, k.unanswered, k.confirmed, tally)
	require.Greater(t, k.confirmed, rounds/2, "too few confirmed taps")
}

// configure adds an idempotent tool: it is run again after an interruption, and has its effect once.
func (k *tapKillRig) configure() {
	k.t.Helper()
	file := k.script("once", "cat >/dev/null; grep -qs $PERMESSO_REQUEST_ID "+k.effects+" || echo $PERMESSO_REQUEST_ID >>"+k.effects)
	b, err := os.ReadFile(k.config)
	require.NoError(k.t, err)
	b = fmt.Appendf(b, "[tools.once]\nargs = { text = \"text\" }\npublic_source = false\nsecret_data = false\npublic_sink = false\ndangerous_writes = true\nhandler = { kind = \"command\", argv = [%q], idempotent = true }\n", file)
	require.NoError(k.t, os.WriteFile(k.config, append([]byte("log_level = \"warn\"\n"), b...), 0o600))
	for ws := range k.chats {
		k.files[ws] = client.Files{Requests: k.layout.Requests(ws), Responses: k.layout.Responses(ws)}
	}
	code, _, errs := k.run("", "init")
	require.Zero(k.t, code, errs)
}
