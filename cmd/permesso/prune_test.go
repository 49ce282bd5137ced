package main

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
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// pruneHouse is a served home with one settled request, and the daemon's pruner
// with a clock that the test moves.
type pruneHouse struct {
	*pruner
	server *server
	clock  time.Time
	waits  []time.Duration
	stop   int // after so many waits
	log    strings.Builder
}

var settledKey = approval.Key{Workspace: "default", ID: "00000000000000aa"}

func newPruneHouse(t *testing.T) *pruneHouse {
	t.Helper()
	h := &instance{cfg: config.Default(), layout: ipc.Layout{Home: filepath.Join(t.TempDir(), "home")}, fs: ipc.OS()}
	h.store = &ipc.Store{FS: h.fs, Layout: h.layout}
	p := &pruneHouse{clock: time.Now(), stop: 1000}
	p.server = &server{instance: h, app: &app{}, rounds: map[string]int{}, changes: make(chan approval.Key, 1), log: zerolog.New(&p.log)}
	require.NoError(t, p.server.open())
	t.Cleanup(func() { require.NoError(t, p.server.close()) })
	require.NoError(t, plantSettled(h, settledKey, p.clock))
	now := func() time.Time { return p.clock }
	p.server.gate.Now = now
	p.pruner = &pruner{
		gate: p.server.gate, now: now, log: p.server.log,
		note:   p.server.audit.Note,
		steady: func(now time.Time) error { return audit.Steady(h.fs, h.layout.Audit(), now) },
		wait: func(_ context.Context, d time.Duration) error {
			if p.waits = append(p.waits, d); len(p.waits) > p.stop {
				return errors.New("enough")
			}
			return nil
		},
	}
	p.live(0)
	return p
}

// live lets time pass as it does where something is logged every day.
func (p *pruneHouse) live(days int) {
	for range days {
		p.clock = p.clock.Add(24 * time.Hour)
		p.tick()
	}
	if days == 0 {
		p.tick()
	}
}

func (p *pruneHouse) tick() {
	_ = p.server.audit.Append(approval.Entry{Time: p.clock.UTC(), Event: approval.EventStarted})
}

func (p *pruneHouse) files() string {
	var left []string
	for name, path := range map[string]string{
		"C": filepath.Join(p.server.layout.Records("default"), settledKey.ID+".json"),
		"S": filepath.Join(p.server.layout.Responses("default"), settledKey.ID+".json"),
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

func TestTheDaemonPrunes(t *testing.T) {
	p := newPruneHouse(t)
	p.round(t.Context())
	require.Equal(t, "C S", p.files())
	p.live(8)
	p.round(t.Context())
	require.Equal(t, "C", p.files())
	p.live(83)
	p.round(t.Context())
	require.Empty(t, p.files())
	require.Contains(t, p.log.String(), `"message":"pruned"`)
	require.NotContains(t, p.log.String(), "the clock may be wrong")
	for _, d := range p.waits {
		require.Equal(t, batchDelay, d, "a pause before every batch")
	}
}

func TestTheDaemonPrunesEveryHour(t *testing.T) {
	p := newPruneHouse(t)
	p.stop = 3
	p.run(t.Context())
	require.Equal(t, []time.Duration{firstPrune, everyPrune, everyPrune, everyPrune}, p.waits)
}

// A clock set forward by years: nothing goes for a day, and the log says why.
func TestAClockThatLeapsIsNotBelievedForADay(t *testing.T) {
	p := newPruneHouse(t)
	p.live(1)
	p.clock = p.clock.AddDate(3, 0, 0)
	for range 23 {
		p.round(t.Context())
		require.Equal(t, "C S", p.files())
		p.clock = p.clock.Add(time.Hour)
	}
	require.Equal(t, 1, strings.Count(p.log.String(), "the clock may be wrong"), "said once")
	require.NoError(t, p.server.audit.Sync())
	told := 0
	require.NoError(t, audit.Entries(p.server.fs, p.server.layout.Audit(), func(e approval.Entry) error {
		if e.Event == approval.EventPruned {
			told++
			require.Contains(t, e.Reason, "the clock leapt from ")
			require.Contains(t, e.Detail, "on hold")
		}
		return nil
	}))
	require.Equal(t, 1, told)

	p.clock = p.clock.Add(2 * time.Hour)
	p.round(t.Context())
	require.Empty(t, p.files(), "a day later nobody has objected")
}

// A clock that was set forward and is set back again has cost nothing.
func TestAClockThatIsSetBackCostsNothing(t *testing.T) {
	p := newPruneHouse(t)
	right := p.clock
	p.clock = p.clock.AddDate(3, 0, 0)
	p.round(t.Context())
	p.clock = right.Add(time.Hour)
	p.tick()
	for range 30 {
		p.clock = p.clock.Add(time.Hour)
		p.round(t.Context())
	}
	require.Equal(t, "C S", p.files())
}

func TestNobodyIsWarnedWhereNothingIsOld(t *testing.T) {
	p := newPruneHouse(t)
	p.clock = p.clock.Add(-time.Hour)
	require.NoError(t, os.Remove(filepath.Join(p.server.layout.Records("default"), settledKey.ID+".json")))
	p.clock = p.clock.AddDate(0, 0, 20)
	p.round(t.Context())
	require.NotContains(t, p.log.String(), "the clock may be wrong")
}

func TestADamagedLogHoldsPruning(t *testing.T) {
	p := newPruneHouse(t)
	p.live(100)
	require.NoError(t, os.WriteFile(filepath.Join(p.server.layout.Audit(), "log.jsonl"), []byte("x\n"), 0o600))
	p.round(t.Context())
	require.Equal(t, "C S", p.files())
	require.Contains(t, p.log.String(), "compare clock with the audit log failed")
}

func TestProgressEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	step, done := (&app{}).progress(ctx, "pruning")
	require.NoError(t, step())
	cancel()
	require.ErrorIs(t, step(), context.Canceled)
	done()
}
