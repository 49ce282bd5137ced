package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// litterRoom is how much garbage may lie about before it is collected: with
	// little in use, collecting it at every few megabytes costs a fifth of all work.
	litterRoom = 16 << 20
	// litterShare is how much of what is in use may lie about, in per cent, where
	// that is more: a gate mostly waits, and memory that lies about costs more than
	// collecting it.
	litterShare = 50
)

// thrift has garbage collected by these two, as long as the program runs.
func thrift() {
	debug.SetGCPercent(litterShare)
	collector{litterShare}.await()
}

// collector is what holds until the next collection.
type collector struct{ percent int }

// await looks again after the next collection: that is when this object is found to
// be in nobody's use.
func (c collector) await() {
	type collected struct{ _ [16]byte } // as large as it takes to be an object of its own
	runtime.AddCleanup(&collected{}, func(c collector) {
		if p := litterPercent(inUse()); p != c.percent {
			c.percent = p
			debug.SetGCPercent(p)
		}
		c.await()
	}, c)
}

// inUse is what the last collection found in use, in bytes, as the runtime counts it
// when it sets itself the next goal.
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

// litterPercent is how much more than is in use may be taken before the next
// collection, in steps, so that little changes change nothing.
func litterPercent(inUse uint64) int {
	const step, most = 10, 1000
	p := uint64(most)
	if inUse > 0 {
		p = min(most, litterRoom*100/inUse)
	}
	return max(litterShare, int(p/step*step))
}
