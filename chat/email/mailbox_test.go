package email

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

const patience = time.Minute

// memory is a State that survives a Run, as a file would.
type memory struct {
	mu    sync.Mutex
	data  []byte
	saves int
	fail  error
}

func (m *memory) Load() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data, nil
}

func (m *memory) Save(data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.data = append([]byte(nil), data...)
	m.saves++
	return nil
}

func (m *memory) refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// saved is what was saved last, and how often.
func (m *memory) saved() (string, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.data), m.saves
}

// running is a Box that runs, and what it handed out and reported.
type running struct {
	t       *testing.T
	cancel  context.CancelFunc
	done    chan error
	mu      sync.Mutex
	happens chan struct{} // something was handed out or reported; holds one
	taken   []Incoming
	reports []error
	refuse  func(Incoming) error
}

// run starts a box; refuse may be nil. The caller sets the box's Report to report.
func run(t *testing.T, refuse func(Incoming) error, start func(r *running) Mailbox) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, cancel: cancel, done: make(chan error, 1), happens: make(chan struct{}, 1), refuse: refuse}
	box := start(r)
	go func() { r.done <- box.Run(ctx, r.take) }()
	t.Cleanup(r.stop)
	return r
}

func (r *running) take(_ context.Context, m Incoming) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.happened()
	if r.refuse != nil {
		if err := r.refuse(m); err != nil {
			return err
		}
	}
	r.taken = append(r.taken, m)
	return nil
}

func (r *running) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.happened()
	r.reports = append(r.reports, err)
}

func (r *running) happened() {
	select {
	case r.happens <- struct{}{}:
	default:
	}
}

// stop ends the run and waits for that.
func (r *running) stop() {
	r.cancel()
	select {
	case err := <-r.done:
		r.done <- err
	case <-time.After(patience):
		require.Fail(r.t, "the box does not end")
	}
}

// until waits for a state of things, told by events.
func (r *running) until(what string, ready func() bool) {
	r.t.Helper()
	late := time.After(patience)
	for {
		r.mu.Lock()
		ok := ready()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.happens:
		case <-late:
			require.Fail(r.t, "waited in vain: "+what, "taken: %v, reports: %v", r.subjectsLocked(), r.reports)
		}
	}
}

// healthy waits for a report that all is well, from now on.
func (r *running) healthy() {
	r.t.Helper()
	r.mu.Lock()
	n := len(r.reports)
	r.mu.Unlock()
	r.until("a report that all is well", func() bool { return len(r.reports) > n && r.reports[len(r.reports)-1] == nil })
}

// ready waits for the first report that all is well.
func (r *running) ready() {
	r.t.Helper()
	r.until("a first report that all is well", func() bool {
		for _, err := range r.reports {
			if err == nil {
				return true
			}
		}
		return false
	})
}

// awaits n mails and returns their subjects.
func (r *running) subjects(n int) []string {
	r.t.Helper()
	r.until(fmt.Sprintf("%d mails", n), func() bool { return len(r.taken) >= n })
	return r.subjectsLocked()
}

func (r *running) subjectsLocked() []string {
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

func (r *running) reported(part string) func() bool {
	return func() bool {
		for _, err := range r.reports {
			if err != nil && strings.Contains(err.Error(), part) {
				return true
			}
		}
		return false
	}
}

func TestHandSurvivesAPanic(t *testing.T) {
	err := hand(t.Context(), func(context.Context, Incoming) error { panic("a nasty mail") }, Incoming{Name: "imap 1/2"})
	require.EqualError(t, err, "take imap 1/2: panic: a nasty mail")
	cause := errors.New("no room")
	require.ErrorIs(t, hand(t.Context(), func(context.Context, Incoming) error { return cause }, Incoming{}), cause)
}

func TestRetry(t *testing.T) {
	now := time.Unix(0, 0)
	var r retry
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		r = r.again(now, time.Second, 10*time.Second)
		require.InDelta(t, want, r.at.Sub(now).Seconds(), 0.21*float64(want))
	}
	r.n = 1 << 20
	require.LessOrEqual(t, r.again(now, time.Second, time.Minute).at.Sub(now), 72*time.Second, "no overflow")
}

func TestHeaderOf(t *testing.T) {
	tests := []struct {
		why, raw string
		want     int // bytes
	}{
		{"without the empty line", "A: b\r\nC: d\r\n\r\nbody\r\n", 12},
		{"no body at all", "A: b\r\n", 6},
		{"no header", "\r\n\r\nbody", 2},
		{"whole lines only", "A: b\r\n" + strings.Repeat("x", maxHeader), 6},
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
