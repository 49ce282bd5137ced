package mailbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testTimeout = time.Minute

// memoryState is a State in memory that survives a Run.
type memoryState struct {
	mu    sync.Mutex
	data  []byte
	saves int
	fail  error
}

func (m *memoryState) Load() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data, nil
}

func (m *memoryState) Save(data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.data = append([]byte(nil), data...)
	m.saves++
	return nil
}

func (m *memoryState) refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// saved returns the last saved data and the number of saves.
func (m *memoryState) saved() (string, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.data), m.saves
}

// mailboxRun is a running Mailbox, with what it passed on and reported.
type mailboxRun struct {
	t       *testing.T
	cancel  context.CancelFunc
	done    chan error
	mu      sync.Mutex
	changed chan struct{} // an email was passed on or an error reported; capacity 1
	taken   []Incoming
	reports []error
	refuse  func(Incoming) error
}

// run starts a mailbox; refuse may be nil. The caller sets its Report to report.
func run(t *testing.T, refuse func(Incoming) error, start func(r *mailboxRun) Mailbox) *mailboxRun {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &mailboxRun{t: t, cancel: cancel, done: make(chan error, 1), changed: make(chan struct{}, 1), refuse: refuse}
	box := start(r)
	go func() { r.done <- box.Run(ctx, r.take) }()
	t.Cleanup(r.stop)
	return r
}

func (r *mailboxRun) take(_ context.Context, m Incoming) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.signal()
	if r.refuse != nil {
		if err := r.refuse(m); err != nil {
			return err
		}
	}
	r.taken = append(r.taken, m)
	return nil
}

func (r *mailboxRun) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.signal()
	r.reports = append(r.reports, err)
}

func (r *mailboxRun) signal() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// stop ends the run and waits for it.
func (r *mailboxRun) stop() {
	r.cancel()
	select {
	case err := <-r.done:
		r.done <- err
	case <-time.After(testTimeout):
		require.Fail(r.t, "the mailbox does not end")
	}
}

// waitUntil waits for a condition, checked at every event.
func (r *mailboxRun) waitUntil(what string, ready func() bool) {
	r.t.Helper()
	late := time.After(testTimeout)
	for {
		r.mu.Lock()
		ok := ready()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case <-late:
			require.Fail(r.t, "timeout waiting for "+what, "taken: %v, reports: %v", r.subjectsLocked(), r.reports)
		}
	}
}

// healthy waits for the next report without an error.
func (r *mailboxRun) healthy() {
	r.t.Helper()
	r.mu.Lock()
	n := len(r.reports)
	r.mu.Unlock()
	r.waitUntil("a report without an error", func() bool { return len(r.reports) > n && r.reports[len(r.reports)-1] == nil })
}

// ready waits for the first report without an error.
func (r *mailboxRun) ready() {
	r.t.Helper()
	r.waitUntil("a first report without an error", func() bool {
		for _, err := range r.reports {
			if err == nil {
				return true
			}
		}
		return false
	})
}

// subjects waits for n emails and returns their subjects.
func (r *mailboxRun) subjects(n int) []string {
	r.t.Helper()
	r.waitUntil(fmt.Sprintf("%d emails", n), func() bool { return len(r.taken) >= n })
	return r.subjectsLocked()
}

func (r *mailboxRun) subjectsLocked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, m := range r.taken {
		all = append(all, subjectOf(m))
	}
	return all
}

func subjectOf(m Incoming) string {
	for line := range strings.Lines(string(m.Raw)) {
		if s, ok := strings.CutPrefix(line, "Subject: "); ok {
			return strings.TrimSpace(s)
		}
	}
	return ""
}

func (r *mailboxRun) reported(part string) func() bool {
	return func() bool {
		for _, err := range r.reports {
			if err != nil && strings.Contains(err.Error(), part) {
				return true
			}
		}
		return false
	}
}

func TestPanicInTakeIsAnError(t *testing.T) {
	err := callTake(t.Context(), func(context.Context, Incoming) error { panic("a bad email") }, Incoming{Name: "imap 1/2"})
	require.EqualError(t, err, "take imap 1/2: panic: a bad email")
	cause := errors.New("no space")
	require.ErrorIs(t, callTake(t.Context(), func(context.Context, Incoming) error { return cause }, Incoming{}), cause)
}

func TestRetry(t *testing.T) {
	now := time.Unix(0, 0)
	var r Retry
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		r = r.Next(now, time.Second, 10*time.Second)
		require.InDelta(t, want, r.At.Sub(now).Seconds(), 0.21*float64(want))
	}
	r.N = 1 << 20
	require.LessOrEqual(t, r.Next(now, time.Second, time.Minute).At.Sub(now), 72*time.Second, "no overflow")
}

func TestHeaderOf(t *testing.T) {
	tests := []struct {
		why, raw string
		want     int // bytes
	}{
		{"without the empty line", "A: b\r\nC: d\r\n\r\nbody\r\n", 12},
		{"no body", "A: b\r\n", 6},
		{"no header", "\r\n\r\nbody", 2},
		{"complete lines only", "A: b\r\n" + strings.Repeat("x", maxHeader), 6},
		{"one line, far too long", strings.Repeat("x", maxHeader+1), 0},
		{"nothing", "", 0},
	}
	for _, tt := range tests {
		require.Len(t, headerOf([]byte(tt.raw)), tt.want, tt.why)
	}
}

func TestMessageID(t *testing.T) {
	tests := []struct{ why, header, want string }{
		{"plain", "From: a\r\nMessage-ID: <1@x>\r\nTo: b\r\n", "<1@x>"},
		{"any case, folded", "message-id :\r\n\t<1@x>\r\n  \r\nTo: b\r\n", "<1@x>"},
		{"the first of two", "Message-ID: <1@x>\r\nMessage-ID: <2@x>\r\n", "<1@x>"},
		{"none", "From: a\r\nX-Message-ID: <1@x>\r\n\r\nMessage-ID: <2@x>\r\n", ""},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, messageID([]byte(tt.header)), tt.why)
	}
}
