package crashfs

import "fmt"

// Survive says what of the unsynced state a power cut leaves.
type Survive uint64

// The fixed ways; [Seeded] has the others.
const (
	// OnlySynced leaves what was synced: new names vanish, removed ones come
	// back, files have the data of their last fsync or none.
	OnlySynced Survive = iota
	// Everything leaves all that was visible.
	Everything
	// NamesNotData leaves every name, with the data of the last fsync or none.
	NamesNotData
	// DataNotNames leaves all data, behind the names of the last SyncDir.
	DataNotNames
	// Torn leaves every name, and of the unsynced part of a file the first
	// half. What was synced behind the tear still stands there.
	Torn
	// Zeroed leaves every name and every length; unsynced parts read as zeros
	// or, where there was synced data, as that.
	Zeroed
	fixedWays

	seeded Survive = 1 << 63
)

// Seeded leaves an arbitrary part, the same one for the same number: each
// change of a folder survives or not by itself, and of each file's unsynced
// data all, nothing, a torn part or zeros.
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

// Cut returns what a power cut now would leave. On the result everything is
// durable. The disk itself and its processes go on.
func (d *Disk) Cut(v Survive) *Disk {
	s := d.Snapshot()
	// The finaliser spreads neighbouring seeds over the whole range.
	c := cut{way: v, random: fmix(uint64(v))}
	for i, n := range s.nodes {
		if n == nil || !n.unsynced() && !n.poisoned {
			continue
		}
		n = s.own(ino(i))
		if n.dir {
			n.entries = c.names(n)
		} else {
			n.data = c.data(n)
		}
		n.poisoned = false
		n.sync()
	}
	s.sweep()
	return s
}

// cut is one power cut being carried out.
type cut struct {
	way    Survive
	random uint64
}

// names returns the entries that a folder is left with.
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

// data returns what a file is left with.
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

// torn returns the new data up to the tear and the old data behind it.
func torn(volatile, durable []byte, tear int) []byte {
	left := append([]byte(nil), volatile[:tear]...)
	if tear < len(durable) {
		left = append(left, durable[tear:]...)
	}
	return left
}

// resized returns a copy of b with n bytes, zeros where b has none.
func resized(b []byte, n int) []byte {
	left := make([]byte, n)
	copy(left, b)
	return left
}

// sweep frees the nodes that no name leads to. After a cut no process has one
// open, and no unsynced change can bring one back.
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
