package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
)

// Three stores in one process race for the lock of a home. flock belongs to an open
// file, so they compete as processes do. Exactly one wins each time.
// TestTwoDaemonsRace does the same with complete daemons.
func TestStoresRaceForOneHome(t *testing.T) {
	t.Parallel()
	const racers = 3
	races := 48
	if os.Getenv("PERMESSO_SOAK") != "" {
		races = 950
	}
	layout := ipc.Layout{Home: filepath.Join(t.TempDir(), "home")}
	require.NoError(t, layout.PrepareHome(ipc.OS()))
	require.NoError(t, layout.Prepare(ipc.OS(), "w"))
	for race := range races {
		var won atomic.Int32
		var release func() error
		errs := make([]error, racers)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				store := &ipc.Store{FS: ipc.OS(), Layout: layout}
				<-start
				unlock, err := store.Lease(context.Background())
				if errs[i] = err; err == nil {
					won.Add(1)
					release = unlock // the race detector reports a second winner
				}
			})
		}
		close(start)
		wg.Wait()
		require.EqualValues(t, 1, won.Load(), "race %d", race)
		for _, err := range errs {
			if err != nil {
				require.ErrorIs(t, err, store.ErrLocked)
			}
		}
		require.NoError(t, release())
	}
}

// TestTwoDaemonsRace starts two daemons for one home at a time. One serves; the
// other exits, or takes over if the first is killed. Each request runs once.
func TestTwoDaemonsRace(t *testing.T) {
	t.Parallel()
	const lanes = 5
	races := lanes
	if os.Getenv("PERMESSO_SOAK") != "" {
		races = 50
	}
	for lane := range lanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			r := newLockRig(t)
			for race := range races / lanes {
				r.race((lane+race)%2 == 1)
			}
		})
	}
}

type lockRig struct {
	*rig
	runs string
	ids  []string
}

func newLockRig(t *testing.T) *lockRig {
	r := &lockRig{rig: newRig(t, "default", "")}
	r.plain = true
	r.runs = filepath.Join(r.dir, "runs")
	file := r.script("count", `echo "$PERMESSO_REQUEST_ID" >> `+r.runs)
	config := fmt.Sprintf("[tools.say]\npublic_source = false\nsecret_data = false\npublic_sink = false\ndangerous_writes = true\nhandler = { kind = \"command\", argv = [%q] }\n[[rules]]\nmatch = { tool = \"say\" }\noutcome = \"allow\"\n", file)
	require.NoError(t, os.WriteFile(r.config, []byte(config), 0o600))
	code, _, stderr := r.run("", "init")
	require.Equal(t, console.ExitOK, code, stderr)
	return r
}

func (r *lockRig) race(kill bool) {
	r.t.Helper()
	id := r.ask(`{"tool_name":"say"}`)
	r.ids = append(r.ids, id)
	// Each daemon has its own log, because both start at the same time.
	one, two := r.startContender("one"), r.startContender("two")
	winner, loser := one, two
	deadline := time.Now().Add(testTimeout)
	for !winner.isServing() {
		winner, loser = loser, winner
		require.True(r.t, time.Now().Before(deadline), "no daemon serves:\n%s\n%s", one.logged(), two.logged())
		time.Sleep(time.Millisecond) // polls two logs
	}
	if kill {
		winner.kill()
		if !loser.awaitServing() {
			loser = r.startContender("three")
			loser.awaitLog(`"serving"`)
		}
		winner = loser
	} else {
		require.Error(r.t, loser.awaitExit())
		require.Equal(r.t, console.ExitLocked, loser.cmd.ProcessState.ExitCode())
		require.False(r.t, loser.isServing(), "exactly one serves")
	}
	st := r.response(id).Status
	require.Contains(r.t, []approval.Status{approval.StatusAutoApproved, approval.StatusInterrupted}, st)
	winner.stop()
	b, err := os.ReadFile(r.runs)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(r.t, err)
	}
	for _, id := range r.ids {
		require.LessOrEqual(r.t, strings.Count(string(b), id), 1, "ran twice")
	}
	if st == approval.StatusAutoApproved {
		require.Equal(r.t, 1, strings.Count(string(b), id))
	}
}

func (r *lockRig) startContender(name string) *daemonProcess {
	r.t.Helper()
	d := &daemonProcess{rig: r.rig, cmd: r.command("serve"), log: filepath.Join(r.dir, name+".log")}
	log, err := os.Create(d.log)
	require.NoError(r.t, err)
	d.cmd.Stderr = log
	require.NoError(r.t, d.cmd.Start())
	require.NoError(r.t, log.Close())
	d.wait = sync.OnceValue(d.cmd.Wait)
	r.t.Cleanup(d.kill)
	return d
}

func (d *daemonProcess) isServing() bool { return strings.Contains(d.logged(), `"serving"`) }

// awaitServing waits until the daemon serves or has exited.
func (d *daemonProcess) awaitServing() bool {
	d.t.Helper()
	done := make(chan struct{})
	go func() { _ = d.wait(); close(done) }()
	for !d.isServing() {
		select {
		case <-done:
			return d.isServing()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return true
}
