package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// telegramRounds is the number of requests.
func telegramRounds() int {
	if os.Getenv("PERMESSO_SOAK") == "" {
		return 50
	}
	return 200
}

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
			for _, m := range cardsIn(st, chat) {
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
	if r == nil || r.busy || r.confirmed {
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

// submitRange submits the requests from..to-1.
func (k *tapKillRig) submitRange(from, to int) {
	for i := from; i < to; i++ {
		ws := fmt.Sprintf("w%02d", i%len(k.chats))
		r := &tapRequest{ws: ws, id: client.NewID(), tool: []string{"post", "once"}[i%2], deny: i%5 == 4}
		k.mu.Lock()
		k.asked[approval.ShortID(r.id)] = r
		k.mu.Unlock()
		require.NoError(k.t, k.files[ws].Submit(r.id, fmt.Appendf(nil, `{"request_id":%q,"tool_name":%q,"request_data":{"text":"Meeting at 5"}}`, r.id, r.tool)))
	}
}

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

// TestRealKillsTelegram kills the real daemon at random moments while an approver
// taps on cards. Telegram resends unacknowledged updates. A confirmed decision is
// executed once; every other card can be tapped again.
func TestRealKillsTelegram(t *testing.T) {
	t.Parallel()
	const workspaces = 40 // five cards each
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newTelegramRig(t, groupPerWorkspace(workspaces))
	w.plain = true
	w.api.CallbackTimeout = 10 * time.Second // a slow machine needs time to answer taps
	k := &tapKillRig{telegramRig: w, files: map[string]client.Files{}, asked: map[string]*tapRequest{}}
	// An idempotent tool: it is run again after an interruption, and has its effect once.
	file := w.script("once", "cat >/dev/null; grep -qs $PERMESSO_REQUEST_ID "+w.effects+" || echo $PERMESSO_REQUEST_ID >>"+w.effects)
	b, err := os.ReadFile(w.config)
	require.NoError(t, err)
	b = fmt.Appendf(b, "[tools.once]\nargs = { text = \"text\" }\npublic_source = false\nsecret_data = false\npublic_sink = false\ndangerous_writes = true\nhandler = { kind = \"command\", argv = [%q], idempotent = true }\n", file)
	require.NoError(t, os.WriteFile(w.config, append([]byte("log_level = \"warn\"\n"), b...), 0o600))
	for ws := range w.chats {
		k.files[ws] = client.Files{Requests: w.layout.Requests(ws), Responses: w.layout.Responses(ws)}
	}
	code, _, errs := w.run("", "init")
	require.Zero(t, code, errs)
	ctx, stop := context.WithCancel(t.Context())
	var approver sync.WaitGroup
	approver.Go(func() { k.tapLoop(ctx) })
	kills, rounds := 0, telegramRounds()
	for end := time.Now().Add(20 * time.Second); kills < 5 || k.open() > 0 && time.Now().Before(end); kills++ {
		k.submitRange(min(kills*rounds/5, rounds), min((kills+1)*rounds/5, rounds)) // a fifth for each of the first five daemons
		d := w.serve()
		time.Sleep(time.Duration(150+random.IntN(750)) * time.Millisecond)
		d.kill()
	}
	left, began := k.open(), time.Now()
	d := w.serve()
	require.Eventually(t, func() bool { return k.open() == 0 }, 3*testTimeout, 20*time.Millisecond, "a request cannot be decided")
	duration := time.Since(began).Round(time.Millisecond)
	stop()
	approver.Wait()
	orphans := k.orphans()
	d.kill()
	d = w.serve() // the next daemon must know the cards
	for _, m := range orphans {
		k.tapOrphan(m)
	}
	tally := k.verify()
	for _, c := range w.api.State().Refused() { // calls made just before a kill are repeated after it
		require.Regexp(t, "query is too old|message is not modified", c.Description, "%+v", c)
	}
	d.stop()
	t.Logf("%d requests, %d kills, %d settled after the kills in %s; %d taps, of which %d were never answered and %d confirmed; %d cards came twice; %v",
		len(k.asked), kills, left, duration, k.taps, k.unanswered, k.confirmed, len(orphans), tally)
	require.Greater(t, k.confirmed, rounds/2, "too few confirmed taps")
}

// orphans are cards with buttons whose request is settled: the daemon was killed after it sent them and
// before it recorded their message id, so it cannot edit them. It sent another card for each request. A tap
// on an orphan is answered with the outcome.
func (k *tapKillRig) orphans() (found []botapi.Message) {
	k.t.Helper()
	ctx, stop := context.WithTimeout(k.t.Context(), 3*testTimeout) // Telegram may delay messages to a group for a minute
	defer stop()
	err := k.api.Await(ctx, func(s botapi.State) bool {
		found = nil
		for _, chat := range k.chats {
			settled := map[string]bool{}
			for _, m := range cardsIn(s, chat) {
				settled[shortOf(m)] = settled[shortOf(m)] || m.Keyboard == nil
			}
			for _, m := range cardsIn(s, chat) {
				if m.Keyboard != nil && !settled[shortOf(m)] {
					return false
				}
				if m.Keyboard != nil {
					found = append(found, m)
				}
			}
		}
		return true
	})
	require.NoError(k.t, err, "a settled request has no card with the outcome")
	return found
}

func (k *tapKillRig) tapOrphan(m botapi.Message) {
	k.t.Helper()
	for end := time.Now().Add(testTimeout); ; {
		tap, err := k.api.Tap(tgAnn, m.Chat.ID, m.ID, "✅ Once")
		if err != nil { // not an orphan: its edit was still queued
			now, there := k.api.State().Message(m.Chat.ID, m.ID)
			require.True(k.t, there && now.Keyboard == nil, err)
			return
		}
		a, err := tap.Answer(k.t.Context())
		if late := errors.Is(err, botapi.ErrNoAnswer) || strings.HasPrefix(a.Text, "One moment"); late && time.Now().Before(end) {
			continue // the daemon has just started, or is busy
		}
		require.NoError(k.t, err)
		require.Regexp(k.t, "^(Approved: |Already (approved|denied) by ann at )", a.Text)
		return
	}
}
