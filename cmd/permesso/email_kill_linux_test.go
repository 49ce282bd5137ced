package main

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/email/mailserver"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// atOnce is how many requests wait for a reply at the same time.
const atOnce = 5

func replyRounds() int {
	if raceDetector() && os.Getenv("PERMESSO_SOAK") == "" {
		return 10
	}
	return 50
}

// TestRealKillsDuringReplies kills the daemon at any moment while it sends cards,
// fetches replies over IMAP and answers them: each reply decides exactly once.
func TestRealKillsDuringReplies(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newTown(t, `approval_timeout = "10m"`, `approval_timeout = "2h"`)
	w.daemon.kill()
	w.plain = true
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var asked map[string]string // what is replied, by id
	work.Go(func() { defer stop(); asked = w.replies(replyRounds()) })
	kills := 0
	for ; ctx.Err() == nil; kills++ {
		d := w.serve()
		switch kills % 3 {
		case 0: // also while it starts
			sleepFor(ctx, time.Duration(random.IntN(1000))*time.Millisecond)
		case 1: // a reply has just decided, and is not noted yet
			w.awaitSlot(ctx)
			most := []int{2000, 20000}[kills/3%2] // the note is a matter of a millisecond; what runs then, of some more
			sleepFor(ctx, time.Duration(random.IntN(most))*time.Microsecond)
		case 2:
			d.awaitLog(`"serving"`)
			sleepFor(ctx, time.Duration(random.IntN(2000))*time.Millisecond)
		}
		d.kill()
	}
	work.Wait()
	require.Len(t, asked, replyRounds(), "the other goroutine failed")
	w.daemon = w.serve()
	stats := map[approval.Status]int{}
	for id, text := range asked {
		stats[w.judge(id, text)]++
	}
	w.daemon.stop()
	w.judgeAnswers()
	w.judgeLog(asked)
	t.Logf("%d replies, %d kills: %v; %d replies were found decided by their own first life", len(asked), kills, stats, strings.Count(w.all(), `"status":"late"`)+strings.Count(w.all(), `"why":"in an earlier life"`))
	require.NotZero(t, kills)
}

func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// awaitSlot waits until somebody decides, or for some seconds.
func (w *town) awaitSlot(ctx context.Context) {
	for end := time.Now().Add(4 * time.Second); ctx.Err() == nil && time.Now().Before(end); sleepFor(ctx, time.Millisecond) {
		if names, err := os.ReadDir(w.layout.Decisions("work")); err == nil && len(names) > 0 {
			return
		}
	}
}

// replies asks and replies, some at once, whether or not a daemon lives.
func (w *town) replies(rounds int) map[string]string {
	asked, cards := map[string]string{}, map[string]letter{}
	for len(asked) < rounds {
		var ids []string
		for range min(atOnce, rounds-len(asked)) {
			id := w.ask(`{"tool_name":"count","request_data":{}}`)
			asked[id] = []string{"1\n", "3 no\n", "4 fine\n"}[len(asked)%3]
			ids = append(ids, id)
		}
		for _, id := range ids {
			for end := time.Now().Add(10 * patience); cards[id].raw == nil; time.Sleep(20 * time.Millisecond) {
				w.readCards(cards)
				require.True(w.t, time.Now().Before(end), "no card came about %s", id)
			}
			w.sends(answer(cards[id], asked[id]))
		}
	}
	return asked
}

// readCards adds the cards that ann has, by the id they are about.
func (w *town) readCards(cards map[string]letter) {
	for _, l := range w.mailsOf(mailserver.Ann) {
		_, id, _ := strings.Cut(l.subject, "[appr_")
		id = strings.TrimSuffix(id, "]")
		if l.header.Get("Auto-Submitted") == itself && l.header.Get("In-Reply-To") == "" && cards[id].raw == nil {
			cards[id] = l
		}
	}
}

// mailsOf are all mails that somebody has got.
func (w *town) mailsOf(user string) (all []letter) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.village.Maildir(user), "[nc][eu][wr]", "*"))
	require.NoError(w.t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(w.t, err)
		all = append(all, readLetter(w.t, b))
	}
	return all
}

// judge compares what a reply said with what became of its request.
func (w *town) judge(id, text string) approval.Status {
	w.t.Helper()
	r := w.response(id)
	runs := w.ran(id)
	if strings.HasPrefix(text, "3") {
		require.Equal(w.t, approval.StatusDenied, r.Status, id)
		require.Zero(w.t, runs, id)
		return r.Status
	}
	switch r.Status {
	case approval.StatusApproved:
		require.Equal(w.t, 1, runs, id)
	case approval.StatusInterrupted, approval.StatusFailed:
		require.LessOrEqual(w.t, runs, 1, id)
	default:
		require.Fail(w.t, "a reply is lost", "%s %q ended as %s", id, text, r.Status)
	}
	require.Equal(w.t, "email", *r.Decision.Via)
	require.Equal(w.t, text[:1], *r.Decision.Code)
	return r.Status
}

// judgeAnswers: no mail of ann's was answered by two of ours. The same one may
// have come twice.
func (w *town) judgeAnswers() {
	w.t.Helper()
	answers := map[string]map[string]bool{}
	for _, l := range w.mailsOf(mailserver.Ann) {
		to := l.header.Get("In-Reply-To")
		if l.header.Get("Auto-Submitted") != replied {
			continue
		}
		if answers[to] == nil {
			answers[to] = map[string]bool{}
		}
		answers[to][l.header.Get("Message-Id")] = true
		require.Len(w.t, answers[to], 1, "two answers to %s", to)
	}
}

// all is what every life of the daemon has said.
func (w *town) all() string {
	b, err := os.ReadFile(w.daemon.log)
	require.NoError(w.t, err)
	return string(b)
}

// judgeLog: each request was decided by one approval at most.
func (w *town) judgeLog(asked map[string]string) {
	w.t.Helper()
	approved := map[string]int{}
	require.NoError(w.t, audit.Entries(ipc.OS(), w.layout.Audit(), func(e approval.Entry) error {
		if e.Event == approval.EventApproved {
			approved[e.RequestID]++
		}
		return nil
	}))
	for id, text := range asked {
		want := 1
		if strings.HasPrefix(text, "3") {
			want = 0
		}
		require.Equal(w.t, want, approved[id], "%s %q", id, text)
	}
}
