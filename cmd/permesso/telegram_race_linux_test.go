package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/client"
)

// submitIn submits a request in a workspace, without a sandbox.
func (w *telegramRig) submitIn(ws string) string {
	w.t.Helper()
	id := client.NewID()
	files := client.Files{Requests: w.layout.Requests(ws), Responses: w.layout.Responses(ws)}
	awaitFile(w.t, files.Requests)
	require.NoError(w.t, files.Submit(id, fmt.Appendf(nil, `{"request_id":%q,"tool_name":"post","request_data":{"text":"Meeting at 5"}}`, id)))
	return id
}

// awaitDecided waits for the response of a request.
func (w *telegramRig) awaitDecided(ws, id string) *approval.Response {
	w.t.Helper()
	files := client.Files{Requests: w.layout.Requests(ws), Responses: w.layout.Responses(ws)}
	ctx, stop := context.WithTimeout(w.t.Context(), testTimeout)
	defer stop()
	r, err := files.Await(ctx, client.Submitted{ID: id})
	require.NoError(w.t, err)
	return r
}

// groupPerWorkspace has n workspaces, each with its own group.
func groupPerWorkspace(n int) map[string]int64 {
	chats := map[string]int64{}
	for i := range n {
		chats[fmt.Sprintf("w%02d", i)] = 0
	}
	return chats
}

// race is one request that several approvers decide at the same time.
type race struct {
	*telegramRig
	ws, id string
	card   botapi.Message
	local  *gate.Decider // nil: no decision by the command line

	mu      sync.Mutex
	winners []string // confirmed decisions
	losers  []string // answers to the others
	busy    int      // answers "One moment": the daemon was busy and replies in the chat
}

func (r *race) addAnswer(who, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case strings.HasPrefix(text, "Approved: "):
		r.winners = append(r.winners, who+" approved")
	case strings.HasPrefix(text, "Denied: "):
		r.winners = append(r.winners, who+" denied")
	case strings.HasPrefix(text, "One moment"):
		r.busy++
	default:
		r.losers = append(r.losers, text)
	}
}

func (r *race) tap(user int64, who, button string) error {
	tap, err := r.api.Tap(user, r.card.Chat.ID, r.card.ID, button)
	if err != nil {
		return nil //nolint:nilerr // the card was already edited: this tap came too late
	}
	ctx, stop := context.WithTimeout(r.t.Context(), testTimeout)
	defer stop()
	a, err := tap.Answer(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	r.addAnswer(who, a.Text)
	return nil
}

func (r *race) decideLocally(v approval.Verdict) error {
	code := map[approval.Verdict]string{approval.Approved: "1", approval.Denied: "3"}[v]
	_, err := r.local.Decide(r.t.Context(), decide.Input{
		Key: approval.Key{Workspace: r.ws, ID: r.id}, Verdict: v, Code: code, By: home.Operator(), Via: "cli",
	})
	var refused *decide.Refusal
	switch {
	case errors.As(err, &refused):
		r.addAnswer(home.Operator().Name, refused.Error())
		return nil
	case err == nil:
		r.addAnswer(home.Operator().Name, map[approval.Verdict]string{approval.Approved: "Approved: ", approval.Denied: "Denied: "}[v])
	}
	return err
}

// run makes all of them decide at once, in random order.
func (r *race) run(random *rand.Rand) error {
	people := []func() error{
		func() error { return r.tap(tgAnn, "ann", "✅ Once") },
		func() error { return r.tap(tgBob, "bob", "❌ Deny") },
	}
	if r.local != nil {
		v := []approval.Verdict{approval.Approved, approval.Denied}[random.IntN(2)]
		people = append(people, func() error { return r.decideLocally(v) })
	}
	random.Shuffle(len(people), func(i, j int) { people[i], people[j] = people[j], people[i] })
	errs := make([]error, len(people))
	var at sync.WaitGroup
	for i, decide := range people {
		delay := time.Duration(random.IntN(3)) * time.Millisecond
		at.Go(func() {
			time.Sleep(delay)
			errs[i] = decide()
		})
	}
	at.Wait()
	return errors.Join(errs...)
}

func (r *race) verify() {
	t := r.t
	resp := r.awaitDecided(r.ws, r.id)
	if r.busy > 0 && len(r.winners) == 0 {
		r.winners = append(r.winners, *resp.Decision.By+" "+string(resp.Status))
	}
	require.Len(t, r.winners, 1, "%s: exactly one decides; the others got %q", r.id, r.losers)
	who, what, _ := strings.Cut(r.winners[0], " ")
	require.Equal(t, what, string(resp.Status), r.id)
	require.Equal(t, who, *resp.Decision.By, r.id)
	runs := map[approval.Status]int{approval.StatusApproved: 1, approval.StatusDenied: 0}[resp.Status]
	require.Equal(t, runs, r.runs(r.id), r.id)
	for _, text := range r.losers {
		require.Regexp(t, "(?i)^already (decided: )?"+what+" by "+who+" at ", text, "%s: the loser is notified", r.id)
	}
}

// Two approvers decide at the same time, and in every other race also an operator at the command line.
func TestTelegramRaces(t *testing.T) {
	t.Parallel()
	const each = 5 // more cards a minute would be sent as a digest
	workspaces := 15
	if os.Getenv("PERMESSO_SOAK") != "" {
		workspaces = 40
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newTelegramRig(t, groupPerWorkspace(workspaces))
	d := w.serve()
	local := w.decider
	d.awaitLog(`"serving"`)
	races := make([]*race, 0, workspaces*each)
	for i := range workspaces * each {
		r := &race{telegramRig: w, ws: fmt.Sprintf("w%02d", i/each)}
		r.id = w.submitIn(r.ws)
		if i%2 == 1 {
			r.local = local()
		}
		races = append(races, r)
	}
	for _, r := range races {
		r.card = awaitMessage(t, w.api, w.chats[r.ws], "→ approve "+r.id[:8]+" ", "✅ Once")
	}
	errs := make(chan error, len(races))
	turn := make(chan struct{}, 8) // limits the concurrent races
	for i, r := range races {
		turn <- struct{}{}
		go func() {
			errs <- r.run(rand.New(rand.NewPCG(seed, uint64(i))))
			<-turn
		}()
	}
	for range races {
		require.NoError(t, <-errs)
	}
	lost, busy := 0, 0
	for _, r := range races {
		r.verify()
		lost, busy = lost+len(r.losers), busy+r.busy
	}
	t.Logf("%d losers were notified, %d answers delayed", lost, busy)
	require.Greater(t, lost, workspaces*each/2, "too few losers")
	require.Less(t, busy, workspaces*each/10)
	require.Empty(t, w.api.State().Refused())
	d.stop()
}
