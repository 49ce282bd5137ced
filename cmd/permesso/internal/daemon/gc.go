package daemon

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// minHeap is how much garbage may accumulate before a collection: with a
	// small heap, a collection at every few megabytes costs a fifth of all work.
	minHeap = 16 << 20
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
func inUse() (bytes uint64) {
	found := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
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
