package crashfs

import (
	"fmt"
	"slices"
)

// Survive selects what of the unsynced state survives a power cut.
type Survive uint64

// The fixed ways. [Seeded] has the others.
const (
	// OnlySynced leaves the synced state: new names vanish, removed ones come back, files
	// have the data of their last fsync or none.
	OnlySynced Survive = iota
	// Everything leaves the visible state.
	Everything
	// NamesNotData leaves every name, with the data of the last fsync or none.
	NamesNotData
	// DataNotNames leaves all data, behind the names of the last SyncDir.
	DataNotNames
	// Torn leaves every name, and the first half of the unsynced part of a file. After
	// the tear the synced data remains.
	Torn
	// Zeroed leaves every name and every length; unsynced parts read as zeros, or as the
	// synced data where there was some.
	Zeroed
	fixedWays

	seeded Survive = 1 << 63
)

// Seeded leaves an arbitrary part, the same one for the same number: each change of a
// folder survives or not by itself. Of each file's unsynced data it leaves all, nothing,
// a torn part or zeros.
func Seeded(n uint64) Survive { return seeded | Survive(n) }

// Ways returns the fixed ways, in order.
func Ways() []Survive {
	ways := make([]Survive, fixedWays)
	for i := range ways {
		ways[i] = Survive(i)
	}
	return ways
}

// String names the way, for reports.
func (v Survive) String() string {
	names := [...]string{"only synced", "everything", "names, not data", "data, not names", "torn", "zeroed"}
	switch {
	case v&seeded != 0:
		return fmt.Sprintf("seeded %d", uint64(v&^seeded))
	case v < fixedWays:
		return names[v]
	}
	return fmt.Sprintf("survive(%d)", uint64(v))
}

// Cut returns what a power cut now would leave. On the result everything is durable. The
// disk itself and its processes go on.
func (d *Disk) Cut(v Survive) *Disk {
	s := d.Snapshot()
	// The finalizer spreads neighboring seeds over the whole range.
	c := cut{way: v, random: fmix(uint64(v))}
	for i, n := range s.nodes {
		if n == nil || !n.unsynced() && !n.syncFailed {
			continue
		}
		n = s.own(ino(i))
		if n.dir {
			n.entries = c.names(n)
		} else {
			n.data = c.data(n)
		}
		n.syncFailed = false
		n.sync()
	}
	s.sweep()
	return s
}

// cut is one power cut in progress.
type cut struct {
	way    Survive
	random uint64
}

// names returns the entries of a folder after the cut.
func (c *cut) names(n *node) []entry {
	switch {
	case c.way == OnlySynced || c.way == DataNotNames:
		return n.synced
	case c.way < fixedWays:
		return n.entries
	}
	left := n.synced
	for _, change := range n.pending {
		if c.pick(2) == 0 {
			continue
		}
		for _, e := range change {
			left = set(left, e.entry)
		}
	}
	return left
}

// data returns a file's data after the cut.
func (c *cut) data(n *node) *blob {
	volatile, durable := n.data.bytes(), n.durable.bytes()
	same := commonPrefix(volatile, durable)
	unsynced := len(volatile) - same
	way := c.way
	if way&seeded != 0 {
		way = [...]Survive{Everything, OnlySynced, Torn, Zeroed}[c.pick(4)]
	}
	switch way {
	case Everything, DataNotNames:
		return n.data
	case Torn:
		tear := same + unsynced/2
		if c.way != Torn {
			tear = same + c.pick(unsynced+1)
		}
		return newBlob(torn(volatile, durable, tear))
	case Zeroed:
		return newBlob(resized(durable, len(volatile)))
	}
	return n.durable
}

// pick returns a number below n, the next of the seed's sequence.
func (c *cut) pick(n int) int {
	c.random += 0x9e3779b97f4a7c15
	return int((fmix(c.random) >> 33) % uint64(n))
}

func commonPrefix(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// torn returns the new data up to the tear and the old data after it.
func torn(volatile, durable []byte, tear int) []byte {
	return slices.Concat(volatile[:tear], durable[min(tear, len(durable)):])
}

// resized returns a copy of b with n bytes, zeros where b has none.
func resized(b []byte, n int) []byte {
	left := make([]byte, n)
	copy(left, b)
	return left
}

// sweep frees the nodes that have no name. After a cut no process has one open, and no
// unsynced change can restore one.
func (d *Disk) sweep() {
	reached := make([]bool, len(d.nodes))
	d.reach(reached, root)
	d.free = d.free[:0]
	for i := int(root); i < len(d.nodes); i++ {
		if !reached[i] {
			d.nodes[i] = nil
			d.free = append(d.free, ino(i))
		}
	}
}

func (d *Disk) reach(reached []bool, i ino) {
	reached[i] = true
	for _, e := range d.nodes[i].entries {
		d.reach(reached, e.ino)
	}
}
