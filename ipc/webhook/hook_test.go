package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/ipc/webhook"
)

// fakeLog is an audit log in memory.
type fakeLog struct {
	mu      sync.Mutex
	entries []event.Entry
	moved   chan struct{}
}

func (l *fakeLog) Moved() (int64, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.entries)), l.moved
}

func (l *fakeLog) Since(seq int64, each func(event.Entry) error) error {
	l.mu.Lock()
	list := l.entries[seq:]
	l.mu.Unlock()
	for _, e := range list {
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

func (l *fakeLog) add(kind event.Kind, ws string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, event.Entry{Seq: int64(len(l.entries) + 1), Time: time.Now(), Event: kind, Workspace: ws, RequestID: fmt.Sprintf("%016x", n)})
	close(l.moved)
	l.moved = make(chan struct{})
}

// fakeState is a state in memory that a power cut can take back.
type fakeState struct {
	bytes []byte
	saves int
}

func (s *fakeState) Put(_ string, b []byte) error {
	s.bytes = b
	s.saves++
	return nil
}

func (s *fakeState) Get(string) ([]byte, error) {
	if s.bytes == nil {
		return nil, fs.ErrNotExist
	}
	return s.bytes, nil
}

// hookRig is a Hook with a receiver that answers as answer says.
type hookRig struct {
	t       *testing.T
	log     *fakeLog
	state   *fakeState
	mu      sync.Mutex // what the test changes while a Hook waits
	answer  func(request string) (webhook.Response, error)
	hidden  map[string]bool // requests without a record
	sent    []string        // numbers of the requests, in order of the attempts
	ids     map[string]string
	reports []string
	gaveUp  []string
	stop    func()
	only    []string
}

func newHookRig(t *testing.T) *hookRig {
	t.Helper()
	r := &hookRig{t: t, log: &fakeLog{moved: make(chan struct{})}, state: &fakeState{}, hidden: map[string]bool{}, ids: map[string]string{}}
	r.ok()
	t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
		}
	})
	return r
}

func (r *hookRig) ok() { r.status(http.StatusOK) }

func (r *hookRig) status(code int) {
	r.answers(func(string) (webhook.Response, error) { return webhook.Response{Status: code}, nil })
}

func (r *hookRig) answers(f func(request string) (webhook.Response, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *hookRig) hide(request string, hidden bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hidden[request] = hidden
}

func (r *hookRig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	h := &webhook.Hook{
		Log: r.log, State: r.state, Workspaces: r.only,
		Message: func(_ context.Context, k approval.Key) (*webhook.Message, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.hidden[short(k.ID)] {
				return nil, nil //nolint:nilnil // as documented
			}
			return &webhook.Message{ID: webhook.MessageID(webhook.Settled, k.Workspace, k.ID, time.Unix(0, 0)), Body: []byte(short(k.ID))}, nil
		},
		Post: func(_ context.Context, id string, _ time.Time, body []byte) (webhook.Response, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			name := string(body)
			if was := r.ids[name]; was != "" {
				require.Equal(r.t, was, id, "the id is the same for each attempt")
			}
			r.ids[name] = id
			r.sent = append(r.sent, name)
			return r.answer(name)
		},
		Report: func(what string) {
			if len(r.reports) == 0 || r.reports[len(r.reports)-1] != what {
				r.reports = append(r.reports, what)
			}
		},
		GaveUp: func(k approval.Key, _ error) { r.gaveUp = append(r.gaveUp, short(k.ID)) },
	}
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	r.stop = func() {
		cancel()
		require.NoError(r.t, <-done)
		r.stop = nil
	}
	synctest.Wait()
}

func short(id string) string { return strings.TrimLeft(id, "0") }

// settle logs requests that end now.
func (r *hookRig) settle(numbers ...int) {
	for _, n := range numbers {
		r.log.add(event.Requested, "w", n)
		r.log.add(event.Denied, "w", n)
	}
	synctest.Wait()
}

// forget drops the attempts that were made.
func (r *hookRig) forget() {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = nil
}

func (r *hookRig) sends(want ...string) {
	r.t.Helper()
	synctest.Wait()
	require.Equal(r.t, want, r.sent)
	r.forget()
}

func TestOldestFirstAndNothingFromBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.settle(1, 2)
		r.start()
		r.settle(3)
		r.sends("3")
		r.stop()
		r.settle(4, 5)
		r.start()
		r.sends("4", "5")
		r.log.add(event.Requested, "w", 6)
		r.log.add(event.Approved, "w", 6)
		r.sends()
		r.log.add(event.Executed, "w", 6)
		r.sends("6")
		require.Equal(t, []string{""}, r.reports)
	})
}

func TestWorkspaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.only = []string{"w"}
		r.start()
		r.log.add(event.Denied, "other", 1)
		r.settle(2)
		r.log.add(event.Started, "", 0)
		r.sends("2")
	})
}

// A receiver that is down for hours gets everything, in order, at most a quarter of an hour after it is up again.
func TestReceiverDownForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.start()
		r.answers(func(string) (webhook.Response, error) { return webhook.Response{}, errors.New("connection refused") })
		r.settle(1)
		began := time.Now()
		for n := range 40 {
			time.Sleep(10 * time.Minute)
			r.settle(n + 2)
		}
		require.Less(t, len(r.sent), 50, "the delays grow")
		require.Subset(t, []string{"1"}, r.sent, "no message overtakes another one")
		require.Contains(t, r.reports[1], "fails since "+began.Local().Format(time.DateTime)+": connection refused")
		r.forget()
		r.ok()
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		require.Len(t, r.sent, 41)
		require.Equal(t, []string{"1", "2", "3"}, r.sent[:3])
		require.Empty(t, r.reports[len(r.reports)-1], "it is well again")
		require.Empty(t, r.gaveUp)
	})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.start()
		r.answers(func(string) (webhook.Response, error) {
			return webhook.Response{Status: http.StatusTooManyRequests, RetryAfter: time.Hour}, nil
		})
		r.settle(1)
		r.sends("1")
		time.Sleep(59 * time.Minute)
		r.sends()
		r.ok()
		time.Sleep(time.Minute)
		r.sends("1")
	})
}

// One message that the receiver refuses for ever does not stop the others; it is tried each hour, for three days.
func TestOneMessageIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.start()
		r.answers(func(request string) (webhook.Response, error) {
			if request == "1" {
				return webhook.Response{Status: http.StatusInternalServerError}, nil
			}
			return webhook.Response{Status: http.StatusOK}, nil
		})
		r.settle(1, 2, 3)
		time.Sleep(10 * time.Minute)
		r.sends("1", "1", "1", "1", "1", "1", "2", "3")
		require.Contains(t, r.reports[len(r.reports)-1], "is refused 1 of the requests")
		r.stop()
		r.start() // the state holds it
		r.settle(4)
		r.sends("4")
		time.Sleep(time.Hour)
		r.sends("1")
		time.Sleep(72 * time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"1"}, r.gaveUp)
		require.Empty(t, r.reports[len(r.reports)-1])
		r.forget()
		time.Sleep(5 * time.Hour)
		r.sends()
	})
}

func TestSetAsideIsSentLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.start()
		r.status(http.StatusBadRequest)
		r.settle(1)
		time.Sleep(30 * time.Minute)
		r.forget()
		r.ok()
		time.Sleep(time.Hour)
		r.sends("1")
		require.Empty(t, r.reports[len(r.reports)-1])
	})
}

func TestTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.start()
		r.stop()
		r.settle(1)
		time.Sleep(48 * time.Hour)
		r.settle(2)
		time.Sleep(25 * time.Hour)
		r.start()
		r.sends("2")
		require.Equal(t, []string{"1"}, r.gaveUp)
	})
}

func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.start()
		r.status(http.StatusGone)
		r.settle(1, 2)
		time.Sleep(24 * time.Hour)
		r.settle(3)
		r.sends("1")
		require.Contains(t, r.reports[len(r.reports)-1], "410 Gone")
		r.ok()
		r.stop()
		r.start()
		r.sends("1", "2", "3")
	})
}

// A kill, or a power cut, may send again what was sent in the last second, and loses nothing.
func TestStateOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.start()
		r.settle(1)
		r.sends("1")
		before := r.state.bytes
		r.settle(2)
		r.sends("2")
		r.stop()
		r.state.bytes = before
		r.start()
		r.sends("2")
		r.stop()
		r.state.bytes = []byte("torn")
		r.start()
		r.sends("1", "2")
		require.Empty(t, r.gaveUp)
		r.stop()
		b, err := json.Marshal(map[string]int{"seq": 1000}) // of a home that was replaced by an older one
		require.NoError(t, err)
		r.state.bytes = b
		r.start()
		r.settle(3)
		r.sends("3")
	})
}

// Many messages cost few writes of the state.
func TestFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.start()
		r.stop()
		for n := range 1000 {
			r.log.add(event.Denied, "w", n+1)
		}
		r.state.saves = 0
		r.start()
		synctest.Wait()
		require.Len(t, r.sent, 1000)
		require.Less(t, r.state.saves, 5)
	})
}

// An entry is in the log before its record can be read. A record that was pruned is passed over.
func TestNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHookRig(t)
		r.start()
		r.hide("1", true)
		r.settle(1, 2)
		r.sends()
		r.hide("1", false)
		time.Sleep(time.Second)
		r.sends("1", "2")
		r.hide("3", true)
		r.settle(3, 4)
		time.Sleep(2 * time.Minute)
		r.sends("4")
	})
}
