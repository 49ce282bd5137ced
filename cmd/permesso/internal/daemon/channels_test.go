package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// awaitTimeout limits each wait for an expected event.
const awaitTimeout = time.Minute

// channelFunc returns a channel that only runs.
func channelFunc(run func(ctx context.Context) error) channel { return channel{run: run} }

// runChannels runs channels of these kinds with cfg until the test ends.
func runChannels(t *testing.T, cfg *config.Config, kinds ...kind) *channels {
	t.Helper()
	s := &server{Home: &home.Home{Config: cfg}, health: &home.Health{}}
	c := &channels{s: s, kinds: kinds, configChanged: make(chan struct{}, 1), backoff: time.Millisecond}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return c
}

func alwaysEnabled(*config.Config) any { return true }

func awaitClosed(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(awaitTimeout):
		require.FailNow(t, what)
	}
}

// What a channel only notes is in the status, and does not degrade it.
func TestNoteOfAChannel(t *testing.T) {
	s := &server{Home: &home.Home{Config: config.Default()}, health: &home.Health{}}
	c := &channelEnv{name: "email", s: s}
	c.reportNote("an email was not understood", "")
	require.Equal(t, home.HealthOK, s.health.Current().Status)
	require.Len(t, s.health.Current().Notes, 1)
	c.reportIssue("cannot send", "")
	require.Equal(t, home.HealthDegraded, s.health.Current().Status)
	c.reportIssue("", "")
	require.Len(t, s.health.Current().Notes, 1)
	c.reportNote("", "")
	require.Empty(t, s.health.Current().Notes)
}

// A channel that fails or panics is restarted. The daemon and the other channels
// keep running, and the status reports the channel.
func TestFailedChannelIsRestarted(t *testing.T) {
	var starts atomic.Int32
	third, other := make(chan struct{}), make(chan struct{})
	c := runChannels(t, config.Default(),
		kind{"shaky", alwaysEnabled, func(*server, <-chan approval.Key) (channel, error) {
			return channelFunc(func(ctx context.Context) error {
				switch starts.Add(1) {
				case 1:
					return errors.New("the network is down")
				case 2:
					panic("a bug")
				}
				close(third)
				<-ctx.Done()
				return nil
			}), nil
		}},
		kind{"other", alwaysEnabled, func(*server, <-chan approval.Key) (channel, error) {
			return channelFunc(func(ctx context.Context) error { close(other); <-ctx.Done(); return nil }), nil
		}})
	awaitClosed(t, "the other channel", other)
	awaitClosed(t, "a third start", third)
	issues := c.s.health.Current().Issues
	require.Len(t, issues, 1, "only of the channel that panicked")
	require.Contains(t, issues[0].What, "panicked")
}

// A channel that is removed from the configuration stops. A changed one restarts.
func TestChannelsFollowTheConfiguration(t *testing.T) {
	began, ended := make(chan string, 10), make(chan struct{}, 10)
	cfg := config.Default()
	cfg.GateName = "one"
	c := runChannels(t, cfg, kind{
		"named",
		func(cfg *config.Config) any {
			if cfg.GateName == "" {
				return nil
			}
			return cfg.GateName
		},
		func(s *server, _ <-chan approval.Key) (channel, error) {
			return channelFunc(func(ctx context.Context) error {
				began <- s.Current().GateName
				<-ctx.Done()
				ended <- struct{}{}
				return nil
			}), nil
		},
	})
	require.Equal(t, "one", <-began)
	for _, name := range []string{"two", ""} {
		next := config.Default()
		next.GateName = name
		c.s.Live.Set(home.SettingsOf(next))
		hint(c.configChanged)
		awaitClosed(t, "the old channel stops", ended)
		if name != "" {
			require.Equal(t, name, <-began)
		}
	}
	hint(c.configChanged)
	require.Empty(t, began)
}

// Run returns only after its channels have ended: they use the daemon's parts.
func TestChannelsEndBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, done := make(chan struct{}), make(chan struct{})
		c := &channels{s: &server{Home: &home.Home{Config: config.Default()}, health: &home.Health{}}, kinds: []kind{
			{"slow", alwaysEnabled, func(*server, <-chan approval.Key) (channel, error) {
				return channelFunc(func(ctx context.Context) error { <-ctx.Done(); <-release; return nil }), nil
			}},
		}}
		ctx, stop := context.WithCancel(t.Context())
		go func() { defer close(done); c.Run(ctx) }()
		synctest.Wait()
		stop()
		synctest.Wait()
		select {
		case <-done:
			require.Fail(t, "a channel is still running")
		default:
		}
		close(release)
		<-done
	})
}

func TestChannelsReceiveChanges(t *testing.T) {
	received := make(chan approval.Key)
	c := runChannels(t, config.Default(), kind{"listener", alwaysEnabled, func(_ *server, changes <-chan approval.Key) (channel, error) {
		return channelFunc(func(ctx context.Context) error {
			for {
				select {
				case k := <-changes:
					select {
					case received <- k:
					case <-ctx.Done():
						return nil
					}
				case <-ctx.Done():
					return nil
				}
			}
		}), nil
	}})
	k := approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"}
	require.Eventually(t, func() bool { return c.running("listener") != nil }, awaitTimeout, time.Millisecond)
	c.changed(k)
	require.Equal(t, k, <-received)
	for range 1000 { // more than the channel reads: the gate never waits for a channel
		c.changed(k)
	}
}

// An alert about one channel goes to the others.
func TestAlertsGoToTheOtherChannels(t *testing.T) {
	up, alerts := make(chan struct{}, 2), make(chan string, 2)
	open := func(*server, <-chan approval.Key) (channel, error) {
		return channel{
			run:   func(ctx context.Context) error { up <- struct{}{}; <-ctx.Done(); return nil },
			alert: func(ws, text string) { alerts <- ws + " " + text },
		}, nil
	}
	c := runChannels(t, config.Default(), kind{"one", alwaysEnabled, open}, kind{"two", alwaysEnabled, open})
	awaitClosed(t, "the first", up)
	awaitClosed(t, "the second", up)
	c.alert("one", "personal", "no connection")
	require.Equal(t, "personal no connection", <-alerts)
	require.Empty(t, alerts, "not to the failed channel")
}

// Requests that a limit refuses before a channel is up, or while it is down, are told once it runs.
func TestRefusalsBeforeAChannelRuns(t *testing.T) {
	counted, fail, opened := make(chan string, 10), make(chan struct{}), make(chan struct{})
	open := func(*server, <-chan approval.Key) (channel, error) {
		<-opened
		return channel{
			run: func(ctx context.Context) error {
				select {
				case <-fail:
					return errors.New("the network is down")
				case <-ctx.Done():
					return nil
				}
			},
			limited: func(ws string) { counted <- ws },
		}, nil
	}
	next := func() string {
		select {
		case ws := <-counted:
			return ws
		case <-time.After(awaitTimeout):
			return "not told"
		}
	}
	c := runChannels(t, config.Default(), kind{"phone", alwaysEnabled, open})
	c.limited("personal")
	close(opened)
	require.Equal(t, "personal", next())
	c.limited("office")
	require.Equal(t, "office", next())
	opened = make(chan struct{})
	fail <- struct{}{}
	require.Eventually(t, func() bool { return c.current("phone").run == nil }, awaitTimeout, time.Millisecond)
	c.limited("office")
	require.Empty(t, counted, "it is down")
	close(opened)
	require.Equal(t, "office", next())
	require.Empty(t, counted, "each once")
}
