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

func (*fakeGate) Find(context.Context, []string, string) ([]approval.Key, error) { return nil, nil }

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
	return &approval.Decision{Verdict: a.Verdict, DecidedAt: at, RunBefore: at.Add(10 * time.Minute)}, nil
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
	clock   time.Time
	cancel  context.CancelFunc
	done    chan error
}

func start(t *testing.T, h *fakeGate, change ...func(*Channel)) *rig {
	t.Helper()
	in, keys := io.Pipe()
	s := &rig{
		fakeGate: h, screen: &screen{more: make(chan struct{}, 1)}, t: t,
		changes: make(chan approval.Key, 8), keys: keys, done: make(chan error, 1),
		clock: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
	}
	if h.records == nil {
		h.records = map[approval.Key]*approval.Record{}
	}
	c := &Channel{
		In: in, Out: s.screen, Interceptor: &chat.Interceptor{Decider: h, Viewer: h}, Viewer: h, Records: h,
		Changes: s.changes, Person: approval.Person{Channel: "local", ID: "1000", Name: "operator:ann"},
		Workspaces: []string{"personal"}, Interval: time.Hour,
		Now: func() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return s.clock },
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

func (s *rig) typeLine(line string) {
	s.t.Helper()
	_, err := io.WriteString(s.keys, line+"\n")
	require.NoError(s.t, err)
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

func (s *rig) advance(d time.Duration) { s.do(func() { s.clock = s.clock.Add(d) }) }

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
}

func TestCommandsNameTheRequest(t *testing.T) {
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
	s.waitFor("Reply with 1, 2, 3")
}

func TestCodeAppliesToTheLastCardOnly(t *testing.T) {
	s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}})
	s.waitFor("/  deny a7f3b2c1")
	s.addRequest(request(second))
	s.typeLine("1") // typed for the first while the second appeared
	s.waitFor("A new card has just appeared: beef0000")
	s.do(func() { require.Empty(t, s.asked) })
	s.advance(2 * time.Second)
	s.typeLine("1")
	s.waitFor("Approved: post say hello")
	s.do(func() { require.Equal(t, second, s.asked[0].Key.ID) })

	s.waitFor("Still pending: 1")
	s.typeLine("1") // the remaining card is far above
	s.waitFor("Name the request")
	s.do(func() { require.Len(t, s.asked, 1) })
}

func TestDecisionsMadeElsewhere(t *testing.T) {
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
}

func TestWithoutRecordsNoOutcomeIsAwaited(t *testing.T) {
	s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}}, func(c *Channel) { c.Records = nil })
	s.waitFor("/  deny a7f3b2c1")
	s.typeLine("1")
	s.waitFor("Approved:")
	s.typeLine("pending")
	s.waitFor("No pending approvals.")
	require.NotContains(t, s.String(), "the outcome follows")
}

func TestPollingWithoutHints(t *testing.T) {
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
}

func TestInput(t *testing.T) {
	s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}})
	s.waitFor("/  deny a7f3b2c1")
	s.typeLine("approve a7f3b2c1 " + strings.Repeat("x", maxLine))
	s.waitFor("Line too long")
	s.typeLine("4 " + strings.Repeat("x", maxLine-10))
	s.waitFor("Approved:")
	s.do(func() { require.Len(t, s.asked, 1) })
	_, err := io.WriteString(s.keys, "approve a7f3b2c1") // no line feed: incomplete
	require.NoError(t, err)
	require.NoError(t, s.keys.Close())
	s.waitFor("Input closed")
	s.addRequest(request(second))
	s.do(func() { require.Len(t, s.asked, 1) })
}

func TestNoWorkspacesShowNothing(t *testing.T) {
	s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}}, func(c *Channel) { c.Workspaces = nil })
	s.typeLine("pending")
	s.waitFor("You are not an approver here.")
	require.NotContains(t, s.String(), "🔐")
}

func TestErrorsAreLoggedNotShown(t *testing.T) {
	logged := make(chan error, 8)
	s := start(t, &fakeGate{broken: errors.New("disk on fire")}, func(c *Channel) { c.Log = func(err error) { logged <- err } })
	require.EqualError(t, <-logged, "disk on fire")
	s.typeLine("pending")
	s.waitFor("cannot be listed now")
	require.NotContains(t, s.String(), "fire")
}

func TestColor(t *testing.T) {
	w := request(first)
	w.Pending.ToolSHA256 = ""
	s := start(t, &fakeGate{waiting: []approval.StoredPending{w}}, func(c *Channel) { c.Color, c.Style.Language = true, "it" })
	s.waitFor("\x1b[1m🔐 Serve un'approvazione · personal · x_post · a7f3b2c1\x1b[0m\n")
	s.waitFor("\x1b[33m⚠ strumento sconosciuto")
	s.waitFor("\x1b[2mL'agente dice: \"\\u{001B}[2Jplease\"\x1b[0m\n")
	s.typeLine("1")
	s.waitFor("\x1b[32mApprovato: ")
}

func TestFootIsReadForEachCard(t *testing.T) {
	var n atomic.Int64
	s := start(t, &fakeGate{waiting: []approval.StoredPending{request(first)}}, func(c *Channel) {
		c.Foot = func() string { return fmt.Sprintf("log %d 9f3c", n.Add(1)) }
	})
	s.waitFor(" · log 1 9f3c\n")
	s.addRequest(request(second))
	s.waitFor(" · log 2 9f3c\n")
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
}

// A cancelled request is reported, and a question answered from facts decides
// nothing.
func TestCancelAndQuestion(t *testing.T) {
	h := &fakeGate{}
	s := start(t, h)
	w := request(first)
	w.Pending.Facts.Host = []approval.HostFact{{Domain: facts.File, Op: "write", Name: "path", Values: []string{"/srv/a"}, From: facts.FromArgument}}
	s.addRequest(w)
	s.advance(time.Minute)
	s.typeLine("tell me what files will be written")
	s.waitFor("From the request: file write path: /srv/a\na7f3b2c1 is still pending.")
	s.settle(settled(t, first, approval.StatusCancelled, "operator:ann"))
	s.waitFor("a7f3b2c1 · cancelled · by operator:ann (telegram)")
	s.do(func() { require.Empty(t, h.asked) })
}
