package daemon

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

// notify sends a state to a service manager, by the protocol of sd_notify(3). A
// manager that does not listen is not an error.
func (s *server) notify(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		s.log.Debug().Err(err).Msg("notify service manager failed")
	}
}

func (s *server) notifyReady() {
	s.notify(sd.SdNotifyReady + "\nSTATUS=" + s.statusLine())
}

// notifyReloading must be followed by notifyReady, whether the reload succeeds or not.
func (s *server) notifyReloading() {
	s.notify(sd.SdNotifyReloading + "\n" + sd.SdNotifyMonotonicUsec())
}

// statusLine is the status line of systemctl status. It has no names from an agent.
func (s *server) statusLine() string {
	switch r := s.health.Current(); r.Status {
	case home.HealthPaused:
		return "paused: nothing runs until permesso resume"
	case home.HealthDegraded:
		return "degraded: " + hints.Plural(len(r.Issues), "issue") + ", see permesso status"
	}
	return fmt.Sprintf("serving %d workspaces", len(s.Current().Workspaces))
}

const (
	beatInterval  = 10 * time.Second
	watchdogIssue = "pulse" // name of the health issue of a daemon that hangs
)

// runWatchdog notifies the watchdog and refreshes the health report as long as a probe
// passes through the watcher's loop and the gate's scheduler. A ticker alone
// would continue in a process that hangs.
func (s *server) runWatchdog(ctx context.Context) {
	every, watchdog := beatInterval, false
	if limit, err := sd.SdWatchdogEnabled(false); err == nil && limit > 0 {
		every, watchdog = min(beatInterval, limit/2), true
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var memory trimmer
	for {
		err := s.alive(ctx, every)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.Error().Err(err).Msg("watchdog: gate is not making progress")
			s.health.Set(watchdogIssue, "gate is not making progress", "check for a hanging disk or network mount; otherwise restart the daemon")
		default:
			s.health.Clear(watchdogIssue)
			s.health.Refresh()
			if watchdog {
				s.notify(sd.SdNotifyWatchdog)
			}
		}
		if memory.due(readMetrics("/gc/heap/allocs:bytes")) {
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// trimmer finds out when a burst of work is over. The runtime would keep its memory.
type trimmer struct {
	last    uint64 // bytes that were allocated until the last beat
	trimmed uint64 // and until memory was last returned to the system
}

// due takes the bytes allocated since the start of the process, at every beat. It is true
// once after each burst: nothing much was allocated since the last beat, but before.
func (t *trimmer) due(allocated uint64) bool {
	const burst = 16 << 20
	quiet := allocated-t.last < burst/8
	t.last = allocated
	if !quiet || allocated-t.trimmed < burst {
		return false
	}
	t.trimmed = allocated
	return true
}

func (s *server) alive(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := s.watcher.Alive(ctx); err != nil {
		return err
	}
	return s.gate.Alive(ctx)
}

const (
	// minHeap is how much garbage may accumulate before a collection: with a
	// small heap, a collection at every few megabytes costs a fifth of all work.
	minHeap = 32 << 20
	// gcPercent is the garbage in percent of the live heap, where that is more:
	// the daemon is mostly idle, and idle memory costs more than collections.
	minGCPercent = 50
)

// tuneGC applies these two limits as long as the process runs.
func tuneGC() {
	debug.SetGCPercent(minGCPercent)
	collector{minGCPercent}.await()
}

// collector is the setting until the next collection.
type collector struct{ percent int }

// await runs after the next collection, when its object is collected, and starts
// over.
func (c collector) await() {
	type collected struct{ _ [16]byte } // large enough not to be batched with others
	runtime.AddCleanup(&collected{}, func(c collector) {
		if p := gcPercent(inUse()); p != c.percent {
			c.percent = p
			debug.SetGCPercent(p)
		}
		c.await()
	}, c)
}

// inUse is the live memory after the last collection in bytes, as the runtime
// counts it for its next goal.
func inUse() uint64 {
	return readMetrics("/gc/heap/live:bytes", "/gc/scan/stack:bytes", "/gc/scan/globals:bytes")
}

// readMetrics returns the sum of these metrics of the runtime.
func readMetrics(names ...string) (bytes uint64) {
	found := make([]metrics.Sample, len(names))
	for i, name := range names {
		found[i].Name = name
	}
	metrics.Read(found)
	for _, f := range found {
		if f.Value.Kind() == metrics.KindUint64 {
			bytes += f.Value.Uint64()
		}
	}
	return bytes
}

// gcPercent is the GC percentage for a live heap, in steps, so that small
// changes have no effect.
func gcPercent(inUse uint64) int {
	const step, most = 10, 1000
	p := uint64(most)
	if inUse > 0 {
		p = min(most, minHeap*100/inUse)
	}
	return max(minGCPercent, int(p/step*step))
}

// checkFileSystem refuses a HOME where syncs may do nothing.
func (s *server) checkFileSystem() error {
	m, err := ipc.MountOfNew(s.Layout.Home)
	if err != nil {
		return nil //nolint:nilerr // not known on this system
	}
	err = m.NotLocal()
	switch {
	case err == nil:
		return nil
	case !s.app.UnsafeHome:
		return console.Wrap(console.ExitError, err, console.Hints(console.HintFor(err), "or accept that: permesso serve --unsafe-home"))
	}
	s.log.Warn().Err(err).EmbedObject(console.Advice{Err: err}).Msg("home is not on a local disk")
	return nil
}
