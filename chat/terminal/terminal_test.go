package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/messagestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeGate is a Decider, Viewer and records.
type fakeGate struct {
	mu      sync.Mutex
	waiting []approval.StoredPending
	records map[approval.Key]*approval.Record
	asked   []decide.Input
	broken  error
	keep    bool // a decided request stays in the list
}

func (h *fakeGate) Waiting(context.Context, []string) ([]approval.StoredPending, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]approval.StoredPending(nil), h.waiting...), h.broken
}

func (h *fakeGate) Find(_ context.Context, _ []string, prefix string) (keys []approval.Key, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.records {
		if strings.HasPrefix(k.ID, prefix) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

func (h *fakeGate) Record(_ context.Context, k approval.Key) (*approval.Record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.records[k], nil
}

func (h *fakeGate) Decide(_ context.Context, a decide.Input) (*approval.Decision, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, a)
	if !h.keep {
		h.remove(a.Key)
	}
	at := time.Date(2026, 11, 21, 12, 1, 0, 0, time.UTC)
	return &approval.Decision{Verdict: a.Verdict, Scope: a.Scope, DecidedAt: at, RunBefore: at.Add(10 * time.Minute)}, nil
}

func (h *fakeGate) remove(k approval.Key) {
	for i, w := range h.waiting {
		if w.Key() == k {
			h.waiting = append(h.waiting[:i:i], h.waiting[i+1:]...)
			return
		}
	}
}

func (h *fakeGate) do(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// screen collects the output and lets a test wait for it.
type screen struct {
	mu   sync.Mutex
	text string
	more chan struct{}
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.text += string(b)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// rig is a channel under test with keyboard and screen.
type rig struct {
	*fakeGate
	*screen
	t       *testing.T
	changes chan approval.Key
	keys    *io.PipeWriter
	cancel  context.CancelFunc
	done    chan error
}

func start(t *testing.T, h *fakeGate, change ...func(*Channel)) *rig {
	t.Helper()
	in, keys := io.Pipe()
	began := time.Now() // of the bubble's clock
	s := &rig{
		fakeGate: h, screen: &screen{more: make(chan struct{}, 1)}, t: t,
		changes: make(chan approval.Key, 8), keys: keys, done: make(chan error, 1),
	}
	if h.records == nil {
		h.records = map[approval.Key]*approval.Record{}
	}
	c := &Channel{
		In: in, Out: s.screen, Interceptor: &chat.Interceptor{Decider: h, Viewer: h}, Viewer: h, Records: h,
		Changes: s.changes, Person: approval.Person{Channel: "local", ID: "1000", Name: "operator:ann"},
		Workspaces: []string{"personal"}, Interval: time.Hour,
		Now: func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).Add(time.Since(began)) },
	}
	for _, f := range change {
		f(c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() { s.done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		keys.Close()
		select {
		case err := <-s.done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "Run does not return")
		}
	})
	return s
}

// typeLine types a line when the card has been on the screen long enough.
func (s *rig) typeLine(line string) {
	s.t.Helper()
	s.wait(settleTime)
	s.typeNow(line + "\n")
}

// typeNow types keys at once.
func (s *rig) typeNow(keys string) {
	s.t.Helper()
	synctest.Wait()
	_, err := io.WriteString(s.keys, keys)
	require.NoError(s.t, err)
	synctest.Wait()
}

// wait waits on the bubble's clock.
func (*rig) wait(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

func (s *rig) waitFor(text string) {
	s.t.Helper()
	limit := time.After(time.Minute)
	for !strings.Contains(s.String(), text) {
		select {
		case <-s.more:
		case <-limit:
			require.Failf(s.t, "not shown", "%q in:\n%s", text, s.String())
		}
	}
}

func (s *rig) addRequest(w approval.StoredPending) {
	s.do(func() { s.waiting = append(s.waiting, w) })
	s.changes <- w.Key()
	s.waitFor("/  deny " + w.Pending.ShortID)
}

func (s *rig) settle(rec *approval.Record) {
	k := approval.Key{Workspace: rec.Workspace, ID: rec.RequestID}
	s.do(func() { s.remove(k); s.records[k] = rec })
	s.changes <- k
}

func request(id string) approval.StoredPending {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return approval.StoredPending{SHA256: "sha of " + id, Pending: &approval.Pending{
		RequestID: id, ShortID: id[:8], Type: approval.TypeAction, ToolName: "x_post", ToolSHA256: "5e", SourceGroup: "personal",
		RequestData: approval.Raw(`{"text":"hello from ` + id + `"}`), Summary: "say hello", Verb: map[string]string{"en": "post"},
		ActionType: "send_message", SessionID: "s", Timestamp: at, ExpiresAt: at.Add(time.Hour),
		Agent: approval.Prose{Rationale: "\x1b[2Jplease"},
	}}
}

func settled(t *testing.T, id string, status approval.Status, by string) *approval.Record {
	resp := approval.Response{Version: 1, RequestID: id, Status: status}
	if by != "" {
		via := "telegram"
		resp.Decision.By, resp.Decision.Via = &by, &via
	}
	b, err := resp.Encode()
	require.NoError(t, err)
	return &approval.Record{RequestID: id, Workspace: "personal", Status: status, Response: b}
}

const (
	first  = "a7f3b2c1d4e5f6a7"
	second = "beef000000000000"
)

func TestReplyToTheLastCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}})
		s.waitFor("text: hello from " + first) // a request that was already pending is shown too
		s.typeLine("4 and log it")
		s.waitFor(`Approved: post say hello · will not start after 12:11 UTC`)
		s.do(func() {
			require.Equal(t, []decide.Input{{
				Key: approval.Key{Workspace: "personal", ID: first}, PendingSHA256: "sha of " + first, Verdict: approval.Approved,
				Code: "4", Scope: approval.Once, Note: "and log it", Via: "terminal",
				By: approval.Person{Channel: "local", ID: "1000", Name: "operator:ann"},
			}}, s.asked)
		})
		s.settle(settled(t, first, approval.StatusApproved, "operator:ann"))
		s.waitFor("a7f3b2c1 · approved · by operator:ann (telegram)")
		require.NotContains(t, s.String(), "the outcome follows", "decided here, so already confirmed")
		require.NotContains(t, s.String(), "\x1b", "no color by default")
	})
}

func TestCommandsNameTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first), request(second)}})
		s.waitFor("/  deny beef0000")
		s.typeLine("approve a7f3b2c1? no")
		s.waitFor("Not understood, nothing was decided")
		s.typeLine("deny A7F3 not now")
		s.waitFor("Denied: post say hello")
		s.typeLine("pending")
		s.waitFor("beef0000 · personal · x_post · say hello")
		s.typeLine("help")
		s.waitFor("for the card shown last")
		s.typeLine("")
		s.typeLine("approve beef0000")
		s.waitFor("Approved: post say hello")
		s.do(func() {
			require.Len(t, s.asked, 2)
			require.Equal(t, "not now", s.asked[0].Feedback)
			require.Equal(t, second, s.asked[1].Key.ID)
		})
		s.typeLine("pending")
		s.waitFor("No pending approvals.")
		s.typeLine("hm")
		s.waitFor("Reply approve, deny, deny: <reason>")
	})
}

func TestDecisionsMadeElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first), request(second)}})
		s.waitFor("/  deny beef0000")
		s.settle(settled(t, first, approval.StatusDenied, "bob"))
		s.waitFor("a7f3b2c1 · denied · by bob (telegram)")

		k := approval.Key{Workspace: "personal", ID: second}
		s.do(func() { s.remove(k) })
		s.changes <- k
		s.waitFor("beef0000 · decided; the outcome follows")
		s.settle(settled(t, second, approval.StatusExpired, ""))
		s.waitFor("beef0000 · expired")
		require.Equal(t, 1, strings.Count(s.String(), "beef0000 · decided"))
	})
}

func TestWithoutRecordsNoOutcomeIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}}, func(c *Channel) { c.Records = nil })
		s.waitFor("/  deny a7f3b2c1")
		s.typeLine("1")
		s.waitFor("Approved:")
		s.typeLine("pending")
		s.waitFor("No pending approvals.")
		require.NotContains(t, s.String(), "the outcome follows")
	})
}

func TestPollingWithoutHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeGate{}
		s := start(t, h, func(c *Channel) { c.Interval, c.Changes = time.Millisecond, nil })
		s.waitFor("Pending requests appear here")
		s.do(func() { s.waiting = []approval.StoredPending{request(first)} })
		s.waitFor("/  deny a7f3b2c1")
		require.Equal(t, 1, strings.Count(s.String(), "🔐"), "a card is shown once")

		closed := make(chan approval.Key)
		close(closed)
		quiet := start(t, &fakeGate{}, func(c *Channel) { c.Changes = closed })
		quiet.typeLine("pending")
		quiet.waitFor("No pending approvals.")
	})
}

func TestInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}})
		s.waitFor("/  deny a7f3b2c1")
		s.typeLine("approve a7f3b2c1 " + strings.Repeat("x", maxLine))
		s.waitFor("Line too long")
		s.typeLine("4: " + strings.Repeat("x", maxLine-10))
		s.waitFor("Approved:")
		s.do(func() { require.Len(t, s.asked, 1) })
		_, err := io.WriteString(s.keys, "approve a7f3b2c1") // no line feed: incomplete
		require.NoError(t, err)
		require.NoError(t, s.keys.Close())
		s.waitFor("Input closed")
		s.addRequest(request(second))
		s.do(func() { require.Len(t, s.asked, 1) })
	})
}

func TestNoWorkspacesShowNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}}, func(c *Channel) { c.Workspaces = nil })
		s.typeLine("pending")
		s.waitFor("You are not an approver here.")
		require.NotContains(t, s.String(), "🔐")
	})
}

func TestErrorsAreLoggedNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := make(chan error, 8)
		s := start(t, &fakeGate{broken: errors.New("disk on fire")}, func(c *Channel) { c.Log = func(err error) { logged <- err } })
		require.EqualError(t, <-logged, "disk on fire")
		s.typeLine("pending")
		s.waitFor("cannot be listed now")
		require.NotContains(t, s.String(), "fire")
	})
}

func TestColor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := request(first)
		w.Pending.ToolSHA256 = ""
		s := start(t, &fakeGate{waiting: []approval.StoredPending{w}}, func(c *Channel) { c.Color, c.Style.Language = true, "it" })
		s.waitFor("\x1b[1m🔐 Posso? (post)\x1b[0m\n")
		s.waitFor("\x1b[33m⚠ strumento sconosciuto")
		s.waitFor("\x1b[2mL'agente dice: \"\\u{001B}[2Jplease\"\x1b[0m\n")
		s.typeLine("1")
		s.waitFor("\x1b[32mApprovato: ")
	})
}

func TestFootIsReadForEachCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}}, func(c *Channel) {
			c.Foot = func() string { return fmt.Sprintf("log %d 9f3c", n.Add(1)) }
		})
		s.waitFor(" · log 1 9f3c\n")
		s.addRequest(request(second))
		s.waitFor(" · log 2 9f3c\n")
	})
}

func TestRunEnds(t *testing.T) {
	t.Run("the reader ends if input has a read deadline", func(t *testing.T) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		defer w.Close()
		defer r.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, (&Channel{In: r, Out: io.Discard, Viewer: &fakeGate{}, Interceptor: &chat.Interceptor{}}).Run(ctx))
	})
	t.Run("when the screen fails", func(t *testing.T) {
		err := (&Channel{Out: brokenScreen{}, Viewer: &fakeGate{}, Interceptor: &chat.Interceptor{}}).Run(context.Background())
		require.EqualError(t, err, "hung up")
	})
}

type brokenScreen struct{}

func (brokenScreen) Write([]byte) (int, error) { return 0, errors.New("hung up") }

func TestEveryMessageIsReadAndWritten(t *testing.T) {
	messagestest.RequireKeys[messages](t, "../messages", "terminal")
}

// A pause is reported once and on every new card, and its end is reported. The
// configuration may change in between.
func TestPauseAndRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeGate{}
		var pause *chat.Pause
		workspaces, language := []string{"personal"}, "en"
		s := start(t, h, func(c *Channel) {
			c.Refresh = func() ([]string, chat.Style) {
				h.mu.Lock()
				defer h.mu.Unlock()
				now := pause
				return workspaces, chat.Style{Language: language, Paused: func(string) *chat.Pause { return now }}
			}
		})
		s.do(func() {
			pause = &chat.Pause{By: "ricardo\x1b[2J", Since: time.Date(2026, 11, 21, 11, 58, 0, 0, time.UTC), Reason: "a look"}
		})
		s.changes <- approval.Key{}
		s.waitFor("personal ⏸ paused since 11:58 UTC by ricardo\\u{001B}[2J: nothing runs until resume (a look)\n")
		s.addRequest(request(first))
		require.Equal(t, 2, strings.Count(s.String(), "⏸ paused since"), "once by itself and once on the card")
		s.do(func() { pause, language = nil, "it" })
		s.changes <- approval.Key{}
		s.waitFor("personal ▶ pausa terminata")
	})
}

// A cancelled request is reported, and a question answered from facts decides
// nothing.
func TestCancelAndQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeGate{}
		s := start(t, h)
		w := request(first)
		w.Pending.Facts.Host = []approval.HostFact{{Domain: facts.File, Op: "write", Name: "path", Values: []string{"/srv/a"}, From: facts.FromArgument}}
		s.addRequest(w)
		s.wait(time.Minute)
		s.typeLine("tell me what files will be written")
		s.waitFor("From the request: file write path: /srv/a\na7f3b2c1 is still pending.")
		s.settle(settled(t, first, approval.StatusCancelled, "operator:ann"))
		s.waitFor("a7f3b2c1 · cancelled · by operator:ann (telegram)")
		s.do(func() { require.Empty(t, h.asked) })
	})
}

// The card that a code means is the one that is on the screen: X is cancelled and Y is
// submitted while the approver reads X, and the code typed for X decides nothing.
func TestACodeNeverMeansACardThatWasSwapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}})
		s.wait(time.Minute)
		s.do(func() {
			s.remove(approval.Key{Workspace: "personal", ID: first})
			s.waiting = append(s.waiting, request(second))
		})
		s.changes <- approval.Key{}
		s.typeNow("1\n")
		s.wait(settleTime - time.Millisecond)
		s.typeNow("1\n")
		s.do(func() { require.Empty(t, s.asked) })
		s.typeLine("1")
		s.do(func() { require.Equal(t, second, s.asked[0].Key.ID) })
	})
}

// A code applies to the card drawn last. When it is settled, no code applies until the
// next card has been drawn again and read.
func TestTheNextCardIsDrawnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first), request(second)}})
		s.typeLine("1")
		s.waitFor("Approved: post say hello")
		require.Equal(t, 2, strings.Count(s.String(), "/  deny a7f3b2c1"), "drawn again in full")
		s.typeNow("1\n")
		s.do(func() { require.Len(t, s.asked, 1) })
		s.typeLine("1")
		s.do(func() {
			require.Equal(t, second, s.asked[0].Key.ID)
			require.Equal(t, first, s.asked[1].Key.ID)
		})
		for _, code := range []string{"1", "3 no", "?", "? why"} {
			s.typeLine(code)
		}
		require.Equal(t, 4, strings.Count(s.String(), "no card on screen"))
		s.do(func() { require.Len(t, s.asked, 2) })
	})
}

// The request is the same, its bytes are not: the new card is drawn, and a decision
// carries its digest.
func TestAChangedRequestIsDrawnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}})
		s.wait(time.Minute)
		s.do(func() { s.waiting[0].SHA256 = "another digest" })
		s.changes <- approval.Key{}
		s.typeNow("1\n")
		require.Equal(t, 2, strings.Count(s.String(), "/  deny a7f3b2c1"))
		s.do(func() { require.Empty(t, s.asked) })
		s.typeLine("1")
		s.do(func() { require.Equal(t, "another digest", s.asked[0].PendingSHA256) })
	})
}

// A new card empties the line, wherever the cursor is, also in the middle of a key.
func TestANewCardEmptiesTheLine(t *testing.T) {
	for _, typed := range []string{"4 because of the fir", "approve a7f3b2c1", "1\x1b[D", "1\x1b", "1\x1b[", "1\xc3", "1\x1b[200~"} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}})
			s.wait(settleTime)
			s.typeNow(typed)
			s.addRequest(request(second))
			s.waitFor("the line you were typing is dropped")
			s.typeLine("")
			s.do(func() { require.Empty(t, s.asked, "%q", typed) })
			s.typeLine("1")
			s.do(func() { require.Equal(t, second, s.asked[0].Key.ID, "%q", typed) })
			require.Equal(t, 1, strings.Count(s.String(), "is dropped"))
		})
	}
}

// A person names only what this terminal has shown: another card is drawn first.
func TestANamedCardIsDrawnFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeGate{}
		s := start(t, h, func(c *Channel) { c.Changes = nil })
		s.wait(settleTime)
		s.do(func() { s.waiting = append(s.waiting, request(first)) })
		s.typeNow("approve a7f3b2c1\n")
		s.waitFor("a7f3b2c1 was not on this screen yet")
		s.waitFor("/  deny a7f3b2c1")
		s.do(func() {
			require.Empty(t, s.asked)
			s.waiting[0].SHA256 = "another digest"
		})
		s.typeLine("deny a7f3b2c1")
		require.Equal(t, 2, strings.Count(s.String(), "/  deny a7f3b2c1"))
		s.do(func() { require.Empty(t, s.asked) })
		s.typeLine("deny a7f3b2c1")
		s.do(func() { require.Equal(t, "another digest", s.asked[0].PendingSHA256) })
	})
}

// Digits that fit a card and one that was cancelled decide nothing, in this workspace
// and in another.
func TestDigitsOfACancelledCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := request("a7f3b2c1eeeeeeee")
		other.Pending.SourceGroup = "work"
		h := &fakeGate{waiting: []approval.StoredPending{request(first)}}
		s := start(t, h, func(c *Channel) { c.Workspaces = []string{"personal", "work"} })
		s.wait(settleTime)
		s.settle(settled(t, first, approval.StatusCancelled, ""))
		s.addRequest(other)
		s.typeLine("approve a7f3b2c1")
		s.waitFor("a7f3b2c1 fits work/a7f3b2c1eeeeeeee, which is pending, and personal/a7f3b2c1d4e5f6a7, which is settled")
		s.do(func() { require.Empty(t, s.asked) })
		s.typeLine("approve a7f3b2c1eeeeeeee")
		s.do(func() { require.Equal(t, other.Key(), s.asked[0].Key) })
	})
}

func TestKeys(t *testing.T) {
	for typed, want := range map[string]string{
		"approve a7f3\r":                  "approve a7f3\r",
		"\x1b[A\x1bOB\x1b[1;3C":           "\x1b[A\x1b[B\x1b[1;3C",
		"a\x1b[200~b\x1b[201~c":           "abc",
		"\x0c\x03\x00a\tb":                "a b",
		"\xff1\u202e2\ufffd":              "?1?2?",
		"caffè 日本":                        "caffè 日本",
		"\x1b1\x1b[38;5;1mx":              "x",
		"\x1b[" + strings.Repeat("1", 40): "",
	} {
		var got []byte
		for b := []byte(typed); len(b) > 0; {
			key, size := cutKey(b)
			require.Positive(t, size, "%q", typed)
			got, b = append(got, key...), b[size:]
		}
		require.Equal(t, want, string(got), "%q", typed)
	}
	for _, part := range []string{"\x1b", "\x1b[", "\x1b[1;", "\xc3", "\xe6\x97"} {
		_, size := cutKey([]byte(part))
		require.Zero(t, size, "%q", part)
	}
}

// A question is answered with the number of an option, or with other words.
func TestAnswers(t *testing.T) {
	for typed, answer := range map[string]string{"2": "dev", "the hotfix": "the hotfix"} {
		synctest.Test(t, func(t *testing.T) {
			w := request(first)
			w.Pending.Type, w.Pending.Options = approval.TypeQuestion, []string{"main", "dev"}
			s := start(t, &fakeGate{waiting: []approval.StoredPending{w}})
			s.wait(time.Minute)
			s.waitFor("\ntype your answer, or the number of an option\n")
			s.typeLine(typed)
			s.do(func() { require.Equal(t, answer, s.asked[0].Text) })
		})
	}
}
