package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/hometest"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// pruneRig is an open home with one settled request, and a pruner with a clock that
// the test moves.
type pruneRig struct {
	*pruner
	server *server
	clock  time.Time
	waits  []time.Duration
	stop   int // number of waits after which run stops
	log    strings.Builder
}

var settledKey = approval.Key{Workspace: "default", ID: "00000000000000aa"}

func newPruneRig(t *testing.T) *pruneRig {
	t.Helper()
	h := &home.Home{Config: config.Default(), Layout: ipc.Layout{Home: filepath.Join(t.TempDir(), "home")}, FS: ipc.OS()}
	h.Store = &ipc.Store{FS: h.FS, Layout: h.Layout}
	p := &pruneRig{clock: time.Now(), stop: 1000}
	p.server = &server{Home: h, app: &console.Console{}, rounds: map[string]int{}, changes: make(chan approval.Key, 1), log: zerolog.New(&p.log)}
	require.NoError(t, p.server.open(t.Context()))
	t.Cleanup(func() { require.NoError(t, p.server.close()) })
	require.NoError(t, hometest.PlantSettled(h, settledKey, p.clock))
	now := func() time.Time { return p.clock }
	p.server.gate.Now = now
	p.pruner = &pruner{
		gate: p.server.gate, now: now, log: p.server.log,
		note:   p.server.audit.Note,
		steady: func(now time.Time) error { return audit.CheckClock(h.FS, h.Layout.Audit(), now) },
		wait: func(_ context.Context, d time.Duration) error {
			if p.waits = append(p.waits, d); len(p.waits) > p.stop {
				return errors.New("enough")
			}
			return nil
		},
	}
	p.passDays(0)
	return p
}

// passDays moves the clock by days, with one log entry a day.
func (p *pruneRig) passDays(days int) {
	for range days {
		p.clock = p.clock.Add(24 * time.Hour)
		p.logStart()
	}
	if days == 0 {
		p.logStart()
	}
}

func (p *pruneRig) logStart() {
	_ = p.server.audit.Append(event.Entry{Time: p.clock.UTC(), Event: event.Started})
}

func (p *pruneRig) files() string {
	var left []string
	for name, path := range map[string]string{
		"C": filepath.Join(p.server.Layout.Records("default"), settledKey.ID+".json"),
		"S": filepath.Join(p.server.Layout.Responses("default"), settledKey.ID+".json"),
	} {
		if _, err := os.Stat(path); err == nil {
			left = append(left, name)
		}
	}
	if len(left) == 2 {
		return "C S"
	}
	return strings.Join(left, "")
}

func TestDaemonPrunes(t *testing.T) {
	p := newPruneRig(t)
	p.round(t.Context())
	require.Equal(t, "C S", p.files())
	p.passDays(8)
	p.round(t.Context())
	require.Equal(t, "C", p.files())
	p.passDays(83)
	p.round(t.Context())
	require.Empty(t, p.files())
	require.Contains(t, p.log.String(), `"message":"pruned"`)
	require.NotContains(t, p.log.String(), "the clock may be wrong")
	for _, d := range p.waits {
		require.Equal(t, batchDelay, d, "a delay before every batch")
	}
}

func TestDaemonPrunesEveryHour(t *testing.T) {
	p := newPruneRig(t)
	p.stop = 3
	p.run(t.Context())
	require.Equal(t, []time.Duration{firstPrune, everyPrune, everyPrune, everyPrune}, p.waits)
}

// If the clock jumps forward by years, pruning waits a day and logs the reason.
func TestPruningWaitsADayAfterAClockJump(t *testing.T) {
	p := newPruneRig(t)
	p.passDays(1)
	p.clock = p.clock.AddDate(3, 0, 0)
	for range 23 {
		p.round(t.Context())
		require.Equal(t, "C S", p.files())
		p.clock = p.clock.Add(time.Hour)
	}
	require.Equal(t, 1, strings.Count(p.log.String(), "the clock may be wrong"), "logged once")
	require.NoError(t, p.server.audit.Sync())
	entries := 0
	require.NoError(t, audit.Entries(p.server.FS, p.server.Layout.Audit(), func(e event.Entry) error {
		if e.Event == event.Pruned {
			entries++
			require.Contains(t, e.Reason, "the clock jumped from ")
			require.Contains(t, e.Detail, "on hold")
		}
		return nil
	}))
	require.Equal(t, 1, entries)

	p.clock = p.clock.Add(2 * time.Hour)
	p.round(t.Context())
	require.Empty(t, p.files(), "a day later it prunes")
}

// A clock that was set forward and back again prunes nothing.
func TestClockSetBackPrunesNothing(t *testing.T) {
	p := newPruneRig(t)
	right := p.clock
	p.clock = p.clock.AddDate(3, 0, 0)
	p.round(t.Context())
	p.clock = right.Add(time.Hour)
	p.logStart()
	for range 30 {
		p.clock = p.clock.Add(time.Hour)
		p.round(t.Context())
	}
	require.Equal(t, "C S", p.files())
}

func TestClockJumpWithoutOldRecordsDoesNotWarn(t *testing.T) {
	p := newPruneRig(t)
	p.clock = p.clock.Add(-time.Hour)
	require.NoError(t, os.Remove(filepath.Join(p.server.Layout.Records("default"), settledKey.ID+".json")))
	p.clock = p.clock.AddDate(0, 0, 20)
	p.round(t.Context())
	require.NotContains(t, p.log.String(), "the clock may be wrong")
}

func TestDamagedLogStopsPruning(t *testing.T) {
	p := newPruneRig(t)
	p.passDays(100)
	require.NoError(t, os.WriteFile(filepath.Join(p.server.Layout.Audit(), "log.jsonl"), []byte("x\n"), 0o600))
	p.round(t.Context())
	require.Equal(t, "C S", p.files())
	require.Contains(t, p.log.String(), "compare clock with the audit log failed")
}
