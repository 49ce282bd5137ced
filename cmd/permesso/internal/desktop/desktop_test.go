package desktop_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/desktop"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/desktop/desktoptest"
)

// daemon is a daemon as the notifier sees it.
type daemon struct {
	mu      sync.Mutex
	at      int64
	waiting []approval.StoredPending
	down    bool
	changed chan struct{}
	opened  chan approval.Key
	errs    []string
}

func newDaemon() *daemon {
	return &daemon{at: 1, changed: make(chan struct{}), opened: make(chan approval.Key, 10)}
}

// set changes what waits: requests with these numbers.
func (d *daemon) set(numbers ...int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = nil
	for _, n := range numbers {
		id := fmt.Sprintf("%016x", n)
		d.waiting = append(d.waiting, approval.StoredPending{Pending: &approval.Pending{
			RequestID: id, ShortID: id[8:], SourceGroup: "personal", ToolName: "x_post", ToolSHA256: "5e", Target: "<b>x.com</b>",
			Verb: map[string]string{"en": "post"}, Summary: "hostile", ExpiresAt: time.Now().Add(time.Hour),
		}})
	}
	d.at++
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *daemon) Follow(ctx context.Context, after int64) ([]approval.StoredPending, int64, error) {
	for {
		d.mu.Lock()
		list, at, down, changed := d.waiting, d.at, d.down, d.changed
		d.mu.Unlock()
		switch {
		case down:
			return nil, 0, errors.New("the daemon ended")
		case at != after:
			return list, at, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func (d *daemon) Style() chat.Style { return chat.Style{} }

// start starts a notifier, and returns how it ends.
func (d *daemon) start(t *testing.T, bus string) (ended chan error, stop context.CancelFunc) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus)
	n := &desktop.Notifier{
		Dial: func(context.Context) (desktop.Source, error) { return d, nil },
		Open: func(_ context.Context, k approval.Key) error { d.opened <- k; return nil },
		Log: func(err error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.errs = append(d.errs, err.Error())
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(stop)
	return ended, stop
}

func await(t *testing.T, s *desktoptest.Desktop, ok func(all []desktoptest.Notice) bool) []desktoptest.Notice {
	t.Helper()
	require.Eventually(t, func() bool { return ok(s.Shown()) }, time.Minute, 5*time.Millisecond)
	return s.Shown()
}

// next waits for a value.
func next[T any](t *testing.T, from chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(time.Minute):
		require.Fail(t, "nothing came within a minute")
	}
	return value
}

func number(n int) func([]desktoptest.Notice) bool {
	return func(all []desktoptest.Notice) bool { return len(all) == n }
}

func TestNotifications(t *testing.T) {
	s, d := desktoptest.New(t, true), newDaemon()
	d.set(1)
	ended, stop := d.start(t, s.Address)
	shown := await(t, s, number(1))
	require.Equal(t, desktoptest.Notice{
		ID: 1, Title: "🔐 May I post?", Text: "x_post · &lt;b&gt;x.com&lt;/b&gt; · personal · 00000001",
		Actions: []string{"default", "Open"}, Urgency: 2,
	}, shown[0])

	d.set(1, 2)
	await(t, s, number(2))
	s.Signal(t, "ActionInvoked", uint32(99), "default") // of another program
	s.Signal(t, "ActionInvoked", uint32(2), "other")
	s.Signal(t, "NotificationClosed", uint32(1), uint32(2))
	s.Signal(t, "ActionInvoked", "2", "default")
	s.Signal(t, "ActionInvoked", uint32(2), "default")
	require.Equal(t, approval.Key{Workspace: "personal", ID: "0000000000000002"}, next(t, d.opened))
	require.Empty(t, d.opened)

	d.set(2)
	require.Equal(t, uint32(2), await(t, s, number(1))[0].ID, "what is settled is closed")
	d.set(1, 2, 3, 4, 5, 6, 7)
	more := await(t, s, func(all []desktoptest.Notice) bool { return len(all) == 6 && all[5].Text == "2 more requests wait" })[5]
	s.Signal(t, "ActionInvoked", more.ID, "default")
	require.Equal(t, approval.Key{}, <-d.opened, "the list")
	d.set(2, 5, 6, 7)
	await(t, s, func(all []desktoptest.Notice) bool { return len(all) == 4 && all[3].Text != more.Text })

	stop()
	require.NoError(t, next(t, ended))
	require.Empty(t, s.Shown(), "none stays behind")
	require.Empty(t, d.errs)
}

// The end waits for the ID of a notification that is being shown, and closes it.
func TestEndDuringACall(t *testing.T) {
	s, d := desktoptest.New(t, true), newDaemon()
	release := s.Hold()
	defer release()
	d.set(1)
	ended, stop := d.start(t, s.Address)
	await(t, s, number(1))
	stop()
	select {
	case err := <-ended:
		ended <- err
	case <-time.After(100 * time.Millisecond): // it waits for the answer
	}
	release()
	require.NoError(t, next(t, ended))
	require.Empty(t, s.Shown())
}

func TestDaemonEnds(t *testing.T) {
	s, d := desktoptest.New(t, false), newDaemon()
	d.set(1)
	d.start(t, s.Address)
	require.Equal(t, "x_post · <b>x.com</b> · personal · 00000001", await(t, s, number(1))[0].Text, "no markup")
	d.mu.Lock()
	d.down = true
	d.mu.Unlock()
	d.set(1)
	await(t, s, number(0))
	d.mu.Lock()
	d.down = false
	require.Equal(t, []string{"the daemon ended"}, d.errs)
	d.mu.Unlock()
	d.set(1)
	await(t, s, number(1))
}

func TestSessionEnds(t *testing.T) {
	d := newDaemon()
	ended, _ := d.start(t, "unix:path=/nonexistent/bus")
	require.ErrorIs(t, next(t, ended), desktop.ErrNoBus)
	s := desktoptest.New(t, false)
	d.set(1)
	ended, _ = d.start(t, s.Address)
	await(t, s, number(1))
	s.End()
	require.ErrorIs(t, next(t, ended), desktop.ErrNoBus)
}
