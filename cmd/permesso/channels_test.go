package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// channelFunc is a channel that is one function.
type channelFunc func(ctx context.Context) error

func (f channelFunc) Run(ctx context.Context) error { return f(ctx) }

// reaching runs channels of these kinds over cfg until the test ends.
func reaching(t *testing.T, cfg *config.Config, kinds ...kind) *channels {
	t.Helper()
	s := &server{instance: &instance{cfg: cfg}, health: &health{}}
	c := &channels{s: s, kinds: kinds, configChanged: make(chan struct{}, 1), backoff: time.Millisecond}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return c
}

func always(*config.Config) any { return true }

func within(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		require.FailNow(t, what)
	}
}

// A channel that fails, or panics, takes neither the gate nor the others with
// it, and is started again; status says so as long as it lasts.
func TestAChannelThatFailsIsStartedAgain(t *testing.T) {
	var lives atomic.Int32
	third, other := make(chan struct{}), make(chan struct{})
	c := reaching(t, config.Default(),
		kind{"shaky", always, func(*server, <-chan approval.Key) (channel, error) {
			return channelFunc(func(ctx context.Context) error {
				switch lives.Add(1) {
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
		kind{"other", always, func(*server, <-chan approval.Key) (channel, error) {
			return channelFunc(func(ctx context.Context) error { close(other); <-ctx.Done(); return nil }), nil
		}})
	within(t, "the other channel", other)
	within(t, "a third life", third)
	c.s.health.mu.Lock()
	defer c.s.health.mu.Unlock()
	require.Contains(t, c.s.health.issues["channel shaky"].What, "panicked")
	require.NotContains(t, c.s.health.issues, "channel other")
}

// What the configuration no longer names ends, and what changed is started anew.
func TestChannelsFollowTheConfiguration(t *testing.T) {
	began, ended := make(chan string, 10), make(chan struct{}, 10)
	cfg := config.Default()
	cfg.GateName = "one"
	c := reaching(t, cfg, kind{
		"named",
		func(cfg *config.Config) any {
			if cfg.GateName == "" {
				return nil
			}
			return cfg.GateName
		},
		func(s *server, _ <-chan approval.Key) (channel, error) {
			return channelFunc(func(ctx context.Context) error {
				began <- s.conf().GateName
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
		c.s.live.now.Store(settingsOf(next))
		c.reconfigured()
		within(t, "the end of the old one", ended)
		if name != "" {
			require.Equal(t, name, <-began)
		}
	}
	c.reconfigured()
	require.Empty(t, began)
}

func TestChannelsHearOfChanges(t *testing.T) {
	heard := make(chan approval.Key)
	c := reaching(t, config.Default(), kind{"ear", always, func(_ *server, changes <-chan approval.Key) (channel, error) {
		return channelFunc(func(ctx context.Context) error {
			for {
				select {
				case k := <-changes:
					select {
					case heard <- k:
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
	require.Eventually(t, func() bool { return c.running("ear") != nil }, patience, time.Millisecond)
	c.changed(k)
	require.Equal(t, k, <-heard)
	for range 1000 { // more than anybody reads: the gate never waits for a channel
		c.changed(k)
	}
}

// deaf is a channel that can be told what another one cannot tell people.
type deaf struct {
	channelFunc
	heard chan string
}

func (d deaf) Alert(ws, text string) { d.heard <- ws + " " + text }

// What one channel cannot tell people goes to the others.
func TestAlertsGoToTheOtherChannels(t *testing.T) {
	up, heard := make(chan struct{}, 2), make(chan string, 2)
	open := func(*server, <-chan approval.Key) (channel, error) {
		return deaf{func(ctx context.Context) error { up <- struct{}{}; <-ctx.Done(); return nil }, heard}, nil
	}
	c := reaching(t, config.Default(), kind{"one", always, open}, kind{"two", always, open})
	within(t, "the first", up)
	within(t, "the second", up)
	c.alert("one", "personal", "nobody is there")
	require.Equal(t, "personal nobody is there", <-heard)
	require.Empty(t, heard, "not to itself")
}
