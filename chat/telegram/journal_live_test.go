package telegram_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

const person = int64(7001)

// killableBot is a bot that only has the channel's journal, and answers every tap. It can be killed.
type killableBot struct {
	fake  *botapi.Server
	files *botapi.Files

	mu       sync.Mutex
	finished map[int64]bool // updates that the journal has finished
	repeated []int64        // received again although finished
}

// run is one run of the process: unfinished updates first, then new ones, until ctx ends.
func (o *killableBot) run(ctx context.Context, t *testing.T) {
	t.Helper()
	j := &telegram.Journal{Client: http.DefaultClient, Store: o.files, Token: botapi.Token}
	var handlers sync.WaitGroup
	handle := func(ctx context.Context, b *bot.Bot, u *models.Update) {
		if j.Begin(u.ID) {
			o.handle(ctx, b, j, u)
		}
	}
	b, err := bot.New(botapi.Token, bot.WithServerURL(o.fake.URL), bot.WithSkipGetMe(),
		bot.WithHTTPClient(time.Second, j), bot.WithErrorsHandler(func(error) {}),
		bot.WithDefaultHandler(func(ctx context.Context, b *bot.Bot, u *models.Update) {
			handlers.Go(func() { handle(ctx, b, u) })
		}), bot.WithNotAsyncHandlers())
	if err != nil {
		t.Error(err)
		return
	}
	left, _ := j.Unfinished() // fails if the process was killed
	for _, raw := range left {
		var u models.Update
		if err := json.Unmarshal(raw.JSON, &u); err != nil {
			t.Error(err)
		}
		handle(ctx, b, &u)
	}
	b.Start(ctx)
	handlers.Wait()
}

func (o *killableBot) handle(ctx context.Context, b *bot.Bot, j *telegram.Journal, u *models.Update) {
	o.mu.Lock()
	if o.finished[u.ID] {
		o.repeated = append(o.repeated, u.ID)
	}
	o.mu.Unlock()
	if q := u.CallbackQuery; q != nil {
		_, _ = b.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: q.ID, Text: "done"})
	}
	if err := j.Finished(u.ID); err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.finished[u.ID] = true
	}
}

// TestJournalLosesNoTap kills the process repeatedly while a user taps, against a server that redelivers like
// the real one. Every tap is handled, and no finished update comes again.
func TestJournalLosesNoTap(t *testing.T) {
	const taps, kills = 200, 6 // minimum
	fake := botapi.Start(t)
	fake.CallbackTimeout = 2 * time.Minute // slow answers do not count as lost
	fake.AddUser(botapi.User{ID: person, FirstName: "Ricardo"})
	fake.Say(person, person, "/start")
	o := &killableBot{fake: fake, files: &botapi.Files{}, finished: map[int64]bool{}}

	var tapped []*botapi.Tap
	var runs atomic.Int64
	tapping := make(chan struct{})
	go func() {
		defer close(tapping)
		for i := 0; i < taps || runs.Load() < kills; i++ {
			tapped = append(tapped, fake.TapData(person, person, 1, fmt.Sprint(i)))
			time.Sleep(rand.N(4 * time.Millisecond)) // a user's pace, not a wait
		}
	}()
	for over := false; !over; runs.Add(1) {
		ctx, cancel := context.WithCancel(t.Context())
		dead := make(chan struct{})
		go func() {
			defer close(dead)
			o.run(ctx, t)
		}()
		select {
		case <-tapping:
			over = true
		case <-time.After(rand.N(30 * time.Millisecond)):
		}
		next := o.files.Kill()
		cancel()
		<-dead
		o.files = next
	}
	require.GreaterOrEqual(t, runs.Load(), int64(kills), "the process must have been killed during the taps")

	ctx, cancel := context.WithCancel(t.Context())
	last := make(chan struct{})
	go func() {
		defer close(last)
		o.run(ctx, t)
	}()
	answered := func(botapi.State) bool {
		return !slices.ContainsFunc(tapped, func(tap *botapi.Tap) bool {
			_, ok := tap.Answered()
			return !ok
		})
	}
	waiting, enough := context.WithTimeout(t.Context(), time.Minute)
	defer enough()
	require.NoError(t, fake.Await(waiting, answered), "every tap is answered")
	cancel()
	<-last
	require.Empty(t, o.repeated)
}
